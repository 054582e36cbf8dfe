"""Draws of jitter: each is the run of its seed, and what cannot spread is refused."""

from __future__ import annotations

import numpy as np
import pytest

import poseidon_sim as ps

JOB = {
    "model": "alexnet", "strategy": "poseidon",
    "cluster": {"nodes": 4, "gpu": "titan-x-maxwell", "network": "10 Gbit/s", "jitter": 0.1, "seed": 3},
}  # fmt: skip


def test_every_draw_is_the_run_of_its_seed() -> None:
    spread = ps.monte_carlo(ps.load_scenario(JOB), draws=6)
    alone = [ps.simulate(ps.load_scenario(JOB, **{"cluster.seed": seed}), engine="fast").step_time for seed in range(3, 9)]
    assert spread.step_times.tolist() == alone
    assert len(set(alone)) == 6


def test_two_jobs_draw_the_same_as_one() -> None:
    one, two = (ps.monte_carlo(ps.load_scenario(JOB), draws=20, jobs=jobs) for jobs in (1, 2))
    assert np.array_equal(one.step_times, two.step_times) and one.without == two.without


def test_jitter_of_nothing_is_refused_with_the_way_out() -> None:
    with pytest.raises(ps.InputError, match=r"cluster.jitter=0.05"):
        ps.monte_carlo(ps.load_scenario(JOB, **{"cluster.jitter": 0}))
