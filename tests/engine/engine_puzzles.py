"""Small things the engine's tests share: both engines under check, and random programs full of ties."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from poseidon_sim.engine import Program, Times, make_program, run

MOMENTS = ("ready", "start", "release", "end")


def play(work: list[float], **given: Any) -> Times:
    """Run a puzzle on both engines, with every check on; they must agree; return the reference's times."""
    program = make_program(work, **given)
    reference = run(program, engine="reference", check=True)
    assert_same_times(reference, run(program, engine="fast", check=True))
    return reference


def assert_same_times(a: Times, b: Times) -> None:
    for moment in MOMENTS:
        np.testing.assert_allclose(getattr(a, moment), getattr(b, moment), rtol=1e-9, atol=0, err_msg=moment)
    for each in (a, b):  # who waited for a queue started when its mate let go
        waited = (each.mate >= 0) & (each.start > each.ready * (1 + 1e-9))
        np.testing.assert_allclose(each.release[each.mate[waited]], each.start[waited], rtol=1e-9, atol=0)
    assert a.num_instants == b.num_instants


small = st.integers(0, 3).map(float)
positive = st.integers(1, 4).map(float)


@st.composite
def programs(draw: st.DrawFn, max_tasks: int = 14) -> Program:
    """Programs of small whole numbers, so that exact ties of time, priority and level are the rule."""
    n = draw(st.integers(1, max_tasks))
    num_links, num_queues = draw(st.integers(1, 4)), draw(st.integers(0, 3))
    infinite = st.just(np.inf)
    capacity = [draw(positive | positive | infinite) for _ in range(num_links)]
    curves = {}
    for link in range(num_links):
        if draw(st.integers(0, 3)) == 0:
            flows = sorted(draw(st.sets(st.integers(1, 6), min_size=1, max_size=3)))
            curves[link] = [(float(x), draw(positive)) for x in flows]
    dependencies, needed, uses = [], [], []
    for task in range(n):
        before = draw(st.sets(st.integers(0, task - 1), max_size=3)) if task else set()
        dependencies.append(sorted(before))
        needed.append(draw(st.integers(0, len(before)) | st.just(len(before))))
        links = draw(st.lists(st.integers(0, num_links - 1), max_size=3, unique=True))
        uses.append({link: draw(st.sampled_from([1.0, 1.0, 1.0, 2.0, 0.5, 3.0])) for link in links})

    def column(values: st.SearchStrategy[float]) -> list[float]:
        return [draw(values) for _ in range(n)]

    caps = [draw(positive | infinite) if use else draw(positive) for use in uses]
    return make_program(
        column(small),
        dependencies=dependencies,
        needed=needed,
        uses=uses,
        capacity=capacity,
        curves=curves,
        queue_slots=[draw(st.integers(1, 2)) for _ in range(num_queues)],
        queue=[draw(st.integers(-1, num_queues - 1)) for _ in range(n)],
        latency=column(st.just(0.0) | small),
        delay=column(st.just(0.0) | small),
        rate_cap=caps,
        weight=column(st.just(1.0) | st.sampled_from([1.0, 2.0, 3.0])),
        priority=column(st.integers(0, 2).map(float)),
    )
