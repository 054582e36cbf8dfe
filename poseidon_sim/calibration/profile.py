"""Measure a torch model layer by layer: seconds of every layer's forward and backward pass on one device.

Hooks mark the moment a layer's forward begins, and the moment autograd reaches what its forward gave. From one mark to the
next is that layer's time, so the times of all layers fill the iteration without gaps. What runs between layers
(functional calls) counts to the layer before it in the pass. The optimizer and the loss function are not measured; the
gradient that enters the backward pass is drawn at random once.
"""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from poseidon_sim.calibration.loading import Built, build
from poseidon_sim.calibration.model_file import MeasuredLayer, Profile, Shape, layer_keys
from poseidon_sim.calibration.torch_parts import Clock, clock_of, gradients_for, import_torch, tensors_in
from poseidon_sim.errors import InputError

#: containers of torch.nn that use their children's weights without calling them: one layer each
WHOLE = frozenset({"MultiheadAttention"})
FORWARD, BACKWARD = 0, 1
#: how far the layers may be from the whole iteration before the file says that something else was running
DISTURBED = 0.1

Times = dict[tuple[int, int], list[float]]


@dataclass
class _Unit:
    """A module that is measured as one layer: shapes without the batch, taken at its first call."""

    name: str
    module: Any
    inputs: Shape = ()
    outputs: Shape = ()
    order: int = -1


@dataclass
class _Marks:
    """What one iteration leaves: (unit, pass, moment) in the order things happened."""

    clock: Clock
    found: list[tuple[int, int, Any]] = field(default_factory=list)
    nodes: list[Any] = field(default_factory=list)
    claimed: set[int] = field(default_factory=set)
    forward: bool = False


