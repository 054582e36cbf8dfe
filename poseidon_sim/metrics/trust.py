"""How far a prediction can be trusted: intervals earned from the misses on measured runs that nothing was fitted on.

Every measured case leaves a residual, ln(measured / predicted). A new prediction takes the residuals of cases like it (where it
runs, what bounds it, and, where that is the network, whether its goodput was stated or taken from a line rate), every source of
cases with the same weight, since rows of one source err together. When the compute times are modelled and not given, the misses of
the compute model on one GPU are added in proportion to the share of compute. The widths are set so that, leaving one source out at
a time, the intervals hold as many of its cases as they say: see
validation/residuals.py, and docs/trust.md.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from poseidon_sim.cluster import Network
from poseidon_sim.metrics.blame import subject_of

Floats = npt.NDArray[np.float64]
RESIDUALS = Path(__file__).with_name("residuals.csv")
#: compute above this share of the critical path bounds a step
COMPUTE_BOUND = 0.8
#: fewer sources than this do not make an interval; the next wider regime is asked
FEW_SOURCES = 3
#: the share of residuals that the intervals called 50 % and 90 % span: chosen from the table that validation/residuals.py
#: prints, so that they hold about as many of the cases of a source left out; fitted, that is, to the residuals themselves
SPANS = {50: 0.55, 90: 0.98}
#: predictions for more GPUs than this times the largest measured case are outside the validated range
FAR = 4

#: how to read the intervals of a ranking
TRUST_WORDS = "90 % of cases: where the measured steps of jobs like it fell (docs/trust.md)."


class Residual(NamedTuple):
    """One measured case: source, place, what bound it, how the goodput was known, strategy, GPUs, ln(measured / predicted)."""

    source: str
    place: str
    bound: str
    goodput: str
    strategy: str
    num_gpus: int
    log_error: float


@dataclass(frozen=True)
class Trust:
    """Intervals around a predicted step time in seconds, and what they rest on."""

    half: tuple[float, float]
    most: tuple[float, float]
    cases: int
    sources: int
    regime: str
    outside: tuple[str, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What lies outside, ready to be shown beside other warnings."""
        return tuple(f"outside the validated range: {text}" for text in self.outside)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "interval_50_s": list(self.half), "interval_90_s": list(self.most), "cases": self.cases, "sources": self.sources,
            "regime": self.regime, "outside_validated_range": list(self.outside),
        }  # fmt: skip

    @property
    def most_words(self) -> str:
        """The interval that holds 90 % of measured cases like it, '' where nothing is predicted."""
        low, high = (f"{x * 1e3:.4g}" for x in self.most)
        return f"{low} to {high} ms" if self.cases else ""

    def __str__(self) -> str:
        if not self.cases:
            return f"{self.regime}: the step time is what was given, and nothing is predicted"
        like_this = f"{self.regime}: {self.cases} cases from {self.sources} sources"
        return f"{self.most_words} hold 90 % of measured cases like this ({like_this})"


def said_of(texts: Iterable[tuple[str, Sequence[str]]]) -> dict[str, str]:
    """Return every text once, with the names it was said of.

    >>> said_of([("a", ["slow"]), ("b", ["slow", "large"])])
    {'slow': 'a, b', 'large': 'b'}
    """
    found: dict[str, dict[str, None]] = {}
    for name, said in texts:
        for text in said:
            found.setdefault(text, {})[name] = None
    return {text: ", ".join(names) for text, names in found.items()}


def place_of(nodes: int, num_gpus: int) -> str:
    """Name where a job runs.

    >>> place_of(1, 8), place_of(4, 4)
    ('one node', 'several nodes')
    """
    return "one GPU" if num_gpus == 1 else "one node" if nodes == 1 else "several nodes"


def bound_of(blame: Mapping[str, float]) -> str:
    """Name what bounds a step, from the seconds of its critical path by blame.

    >>> bound_of({"compute": 0.9, "transfer: node port in": 0.1}), bound_of({"compute": 0.5, "message latency": 0.5})
    ('compute-bound', 'latency-bound')
    """
    total = sum(blame.values())
    moving = sum(s for name, s in blame.items() if name.startswith(("transfer", "contention")) and subject_of(name) != "compute")
    latency = sum(seconds for name, seconds in blame.items() if name.endswith("latency"))
    if total <= 0 or moving + latency <= (1 - COMPUTE_BOUND) * total:
        return "compute-bound"
    return "latency-bound" if latency > moving else "bandwidth-bound"


def compute_share(blame: Mapping[str, float]) -> float:
    """Return the share of the critical path that the GPU's own work takes."""
    total = sum(blame.values())
    return blame.get("compute", 0.0) / total if total > 0 else 1.0


@lru_cache(maxsize=1)
def residuals() -> tuple[Residual, ...]:
    """Return the residuals that come with the package."""
    with open(RESIDUALS, newline="", encoding="utf-8") as lines:
        return tuple(
            Residual(r["source"], r["place"], r["bound"], r["goodput"], r["strategy"], int(r["num_gpus"]), float(r["log_error"]))
            for r in csv.DictReader(lines)
        )


