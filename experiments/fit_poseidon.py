"""Repeat the fit behind poseidon_systems.FITTED: a coarse grid, smallest worst error, on the PS and WFBP rows only.

    python experiments/fit_poseidon.py
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterable

from poseidon_systems import NODES, PUBLISHED, Fitted, simulate


def measured(system: str) -> dict[int, float]:
    """Return published seconds per iteration of a system on VGG19-22K by nodes."""
    with open(PUBLISHED, newline="", encoding="utf-8") as lines:
        rows = [r for r in csv.DictReader(lines) if r["system"] == system and r["metric"] == "iteration_time_s"]
    return {int(r["nodes"]): float(r["value"]) for r in rows if r["model"] == "VGG19-22K"}


def worst(system: str, fitted: Fitted) -> float:
    """Return the largest relative error of a system's six rows."""
    target = measured(system)
    return max(abs(simulate(system, "vgg19-22k", n, fitted=fitted).step_time / target[n] - 1) for n in NODES)


def best(system: str, candidates: Iterable[Fitted]) -> tuple[float, Fitted]:
    """Return the smallest worst error and its numbers."""
    return min(((worst(system, each), each) for each in candidates), key=lambda pair: pair[0])


def fit() -> Fitted:
    """Fit WFBP's two numbers, then Caffe+PS's three with the first kept."""
    pool = [Fitted(sum_rate=q, pool_rate=c) for q, c in itertools.product((1.23e9, 1.27e9, 1.31e9), (3.25e9, 3.3e9, 3.35e9))]
    error, first = best("Caffe+WFBP", pool)
    print(f"Caffe+WFBP: worst error {error:.1%} with {first}")
    grid = itertools.product((1.8e9, 2.0e9, 2.2e9), (0.04, 0.05, 0.06), (0.28, 0.30, 0.32))
    thread = [Fitted(first.sum_rate, first.pool_rate, rate, slope, floor) for rate, slope, floor in grid]
    error, second = best("Caffe+PS", thread)
    print(f"Caffe+PS: worst error {error:.1%} with {second}")
    return second


if __name__ == "__main__":
    fit()
