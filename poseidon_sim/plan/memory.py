"""Memory of one GPU in training: parameters, gradients, optimizer state, activations, framework."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from poseidon_sim.cluster import Gpu
from poseidon_sim.workload.activations import kept_by_layer, kept_elements
from poseidon_sim.workload.layer import Workload

#: bytes that the CUDA context, cuDNN workspaces and the allocator take; an assumption (0.5 to 1 GB is usual)
FRAMEWORK_BYTES = 0.7e9


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

    @property
    def shortfall(self) -> float:
        """Bytes that are missing; 0 when it fits."""
        return 0.0 if self.fits or self.capacity is None else self.total - self.capacity


def memory_per_gpu(workload: Workload, gpu: Gpu | None, batch_size: float, shares: Mapping[str, float] | None = None) -> Memory:
    """Return the memory of one GPU, in bytes: of a whole data-parallel replica, or the `shares` that it holds of each part.

    Gradients are held in the precision of the parameters; with 16 bits or fewer the optimizer keeps an fp32 copy of the parameters
    beside its state (Micikevicius et al., Mixed Precision Training, 2018): Adam takes 2 + 2 + 4 + 8 bytes a parameter.
    Activations are the outputs that backward
    needs, batch x elements x bytes per element. Not kept: in-place kinds (ReLU, dropout, views) and sums
    (backward does not need their inputs). Kept: activations between the linear layers of a transformer
    (GELU needs its input and the next layer its output), attention scores in 32-bit precision (fused
    attention, which recomputes them, exists for 16 bits only), and the loss's copy of the last output.
    Source of the transformer count: Korthikanti et al., Reducing Activation Recomputation, 2022, section
    4. Simplified: the short-lived gradients of activations are taken to fit where activations were freed;
    the framework's share is an assumption.

    >>> from poseidon_sim.workload.load import load_model
    >>> memory_per_gpu(load_model("vgg19"), None, 32).parameters
    574668960.0
    """
    size = workload.element_bytes
    parameters = float(workload.parameters * size)
    of = dict.fromkeys(("parameters", "gradients", "optimizer", "activations"), 1.0) | dict(shares or {})
    return Memory(
        parameters=of["parameters"] * parameters,
        gradients=of["gradients"] * parameters,
        optimizer=of["optimizer"] * workload.parameters * workload.state_bytes,
        activations=of["activations"] * batch_size * kept_elements(workload) * size,
        framework=FRAMEWORK_BYTES,
        capacity=gpu.memory if gpu is not None else None,
    )


def operator_memory(workload: Workload, batch_size: float) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return (L,) bytes of parameters with gradients and optimizer state, and of activations kept for backward, by layer."""
    size = workload.element_bytes
    fixed = np.array([x.parameters * (2 * size + workload.state_bytes) for x in workload.layers], dtype=np.float64)
    return fixed, batch_size * size * np.array(kept_by_layer(workload))


def largest_batch(memory: Memory, batch_size: float) -> int:
    """Return the largest batch that fits where `batch_size` needs `memory`, 0 when not even one sample does."""
    if memory.capacity is None or not memory.activations:
        return 0 if not memory.fits else 2**31
    left = memory.capacity - (memory.total - memory.activations)
    return max(0, int(left // (memory.activations / batch_size)))
