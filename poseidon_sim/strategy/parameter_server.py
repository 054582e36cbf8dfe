"""Parameter server: workers push gradients to servers, servers sum them and send fresh values back.

Paper: Li et al., OSDI'14; the sharded, colocated form with wait-free backpropagation is ATC'17 section 3.1; whole
variables dealt round-robin is TensorFlow's `replica_device_setter`. Bounded staleness: Ho et al., NIPS'13 (SSP).
Simplified: the optimizer step on the server costs as much as the sum; one message per layer and server.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from poseidon_sim.cluster import Layout
from poseidon_sim.plan.plan import Plan, PlanLayer
from poseidon_sim.plan.record import Handles
from poseidon_sim.strategy.base import Job, Strategy, backward_pass, require, require_choices
from poseidon_sim.strategy.server_order import blocking_exchange, fetching_iteration
from poseidon_sim.strategy.server_placement import Placement
from poseidon_sim.workload.layer import Workload


@dataclass(frozen=True)
class ParameterServer(Strategy):
    """Push gradients to servers, pull fresh parameters.

    Parameters
    ----------
    servers : 'colocated' (every worker node is also a server) or the number of extra server nodes.
    placement : 'even' (every tensor split over all servers), 'round-robin' (key-value pairs dealt in turn) or 'whole' (each
        variable to the next server, as TensorFlow did).
    overlap : start synchronising a layer as soon as its backward ends (wait-free backpropagation).
    aggregate : sum the gradients of a node's GPUs on the node before they leave it.
    pair_size : bytes of a key-value pair: what 'round-robin' deals out (2 MB if not given), and for 'even' the piece in which a
        server's share is copied, sent, summed and sent back (the whole share if not given; at most 32 are told apart).
    staleness : iterations a worker may run ahead (0 BSP, s SSP, inf ASP).
    sending : 'at-once' (all connections at the same time) or 'same-order' (one thread serves the servers one after the other,
        every worker beginning with the first, so that all hit one server at a time).
    pull : 'pushed-back' (servers send fresh values at once) or 'next-iteration' (workers fetch layer by layer, as TensorFlow did).
    copies : 'streamed' (tensor by tensor) or 'blocking' (all gradients on the host before the first is sent, all values there
        before the first is copied back: nothing hides the copies, as in plain Caffe).
    """

    name: ClassVar[str] = "parameter-server"
    summary: ClassVar[str] = "workers push gradients to sharded servers and pull fresh parameters"
    source: ClassVar[str] = "Li et al. OSDI'14; Zhang et al. ATC'17 section 3; Ho et al. NIPS'13"

    servers: int | str = "colocated"
    placement: str = "even"
    overlap: bool = True
    aggregate: bool = True
    pair_size: float | None = None
    staleness: float = 0
    sending: str = "at-once"
    pull: str = "pushed-back"
    copies: str = "streamed"

    def num_servers(self, job: Job) -> int:
        """Return how many nodes serve."""
        return job.cluster.nodes if self.servers == "colocated" else int(self.servers)

    def _copies(self, gpus_per_node: int) -> int:
        return 1 if self.aggregate else gpus_per_node

    def placed(self, workload: Workload, nodes: int) -> Placement:
        """Return which server holds what."""
        first, servers = (0, nodes) if self.servers == "colocated" else (nodes, int(self.servers))
        return Placement(self.placement, servers, first, self.pair_size, workload)

    def layout(self, job: Job) -> Layout:
        extra = 0 if self.servers == "colocated" else int(self.servers)
        if self.sending == "same-order":  # the order tells servers apart
            return Layout(extra_nodes=extra, roles={node: node for node in range(job.cluster.nodes + extra)})
        return Layout(extra_nodes=extra, roles=self.placed(job.workload, job.cluster.nodes).roles())

    def validate(self, job: Job) -> Iterator[str]:
        whole = isinstance(self.servers, int) and not isinstance(self.servers, bool)
        require(whole or self.servers == "colocated", f"servers={self.servers!r} must be colocated or a number of nodes")
        servers, nodes = self.num_servers(job), job.cluster.nodes
        require(servers >= 1, f"servers={self.servers} must be 'colocated' or at least 1")
        require(servers <= nodes, f"servers={self.servers} but only nodes={nodes} worker nodes; use at most as many servers")
        require(self.staleness >= 0, f"staleness={self.staleness} must be 0 (BSP), a number of iterations, or inf")
        require(self.pair_size is None or self.pair_size > 0, f"pair_size={self.pair_size} must be above 0 bytes")
        require_choices(
            self, placement=("even", "round-robin", "whole"), pull=("pushed-back", "next-iteration"),
            sending=("at-once", "same-order"), copies=("streamed", "blocking"),
        )  # fmt: skip
        require(self.pull == "pushed-back" or self.staleness == 0, "pull=next-iteration is defined for staleness=0 only")
        streamed = self.copies == "streamed" or (not self.overlap and self.pull == "pushed-back")
        require(streamed, "copies=blocking needs overlap=False and pull=pushed-back: it waits for the whole backward pass")
        if self.servers == "colocated" and nodes == 1:
            yield "one colocated node: parameter-server moves nothing over the network"

    def iteration(self, plan: Plan, start: Handles) -> Handles:
        if self.pull == "next-iteration":
            return fetching_iteration(self, plan, start)
        gradients, ready = backward_pass(plan, start, self.overlap)
        if self.copies == "blocking":
            return blocking_exchange(self, plan, ready)
        return plan.all_of(ready, *(self.sync(plan, layer, gradient) for layer, gradient in gradients))

    def pieces(self, plan: Plan, size: float) -> list[float]:
        """Return the bytes of each part of a tensor that follows its own way to the servers and back."""
        return self.placed(plan.workload, plan.num_nodes).pieces(size)

    def sync(self, plan: Plan, layer: PlanLayer, ready: Handles, num_bytes: float | None = None) -> Handles:
        """Record push, sum and pull of one layer (of `num_bytes` if its gradient travels in another form)."""
        size = layer.gradient_bytes if num_bytes is None else num_bytes
        return plan.all_of(*(self.fetch(plan, layer, self.push(plan, layer, ready, p), p) for p in self.pieces(plan, size)))

    def push(self, plan: Plan, layer: PlanLayer, ready: Handles, num_bytes: float | None = None) -> Handles:
        """Record the way from every GPU to the servers; returns what `gather` returns."""
        size = layer.gradient_bytes if num_bytes is None else num_bytes
        return self.gather(plan, layer, plan.copy_to_host(size, after=ready, layer=layer), size)

    def gather(self, plan: Plan, layer: PlanLayer, on_host: Handles, size: float) -> Handles:
        """Record the way from the hosts to the servers' sums: (S,) handles, (S, W) when each worker is served apart."""
        sizes = self.shares(plan, layer, size)
        copies = self._copies(plan.gpus_per_node)
        if self.aggregate and plan.gpus_per_node > 1:
            on_host = plan.host_sum(plan.workers, size * plan.gpus_per_node, after=on_host, layer=layer)
        pushed = plan.send(plan.workers, plan.servers, sizes * copies, after=on_host, label="push", layer=layer, turns=self.sending)
        if self.staleness == 0:
            return plan.host_sum(plan.servers, sizes[0] * copies * plan.num_nodes, after=plan.arrived(pushed), layer=layer)
        arrived = plan.all_of(pushed.reshape(-1, pushed.shape[2]))  # each worker's push is applied on its own
        incoming = sizes * copies * np.array([plan.classes[w].count for w in plan.workers])[:, None]
        applied = plan.host_sum(np.tile(plan.servers, len(sizes)), incoming.reshape(-1), after=arrived, layer=layer)
        return applied.reshape(len(plan.workers), -1).T

    def fetch(self, plan: Plan, layer: PlanLayer, summed: Handles, num_bytes: float | None = None) -> Handles:
        """Record the way back from the servers to every GPU."""
        size = layer.gradient_bytes if num_bytes is None else num_bytes
        return plan.copy_to_gpu(size, after=plan.arrived(self.give_back(plan, layer, summed, size)), layer=layer)

    def give_back(self, plan: Plan, layer: PlanLayer, summed: Handles, size: float) -> Handles:
        """Record the sends of fresh values from the servers to the workers' hosts: (S, W, K) handles."""
        sizes = self.shares(plan, layer, size).T * self._copies(plan.gpus_per_node)
        return plan.send(plan.servers, plan.workers, sizes, after=summed, label="pull", layer=layer)

    def shares(self, plan: Plan, layer: PlanLayer, size: float) -> np.ndarray:
        """Return (W, S) bytes of `size` that each server class's node holds."""
        return self.placed(plan.workload, plan.num_nodes).row(plan, layer, size) + np.zeros((len(plan.workers), 1))

    def network_bytes(self, job: Job) -> float:
        """2 x gradient bytes x (workers x (servers - 1) / servers) when colocated and even; else counted by placement."""
        workers = job.cluster.nodes
        remote = workers - 1 if self.servers == "colocated" else workers  # a colocated server holds its worker's share
        return 2.0 * job.workload.gradient_bytes * remote * self._copies(job.cluster.gpus_per_node)
