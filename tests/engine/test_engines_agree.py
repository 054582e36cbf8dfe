"""Random programs full of exact ties: both engines, every check, the same bits twice."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from engine_puzzles import MOMENTS, assert_same_times, programs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from poseidon_sim.engine import Program, Times, make_program, run

many = settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def assert_same_bits(a: Times, b: Times) -> None:
    for moment in MOMENTS:
        assert np.array_equal(getattr(a, moment), getattr(b, moment)), moment


@many
@given(programs())
def test_the_engines_agree_and_pass_every_check(program):
    reference = run(program, engine="reference", check=True)
    fast = run(program, engine="fast", check=True)
    assert_same_times(reference, fast)
    assert_same_bits(fast, run(program, engine="fast"))
    assert_same_bits(reference, run(program, engine="reference"))


def renumber_links(program: Program, new: np.ndarray) -> Program:
    """Give link l the number new[l]."""
    old = np.argsort(new)
    rows = [slice(program.curve_ptr[link], program.curve_ptr[link + 1]) for link in old]
    return dataclasses.replace(
        program,
        use_link=new[program.use_link],
        capacity=program.capacity[old],
        curve_ptr=np.concatenate([[0], np.cumsum(np.diff(program.curve_ptr)[old])]),
        curve_flows=np.concatenate([program.curve_flows[row] for row in rows]),
        curve_capacity=np.concatenate([program.curve_capacity[row] for row in rows]),
    )


@many
@given(programs(), st.randoms(use_true_random=False))
def test_the_order_of_links_changes_nothing(program, random):
    new = np.array(random.sample(range(program.num_links), program.num_links))
    other = renumber_links(program, new)
    assert_same_bits(run(program, engine="reference"), run(other, engine="reference"))
    assert_same_times(run(program, engine="fast"), run(other, engine="fast"))


@many
@given(programs())
def test_halving_every_duration_halves_every_time_to_the_bit(program):
    halved = dataclasses.replace(
        program,
        latency=program.latency / 2,
        delay=program.delay / 2,
        rate_cap=program.rate_cap * 2,
        capacity=program.capacity * 2,
        curve_capacity=program.curve_capacity * 2,
    )
    for engine in ("reference", "fast"):
        whole, half = run(program, engine=engine), run(halved, engine=engine)
        assert np.array_equal(whole.end, half.end * 2)


# Unequal works, latencies and weights over shared links, with queues: no ties, many re-solved parts.
@pytest.mark.parametrize("seed", range(4))
def test_the_engines_agree_on_a_few_hundred_tasks_without_ties(seed):
    random = np.random.default_rng(seed)
    n, num_links = 300, 12
    program = make_program(
        random.exponential(size=n),
        dependencies=[sorted(set(random.integers(0, i, 2).tolist())) if i > 20 else [] for i in range(n)],
        uses=[
            {
                int(link): float(random.choice([0.5, 1.0, 2.0]))
                for link in random.choice(num_links, 2, replace=False)
            }
            for _ in range(n)
        ],
        capacity=random.uniform(1, 3, num_links),
        curves={0: [(1.0, 2.0), (4.0, 1.0)]},
        latency=random.exponential(size=n) * random.integers(0, 2, n),
        rate_cap=np.where(random.random(n) < 0.2, 0.3, np.inf),
        weight=random.choice([1.0, 1.0, 2.5], n),
        queue=random.integers(-1, 6, n),
        queue_slots=[1, 2, 1, 3, 1, 1],
    )
    assert_same_times(run(program, "reference", check=True), run(program, "fast", check=True))


# 30 tasks on each of 6 routes: members of one route come and go one by one.
def test_the_engines_agree_when_many_tasks_share_a_route():
    random = np.random.default_rng(7)
    n = 180
    pairs = [(a, b) for a in range(3) for b in range(3) if a != b]
    program = make_program(
        random.exponential(size=n),
        uses=[{pairs[i % 6][0]: 1.0, 3 + pairs[i % 6][1]: 1.0} for i in range(n)],
        capacity=[1.0, 2.0, 1.0, 1.0, 1.5, 1.0],
        latency=random.exponential(size=n) * 20,
    )
    assert_same_times(run(program, "reference", check=True), run(program, "fast", check=True))
