"""From the messages of a leg to one fluid phase: what every link carries, and how long it takes alone.

A phase is exact for a collective alone: its rounds follow one another, and a round lasts until its busiest
link is through (equal messages share a link equally). That time is kept by the phase's rate cap. Every link
is charged the bytes it carries.
Simplified: roles differ from node to node (a leaf of a tree sends once), but a node class stands for all its
nodes, so every port is charged the mean over the nodes; and over the rounds, so a transfer beside the
collective sees a steady flow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from poseidon_sim.cluster import Network
from poseidon_sim.cluster.build import leaf_size
from poseidon_sim.collective.messages import Leg, Round
from poseidon_sim.plan.plan import Phase, Plan

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Ground:
    """What the ranks stand on, node by node whatever is folded: capacities in bytes/s by kind of link.

    Kinds are those of the fabric. GPU lanes have an instance per GPU, 'peer' two (out, in), 'socket' and
    switches two per node, leaves one per leaf; 'pair' is every ordered pair of nodes.
    """

    num_nodes: int
    gpus: int
    leaf: Ints
    staged: bool
    own_peers: bool
    sockets: bool
    capacity: dict[str, Floats]
    curve: dict[str, tuple[tuple[float, float], ...]]

    def loads(self, each: Round) -> dict[str, tuple[Floats, Floats]]:
        """Return (bytes per byte of buffer, messages) of one round on all instances of every kind of link."""
        a, b, share = each.source // self.gpus, each.target // self.gpus, each.share
        out = a != b
        found: dict[str, tuple[Floats, Floats]] = {}

        def put(kind: str, *where: tuple[Ints, npt.NDArray[np.bool_]]) -> None:
            if kind in self.capacity:
                size = len(self.capacity[kind])
                index = np.concatenate([i[mask] for i, mask in where])
                moved = np.concatenate([share[mask] for _, mask in where])
                load = np.bincount(index, moved, size).astype(np.float64)
                found[kind] = load, np.bincount(index, minlength=size).astype(np.float64)

        cross = out & (self.leaf[a] != self.leaf[b])
        put("nic_out", (a, out))
        put("nic_in", (b, out))
        put("channel", (a, out), (b, out))
        put("leaf_up", (self.leaf[a], cross))
        put("leaf_down", (self.leaf[b], cross))
        put("pair", (a * self.num_nodes + b, out))
        if self.staged:
            put("host_memory", (a, out), (b, out), (a, ~out), (b, ~out))
            return found
        lanes = out if self.own_peers else np.ones_like(out)
        put("pcie_to_host", (each.source, lanes))
        put("pcie_to_gpu", (each.target, lanes))
        put("peer", (each.source, ~out), (each.target + self.num_nodes * self.gpus, ~out))
        if self.sockets:
            half = -(-self.gpus // 2)
            x, y = 2 * a + (each.source % self.gpus >= half), 2 * b + (each.target % self.gpus >= half)
            put("socket", (x, ~out & (x != y)))
            put("switch_to_host", (x, x != y))
            put("switch_to_gpu", (y, x != y))
        return found

    def seconds(self, kind: str, load: Floats, messages: Floats) -> float:
        """Return how long the busiest instance of a kind needs."""
        capacity = self.capacity[kind]
        if self.curve.get(kind):
            points = np.array(self.curve[kind])
            capacity = capacity * np.interp(messages, points[:, 0], points[:, 1])
        return float((load / capacity).max())


def make_ground(plan: Plan, staged: bool) -> Ground:
    """Read the capacities of every worker node off the cluster."""
    cluster, network, host, gpus = plan.cluster, plan.cluster.network, plan.cluster.host, plan.gpus_per_node
    groups = cluster.runs()
    count = [group.nodes for group in groups]

    def per_node(values: Sequence[float | None]) -> Floats:
        return np.repeat([np.inf if x is None else x for x in values], count).astype(np.float64)

    lanes = per_node([cluster.pcie_bandwidth(group.gpu) for group in groups])
    peers = per_node([cluster.peer_bandwidth(group.gpu) for group in groups])
    nodes = np.arange(cluster.nodes, dtype=np.int64)
    leaf = nodes // leaf_size(cluster, plan.fabric.layout)
    capacity: dict[str, Floats] = {
        "host_memory": per_node([host.memory_bandwidth] * len(groups)),
        "pcie_to_host": np.repeat(lanes, gpus),
        "pcie_to_gpu": np.repeat(lanes, gpus),
        "peer": np.tile(np.repeat(peers, gpus), 2),
        "switch_to_host": np.repeat(lanes, 2),
        "switch_to_gpu": np.repeat(lanes, 2),
        "socket": np.full(2 * cluster.nodes, cluster.socket_bandwidth or np.inf),
    }
    curve = {}
    if network is not None:
        curve = {"nic_in": network.incast, "channel": host.channel_sharing}
        ports = per_node([network.bandwidth if g.bandwidth is None else g.bandwidth for g in groups])
        ports *= network.efficiency
        capacity |= {"nic_out": ports, "nic_in": ports}
        capacity["channel"] = per_node([host.channel_bandwidth] * len(groups))
        capacity |= _shared_network(network, leaf, leaf_size(cluster, plan.fabric.layout))
    own_peers, sockets = cluster.node.startswith("nv"), cluster.node == "pcie-tree"
    return Ground(cluster.nodes, gpus, leaf, staged, own_peers, sockets, capacity, curve)


def _shared_network(network: Network, leaf: Ints, per_leaf: int) -> dict[str, Floats]:
    """Return the capacities of leaf uplinks and of pairs of nodes, where they are limited."""
    found: dict[str, Floats] = {}
    if network.oversubscription > 1:
        uplink = per_leaf * network.goodput / network.oversubscription
        found |= {kind: np.full(int(leaf[-1]) + 1, uplink) for kind in ("leaf_up", "leaf_down")}
    if network.pair_bandwidth:
        found["pair"] = np.array(network.pair_bandwidth, dtype=np.float64).ravel()
    return found


def unit_phases(plan: Plan, legs: Sequence[Leg], staged: bool) -> list[Phase]:
    """Return the fluid phases of legs for one byte of buffer; the call's overhead stands before the first."""
    ground = make_ground(plan, staged)
    phases = [_phase(plan, ground, leg) for leg in legs]
    if phases:
        first = phases[0]
        phases[0] = Phase(
            first.work, first.latency + call_overhead(plan), first.uses, first.rate_cap, first.name
        )
    return phases


