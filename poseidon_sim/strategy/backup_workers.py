"""Synchronous SGD with backup workers: servers apply a step when all but b of the gradients are in.

Paper: Chen et al., Revisiting Distributed Synchronous SGD, 2016 (arXiv 1604.00981), section 3; TensorFlow's SyncReplicas.
Simplified: every worker computes every step, so a worker that is always slow falls ever further behind and is never waited
for, where the real one drops its batch and takes up the newest step; throughput counts all workers' samples, of which a
share b / n is thrown away. Every node is a class of its own (who comes late must be told apart), so cost grows with n^2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from poseidon_sim.cluster import Layout
from poseidon_sim.plan.plan import Plan, PlanLayer
from poseidon_sim.plan.record import Handles
from poseidon_sim.strategy.base import Job, Strategy, backward_pass, require
from poseidon_sim.strategy.parameter_server import ParameterServer


@dataclass(frozen=True)
class BackupWorkers(Strategy):
    """An even parameter server on the worker nodes that waits for n - b of n gradients of each layer.

    Parameters
    ----------
    backups : b, gradients that are not waited for.
    overlap : push a layer as soon as its backward ends.
    """

    name: ClassVar[str] = "backup-workers"
    summary: ClassVar[str] = "parameter server that goes on when all but b of the workers' gradients are in"
    source: ClassVar[str] = "Chen et al. 2016, arXiv 1604.00981"

    backups: int = 1
    overlap: bool = True

    def layout(self, job: Job) -> Layout:
        return Layout(roles={node: node for node in range(job.cluster.nodes)})

    def validate(self, job: Job) -> Iterator[str]:
        nodes = job.cluster.nodes
        require(self.backups >= 0, f"backups={self.backups} must be 0 or more workers")
        require(nodes == 1 or self.backups < nodes, f"backups={self.backups} leaves none of nodes={nodes} to wait for; use fewer")
        if nodes == 1:
            yield "one node: backup-workers waits for that one and moves nothing over the network"

    def iteration(self, plan: Plan, start: Handles) -> Handles:
        gradients, _ = backward_pass(plan, start, self.overlap)
        return plan.all_of(*(self.sync(plan, layer, gradient) for layer, gradient in gradients))

    def sync(self, plan: Plan, layer: PlanLayer, ready: Handles) -> Handles:
        """Record push, the sum over the first n - b, and pull."""
        server, used = ParameterServer(), max(1, plan.num_nodes - self.backups)
        on_host = plan.copy_to_host(layer.gradient_bytes, after=ready, layer=layer)
        share = layer.gradient_bytes / plan.num_servers
        pushed = plan.send(plan.workers, plan.servers, share, after=on_host, label="push", layer=layer)
        enough = plan.all_of(pushed.transpose(1, 0, 2).reshape(len(plan.servers), -1), needed=used)
        summed = plan.host_sum(plan.servers, share * used, after=enough, layer=layer)
        return server.fetch(plan, layer, summed)

    def network_bytes(self, job: Job) -> float:
        """The even parameter server's formula: gradients that come too late are sent all the same."""
        return ParameterServer().network_bytes(job)
