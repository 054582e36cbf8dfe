"""What every all-reduce shares: one fluid task (or a few phases) for the engine, and the exact schedule behind it.

A collective is recorded as one task whose work is the bytes on its critical path, whose latency carries the rounds and
whose uses load every port by what it really carries. `schedule` spells out every message; with detail 'rounds' the
messages themselves are simulated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from poseidon_sim.cluster import Cluster
from poseidon_sim.errors import InputError
from poseidon_sim.plan.plan import Phase, Plan, PlanLayer
from poseidon_sim.plan.record import NONE, Handles


@dataclass(frozen=True)
class Message:
    """One message of one round: a part of the buffer, from `start` to `stop` (shares of 1), added or stored on arrival."""

    source: int
    target: int
    start: float
    stop: float
    reduce: bool

    @property
    def share(self) -> float:
        """Part of the buffer that moves."""
        return self.stop - self.start


Schedule = list[list[Message]]


class Collective:
    """Base of all-reduce algorithms over n ranks (GPUs in node order)."""

    name: ClassVar[str] = ""
    summary: ClassVar[str] = ""

    def schedule(self, num_ranks: int, ranks_per_node: int = 1) -> Schedule:
        """Return the rounds: messages of a round run at once, rounds follow one another."""
        raise NotImplementedError

    def time(self, num_bytes: float, num_ranks: int, bandwidth: float, latency: float) -> float:
        """Return the closed-form seconds on an empty, flat network of one rank per node."""
        raise NotImplementedError

    def critical_share(self, num_ranks: int) -> float:
        """Return what one rank after another moves on the critical path, as a share of the buffer."""
        raise NotImplementedError

    def num_hops(self, num_ranks: int) -> int:
        """Return how many message latencies the critical path holds."""
        raise NotImplementedError

    def phases(self, plan: Plan, num_bytes: float, staged: bool) -> list[Phase]:
        """Return the fluid phases of one all-reduce of `num_bytes` per rank."""
        ranks = plan.num_gpus
        critical = self.critical_share(ranks)
        crossing = self.crossing_share(ranks, plan.gpus_per_node) / plan.num_nodes
        uses = node_uses(plan, crossing / critical, crossing / critical, staged)
        latency = call_overhead(plan) + self.num_hops(ranks) * hop_latency(plan)
        return [Phase(critical * num_bytes, latency, tuple(uses), rate_cap=flow_cap(plan, staged))]

    def crossing_share(self, num_ranks: int, ranks_per_node: int) -> float:
        """Return the bytes that all nodes together send to other nodes, as a multiple of the buffer."""
        return _crossing(self, num_ranks, ranks_per_node)

    def network_bytes(self, num_bytes: float, cluster: Cluster) -> float:
        """Return the bytes that cross between nodes in one all-reduce of `num_bytes`, all nodes together."""
        if cluster.num_gpus == 1 or cluster.nodes == 1:
            return 0.0
        return num_bytes * self.crossing_share(cluster.num_gpus, cluster.gpus_per_node)

    def record(
        self, plan: Plan, num_bytes: float, ready: Handles, *, label: str, layer: PlanLayer, staged: bool = False
    ) -> Handles:
        """Record the collective on the plan: fluid phases, or every message with detail 'rounds'."""
        if plan.rounds:
            return _record_rounds(self, plan, num_bytes, ready, label, layer)
        return plan.collective(self.phases(plan, num_bytes, staged), ready, label=label, layer=layer)


@lru_cache(maxsize=512)
def _crossing(algorithm: Collective, num_ranks: int, per_node: int) -> float:
    rounds = algorithm.schedule(num_ranks, per_node)
    return sum(m.share for each in rounds for m in each if m.source // per_node != m.target // per_node)


def _record_rounds(
    algorithm: Collective, plan: Plan, num_bytes: float, ready: Handles, label: str, layer: PlanLayer
) -> Handles:
    """Record every message; a rank's next send waits for what it received, and for its own last send."""
    if plan.gpus_per_node != 1:
        raise InputError("detail=rounds models one GPU per node; use detail=nodes for several")
    ranks = plan.num_nodes
    held = np.full((ranks, 4), NONE)
    held[:, 0] = plan.all_of(plan.everyone(ready)) if call_overhead(plan) == 0 else plan.pause(call_overhead(plan), ready, label)
    for messages in algorithm.schedule(ranks):
        source = np.array([m.source for m in messages])
        target = np.array([m.target for m in messages])
        share = np.array([m.share for m in messages])
        sent = plan.send_messages(source, target, share * num_bytes, held[source], label=label, layer=layer)
        fresh = np.full_like(held, NONE)
        fresh[source, 0] = sent
        for column in (1, 2):  # at most two messages reach a rank in one round
            first = np.unique(target, return_index=True)[1]
            fresh[target[first], column] = sent[first]
            keep = np.setdiff1d(np.arange(len(target)), first)
            target, sent = target[keep], sent[keep]
            if not len(target):
                break
        quiet = (fresh < 0).all(axis=1)
        fresh[quiet] = held[quiet]
        busy = ~quiet & (fresh[:, 0] < 0)
        fresh[busy, 3] = held[busy].max(axis=1)
        held = fresh
    return plan.everyone(plan.all_of(held))


