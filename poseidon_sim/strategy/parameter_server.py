"""Parameter server: workers push gradients to servers, servers sum them and send fresh values back.

Paper: Li et al., OSDI'14; the sharded, colocated form with wait-free backpropagation is ATC'17 section 3.1; whole
variables dealt round-robin is TensorFlow's `replica_device_setter`. Bounded staleness: Ho et al., NIPS'13 (SSP).
Simplified: the optimizer step on the server costs as much as the sum; one message per layer and server.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from poseidon_sim.cluster import Layout
from poseidon_sim.plan.plan import Plan, PlanLayer
from poseidon_sim.plan.record import Handles
from poseidon_sim.strategy.base import Job, Strategy, backward_pass, require

DEFAULT_PAIR = 2e6
MAX_PIECES = 32


@dataclass(frozen=True)
class ParameterServer(Strategy):
    """Push gradients to servers, pull fresh parameters.

    Parameters
    ----------
    servers : 'colocated' (every worker node is also a server) or the number of extra server nodes.
    placement : 'even' (every tensor split evenly over all servers), 'round-robin' (fixed-size key-value pairs dealt
        in turn) or 'whole' (each variable, whole, to the next server, as TensorFlow did).
    overlap : start synchronising a layer as soon as its backward ends (wait-free backpropagation).
    aggregate : sum the gradients of a node's GPUs on the node before they leave it.
    pair_size : bytes of one key-value pair: the unit that 'round-robin' deals out (2 MB if not given), and for 'even'
        the piece in which a server's share is copied, sent, summed and sent back, one piece behind the other (the
        whole share at once if not given; at most 32 pieces are told apart).
    staleness : iterations a worker may run ahead (0 BSP, s SSP, inf ASP).
    sending : 'at-once' (a worker's connections to all servers at the same time) or 'same-order' (its one
        communication thread serves the servers one after the other, every worker beginning with the first, so that
        all hit one server at a time).
    pull : 'pushed-back' (servers send fresh values at once) or 'next-iteration' (workers fetch them layer by layer at
        the start of the next iteration, as TensorFlow did).
    copies : 'streamed' (each tensor is sent as soon as it is on the host, and copied back as soon as it is fresh) or
        'blocking' (all gradients are on the host before the first is sent, and all values are there before the first
        is copied back: nothing hides the copies, as in plain Caffe with a parameter server).
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

    def layout(self, job: Job) -> Layout:
        extra = 0 if self.servers == "colocated" else int(self.servers)
        if self.sending == "same-order":  # the order tells servers apart
            return Layout(extra_nodes=extra, roles={node: node for node in range(job.cluster.nodes + extra)})
        if self.placement == "even":
            return Layout(extra_nodes=extra)
        first = job.cluster.nodes if extra else 0
        owned = {server for sizes in self._placed(job).values() for server in sizes}
        return Layout(extra_nodes=extra, roles={first + server: f"server {server}" for server in owned})

    def validate(self, job: Job) -> Iterator[str]:
        whole = isinstance(self.servers, int) and not isinstance(self.servers, bool)
        require(whole or self.servers == "colocated", f"servers={self.servers!r} must be colocated or a number of nodes")
        servers = self.num_servers(job)
        require(servers >= 1, f"servers={self.servers} must be 'colocated' or at least 1")
        require(
            servers <= job.cluster.nodes,
            f"servers={self.servers} but only nodes={job.cluster.nodes} worker nodes; use at most as many servers",
        )
        require(self.staleness >= 0, f"staleness={self.staleness} must be 0 (BSP), a number of iterations, or inf")
        require(self.pair_size is None or self.pair_size > 0, f"pair_size={self.pair_size} must be above 0 bytes")
        for field, known in (
            ("placement", ("even", "round-robin", "whole")), ("pull", ("pushed-back", "next-iteration")),
            ("sending", ("at-once", "same-order")), ("copies", ("streamed", "blocking")),
        ):  # fmt: skip
            given = getattr(self, field)
            require(given in known, f"{field}={given!r} is not one of {', '.join(known)}")
        require(
            self.pull == "pushed-back" or self.staleness == 0, "pull=next-iteration is defined for staleness=0 only"
        )
        require(
            self.copies == "streamed" or (not self.overlap and self.pull == "pushed-back"),
            "copies=blocking needs overlap=False and pull=pushed-back: it waits for the whole backward pass",
        )
        if self.servers == "colocated" and job.cluster.nodes == 1:
            yield "one colocated node: parameter-server moves nothing over the network"

    def iteration(self, plan: Plan, start: Handles) -> Handles:
        if self.pull == "next-iteration":
            return self._fetching_iteration(plan, start)
        gradients, ready = backward_pass(plan, start, self.overlap)
        if self.copies == "blocking":
            return self._blocking(plan, [layer for layer, _ in gradients], ready)
        synced = [self.sync(plan, layer, gradient) for layer, gradient in gradients]
        return plan.all_of(ready, *synced)

    def _blocking(self, plan: Plan, layers: list[PlanLayer], ready: Handles) -> Handles:
        """Copy every gradient out, synchronise from host to host, copy every value back."""
        on_host = plan.all_of(*(plan.copy_to_host(x.gradient_bytes, after=ready, layer=x) for x in layers))
        pieces = ((x, piece) for x in layers for piece in self.pieces(plan, x.gradient_bytes))
        fresh = plan.all_of(*(self._between_hosts(plan, x, on_host, piece) for x, piece in pieces))
        return plan.all_of(*(plan.copy_to_gpu(x.gradient_bytes, after=fresh, layer=x) for x in layers))

    def _between_hosts(self, plan: Plan, layer: PlanLayer, on_host: Handles, size: float) -> Handles:
        return plan.arrived(self.give_back(plan, layer, self.gather(plan, layer, on_host, size), size))

    def pieces(self, plan: Plan, size: float) -> list[float]:
        """Return the bytes of each part of a tensor that follows its own way to the servers and back."""
        count = 1
        if self.placement == "even" and self.pair_size is not None:
            count = min(MAX_PIECES, math.ceil(size / plan.num_servers / self.pair_size))
        return [size / count] * count

    def sync(self, plan: Plan, layer: PlanLayer, ready: Handles, num_bytes: float | None = None) -> Handles:
        """Record push, sum and pull of one layer (of `num_bytes` if its gradient travels in another form)."""
        size = layer.gradient_bytes if num_bytes is None else num_bytes
        pieces = self.pieces(plan, size)
        return plan.all_of(*(self.fetch(plan, layer, self.push(plan, layer, ready, piece), piece) for piece in pieces))

    def push(self, plan: Plan, layer: PlanLayer, ready: Handles, num_bytes: float | None = None) -> Handles:
        """Record the way from every GPU to the servers; returns what `gather` returns."""
        size = layer.gradient_bytes if num_bytes is None else num_bytes
        return self.gather(plan, layer, plan.copy_to_host(size, after=ready, layer=layer), size)

    def gather(self, plan: Plan, layer: PlanLayer, on_host: Handles, size: float) -> Handles:
        """Record the way from the hosts to the servers' sums: (S,) handles, (S, W) when each worker is served apart."""
        sizes = self.shares(plan, layer, size)
        copies = 1 if self.aggregate else plan.gpus_per_node
        if self.aggregate and plan.gpus_per_node > 1:
            on_host = plan.host_sum(plan.workers, size * plan.gpus_per_node, after=on_host, layer=layer)
        pushed = plan.send(plan.workers, plan.servers, sizes * copies, after=on_host, label="push", layer=layer, turns=self.sending)
        if self.staleness == 0:
            total = sizes[0] * copies * plan.num_nodes
            return plan.host_sum(plan.servers, total, after=plan.arrived(pushed), layer=layer)
        arrived = plan.all_of(pushed.reshape(-1, pushed.shape[2]))  # each worker's push is applied on its own
        counts = np.array([plan.classes[w].count for w in plan.workers])[:, None]
        nodes = np.tile(plan.servers, len(plan.workers))
        applied = plan.host_sum(nodes, (sizes * counts * copies).reshape(-1), after=arrived, layer=layer)
        return applied.reshape(len(plan.workers), -1).T

    def fetch(self, plan: Plan, layer: PlanLayer, summed: Handles, num_bytes: float | None = None) -> Handles:
        """Record the way back from the servers to every GPU."""
        size = layer.gradient_bytes if num_bytes is None else num_bytes
        return plan.copy_to_gpu(size, after=plan.arrived(self.give_back(plan, layer, summed, size)), layer=layer)

    def give_back(self, plan: Plan, layer: PlanLayer, summed: Handles, size: float) -> Handles:
        """Record the sends of fresh values from the servers to the workers' hosts: (S, W, K) handles."""
        copies = 1 if self.aggregate else plan.gpus_per_node
        sizes = self.shares(plan, layer, size).T * copies
        return plan.send(plan.servers, plan.workers, sizes, after=summed, label="pull", layer=layer)

    def shares(self, plan: Plan, layer: PlanLayer, size: float) -> np.ndarray:
        """Return (W, S) bytes of `size` that each server class's node holds."""
        job = Job(plan.workload, plan.cluster, plan.batch_size)
        if self.placement == "even":
            row = np.full(len(plan.servers), size / plan.num_servers)
        else:
            row = np.zeros(len(plan.servers))
            first = plan.num_nodes if self.servers != "colocated" else 0
            position = {int(c): i for i, c in enumerate(plan.servers)}
            for server, share in self._placed(job)[layer.name].items():
                row[position[plan.fabric.class_of_node(first + server)]] += share * size
        return np.broadcast_to(row, (len(plan.workers), len(plan.servers)))

    def _placed(self, job: Job) -> dict[str, dict[int, float]]:
        """Return, per layer, the share of its bytes on each server that holds some of it."""
        servers, turn = self.num_servers(job), 0
        placed: dict[str, dict[int, float]] = {}
        for layer in job.workload.layers:
            sizes = layer.tensor_bytes(job.workload.element_bytes)
            row: dict[int, float] = {}
            for size in sizes:
                pair = size if self.placement == "whole" else self.pair_size or DEFAULT_PAIR
                for piece in range(max(1, math.ceil(size / pair))):
                    part = min(pair, size - piece * pair)
                    row[turn % servers] = row.get(turn % servers, 0.0) + part / sum(sizes)
                    turn += 1
            placed[layer.name] = row
        return placed

    def _fetching_iteration(self, plan: Plan, start: Handles) -> Handles:
        """Fetch each layer's parameters before its forward, push when its backward ends.

        Nobody fetches before every gradient of the last iteration is applied (the tokens of TensorFlow's SyncReplicas).
        """
        ready = start
        applied = [plan.everyone(summed) for summed in plan.carried.values()]
        fresh = plan.everyone(plan.all_of(plan.everyone(start)[:1], *(each[:1] for each in applied)))[:1]
        fetched = {x.name: self.fetch(plan, x, np.repeat(fresh, len(plan.servers))) for x in plan.layers}
        for layer in plan.layers:
            ready = plan.forward(after=plan.all_of(ready, fetched[layer.name]), layer=layer)
        pushed = []
        for layer in reversed(plan.layers):
            ready = plan.backward(layer, after=ready)
            pushed.append((layer, ready))
        for layer, gradient in pushed:
            plan.carried[layer.name] = self.push(plan, layer, gradient if self.overlap else ready)
        return ready

    def network_bytes(self, job: Job) -> float:
        """2 x gradient bytes x (workers x (servers - 1) / servers) when colocated and even; else counted by placement."""
        copies = 1 if self.aggregate else job.cluster.gpus_per_node
        total, workers = job.workload.gradient_bytes, job.cluster.nodes
        remote = workers - 1 if self.servers == "colocated" else workers  # a colocated server holds its worker's share
        return 2.0 * total * remote * copies
