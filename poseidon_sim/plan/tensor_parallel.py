"""Seconds a transformer's layers compute on one GPU, whole or as the share that tensor parallelism gives it, and the optimizer's step.

A linear layer is split by its outputs (column) or by its inputs (row); attention is split by heads; layers between two split
ones (the activation of a feed-forward part) are split with them; norms, residual sums and embeddings work on whole positions,
unless sequence parallelism deals those out. Source: Shoeybi et al., Megatron-LM, arXiv 1909.08053; Korthikanti et al.,
Reducing Activation Recomputation, arXiv 2205.05198. Messages between the GPUs are not in here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from math import ceil
from typing import Literal

import numpy as np
import numpy.typing as npt

from poseidon_sim.cluster.parts import Gpu
from poseidon_sim.errors import InputError
from poseidon_sim.plan.compute import ELEMENTWISE, HEAD_SIZE, PASSES, achievable_share, peak_rate
from poseidon_sim.plan.products import kernel_time, product_time
from poseidon_sim.workload.layer import ELEMENT_BYTES, Layer, Workload

Split = Literal["column", "row", "inner", "whole"]
Recompute = Literal["none", "selective", "full"]

#: reads and writes of the score matrix between its products, forward and backward: masked softmax, dropout and its mask
SCORE_PASSES = (4.5, 5.5)
#: FLOP of fused attention's backward pass against its forward pass: five products, two of which repeat forward ones
FUSED_BACKWARD = 2.5
#: reads and writes of the weights' gradient that add it to those of earlier micro-batches
ACCUMULATION_PASSES = 3.0
#: reads and writes of the logits by softmax and loss in fp32, forward and backward, counted in 16-bit elements
LOSS_PASSES = (8.0, 4.0)
#: seconds the host takes to issue one pass of one layer (Megatron under PyTorch); fitted on passes bound by it
HOST_OVERHEAD = 165e-6


def splits(workload: Workload) -> tuple[Split, ...]:
    """Return how tensor parallelism splits every layer of a transformer.

    A linear layer that reads whole positions is split by columns, one that reads split ones by rows; attention, activations
    and products of split values are `inner`; the rest is `whole`.
    """
    found: list[Split] = []
    split: dict[str, bool] = {}
    for layer in workload.layers:
        reads_split = any(split.get(name, False) for name in layer.inputs)
        found.append(_split(layer, reads_split))
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
    causal: bool = True,
    recompute: Recompute = "none",
) -> tuple[float, float]:
    """Return (forward, backward) seconds of a layer's share at `micro_batch` samples; its measured times are not asked.

    `flash_attention` None leaves it to the GPU; a fused kernel skips what a causal mask hides. With `recompute` full the layer
    runs forward again before its backward pass, with selective only attention does.

    >>> gpu = Gpu("mine", flops={"bf16": 1e14}, efficiency={"default": 0.5})
    >>> up = Layer("up", "linear", (4096 * 16384,), 2.5e12, 5e12, 2048 * 4096, 2048 * 16384, factor_rows=2048)
    >>> one, four = (layer_times(up, gpu, "bf16", 1.0, tensor_parallel=t)[0] for t in (1, 4))
    >>> one / four
    4.0
    """
    if not peak_rate(gpu, precision):
        raise InputError(f"gpu {gpu.name!r} states no flops for precision {precision} (stated: {', '.join(gpu.flops) or 'none'})")
    part = share(layer, tensor_parallel, split, sequence_parallel)
    if part.kind == "linear":
        forward, backward = _linear(part, gpu, precision, micro_batch)
    elif part.kind == "attention" and (gpu.fused_attention if flash_attention is None else flash_attention):
        forward, backward = _fused_attention(part, gpu, precision, micro_batch, causal)
    elif part.kind == "attention":
        forward, backward = _attention(part, gpu, precision, micro_batch)
    else:
        forward, backward = _moved(part, gpu, precision, micro_batch)
    if forward + backward > 0:
        forward, backward = forward + gpu.launch_overhead, backward + gpu.launch_overhead
    if recompute == "full" or (recompute == "selective" and layer.kind == "attention"):
        backward += forward
    return forward, backward


def _linear(layer: Layer, gpu: Gpu, precision: str, batch: float) -> tuple[float, float]:
    """One product forward, two backward, and the sum of the gradient with those of earlier micro-batches."""
    positions, per_position = batch * layer.factor_rows, layer.factor_rows
    depth, width = layer.input_elements / per_position, layer.output_elements / per_position
    forward = product_time(gpu, precision, positions, width, depth)
    inputs = product_time(gpu, precision, positions, depth, width)
    weights = product_time(gpu, precision, depth, width, positions)
    sums = kernel_time(gpu, ACCUMULATION_PASSES * depth * width * _kept_bytes(precision))
    return forward, inputs + weights + sums


def _attention(layer: Layer, gpu: Gpu, precision: str, batch: float) -> tuple[float, float]:
    """Scores in memory: two products forward and four backward in a batch of heads, with softmax and dropout between."""
    size = layer.head_size or HEAD_SIZE
    heads_positions = layer.output_elements / size
    seen = layer.forward_flops / (4.0 * layer.output_elements) if layer.output_elements else 0.0
    count = batch * heads_positions / seen if seen else 0.0  # heads x samples, of seen x seen scores
    scores = product_time(gpu, precision, seen, seen, size, count)
    sums = product_time(gpu, precision, seen, size, seen, count)
    bytes_of_scores = batch * heads_positions * seen * _kept_bytes(precision)
    forward, backward = _moved(layer, gpu, precision, batch)
    forward += scores + sums + kernel_time(gpu, SCORE_PASSES[0] * bytes_of_scores)
    backward += scores + 3.0 * sums + kernel_time(gpu, SCORE_PASSES[1] * bytes_of_scores)
    return forward, backward


def _fused_attention(layer: Layer, gpu: Gpu, precision: str, batch: float, causal: bool) -> tuple[float, float]:
    """One kernel a pass that keeps its scores on the chip."""
    rate = achievable_share(gpu, "fused_attention", precision) * (peak_rate(gpu, precision) or 0.0)
    seconds = batch * layer.forward_flops * (0.5 if causal else 1.0) / rate
    forward, backward = _moved(layer, gpu, precision, batch)
    return forward + seconds, backward + FUSED_BACKWARD * seconds


def _moved(layer: Layer, gpu: Gpu, precision: str, batch: float) -> tuple[float, float]:
    """Bytes by the passes that the kind makes over its inputs, outputs and weights."""
    forward, backward = (
        batch * (each[0] * layer.input_elements + each[1] * layer.output_elements) + each[2] * layer.parameters
        for each in PASSES.get(layer.kind, ELEMENTWISE)
    )
    size = _kept_bytes(precision)
    return kernel_time(gpu, forward * size), kernel_time(gpu, backward * size)


def _kept_bytes(precision: str) -> int:
    """Bytes of an element between products: products may run in fp8, what lies between them is kept in 16 bits."""
    return max(2, ELEMENT_BYTES[precision])


@lru_cache(maxsize=64)
def pass_times(
    workload: Workload,
    gpu: Gpu,
    micro_batch: float,
    tensor_parallel: int = 1,
    sequence_parallel: bool = False,
    *,
    flash_attention: bool | None = None,
    causal: bool = True,
    recompute: Recompute = "none",
    host_overhead: float = HOST_OVERHEAD,
) -> npt.NDArray[np.float64]:
    """Return (L, 2) seconds: forward and backward of every layer's share on one GPU at `micro_batch` samples.

    Softmax and loss are counted to the last layer when it is linear. Recomputation in full spares the head: what comes after
    the last residual sum. A pass takes no less than `host_overhead` for each layer: kernels wait for the host when they are
    small, and it runs ahead over a whole pass otherwise.
    """
    last_sum = max((i for i, each in enumerate(workload.layers) if each.kind == "add"), default=-1)
    again = [recompute if i <= last_sum else "none" for i in range(len(workload.layers))]
    options: Mapping[str, bool | None] = {"flash_attention": flash_attention, "causal": causal}
    times = np.array([
        layer_times(
            layer, gpu, workload.precision, micro_batch, tensor_parallel, sequence_parallel,
            split=split, recompute=each, **options,
        )
        for layer, split, each in zip(workload.layers, splits(workload), again, strict=True)
    ])  # fmt: skip
    last = workload.layers[-1]
    if last.kind == "linear":
        logits = micro_batch * last.output_elements / tensor_parallel
        times[-1] += [kernel_time(gpu, passes * logits * 2) for passes in LOSS_PASSES]
    issued = np.array([[1.0, 1.0 + (each == "full")] for each in again]) * (times > 0) * host_overhead
    waits = np.maximum(1.0, issued.sum(axis=0) / times.sum(axis=0))
    bound: npt.NDArray[np.float64] = times * waits
    bound.flags.writeable = False
    return bound


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