def like(rows: Sequence[Residual], place: str, bound: str, goodput: str) -> tuple[list[Residual], str]:
    """Return the rows of the narrowest regime that has enough sources, and its name."""
    choices = [
        ([r for r in rows if (r.place, r.bound) == (place, bound)], f"{place}, {bound}"),
        ([r for r in rows if r.place == place], place),
        ([r for r in rows if r.place != "one GPU"], "any job on several GPUs"),
        (list(rows), "any measured case"),
    ]
    if place == "several nodes" and bound != "compute-bound":  # what TCP makes of a line rate is the widest unknown of all
        narrow = [r for r in rows if (r.place, r.goodput) == (place, goodput) and r.bound != "compute-bound"]
        choices.insert(0, (narrow, f"{place}, network-bound, goodput {goodput}"))
    return next((each for each in choices if len({r.source for r in each[0]}) >= FEW_SOURCES), choices[-1])


def weighted(rows: Sequence[Residual]) -> tuple[Floats, Floats]:
    """Return the rows' residuals and weights: every source weighs 1 in all."""
    counts = Counter(r.source for r in rows)
    return np.array([r.log_error for r in rows]), np.array([1.0 / counts[r.source] for r in rows])


def spread(values: Floats, weights: Floats, span: float) -> tuple[float, float]:
    """Return the values between which the middle `span` of the weight lies.

    >>> spread(np.array([3.0, 1.0, 2.0]), np.ones(3), 1 / 3)
    (1.5, 2.5)
    """
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order]
    at = (np.cumsum(weights) - weights / 2) / weights.sum()
    low, high = np.interp([(1 - span) / 2, (1 + span) / 2], at, values)
    return float(low), float(high)


def goodput_of(network: Network | None) -> str:
    """Name how the goodput of a network is known.

    >>> goodput_of(Network(1.25e9)), goodput_of(Network(1.25e9, efficiency=0.9))
    ('assumed', 'stated')
    """
    return "stated" if network is not None and network.states_goodput else "assumed"


def trust_in(
    step_time: float, nodes: int, num_gpus: int, blame: Mapping[str, float], strategy: str, modelled: bool, goodput: str = "assumed"
) -> Trust:
    """Return the intervals of a prediction.

    Parameters
    ----------
    step_time : seconds. blame : seconds of the critical path by what is to blame.
    modelled : the compute times come from the compute model and not from measurements.
    goodput : 'stated' or 'assumed', how the network's goodput is known.
    """
    if num_gpus == 1 and not modelled:
        return Trust((step_time, step_time), (step_time, step_time), 0, 0, "one GPU, compute times given", ())
    # shares are rounded so that the points of a sweep find the same intervals; what is lost is far below a residual's own noise
    share = round(compute_share(blame), 2) if modelled and num_gpus > 1 else None
    found = _regime(residuals, (place_of(nodes, num_gpus), bound_of(blame), goodput), share)
    half, most = ((step_time * low, step_time * high) for low, high in found.factors)
    name = found.name + (", compute modelled" if modelled else ", compute times given")
    outside = _outside(num_gpus, strategy)
    if blame.get("input", 0.0) > 0.05 * sum(blame.values()):
        outside += ("no measured case that waits for its input",)
    return Trust(half, most, found.cases, found.sources, name, outside)


class _Regime(NamedTuple):
    """What cases like a job say: the ends of its intervals over its step time, and how many cases from how many sources."""

    factors: tuple[tuple[float, float], ...]
    cases: int
    sources: int
    name: str


@lru_cache(maxsize=1024)
def _regime(measured: Callable[[], Sequence[Residual]], job: tuple[str, str, str], share: float | None) -> _Regime:
    """Return the regime of a job (place, bound, goodput); `share` of its path is modelled compute (None: nothing to add)."""
    every = measured()
    rows, name = like(every if job[0] == "one GPU" else [r for r in every if r.place != "one GPU"], *job)
    values, weights = weighted(rows)
    if share is not None:  # two causes of error that know nothing of each other: every miss of the one with every miss of the other
        other, heavy = weighted([r for r in every if r.place == "one GPU"])
        values = (values[:, None] + share * other).ravel()
        weights = (weights[:, None] * heavy).ravel()
    ends = (spread(values, weights, span) for span in (SPANS[50], SPANS[90]))
    factors = tuple((float(np.exp(low)), float(np.exp(high))) for low, high in ends)
    return _Regime(factors, len(rows), len({r.source for r in rows}), name)


def _outside(num_gpus: int, strategy: str) -> tuple[str, ...]:
    """Say where a job leaves what was ever compared with a measurement."""
    found = []
    any_case, largest = _largest(residuals, strategy)
    if num_gpus > 1 and not any_case:
        found.append(f"no measured case of {strategy}")
    if num_gpus > FAR * largest:
        found.append(f"{num_gpus:,} GPUs; the largest measured case{' of ' + strategy if any_case else ''} has {largest}")
    return tuple(found)


@lru_cache(maxsize=256)
def _largest(measured: Callable[[], Sequence[Residual]], strategy: str) -> tuple[bool, int]:
    """Return whether a strategy was ever measured, and the GPUs of its largest measured case (of any, where it was not)."""
    mine = [r for r in measured() if r.strategy == strategy]
    return bool(mine), max((r.num_gpus for r in mine or measured()), default=1)
