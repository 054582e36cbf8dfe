"""Operators on streams: bounds of any schedule, Graham's bound, a list schedule written out, and two kernels by hand."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import poseidon_sim as ps
from poseidon_sim.plan.record import KIND
from poseidon_sim.strategy.multi_stream import workspace_bytes

Graph = list[tuple[float, list[int]]]
ONE_GPU = ps.Cluster(nodes=1)


def workload(graph: Graph, blocks: int | Sequence[int] = 100) -> ps.Workload:
    """Return operators of 1 parameter; backward takes as long as forward; `blocks` output elements each."""
    sizes = [blocks] * len(graph) if isinstance(blocks, int) else blocks
    layers = [
        ps.Layer(f"op{i}", "pool", (1,), forward_time=t, backward_time=t, output_elements=size, inputs=tuple(f"op{j}" for j in before))
        for i, ((t, before), size) in enumerate(zip(graph, sizes, strict=True))
    ]
    return ps.Workload("graph", tuple(layers), source="made up", batch_size=1)


def step(model: ps.Workload, **settings: float) -> float:
    """Return the step of one GPU that 100 thread blocks of one element fill; both engines agree on it."""
    strategy = ps.MultiStream(block_elements=1, resident_blocks=100, **settings)  # type: ignore[arg-type]
    times = [ps.simulate(model, ONE_GPU, strategy, batch_size=1, engine=e, check=True).step_time for e in ("fast", "reference")]
    assert times[0] == pytest.approx(times[1], rel=1e-9)
    return times[0]


def critical_path(graph: Graph) -> float:
    ends: list[float] = []
    for seconds, before in graph:
        ends.append(seconds + max((ends[j] for j in before), default=0.0))
    return max(ends)


def list_schedule(graph: Graph, streams: int) -> float:
    """Graham's list schedule: whenever a stream is free, the first operator of the list whose inputs are there starts.

    Ready operators wait in list order, as launches do, and the time they became ready plays no part.
    """
    left = [len(before) for _, before in graph]
    ready = [i for i, count in enumerate(left) if count == 0]
    heapq.heapify(ready)
    running: list[tuple[float, int]] = []
    now = 0.0
    while ready or running:
        while ready and len(running) < streams:
            i = heapq.heappop(ready)
            heapq.heappush(running, (now + graph[i][0], i))
        now, done = heapq.heappop(running)
        finished = [done]
        while running and running[0][0] <= now * (1 + 1e-12):
            finished.append(heapq.heappop(running)[1])
        for each in finished:
            for k, (_, before) in enumerate(graph):
                if each in before:
                    left[k] -= 1
                    if left[k] == 0:
                        heapq.heappush(ready, k)
    return now


def mirrored(graph: Graph) -> Graph:
    """The backward pass: every operator after those that read from it, last first."""
    last = len(graph) - 1
    return [(graph[last - k][0], [last - i for i, (_, before) in enumerate(graph) if last - k in before]) for k in range(last + 1)]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    num = draw(st.integers(2, 9))
    graph: Graph = [(draw(st.integers(1, 9)) * 1e-3, [])]
    for i in range(1, num):
        graph.append((draw(st.integers(1, 9)) * 1e-3, sorted(draw(st.sets(st.integers(0, i - 1), min_size=0, max_size=3)))))
    if not any(before for _, before in graph):  # a workload in which no layer names its inputs is a chain
        graph[-1] = (graph[-1][0], [0])
    return graph


# Two operators of 10 ms side by side, each able to use 75 % of the GPU: they get a half each, so each takes 7.5 / 0.5 = 15 ms
# instead of 20 ms one after the other. The sink of 1 ms fills the GPU; backward is the same mirrored: 2 x (15 + 1) ms.
# With 40 % each nothing is in the way: 2 x (10 + 1) ms. One stream: 2 x 21 ms.
def test_two_kernels_share_the_gpu_by_hand() -> None:
    graph: Graph = [(10e-3, []), (10e-3, []), (1e-3, [0, 1])]
    assert step(workload(graph, [75, 75, 100]), streams=2) == pytest.approx(32e-3)
    assert step(workload(graph, [40, 40, 100]), streams=2) == pytest.approx(22e-3)
    assert step(workload(graph, [40, 40, 100]), streams=1) == pytest.approx(42e-3)


@settings(max_examples=25, deadline=None)
@given(graph=graphs(), blocks=st.integers(1, 100))
def test_one_stream_takes_the_sum_whatever_the_graph(graph: Graph, blocks: int) -> None:
    assert step(workload(graph, blocks)) == pytest.approx(2 * sum(t for t, _ in graph), rel=1e-9)


# Kernels of 1 % of the GPU never slow each other, so a pass is Graham's list schedule on `streams` machines.
@settings(max_examples=40, deadline=None)
@given(graph=graphs(), streams=st.integers(1, 4))
def test_small_kernels_make_a_list_schedule(graph: Graph, streams: int) -> None:
    expected = list_schedule(graph, streams) + list_schedule(mirrored(graph), streams)
    found = step(workload(graph, 1), streams=streams)
    assert found == pytest.approx(expected, rel=1e-9)
    total, path = sum(t for t, _ in graph), critical_path(graph)
    assert found <= 2 * (total / streams + (1 - 1 / streams) * path) * (1 + 1e-9)  # Graham 1969


# No schedule beats the critical path, the GPU's capacity (sum of share x time) or the number of streams; sharing never loses time
# against one stream by more than the rounding: rates of kernels that share sum to at least what one alone would use.
@settings(max_examples=40, deadline=None)
@given(graph=graphs(), streams=st.integers(1, 4), data=st.data())
def test_no_schedule_beats_path_and_work(graph: Graph, streams: int, data: st.DataObject) -> None:
    blocks = [data.draw(st.integers(1, 100)) for _ in graph]
    found = step(workload(graph, blocks), streams=streams)
    work = sum(t * b / 100 for (t, _), b in zip(graph, blocks, strict=True))
    assert found >= 2 * max(critical_path(graph), work, sum(t for t, _ in graph) / streams) * (1 - 1e-9)


def convolutions(sizes: list[int]) -> ps.Workload:
    """Return 3 x 3 convolutions of one channel side by side, `size` pixels each: patches of 9 x size x 4 bytes."""
    layers = [
        ps.Layer(f"conv{i}", "conv", (9,), 2 * 9.0 * n, 4 * 9.0 * n, n, n, forward_time=1e-3 * (i + 1), backward_time=2e-3)
        for i, n in enumerate(sizes)
    ]
    sink = ps.Layer("add", "add", (1,), forward_time=1e-3, backward_time=1e-3, inputs=tuple(x.name for x in layers))
    return ps.Workload("convolutions", (*layers, sink), source="made up", batch_size=1)


def test_a_workspace_is_the_patch_matrix_and_none_for_one_by_one() -> None:
    assert workspace_bytes(convolutions([50]).layers[0], 3, 4) == 3 * 9 * 50 * 4
    assert workspace_bytes(ps.Layer("one", "conv", (8 * 16,), 2 * 8 * 16 * 50.0, 0.0, 8 * 50, 16 * 50), 3, 4) == 0


@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.integers(1, 20), min_size=2, max_size=6), budget=st.integers(20, 40), streams=st.integers(2, 6))
def test_workspaces_of_running_kernels_fit_in_the_budget(sizes: list[int], budget: int, streams: int) -> None:
    model = convolutions(sizes)
    strategy = ps.MultiStream(streams=streams, workspace_size=budget * 36.0)
    trace = ps.simulate(model, ONE_GPU, strategy, batch_size=1, check=True).trace
    for kind in ("forward", "backward"):
        mine = (trace.table.kind == KIND[kind]) & (trace.table.layer < len(sizes))
        start, end, size = trace.times.start[mine], trace.times.end[mine], np.array(sizes)[trace.table.layer[mine]]
        for instant in start:
            assert size[(start <= instant) & (end > instant)].sum() <= budget


def test_chains_gain_nothing_and_branches_less_the_larger_the_batch() -> None:
    gpu = ps.Cluster(nodes=1, gpu=ps.gpu("v100-sxm2-16gb"))

    def gain(model: str, batch: int) -> float:
        one, four = (ps.simulate(model, gpu, ps.MultiStream(streams=s), batch_size=batch).step_time for s in (1, 4))
        return one / four

    assert gain("alexnet", 8) == pytest.approx(1.0)
    assert gain("googlenet", 1) > gain("googlenet", 32) > 1.0
