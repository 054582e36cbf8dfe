"""What every link carried, how busy it was, and what nodes sent."""

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


def link_uses(trace: Trace, step_time: float) -> list[LinkUse]:
    """Return every link's use in one iteration, busiest first."""
    fabric, amounts = trace.fabric, trace.link_amounts()
    found = []
    for (kind, index), link in fabric.of.items():
        where = f"leaf type {index}" if kind.startswith("leaf") else class_label(fabric.classes[index])
        capacity = fabric.capacities[link]
        share = amounts[link] / (capacity * step_time) if step_time > 0 else 0.0
        found.append(LinkUse(kind, where, float(amounts[link]), capacity, float(share)))
    return sorted(found, key=lambda use: (-use.utilisation, use.kind, use.where))


def bytes_sent(trace: Trace) -> tuple[float, float]:
    """Return bytes one node sends over the network in one iteration: (mean over all nodes, busiest node)."""
    fabric, amounts = trace.fabric, trace.link_amounts()
    counts = [c.count for c in fabric.classes]
    sent = [float(amounts[link]) if (link := fabric.link("nic_out", c.index)) >= 0 else 0.0 for c in fabric.classes]
    return sum(n * s for n, s in zip(counts, sent, strict=True)) / sum(counts), max(sent)
