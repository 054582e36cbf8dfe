"""What a job runs on: parts, the cluster made of them, and its links and node classes."""

from poseidon_sim.cluster.build import Fabric, Layout, NodeClass
from poseidon_sim.cluster.parts import Gpu, Host, Input, Link, Network, NodeGroup
from poseidon_sim.cluster.topology import NODE_TEMPLATES, Cluster

__all__ = [
    "NODE_TEMPLATES", "Cluster", "Fabric", "Gpu", "Host", "Input", "Layout", "Link", "Network", "NodeClass", "NodeGroup",
]  # fmt: skip
