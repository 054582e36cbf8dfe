"""Theano-MPI, ChainerMN, PowerAI DDL and GradientFlow: a whole iteration against the closed form or recursion of its paper.

Single-GPU nodes under one switch, no rates of GPU memory, so that packing, converting and summing on the GPU cost nothing; one
fp32 tensor a layer. F and B are the sums of forward and backward seconds, W the bytes of all tensors.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import poseidon_sim as ps

from .oracle import BANDWIDTH, LATENCY, cluster, network, ring, step

CALL = 4e-4
rows = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=6)


def columns(drawn: list[tuple[int, int, int]]) -> tuple[list[float], list[float], list[float]]:
    """Return (bytes, forward, backward) by layer; sizes divide by 2, 4 and 8 and stay whole elements in half precision."""
    return [6.4e4 * s for s, _, _ in drawn], [1e-3 * f for _, f, _ in drawn], [1e-3 * b for _, _, b in drawn]


# Ma et al., section 3: nothing overlaps, one call per tensor. An all-to-all of W/k to each of k - 1 peers and an all-gather of W/k move
# what NCCL's ring does, 2 (k-1)/k W, in as many rounds; asa16 and nccl16 move half.
@settings(max_examples=25, deadline=None)
@given(drawn=rows, workers=st.sampled_from([2, 4, 8]), exchange=st.sampled_from(["nccl32", "nccl16", "asa32", "asa16"]))
def test_theano_mpi_exchanges_tensor_after_tensor_when_all_is_computed(drawn: list[tuple[int, int, int]], workers: int, exchange: str) -> None:
    sizes, forward, backward = columns(drawn)
    shrink = 0.5 if exchange.endswith("16") else 1.0
    expected = sum(forward) + sum(backward) + sum(CALL + ring(shrink * size, workers) for size in sizes)
    found = step(network(sizes, forward, backward), cluster(workers), ps.TheanoMpi(exchange=exchange, call_time=CALL))
    assert found == pytest.approx(expected, rel=1e-9)


# A message that MPI copies piece by piece through the host goes at the slower of the two rates.
@pytest.mark.parametrize(("exchange", "share"), [("asa32", 0.4), ("asa32", 3.0), ("asa16", 0.4), ("nccl32", 0.4)])
def test_cuda_aware_mpi_passes_a_message_at_its_own_rate_where_that_is_lower(exchange: str, share: float) -> None:
    strategy = ps.TheanoMpi(exchange=exchange, message_bandwidth=share * BANDWIDTH)
    found = step(network([1.6e6], [2e-3], [3e-3]), cluster(4), strategy)
    wire = 1.6e6 * (0.5 if exchange == "asa16" else 1.0)
    rate = BANDWIDTH * (min(share, 1.0) if exchange.startswith("asa") else 1.0)
    assert found == pytest.approx(5e-3 + 6 * LATENCY + 2 * 3 / 4 * wire / rate, rel=1e-9)


# copper, k = 8, as its code is written: 5 serial steps of the whole tensor (up, up, swap, down, down); 3 for k = 4, 1 for k = 2.
@pytest.mark.parametrize(("workers", "steps"), [(2, 1), (4, 3), (8, 5)])
def test_the_written_out_tree_sends_the_whole_tensor_in_serial_steps(workers: int, steps: int) -> None:
    found = step(network([1e6], [2e-3], [3e-3]), cluster(workers), ps.TheanoMpi(exchange="copper"))
    assert found == pytest.approx(5e-3 + steps * (LATENCY + 1e6 / BANDWIDTH), rel=1e-9)


# Akiba et al.: one packed buffer after backward. The flat ring is 2 (n-1) rounds; the leaders' two all-to-alls are n - 1
# pairwise exchanges of W/n each (Thakur et al. 2005). With double buffering the sum runs beside the next iteration: the longer of the two counts.
@settings(max_examples=20, deadline=None)
@given(drawn=rows, nodes=st.integers(2, 7))
def test_chainermn_sums_one_packed_buffer_after_backward(drawn: list[tuple[int, int, int]], nodes: int) -> None:
    sizes, forward, backward = columns(drawn)
    workload, compute = network(sizes, forward, backward), sum(forward) + sum(backward)
    assert step(workload, cluster(nodes), ps.ChainerMn(communicator="pure-nccl")) == pytest.approx(compute + ring(sum(sizes), nodes), rel=1e-9)
    exchange = 2 * (nodes - 1) * (LATENCY + sum(sizes) / nodes / BANDWIDTH)
    assert step(workload, cluster(nodes), ps.ChainerMn()) == pytest.approx(compute + exchange, rel=1e-9)


@settings(max_examples=20, deadline=None)
@given(drawn=rows, nodes=st.integers(2, 7))
def test_double_buffering_takes_the_longer_of_compute_and_sum(drawn: list[tuple[int, int, int]], nodes: int) -> None:
    sizes, forward, backward = columns(drawn)
    found = step(network(sizes, forward, backward), cluster(nodes), ps.ChainerMn(communicator="pure-nccl", double_buffering=True))
    assert found == pytest.approx(max(sum(forward) + sum(backward), ring(sum(sizes), nodes)), rel=1e-6)


# Cho et al.: reduce-scatter along each dimension on ever smaller parts, gathered back. On a grid of X x Y hosts of one GPU the ports carry
# 2 (X-1)/X W and then 2 (Y-1)/Y W/X: together 2 (XY-1)/XY W, as a ring over all, in 2 (X-1 + Y-1) rounds in place of 2 (XY-1).
@pytest.mark.parametrize("grid", [(2, 2), (2, 4), (4, 2), (3, 2)])
def test_a_grid_moves_what_a_ring_does_in_fewer_rounds(grid: tuple[int, int]) -> None:
    x, y = grid
    size = 1.2e6
    found = step(network([size], [2e-3], [3e-3]), cluster(x * y), ps.Ddl(grid=f"{x}x{y}", algorithms="ring"))
    moved = 2 * (x * y - 1) / (x * y) * size / BANDWIDTH
    assert found == pytest.approx(5e-3 + 2 * (x - 1 + y - 1) * LATENCY + moved, rel=1e-9)


# Halving is log2 x rounds in place of x - 1: exploring takes it where it can.
def test_exploring_takes_the_cheapest_algorithm_of_each_dimension() -> None:
    found = step(network([1.2e6], [2e-3], [3e-3]), cluster(8), ps.Ddl(grid="8x1"))
    assert found == pytest.approx(5e-3 + 2 * 3 * LATENCY + 2 * 7 / 8 * 1.2e6 / BANDWIDTH, rel=1e-9)


# Sun et al.: gradients in half precision, in the order of backward in one pool; a span is all-reduced when `lazy_size` bytes of it are
# finished, one after the other on one channel.
@settings(max_examples=30, deadline=None)
@given(drawn=rows, nodes=st.integers(2, 7), lazy=st.sampled_from([0.0, 2e5, 1e6, 1e9]))
def test_gradientflow_sends_spans_of_the_pool_as_they_fill(drawn: list[tuple[int, int, int]], nodes: int, lazy: float) -> None:
    sizes, forward, backward = columns(drawn)
    now, filled, end = sum(forward), 0.0, 0.0
    for i in reversed(range(len(sizes))):
        now += backward[i]
        filled += sizes[i] / 2
        if filled >= lazy or i == 0:
            end = max(end, now) + ring(filled, nodes)
            filled = 0.0
    found = step(network(sizes, forward, backward), cluster(nodes), ps.GradientFlow(lazy_size=lazy))
    assert found == pytest.approx(max(end, now), rel=1e-9)


# CSC: after backward the norms of all chunks (4 bytes each), then the chosen chunks, densely: 2 N (1 - sparsity) + 4 N / chunk bytes.
def test_sparse_communication_sums_norms_and_then_the_chosen_chunks() -> None:
    elements, chunk = 64_000, 1000
    found = step(network([4.0 * elements], [2e-3], [3e-3]), cluster(4), ps.GradientFlow(sparsity=0.75, chunk_elements=chunk))
    assert found == pytest.approx(5e-3 + ring(4 * elements / chunk, 4) + ring(2 * elements * 0.25, 4), rel=1e-9)
