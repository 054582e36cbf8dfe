"""FRNN's step against the sum of its parts, added up by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import poseidon_sim as ps

from .oracle import BANDWIDTH, LATENCY, cluster, network, ring, step


def halving_doubling(num_bytes: float, nodes: int) -> float:
    """Rabenseifner: 2 log2(p) rounds, 2 (1 - 1/p) of the buffer; p is a power of two here."""
    return 2 * math.log2(nodes) * LATENCY + 2 * (1 - 1 / nodes) * num_bytes / BANDWIDTH


# Tensors of 1 and 2 MB on 4 nodes, PCIe 1 GB/s: 4 crossings of 3 MB = 12 ms, compute 4 ms, one all-reduce per tensor and two of
# 8 bytes, all in a row. With fp16 the wire carries half of the tensors; the scalars stay.
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("nodes", [2, 4, 16])
def test_a_step_is_four_crossings_compute_and_an_all_reduce_per_tensor_in_a_row(nodes: int, half: bool) -> None:
    work = network([1e6, 2e6], [1e-3] * 2, [1e-3] * 2)
    sums = sum(halving_doubling(s, nodes) for s in [0.5e6, 1e6] if half) or sum(halving_doubling(s, nodes) for s in (1e6, 2e6))
    expected = 4 * 3e6 / 1e9 + 4e-3 + sums + 2 * halving_doubling(8.0, nodes)
    assert step(work, cluster(nodes, pcie=1e9), ps.Frnn(half=half)) == pytest.approx(expected, rel=1e-9)


# A host that adds R bytes/s makes one pass over the weights of its g replicas for the difference and one for the optimizer;
# fp16 makes two more, there and back. The scalars' bytes are seen too: everything else is free here.
@settings(max_examples=15, deadline=None)
@given(size=st.integers(1, 50), gpus=st.integers(1, 4), half=st.booleans())
def test_the_host_passes_over_the_weights_of_every_replica(size: int, gpus: int, half: bool) -> None:
    work = network([4e4 * size], [1e-3], [1e-3])
    where = cluster(3, gpus_per_node=gpus, host=ps.Host(reduce_bandwidth=1e8))
    free = cluster(3, gpus_per_node=gpus)
    strategy = ps.Frnn(algorithm="ring", half=half)
    expected = step(work, free, strategy) + (4 if half else 2) * gpus * 4e4 * size / 1e8
    assert step(work, where, strategy) == pytest.approx(expected, rel=1e-9)


def test_with_a_ring_every_tensor_takes_patarasuks_time() -> None:
    work = network([1e6, 2e6, 4e4], [1e-3] * 3, [1e-3] * 3)
    expected = 6e-3 + sum(ring(s, 5) for s in (1e6, 2e6, 4e4, 8.0, 8.0))
    assert step(work, cluster(5), ps.Frnn(algorithm="ring")) == pytest.approx(expected, rel=1e-9)


def test_one_gpu_still_crosses_pcie_four_times() -> None:
    work = network([1e6], [1e-3], [1e-3])
    assert step(work, ps.Cluster(nodes=1, pcie=1e9), ps.Frnn()) == pytest.approx(2e-3 + 4e-3, rel=1e-9)
