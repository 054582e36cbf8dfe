"""Many draws of one job's jitter: not one step time but how step times spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from poseidon_sim.errors import InputError
from poseidon_sim.planner.pools import DeadWorkerError, run_slices
from poseidon_sim.scenario import Scenario
from poseidon_sim.simulation import settled_engine, simulate

#: draws a worker takes at a time
SLICE = 8


@dataclass(frozen=True, eq=False)
class Draws:
    """(D,) step times in seconds, one for each seed from `first_seed` on; `without` is the step time without jitter."""

    step_times: npt.NDArray[np.float64]
    first_seed: int
    jitter: float
    without: float

    def percentile(self, share: float) -> float:
        """Return the step time in seconds that `share` per cent of the draws stay within."""
        return float(np.percentile(self.step_times, share))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "draws": len(self.step_times), "jitter": self.jitter, "first_seed": self.first_seed,
            "step_time_s": {
                "mean": float(self.step_times.mean()), "least": float(self.step_times.min()), "p5": self.percentile(5),
                "median": self.percentile(50), "p95": self.percentile(95), "most": float(self.step_times.max()),
            },
            "step_time_without_jitter_s": self.without,
            "step_times_s": self.step_times.tolist(),
        }  # fmt: skip

    def __str__(self) -> str:
        ms = self.step_times * 1e3
        return (
            f"step time over {len(ms)} draws of {self.jitter:.1%} jitter (seeds from {self.first_seed}, predicted): median "
            f"{np.median(ms):.2f} ms, 90 % of the draws between {np.percentile(ms, 5):.2f} and {np.percentile(ms, 95):.2f} ms, "
            f"longest {ms.max():.2f} ms\n  without jitter {self.without * 1e3:.2f} ms; at the median jitter costs "
            f"{self.percentile(50) / self.without - 1:.1%}"
        )


def monte_carlo(scenario: Scenario, draws: int = 100, jobs: int = 1) -> Draws:
    """Simulate a scenario with jitter for so many seeds, from its own seed on.

    The job is recorded once; every draw changes nothing but the times of the nodes' work.

    Examples
    --------
    >>> from poseidon_sim import load_scenario
    >>> job = load_scenario({"model": "alexnet", "strategy": "poseidon", "cluster": {
    ...     "nodes": 4, "gpu": "titan-x-maxwell", "network": "10 Gbit/s", "jitter": 0.1}})
    >>> spread = monte_carlo(job, draws=5)
    >>> bool(spread.without < spread.percentile(50) < 1.2 * spread.without)
    True
    """
    cluster = scenario.cluster
    if cluster.jitter <= 0:
        raise InputError("cluster.jitter is 0: every draw would be the same; write for example cluster.jitter=0.05")
    if draws < 2 or jobs < 1:
        raise InputError(f"draws={draws} must be at least 2, or nothing spreads, and jobs={jobs} at least 1")
    work = _Draw(scenario, settled_engine())
    seeds = list(range(cluster.seed, cluster.seed + draws))
    slices = [seeds[at : at + SLICE] for at in range(0, draws, SLICE)]
    found: dict[int, float] = {}
    for each, answer in run_slices(work, slices, jobs, "processes"):
        if isinstance(answer, DeadWorkerError):
            raise InputError(f"the draw with seed {each[0]} could not be run: {answer}")
        found.update(zip(each, answer, strict=True))
    still = replace(scenario, cluster=replace(cluster, jitter=0.0))
    return Draws(
        np.array([found[seed] for seed in seeds]), cluster.seed, cluster.jitter, simulate(still, engine=work.engine).step_time
    )  # fmt: skip


@dataclass(frozen=True)
class _Draw:
    """Step times of some seeds."""

    scenario: Scenario
    engine: str

    def __call__(self, seeds: Sequence[int]) -> list[float]:
        cluster = self.scenario.cluster
        jobs = (replace(self.scenario, cluster=replace(cluster, seed=seed)) for seed in seeds)
        return [simulate(job, engine=self.engine).step_time for job in jobs]
