"""From the messages of a leg to one fluid phase: what every link carries, and how long it takes alone.

A phase is exact for a collective alone: its rounds follow one another, and a round lasts until its busiest
link is through (equal messages share a link equally). That time is kept by the phase's rate cap. Every link
is charged the bytes it carries.
Simplified: roles differ from node to node (a leaf of a tree sends once), but a node class stands for all its
nodes, so every port is charged the mean over the nodes; and over the rounds, so a transfer beside the
collective sees a steady flow.

What links carry follows from how many ranks stand where (`Ground`) and is worked out once for it, link by link and then
kept as the few different loads there are; how long that takes follows from the rates of one cluster (`Rates`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from poseidon_sim.cluster import Network
from poseidon_sim.cluster.build import leaf_size
from poseidon_sim.collective.messages import Leg, Round
from poseidon_sim.plan.plan import Phase, Plan

if TYPE_CHECKING:
    from poseidon_sim.collective.base import Collective

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
_ROUNDING = 1e-12
_PER_LEAF = ("leaf_up", "leaf_down")


@dataclass(frozen=True)
class Ground:
    """What the ranks stand on, whatever is folded: who is where, without any rate.

    `runs` are (nodes, hardware) in node order: nodes of equal hardware have equal links. `leaf` nodes hang under one leaf
    switch; uplinks count when `leaves`, ordered pairs of nodes when `pairs`.
    """

    runs: tuple[tuple[int, int], ...]
    gpus: int
    leaf: int
    staged: bool
    own_peers: bool
    sockets: bool
    between: bool
    leaves: bool
    pairs: bool

    @property
    def num_nodes(self) -> int:
        return sum(count for count, _ in self.runs)


class Load(NamedTuple):
    """The different loads on links of one kind: (D,) bytes per byte of buffer, messages, hardware (or place)."""

    amount: Floats
    messages: Floats
    hardware: Ints


class LegLoads(NamedTuple):
    """What a leg puts on the links: by round, in total, and on the mean link per byte of work."""

    rounds: tuple[dict[str, Load], ...]
    total: dict[str, Load]
    mean: dict[str, float]
    work: float
    far: int


class Rates(NamedTuple):
    """Capacities in bytes/s by kind of link and hardware, and the curves (flows, share of the capacity)."""

    capacity: Mapping[str, Floats]
    curve: Mapping[str, tuple[tuple[float, float], ...]]

    def seconds(self, kind: str, load: Load) -> float:
        """Return how long the busiest link of a kind needs."""
        capacity = self.capacity[kind][load.hardware]
        if self.curve.get(kind):
            points = np.array(self.curve[kind])
            capacity = capacity * np.interp(load.messages, points[:, 0], points[:, 1])
        return float((load.amount / capacity).max())


def unit_phases(plan: Plan, algorithm: Collective, staged: bool) -> list[Phase]:
    """Return the fluid phases of an algorithm for one byte of buffer; the call's overhead stands before the first."""
    if plan.num_gpus == 1:
        return []
    ground, rates = _ground_and_rates(plan, staged)
    legs = _legs(algorithm, plan.num_gpus, plan.gpus_per_node)
    loads = _loads(algorithm, ground)
    phases = [_phase(plan, rates, leg, load) for leg, load in zip(legs, loads, strict=True)]
    if phases:
        phases[0] = phases[0]._replace(latency=phases[0].latency + call_overhead(plan))
    return phases


def call_overhead(plan: Plan) -> float:
    """Return seconds per collective call."""
    network = plan.hardware.network
    return network.collective_overhead if network is not None else 0.0


@lru_cache(maxsize=64)
def _legs(algorithm: Collective, num_ranks: int, ranks_per_node: int) -> list[Leg]:
    return algorithm.legs(num_ranks, ranks_per_node)


@lru_cache(maxsize=64)
def _loads(algorithm: Collective, ground: Ground) -> tuple[LegLoads, ...]:
    legs = _legs(algorithm, ground.num_nodes * ground.gpus, ground.gpus)
    return tuple(_leg_loads(ground, leg) for leg in legs)


