"""Record a pipeline on a plan: every pass of every stage, the messages between stages, all-reduces inside and between replicas.

A stage stands on some nodes, or on a part (slot) of one. Replicas that run side by side on equal nodes are folded: one *line*
of node classes, one per stage, stands for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from poseidon_sim.cluster import Cluster, Layout
from poseidon_sim.cluster.build import merge_uses
from poseidon_sim.plan.plan import Phase, Plan
from poseidon_sim.plan.record import KIND, NONE, Block, Handles
from poseidon_sim.plan.schedule import Schedule
from poseidon_sim.plan.stages import Stages


@dataclass(frozen=True)
class Placement:
    """Where p devices of a pipeline stand, each of `gpus` GPUs: a tensor-parallel group is next to the next one (replica).

    Parameters
    ----------
    devices : stages of the pipeline (a device holds `chunks` of them when they are interleaved).
    gpus : GPUs of a device, tensor x replicas. `tensor` : GPUs that split a layer. `per_node` : GPUs of a node.
    experts : replicas that hold different experts, next to one another.
    """

    devices: int
    gpus: int
    tensor: int
    per_node: int
    experts: int = 1

    @property
    def slots(self) -> int:
        """Devices in one node."""
        return max(1, self.per_node // self.gpus)

    @property
    def nodes(self) -> int:
        """Nodes that a device spans."""
        return max(1, self.gpus // self.per_node)

    @property
    def replicas(self) -> int:
        return self.gpus // self.tensor

    @property
    def replicas_inside(self) -> int:
        """Replicas of one stage within a node."""
        return max(1, min(self.gpus, self.per_node) // self.tensor)

    @property
    def gpus_inside(self) -> int:
        """GPUs of one device within a node."""
        return min(self.gpus, self.per_node)

    @property
    def groups_per_node(self) -> int:
        """Rings of replicas that leave a node: one for each tensor-parallel rank there."""
        return min(self.tensor, self.per_node)

    @property
    def experts_inside(self) -> int:
        """Replicas with different experts within a node."""
        return min(self.experts, self.replicas_inside)

    @property
    def of_experts(self) -> Placement:
        """The placement as the gradients of experts see it: replicas are those that hold the same ones."""
        return replace(self, tensor=self.tensor * self.experts, experts=1)

    def node_of(self, device: int, position: int = 0) -> int:
        """Return the node that holds a device's GPUs at a position among its nodes."""
        return device // self.slots if self.slots > 1 else device * self.nodes + position

    def crosses(self, device: int, other: int) -> bool:
        """Whether messages between two devices leave the node."""
        return self.node_of(device) != self.node_of(other)

    def layout(self, cluster: Cluster) -> Layout:
        """Return the roles: nodes of one device are alike, unless the cluster makes them differ."""
        if self.devices == 1:
            return Layout()
        plain = not cluster.groups and not cluster.jitter and not (cluster.network and cluster.network.oversubscription > 1)
        roles = {n: ("stage", self.kind_of(n)) if plain else ("node", n) for n in range(cluster.nodes)}
        return Layout(roles=roles, slots=self.slots)

    def kind_of(self, node: int) -> int:
        """Return which devices a node holds: nodes with the same number hold the same."""
        return node // self.nodes

    def lines(self, plan: Plan) -> list[tuple[int, ...]]:
        """Return rows of the plan's workers, one per device: each line stands for all replicas that run on such nodes."""
        row: dict[tuple[int, int], int] = {}
        for w, c in enumerate(plan.workers):
            node_class = plan.classes[int(c)]
            for node in range(node_class.first_node, node_class.first_node + node_class.count):
                row.setdefault((node, node_class.slot), w)
        lines = [
            tuple(row[(self.node_of(d, position), d % self.slots if self.slots > 1 else 0)] for d in range(self.devices))
            for position in range(self.nodes)
        ]
        return list(dict.fromkeys(lines))


