"""Lower bounds that hold for any schedule; shares no code with plan or engine."""

from __future__ import annotations

from poseidon_sim.cluster import Cluster


def step_bound(compute_time: float, network_bytes: float, cluster: Cluster, extra_nodes: int = 0) -> float:
    """Return seconds that no step can beat: the GPU's compute, or a node's share of the traffic over its port.

    Parameters
    ----------
    compute_time : seconds of forward and backward on the slowest worker.
    network_bytes : bytes that all nodes together send in one step.
    extra_nodes : server nodes beside the workers.

    >>> from poseidon_sim.cluster import Network
    >>> step_bound(1.0, 8e9, Cluster(nodes=4, network=Network(bandwidth=1e9)))
    2.0
    """
    if cluster.network is None or network_bytes <= 0:
        return compute_time
    fastest = max([cluster.network.bandwidth, *(g.bandwidth for g in cluster.groups if g.bandwidth)])
    ports = (cluster.nodes + extra_nodes) * fastest * cluster.network.efficiency
    return max(compute_time, network_bytes / ports)
