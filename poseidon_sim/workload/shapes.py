"""From the entries of a model description to layers: shapes along the chain, FLOPs, parameters, figures.

An entry may state what was measured (`forward_time` and `backward_time`), what is known (`parameters`,
`gradient_bytes`, `forward_flops`, `backward_flops`) or the geometry from which the rest follows.

The backward pass of a layer with parameters is taken as twice its forward pass (the gradient of the weights
and of the input), and as once where nothing before it has parameters: then nobody needs the input's gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from poseidon_sim.errors import UnknownNameError, unknown_name
from poseidon_sim.workload.blocks import MODEL_INPUT, Step, expand
from poseidon_sim.workload.entry import Entry, Shape
from poseidon_sim.workload.kinds import KINDS, PARAMETRISED, Inferred, Kind
from poseidon_sim.workload.layer import Layer

_COMMON_KEYS = frozenset(
    {"name", "kind", "input", "inputs", "output", "then", "parameters", "gradient_bytes"}
    | {"forward_time", "backward_time", "forward_flops", "backward_flops"}
)
_KEYS = {name: _COMMON_KEYS | kind.keys for name, kind in KINDS.items()}


@dataclass
class _Chain:
    """What is known at one point of the network: output shapes, and behind which layers parameters lie."""

    declared: bool
    sequence_length: int | None
    shapes: dict[str, Shape | None] = field(default_factory=dict)
    needs_gradient: dict[str, bool] = field(default_factory=lambda: {MODEL_INPUT: False})


def infer_layers(
    entries: object,
    *,
    input_shape: Shape | None = None,
    sequence_length: int | None = None,
    blocks: Mapping[str, object] | None = None,
    defaults: Mapping[str, Mapping[str, object]] | None = None,
) -> tuple[Layer, ...]:
    """Return the layers of a model description, in forward order.

    Parameters
    ----------
    entries : list of mappings, one per layer or block, as written in a model file or a scenario.
    input_shape : shape of one sample, e.g. (3, 224, 224); without it the layers must carry their own figures.
    sequence_length : positions of a sample that is a sequence; linear layers then act on every position.
    blocks, defaults : named groups of entries and per-kind defaults (see `poseidon_sim.workload.blocks`).

    Raises
    ------
    InputError : names the layer, what is wrong and what to write.

    Examples
    --------
    >>> (layer,) = infer_layers([{"name": "fc1", "kind": "linear", "shape": [4096, 1000], "bias": True}])
    >>> layer.tensors, layer.factor_shape, layer.forward_flops
    ((4096000, 1000), (4096, 1000), 8192000.0)
    """
    chain = _Chain(input_shape is not None, sequence_length)
    if input_shape is None and sequence_length is not None:
        input_shape = (sequence_length,)
    chain.shapes[MODEL_INPUT] = input_shape
    return tuple(_layer(step, chain) for step in expand(entries, blocks, defaults))


def _layer(step: Step, chain: _Chain) -> Layer:
    """Infer one layer and note what it leaves for the next ones."""
    entry = step.entry
    name = entry.text("kind")
    if name not in KINDS:
        raise UnknownNameError(f"{entry.label}: {unknown_name('kind', name, KINDS)}")
    kind = KINDS[name]
    entry.check_keys(_KEYS[name])
    if "tied" in entry and entry.text("tied") not in chain.shapes:
        raise UnknownNameError(
            f"{entry.label}: tied: {unknown_name('layer', entry.text('tied'), chain.shapes)}"
        )
    forward_time, backward_time = _times(entry)
    shapes = _input_shapes(step, chain, name)
    settled = kind.infer is not None and (not kind.settled_by or not kind.settled_by.isdisjoint(entry.values))
    if kind.infer is not None and settled and shapes is not None:
        inferred = _checked(entry, kind, shapes)
    else:
        inferred = _stated(entry, name, kind, timed=forward_time is not None, settled=settled)
    forward_flops, backward_flops = _flops(step, inferred, chain)
    chain.shapes[step.name] = inferred.output
    return Layer(
        name=step.name,
        kind=name,
        tensors=inferred.tensors,
        forward_flops=forward_flops,
        backward_flops=backward_flops,
        input_elements=float(sum(prod(shape) for shape in shapes or ())),
        output_elements=float(prod(inferred.output)) if inferred.output else 0.0,
        factor_shape=inferred.factor_shape,
        factor_rows=inferred.factor_rows,
        saved_flops=inferred.saved_flops,
        heads=inferred.heads,
        forward_time=forward_time,
        backward_time=backward_time,
        gradient_bytes_given=entry.size("gradient_bytes"),
        inputs=tuple(each for each in step.inputs if isinstance(each, str) and each != MODEL_INPUT),
        block=step.block,
        experts=entry.count("experts", 1) if "experts" in entry else 1,
        tied=entry.text("tied") if "tied" in entry else "",
    )


def _times(entry: Entry) -> tuple[float | None, float | None]:
    """Return the measured times: both or none."""
    forward, backward = entry.time("forward_time"), entry.time("backward_time")
    if forward is None and backward is not None:
        raise entry.error(
            "backward_time is given without forward_time; give both, or neither to have them modelled"
        )
    if backward is None and forward is not None:
        raise entry.error(
            "forward_time is given without backward_time; give both, or neither to have them modelled"
        )
    return forward, backward


def _input_shapes(step: Step, chain: _Chain, kind: str) -> tuple[Shape, ...] | None:
    """Return the shapes a layer reads, or None where the chain does not tell."""
    shapes = tuple(each if isinstance(each, tuple) else chain.shapes[each] for each in step.inputs)
    known = tuple(shape for shape in shapes if shape is not None)
    chained = chain.declared or "input" in step.entry or "inputs" in step.entry
    if kind == "linear" and "shape" in step.entry and not (chained and len(known) == len(shapes)):
        num_inputs = step.entry.shape("shape")[0]
        fits = len(known) == 1 and num_inputs in (known[0][-1] if len(known[0]) == 2 else 0, prod(known[0]))
        if not fits:
            return (
                ((num_inputs,),) if chain.sequence_length is None else ((chain.sequence_length, num_inputs),)
            )
    return known if len(known) == len(shapes) else None


def _checked(entry: Entry, kind: Kind, shapes: tuple[Shape, ...]) -> Inferred:
    """Infer from geometry and hold the result against what the entry also states."""
    assert kind.infer is not None
    inferred = kind.infer(entry, shapes)
    if "parameters" in entry:
        stated = entry.count("parameters", least=0)
        if sum(inferred.tensors) != stated and "bias" in kind.keys and "bias" not in entry:
            inferred = kind.infer(Entry({**entry.values, "bias": True}, entry.label), shapes)
        if sum(inferred.tensors) != stated:
            raise entry.error(
                f"parameters={stated} but its shape gives {sum(inferred.tensors)}; correct one of them"
            )
    if "output" in entry and entry.shape("output") != inferred.output:
        raise entry.error(
            f"output={entry.values['output']} but its shape gives {list(inferred.output or ())}"
        )
    return inferred


def _stated(entry: Entry, name: str, kind: Kind, *, timed: bool, settled: bool) -> Inferred:
    """Take a layer on its own word: times or FLOPs, and the size of its gradient if it has parameters."""
    if not timed and "forward_flops" not in entry:
        chain = "the model's input: [...], or " if kind.infer is not None else ""
        geometry = f"{kind.advice}, or " if kind.advice and not settled else chain
        raise entry.error(
            f"this {name} layer has neither times, nor FLOPs, nor a known shape; "
            f"give {geometry}forward_time and backward_time, or forward_flops"
        )
    tensors: tuple[int, ...] = ()
    if name == "linear" and "tied" not in entry:
        raise entry.error(f"a linear layer needs its shape; give {kind.advice} (or use kind: other)")
    if "parameters" in entry:
        tensors = tuple(each for each in (entry.count("parameters", least=0),) if each)
    elif name == "conv" and "shape" in entry:
        kernel = entry.shape("shape")
        tensors = (prod(kernel), kernel[0]) if entry.flag("bias", False) else (prod(kernel),)
    elif name in PARAMETRISED and "gradient_bytes" not in entry:
        raise entry.error(f"a {name} layer has a gradient; give parameters, gradient_bytes or {kind.advice}")
    return Inferred(entry.shape("output") if "output" in entry else None, tensors)


def _flops(step: Step, inferred: Inferred, chain: _Chain) -> tuple[float, float]:
    """Return forward and backward FLOPs; stated ones win over inferred ones."""
    entry = step.entry
    trainable = bool(inferred.tensors) or "gradient_bytes" in entry
    before = any(
        chain.needs_gradient.get(each, True) if isinstance(each, str) else True for each in step.inputs
    )
    if all(isinstance(each, tuple) for each in step.inputs) and len(chain.needs_gradient) == 1:
        before = False
    chain.needs_gradient[step.name] = trainable or before
    if "backward_flops" in entry and "forward_flops" not in entry:
        raise entry.error("backward_flops is given without forward_flops; give both, or only forward_flops")
    forward = (
        entry.number("forward_flops", allow_zero=True) if "forward_flops" in entry else inferred.forward_flops
    )
    if "backward_flops" in entry:
        return forward, entry.number("backward_flops", allow_zero=True)
    products = int(trainable) + int(before) if trainable else inferred.gradient_products * int(before)
    return forward, forward * products
