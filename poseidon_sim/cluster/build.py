"""Turn a cluster into links and classes of equal nodes. Cost follows the number of different nodes.

Identical nodes that do identical work are one *node class* with a count. A flow between classes stands for all
flows between their nodes; the number of flows per port becomes its use coefficient, so sharing is exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from poseidon_sim.cluster.parts import Gpu, Network, NodeGroup
from poseidon_sim.cluster.topology import Cluster
from poseidon_sim.errors import InputError


@dataclass(frozen=True)
class Layout:
    """What a strategy asks of the nodes beyond the cluster.

    Parameters
    ----------
    extra_nodes : server or master nodes without workers, after the worker nodes.
    roles : node index -> any label; nodes with different labels are never folded together.
    in_turn : nodes serve their peers one after the other, so that folding holds only while all nodes are alike.
    slots : equal parts into which every worker node's GPUs are cut, each a class of its own (stages of a pipeline in one
        node); the parts share the node's port and host.
    """

    extra_nodes: int = 0
    roles: Mapping[int, object] | None = None
    in_turn: bool = False
    slots: int = 1


@dataclass(frozen=True)
class NodeClass:
    """`count` equal nodes, or equal parts of as many nodes. `per_leaf` of them hang under each leaf switch of type `leaf`.

    `slot` is which part of its nodes it is; the part in slot 0 is class `index - slot`.
    """

    index: int
    count: int
    gpus: int
    gpu: Gpu | None
    slowdown: float
    batch_size: int | None
    leaf: int
    per_leaf: int
    role: object
    is_worker: bool
    first_node: int
    slot: int = 0


@dataclass(frozen=True)
class Pair:
    """The flows from each node of one class to nodes of another under one relation (same leaf or not)."""

    receivers: int
    senders: int
    across: bool


class Fabric:
    """Links (names, capacities, concurrency curves) and node classes of one cluster under one layout."""

    def __init__(self, cluster: Cluster, layout: Layout | None = None, folded: bool = True) -> None:
        self.cluster = cluster
        self.layout = layout or Layout()
        self.link_names: list[str] = []
        self.capacities: list[float] = []
        self.curves: dict[int, tuple[tuple[float, float], ...]] = {}
        self.of: dict[tuple[str, int], int] = {}
        self.classes = _classes(cluster, self.layout, folded)
        overhead = cluster.network is not None and cluster.network.message_overhead > 0
        alike = len(self.classes) == 1 and self.classes[0].per_leaf == cluster.nodes and not overhead
        if self.layout.in_turn and not alike:
            self.classes = _classes(cluster, self.layout, folded=False)
        self.workers = np.array([c.index for c in self.classes if c.is_worker], dtype=np.int64)
        self.num_leaves = sum(c.count // c.per_leaf for c in _one_per_leaf(self.classes))
        for node_class in self.classes:
            self._add_node(node_class)
        if self.num_leaves > 1 and cluster.network is not None:
            self._add_leaves(cluster.network)

    def link(self, kind: str, index: int) -> int:
        """Return the id of a link of a node class (or leaf type), or -1 when it does not exist (no limit)."""
        return self.of.get((kind, index), -1)

    def class_of_node(self, node: int) -> int:
        """Return the index of the class that holds just this node (nodes with a role have one of their own)."""
        return next(c.index for c in self.classes if c.count == 1 and c.first_node == node)

    def pairs(self, sender: NodeClass, receiver: NodeClass) -> list[Pair]:
        """Return the relations between two classes; a node is never paired with itself."""
        own = 1 if sender.index == receiver.index else 0
        same_leaf = sender.leaf == receiver.leaf
        inside = (receiver.per_leaf - own) if same_leaf else 0
        outside = receiver.count - (receiver.per_leaf if same_leaf else 0)
        found = []
        if inside > 0:
            found.append(Pair(inside, sender.per_leaf - own, across=False))
        if outside > 0:
            back = sender.count - (sender.per_leaf if same_leaf else 0)
            found.append(Pair(outside, back, across=self.num_leaves > 1))
        return found

    def flow_uses(self, sender: NodeClass, receiver: NodeClass, pair: Pair) -> list[tuple[int, float]]:
        """Return (link, coefficient) of the folded flows sender -> receiver: ports, channels and leaf uplinks."""
        s, r = sender.index, receiver.index
        uses = [
            (self.link("nic_out", s), float(pair.receivers)),
            (self.link("nic_in", r), float(pair.senders)),
            (self.link("channel", s), float(pair.receivers)),
            (self.link("channel", r), float(pair.senders)),
        ]
        if pair.across:
            uses.append((self.link("leaf_up", sender.leaf), float(sender.per_leaf * pair.receivers)))
            uses.append((self.link("leaf_down", receiver.leaf), float(receiver.per_leaf * pair.senders)))
        return merge_uses(uses)

    @property
    def whole_nodes(self) -> tuple[NodeClass, ...]:
        """The classes that stand for nodes: of nodes that are cut into slots, the first slot."""
        return tuple(c for c in self.classes if c.slot == 0)

    def _add(self, kind: str, index: int, capacity: float | None, label: str) -> None:
        if capacity is None:
            return
        self.of[(kind, index)] = len(self.capacities)
        self.link_names.append(f"{kind} {label}")
        self.capacities.append(capacity)

    def _add_node(self, c: NodeClass) -> None:
        cluster, host, label = self.cluster, self.cluster.host, class_label(c)
        if c.is_worker:
            self._add("gpu", c.index, 1.0, label)
            lanes = cluster.pcie_bandwidth(c.gpu)
            self._add("pcie_to_host", c.index, lanes, label)
            self._add("pcie_to_gpu", c.index, lanes, label)
            if cluster.node == "pcie-tree" and cluster.gpus_per_node > 1:
                self._add("switch_to_host", c.index, lanes, label)
                self._add("switch_to_gpu", c.index, lanes, label)
                self._add("socket", c.index, cluster.socket_bandwidth, label)
            if cluster.gpus_per_node > 1:
                self._add("peer", c.index, cluster.peer_bandwidth(c.gpu), label)
        if c.slot > 0:
            for kind in _OF_THE_NODE:
                if (kind, c.index - c.slot) in self.of:
                    self.of[(kind, c.index)] = self.of[(kind, c.index - c.slot)]
            return
        self._add("host_memory", c.index, host.memory_bandwidth, label)
        self._add("host_copy", c.index, host.copy_bandwidth, label)
        self._add("host_sum", c.index, host.reduce_bandwidth, label)
        if cluster.network is not None:
            self._add_port(c, cluster.network, label)

    def _add_port(self, c: NodeClass, network: Network, label: str) -> None:
        own = _group_of(self.cluster, c.first_node).bandwidth if c.is_worker else None
        goodput = (own if own is not None else network.bandwidth) * network.efficiency
        self._add("nic_out", c.index, goodput, label)
        self._add("nic_in", c.index, goodput, label)
        if network.incast:
            self.curves[self.link("nic_in", c.index)] = tuple((k, share * goodput) for k, share in network.incast)
        host = self.cluster.host
        self._add("channel", c.index, host.channel_bandwidth, label)
        if host.channel_bandwidth is not None and host.channel_sharing:
            whole = host.channel_bandwidth
            self.curves[self.link("channel", c.index)] = tuple((k, share * whole) for k, share in host.channel_sharing)

    def _add_leaves(self, network: Network) -> None:
        if network.oversubscription <= 1.0:
            return
        per_leaf = network.nodes_per_leaf or leaf_size(self.cluster, self.layout)
        uplink = per_leaf * network.goodput / network.oversubscription
        for leaf in sorted({c.leaf for c in self.classes}):
            self._add("leaf_up", leaf, uplink, f"leaf type {leaf}")
            self._add("leaf_down", leaf, uplink, f"leaf type {leaf}")


#: links that the slots of a node share
_OF_THE_NODE = ("host_memory", "host_copy", "host_sum", "nic_out", "nic_in", "channel")


def class_label(c: NodeClass) -> str:
    """Name the nodes of a class for reports: 'node 3', 'nodes 0.. (16)', 'server 2', 'node 0 part 1'."""
    kind = "node" if c.is_worker else "server"
    part = f" part {c.slot}" if c.slot else ""
    return f"{kind} {c.first_node}{part}" if c.count == 1 else f"{kind}s {c.first_node}..{part} ({c.count} alike)"


def merge_uses(uses: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Add up coefficients of the same link and drop links that do not exist (-1)."""
    total: dict[int, float] = {}
    for link, coefficient in uses:
        if link >= 0 and coefficient > 0:
            total[link] = total.get(link, 0.0) + coefficient
    return list(total.items())


