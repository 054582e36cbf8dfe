"""EASGD against closed forms of You, Buluc and Demmel (SC17) and a master played by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import poseidon_sim as ps

from .oracle import BANDWIDTH, LATENCY, cluster, network, step

sizes_and_times = st.tuples(st.integers(1, 40), st.integers(1, 60), st.integers(1, 60)).map(
    lambda row: (4e4 * row[0], 1e-3 * row[1], 1e-3 * row[2])
)


def service(weights: float, messages: int = 1, rate: float = BANDWIDTH, latency: float = LATENCY) -> float:
    """One turn at the master: the weights up and the centre down, a latency a message."""
    return 2 * (messages * latency + weights / rate)


# Round robin serves P workers one after the other: P (a + |W| b) each way, unless a worker alone computes for longer than all
# others are served: then its own c + s decides. Two workers, W = 0.4 MB, c = 3 ms: s = 2 (0.2 + 4) = 8.4 ms, T = 16.8 ms.
@settings(max_examples=25, deadline=None)
@given(row=sizes_and_times, nodes=st.integers(2, 7))
def test_round_robin_takes_all_turns_or_one_workers_compute_and_turn(row: tuple[float, float, float], nodes: int) -> None:
    weights, forward, backward = row
    turn = service(weights)
    found = step(network([weights], [forward], [backward]), cluster(nodes), ps.Easgd(order="round-robin"))
    assert found == pytest.approx(max(forward + backward + turn, nodes * turn), rel=1e-9)


# One machine with P GPUs: the host is the master and every turn is a copy out and a copy in over that GPU's lanes.
@pytest.mark.parametrize("gpus", [1, 2, 8])
def test_in_one_machine_the_host_serves_its_gpus_one_at_a_time(gpus: int) -> None:
    machine = ps.Cluster(nodes=1, gpus_per_node=gpus, pcie=1e9, peer_latency=1e-5)
    found = step(network([2e6, 3e6], [1e-3] * 2, [1e-3] * 2), machine, ps.Easgd(order="round-robin"))
    turn = service(5e6, rate=1e9, latency=1e-5)
    assert found == pytest.approx(max(4e-3 + turn, gpus * turn), rel=1e-12)


# Layer by layer each of L messages pays its latency, each way; packed they pay one. The sum at the master costs W / R once.
@pytest.mark.parametrize("nodes", [2, 5])
@pytest.mark.parametrize("rate", [None, 3e8])
def test_a_message_per_layer_costs_a_latency_per_layer(nodes: int, rate: float | None) -> None:
    work = network([1e5, 2e5, 3e5], [1e-4] * 3, [1e-4] * 3)
    where = cluster(nodes, host=ps.Host(reduce_bandwidth=rate))
    summing = 6e5 / rate if rate else 0.0
    for message, count in (("single", 1), ("per-layer", 3)):
        found = step(work, where, ps.Easgd(order="round-robin", message=message))
        assert found == pytest.approx(nodes * (service(6e5, count) + summing), rel=1e-9)


def first_come(computes: list[float], turn: float, iterations: int, overlap: bool) -> list[list[float]]:
    """Play the master by hand: it takes, whenever it is free, who has asked first; returns (iterations, workers) ends."""
    workers = len(computes)
    begun, count, free = [0.0] * workers, [0] * workers, 0.0
    ends = [[0.0] * workers for _ in range(iterations)]
    while min(count) < iterations:
        asks = [(begun[w] + (0.0 if overlap else computes[w]), count[w], w) for w in range(workers) if count[w] < iterations]
        free_at = max(free, min(a[0] for a in asks))
        among = [a for a in asks if a[0] <= free_at * (1 + 1e-12)]
        asked, _, worker = min(among, key=lambda a: (round(a[0], 11), a[1], a[2]))  # a tie goes to what was recorded first
        free = max(free, asked) + turn
        begun[worker] = max(free, begun[worker] + computes[worker])
        ends[count[worker]][worker] = begun[worker]
        count[worker] += 1
    return ends


# First come, first served: a worker of 20 ms and two of 3 ms, W = 0.4 MB (turns of 8.4 ms): the fast ones take the slow one's turns.
@pytest.mark.parametrize("overlap", [False, True])
@settings(max_examples=20, deadline=None)
@given(row=sizes_and_times, nodes=st.integers(2, 5), slowdown=st.sampled_from([1.37, 2.9, 11.3]))
def test_first_come_first_served_is_the_queue_played_by_hand(
    overlap: bool, row: tuple[float, float, float], nodes: int, slowdown: float
) -> None:
    weights, forward, backward = row
    where = cluster(nodes, groups=(ps.NodeGroup(1, slowdown=slowdown),))
    computes = [(forward + backward) * (slowdown if i == 0 else 1.0) for i in range(nodes)]
    strategy = ps.Easgd(order="first-come", overlap=overlap)
    ends = first_come(computes, service(weights), sum(strategy.num_iterations()), overlap)
    rate = sum(4 / (last - first) for last, first in zip(ends[7], ends[3], strict=True))
    found = step(network([weights], [forward], [backward]), where, strategy)
    assert found == pytest.approx(nodes / rate, rel=1e-9)


def test_a_straggler_holds_up_round_robin_and_not_first_come() -> None:
    work, where = network([4e4], [1e-3], [2e-3]), cluster(4, groups=(ps.NodeGroup(1, slowdown=10.0),))
    in_order, first = (step(work, where, ps.Easgd(order=m)) for m in ("round-robin", "first-come"))
    assert in_order == pytest.approx(30e-3 + service(4e4), rel=1e-9)
    assert first < in_order / 2


# Without a lock all P transfers share the master's port: each way P W / B, and nobody is served before another.
@pytest.mark.parametrize("nodes", [2, 3, 6])
def test_hogwild_shares_the_masters_port(nodes: int) -> None:
    found = step(network([1e6], [2e-3], [3e-3]), cluster(nodes), ps.Easgd(order="hogwild"))
    assert found == pytest.approx(5e-3 + 2 * (LATENCY + nodes * 1e6 / BANDWIDTH), rel=1e-9)


# The tree has ceil(log2 P) hops of the packed weights up and as many down. 1 || 2: the broadcast runs beside compute; the sum
# follows, but in version 3, where it is of the old weights, beside compute too. version 1 adds a copy each way between host and GPU.
@settings(max_examples=25, deadline=None)
@given(row=sizes_and_times, nodes=st.integers(2, 20), pcie=st.sampled_from([None, 5e8]))
def test_sync_easgd_hides_what_its_number_says(row: tuple[float, float, float], nodes: int, pcie: float | None) -> None:
    weights, forward, backward = row
    hops = math.ceil(math.log2(nodes)) * (LATENCY + weights / BANDWIDTH)
    copy, compute = weights / pcie if pcie else 0.0, forward + backward
    expected = {
        1: max(compute, copy + hops) + hops + copy,
        2: max(compute, hops) + hops,
        3: max(compute, 2 * hops),
    }
    for version, seconds in expected.items():
        found = step(network([weights], [forward], [backward]), cluster(nodes, pcie=pcie), ps.SyncEasgd(version=version))
        assert found == pytest.approx(seconds, rel=1e-9)


# Exchanging every k-th step: k - 1 steps of compute alone and one with the exchange.
@pytest.mark.parametrize("every", [2, 5])
def test_exchange_steps_dilute_the_exchange(every: int) -> None:
    work, compute = network([1e6], [2e-3], [3e-3]), 5e-3
    hops = 2 * (LATENCY + 1e6 / BANDWIDTH)
    found = step(work, cluster(4), ps.SyncEasgd(version=2, exchange_steps=every))
    assert found == pytest.approx(((every - 1) * compute + max(compute, hops) + hops) / every, rel=1e-9)
