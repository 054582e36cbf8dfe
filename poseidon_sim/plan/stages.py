"""A model cut into stages for a pipeline, each split by tensor parallelism: what a stage computes, holds and passes on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt

from poseidon_sim.cluster.parts import Gpu
from poseidon_sim.errors import InputError
from poseidon_sim.plan import compute
from poseidon_sim.plan.tensor_parallel import Recompute, share, splits
from poseidon_sim.plan.tensor_parallel import Split as SplitKind
from poseidon_sim.workload.layer import ELEMENT_BYTES, Layer, Workload

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Split:
    """How a model is cut: `stages` parts in forward order, each over `tensor` GPUs; positions dealt out over `context` GPUs.

    `experts` : replicas that hold different experts of every layer that has some.
    """

    stages: int = 1
    tensor: int = 1
    context: int = 1
    sequence_parallel: bool = False
    recompute: Recompute = "none"
    experts: int = 1


@dataclass(frozen=True, eq=False)
class Stages:
    """What each of S stages is, for one GPU of it; pieces (K, padded with zeros) are in the order of backward.

    Parameters
    ----------
    forward : (S,) seconds of a micro-batch. `backward` : (S, K) seconds by piece, what is recomputed included.
    gradient_bytes, parameters : (S, K), (S,) of this GPU's share. `boundary_bytes` : (S,) what a stage hands to the next one,
        of a micro-batch, one way, whole. `tensor_bytes`, `tensor_calls` : (S, 2) bytes and calls of the all-reduces among its
        tensor-parallel GPUs in the forward and backward pass of a micro-batch. `expert_gradient_bytes`, `expert_parameters` :
        (S, K), (S,) of experts that not every replica holds (not in the figures above). `expert_bytes`, `expert_calls` : (S, 2) of
        the all-to-alls between those replicas, what a GPU deals out. `tied`, `tied_bytes` : the stages that hold a copy of one
        tensor each, and a GPU's share of its gradient; None and 0 where no tensor is in two stages.
    """

    forward: Floats
    backward: Floats
    gradient_bytes: Floats
    parameters: Floats
    boundary_bytes: Floats
    tensor_bytes: Floats
    tensor_calls: Floats
    expert_gradient_bytes: Floats
    expert_parameters: Floats
    expert_bytes: Floats
    expert_calls: Floats
    tied: tuple[int, int] | None = None
    tied_bytes: float = 0.0


def cut(workload: Workload, num_stages: int) -> list[list[int]]:
    """Return the indices of the layers of every stage.

    Repeated blocks that are alike are dealt out evenly, what stands before them goes to the first stage and what follows to the
    last; where they divide only with two more, embedding and output layer count as one each (an option of Megatron and DeepSpeed).
    A model of unlike blocks, or none, is cut between blocks and layers so that the stage with most FLOP (or measured time) has as
    little as can be.

    >>> layers = tuple(Layer(name, "conv", (1,), 1.0, 2.0) for name in "abcd")
    >>> cut(Workload("net", layers), 2)
    [[0, 1], [2, 3]]
    """
    return [list(each) for each in _cut(workload, num_stages)]


@lru_cache(maxsize=128)
def _cut(workload: Workload, num_stages: int) -> tuple[tuple[int, ...], ...]:
    units = _units(workload)
    names = [workload.layers[unit[0]].block for unit in units]
    blocks = [i for i, name in enumerate(names) if name]
    weights = [work_of(workload, unit) for unit in units]
    alike = len(blocks) > 1 and max(weights[i] for i in blocks) <= 1.01 * min(weights[i] for i in blocks)
    if not alike:
        blocks = list(range(len(units)))
    elif len(blocks) % num_stages and (len(blocks) + 2) % num_stages == 0 and blocks[0] > 0 and blocks[-1] + 1 < len(units):
        blocks = [0, *blocks, blocks[-1] + 1]  # the embedding and the output layer count as a block each
    if num_stages > len(blocks):
        raise InputError(
            f"model {workload.name!r} has {len(blocks)} {'blocks' if alike else 'parts'}, too few for {num_stages} stages; "
            "lower pipeline"
        )
    starts = _even(len(blocks), num_stages) if alike else _balanced(weights, num_stages)
    edges = [blocks[start] for start in starts]
    edges[0] = 0
    bounds = [*edges, len(units)]
    return tuple(tuple(i for unit in units[a:b] for i in unit) for a, b in pairwise(bounds))


def _units(workload: Workload) -> list[list[int]]:
    """Return runs of layers that stay together: a block, or a layer with parameters and what follows it."""
    units: list[list[int]] = []
    for i, layer in enumerate(workload.layers):
        same_block = bool(units) and layer.block != "" and workload.layers[units[-1][0]].block == layer.block
        follows = bool(units) and layer.block == "" and not layer.parameters and workload.layers[units[-1][0]].block == ""
        if same_block or follows:
            units[-1].append(i)
        else:
            units.append([i])
    return units


def _even(count: int, parts: int) -> list[int]:
    """Return where each of `parts` begins; the first ones get one more when they do not divide."""
    return [part * (count // parts) + min(part, count % parts) for part in range(parts)]


def work_of(workload: Workload, unit: list[int]) -> float:
    """Return how much layers work: measured seconds where all layers have them, else FLOP."""
    layers = [workload.layers[i] for i in unit]
    if workload.has_all_times:
        return sum((layer.forward_time or 0.0) + (layer.backward_time or 0.0) for layer in layers)
    return sum(layer.forward_flops + layer.backward_flops for layer in layers)


def _balanced(weights: list[float], parts: int) -> list[int]:
    """Return where each part begins so that the heaviest part is lightest: dynamic programming over prefix sums."""
    total = [0.0, *accumulate(weights)]
    n = len(weights)
    best = [total[i] for i in range(n + 1)]  # one part holds the first i
    choice: list[list[int]] = []
    for part in range(2, parts + 1):
        now, chosen = [np.inf] * (n + 1), [0] * (n + 1)
        for i in range(part, n + 1):
            for j in range(part - 1, i):
                value = max(best[j], total[i] - total[j])
                if value < now[i]:
                    now[i], chosen[i] = value, j
        best = now
        choice.append(chosen)
    starts, end = [], n
    for chosen in reversed(choice):
        end = chosen[end]
        starts.append(end)
    return [0, *reversed(starts)]


@lru_cache(maxsize=256)
def stages(workload: Workload, gpu: Gpu | None, micro_batch: float, split: Split) -> Stages:
    """Return what the stages of a model are on one kind of GPU at a micro-batch of so many samples."""
    kinds, made = splits(workload), cut(workload, split.stages)
    copied = _copied(workload, made)
    parts = tuple(_part(copied.get(i, x), kind, split) for i, (x, kind) in enumerate(zip(workload.layers, kinds, strict=True)))
    times = _times(workload, parts, gpu, micro_batch / split.context)
    again = np.array([_runs_again(layer, split.recompute) for layer in workload.layers])
    size, messages = workload.element_bytes, ELEMENT_BYTES[workload.precision] * micro_batch / split.context
    dealt = np.array([split.experts > 1 and layer.experts > 1 for layer in workload.layers])
    gradients = np.array([part.gradient_bytes(size) for part in parts])
    parameters = np.array([float(part.parameters) for part in parts])
    tensor = [_tensor_messages(workload, kinds, stage, split) for stage in made]
    expert = [_expert_messages(workload, stage, split) for stage in made]
    ends = [workload.layers[stage[-1]].output_elements for stage in made[:-1]]
    tied = next(iter(copied), None)
    where = {i: s for s, stage in enumerate(made) for i in stage}
    names = {layer.name: i for i, layer in enumerate(workload.layers)}
    return Stages(
        forward=np.array([times[stage, 0].sum() for stage in made]),
        backward=_by_piece(workload, made, times[:, 1] + again * times[:, 0]),
        gradient_bytes=_by_piece(workload, made, gradients * ~dealt),
        parameters=np.array([(parameters * ~dealt)[stage].sum() for stage in made]),
        boundary_bytes=messages * np.array([*ends, 0.0]),
        tensor_bytes=messages * np.array([elements for elements, _ in tensor]),
        tensor_calls=np.array([calls for _, calls in tensor], dtype=np.float64),
        expert_gradient_bytes=_by_piece(workload, made, gradients * dealt),
        expert_parameters=np.array([(parameters * dealt)[stage].sum() for stage in made]),
        expert_bytes=messages / split.tensor * np.array([elements for elements, _ in expert]),
        expert_calls=np.array([calls for _, calls in expert], dtype=np.float64),
        tied=None if tied is None else (where[names[workload.layers[tied].tied]], where[tied]),
        tied_bytes=0.0 if tied is None else float(parts[tied].tensors[0] * size),
    )


def _by_piece(workload: Workload, made: list[list[int]], values: Floats) -> Floats:
    """Return (S, K) sums over the layers of every piece of every stage, in the order of backward."""
    units = {i: u for u, unit in enumerate(_units(workload)) for i in unit}
    found = np.zeros((len(made), max(len({units[i] for i in stage}) for stage in made)))
    for s, stage in enumerate(made):
        for i in stage:
            found[s, units[stage[-1]] - units[i]] += values[i]
    return found


def _copied(workload: Workload, made: list[list[int]]) -> dict[int, Layer]:
    """Return the layers that share a tensor with a layer of another stage, by index: they hold a copy of it."""
    where = {workload.layers[i].name: s for s, stage in enumerate(made) for i in stage}
    found = {}
    for i, layer in enumerate(workload.layers):
        if layer.tied and where[layer.tied] != where[layer.name]:
            found[i] = replace(layer, tensors=(workload.layer(layer.tied).tensors[0], *layer.tensors))
    return found


def _expert_messages(workload: Workload, stage: list[int], split: Split) -> tuple[tuple[float, float], tuple[int, int]]:
    """Return elements per sample and calls of a stage's all-to-alls, forward and backward: to the experts and from them."""
    if split.experts == 1:
        return (0.0, 0.0), (0, 0)
    ends = [x for x in (workload.layers[i] for i in stage) if x.kind in ("dispatch", "collect")]
    moved = [(x, x.output_elements if x.kind == "dispatch" else x.input_elements) for x in ends]
    again = [each for each in moved if _runs_again(each[0], split.recompute)]
    forward = sum(elements for _, elements in moved)
    return (forward, forward + sum(elements for _, elements in again)), (len(moved), len(moved) + len(again))


