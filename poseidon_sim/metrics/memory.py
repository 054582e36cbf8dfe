"""Memory of one GPU in training: parameters, gradients, optimizer state, activations, framework."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from poseidon_sim.cluster import Gpu
from poseidon_sim.workload.layer import Layer, Workload

#: bytes that the CUDA context, cuDNN workspaces and the allocator take; an assumption (0.5 to 1 GB is usual)
FRAMEWORK_BYTES = 0.7e9
#: assumed width of an attention head (BERT, GPT-2), to count score matrices
HEAD_SIZE = 64
#: kinds whose output replaces their input, is a view of it, or stands for an input that backward does not
#: need
_IN_PLACE = frozenset({"activation", "add", "dropout", "flatten", "reshape", "select"})


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


def memory_per_gpu(workload: Workload, gpu: Gpu | None, batch_size: int) -> Memory:
    """Return the memory of one data-parallel replica, in bytes.

    Gradients are held in the precision of the parameters. Activations are the outputs that backward
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
    return Memory(
        parameters=parameters,
        gradients=parameters,
        optimizer=workload.parameters * workload.optimizer_bytes,
        activations=batch_size * kept_elements(workload) * size,
        framework=FRAMEWORK_BYTES,
        capacity=gpu.memory if gpu is not None else None,
    )


@lru_cache(maxsize=64)
def kept_elements(workload: Workload) -> float:
    """Return the activation elements per sample that are kept from forward to backward."""
    layers = workload.layers
    if not layers:
        return 0.0
    after = [None, *(before for before, _ in pairwise(layers))]
    kept = sum(
        _kept(layer, previous, size=workload.element_bytes)
        for layer, previous in zip(layers, after, strict=True)
    )
    return kept + layers[-1].output_elements  # the loss keeps the logarithms of the last output


def _kept(layer: Layer, previous: Layer | None, size: int) -> float:
    if (
        layer.kind == "activation"
        and previous is not None
        and previous.kind == "linear"
        and previous.factor_rows > 1
    ):
        return layer.output_elements
    if layer.kind == "attention":
        # two products of s x s x width multiply-adds; the scores are width / HEAD_SIZE matrices of s x s
        scores = layer.forward_flops / 4.0 / HEAD_SIZE
        return layer.output_elements + (scores if size >= 4 else 0.0)
    return 0.0 if layer.kind in _IN_PLACE else layer.output_elements


def largest_batch(workload: Workload, gpu: Gpu) -> int:
    """Return the largest batch per GPU that fits, 0 when not even one sample does."""
    one = memory_per_gpu(workload, gpu, 1)
    if one.capacity is None or not one.activations:
        return 0 if not one.fits else 2**31
    left = one.capacity - (one.total - one.activations)
    return max(0, int(left // one.activations))
