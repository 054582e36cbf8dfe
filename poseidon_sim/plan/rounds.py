"""Every message as a task of its own: which links it takes, which queue it stands in. For detail 'rounds'."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from poseidon_sim.plan.record import KIND, NONE, Block, Handles

if TYPE_CHECKING:
    from poseidon_sim.plan.plan import Plan, PlanLayer

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Routes:
    """(M,) messages between GPUs of unfolded nodes: nodes at both ends, queue, seconds, and (M, K) links.

    A link that stands for each GPU's own lanes takes 1/g of a message, and the rate cap
    keeps the message to one lane.
    """

    node: Ints
    peer: Ints
    queue: Ints
    latency: Floats
    delay: Floats
    rate_cap: Floats
    links: Ints
    coefficients: Floats
    limited: npt.NDArray[np.bool_]


def message_routes(
    plan: Plan, source: Ints, target: Ints, *, staged: bool, one_at_a_time: bool, sent: Ints | None = None
) -> Routes:
    """Return the routes of messages from rank to rank (GPUs in node order).

    Parameters
    ----------
    staged : the buffers lie on the hosts.
    one_at_a_time : a GPU sends one message after another; else it has a connection to each peer, all used at
        once.
    sent : indices of the messages of node 0 when all nodes are one class and those stand for all; else all are routed.
    """
    network, cluster = plan.cluster.network, plan.cluster
    peers = 1 if one_at_a_time else _peers_at_once(source, target, source // plan.gpus_per_node == target // plan.gpus_per_node)
    if sent is not None:
        source, target = source[sent], target[sent]
    from_node, to_node = source // plan.gpus_per_node, target // plan.gpus_per_node
    out = from_node != to_node
    if sent is not None:
        from_node, to_node = np.zeros_like(from_node), np.zeros_like(to_node)
    a, b = plan.workers[from_node], plan.workers[to_node]
    cap = _rate_caps(plan, source, target, a, b, out, staged, peers)
    columns = [(ids, c) for ids, c in _columns(plan, source, target, a, b, out, staged) if (ids >= 0).any()]
    links = np.stack([ids for ids, _ in columns], axis=1) if columns else np.full((len(a), 0), NONE)
    coefficients = np.broadcast_to(np.array([c for _, c in columns]), links.shape)
    if sent is not None:
        links, coefficients = _merged(links, coefficients)
    pair = source * plan.num_gpus + (source if one_at_a_time else target)
    senders, row = np.unique(pair, return_inverse=True)
    queues = np.array(
        [plan.recorder.queue(("rank", *divmod(key, plan.num_gpus))) for key in senders.tolist()],
        dtype=np.int64,
    )
    overhead, latency = (network.message_overhead, network.latency) if network is not None else (0.0, 0.0)
    return Routes(
        a,
        b,
        queues[row],
        np.where(out, overhead, 0.0),
        np.where(out, latency, cluster.peer_latency),
        cap,
        links,
        coefficients,
        (links >= 0).any(axis=1) | np.isfinite(cap),
    )


def send_messages(
    plan: Plan,
    routes: Routes,
    num_bytes: Floats,
    after: Handles,
    *,
    label: str,
    layer: PlanLayer | None = None,
) -> Handles:
    """Record all messages at once; `after` (M, K) may name messages of this block by their future ids."""
    return plan.recorder.add(
        Block(
            len(num_bytes),
            KIND["send"],
            plan.recorder.label(label),
            after=after,
            work=np.where(routes.limited, num_bytes, 0.0),
            latency=routes.latency,
            delay=routes.delay,
            rate_cap=routes.rate_cap,
            queue=routes.queue,
            links=routes.links,
            coefficients=routes.coefficients,
            layer=layer.index if layer is not None else -1,
            node=routes.node,
            peer=routes.peer,
            iteration=plan.iteration,
            priority=plan.priority,
        )
    )


def _merged(links: Ints, coefficients: Floats) -> tuple[Ints, Floats]:
    """Add up the coefficients of a link that a row names twice: what a node sends and what it receives alike."""
    links, coefficients = links.copy(), np.array(coefficients)
    for later in range(1, links.shape[1]):
        for earlier in range(later):
            twice = (links[:, later] >= 0) & (links[:, later] == links[:, earlier])
            coefficients[twice, earlier] += coefficients[twice, later]
            links[twice, later] = NONE
    return links, coefficients


def _rate_caps(
    plan: Plan, source: Ints, target: Ints, a: Ints, b: Ints, out: npt.NDArray[np.bool_], staged: bool, peers: int
) -> Floats:
    """Return (M,) bytes/s that no message exceeds: lanes, bus between sockets, pair of nodes."""
    gpus, network = plan.gpus_per_node, plan.cluster.network
    cap = np.full(len(a), np.inf)
    if not staged:
        lanes = _capacities(plan, "pcie_to_host")
        cap = np.where(out, np.minimum(lanes[a], lanes[b]), _capacities(plan, "peer")[a] / peers)
        bus = _capacities(plan, "socket")[a]
        cap = np.where(~out & _other_socket(source, target, gpus), np.minimum(cap, bus), cap)
    if network is not None and network.pair_bandwidth:
        pairs = np.array(network.pair_bandwidth)
        cap = np.where(out, np.minimum(cap, pairs[source // gpus, target // gpus]), cap)
    return cap


def _columns(
    plan: Plan, source: Ints, target: Ints, a: Ints, b: Ints, out: npt.NDArray[np.bool_], staged: bool
) -> list[tuple[Ints, float]]:
    """Return (link of each message or -1, coefficient) kind by kind."""
    gpus, fabric = plan.gpus_per_node, plan.fabric
    leaf = np.array([c.leaf for c in plan.classes], dtype=np.int64)
    cross = out & (leaf[a] != leaf[b])

    def at(kind: str, index: Ints, mask: npt.NDArray[np.bool_]) -> Ints:
        ids = np.array([fabric.link(kind, i) for i in range(int(index.max()) + 1)], dtype=np.int64)
        return np.where(mask, ids[index], NONE)

    found = [
        (at("nic_out", a, out), 1.0),
        (at("nic_in", b, out), 1.0),
        (at("channel", a, out), 1.0),
        (at("channel", b, out), 1.0),
        (at("leaf_up", leaf[a], cross), 1.0),
        (at("leaf_down", leaf[b], cross), 1.0),
    ]
    if staged:
        memory = [(a, out, 1.0), (b, out, 1.0), (a, ~out, 2.0)]
        return found + [(at("host_memory", node, mask), amount) for node, mask, amount in memory]
    lanes = out if plan.cluster.node.startswith("nv") else np.ones_like(out)
    own = 1.0 / gpus
    found += [
        (at("pcie_to_host", a, lanes), own),
        (at("pcie_to_gpu", b, lanes), own),
        (at("peer", a, ~out), own),
    ]
    if plan.cluster.node == "pcie-tree":
        apart = out | _other_socket(source, target, gpus)
        found += [
            (at("socket", a, apart & ~out), 0.5),
            (at("switch_to_host", a, apart), 0.5),
            (at("switch_to_gpu", b, apart), 0.5),
        ]
    return found


def _peers_at_once(source: Ints, target: Ints, inside: npt.NDArray[np.bool_]) -> int:
    """Return the most connections inside nodes that begin or end at one GPU: they divide its lanes evenly."""
    pairs = np.unique(np.stack([source[inside], target[inside]]), axis=1)
    if not pairs.size:
        return 1
    return int(max(np.unique(end, return_counts=True)[1].max() for end in pairs))


def _other_socket(source: Ints, target: Ints, gpus: int) -> npt.NDArray[np.bool_]:
    """Whether two GPUs sit in different halves of their nodes (which matters in a 'pcie-tree')."""
    half = -(-gpus // 2)
    return np.asarray((source % gpus >= half) != (target % gpus >= half))


def _capacities(plan: Plan, kind: str) -> Floats:
    """Return (classes,) bytes/s of a kind of link, inf where none is stated."""
    links = [plan.fabric.link(kind, c.index) for c in plan.classes]
    return np.array([plan.fabric.capacities[link] if link >= 0 else np.inf for link in links])