def _part(layer: Layer, kind: SplitKind, split: Split) -> Layer:
    """Return a layer's share on one GPU; measured times are divided with its work. Experts are dealt out, their work is not."""
    part = share(layer, split.tensor, kind, split.sequence_parallel)
    if split.experts > 1 and layer.experts > 1:
        if layer.experts % split.experts:
            raise InputError(f"experts={split.experts} does not divide the {layer.experts} experts of layer {layer.name!r}")
        part = replace(part, tensors=tuple(size // split.experts for size in part.tensors))
    if layer.forward_time is None or layer.backward_time is None or kind == "whole":
        return part
    return replace(part, forward_time=layer.forward_time / split.tensor, backward_time=layer.backward_time / split.tensor)


def _times(workload: Workload, parts: tuple[Layer, ...], gpu: Gpu | None, micro_batch: float) -> Floats:
    """Return (L, 2) seconds of the parts, scaled as a throughput of the whole model on one GPU says."""
    times = compute.layer_times(workload.with_changes(layers=parts, single_gpu_throughput=None), gpu, micro_batch)
    if workload.single_gpu_throughput is not None:
        modelled = compute.layer_times(workload.with_changes(single_gpu_throughput=None), gpu, micro_batch).sum()
        times = times * (compute.layer_times(workload, gpu, micro_batch).sum() / modelled)
    return times


def _runs_again(layer: Layer, recompute: Recompute) -> float:
    """Return 1 for a layer whose forward pass is repeated before its backward pass: blocks whole, or their attention."""
    if recompute == "selective":
        return float(layer.kind == "attention")
    return float(recompute == "full" and layer.block != "")


def _tensor_messages(
    workload: Workload, kinds: tuple[str, ...], stage: list[int], split: Split
) -> tuple[tuple[float, float], tuple[int, int]]:
    """Return elements per sample and calls of a stage's all-reduces, forward and backward.

    Forward sums what row layers write and what a split token table gives; backward the gradients that column layers send to
    what they read, once for all that read the same. What is recomputed sums again.
    """
    if split.tensor == 1:
        return (0.0, 0.0), (0, 0)
    layers, tables = workload.layers, [i for i in stage if workload.layers[i].kind == "embedding" and workload.layers[i].tensors]
    rows = [i for i in stage if kinds[i] == "row"]
    read = {layers[i].inputs: layers[i].input_elements for i in stage if kinds[i] == "column"}
    largest = max(tables, key=lambda i: layers[i].parameters, default=None)
    forward = sum(layers[i].output_elements for i in rows)
    again = sum(layers[i].output_elements for i in rows if _runs_again(layers[i], split.recompute))
    calls_again = sum(1 for i in rows if _runs_again(layers[i], split.recompute))
    table = layers[largest].output_elements if largest is not None else 0.0
    return (forward + table, sum(read.values()) + again), (len(rows) + (largest is not None), len(read) + calls_again)
