"""Compute model: seconds of every layer's forward and backward pass on one GPU, by the roofline.

A pass takes the longer of its FLOP at the achievable rate and its bytes at the achievable memory bandwidth, plus one
launch. Source: Williams et al., Roofline, CACM 2009. The equations, where every share comes from and how far the model is
from published rates: docs/compute-model.md.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from poseidon_sim.cluster.parts import Gpu
from poseidon_sim.errors import InputError
from poseidon_sim.plan.rates import ELEMENTWISE, HEAD_SIZE, PASSES, achievable_share, peak_rate
from poseidon_sim.plan.transformer import by_kernels, issue_seconds, transformer_times
from poseidon_sim.workload.layer import ELEMENT_BYTES, Layer, Workload

Array = npt.NDArray[np.float64]

#: share of the forward pass's rate that the gradient kernels of a layer reach: from published splits of CNNs on a Maxwell
#: GPU (forward 28 to 34 % of an iteration although it has 33 % of the FLOP)
BACKWARD_EFFICIENCY = 0.85
#: kinds whose work is matrix products; without FLOP they cannot be modelled
PRODUCTS = frozenset({"linear", "conv", "attention", "lstm"})


class _Costs(NamedTuple):
    """What a workload's layers need, per sample but for the weights; arrays of (L,) or (L, 2)."""

    flops: Array
    moved: Array
    weights: Array
    given: Array
    saved: Array
    scores: Array
    kernels: Array


def layer_times(workload: Workload, gpu: Gpu | None, batch_size: float) -> Array:
    """Return (L, 2) seconds per iteration: forward and backward of every layer at `batch_size` samples.

    Measured times of a layer grow evenly from the batch they were measured at (`workload.single_gpu_batch_size`; this one if not
    given). Modelled ones are scaled so that all layers together take batch_size / `workload.single_gpu_throughput` seconds when
    that is given; measured at another batch, the throughput scales the model there, and the model says how the two batches
    differ. The optimizer's step is not included.

    Raises
    ------
    InputError
        A layer has no measured time and the GPU (or the layer) lacks the figures to model it, or the measured times
        alone exceed what the throughput allows.

    Examples
    --------
    >>> fc = Layer("fc", "linear", (4096 * 1000,), 8.192e6, 16.384e6, 4096, 1000)
    >>> gpu = Gpu("mine", flops={"fp32": 1e12}, efficiency={"linear": 0.8192}, memory_bandwidth=1e12)
    >>> [round(1e6 * each) for each in layer_times(Workload("net", (fc,)), gpu, 1000)[0]]
    [10000, 23529]
    """
    if not batch_size > 0:
        raise InputError(f"batch_size={batch_size!r} must be greater than 0")
    costs = _costs(workload)
    missing = np.isnan(costs.given)
    known = workload.single_gpu_batch_size or batch_size
    if not missing.any():
        _check_measured(workload, known, float(costs.given.sum()))
        return costs.given * (batch_size / known)
    card = _modellable(workload, gpu, missing)
    modelled = _modelled(workload, card, batch_size, costs, missing)
    measured = np.where(missing, 0.0, costs.given)
    if workload.single_gpu_throughput is not None:
        there = modelled if known == batch_size else _modelled(workload, card, known, costs, missing)
        modelled = modelled * (_left_to_model(workload, known, float(measured.sum())) / there.sum())
    times: Array = modelled + measured * (batch_size / known)
    return times


@lru_cache(maxsize=256)
def waits_for_host(workload: Workload, gpu: Gpu | None, batch_size: float) -> bool:
    """Return whether a modelled transformer's pass takes what the host needs to issue it, and not what the GPU does."""
    if gpu is None or workload.is_measured or not by_kernels(workload, gpu):
        return False
    times = layer_times(workload, gpu, batch_size)
    issued = issue_seconds(workload) * (times > 0).sum(axis=0)
    return bool(np.any((issued > 0) & (times.sum(axis=0) <= issued * (1 + 1e-9))))


def _modelled(workload: Workload, gpu: Gpu, batch_size: float, costs: _Costs, missing: npt.NDArray[np.bool_]) -> Array:
    """Return (L, 2) seconds of the layers whose times are `missing`, 0 for the others."""
    modelled = _roofline(workload, gpu, batch_size, costs)
    if by_kernels(workload, gpu):
        modelled = transformer_times(workload, gpu, batch_size, modelled)
    return modelled * missing


def _check_measured(workload: Workload, samples: float, measured: float) -> None:
    """Refuse a throughput that contradicts the measured times of all layers: there is nothing to scale."""
    rate = workload.single_gpu_throughput
    if rate is not None and abs(samples / rate / measured - 1.0) > 0.05:
        raise InputError(
            f"single_gpu_throughput={rate:g} samples/s means {samples / rate:g} s per iteration, but the measured "
            f"times of all layers of model {workload.name!r} sum to {measured:g} s; give one of them, or make them agree"
        )


