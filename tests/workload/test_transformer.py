"""The parametric transformer: counts that follow from a handful of numbers."""

import pytest

from poseidon_sim.errors import InputError
from poseidon_sim.workload.load import load_model

TINY = {"layers": 3, "hidden": 8, "heads": 2, "vocabulary": 11}


def transformer(sequence_length=4, **changes):
    """Return a small transformer with some numbers changed."""
    return load_model({"transformer": {**TINY, **changes}}, sequence_length=sequence_length)


def test_a_layer_has_twelve_hidden_squared_weights():
    """q, k, v, output: 4 h^2; up and down: 8 h^2; without biases and norms 12 x 64 = 768 per layer."""
    model = transformer(bias=False)
    weights = sum(
        layer.parameters for layer in model.layers if layer.name.startswith("layer.1.") and layer.factor_shape
    )
    assert weights == 768


def test_a_fused_projection_has_the_same_parameters_as_three():
    assert transformer(fused_qkv=True).parameters == transformer().parameters


def test_a_tied_head_costs_work_and_no_parameters():
    own, tied = transformer(), transformer(head="tied")
    assert own.parameters - tied.parameters == 11 * 8
    assert own.forward_flops == tied.forward_flops


def test_grouped_queries_shrink_keys_and_values():
    """One key-value head of two: k and v are 8 x 4 instead of 8 x 8, 4 biases less each, 3 layers."""
    assert transformer().parameters - transformer(key_value_heads=1).parameters == 3 * 2 * (32 + 4)


def test_norms_may_stand_after_the_sums_as_in_bert():
    names = [layer.name for layer in transformer(norm_first=False).layers]
    assert names.index("layer.1.attention_sum") + 1 == names.index("layer.1.attention_norm")
    assert "embedding_norm" in names
    assert "final_norm" not in names


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": 3}, "must be a multiple of heads=3"),
        ({"layer": 3}, "unknown key 'layer'; did you mean 'layers'"),
        ({"positions": 2}, "sequence_length=4 is longer than its positions=2"),
        ({"head": "two"}, "must be one of own, tied"),
        ({"hidden": 0}, "hidden=0"),
    ],
)
def test_an_impossible_architecture_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        transformer(**changes)


def test_a_transformer_needs_a_sequence_length():
    with pytest.raises(InputError, match="needs sequence_length"):
        load_model({"transformer": TINY})
