"""Sufficient-factor broadcasting: linear layers send the factors of their gradient to every peer.

Paper: Xie et al., UAI'16 (arXiv 1511.08486); as used in ATC'17 section 3.2. The gradient of an M x N weight is a sum
of K outer products (one per sample), so K x (M + N) values say the same as M x N.
Simplified: peers' factors are copied to the GPU when the last has arrived; the bias is rebuilt from the factors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from poseidon_sim.cluster import Layout
from poseidon_sim.plan.plan import Plan, PlanLayer
from poseidon_sim.plan.record import Handles
from poseidon_sim.strategy.all_reduce import AllReduce
from poseidon_sim.strategy.base import Job, Strategy, backward_pass, require_choices
from poseidon_sim.strategy.parameter_server import ParameterServer


@dataclass(frozen=True)
class SufficientFactorBroadcast(Strategy):
    """Broadcast sufficient factors for layers that have them, another strategy for the rest.

    Parameters
    ----------
    fallback : 'parameter-server' or 'all-reduce', for layers that have no factors.
    rebuild : 'batched' (one GEMM over all received factors), 'per-pair' (one GEMM and one pass over the matrix per
        peer, as the 2015 release did) or 'free'.
    in_turn : one communication thread sends to one peer after the other (2015 release) instead of to all at once.
    overlap : send a layer's factors as soon as its backward ends.
    """

    name: ClassVar[str] = "sufficient-factor-broadcast"
    summary: ClassVar[str] = "linear layers broadcast K x (M + N) sufficient factors instead of M x N gradients"
    source: ClassVar[str] = "Xie et al. UAI'16; Zhang et al. ATC'17 section 3.2"

    fallback: str = "parameter-server"
    rebuild: str = "batched"
    in_turn: bool = False
    overlap: bool = True

    def validate(self, job: Job) -> Iterator[str]:
        require_choices(self, fallback=("parameter-server", "all-reduce"), rebuild=("batched", "per-pair", "free"))
        if not any(layer.factor_shape for layer in job.workload.layers):
            yield f"model {job.workload.name!r} has no linear layer: {self.name} is the same as {self.fallback}"
        if job.cluster.nodes == 1:
            yield f"one node: {self.name} moves nothing over the network"

    def layout(self, job: Job) -> Layout:
        return Layout(in_turn=self.in_turn)

    def iteration(self, plan: Plan, start: Handles) -> Handles:
        gradients, ready = backward_pass(plan, start, self.overlap)
        synced = [self.sync(plan, layer, gradient) for layer, gradient in gradients]
        return plan.all_of(ready, *synced)

    def sync(self, plan: Plan, layer: PlanLayer, ready: Handles) -> Handles:
        """Record the synchronisation of one layer by factors, or by the fallback."""
        if not layer.has_factors:
            other = ParameterServer() if self.fallback == "parameter-server" else AllReduce()
            return other.sync(plan, layer, ready)
        return self.broadcast(plan, layer, ready)

    def broadcast(self, plan: Plan, layer: PlanLayer, ready: Handles) -> Handles:
        """Record copy out, broadcast to all peers, copy in and rebuild of one linear layer."""
        if plan.num_gpus == 1:
            return ready
        own = layer.layer.factor_bytes(plan.batch_size, plan.workload.element_bytes)
        node_factors = own * plan.gpus_per_node
        on_host = plan.copy_to_host(own, after=ready, layer=layer)
        sent = plan.send(
            plan.workers, plan.workers, node_factors, after=on_host, label="factors", layer=layer,
            turns="staggered" if self.in_turn else "at-once",
        )
        received = plan.copy_to_gpu(own * (plan.num_gpus - 1), after=plan.arrived(sent), layer=layer)
        return self._rebuild(plan, layer, received)

    def _rebuild(self, plan: Plan, layer: PlanLayer, received: Handles) -> Handles:
        """Multiply the received factors out on the GPU, beside the backward pass."""
        if self.rebuild == "free":
            return received
        assert layer.layer.factor_shape is not None
        m, n = layer.layer.factor_shape
        k = plan.batch_size * layer.layer.factor_rows
        peers = plan.num_gpus - 1
        matrix = 2.0 * m * n * plan.workload.element_bytes  # read and write the gradient once
        if self.rebuild == "per-pair":
            seconds = plan.gemm_seconds(2.0 * k * m * n, matrix) * peers
        else:
            seconds = plan.gemm_seconds(2.0 * k * m * n * peers, matrix)
        return plan.on_gpu("rebuild", seconds, after=received, layer=layer, stream="rebuild")

    def network_bytes(self, job: Job) -> float:
        """P (P - 1) K (M + N) for layers with factors, the fallback's formula for the rest."""
        workload, cluster = job.workload, job.cluster
        samples = job.batch_size * cluster.gpus_per_node
        pairs = cluster.nodes * (cluster.nodes - 1)
        total = 0.0
        for layer in workload.layers:
            if layer.factor_shape is not None:
                total += pairs * layer.factor_bytes(samples, workload.element_bytes)
        rest = workload.with_changes(layers=tuple(x for x in workload.layers if x.factor_shape is None))
        other = ParameterServer() if self.fallback == "parameter-server" else AllReduce()
        return total + other.network_bytes(Job(rest, cluster, job.batch_size))
