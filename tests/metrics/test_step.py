"""Step time and where it goes, on a few tasks by hand; sets of intervals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_traces import Tiny, tiny_trace

from poseidon_sim.metrics import step_metrics
from poseidon_sim.metrics.intervals import clip, length, shared, union


def test_compute_exposed_and_hidden_communication_of_a_small_step() -> None:
    # forward 2 s; backward 3 s beside a message of 1 s; then a message of 2 s that nothing hides: 7 s
    trace = tiny_trace([
        Tiny("forward", 2.0), Tiny("backward", 3.0, after=[0]), Tiny("send", 10.0, after=[0]),
        Tiny("send", 20.0, after=[1]),
    ])  # fmt: skip
    m = step_metrics(trace, np.array([4.0]))
    assert (m.step_time, m.throughput) == pytest.approx((7.0, 8.0 / 7.0))  # 4 samples on each of 2 nodes
    assert (m.compute_time, m.communication_time, m.exposed_communication) == pytest.approx((5.0, 3.0, 2.0))
    assert (m.wait_time, m.overlap) == pytest.approx((0.0, 1 / 3))


def test_idle_time_without_a_transfer_is_waiting() -> None:
    # 2 s of compute in an iteration that ends at 5 s
    m = step_metrics(tiny_trace([Tiny("forward", 2.0)], ends=[5.0]), np.array([1.0]))
    assert (m.compute_time, m.exposed_communication, m.wait_time, m.overlap) == (2.0, 0.0, 3.0, 1.0)


def test_warm_up_is_left_out() -> None:
    # iterations end at 9 s (warm-up), 11 s and 13 s: 2 s each
    tasks = [
        Tiny("forward", 9.0),
        Tiny("forward", 2.0, after=[0], iteration=1),
        Tiny("forward", 2.0, after=[1], iteration=2),
    ]
    m = step_metrics(tiny_trace(tasks, warm_up=1, ends=[9.0, 11.0, 13.0]), np.array([1.0]))
    assert (m.step_time, m.compute_time) == (2.0, 2.0)


spans = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=12)


@given(spans, spans)
def test_interval_sets_agree_with_counting_unit_cells(
    a: list[tuple[int, int]], b: list[tuple[int, int]]
) -> None:
    def cells(rows: list[tuple[int, int]]) -> set[int]:
        return {cell for start, size in rows for cell in range(start, start + size)}

    def merged(rows: list[tuple[int, int]]) -> np.ndarray:
        return union(np.array([float(s) for s, _ in rows]), np.array([float(s + d) for s, d in rows]))

    assert length(merged(a)) == len(cells(a))
    assert shared(merged(a), merged(b)) == pytest.approx(len(cells(a) & cells(b)))
    assert length(clip(merged(a), 5.0, 15.0)) == len(cells(a) & set(range(5, 15)))