class StagesSideBySide(Placement):
    """The other order: a pipeline's devices, one GPU each, stand next to one another; the next pipeline follows."""

    @property
    def slots(self) -> int:
        return min(self.devices, self.per_node)

    @property
    def span(self) -> int:
        """Nodes of one pipeline."""
        return self.devices // self.slots

    @property
    def nodes(self) -> int:
        return self.gpus // self.replicas_inside

    @property
    def replicas_inside(self) -> int:
        return self.per_node // self.slots

    @property
    def gpus_inside(self) -> int:
        return self.replicas_inside

    def node_of(self, device: int, position: int = 0) -> int:
        return position * self.span + device // self.slots

    def kind_of(self, node: int) -> int:
        return node % self.span

    def lines(self, plan: Plan) -> list[tuple[int, ...]]:
        """Return a line for every pipeline whose nodes have classes named for them; equal nodes have only the first one."""
        row = {(c.first_node, c.slot): w for w, c in enumerate(plan.classes[int(each)] for each in plan.workers)}
        places = [[(self.node_of(d, at), d % self.slots) for d in range(self.devices)] for at in range(self.nodes)]
        return [tuple(row[place] for place in each) for each in places if all(place in row for place in each)]


def inside_uses(plan: Plan, worker: int) -> list[tuple[int, float]]:
    """Return what a byte that a GPU sends to another of its node loads."""
    c = int(plan.workers[worker])
    peer = plan.links.link("peer", c)
    if peer >= 0 and plan.hardware.node.startswith("nv"):
        return [(peer, 1.0)]
    return merge_uses([(plan.links.link(name, c), 1.0) for name in ("pcie_to_host", "pcie_to_gpu", "host_memory")])


def leaving_uses(plan: Plan, sender: int, receiver: int, port: float, lane: float) -> list[tuple[int, float]]:
    """Return what a byte that leaves the sender's node for the receiver's loads: `port` of each NIC, `lane` of each GPU's lanes."""
    a, b = int(plan.workers[sender]), int(plan.workers[receiver])
    found = [("nic_out", a, port), ("pcie_to_host", a, lane), ("nic_in", b, port), ("pcie_to_gpu", b, lane)]
    return merge_uses([(plan.links.link(kind, c), x) for kind, c, x in found])


def message_uses(plan: Plan, place: Placement, sender: int, receiver: int, leaves: bool) -> list[tuple[int, float]]:
    """Return what a byte that each GPU of a device sends to its partner on the next device loads, on one node."""
    if not leaves:
        return inside_uses(plan, sender)
    return leaving_uses(plan, sender, receiver, float(place.gpus_inside), 1.0)


