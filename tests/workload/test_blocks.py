"""The short spelling of model files: then, blocks, repeat, defaults and where a layer reads from."""

import pytest

from poseidon_sim.errors import InputError
from poseidon_sim.workload.blocks import expand

BLOCK = {
    "cell": [
        {"name": "a", "kind": "linear", "outputs": "$width", "then": "activation"},
        {"name": "sum", "kind": "add", "inputs": ["$input", "a"]},
    ]
}


def wiring(entries, **more):
    """Return (name, inputs) of every layer."""
    return [(step.name, step.inputs) for step in expand(entries, **more)]


def test_then_adds_layers_and_the_name_stands_for_the_last_of_them():
    entries = [
        {"name": "a", "kind": "conv", "then": ["norm", {"kind": "pool", "kernel": 2}]},
        {"name": "b", "kind": "conv"},
        {"name": "c", "kind": "add", "inputs": ["a", "b"]},
    ]
    assert wiring(entries) == [
        ("a", ("input",)),
        ("a.norm", ("a",)),
        ("a.pool", ("a.norm",)),
        ("b", ("a.pool",)),
        ("c", ("a.pool", "b")),
    ]


def test_a_repeated_block_chains_its_copies_and_numbers_them_from_one():
    entries = [{"name": "first", "kind": "conv"}, {"name": "cell", "block": "cell", "width": 8, "repeat": 2}]
    assert wiring(entries, blocks=BLOCK)[1:] == [
        ("cell.1.a", ("first",)),
        ("cell.1.a.activation", ("cell.1.a",)),
        ("cell.1.sum", ("first", "cell.1.a.activation")),
        ("cell.2.a", ("cell.1.sum",)),
        ("cell.2.a.activation", ("cell.2.a",)),
        ("cell.2.sum", ("cell.1.sum", "cell.2.a.activation")),
    ]


def test_a_block_may_read_from_an_earlier_layer():
    entries = [
        {"name": "first", "kind": "conv"},
        {"name": "aside", "kind": "conv"},
        {"name": "cell", "block": "cell", "width": 8, "input": "first"},
    ]
    assert wiring(entries, blocks=BLOCK)[2] == ("cell.a", ("first",))


def test_parameters_of_a_block_replace_its_dollar_names():
    steps = expand([{"name": "cell", "block": "cell", "width": 8}], blocks=BLOCK)
    assert steps[0].entry.values["outputs"] == 8


def test_defaults_lie_under_what_a_layer_says_itself():
    steps = expand(
        [{"name": "a", "kind": "conv", "kernel": 1}, {"name": "b", "kind": "conv"}],
        defaults={"conv": {"kernel": 3, "bias": True}},
    )
    assert [step.entry.values["kernel"] for step in steps] == [1, 3]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"block": "cel", "width": 8}, "unknown block 'cel'; did you mean 'cell'"),
        ({"block": "cell"}, r"uses \$width, which is not given"),
        ({"block": "cell", "width": 8, "depth": 2}, "no use for depth"),
        ({"block": "cell", "width": 8, "repeat": 0}, "repeat=0 must be a whole number"),
        ({"block": "cell", "width": 8, "repeat": 10**6}, "at most 100000 layers"),
        ({"block": "self"}, "does 'self' contain itself"),
        ({"kind": "conv", "then": 3}, "then=3 must be a kind"),
        ({"kind": "conv", "inputs": []}, "must be a list of layer names"),
        ({"kind": "conv", "input": "it"}, "unknown input 'it'"),
    ],
)
def test_a_wrong_use_of_the_short_spelling_says_what_is_wrong(entry, message):
    blocks = {**BLOCK, "self": [{"name": "again", "block": "self"}]}
    with pytest.raises(InputError, match=message):
        expand([{"name": "it", **entry}], blocks=blocks)


def test_the_name_input_is_reserved():
    with pytest.raises(InputError, match="reserved for the model's input"):
        expand([{"name": "input", "kind": "conv"}])
