"""1-bit SGD: gradients are quantised to one bit per value, the error is carried to the next minibatch.

Paper: Seide et al., Interspeech'14; as compared in ATC'17 section 5.3 (which quantises the linear layers only).
Simplified: quantising and dequantising are three and two passes over the gradient in GPU memory; each column of a
linear layer carries two fp32 reconstruction values; the exchange is an even parameter server's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from poseidon_sim.plan.plan import Plan, PlanLayer
from poseidon_sim.plan.record import Handles
from poseidon_sim.strategy.base import Job, Strategy, backward_pass, require
from poseidon_sim.strategy.parameter_server import ParameterServer
from poseidon_sim.workload.layer import Layer


@dataclass(frozen=True)
class OneBit(Strategy):
    """Send one bit per gradient value through an even, colocated parameter server.

    Parameters
    ----------
    layers : 'linear' (as ATC'17 did) or 'all'.
    overlap : start a layer as soon as its backward ends.
    """

    name: ClassVar[str] = "one-bit"
    summary: ClassVar[str] = "1-bit quantised gradients (error feedback) through a parameter server"
    source: ClassVar[str] = "Seide et al. Interspeech'14"

    layers: str = "linear"
    overlap: bool = True

    def validate(self, job: Job) -> Iterator[str]:
        require(self.layers in ("linear", "all"), f"layers={self.layers!r} is not one of linear, all")
        if not any(self._quantised(layer) for layer in job.workload.layers):
            yield f"model {job.workload.name!r} has no linear layer: one-bit quantises nothing; set layers: all"
        if job.cluster.nodes == 1:
            yield "one node: one-bit moves nothing over the network"

    def _quantised(self, layer: Layer) -> bool:
        return layer.parameters > 0 and (self.layers == "all" or layer.factor_shape is not None)

    def wire_bytes(self, layer: Layer, element_bytes: int) -> float:
        """Return the bytes of one layer's gradient on the wire."""
        full = layer.gradient_bytes(element_bytes)
        if not self._quantised(layer):
            return full
        columns = layer.factor_shape[1] if layer.factor_shape else 1
        return full / (8 * element_bytes) + 8.0 * columns

    def iteration(self, plan: Plan, start: Handles) -> Handles:
        gradients, ready = backward_pass(plan, start, self.overlap)
        synced = [self.sync(plan, layer, gradient) for layer, gradient in gradients]
        return plan.all_of(ready, *synced)

    def sync(self, plan: Plan, layer: PlanLayer, ready: Handles) -> Handles:
        """Record quantise, push and pull of bits, dequantise."""
        wire = self.wire_bytes(layer.layer, plan.workload.element_bytes)
        server = ParameterServer()
        if not self._quantised(layer.layer) or plan.num_nodes == 1:
            return server.sync(plan, layer, ready)
        quantise = plan.gemm_seconds(0.0, 3.0 * layer.gradient_bytes)
        dequantise = plan.gemm_seconds(0.0, 2.0 * layer.gradient_bytes)
        bits = plan.on_gpu("update", quantise, after=ready, layer=layer, label="quantise", stream="quantise")
        synced = server.sync(plan, layer, bits, num_bytes=wire)
        return plan.on_gpu("update", dequantise, after=synced, layer=layer, label="dequantise", stream="quantise")

    def network_bytes(self, job: Job) -> float:
        """2 (P - 1) x the bytes on the wire of all layers."""
        workload = job.workload
        total = sum(self.wire_bytes(layer, workload.element_bytes) for layer in workload.layers)
        return 2.0 * (job.cluster.nodes - 1) * total
