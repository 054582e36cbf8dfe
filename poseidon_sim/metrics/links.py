"""What every link carried, how busy it was, and what nodes sent and received."""

from __future__ import annotations

from dataclasses import dataclass

from poseidon_sim.cluster.build import class_label
from poseidon_sim.trace import Trace

#: what people call each kind of link
LINK_WORDS = {
    "nic_out": "node port out",
    "nic_in": "node port in",
    "channel": "communication software of a node",
    "pcie_to_host": "PCIe to host",
    "pcie_to_gpu": "PCIe to GPU",
    "switch_to_host": "PCIe switch to host",
    "switch_to_gpu": "PCIe switch to GPU",
    "socket": "bus between sockets",
    "peer": "links between GPUs of a node",
    "host_memory": "host memory",
    "host_copy": "host copies",
    "host_sum": "host summation",
    "leaf_up": "leaf uplink",
    "leaf_down": "leaf downlink",
    "gpu": "GPU",
}


@dataclass(frozen=True)
class LinkUse:
    """One link (of one node of a class, or of one leaf) per iteration.

    `amount` is bytes (seconds for a GPU); `utilisation` is amount / (capacity x step time), a share of 1.
    """

    kind: str
    where: str
    amount: float
    capacity: float
    utilisation: float

    @property
    def name(self) -> str:
        """What people call it.

        >>> LinkUse("nic_in", "node 3", 1e6, 1e9, 0.5).name
        'node port in, node 3'
        """
        return f"{link_words(self.kind)}, {self.where}"


@dataclass(frozen=True)
class NodeTraffic:
    """Bytes that each of `nodes` equal nodes sends and receives over the network in one iteration."""

    where: str
    nodes: int
    sent: float
    received: float


def link_words(kind: str) -> str:
    """Return what people call a kind of link; an unknown kind goes by its own name.

    >>> link_words("leaf_up")
    'leaf uplink'
    """
    return LINK_WORDS.get(kind, kind.replace("_", " "))


def link_uses(trace: Trace, step_time: float) -> list[LinkUse]:
    """Return every link's use in one iteration, busiest first; `step_time` is in seconds."""
    fabric, amounts = trace.fabric, trace.link_amounts()
    found = []
    first = {link: at for at, link in reversed(fabric.of.items())}  # slots of a node share links
    for link, (kind, index) in sorted(first.items()):
        where = f"leaf type {index}" if kind.startswith("leaf") else class_label(fabric.classes[index])
        capacity = fabric.capacities[link]
        share = amounts[link] / (capacity * step_time) if step_time > 0 else 0.0
        found.append(LinkUse(kind, where, float(amounts[link]), capacity, float(share)))
    return sorted(found, key=lambda use: (-use.utilisation, use.kind, use.where))


def node_traffic(trace: Trace) -> list[NodeTraffic]:
    """Return the bytes that nodes of each class send and receive in one iteration, in order of classes."""
    fabric, amounts = trace.fabric, trace.link_amounts()

    def carried(kind: str, index: int) -> float:
        link = fabric.link(kind, index)
        return float(amounts[link]) if link >= 0 else 0.0

    return [
        NodeTraffic(class_label(c), c.count, carried("nic_out", c.index), carried("nic_in", c.index))
        for c in fabric.whole_nodes
    ]


def bytes_sent(trace: Trace) -> tuple[float, float]:
    """Return bytes one node sends over the network in one iteration: (mean over all nodes, busiest node)."""
    return _mean_and_most([(t.nodes, t.sent) for t in node_traffic(trace)])


def bytes_received(trace: Trace) -> tuple[float, float]:
    """Return bytes one node receives in one iteration: (mean over all nodes, busiest node)."""
    return _mean_and_most([(t.nodes, t.received) for t in node_traffic(trace)])


def _mean_and_most(rows: list[tuple[int, float]]) -> tuple[float, float]:
    return sum(n * amount for n, amount in rows) / sum(n for n, _ in rows), max(amount for _, amount in rows)