def profile_model(
    model: str | Callable[..., Any],
    batch_size: int,
    *,
    device: str = "auto",
    input_shape: Shape | None = None,
    repeats: int = 20,
    warmup: int = 5,
) -> Profile:
    """Measure a model and return it as a model file would say it.

    Parameters
    ----------
    model : "module:callable" (or "file.py:callable"), or the callable itself. It returns a torch.nn.Module, or a pair of
        it and example inputs (a tensor, a tuple of tensors, or a mapping of keyword arguments); if it has a parameter
        `batch_size`, it gets it. Inputs of one sample are repeated.
    device : auto, cpu, cuda or cuda:1.
    input_shape : shape of one sample when no example inputs are returned; a model that begins with Linear needs none.
    repeats : iterations measured with hooks, and as many without, in turn; medians are taken.

    Raises
    ------
    InputError : torch is missing, or the model cannot be built or run; the message says what to give.
    """
    for name, value, least in (("batch_size", batch_size, 1), ("repeats", repeats, 3), ("warmup", warmup, 1)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(f"{name}={value!r} must be a whole number of at least {least}")
    torch = import_torch()
    built = build(torch, model, batch_size, input_shape, device)
    units = list(_units(built))
    clock = clock_of(torch, built.device)
    gradients = _trial(torch, built)
    with_hooks: list[Times] = []
    plain, hooked = [], []
    for count in range(warmup + repeats):
        seconds, _ = _iteration(torch, built, gradients, _Marks(clock), [])
        total, times = _iteration(torch, built, gradients, _Marks(clock), units)
        if count >= warmup:
            plain.append(seconds)
            hooked.append(total)
            with_hooks.append(times)
    called = sorted((u for u in units if u.order >= 0), key=lambda u: u.order)
    if not called:
        raise InputError(f"{built.name}: no layer of it was called in its forward; give a model made of torch.nn modules")
    return _profile(torch, built, units, called, with_hooks, statistics.median(plain), statistics.median(hooked), repeats)


def _units(built: Built) -> Iterator[_Unit]:
    """Modules without children, and containers that use their children's weights themselves."""
    inside: list[str] = []
    for name, module in built.module.named_modules():
        if any(name.startswith(each + ".") for each in inside):
            continue
        whole = type(module).__name__ in WHOLE
        if whole:
            inside.append(name)
        if whole or not any(True for _ in module.children()):
            yield _Unit({"": built.name, "input": "input_layer"}.get(name, name), module)


def _trial(torch: Any, built: Built) -> list[Any]:
    """Run the model once; return the gradients to start every backward pass from."""
    try:
        output = built.run()
        gradients = gradients_for(torch, output)
        if not gradients:
            raise InputError(f"{built.name}: nothing it returns needs a gradient; has it trainable parameters?")
        torch.autograd.backward([t for t in tensors_in(output) if t.requires_grad], gradients)
    except InputError:
        raise
    except Exception as error:
        shapes = ", ".join(str(list(t.shape)) for t in tensors_in([built.args, built.kwargs]))
        text = f"{built.name}: {type(error).__name__} when run on inputs of shape {shapes}: {str(error)[:300]}"
        raise InputError(f"{text}; return fitting example inputs beside the model, or give the shape of one sample") from error
    return gradients


def _iteration(
    torch: Any, built: Built, gradients: list[Any], marks: _Marks, units: list[_Unit]
) -> tuple[float, Times]:
    """Run forward and backward once; return (seconds, seconds of every call by unit and pass). Without units there are no hooks."""
    handles = [handle for index, unit in enumerate(units) for handle in _hook(index, unit, marks)]
    built.module.zero_grad(set_to_none=True)
    try:
        marks.clock.settle()
        marks.forward = True
        begin = marks.clock.stamp()
        output = built.run()
        middle = marks.clock.stamp()
        marks.forward = False
        torch.autograd.backward([t for t in tensors_in(output) if t.requires_grad], gradients)
        end = marks.clock.stamp()
        marks.clock.settle()
    finally:
        for handle in handles:
            handle.remove()
    times: Times = {}
    for which, first, last in ((FORWARD, begin, middle), (BACKWARD, middle, end)):
        own = [(unit, moment) for unit, each, moment in marks.found if each == which]
        moments = [first, *(moment for _, moment in own[1:]), last]  # what precedes the first mark counts to the first layer
        for (unit, _), start, stop in zip(own, moments, moments[1:], strict=False):
            times.setdefault((unit, which), []).append(marks.clock.between(start, stop))
    return marks.clock.between(begin, end), times


def _hook(index: int, unit: _Unit, marks: _Marks) -> list[Any]:
    """Mark when the unit's forward begins, and when the backward pass comes to what it gave."""

    def began(*_: Any) -> None:
        if marks.forward:
            marks.found.append((index, FORWARD, marks.clock.stamp()))

    def reached(_: Any) -> None:
        marks.found.append((index, BACKWARD, marks.clock.stamp()))

    def ended(_: Any, args: Any, kwargs: Any, output: Any) -> None:
        if not marks.forward:
            return
        if unit.order < 0:
            unit.order = len(marks.found)
            unit.inputs, unit.outputs = (_shape(value) for value in ([args, kwargs], output))
        for tensor in tensors_in(output):
            node = tensor.grad_fn
            if node is not None and id(node) not in marks.claimed:  # a view or identity leaves the node to who made it
                marks.claimed.add(id(node))
                marks.nodes.append(node)
                node.register_prehook(reached)

    return [unit.module.register_forward_pre_hook(began), unit.module.register_forward_hook(ended, with_kwargs=True)]


def _shape(value: Any) -> Shape:
    """Shape of the first tensor without the batch."""
    for tensor in tensors_in(value):
        return tuple(int(size) for size in tensor.shape[1:])
    return ()


def _profile(
    torch: Any, built: Built, units: list[_Unit], called: list[_Unit], runs: list[Times],
    plain: float, hooked: float, repeats: int,
) -> Profile:  # fmt: skip
    """Take medians, subtract what the hooks cost, and describe every layer."""
    marks = statistics.mean(sum(map(len, run.values())) for run in runs)
    cost = max(0.0, hooked - plain) / marks
    index = {id(unit): at for at, unit in enumerate(units)}
    owned: set[int] = set()
    layers = []
    for unit in called:
        own = [p for p in unit.module.parameters() if p.requires_grad and p.grad is not None and id(p) not in owned]
        owned |= {id(p) for p in own}
        forward, backward = (_median(runs, (index[id(unit)], which), cost) for which in (FORWARD, BACKWARD))
        keys = layer_keys(unit.module, unit.inputs, unit.outputs, sum(p.numel() for p in own))
        layers.append(MeasuredLayer(unit.name, keys, forward, backward))
    layers = _with_loose_parameters(built, layers, owned)
    notes = _notes(built, sum(layer.forward_time + layer.backward_time for layer in layers), plain, hooked, cost, repeats)
    where = torch.cuda.get_device_name(built.device) if built.device.type == "cuda" else f"CPU {platform.machine()}"
    source = f"measured by poseidon-sim profile: {where}, torch {torch.__version__}, {time.strftime('%Y-%m-%d')}"
    return Profile(built.name, tuple(layers), built.batch_size, built.precision, built.sample, source, plain, cost, tuple(notes))


def _notes(built: Built, total: float, plain: float, hooked: float, cost: float, repeats: int) -> list[str]:
    """Say how the layers' times compare with the whole, and what is not in them."""
    whole = f"forward and backward take {plain * 1e3:.4g} ms without hooks (median of {repeats})"
    notes = [
        f"{whole}; the layers sum to {total * 1e3:.4g} ms",
        f"with hooks {hooked * 1e3:.4g} ms; {cost * 1e6:.3g} us per mark are subtracted",
        "optimizer, loss and input pipeline are not measured; work between layers counts to the layer before it in the pass",
    ]
    if abs(total / plain - 1.0) > DISTURBED:
        text = f"the layers' medians are {total / plain - 1.0:+.0%} off the whole iteration"
        advice = "something else ran, or threads waited; measure on a quiet machine (on a CPU with OMP_NUM_THREADS below its cores)"
        notes.append(f"{text}: {advice}")
    silent = sum(p.numel() for p in built.module.parameters() if p.grad is None)
    if silent:
        notes.append(f"{silent} parameters get no gradient (frozen or unused) and are left out")
    return notes


def _median(runs: list[Times], key: tuple[int, int], cost: float) -> float:
    """Median over iterations of all calls of one layer together, without what its marks cost."""
    calls = [run.get(key, []) for run in runs]
    return max(0.0, statistics.median(sum(each) - cost * len(each) for each in calls))


def _with_loose_parameters(built: Built, layers: list[MeasuredLayer], owned: set[int]) -> list[MeasuredLayer]:
    """Add parameters that lie on a container itself (a class token, a scale): no time of their own, before its first layer."""
    loose: dict[str, int] = {}
    for name, parameter in built.module.named_parameters():
        if parameter.requires_grad and parameter.grad is not None and id(parameter) not in owned:
            owner = name.rpartition(".")[0]
            loose[owner] = loose.get(owner, 0) + parameter.numel()
    for owner, count in loose.items():
        inside = [i for i, layer in enumerate(layers) if not owner or layer.name.startswith(owner + ".")]
        name = f"{owner}.own" if owner else "own"
        layers.insert(inside[0] if inside else 0, MeasuredLayer(name, {"kind": "other", "parameters": count}, 0.0, 0.0))
    return layers
