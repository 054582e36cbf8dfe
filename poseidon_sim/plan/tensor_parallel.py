"""Seconds a layer computes on one GPU when tensor parallelism gives that GPU a share of it, and of the optimizer's step.

A linear layer is split by its outputs (column) or by its inputs (row); attention is split by heads; layers between two split
ones (the activation of a feed-forward part) are split with them; norms, residual sums and embeddings work on whole positions,
unless sequence parallelism deals those out. Source: Shoeybi et al., Megatron-LM, arXiv 1909.08053; Korthikanti et al.,
Reducing Activation Recomputation, arXiv 2205.05198. Messages between the GPUs are not in here.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Literal

from poseidon_sim.cluster.parts import Gpu
from poseidon_sim.errors import InputError
from poseidon_sim.plan import compute
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

    Without `split` a linear layer is a column layer, attention `inner` and everything else `whole`.
    """
    if tensor_parallel < 1:
        raise InputError(f"tensor_parallel={tensor_parallel} must be at least 1")
    split = split or _split(layer, False)
    if tensor_parallel == 1 or (split == "whole" and not sequence_parallel):
        return layer
    part = 1.0 / tensor_parallel
    reads, writes = 1.0 if split == "column" else part, 1.0 if split == "row" else part
    tensors = layer.tensors
    if split in ("column", "row"):
        kept = 0 if split == "column" else 1  # every GPU adds the bias of a row layer
        tensors = tuple(ceil(size * part) if i == 0 or not kept else size for i, size in enumerate(tensors))
    shape = layer.factor_shape
    if shape is not None and split == "column":
        shape = (shape[0], ceil(shape[1] * part))
    elif shape is not None and split == "row":
        shape = (ceil(shape[0] * part), shape[1])
    return replace(
        layer, tensors=tensors, factor_shape=shape,
        forward_flops=layer.forward_flops * part, backward_flops=layer.backward_flops * part,
        input_elements=layer.input_elements * reads, output_elements=layer.output_elements * writes,
    )  # fmt: skip


def layer_times(
    layer: Layer,
    gpu: Gpu,
    precision: str,
    micro_batch: float,
    tensor_parallel: int = 1,
    sequence_parallel: bool = False,
    *,
    split: Split | None = None,
    flash_attention: bool | None = None,
    recompute: Recompute = "none",
) -> tuple[float, float]:
    """Return (forward, backward) seconds of a layer's share at `micro_batch` samples.

    `flash_attention` None leaves it to the GPU. With `recompute` full every layer runs forward again before its backward pass,
    with selective only attention does.

    >>> gpu = Gpu("mine", flops={"bf16": 1e14}, efficiency={"default": 0.5})
    >>> up = Layer("up", "linear", (4096 * 16384,), 1e12, 2e12, factor_shape=(4096, 16384))
    >>> layer_times(up, gpu, "bf16", 1.0)[0], layer_times(up, gpu, "bf16", 1.0, tensor_parallel=4)[0]
    (0.02, 0.005)
    """
    if flash_attention is not None:
        gpu = replace(gpu, fused_attention=flash_attention)
    part = share(layer, tensor_parallel, split, sequence_parallel)
    forward, backward = map(float, compute.layer_times(Workload("layer", (part,), precision=precision), gpu, micro_batch)[0])
    if recompute == "full" or (recompute == "selective" and layer.kind == "attention"):
        backward += forward
    return forward, backward


def optimizer_time(gpu: Gpu, parameters: float, bytes_per_parameter: float) -> float:
    """Return seconds of an optimizer's step that reads and writes `bytes_per_parameter` for each parameter this GPU updates.

    Adam in mixed precision moves about 28: the gradient, the master weight and two moments read (2 or 4 + 12), the last three
    and a 16-bit copy written (14).

    >>> optimizer_time(Gpu("mine", memory_bandwidth=1e12, memory_efficiency=0.8), 1e9, 28)
    0.035
    """
    if not gpu.memory_bandwidth:
        return gpu.launch_overhead
    return parameters * bytes_per_parameter / (gpu.memory_efficiency * gpu.memory_bandwidth) + gpu.launch_overhead
