"""The cluster a person describes: nodes, GPUs, what joins GPUs inside a node, and the network between nodes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from poseidon_sim.cluster.parts import Gpu, Host, Network, NodeGroup
from poseidon_sim.cluster.spread import expected_slowest
from poseidon_sim.errors import InputError, unknown_name

NODE_TEMPLATES: dict[str, str] = {
    "pcie": "every GPU has its own PCIe lanes to the host; GPUs of a node talk over PCIe",
    "pcie-tree": "two sockets, one PCIe switch each; the GPUs of a socket share its uplink, sockets share one bus",
    "nvlink-pairs": "GPUs joined in pairs by NVLink, pairs over PCIe",
    "nvlink-ring": "NVLink rings through all GPUs of a node",
    "nvswitch": "every GPU reaches every other GPU of its node at the full NVLink rate",
}


@dataclass(frozen=True)
class Cluster:
    """Equal nodes (or groups of equal nodes), each with equal GPUs, joined by one network.

    Parameters
    ----------
    nodes : worker nodes.
    gpus_per_node : GPUs in each.
    gpu : the GPU, or None when every layer has measured times.
    network : the network, needed as soon as there is more than one node.
    node : node template, a key of `NODE_TEMPLATES`.
    pcie : achievable bytes/s between one GPU and its host in one direction; None falls back to the GPU's own
        figure, and when that is None too, copies cost nothing.
    peer_latency : seconds per message between GPUs of one node.
    socket_bandwidth : bytes/s between the two sockets of a 'pcie-tree' node, one direction.
    host : what the node's CPU side does.
    groups : runs of nodes that differ from the default, in node order; the rest are default nodes.
    jitter : each node's compute is slowed by a factor drawn evenly from 1 +- jitter (seeded).
    gpu_spread : standard deviation of the speed of equal GPUs, as a share of their mean: compute keeps the pace of the slowest that
        can be expected among so many. None takes the catalog's for the GPU, and 0 when `jitter` says how nodes differ.

    Examples
    --------
    >>> from poseidon_sim.cluster import Cluster, Network
    >>> Cluster(nodes=4, network=Network(bandwidth=1.25e9)).num_gpus
    4
    """

    nodes: int
    gpus_per_node: int = 1
    gpu: Gpu | None = None
    network: Network | None = None
    node: str = "pcie"
    pcie: float | None = None
    peer_latency: float = 0.0
    socket_bandwidth: float | None = None
    host: Host = field(default_factory=Host)
    groups: tuple[NodeGroup, ...] = ()
    jitter: float = 0.0
    gpu_spread: float | None = None
    seed: int = 0
    price_per_node_hour: float | None = None
    name: str = ""

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.gpus_per_node < 1:
            raise InputError(f"nodes={self.nodes}, gpus_per_node={self.gpus_per_node}: both must be at least 1")
        if self.node not in NODE_TEMPLATES:
            raise unknown_name("node template", self.node, NODE_TEMPLATES)
        if self.nodes > 1 and self.network is None:
            raise InputError(f"nodes={self.nodes} but no network; give network={{bandwidth: 10 Gbit/s}}")
        named = sum(group.nodes for group in self.groups)
        if named > self.nodes:
            raise InputError(f"groups name {named} nodes but the cluster has nodes={self.nodes}; lower the groups")
        if not 0 <= self.jitter < 1:
            raise InputError(f"jitter={self.jitter} must be at least 0 and below 1 (a share of the compute time)")
        if not 0 <= (self.gpu_spread or 0.0) < 1:
            raise InputError(f"gpu_spread={self.gpu_spread} must be at least 0 and below 1 (a share of the compute time)")

    @property
    def num_gpus(self) -> int:
        """GPUs of all worker nodes."""
        return self.nodes * self.gpus_per_node

    def with_nodes(self, nodes: int) -> Cluster:
        """Return the same cluster with another number of nodes."""
        return replace(self, nodes=nodes)

    def spread_of(self, gpu: Gpu | None) -> float:
        """Standard deviation of the speed of GPUs of a kind, as a share of their mean: as given, else the catalog's."""
        if self.gpu_spread is not None:
            return self.gpu_spread
        return gpu.spread if gpu is not None and not self.jitter else 0.0

    def slowest(self, gpu: Gpu | None) -> float:
        """Return the compute time of the slowest of all GPUs that can be expected, over that of the mean one of its kind.

        >>> from poseidon_sim.cluster import Cluster, gpu
        >>> round(Cluster(nodes=1, gpus_per_node=8).slowest(gpu("v100-sxm2-16gb")), 4)
        1.0214
        """
        spread = self.spread_of(gpu)
        return 1.0 + spread * expected_slowest(self.num_gpus) if spread else 1.0

    def runs(self) -> tuple[NodeGroup, ...]:
        """Return the node groups that cover all nodes in order: defaults filled in, slowed by spread, jitter drawn."""
        named = sum(group.nodes for group in self.groups)
        groups = [*self.groups]
        if named < self.nodes:
            groups.append(NodeGroup(nodes=self.nodes - named))
        groups = [replace(g, gpu=g.gpu or self.gpu) for g in groups if g.nodes > 0]
        groups = [replace(g, slowdown=g.slowdown * self.slowest(g.gpu)) for g in groups]
        if not self.jitter:
            return tuple(groups)
        draws = np.random.default_rng(np.random.SeedSequence(self.seed)).uniform(-1.0, 1.0, self.nodes)
        each = [replace(g, nodes=1) for g in groups for _ in range(g.nodes)]
        return tuple(
            replace(g, slowdown=g.slowdown * (1.0 + self.jitter * float(x))) for g, x in zip(each, draws, strict=True)
        )

    def pcie_bandwidth(self, gpu: Gpu | None) -> float | None:
        """Bytes/s of one GPU's lanes in one direction, or None when copies are free."""
        return self.pcie or (gpu.pcie_bandwidth if gpu else None)

    def rails(self, gpu: Gpu | None, bandwidth: float | None = None) -> int:
        """How many GPUs of a node send to the network at a time: a port faster than one GPU's lanes is several NICs.

        Collective libraries open a ring per NIC, each leaving by another GPU. Only NVLink nodes, whose lanes are free for it.
        """
        lanes, port = self.pcie_bandwidth(gpu), bandwidth or (self.network.bandwidth if self.network else 0.0)
        if not lanes or not self.node.startswith("nv"):
            return 1
        return int(min(self.gpus_per_node, max(1, -(-port // lanes))))

    def peer_bandwidth(self, gpu: Gpu | None) -> float | None:
        """Bytes/s of one GPU towards the other GPUs of its node in one direction (NVLink, else PCIe)."""
        if self.node.startswith("nv") and gpu is not None and gpu.peer_bandwidth:
            return gpu.peer_bandwidth
        return self.pcie_bandwidth(gpu)