def call_overhead(plan: Plan) -> float:
    """Return seconds per collective call."""
    network = plan.cluster.network
    return network.collective_overhead if network is not None else 0.0


def _phase(plan: Plan, ground: Ground, leg: Leg) -> Phase:
    total: dict[str, Floats] = {}
    messages: dict[str, Floats] = {}
    seconds, work = 0.0, 0.0
    for each in leg.rounds:
        found = ground.loads(each)
        busiest = float(np.bincount(each.source, each.share).max())
        work += leg.repeat * busiest
        if not leg.pipelined:
            seconds += leg.repeat * max((ground.seconds(k, *load) for k, load in found.items()), default=0.0)
        for kind, (load, count) in found.items():
            total[kind] = total.get(kind, 0.0) + leg.repeat * load
            messages[kind] = messages.get(kind, 0.0) + count
    if leg.pipelined:
        seconds = max((ground.seconds(k, total[k], messages[k]) for k in total), default=0.0)
    latency = _latency(plan, ground, leg)
    if seconds == 0.0:  # no rate is stated for any link that it loads
        return Phase(0.0, latency, (), name=leg.name)
    mean = {kind: float(load.mean()) / work for kind, load in total.items() if kind != "pair" and load.any()}
    cap = work / seconds
    free = [k for k in mean if np.isfinite(ground.capacity[k]).any()]
    by_links = min((float(ground.capacity[k].min()) / mean[k] for k in free), default=np.inf)
    curved = any(ground.curve.get(k) for k in mean)
    if cap >= by_links * (1 - _ROUNDING) and not curved:
        cap = np.inf  # the links alone hold it back, and the report names them
    return Phase(work, latency, _uses(plan, mean), cap, leg.name)


def _uses(plan: Plan, mean: dict[str, float]) -> tuple[tuple[int, float], ...]:
    """Return (link, coefficient) on every worker class, and on every type of leaf that holds workers."""
    fabric = plan.fabric
    leaves = sorted({plan.classes[int(c)].leaf for c in plan.workers})
    uses = [
        (fabric.link(kind, index), coefficient)
        for kind, coefficient in mean.items()
        for index in (leaves if kind.startswith("leaf") else plan.workers.tolist())
    ]
    return tuple(use for use in uses if use[0] >= 0)


def _latency(plan: Plan, ground: Ground, leg: Leg) -> float:
    """Return seconds of all hops of the longest chain and of the overhead of its messages between nodes."""
    far = (
        sum(bool((e.source // ground.gpus != e.target // ground.gpus).any()) for e in leg.rounds) * leg.repeat
    )
    between, inside = leg.hops or (far, leg.repeat * len(leg.rounds) - far)
    network = plan.cluster.network
    if network is None:
        return inside * plan.cluster.peer_latency
    overheads = between if leg.pipelined else far
    return (
        between * network.latency + overheads * network.message_overhead + inside * plan.cluster.peer_latency
    )