def _ground_and_rates(plan: Plan, staged: bool) -> tuple[Ground, Rates]:
    """Read off the cluster who stands where and what every kind of hardware can do."""
    cluster, network, host, gpus = plan.hardware, plan.hardware.network, plan.hardware.host, plan.gpus_per_node
    hardware: dict[tuple[float, ...], int] = {}
    runs: list[tuple[int, int]] = []
    for group in cluster.runs():
        port = np.inf
        if network is not None:
            port = (network.bandwidth if group.bandwidth is None else group.bandwidth) * network.efficiency
        lanes, peer = cluster.pcie_bandwidth(group.gpu), cluster.peer_bandwidth(group.gpu)
        leaving = np.inf if lanes is None else lanes * cluster.rails(group.gpu, group.bandwidth)
        key = (port, leaving, np.inf if peer is None else peer)
        kind = hardware.setdefault(key, len(hardware))
        if runs and runs[-1][1] == kind:
            runs[-1] = (runs[-1][0] + group.nodes, kind)
        else:
            runs.append((group.nodes, kind))
    ports, lanes_, peers = (np.array(column) for column in zip(*hardware, strict=True))
    same = np.ones(len(hardware))
    capacity = {
        "host_memory": same * (host.memory_bandwidth or np.inf), "pcie_to_host": lanes_, "pcie_to_gpu": lanes_, "peer": peers,
        "switch_to_host": lanes_, "switch_to_gpu": lanes_, "socket": same * (cluster.socket_bandwidth or np.inf),
        "nic_out": ports, "nic_in": ports, "channel": same * (host.channel_bandwidth or np.inf),
    }  # fmt: skip
    per_leaf = leaf_size(cluster, plan.links.layout)
    pairs = bool(network is not None and network.pair_bandwidth)
    curve = {}
    if network is not None:
        curve = {"nic_in": network.incast, "channel": host.channel_sharing}
        capacity |= _shared_network(network, per_leaf)
    ground = Ground(
        tuple(runs), gpus, per_leaf, staged, cluster.node.startswith("nv"), cluster.node == "pcie-tree",
        network is not None, bool(network is not None and network.oversubscription > 1), pairs,
    )  # fmt: skip
    return ground, Rates(capacity, curve)


def _shared_network(network: Network, per_leaf: int) -> dict[str, Floats]:
    """Return the capacities of leaf uplinks and of pairs of nodes, where they are limited."""
    found: dict[str, Floats] = {}
    if network.oversubscription > 1:
        uplink = per_leaf * network.goodput / network.oversubscription
        found |= {kind: np.array([uplink]) for kind in _PER_LEAF}
    if network.pair_bandwidth:
        found["pair"] = np.array(network.pair_bandwidth, dtype=np.float64).ravel()
    return found