def group_phase(
    plan: Plan, place: Placement, workers: Sequence[int], ranks: int, num_bytes: float, passes: float, within: bool
) -> Phase:
    """Return a ring collective of `ranks` GPUs as a fluid phase: `passes` is 2 for an all-reduce, 1 for half of one.

    `within` : the ranks split a layer and stand side by side; else they are replicas.
    """
    inside = min(ranks, place.per_node) if within else place.replicas_inside
    nodes = -(-ranks // inside)
    work = passes * (ranks - 1) / ranks * num_bytes
    uses: dict[int, float] = {}
    for w in workers:
        if inside > 1:
            uses.update(inside_uses(plan, w))
        if nodes > 1:
            c, rings = int(plan.workers[w]), 1.0 if within else float(place.groups_per_node)
            uses.update(leaving_uses(plan, w, w, rings, rings / max(rings, plan.hardware.rails(plan.classes[c].gpu))))
    network, peer = plan.hardware.network, plan.hardware.peer_latency
    hops = passes * (nodes - 1) if passes < 2 else 2 * (nodes - 1).bit_length()
    latency = passes * (inside - 1) * peer
    if network is not None:
        latency += hops * (network.latency + network.message_overhead) * (nodes > 1) + network.collective_overhead
    return Phase(work, latency, tuple(uses.items()))


def all_to_all(plan: Plan, place: Placement, worker: int) -> Phase:
    """Return an all-to-all among replicas with different experts as a fluid phase; work is what a GPU deals out, evenly."""
    network, inside, whole = plan.hardware.network, place.experts_inside, place.experts
    uses = [(link, x * (inside - 1) / whole) for link, x in inside_uses(plan, worker)] if inside > 1 else []
    latency = plan.hardware.peer_latency * (inside > 1)
    if whole > inside:
        leaving = (whole - inside) / whole
        uses += leaving_uses(plan, worker, worker, place.gpus_inside * leaving, leaving)
        assert network is not None  # a device on several nodes
        latency = network.latency + network.message_overhead
    return Phase(1.0, latency + (network.collective_overhead if network is not None else 0.0), tuple(merge_uses(uses)))


def record_passes(
    plan: Plan,
    place: Placement,
    stages: Sequence[Stages],
    line: tuple[int, ...],
    schedule: Schedule,
    start: Handles,
    blocking: bool,
) -> np.ndarray:
    """Record all passes of one line; return (R,) handles, true when a row's pass (its all-reduces included) is over.

    Parameters
    ----------
    stages : what the stages are on the GPUs of each device of the line, by device.
    blocking : a device waits until its message is through before its next pass.
    """
    p, rows = place.devices, len(schedule)
    stage = schedule.chunk * p + schedule.device
    passes = schedule.backward.astype(np.int64)
    seconds = np.zeros(rows)
    shared = np.zeros((2, 2, rows))  # tensor and expert parallelism: bytes and calls
    for d in range(p):
        mine, of = schedule.device == d, stages[d]
        s = stage[mine]
        whole = np.where(schedule.backward[mine], of.backward[s].sum(axis=1), of.forward[s])
        last = schedule.backward[mine] & ~(schedule.ends[mine] & (schedule.piece[mine] == 0))
        seconds[mine] = np.where(last, of.backward[s, schedule.piece[mine]], whole) * plan.slowdown[line[d]]
        share = np.where(last, 1.0 / of.backward.shape[1], 1.0)
        groups = (of.tensor_bytes, of.tensor_calls), (of.expert_bytes, of.expert_calls)
        shared[:, :, mine] = np.array([[each[s, passes[mine]] * share for each in group] for group in groups])
    target = np.where(schedule.backward, stage - 1, stage + 1)
    sends = schedule.ends & (target >= 0) & (target < len(stages[0].forward))
    boundary = stages[0].boundary_bytes[np.where(schedule.backward, stage - 1, stage)] / place.tensor
    kept = np.stack([np.ones(rows, dtype=bool), shared[0, 1] > 0, shared[1, 1] > 0, sends], axis=1)
    first, index = plan.recorder.num_tasks, np.cumsum(kept.ravel()).reshape(rows, 4) - 1
    done = index + first  # of what is not there: the task before it
    earlier = np.where(schedule.before >= 0, done[schedule.before, 3 if blocking else 2], NONE)
    arrived = np.where(schedule.source >= 0, done[schedule.source, 3], NONE)
    begin = np.where((earlier == NONE) & (arrived == NONE), start[np.array(line)[schedule.device]], NONE)
    after = np.full((rows, 4, 3), NONE)
    after[:, 0] = np.stack([begin, earlier, np.where(arrived == earlier, NONE, arrived)], axis=1)
    after[:, 1:, 0] = done[:, :-1]
    columns = _columns(plan, place, line, schedule, target % p, shared, kept)
    work = np.stack([seconds, *columns.pop("shared_work"), boundary], axis=1)
    work[~((columns["links"] >= 0).any(axis=2) | np.isfinite(columns["rate_cap"]))] = 0.0  # links whose rate is not stated are free
    flat = kept.ravel()
    names = ("forward", "activations"), ("backward", "gradients of activations")
    inner = ("tensor all-reduce", "expert all-to-all")
    labels = np.array([[plan.recorder.label(n) for n in (a, *inner, b)] for a, b in names])[passes]
    kinds = np.array([[KIND[n] for n in (a, "collective", "collective", "send")] for a, _ in names])[passes]
    plan.recorder.add(Block(
        int(flat.sum()), kinds.ravel()[flat], labels.ravel()[flat], after.reshape(-1, 3)[flat], work.ravel()[flat],
        iteration=plan.iteration, **{name: values.reshape(rows * 4, *values.shape[2:])[flat] for name, values in columns.items()},
    ))  # fmt: skip
    return done[:, 2]


def _columns(
    plan: Plan,
    place: Placement,
    line: tuple[int, ...],
    schedule: Schedule,
    target: np.ndarray,
    shared: np.ndarray,
    kept: np.ndarray,
) -> dict[str, Any]:
    """Return the columns (R, 4, ...) of compute, all-reduce, all-to-all and message: links, latencies, nodes; bytes of the two."""
    p, rows, network = place.devices, len(schedule), plan.hardware.network
    units: list[list[Phase]] = [[], []]
    if place.tensor > 1:
        units[0] = [group_phase(plan, place, [line[d]], place.tensor, 1.0, 2.0, within=True) for d in range(p)]
    if place.experts > 1:
        units[1] = [all_to_all(plan, place, line[d]) for d in range(p)]
    compute = [[(plan.links.link("gpu", int(plan.workers[w])), 1.0)] for w in line]
    pairs = {}
    for d, e in {*zip(schedule.device[kept[:, 3]].tolist(), target[kept[:, 3]].tolist(), strict=True)}:
        pairs[(d, e)] = message_uses(plan, place, line[d], line[e], place.crosses(d, e))
    width = max(len(each) for each in [*compute, *(phase.uses for unit in units for phase in unit), *pairs.values()])
    links, coefficients = np.full((rows, 4, width), -1), np.zeros((rows, 4, width))
    latency, delay, queue = np.zeros((rows, 4)), np.zeros((rows, 4)), np.full((rows, 4), -1)
    cap = np.full((rows, 4), np.inf)
    cap[:, 0] = 1.0

    def put(mine: np.ndarray, column: int, uses: Sequence[tuple[int, float]]) -> None:
        for k, (link, x) in enumerate(uses):
            links[mine, column, k], coefficients[mine, column, k] = link, x

    classes = plan.workers[np.array(line)]
    for d in range(p):
        mine = schedule.device == d
        put(mine, 0, compute[d])
        queue[mine, 0] = plan.recorder.queue(("gpu compute", int(classes[d])))
        for k, unit in enumerate(units):
            if unit:
                put(mine, 1 + k, unit[d].uses)
                latency[mine, 1 + k] = shared[k, 1, mine] * unit[d].latency
    for (d, e), uses in pairs.items():
        mine = (schedule.device == d) & (target == e) & kept[:, 3]
        put(mine, 3, uses)
        queue[mine, 3] = plan.recorder.queue(("pipeline", line[d], line[e]))
        leaves = place.crosses(d, e)
        delay[mine, 3] = network.latency if leaves and network is not None else plan.hardware.peer_latency
        latency[mine, 3] = network.message_overhead if leaves and network is not None else 0.0
    node = np.stack([classes[schedule.device]] * 4, axis=1)
    peer = np.full((rows, 4), -1)
    peer[:, 3] = classes[target]
    return {
        "latency": latency, "delay": delay, "rate_cap": cap, "queue": queue, "links": links, "coefficients": coefficients,
        "node": node, "peer": peer, "shared_work": [shared[k, 0] * (unit[0].work if unit else 0.0) for k, unit in enumerate(units)],
    }  # fmt: skip
