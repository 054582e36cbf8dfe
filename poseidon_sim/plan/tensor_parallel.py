"""The share of a layer that tensor parallelism gives one GPU, and seconds of the optimizer's step.

A linear layer is split by its outputs (column) or by its inputs (row); attention is split by heads; layers between two split
ones (the activation of a feed-forward part) are split with them; norms, residual sums and embeddings work on whole positions,
unless sequence parallelism deals those out. Source: Shoeybi et al., Megatron-LM, arXiv 1909.08053; Korthikanti et al.,
Reducing Activation Recomputation, arXiv 2205.05198.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Literal

from poseidon_sim.cluster.parts import Gpu
from poseidon_sim.errors import InputError
from poseidon_sim.workload.layer import Layer, Workload

Split = Literal["column", "row", "inner", "whole"]
Recompute = Literal["none", "selective", "full"]


def splits(workload: Workload) -> tuple[Split, ...]:
    """Return how tensor parallelism splits every layer of a transformer.

    A linear layer that reads whole positions is split by columns, one that reads split ones by rows; attention, activations
    and products of split values are `inner`; the rest is `whole`, a router (a linear layer of a block that nobody reads) too.
    """
    found: list[Split] = []
    split: dict[str, bool] = {}
    read = {name for layer in workload.layers for name in layer.inputs}
    for layer in workload.layers:
        reads_split = any(split.get(name, False) for name in layer.inputs)
        routes = layer.kind == "linear" and layer.block != "" and layer.name not in read and not reads_split
        found.append("whole" if routes else _split(layer, reads_split))
        split[layer.name] = found[-1] in ("column", "inner")
    return tuple(found)


def _split(layer: Layer, reads_split: bool) -> Split:
    if layer.kind == "linear":
        return "row" if reads_split else "column"
    if layer.kind == "attention" or (reads_split and layer.kind not in ("norm", "add")):
        return "inner"
    return "whole"


def share(layer: Layer, tensor_parallel: int, split: Split | None = None, sequence_parallel: bool = False) -> Layer:
    """Return the part of a layer that one of `tensor_parallel` GPUs holds.

    Without `split` a linear layer is a column layer, attention `inner` and everything else `whole`. The table of an embedding
    is split by rows of the vocabulary, what it writes is not.
    """
    if tensor_parallel < 1:
        raise InputError(f"tensor_parallel={tensor_parallel} must be at least 1")
    split = split or _split(layer, False)
    if tensor_parallel == 1 or (split == "whole" and not sequence_parallel and layer.kind != "embedding"):
        return layer
    part = 1.0 / tensor_parallel
    if layer.kind == "embedding":
        return replace(layer, tensors=tuple(ceil(size * part) for size in layer.tensors))
    reads, writes = 1.0 if split == "column" else part, 1.0 if split == "row" else part
    first, rest = part if split in ("column", "row") else 1.0, part if split == "column" else 1.0  # a row layer's bias is whole
    shape = layer.factor_shape
    if shape is not None and split in ("column", "row"):
        shape = (shape[0], ceil(shape[1] * part)) if split == "column" else (ceil(shape[0] * part), shape[1])
    return replace(
        layer,
        tensors=tuple(ceil(size * (rest if i else first)) for i, size in enumerate(layer.tensors)),
        factor_shape=shape,
        forward_flops=layer.forward_flops * part,
        backward_flops=layer.backward_flops * part,
        input_elements=layer.input_elements * reads,
        output_elements=layer.output_elements * writes,
    )


def optimizer_time(gpu: Gpu, parameters: float, bytes_per_parameter: float) -> float:
    """Return seconds of an optimizer's step that reads and writes `bytes_per_parameter` for each parameter this GPU updates.

    Adam in mixed precision moves about 28: the gradient, the master weight and two moments read (2 or 4 + 12), the last three
    and a 16-bit copy written (14). Unscaling and converting the gradient first makes it 34 to 40.

    >>> optimizer_time(Gpu("mine", memory_bandwidth=1e12, memory_efficiency=0.8), 1e9, 28)
    0.035
    """
    if not gpu.memory_bandwidth:
        return gpu.launch_overhead
    return parameters * bytes_per_parameter / (gpu.memory_efficiency * gpu.memory_bandwidth) + gpu.launch_overhead
