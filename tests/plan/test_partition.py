"""Cutting operator graphs over devices: memory holds, one device is never better, small graphs come near the best cut there is."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import poseidon_sim as ps


@st.composite
def graphs(draw: st.DrawFn, most: int = 12) -> ps.OperatorGraph:
    num = draw(st.integers(2, most))
    edges = [(i, j) for j in range(1, num) for i in range(j) if draw(st.integers(0, 2)) == 0]
    source, target = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    whole = st.integers(1, 9)
    return ps.OperatorGraph(
        np.array([float(draw(whole)) for _ in range(num)]), np.array([float(draw(whole)) for _ in range(num)]), source, target,
        np.array([float(draw(st.integers(0, 4))) for _ in edges]),
    )  # fmt: skip


def played(graph: ps.OperatorGraph, device: list[int]) -> float:
    """List scheduling by hand: an operator runs when all it reads is there and its device is free, in order of number."""
    done = [0.0] * len(graph)
    free: dict[int, float] = {}
    for i in range(len(graph)):
        there = 0.0
        for source, target, seconds in zip(graph.source, graph.target, graph.edge_seconds, strict=True):
            if target == i:
                there = max(there, done[source] + (seconds if device[source] != device[i] else 0.0))
        done[i] = max(there, free.get(device[i], 0.0)) + graph.seconds[i]
        free[device[i]] = done[i]
    return max(done)


@settings(max_examples=60, deadline=None)
@given(graph=graphs(), devices=st.integers(1, 4), slack=st.floats(1.0, 2.0))
def test_no_device_holds_more_than_its_memory(graph: ps.OperatorGraph, devices: int, slack: float) -> None:
    limit = slack * max(graph.memory.sum() / devices, graph.memory.max())
    try:
        device = ps.partition(graph, devices, limit)
    except ps.InfeasibleError:
        return  # unequal operators need not fill equal boxes
    assert (np.bincount(device, weights=graph.memory, minlength=devices) <= limit * (1 + 1e-12)).all()


@settings(max_examples=60, deadline=None)
@given(graph=graphs(), devices=st.integers(1, 4))
def test_the_makespan_is_between_its_bounds(graph: ps.OperatorGraph, devices: int) -> None:
    found = ps.makespan(graph, ps.partition(graph, devices))
    path = max(start + own for start, own in zip(graph.top_levels, graph.seconds, strict=True))
    assert found >= max(path, graph.seconds.sum() / devices) * (1 - 1e-9)


@settings(max_examples=25, deadline=None)
@given(graph=graphs(most=7))
def test_on_two_devices_small_graphs_come_within_two_thirds_of_the_best_cut_of_all(graph: ps.OperatorGraph) -> None:
    best = min(played(graph, list(cut)) for cut in itertools.product((0, 1), repeat=len(graph)))
    assert ps.makespan(graph, ps.partition(graph, 2)) <= 5 / 3 * best + 1e-9


def test_two_chains_that_do_not_meet_go_to_two_devices() -> None:
    """Two chains of three operators of 1 s: 3 s on two devices, 6 s on one."""
    source, target = np.array([0, 1, 3, 4]), np.array([1, 2, 4, 5])
    graph = ps.OperatorGraph(np.ones(6), np.ones(6), source, target, np.full(4, 10.0))
    assert ps.makespan(graph, ps.partition(graph, 2)) == 3.0
    assert ps.makespan(graph, ps.partition(graph, 1)) == 6.0


def test_what_cannot_fit_is_refused() -> None:
    graph = ps.OperatorGraph(np.ones(2), np.array([5.0, 1.0]), np.array([0]), np.array([1]), np.zeros(1))
    with pytest.raises(ps.InfeasibleError):
        ps.partition(graph, 2, memory=4.0)


def test_an_inception_network_gains_from_a_second_device_and_never_loses() -> None:
    def step(gpus: int) -> float:
        where = ps.Cluster(nodes=1, gpus_per_node=gpus, gpu=ps.gpu("v100-sxm2-16gb"), node="nvswitch", peer_latency=45e-6)
        return ps.simulate("inception-v3", where, ps.ParDnn(), batch_size=32 / gpus, check=True).step_time

    assert step(4) <= step(2) < step(1)
