"""Folded equals unfolded: over strategies, and over clusters of leaves, groups, stragglers, several GPUs, servers apart."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import poseidon_sim as ps
from poseidon_sim.laws import small_workload

STRATEGIES = [
    ps.ParameterServer(),
    ps.ParameterServer(servers=2),
    ps.ParameterServer(placement="whole"),
    ps.ParameterServer(aggregate=False),
    ps.ParameterServer(staleness=2),
    ps.ParameterServer(pair_size=20_000),
    ps.ParameterServer(overlap=False, copies="blocking"),
    ps.SufficientFactorBroadcast(),
    ps.SufficientFactorBroadcast(in_turn=True),
    ps.Poseidon(),
    ps.Adam(),
    ps.OneBit(),
    ps.AllReduce(),
    ps.AllReduce(fusion="all", overlap=False),
]

NETWORK = {"bandwidth": 50e6, "latency": 2e-5, "efficiency": 0.9}
CLUSTERS = {
    "flat": ps.Cluster(nodes=6, network=ps.Network(**NETWORK), pcie=5e8),
    "two full leaves": ps.Cluster(nodes=6, network=ps.Network(**NETWORK, oversubscription=2, nodes_per_leaf=3), pcie=5e8),
    "a short last leaf": ps.Cluster(nodes=7, network=ps.Network(**NETWORK, oversubscription=3, nodes_per_leaf=3), pcie=5e8),
    "a straggler": ps.Cluster(nodes=5, network=ps.Network(**NETWORK), pcie=5e8, groups=(ps.NodeGroup(1, slowdown=1.7),)),
    "two speeds of port": ps.Cluster(nodes=6, network=ps.Network(**NETWORK), groups=(ps.NodeGroup(2, bandwidth=20e6),)),
    "a straggler on leaves": ps.Cluster(
        nodes=6, network=ps.Network(**NETWORK, oversubscription=2, nodes_per_leaf=3), groups=(ps.NodeGroup(1, slowdown=1.3),)
    ),
    "four GPUs a node": ps.Cluster(nodes=3, gpus_per_node=4, network=ps.Network(**NETWORK), pcie=5e8),
    "a PCIe tree": ps.Cluster(
        nodes=3, gpus_per_node=4, node="pcie-tree", socket_bandwidth=4e8, network=ps.Network(**NETWORK), pcie=5e8
    ),
    "host staging": ps.Cluster(
        nodes=4, network=ps.Network(**NETWORK), pcie=5e8,
        host=ps.Host(copy_bandwidth=3e8, reduce_bandwidth=1e8, channel_bandwidth=6e7, memory_bandwidth=9e8),
    ),
    "input": ps.Cluster(
        nodes=4, gpus_per_node=2, network=ps.Network(**NETWORK), pcie=5e8, groups=(ps.NodeGroup(1, slowdown=1.3, batch_size=3),),
        host=ps.Host(input=ps.Input(read_bandwidth=5e7, sample_size=2e4, decode_time=1e-3, copied_size=4e4)),
    ),
    "input not loaded ahead": ps.Cluster(
        nodes=4, network=ps.Network(**NETWORK), pcie=5e8, host=ps.Host(input=ps.Input(decode_time=1e-3, copied_size=4e4, prefetch=False)),
    ),
    "incast": ps.Cluster(nodes=6, network=ps.Network(**NETWORK, incast=((1, 1.0), (5, 0.5))), pcie=5e8),
}  # fmt: skip


@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
@pytest.mark.parametrize("cluster", CLUSTERS.values(), ids=CLUSTERS.keys())
def test_folded_equals_unfolded_on_every_cluster(cluster: ps.Cluster, strategy: ps.Strategy) -> None:
    folded = ps.simulate(small_workload(), cluster, strategy, batch_size=4, check=True)
    nodes = ps.simulate(small_workload(), cluster, strategy, batch_size=4, detail="nodes")
    assert folded.step_time == pytest.approx(nodes.step_time, rel=1e-9)
    assert folded.metrics.communication_time == pytest.approx(nodes.metrics.communication_time, rel=1e-9)
    assert len(folded.trace.fabric.classes) <= len(nodes.trace.fabric.classes)


@settings(max_examples=40, deadline=None)
@given(
    nodes=st.integers(2, 9), leaf=st.integers(1, 5), over=st.sampled_from([1.0, 2.0, 3.5]),
    slow=st.lists(st.tuples(st.integers(1, 3), st.sampled_from([1.0, 1.2, 2.0])), max_size=3),
    strategy=st.sampled_from(STRATEGIES),
)  # fmt: skip
def test_folded_equals_unfolded_on_random_clusters(
    nodes: int, leaf: int, over: float, slow: list[tuple[int, float]], strategy: ps.Strategy
) -> None:
    groups, left = [], nodes
    for count, slowdown in slow:
        if left - count >= 0:
            groups.append(ps.NodeGroup(count, slowdown=slowdown))
            left -= count
    cluster = ps.Cluster(
        nodes=nodes, network=ps.Network(**NETWORK, oversubscription=over, nodes_per_leaf=leaf), pcie=5e8, groups=tuple(groups)
    )
    folded = ps.simulate(small_workload(), cluster, strategy, batch_size=4)
    unfolded = ps.simulate(small_workload(), cluster, strategy, batch_size=4, detail="nodes")
    assert folded.step_time == pytest.approx(unfolded.step_time, rel=1e-9)
