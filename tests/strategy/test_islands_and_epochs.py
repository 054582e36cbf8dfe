"""Decentralized diffusion and TPA-SCD: what each node does alone, and one aggregation a round, by hand."""

from __future__ import annotations

import math

import pytest

import poseidon_sim as ps

from .oracle import BANDWIDTH, LATENCY, cluster, network, step

WORK = network([1e6, 3e6], [1e-3, 2e-3], [2e-3, 3e-3])


# Nothing crosses between nodes, so the step is one node's whatever the link, the number of nodes, or a straggler elsewhere.
@pytest.mark.parametrize("gpus", [1, 4])
def test_the_step_of_an_expert_does_not_depend_on_the_network(gpus: int) -> None:
    steps = {
        step(WORK, ps.Cluster(nodes=n, gpus_per_node=gpus, pcie=1e9, network=ps.Network(rate, latency=delay)), ps.DecentralizedDiffusion())
        for n, rate, delay in ((1, 1e9, 0.0), (2, 1e9, 0.0), (8, 1e9, 0.0), (8, 1e6, 1.0), (64, 1e3, 0.0))
    }
    assert len(steps) == 1


# Inside a node of g GPUs a layer's sum is a ring over the lanes: 2 (g - 1) / g of its bytes at 1 GB/s, after its own backward.
# Layer 1 (3 MB) is ready at 6 ms and takes 4.5 ms on 4 GPUs, to 10.5 ms; layer 0 (1 MB) is ready at 8 ms, waits, takes 1.5 ms.
def test_the_gpus_of_a_node_sum_layer_by_layer_beside_backward() -> None:
    where = ps.Cluster(nodes=3, gpus_per_node=4, pcie=1e9, network=ps.Network(1e9))
    assert step(WORK, where, ps.DecentralizedDiffusion()) == pytest.approx(12e-3, rel=1e-9)
    assert step(WORK, where, ps.DecentralizedDiffusion(overlap=False)) == pytest.approx(14e-3, rel=1e-9)


# One of 4 experts at half speed: it takes 8 / 2 as long itself and nobody else notices; the job's rate is the sum of the four.
def test_a_slow_expert_slows_itself_alone() -> None:
    where = cluster(4, gpus_per_node=2, groups=(ps.NodeGroup(1, slowdown=2.0),))
    assert step(WORK, where, ps.DecentralizedDiffusion()) == pytest.approx(4 / (3 / 8e-3 + 1 / 16e-3), rel=1e-9)


# Shared vector of 4 MB, epoch 8 ms, PCIe 1 GB/s: local epochs, a copy out (4 ms), log2(P) hops up, one pass on the host, log2(P)
# hops down, a copy in.
@pytest.mark.parametrize("nodes", [2, 3, 8])
@pytest.mark.parametrize("epochs", [1, 3])
def test_a_round_of_tpa_scd_is_its_epochs_and_one_aggregation(nodes: int, epochs: int) -> None:
    where = cluster(nodes, pcie=1e9, host=ps.Host(reduce_bandwidth=4e8))
    hops = math.ceil(math.log2(nodes)) * (LATENCY + 4e6 / BANDWIDTH)
    expected = epochs * 8e-3 + 2 * 4e-3 + 2 * hops + 10e-3
    assert step(WORK, where, ps.TpaScd(local_epochs=epochs)) == pytest.approx(expected, rel=1e-9)
