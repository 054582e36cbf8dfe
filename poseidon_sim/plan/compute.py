"""Compute model: seconds of every layer's forward and backward pass on one GPU, by the roofline.

Source: Williams et al., Roofline, CACM 2009. A layer takes the longer of its FLOP at the achievable rate and its bytes at
the achievable memory bandwidth, plus one launch per pass. Never a datasheet peak unscaled.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from poseidon_sim.cluster.parts import Gpu
from poseidon_sim.errors import InputError
from poseidon_sim.workload.layer import ELEMENT_BYTES, Layer, Workload

#: kernels of the backward pass reach less of the peak than those of the forward pass; from the published splits of four
#: CNNs on a Maxwell GPU (forward 28 to 34 % of an iteration), see docs/compute-model.md
BACKWARD_EFFICIENCY = 0.85


def layer_times(workload: Workload, gpu: Gpu | None, batch_size: float) -> npt.NDArray[np.float64]:
    """Return (L, 2) seconds per iteration: forward and backward of every layer at `batch_size` samples.

    Measured times of a layer stand as they are; modelled ones are scaled so that the whole iteration meets
    `workload.single_gpu_throughput` when that is given.

    Raises
    ------
    InputError
        A layer has no measured time and the GPU (or the layer) lacks the figures to model it.
    """
    measured = np.array([layer.forward_time is not None for layer in workload.layers])
    times = np.zeros((len(workload.layers), 2))
    for i in np.flatnonzero(measured):
        layer = workload.layers[i]
        times[i] = layer.forward_time, layer.backward_time
    if not measured.all():
        modelled = _roofline(workload, gpu, batch_size, ~measured)
        if workload.single_gpu_throughput is not None:
            target = batch_size / workload.single_gpu_throughput - times.sum()
            if target <= 0:
                raise InputError(
                    f"single_gpu_throughput={workload.single_gpu_throughput:g} samples/s means {batch_size / workload.single_gpu_throughput:g} s "
                    f"per iteration, but the measured layer times alone are {times.sum():g} s; lower one or the other"
                )
            modelled *= target / modelled.sum()
        times[~measured] = modelled
    return times


def _roofline(
    workload: Workload, gpu: Gpu | None, batch_size: float, which: npt.NDArray[np.bool_]
) -> npt.NDArray[np.float64]:
    layers = [layer for layer, wanted in zip(workload.layers, which, strict=True) if wanted]
    if gpu is None:
        raise InputError(
            f"layer {layers[0].name!r} has no forward_time and backward_time, and the cluster names no gpu; "
            "give the times, or gpu: titan-x-maxwell, say"
        )
    peak = gpu.flops.get(workload.precision) or gpu.flops.get("fp32")
    if not peak:
        raise InputError(f"gpu {gpu.name!r} states no flops for {workload.precision}, needed to model layer {layers[0].name!r}; give flops")
    tensor = gpu.flops.get("tf32") if workload.precision == "fp32" else None  # how frameworks run fp32 convolutions there
    direct = np.array([bool(tensor) and layer.kind == "conv" for layer in layers])
    peaks = np.where(direct, tensor or peak, peak)
    rate = peaks * np.array([_efficiency(gpu, layer) for layer in layers])
    size = ELEMENT_BYTES[workload.precision]
    memory = (gpu.memory_bandwidth or np.inf) * gpu.memory_efficiency
    moved = np.array([batch_size * (x.input_elements + x.output_elements) + x.parameters for x in layers]) * size
    flops = np.array([[x.forward_flops, x.backward_flops] for x in layers]) * batch_size
    if workload.precision == "fp32":  # tensor cores run the direct algorithm
        rate = rate * np.where(direct, 1.0, [x.saved_flops for x in layers])
    forward = np.maximum(flops[:, 0] / rate, moved / memory)
    backward = np.maximum(flops[:, 1] / (rate * BACKWARD_EFFICIENCY), 2.0 * moved / memory)
    busy = (flops.sum(axis=1) + moved) > 0
    times: npt.NDArray[np.float64] = np.stack([forward, backward], axis=1) + gpu.launch_overhead * busy[:, None]
    return times


def _efficiency(gpu: Gpu, layer: Layer) -> float:
    return gpu.efficiency.get(layer.kind, gpu.efficiency.get("default", 0.5))