def leaf_size(cluster: Cluster, layout: Layout) -> int:
    """Return nodes under one leaf switch: as given, else half of all nodes (two leaves)."""
    network, total = cluster.network, cluster.nodes + layout.extra_nodes
    if network is None or network.oversubscription <= 1.0:
        return total
    return network.nodes_per_leaf or -(-total // 2)


def _group_of(cluster: Cluster, node: int) -> NodeGroup:
    first = 0
    for group in cluster.groups:
        if node < first + group.nodes:
            return group
        first += group.nodes
    return NodeGroup(nodes=cluster.nodes)


def _classes(cluster: Cluster, layout: Layout, folded: bool) -> tuple[NodeClass, ...]:
    runs = _split_runs(cluster, layout, folded)
    leaves = _leaves(runs, leaf_size(cluster, layout))
    found: dict[tuple[object, ...], NodeClass] = {}
    types: dict[tuple[object, ...], int] = {}
    for num_leaves, composition, first in leaves:
        signature = tuple((key, count) for key, count, _ in composition)
        kind = types.setdefault(signature, len(types))
        for key, count, offset in composition:
            worker, group, role = key[0], key[1], key[2]
            identity = (kind, key)
            if identity in found:
                old = found[identity]
                found[identity] = replace(old, count=old.count + num_leaves * count)
                continue
            found[identity] = NodeClass(
                index=len(found), count=num_leaves * count, gpus=cluster.gpus_per_node if worker else 0,
                gpu=group.gpu, slowdown=group.slowdown, batch_size=group.batch_size, leaf=kind, per_leaf=count,
                role=role, is_worker=worker, first_node=first + offset,
            )  # fmt: skip
    classes = [replace(c, slot=slot) for c in found.values() for slot in range(layout.slots if c.is_worker else 1)]
    gpus = cluster.gpus_per_node // layout.slots
    return tuple(replace(c, index=i, gpus=gpus if c.is_worker else 0) for i, c in enumerate(classes))


Key = tuple[bool, NodeGroup, object]


def _split_runs(cluster: Cluster, layout: Layout, folded: bool) -> list[tuple[int, Key]]:
    """Runs (count, key) in node order, cut where a role begins or, unfolded, at every node."""
    runs: list[tuple[int, Key]] = []
    roles = dict(layout.roles or {})
    first = 0
    for group in [*cluster.runs(), NodeGroup(nodes=layout.extra_nodes)]:
        worker = first < cluster.nodes
        key_group = replace(group, nodes=0, gpu=group.gpu if worker else None)
        if not folded:
            runs += [(1, (worker, key_group, (first + i, roles.get(first + i)))) for i in range(group.nodes)]
        else:
            last, position = first + group.nodes, first
            for node in sorted(n for n in roles if first <= n < last):
                if node > position:
                    runs.append((node - position, (worker, key_group, None)))
                runs.append((1, (worker, key_group, roles[node])))
                position = node + 1
            if last > position:
                runs.append((last - position, (worker, key_group, None)))
        first += group.nodes
    return runs


def _leaves(runs: list[tuple[int, Key]], size: int) -> list[tuple[int, list[tuple[Key, int, int]], int]]:
    """Cut runs into leaves of `size` nodes: (number of equal leaves, [(key, count, offset)], first node)."""
    if size < 1:
        raise InputError(f"nodes_per_leaf={size} must be at least 1")
    done: list[tuple[int, list[tuple[Key, int, int]], int]] = []
    current: list[tuple[Key, int, int]] = []
    filled, first = 0, 0
    for count, key in runs:
        while count:
            if filled == 0 and count >= size:  # whole leaves of this one kind, however many
                num = count // size
                done.append((num, [(key, size, 0)], first))
                first, count = first + num * size, count - num * size
                continue
            part = min(count, size - filled)
            current = _joined(current, key, part, filled)
            filled, count = filled + part, count - part
            if filled == size:
                done.append((1, current, first))
                first, filled, current = first + size, 0, []
    if filled:
        done.append((1, current, first))
    return done


def _joined(row: list[tuple[Key, int, int]], key: Key, count: int, offset: int) -> list[tuple[Key, int, int]]:
    for i, (other, n, at) in enumerate(row):
        if other == key:
            return [*row[:i], (key, n + count, at), *row[i + 1 :]]
    return [*row, (key, count, offset)]


def _one_per_leaf(classes: tuple[NodeClass, ...]) -> list[NodeClass]:
    seen: dict[int, NodeClass] = {}
    for c in classes:
        seen.setdefault(c.leaf, c)
    return list(seen.values())
