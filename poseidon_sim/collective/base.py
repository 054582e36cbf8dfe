"""What every collective shares: phases for the engine, rounds as an oracle, bytes for the books.

A collective is recorded as one fluid task per phase. Its `schedule` spells the same thing message by message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from poseidon_sim.cluster import Cluster
from poseidon_sim.plan.plan import Phase, Plan, PlanLayer
from poseidon_sim.plan.record import Handles


@dataclass(frozen=True)
class Message:
    """One message of one round: from rank to rank, a share of the buffer."""

    source: int
    target: int
    share: float


class Collective:
    """Base of all-reduce algorithms over n ranks (GPUs in node order)."""

    name: ClassVar[str] = ""
    summary: ClassVar[str] = ""

    def phases(self, plan: Plan, num_bytes: float, staged: bool) -> list[Phase]:
        """Return the fluid phases of one all-reduce of `num_bytes` per rank."""
        raise NotImplementedError

    def schedule(self, num_ranks: int, ranks_per_node: int = 1) -> list[list[Message]]:
        """Return the rounds: messages of a round run at once, rounds follow one another."""
        raise NotImplementedError

    def time(self, num_bytes: float, num_ranks: int, bandwidth: float, latency: float) -> float:
        """Return the closed-form seconds on an empty, flat network."""
        raise NotImplementedError

    def record(
        self, plan: Plan, num_bytes: float, ready: Handles, *, label: str, layer: PlanLayer, staged: bool = False
    ) -> Handles:
        """Record the collective on the plan."""
        return plan.collective(self.phases(plan, num_bytes, staged), ready, label=label, layer=layer)

    def network_bytes(self, num_bytes: float, cluster: Cluster) -> float:
        """Return the bytes that cross between nodes, all nodes together, counted from the schedule."""
        per_node = cluster.gpus_per_node
        rounds = self.schedule(cluster.num_gpus, per_node)
        crossing = (m.share for each in rounds for m in each if m.source // per_node != m.target // per_node)
        return num_bytes * sum(crossing)


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
    """Return what each byte of a collective loads on every node alike.

    Parameters
    ----------
    out, into : bytes leaving and entering each node's port.
    staged : the data already lies on the host, so GPU lanes are not loaded.
    peers : bytes each GPU sends to (and receives from) other GPUs of its node.
    """
    uses: list[tuple[int, float]] = []
    fabric = plan.fabric
    for c in plan.workers:
        index = int(c)
        uses += [
            (fabric.link("nic_out", index), out),
            (fabric.link("nic_in", index), into),
            (fabric.link("channel", index), out + into),
            (fabric.link("host_memory", index), out + into if staged else 0.0),
        ]
        if staged:
            continue
        uses += [(fabric.link("pcie_to_host", index), max(out, 0.0)), (fabric.link("pcie_to_gpu", index), max(into, 0.0))]
        if plan.gpus_per_node > 1:
            uses += [(fabric.link("peer", index), peers), (fabric.link("socket", index), peers)]
    for leaf in {plan.classes[int(c)].leaf for c in plan.workers} if plan.num_nodes > 1 else set():
        uses += [(fabric.link("leaf_up", leaf), out), (fabric.link("leaf_down", leaf), into)]
    return uses
