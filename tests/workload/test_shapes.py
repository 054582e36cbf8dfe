"""Layers from short entries: shapes, parameters and FLOPs against arithmetic that can be done by hand."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poseidon_sim.errors import InputError, UnitError
from poseidon_sim.workload.shapes import infer_layers


def one(entry, input_shape=None, **more):
    """Return the single layer of a one-entry model."""
    (layer,) = infer_layers([{"name": "it", **entry}], input_shape=input_shape, **more)
    return layer


def shape_after(entry, input_shape):
    """Return how many elements leave a layer."""
    return one(entry, input_shape).output_elements


def test_a_linear_layer_has_m_by_n_weights_and_two_flop_per_weight():
    """10 inputs, 5 outputs: 50 weights, 5 biases, 50 multiply-adds = 100 FLOP; first layer: backward once."""
    layer = one({"kind": "linear", "shape": [10, 5], "bias": True})
    assert layer.tensors == (50, 5)
    assert layer.factor_shape == (10, 5)
    assert (layer.forward_flops, layer.backward_flops) == (100.0, 100.0)
    assert (layer.input_elements, layer.output_elements) == (10.0, 5.0)


def test_the_backward_pass_of_a_later_layer_costs_twice_its_forward_pass():
    first, second = infer_layers(
        [{"name": "a", "kind": "linear", "shape": [10, 5]}, {"name": "b", "kind": "linear", "outputs": 3}]
    )
    assert first.backward_flops == first.forward_flops
    assert second.backward_flops == 2 * second.forward_flops == 2 * 2 * 15


def test_layers_without_parameters_before_the_first_trainable_one_need_no_gradient():
    pool, fc = infer_layers(
        [{"name": "p", "kind": "pool", "kernel": 2}, {"name": "f", "kind": "linear", "outputs": 3}],
        input_shape=(1, 4, 4),
    )
    assert pool.backward_flops == 0.0
    assert fc.backward_flops == fc.forward_flops


def test_a_linear_layer_on_a_sequence_has_one_outer_product_per_position():
    """7 positions of 10 features: 7 x 100 FLOP, and K samples give 7 K pairs of factors."""
    layer = one({"kind": "linear", "shape": [10, 5]}, sequence_length=7)
    assert layer.factor_rows == 7.0
    assert layer.forward_flops == 700.0
    assert layer.output_elements == 35.0
    assert layer.factor_bytes(2) == 2 * 7 * 15 * 4


def test_a_linear_layer_flattens_an_image():
    assert one({"kind": "linear", "outputs": 4096}, (512, 7, 7)).factor_shape == (25088, 4096)


def test_inline_layers_with_their_own_shapes_need_no_chain():
    layers = infer_layers(
        [{"name": "a", "kind": "linear", "shape": [10, 5]}, {"name": "b", "kind": "linear", "shape": [7, 2]}]
    )
    assert [layer.factor_shape for layer in layers] == [(10, 5), (7, 2)]


def test_a_declared_input_makes_a_wrong_shape_an_error():
    with pytest.raises(InputError, match=r"'it': shape says 7 inputs but it reads the shape \[10\]"):
        one({"kind": "linear", "shape": [7, 2]}, (10,))


def test_a_convolution_counts_its_kernel_at_every_output_position():
    """3 -> 64 channels, 7x7, stride 2, padding 3 on 224: 112 x 112 positions of 64 x 147 multiply-adds."""
    layer = one({"kind": "conv", "channels": 64, "kernel": 7, "stride": 2, "padding": 3}, (3, 224, 224))
    assert layer.tensors == (9408,)
    assert layer.output_elements == 64 * 112 * 112
    assert layer.forward_flops == 2 * 9408 * 112 * 112
    assert layer.factor_shape is None


def test_groups_divide_the_weights_of_a_convolution():
    layer = one(
        {"kind": "conv", "channels": 256, "kernel": 5, "padding": 2, "groups": 2, "bias": True}, (96, 27, 27)
    )
    assert layer.tensors == (256 * 48 * 25, 256)


@pytest.mark.parametrize(
    ("entry", "side"),
    [
        ({"kernel": 3}, 8),
        ({"kernel": 3, "padding": "valid"}, 8),
        ({"kernel": 3, "padding": "same"}, 10),
        ({"kernel": 3, "padding": "same", "stride": 3}, 4),
        ({"kernel": 3, "dilation": 2}, 6),
        ({"kernel": 3, "padding": 1, "stride": 2}, 5),
    ],
)
def test_padding_stride_and_dilation_set_the_output_side(entry, side):
    assert shape_after({"kind": "conv", "channels": 1, **entry}, (1, 10, 10)) == side**2


def test_kernels_need_not_be_square():
    layer = one({"kind": "conv", "channels": 4, "kernel": [1, 7], "padding": [0, 3]}, (2, 17, 17))
    assert layer.tensors == (4 * 2 * 7,)
    assert layer.output_elements == 4 * 17 * 17


def test_a_convolution_by_weight_shape_equals_the_one_by_channels():
    by_shape = one({"kind": "conv", "shape": [8, 3, 5, 5], "stride": 2}, (3, 32, 32))
    assert by_shape == one({"kind": "conv", "channels": 8, "kernel": 5, "stride": 2}, (3, 32, 32))


def test_ceil_mode_keeps_the_last_partial_window_as_caffe_does():
    """(112 - 3) / 2 + 1 = 55.5: 55 windows, or 56 with ceil_mode; none may start beyond the input."""
    pool = {"kind": "pool", "kernel": 3, "stride": 2}
    assert shape_after(pool, (1, 112, 112)) == 55**2
    assert shape_after({**pool, "ceil_mode": True}, (1, 112, 112)) == 56**2
    assert shape_after({**pool, "ceil_mode": True, "padding": 1, "kernel": 2}, (1, 3, 3)) == 2**2


def test_norms_have_two_vectors_an_rms_norm_one_and_a_local_norm_none():
    assert one({"kind": "norm"}, (64, 8, 8)).tensors == (64, 64)
    assert one({"kind": "norm", "type": "layer"}, (8, 32)).tensors == (32, 32)
    assert one({"kind": "norm", "type": "rms"}, (8, 32)).tensors == (32,)
    assert one({"kind": "norm", "type": "local"}, (64, 8, 8)).tensors == ()


def test_an_lstm_has_four_gates_on_input_and_state():
    """1500 features and 1500 hidden: 4 x 1500 x 3000 weights and 6000 biases."""
    layer = one({"kind": "lstm", "outputs": 1500}, (35, 1500))
    assert layer.parameters == 4 * 1500 * 3000 + 6000
    assert layer.output_elements == 35 * 1500


def test_an_embedding_is_a_table_and_costs_no_arithmetic():
    layer = one({"kind": "embedding", "vocabulary": 100, "outputs": 8}, (5,))
    assert (layer.tensors, layer.forward_flops, layer.output_elements) == ((800,), 0.0, 40.0)


def test_attention_multiplies_every_position_with_every_other_twice():
    """8 positions, hidden 16: scores 8 x 8 x 16 and the weighted sum again, 2 FLOP each."""
    fused = one({"kind": "attention", "heads": 4}, (8, 48))
    assert fused.forward_flops == 2 * 2 * 8 * 8 * 16
    assert fused.output_elements == 8 * 16
    windowed = one({"kind": "attention", "heads": 4, "window": 2}, (8, 48))
    assert windowed.forward_flops == fused.forward_flops / 4
    grouped = one({"kind": "attention", "heads": 4, "key_value_heads": 2}, (8, 32))
    assert grouped.output_elements == 8 * 16


def test_branches_join_by_concat_and_by_add():
    entries = [
        {"name": "a", "kind": "conv", "channels": 4, "kernel": 1, "input": "input"},
        {"name": "b", "kind": "conv", "channels": 4, "kernel": 1, "input": "input"},
        {"name": "sum", "kind": "add", "inputs": ["a", "b"]},
        {"name": "both", "kind": "concat", "inputs": ["a", "sum"]},
    ]
    layers = infer_layers(entries, input_shape=(3, 5, 5))
    assert layers[2].inputs == ("a", "b")
    assert layers[2].output_elements == 4 * 25
    assert layers[3].output_elements == 8 * 25


def test_the_inline_form_of_the_scenario_contract_is_read():
    fc1, conv1, conv2 = infer_layers(
        [
            {
                "name": "fc1",
                "kind": "linear",
                "shape": [4096, 4096],
                "forward_time": "3 ms",
                "backward_time": "6 ms",
            },
            {
                "name": "conv1",
                "kind": "conv",
                "parameters": 590080,
                "forward_time": "2 ms",
                "backward_time": "4 ms",
            },
            {"name": "conv2", "kind": "conv", "gradient_bytes": "2.36 MB", "forward_flops": "3.1e9"},
        ]
    )
    assert (fc1.tensors, fc1.factor_shape, fc1.forward_time, fc1.backward_time) == (
        (4096 * 4096,),
        (4096, 4096),
        0.003,
        0.006,
    )
    assert conv1.gradient_bytes() == 4 * 590080
    assert conv2.gradient_bytes() == pytest.approx(2.36e6)
    assert (conv2.forward_flops, conv2.backward_flops) == (3.1e9, 6.2e9)


def test_stated_parameters_settle_whether_there_is_a_bias():
    assert one({"kind": "linear", "shape": [10, 5], "parameters": 55}).tensors == (50, 5)
    assert one({"kind": "linear", "shape": [10, 5], "parameters": 50}).tensors == (50,)


def test_a_layer_of_another_kind_may_be_times_only():
    layer = one({"kind": "other", "forward_time": "1 ms", "backward_time": "0 s"})
    assert (layer.tensors, layer.forward_time, layer.backward_time) == ((), 0.001, 0.0)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"kind": "conv"}, "neither times, nor FLOPs, nor a known shape; give channels and kernel"),
        (
            {"kind": "conv", "forward_time": "1 ms", "backward_time": "1 ms"},
            "give parameters, gradient_bytes",
        ),
        (
            {"kind": "linear", "parameters": 9, "forward_flops": 9},
            r"needs its shape; give shape: \[inputs, outputs\]",
        ),
        ({"kind": "linear", "shape": [10, 5], "forward_time": "1 ms"}, "given without backward_time"),
        ({"kind": "linear", "shape": [10, 5], "backward_time": "1 ms"}, "given without forward_time"),
        ({"kind": "linear", "shape": [10, 5], "backward_flops": 3}, "given without forward_flops"),
        ({"kind": "linear", "shape": [10, 5], "parameters": 51}, "parameters=51 but its shape gives"),
        ({"kind": "linear", "shape": [10, 0]}, r"shape\[1\]=0 must be a whole number"),
        ({"kind": "linear", "shape": [10, -5]}, r"shape\[1\]=-5 must be a whole number"),
        ({"kind": "linear", "shape": [10, float("nan")]}, "must be a whole number"),
        ({"kind": "linear", "shape": [10, True]}, "must be a whole number"),
        ({"kind": "linear", "shape": [10, 2, 5]}, r"must be \[inputs, outputs\]"),
        ({"kind": "linear", "shape": "10x5"}, "must be a list"),
        ({"kind": "linear", "shape": [10, 5], "bias": "no"}, "bias='no' must be true or false"),
        ({"kind": "linear", "shape": [10, 5], "tied": "table"}, "unknown layer 'table'"),
        ({"kind": "linear", "shaep": [10, 5]}, "unknown key 'shaep'; did you mean 'shape'"),
        ({"kind": "linaer", "shape": [10, 5]}, "unknown kind 'linaer'; did you mean 'linear'"),
        ({"kind": False}, "was read as a truth value"),
        ({}, "kind is missing"),
        ({"kind": "other", "forward_flops": "1e400"}, "must be a number of at least 0"),
        ({"kind": "activation", "input": "nowhere"}, "unknown input 'nowhere'"),
        ({"kind": "activation", "input": [3, 4], "inputs": ["a"]}, "not both"),
    ],
)
def test_a_wrong_entry_is_refused_with_the_name_of_its_layer(entry, message):
    with pytest.raises(InputError, match=message) as caught:
        one(entry)
    assert "'it'" in str(caught.value)


def test_a_time_without_a_unit_is_refused():
    with pytest.raises(UnitError, match="layer 'it': forward_time=3 has no unit"):
        one({"kind": "other", "forward_time": 3, "backward_time": "1 ms"})


@pytest.mark.parametrize("entries", [[], None, {}, "conv", [3], [None], [{1: 2}]])
def test_what_is_no_list_of_layers_is_refused(entries):
    with pytest.raises(InputError):
        infer_layers(entries)


def test_two_layers_may_not_share_a_name():
    entry = {"name": "a", "kind": "linear", "shape": [2, 2]}
    with pytest.raises(InputError, match="'a' is used twice"):
        infer_layers([entry, entry])


WILD = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=5),
        st.sampled_from(["input", "a", "3 ms"]),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
KEYS = st.sampled_from(
    [
        "name",
        "kind",
        "input",
        "inputs",
        "output",
        "then",
        "parameters",
        "gradient_bytes",
        "forward_time",
        "backward_time",
        "forward_flops",
        "backward_flops",
        "shape",
        "outputs",
        "channels",
        "kernel",
        "stride",
        "padding",
        "groups",
        "block",
        "repeat",
        "heads",
    ]
)
KIND_NAMES = st.sampled_from(
    ["linear", "conv", "pool", "norm", "add", "concat", "attention", "lstm", "other", "flatten"]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(KIND_NAMES, st.dictionaries(KEYS, WILD, max_size=5)), max_size=3), st.booleans())
def test_garbage_entries_never_raise_anything_but_an_input_error(entries, with_input):
    written = [
        {"name": f"layer{index}", "kind": kind, **values} for index, (kind, values) in enumerate(entries)
    ]
    with contextlib.suppress(InputError):
        infer_layers(written, input_shape=(3, 8, 8) if with_input else None)
