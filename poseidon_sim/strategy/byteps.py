"""BytePS: a node sums its gradients inside, then pushes partitions to GPU machines and extra CPU hosts, which sum and send back.

Paper: Jiang et al., OSDI'20, section 4.1: with n GPU machines and k CPU hosts each host holds 2 (n - 1) / (n^2 + k n - 2 k) of
the model and each GPU machine (n - k) / (n^2 + k n - 2 k), so that all ports carry the same.
Simplified: the reduce-scatter inside nodes runs in step on all nodes (and stays fluid with detail 'rounds'); a partition
is spread over all summing hosts; one node alone uses no hosts; the optimizer stays on the GPU and costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from poseidon_sim.cluster import Layout
from poseidon_sim.collective.base import Collective, UnitPhases
from poseidon_sim.collective.inside import NodeAllGather, NodeReduceScatter
from poseidon_sim.plan.plan import Plan, PlanLayer
from poseidon_sim.plan.record import Handles
from poseidon_sim.strategy.base import Job, Strategy, backward_pass, require
from poseidon_sim.strategy.server_placement import MAX_PIECES

_REDUCE, _GATHER = NodeReduceScatter(), NodeAllGather()


def summing_shares(num_nodes: int, num_hosts: int) -> tuple[float, float]:
    """Return the share of the model that each GPU machine and each CPU host sums.

    >>> summing_shares(4, 0), summing_shares(4, 4)
    ((0.25, 0.0), (0.0, 0.25))
    """
    n, k = num_nodes, num_hosts
    if k >= n:  # as many hosts as machines: machines need not sum at all
        return 0.0, 1.0 / k
    whole = n * n + k * n - 2 * k
    return (n - k) / whole, 2 * (n - 1) / whole if k else 0.0


@dataclass(frozen=True)
class BytePs(Strategy):
    """Push and pull through every port that is there, pipelined by partitions.

    Parameters
    ----------
    hosts : extra CPU hosts that only sum: a number, or 'per-node' for as many as there are GPU machines.
    partition_size : bytes of a partition, pushed, summed and pulled on its own (at most 32 a tensor are told apart).
    overlap : start a layer as soon as its backward ends.
    """

    name: ClassVar[str] = "byteps"
    summary: ClassVar[str] = "sum inside the node, then push and pull partitions to GPU machines and extra CPU hosts"
    source: ClassVar[str] = "Jiang et al., BytePS, OSDI'20"

    hosts: int | str = 0
    partition_size: float = 4_096_000.0
    overlap: bool = True

    def num_hosts(self, job: Job) -> int:
        """Return how many extra hosts sum."""
        if job.cluster.nodes == 1:
            return 0
        return job.cluster.nodes if self.hosts == "per-node" else int(self.hosts)

    def layout(self, job: Job) -> Layout:
        return Layout(extra_nodes=self.num_hosts(job))

    def validate(self, job: Job) -> Iterator[str]:
        known = self.hosts == "per-node" or (type(self.hosts) is int and self.hosts >= 0)
        require(known, f"hosts={self.hosts!r} must be per-node or a number of hosts (0 for none)")
        require(self.partition_size > 0, f"partition_size={self.partition_size} must be above 0 bytes")
        if job.cluster.nodes == 1:
            yield "one node: byteps moves nothing over the network and leaves its CPU hosts idle"

    def iteration(self, plan: Plan, start: Handles) -> Handles:
        gradients, ready = backward_pass(plan, start, self.overlap)
        return plan.all_of(ready, *(self.sync(plan, layer, gradient) for layer, gradient in gradients))

    def sync(self, plan: Plan, layer: PlanLayer, ready: Handles) -> Handles:
        """Record one layer: partitions of the tensor follow one another through all stages."""
        count = int(min(MAX_PIECES, -(-layer.gradient_bytes // self.partition_size)))
        return plan.all_of(*(self._partition(plan, layer, ready, layer.gradient_bytes / count) for _ in range(count)))

    def _partition(self, plan: Plan, layer: PlanLayer, ready: Handles, size: float) -> Handles:
        gpus = plan.gpus_per_node
        if gpus > 1:
            ready = self._inside(plan, _REDUCE, size, ready, layer)
        if plan.num_nodes > 1:
            on_host = plan.copy_to_host(size / gpus, after=ready, layer=layer)
            ready = plan.copy_to_gpu(size / gpus, after=self._push_pull(plan, layer, on_host, size), layer=layer)
        if gpus > 1:
            ready = self._inside(plan, _GATHER, size, ready, layer)
        return ready

    def _inside(self, plan: Plan, half: Collective, size: float, ready: Handles, layer: PlanLayer) -> Handles:
        """Record one half of an all-reduce among the GPUs of every node."""
        phases, key = half.phases(plan, size), UnitPhases(half, False)
        return plan.collective(phases, ready, label=half.name, layer=layer, channel="node", key=key)

    def _push_pull(self, plan: Plan, layer: PlanLayer, on_host: Handles, size: float) -> Handles:
        """Record the way of one partition to all that sum and back to every node's host."""
        apart = len(np.intersect1d(plan.workers, plan.servers)) == 0
        node, host = summing_shares(plan.num_nodes, plan.num_servers if apart else 0)
        where = np.concatenate([plan.workers, plan.servers]) if apart else plan.workers
        shares = size * np.concatenate([np.full(len(plan.workers), node), np.full(len(where) - len(plan.workers), host)])
        pushed = plan.send(
            plan.workers, where, np.tile(shares, (len(plan.workers), 1)), after=on_host, label="push", layer=layer
        )
        summed = plan.host_sum(where, shares * plan.num_nodes, after=plan.arrived(pushed), layer=layer)
        back = np.tile(shares[:, None], (1, len(plan.workers)))
        return plan.arrived(plan.send(where, plan.workers, back, after=summed, label="pull", layer=layer))

    def network_bytes(self, job: Job) -> float:
        """2 M (n k C + n (n - 1) G): every node sends each holder its share and gets it back; own shares stay."""
        n, k = job.cluster.nodes, self.num_hosts(job)
        node, host = summing_shares(n, k)
        return 2.0 * job.workload.gradient_bytes * (n * k * host + n * (n - 1) * node)