def _leg_loads(ground: Ground, leg: Leg) -> LegLoads:
    amounts: dict[str, Floats] = {}
    messages: dict[str, Floats] = {}
    rounds, work = [], 0.0
    alike = all(_from_every_node(ground, each) for each in leg.rounds)
    for each in leg.rounds:
        found = _round_loads(ground, each, alike)
        work += leg.repeat * float(np.bincount(each.source, each.share).max())
        rounds.append({kind: _different(ground, kind, *load) for kind, load in found.items()})
        for kind, (load, count) in found.items():
            amounts[kind] = amounts.get(kind, 0.0) + leg.repeat * load
            messages[kind] = messages.get(kind, 0.0) + count
    total = {kind: _different(ground, kind, amounts[kind], messages[kind]) for kind in amounts}
    mean = {kind: float(load.mean()) / work for kind, load in amounts.items() if kind != "pair" and load.any()}
    far = sum(bool((e.source // ground.gpus != e.target // ground.gpus).any()) for e in leg.rounds) * leg.repeat
    return LegLoads(tuple(rounds), total, mean, work, far)


def _round_loads(ground: Ground, each: Round, alike: bool) -> dict[str, tuple[Floats, Floats]]:
    """Return (bytes per byte of buffer, messages) of one round on all links of every kind.

    GPU lanes have a link per GPU, 'peer' two (out, in), 'socket' and switches two per node, leaves one per leaf;
    'pair' is every ordered pair of nodes. When all nodes are `alike` in every round, the links of the first stand for all.
    """
    gpus, nodes, source, target, share = ground.gpus, ground.num_nodes, each.source, each.target, each.share
    if alike:  # all nodes carry what the first does
        few = len(source) // nodes
        a, b = source[:few] // gpus, target[:few] // gpus
        out, share, nodes = a != b, share[:few], 1
        source, target, a, b = source[:few] % gpus, target[:few] % gpus, 0 * a, 0 * b
    else:
        a, b = source // gpus, target // gpus
        out = a != b
    found: dict[str, tuple[Floats, Floats]] = {}

    def put(kind: str, size: int, *where: tuple[Ints, npt.NDArray[np.bool_]]) -> None:
        index = np.concatenate([i[mask] for i, mask in where])
        moved = np.concatenate([share[mask] for _, mask in where])
        load = np.bincount(index, moved, size).astype(np.float64)
        found[kind] = load, np.bincount(index, minlength=size).astype(np.float64)

    if ground.between:
        put("nic_out", nodes, (a, out))
        put("nic_in", nodes, (b, out))
        put("channel", nodes, (a, out), (b, out))
    if ground.leaves:
        cross, leaves = out & (a // ground.leaf != b // ground.leaf), -(-nodes // ground.leaf)
        put("leaf_up", leaves, (a // ground.leaf, cross))
        put("leaf_down", leaves, (b // ground.leaf, cross))
    if ground.pairs:
        put("pair", nodes * nodes, (a * nodes + b, out))
    if ground.staged:
        put("host_memory", nodes, (a, out), (b, out), (a, ~out), (b, ~out))
        return found
    lanes = out if ground.own_peers else np.ones_like(out)
    put("pcie_to_host", nodes * gpus, (source, lanes))
    put("pcie_to_gpu", nodes * gpus, (target, lanes))
    put("peer", 2 * nodes * gpus, (source, ~out), (target + nodes * gpus, ~out))
    if ground.sockets:
        half = -(-gpus // 2)
        x, y = 2 * a + (source % gpus >= half), 2 * b + (target % gpus >= half)
        put("socket", 2 * nodes, (x, ~out & (x != y)))
        put("switch_to_host", 2 * nodes, (x, x != y))
        put("switch_to_gpu", 2 * nodes, (y, x != y))
    return found


def _from_every_node(ground: Ground, each: Round) -> bool:
    """Whether every node sends in a round what the first one does, to nodes as far ahead; nodes and their places are alike."""
    nodes, gpus = ground.num_nodes, ground.gpus
    if len(ground.runs) > 1 or ground.leaves or ground.pairs or len(each) % nodes:
        return False
    source, ahead, size = (
        column.reshape(nodes, -1) for column in (each.source, (each.target - each.source) % (nodes * gpus), each.stop - each.start)
    )
    first = gpus * np.arange(nodes, dtype=np.int64)[:, None]
    same_place = (source[0] < gpus).all() and (source - first == source[0]).all()
    return bool(same_place and (ahead == ahead[0]).all() and (size == size[0]).all())


def _different(ground: Ground, kind: str, amount: Floats, messages: Floats) -> Load:
    """Keep one of each different (load, messages, hardware)."""
    if kind == "pair":
        return Load(amount, messages, np.arange(len(amount)))
    hardware = np.zeros(1, dtype=np.int64)
    if kind not in _PER_LEAF and len(ground.runs) > 1:
        counts, kinds = np.array(ground.runs).T
        per_node = np.repeat(kinds, counts)
        hardware = np.repeat(per_node, len(amount) // ground.num_nodes)
        if kind == "peer":
            hardware = np.tile(np.repeat(per_node, ground.gpus), 2)
    if len(hardware) == 1 and amount.min() == amount.max() and messages.min() == messages.max():
        return Load(amount[:1], messages[:1], hardware)
    rows = np.unique(np.stack([amount, messages, np.broadcast_to(hardware, amount.shape)], axis=1), axis=0)
    return Load(rows[:, 0], rows[:, 1], rows[:, 2].astype(np.int64))


def _phase(plan: Plan, rates: Rates, leg: Leg, loads: LegLoads) -> Phase:
    seconds = 0.0
    if leg.pipelined:
        seconds = max((rates.seconds(kind, load) for kind, load in loads.total.items()), default=0.0)
    else:
        for each in loads.rounds:
            seconds += leg.repeat * max((rates.seconds(kind, load) for kind, load in each.items()), default=0.0)
    latency = _latency(plan, leg, loads.far)
    if seconds == 0.0:  # no rate is stated for any link that it loads
        return Phase(0.0, latency, (), name=leg.name)
    mean, cap = loads.mean, loads.work / seconds
    free = [k for k in mean if np.isfinite(rates.capacity[k]).any()]
    by_links = min((float(rates.capacity[k].min()) / mean[k] for k in free), default=np.inf)
    curved = any(rates.curve.get(k) for k in mean)
    if cap >= by_links * (1 - _ROUNDING) and not curved:
        cap = np.inf  # the links alone hold it back, and the report names them
    return Phase(loads.work, latency, _uses(plan, mean), cap, leg.name)


def _uses(plan: Plan, mean: Mapping[str, float]) -> tuple[tuple[int, float], ...]:
    """Return (link, coefficient) on every worker class, and on every type of leaf that holds workers."""
    links = plan.links
    leaves = sorted({plan.classes[int(c)].leaf for c in plan.workers})
    uses = [
        (links.link(kind, index), coefficient)
        for kind, coefficient in mean.items()
        for index in (leaves if kind in _PER_LEAF else plan.workers.tolist())
    ]
    return tuple(use for use in uses if use[0] >= 0)


def _latency(plan: Plan, leg: Leg, far: int) -> float:
    """Return seconds of all hops of the longest chain and of the overhead of its messages between nodes."""
    between, inside = leg.hops or (far, leg.repeat * len(leg.rounds) - far)
    network, peer_latency = plan.hardware.network, plan.hardware.peer_latency
    if network is None:
        return inside * peer_latency
    overheads = between if leg.pipelined else far
    return between * network.latency + overheads * network.message_overhead + inside * peer_latency
