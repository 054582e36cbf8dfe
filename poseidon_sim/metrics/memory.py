"""Memory of one GPU in training: parameters, gradients, optimizer state, activations, framework."""

from __future__ import annotations

from dataclasses import dataclass

from poseidon_sim.cluster import Gpu
from poseidon_sim.workload.layer import Workload

#: bytes that the CUDA context, cuDNN workspaces and the allocator take; an assumption (0.5 to 1 GB is usual)
FRAMEWORK_BYTES = 0.7e9
#: kinds whose output replaces their input or is a view of it, so nothing is kept for backward
_IN_PLACE = frozenset({"activation", "dropout", "flatten", "reshape", "select", "concat"})


@dataclass(frozen=True)
class Memory:
    """Bytes on one GPU, by what they hold; `capacity` is the GPU's, or None when unknown."""

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    framework: float
    capacity: float | None

    @property
    def total(self) -> float:
        """Bytes of everything together."""
        return self.parameters + self.gradients + self.optimizer + self.activations + self.framework

    @property
    def fits(self) -> bool:
        """Whether it fits; true when the capacity is unknown."""
        return self.capacity is None or self.total <= self.capacity


def memory_per_gpu(workload: Workload, gpu: Gpu | None, batch_size: int) -> Memory:
    """Return the memory of one data-parallel replica.

    Activations are the outputs that backward needs, batch x elements x bytes per element; in-place kinds (ReLU,
    dropout, views) keep none.

    >>> from poseidon_sim.workload.load import load_model
    >>> memory_per_gpu(load_model("vgg19"), None, 32).parameters
    574668960.0
    """
    size = workload.element_bytes
    parameters = float(workload.parameters * size)
    kept = sum(layer.output_elements for layer in workload.layers if layer.kind not in _IN_PLACE)
    return Memory(
        parameters=parameters,
        gradients=workload.gradient_bytes,
        optimizer=workload.parameters * workload.optimizer_bytes,
        activations=batch_size * kept * size,
        framework=FRAMEWORK_BYTES,
        capacity=gpu.memory if gpu is not None else None,
    )


def largest_batch(workload: Workload, gpu: Gpu) -> int:
    """Return the largest batch per GPU that fits, 0 when not even one sample does."""
    one = memory_per_gpu(workload, gpu, 1)
    if one.capacity is None or not one.activations:
        return 0 if not one.fits else 2**31
    left = one.capacity - (one.total - one.activations)
    return max(0, int(left // one.activations))
