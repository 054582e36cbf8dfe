"""Seconds of a transformer's layers on tensor cores, kernel by kernel: products by tiles, what lies between them by bytes.

Used where a model has attention, computes in 16 bits or fewer, and the GPU states its multiprocessors. A linear layer is one
product forward and two backward. Attention is one fused kernel, or products over scores in memory with softmax and dropout
between. Norms, sums and activations are bytes. A pass never takes less than the host needs to issue it. Equations and where
their few numbers come from: docs/compute-model.md.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from poseidon_sim.cluster.parts import Gpu
from poseidon_sim.plan.products import kernel_time, product_time
from poseidon_sim.plan.rates import ELEMENTWISE, HEAD_SIZE, PASSES, achievable_share, peak_rate
from poseidon_sim.workload.layer import ELEMENT_BYTES, Layer, Workload

Times = npt.NDArray[np.float64]

#: reads and writes of the score matrix between its products, forward and backward: masked softmax, dropout and its mask
SCORE_PASSES = (4.5, 5.5)
#: FLOP of fused attention's backward pass against its forward pass: five products, two of which repeat forward ones
FUSED_BACKWARD = 2.5
#: reads and writes of the weights' gradient that add it to those of earlier micro-batches
ACCUMULATION_PASSES = 3.0
#: reads and writes of the logits by softmax and loss in fp32, forward and backward, counted in 16-bit elements
LOSS_PASSES = (8.0, 4.0)
#: seconds the host takes to issue one pass of one layer (Megatron in PyTorch of 2022); fitted on passes that are bound by it
ISSUE_TIME = 160e-6
#: kinds that are modelled elsewhere
_OTHER = frozenset({"conv", "lstm"})


def by_kernels(workload: Workload, gpu: Gpu) -> bool:
    """Return whether a model on a GPU is modelled kernel by kernel."""
    narrow = ELEMENT_BYTES[workload.precision] <= 2
    return bool(gpu.multiprocessors) and narrow and any(layer.kind == "attention" for layer in workload.layers)


def transformer_times(workload: Workload, gpu: Gpu, batch: float, otherwise: Times) -> Times:
    """Return (L, 2) seconds, forward and backward, of every layer; those of other kinds as in `otherwise`.

    Softmax and loss are counted to the last layer when it is linear.
    """
    precision = workload.precision
    times = np.array([
        as_before if layer.kind in _OTHER else _layer(layer, gpu, precision, batch)
        for layer, as_before in zip(workload.layers, otherwise, strict=True)
    ])  # fmt: skip
    last = workload.layers[-1]
    if last.kind == "linear":
        times[-1] += [kernel_time(gpu, passes * batch * last.output_elements * 2) for passes in LOSS_PASSES]
    times += gpu.launch_overhead * (times > 0)
    issued = issue_seconds(workload) * (times > 0).sum(axis=0)
    bound: Times = times * np.maximum(1.0, issued / np.maximum(times.sum(axis=0), 1e-30))
    return bound


def issue_seconds(workload: Workload) -> float:
    """Return the seconds the host takes to issue one pass of one layer."""
    return ISSUE_TIME if workload.issue_time is None else workload.issue_time


def _layer(layer: Layer, gpu: Gpu, precision: str, batch: float) -> tuple[float, float]:
    if layer.kind == "linear":
        return _linear(layer, gpu, precision, batch)
    if layer.kind != "attention":
        return _moved(layer, gpu, precision, batch)
    fused = layer.heads.fused if layer.heads and layer.heads.fused is not None else gpu.fused_attention
    return _fused_attention(layer, gpu, precision, batch) if fused else _attention(layer, gpu, precision, batch)


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
    size = layer.heads.size if layer.heads else HEAD_SIZE
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


def _fused_attention(layer: Layer, gpu: Gpu, precision: str, batch: float) -> tuple[float, float]:
    """One kernel a pass that keeps its scores on the chip and skips those that a causal mask hides."""
    causal = layer.heads is not None and layer.heads.causal
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