def flow_cap(plan: Plan, staged: bool) -> float:
    """Return bytes/s that one flow can reach on an empty cluster: no message is faster than the slowest port or lane."""
    fabric = plan.fabric
    kinds = ["nic_out", "nic_in"] if plan.num_nodes > 1 else ["peer"]
    if not staged:
        kinds += ["pcie_to_host", "pcie_to_gpu"]
    links = [fabric.link(kind, int(c)) for kind in kinds for c in plan.workers]
    return min([fabric.capacities[link] for link in links if link >= 0], default=float("inf"))


def hop_latency(plan: Plan) -> float:
    """Return seconds that one message costs besides its bytes, on the slowest kind of hop in use."""
    network = plan.cluster.network
    if plan.num_nodes > 1 and network is not None:
        return network.latency + network.message_overhead
    return plan.cluster.peer_latency


def call_overhead(plan: Plan) -> float:
    """Return seconds per collective call."""
    network = plan.cluster.network
    return network.collective_overhead if network is not None else 0.0


def node_uses(plan: Plan, out: float, into: float, staged: bool, peers: float = 1.0) -> list[tuple[int, float]]:
    """Return what each byte of work loads on every node alike.

    Parameters
    ----------
    out, into : bytes leaving and entering each node's port.
    staged : the data already lies on the host, so GPU lanes are not loaded.
    peers : bytes each GPU sends to (and receives from) other GPUs of its node.
    """
    across = plan.num_nodes > 1
    out, into = (out, into) if across else (0.0, 0.0)
    demands: list[tuple[str, float]] = [("nic_out", out), ("nic_in", into), ("channel", out + into)]
    if staged:
        demands.append(("host_memory", out + into))
    else:
        demands += [("pcie_to_host", out / plan.gpus_per_node), ("pcie_to_gpu", into / plan.gpus_per_node)]
        if plan.gpus_per_node > 1:
            demands += [("peer", peers), ("socket", peers)]
    fabric = plan.fabric
    uses = [(fabric.link(kind, int(c)), amount) for c in plan.workers for kind, amount in demands]
    for leaf in {plan.classes[int(c)].leaf for c in plan.workers} if across else set():
        uses += [(fabric.link("leaf_up", leaf), out), (fabric.link("leaf_down", leaf), into)]
    return uses


def node_only_phase(plan: Plan, work: float, hops: int, name: str) -> Phase:
    """Return a phase inside every node at once: `work` bytes on each GPU's links to its peers."""
    uses = node_uses(plan, 0.0, 0.0, staged=False)
    fabric = plan.fabric
    links: Sequence[int] = [fabric.link("peer", int(c)) for c in plan.workers]
    free = all(link < 0 for link in links)
    return Phase(0.0 if free else work, hops * plan.cluster.peer_latency, tuple(uses), name=name)
