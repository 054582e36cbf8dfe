"""Poseidon: wait-free backpropagation with the cheaper of parameter server and sufficient factors for each layer.

Paper: Zhang et al., USENIX ATC'17: Algorithm 1 (BestScheme), Algorithm 2 (the training loop); section 3.
Simplified: the choice counts bytes only, as the paper's does; key-value pairs are spread evenly over the servers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from poseidon_sim.cluster import Layout
from poseidon_sim.plan.plan import Plan, PlanLayer
from poseidon_sim.plan.record import Handles
from poseidon_sim.strategy.base import Job, Strategy
from poseidon_sim.strategy.parameter_server import ParameterServer
from poseidon_sim.strategy.sufficient_factor import SufficientFactorBroadcast
from poseidon_sim.workload.layer import Layer


def best_scheme(layer: Layer, samples: float, num_workers: int, num_servers: int) -> str:
    """Return 'sufficient-factors' or 'parameter-server' for one layer: BestScheme of ATC'17.

    `samples` is K, per worker node. A linear layer M x N goes by factors when
    2 K (P1 - 1) (M + N) <= 2 M N (P1 + P2 - 2) / P2.

    >>> fc7 = Layer("fc7", "linear", tensors=(4096 * 4096,), factor_shape=(4096, 4096))
    >>> best_scheme(fc7, samples=32, num_workers=8, num_servers=8)
    'sufficient-factors'
    """
    if layer.factor_shape is None:
        return "parameter-server"
    m, n = layer.factor_shape
    k = samples * layer.factor_rows
    factors = 2.0 * k * (num_workers - 1) * (m + n)
    matrix = 2.0 * m * n * (num_workers + num_servers - 2) / num_servers
    return "sufficient-factors" if factors <= matrix else "parameter-server"


@dataclass(frozen=True)
class Poseidon(Strategy):
    """The hybrid of ATC'17: per layer whichever of the two schemes moves fewer bytes.

    Parameters
    ----------
    rebuild, in_turn : as in `SufficientFactorBroadcast`.
    overlap : wait-free backpropagation.
    """

    name: ClassVar[str] = "poseidon"
    summary: ClassVar[str] = "per layer the cheaper of parameter server and sufficient factors, overlapped with backward"
    source: ClassVar[str] = "Zhang et al., Poseidon, USENIX ATC'17"

    rebuild: str = "batched"
    in_turn: bool = False
    overlap: bool = True

    def layout(self, job: Job) -> Layout:
        return Layout(in_turn=self.in_turn)

    def validate(self, job: Job) -> Iterator[str]:
        yield from (text for text in self._factors.validate(job) if "no linear layer" not in text)
        if "sufficient-factors" not in self.schemes(job).values():
            yield "no layer is cheaper by sufficient factors at this size: poseidon is the same as parameter-server"

    @property
    def _factors(self) -> SufficientFactorBroadcast:
        return SufficientFactorBroadcast(rebuild=self.rebuild, in_turn=self.in_turn, overlap=self.overlap)

    def schemes(self, job: Job) -> dict[str, str]:
        """Return the scheme chosen for each layer with parameters."""
        nodes = job.cluster.nodes
        samples = job.batch_size * job.cluster.gpus_per_node
        layers = (x for x in job.workload.layers if x.gradient_bytes(job.workload.element_bytes) > 0)
        return {layer.name: best_scheme(layer, samples, nodes, nodes) for layer in layers}

    def iteration(self, plan: Plan, start: Handles) -> Handles:
        ready = plan.forward(after=start)
        synced = []
        for layer in reversed(plan.layers):  # for l = L .. 1
            ready = plan.backward(layer, after=ready)  # BackwardThrough(l)
            if self.overlap:
                synced.append(self.sync(plan, layer, ready))  # sync(l) runs beside the rest: wait-free
        if not self.overlap:
            synced = [self.sync(plan, layer, ready) for layer in reversed(plan.layers)]
        return plan.all_of(ready, *synced)  # BSP: every layer is fresh

    def sync(self, plan: Plan, layer: PlanLayer, ready: Handles) -> Handles:
        """Record one layer's synchronisation by the scheme that BestScheme picks."""
        samples = plan.batch_size * plan.gpus_per_node
        if best_scheme(layer.layer, samples, plan.num_nodes, plan.num_nodes) == "sufficient-factors":
            return self._factors.broadcast(plan, layer, ready)
        return ParameterServer().sync(plan, layer, ready)

    def network_bytes(self, job: Job) -> float:
        """The sum over layers of the formula of the scheme chosen for each."""
        schemes = self.schemes(job)
        by_factors = {name for name, scheme in schemes.items() if scheme == "sufficient-factors"}
        first = job.workload.with_changes(layers=tuple(x for x in job.workload.layers if x.name in by_factors))
        rest = job.workload.with_changes(layers=tuple(x for x in job.workload.layers if x.name not in by_factors))
        return self._factors.network_bytes(Job(first, job.cluster, job.batch_size)) + ParameterServer().network_bytes(
            Job(rest, job.cluster, job.batch_size)
        )
