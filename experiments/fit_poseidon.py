"""Repeat the fit behind poseidon_systems.FITTED, and ask how firm it is.

    python experiments/fit_poseidon.py

A grid of round values; the smallest worst relative error wins, ties go to the smaller mean error. Used are the rows of
Caffe+WFBP (P15..P20) and Caffe+PS (P27..P32), nothing else. Then every row is left out in turn, the fit is repeated
without it and the row predicted: what a number that rests on few rows is worth shows there.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterable, Sequence
from functools import cache

from poseidon_systems import FITTED, PUBLISHED, Fitted, simulate

SUM_RATES = tuple(round(1e9 * x, -7) for x in (1.24, 1.26, 1.28, 1.30, 1.32, 1.34))
POOL_RATES = tuple(round(1e9 * x, -7) for x in (3.2, 3.25, 3.3, 3.35, 3.4, 3.45))
THREAD_RATES = tuple(round(1e9 * x, -7) for x in (2.3, 2.4, 2.5, 2.6))
SLOPES = (0.060, 0.065, 0.070, 0.075, 0.080)
FLOORS = (0.22, 0.24, 0.26, 0.28, 0.30)
#: a setting whose worst error is within this of the best one's fits about as well
ABOUT_AS_WELL = 0.01

Target = tuple[str, int]  # system, nodes


def measured(system: str) -> dict[int, float]:
    """Return published seconds per iteration of a system on VGG19-22K by nodes."""
    with open(PUBLISHED, newline="", encoding="utf-8") as lines:
        rows = [r for r in csv.DictReader(lines) if r["system"] == system and r["metric"] == "iteration_time_s"]
    return {int(r["nodes"]): float(r["value"]) for r in rows if r["model"] == "VGG19-22K"}


def targets() -> dict[Target, float]:
    """Return the rows the fit may look at."""
    return {(system, n): t for system in ("Caffe+WFBP", "Caffe+PS") for n, t in measured(system).items()}


@cache
def _seconds(system: str, nodes: int, fitted: Fitted) -> float:
    return simulate(system, "vgg19-22k", nodes, fitted=fitted).step_time


def predict(target: Target, fitted: Fitted) -> float:
    """Return predicted seconds; parameters that cannot matter are set aside, so that equal runs are made once."""
    system, nodes = target
    plain = Fitted()
    if nodes == 1:
        return _seconds(system, 1, Fitted(fitted.sum_rate, plain.pool_rate, plain.thread_rate, plain.sharing_slope, plain.sharing_floor))
    if system == "Caffe+WFBP":
        return _seconds(system, nodes, Fitted(fitted.sum_rate, fitted.pool_rate))
    return _seconds(system, nodes, Fitted(fitted.sum_rate, plain.pool_rate, fitted.thread_rate, fitted.sharing_slope, fitted.sharing_floor))


def errors(wanted: dict[Target, float], fitted: Fitted) -> list[float]:
    """Return absolute relative errors of the wanted rows."""
    return [abs(predict(target, fitted) / seconds - 1.0) for target, seconds in wanted.items()]


def ranked(wanted: dict[Target, float], candidates: Iterable[Fitted]) -> list[tuple[float, float, Fitted]]:
    """Return (worst, mean error, setting), best first."""
    found = []
    for each in candidates:
        one = errors(wanted, each)
        found.append((max(one), sum(one) / len(one), each))
    return sorted(found, key=lambda entry: entry[:2])


def first_step(wanted: dict[Target, float]) -> list[tuple[float, float, Fitted]]:
    """Rank sum_rate and pool_rate on WFBP's rows and on the one-node row of Caffe+PS, where no network plays a part."""
    rows = {t: s for t, s in wanted.items() if t[0] == "Caffe+WFBP" or t[1] == 1}
    return ranked(rows, (Fitted(q, c) for q, c in itertools.product(SUM_RATES, POOL_RATES)))


def second_step(wanted: dict[Target, float], first: Fitted) -> list[tuple[float, float, Fitted]]:
    """Rank thread_rate, sharing_slope and sharing_floor on Caffe+PS's other rows, the first two kept."""
    rows = {t: s for t, s in wanted.items() if t[0] == "Caffe+PS" and t[1] > 1}
    grid = itertools.product(THREAD_RATES, SLOPES, FLOORS)
    return ranked(rows, (Fitted(first.sum_rate, first.pool_rate, *rest) for rest in grid))


def fit(wanted: dict[Target, float]) -> Fitted:
    """Return the best setting for the wanted rows."""
    return second_step(wanted, first_step(wanted)[0][2])[0][2]


def spans(ranking: Sequence[tuple[float, float, Fitted]], names: Sequence[str]) -> str:
    """Say which values occur among the settings that fit about as well as the best."""
    near = [each for worst, _, each in ranking if worst <= ranking[0][0] + ABOUT_AS_WELL]
    return ", ".join(f"{n} {min(getattr(x, n) for x in near):.4g} to {max(getattr(x, n) for x in near):.4g}" for n in names)


def repeat() -> int:
    """Print the fit, its spans and every row predicted without itself; 1 when FITTED is not what the fit gives."""
    wanted = targets()
    first = first_step(wanted)
    second = second_step(wanted, first[0][2])
    print(f"Caffe+WFBP and one node: worst error {first[0][0]:.1%}; about as good: {spans(first, ('sum_rate', 'pool_rate'))}")
    names = ("thread_rate", "sharing_slope", "sharing_floor")
    print(f"Caffe+PS from 2 nodes: worst error {second[0][0]:.1%}; about as good: {spans(second, names)}")
    print(f"{second[0][2]}\n\nEvery row predicted by a fit without it:")
    for target, seconds in wanted.items():
        rest = {t: s for t, s in wanted.items() if t != target}
        one = first_step(rest)
        again = [x for x in second_step(rest, one[0][2]) if x[0] <= second_step(rest, one[0][2])[0][0] + 1e-9]
        found = sorted({round(predict(target, x) / seconds - 1.0, 4) for _, _, x in again})
        says = f"{found[0]:+.1%}" if len(found) == 1 else f"{found[0]:+.1%} to {found[-1]:+.1%}: not determined by the other rows"
        print(f"  {target[0]}, {target[1]:>2} nodes: {seconds:.3f} s measured, error {says}")
    return 0 if second[0][2] == FITTED else 1


if __name__ == "__main__":
    raise SystemExit(repeat())
