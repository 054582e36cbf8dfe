"""Top-k, gTop-k and ASC-WFBP against the closed forms in the code of Shi, Chu and others."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import poseidon_sim as ps

from .oracle import BANDWIDTH, LATENCY, cluster, network, ring, step

S = 2.19e-10


# x = 1e6 parameters, density 0.001: k = 1000 values and places, 8 kB. Selecting takes s x log2(x) = 4.36 ms. A ring all-gather
# on P = 4 moves 3 x 8 kB in 3 latencies; gTop-k's tree has 2 log2(P) = 4 hops of 8 kB.
@settings(max_examples=25, deadline=None)
@given(thousands=st.integers(1, 3000), nodes=st.sampled_from([2, 4, 8, 16]), density=st.sampled_from([0.001, 0.01, 0.25]))
def test_a_sparse_step_is_compute_selection_and_the_exchange_of_values_and_places(thousands: int, nodes: int, density: float) -> None:
    count = 1000 * thousands
    work = network([4.0 * count], [3e-3], [5e-3])
    wire = 8.0 * math.ceil(density * count)
    before = 8e-3 + S * count * math.log2(count)
    gathered = (nodes - 1) * (LATENCY + wire / BANDWIDTH)
    hops = 2 * math.log2(nodes) * (LATENCY + wire / BANDWIDTH)
    for aggregation, seconds in (("all-gather", gathered), ("tree", hops)):
        found = step(work, cluster(nodes), ps.TopK(density=density, aggregation=aggregation, selection_time=S))
        assert found == pytest.approx(before + seconds, rel=1e-9)


# With host staging the dense gradient (4 MB) crosses PCIe twice (8 ms at 1 GB/s) and the host unpacks into it once (40 ms at 0.1 GB/s).
def test_on_the_host_the_dense_gradient_is_copied_and_passed_over() -> None:
    work = network([4e6], [3e-3], [5e-3])
    direct, host = ps.TopK(aggregation="tree"), ps.TopK(aggregation="tree", staging="host")
    where = cluster(4, pcie=1e9, host=ps.Host(reduce_bandwidth=1e8))
    assert step(work, where, host) - step(work, where, direct) == pytest.approx(48e-3, rel=1e-9)


def test_a_density_that_sends_more_than_the_dense_gradient_is_warned_of() -> None:
    run = ps.simulate(network([4e6], [3e-3], [5e-3]), cluster(4), ps.TopK(density=0.6), batch_size=1)
    assert any("more bytes" in text for text in run.warnings)


def merged(backward: list[float], sizes: list[float], startup: float, per_byte: float) -> list[int]:
    """MG-WFBP's rule: a gradient waits for the next when that is there before its own message has begun, or within the start-up."""
    groups, ready, free, held, count = [], 0.0, 0.0, 0.0, 0
    for i, (compute, size) in enumerate(zip(backward, sizes, strict=True)):
        ready, held, count = ready + compute, held + size, count + 1
        start = max(ready, free)
        end = start + startup + per_byte * held
        following = ready + backward[i + 1] if i + 1 < len(sizes) else math.inf
        if not (following < end and following - start < startup):
            groups.append(count)
            held, count, free = 0.0, 0, end
    return groups


# Two equal messages, both ready when backward of both is over at once (the first layer's backward takes no time to speak of):
# alone a message takes a + b M with b = 1 / (0.75 x rate); two at a time a + 1.5 b M each, the paper's figure.
def test_two_streams_at_once_take_half_as_long_again_each() -> None:
    work = network([4e6, 4e6], [1e-3, 1e-3], [1e-9, 1e-3])
    settings_ = {"startup_time": 0.0, "byte_time": 1e-8}
    alone = step(work, cluster(2), ps.AscWfbp(at_once=1, **settings_)) - 3e-3
    both = step(work, cluster(2), ps.AscWfbp(at_once=2, **settings_)) - 3e-3
    per_message = alone / 2
    latency = 2 * LATENCY
    assert per_message == pytest.approx(latency + 4e6 / BANDWIDTH / 0.75, rel=1e-6)
    assert both == pytest.approx(latency + 1.5 * (per_message - latency), rel=1e-6)


# One stream that fills the link is MG-WFBP.
@settings(max_examples=15, deadline=None)
@given(rows=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 20)), min_size=1, max_size=6), nodes=st.integers(2, 6))
def test_one_stream_at_full_rate_is_the_merged_recursion(rows: list[tuple[int, int]], nodes: int) -> None:
    sizes, backward = [4e4 * s for s, _ in rows], [1e-3 * b for _, b in rows]
    work = network(sizes, [1e-3] * len(rows), backward)
    a, b = 2 * (nodes - 1) * LATENCY, 2 * (nodes - 1) / nodes / BANDWIDTH
    end, ready, first = 0.0, 1e-3 * len(rows), 0
    back_sizes, back_times = sizes[::-1], backward[::-1]
    for count in merged(back_times, back_sizes, a, b):
        ready += sum(back_times[first : first + count])
        end = max(end, ready) + ring(sum(back_sizes[first : first + count]), nodes)
        first += count
    strategy = ps.AscWfbp(at_once=1, stream_share=1.0, startup_time=a, byte_time=b)
    assert step(work, cluster(nodes), strategy) == pytest.approx(end, rel=1e-9)


def test_a_recording_made_for_one_rate_is_right_for_another() -> None:
    work = network([4e6, 4e6], [1e-3, 1e-3], [1e-3, 1e-3])
    strategy = ps.AscWfbp(startup_time=0.0, byte_time=1e-8)
    first = step(work, cluster(3), strategy)
    assert step(work, cluster(3), strategy) == first
    half = ps.Cluster(nodes=3, network=ps.Network(BANDWIDTH / 2, latency=LATENCY))
    assert step(work, half, strategy) > 1.5 * first