def _left_to_model(workload: Workload, batch_size: float, measured: float) -> float:
    """Return the seconds that the throughput leaves for the modelled layers."""
    rate = workload.single_gpu_throughput or 0.0
    if not rate > 0:
        raise InputError(f"single_gpu_throughput={rate:g} samples/s must be greater than 0")
    if batch_size / rate <= measured:
        raise InputError(
            f"single_gpu_throughput={rate:g} samples/s means {batch_size / rate:g} s per iteration, but the measured "
            f"layer times alone are {measured:g} s; lower one or the other"
        )
    return batch_size / rate - measured


def _modellable(workload: Workload, gpu: Gpu | None, missing: npt.NDArray[np.bool_]) -> Gpu:
    """Return the GPU when it and the layers state what the model needs."""
    layers = [workload.layers[i] for i in np.flatnonzero(missing.any(axis=1))]
    first = layers[0].name
    if gpu is None:
        raise InputError(
            f"layer {first!r} of model {workload.name!r} has no forward_time and backward_time, and the cluster names no "
            "gpu; give the times, or a gpu such as titan-x-maxwell"
        )
    if not peak_rate(gpu, workload.precision):
        stated = ", ".join(gpu.flops) or "none"
        raise InputError(
            f"gpu {gpu.name!r} states no flops for precision {workload.precision} (stated: {stated}), needed to model layer "
            f"{first!r}; give flops: {{{workload.precision}: ...}}, another precision, or the layer's times"
        )
    for layer in layers:
        if layer.kind in PRODUCTS and not layer.forward_flops > 0:
            raise InputError(
                f"layer {layer.name!r} ({layer.kind}) has neither FLOP nor times; give its shape, forward_flops, or "
                "forward_time and backward_time"
            )
    return gpu


def _roofline(workload: Workload, gpu: Gpu, batch_size: float, costs: _Costs) -> Array:
    """Return (L, 2) modelled seconds of all layers."""
    precision = workload.precision
    rates = {kind: _rate(gpu, kind, precision) for kind in {layer.kind for layer in workload.layers}}
    rate = np.array([rates[layer.kind] for layer in workload.layers])[:, None]
    if precision == "fp32" or (precision == "tf32" and "tf32" not in gpu.flops):
        direct = np.array([layer.kind == "conv" and "tf32" in gpu.flops for layer in workload.layers])
        rate = rate * np.where(direct, 1.0, costs.saved)[:, None]  # tensor cores run the direct algorithm
    rate = rate * (1.0, BACKWARD_EFFICIENCY)
    flops = batch_size * costs.flops
    flops = flops + np.minimum(flops, gpu.fill_flops * costs.kernels)
    moved = batch_size * costs.moved + costs.weights
    if not (gpu.fused_attention and ELEMENT_BYTES[precision] <= 2):
        moved = moved + batch_size * costs.scores
    seconds_per_element = ELEMENT_BYTES[precision] / (gpu.memory_efficiency * (gpu.memory_bandwidth or np.inf))
    times: Array = np.maximum(flops / rate, moved * seconds_per_element)
    return times + gpu.launch_overhead * ((costs.flops + costs.moved + costs.weights) > 0)


def _rate(gpu: Gpu, kind: str, precision: str) -> float:
    """Return the achievable FLOP/s; fp32 convolutions run in tf32 where a GPU has it, as frameworks do by default."""
    if kind == "conv" and precision == "fp32" and "tf32" in gpu.flops:
        precision = "tf32"
    return achievable_share(gpu, kind, precision) * (peak_rate(gpu, precision) or 0.0)


@lru_cache(maxsize=64)
def _costs(workload: Workload) -> _Costs:
    """Return what the layers need; per sample, but for weights."""
    layers = workload.layers
    passes = np.array([PASSES.get(layer.kind, ELEMENTWISE) for layer in layers])  # (L, 2, 4)
    elements = np.array([(layer.input_elements, layer.output_elements, layer.parameters) for layer in layers], float)
    return _Costs(
        flops=np.array([(layer.forward_flops, layer.backward_flops) for layer in layers], float),
        moved=(passes[:, :, :2] * elements[:, None, :2]).sum(axis=2),
        weights=passes[:, :, 2] * elements[:, 2:],
        given=np.array([(layer.forward_time, layer.backward_time) for layer in layers], float),
        saved=np.array([layer.saved_flops for layer in layers], float),
        kernels=np.array([(1.0, 2.0) if layer.kind in PRODUCTS else (0.0, 0.0) for layer in layers]),
        scores=passes[:, :, 3] * np.array([[_scores(layer)] for layer in layers]),
    )


def _scores(layer: Layer) -> float:
    """Return the elements of the score matrices of an attention layer: 2 products of 2 FLOP for each of a head's width."""
    return layer.forward_flops / (4.0 * (layer.heads.size if layer.heads else HEAD_SIZE))
