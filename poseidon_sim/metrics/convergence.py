"""How many iterations training needs to its target, and so how long it takes and what it costs.

Papers: McCandlish et al. 2018 (arXiv 1812.06162), iterations by batch; Stich and Karimireddy, JMLR'20, why staleness acts on
`min_steps` and not on `min_samples`.
Simplified: learning rates are tuned for every batch and every way of training; the target can be reached at every batch.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from poseidon_sim.errors import InputError, UnreadableFileError

if TYPE_CHECKING:
    from poseidon_sim.simulation import Run

#: where the iterations come from: a guess, the user or a paper, runs at these batches, or the law fitted to runs
BASES = ("assumed", "given", "measured", "fitted")
#: settings of a strategy that say how it trains, with the value that trains exactly, and the penalty each goes with
HOW_TRAINED = {
    "staleness": (0.0, "staleness_penalty"),
    "local_steps": (1.0, "local_steps_exponent"),
    "density": (1.0, "sparsity_exponent"),
}
HOUR = 3600.0


@dataclass(frozen=True)
class Convergence:
    """Iterations to a target, by global batch and by how inexactly the gradients of an iteration are summed.

    ``factor * local_steps**x / density**y * (min_steps * (1 + staleness_penalty * staleness) + min_samples / global batch)``

    Parameters
    ----------
    min_steps : iterations that no batch goes below. 0 for a number of epochs that holds at every batch.
    min_samples : samples that the smallest batch needs; min_samples / min_steps is the critical batch, at which twice
        min_steps are needed. 0 for a number of iterations that holds at every batch.
    curve : ((global batch, iterations), ...), batches rising, in place of the two: read between its points on logarithms,
        with iterations kept above its last batch and samples kept below its first. Its fewest iterations are its min_steps.
    staleness : iterations that gradients are late, in place of the strategy's own setting.
    staleness_penalty : share by which one iteration of staleness lengthens min_steps.
    local_steps_exponent : x; with twice as many steps between two averages 2**x times the iterations are needed.
    sparsity_exponent : y; with half as many gradients sent 2**y times.
    factor : whatever else a way of training costs (elastic averaging, lower precision).
    basis : 'assumed', 'given', 'measured' or 'fitted'. source : where from, in words. target : what is reached, in words.

    >>> law = Convergence(min_steps=1000, min_samples=256_000)
    >>> law.critical_batch, law.iterations(256), law.iterations(2560)
    (256.0, 2000.0, 1100.0)
    """

    min_steps: float = 0.0
    min_samples: float = 0.0
    curve: tuple[tuple[float, float], ...] = ()
    staleness: float | None = None
    staleness_penalty: float | None = None
    local_steps_exponent: float | None = None
    sparsity_exponent: float | None = None
    factor: float = 1.0
    basis: str = "assumed"
    source: str = ""
    target: str = ""

    def __post_init__(self) -> None:
        for name in ("min_steps", "min_samples", "staleness", "staleness_penalty", "local_steps_exponent", "sparsity_exponent"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise InputError(f"convergence.{name}={value:g} must be a number of at least 0")
        if not 0 < self.factor < math.inf:
            raise InputError(f"convergence.factor={self.factor:g} must be above 0; 1 changes nothing")
        if self.basis not in BASES:
            raise InputError(f"convergence.basis={self.basis!r} is not one of {', '.join(BASES)}")
        if bool(self.curve) == bool(self.min_steps or self.min_samples):
            raise InputError("convergence needs a curve, or min_steps and min_samples (one of them may be 0), and not both")
        _check_curve(self.curve)

    @property
    def critical_batch(self) -> float:
        """The global batch at which twice `min_steps` are needed; inf without min_steps, nan for a curve."""
        if self.curve:
            return math.nan
        return self.min_samples / self.min_steps if self.min_steps else math.inf

    def iterations(self, global_batch: float, **how: float) -> float:
        """Return the iterations to the target at a global batch, trained exactly or with `staleness`, `local_steps`, `density`.

        >>> Convergence(min_steps=1000, min_samples=256_000, staleness_penalty=0.5).iterations(256, staleness=2)
        3000.0
        """
        if not 0 < global_batch < math.inf:
            raise InputError(f"global_batch={global_batch:g} must be above 0")
        least = min(steps for _, steps in self.curve) if self.curve else self.min_steps
        exact = _on_curve(self.curve, global_batch) if self.curve else self.min_steps + self.min_samples / global_batch
        late, factor = self._penalties(how)
        return self.factor * factor * (exact + least * late)

    def _penalties(self, how: Mapping[str, float]) -> tuple[float, float]:
        """Return the share by which a way of training lengthens min_steps, and the factor on all iterations."""
        staleness = self.staleness if self.staleness is not None else how.get("staleness", 0.0)
        local_steps, density = how.get("local_steps", 1.0), how.get("density", 1.0)
        if math.isinf(staleness):
            raise InputError(
                "convergence.staleness is missing: the strategy bounds no staleness; write how many iterations late gradients are, "
                "about 1 for equal workers that do not wait"
            )
        if staleness < 0 or local_steps < 1 or not 0 < density <= 1:
            given = f"staleness={staleness:g}, local_steps={local_steps:g}, density={density:g}"
            raise InputError(f"{given}: must be at least 0, at least 1, and above 0 but at most 1")
        factor = float(local_steps ** (self.local_steps_exponent or 0.0) / density ** (self.sparsity_exponent or 0.0))
        return (self.staleness_penalty or 0.0) * staleness, factor

    def doubts(self, global_batch: float, **how: float) -> list[str]:
        """Say what the iterations at a global batch leave out."""
        found = []
        for setting, (exact, penalty) in HOW_TRAINED.items():
            value = self.staleness if setting == "staleness" and self.staleness is not None else how.get(setting, exact)
            if value != exact and getattr(self, penalty) is None:
                found.append(f"{setting} {value:g} costs no iterations here: convergence.{penalty} is not given")
            elif value != exact and setting == "staleness" and not self.curve and not self.min_steps:
                found.append(f"staleness {value:g} costs no iterations here: its penalty counts in min_steps, and none are given")
        if self.curve and not self.curve[0][0] <= global_batch <= self.curve[-1][0]:
            kept = "samples" if global_batch < self.curve[0][0] else "iterations"
            first, last = self.curve[0][0], self.curve[-1][0]
            found.append(f"global batch {global_batch:g} is outside the curve ({first:g} to {last:g}): its last {kept} are kept")
        return found


@dataclass(frozen=True)
class TimeToAccuracy:
    """Training to a target: iterations, samples, seconds, and the cost in the currency of the price (None without one)."""

    iterations: float
    samples: float
    seconds: float
    cost: float | None
    basis: str
    source: str = ""
    target: str = ""
    currency: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def hours(self) -> float:
        """Hours of training, without checkpoints, validation or start-up."""
        return self.seconds / HOUR

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain values, in the names of the JSON report."""
        return {
            "time_to_accuracy_s": self.seconds,
            "iterations_to_accuracy": self.iterations,
            "samples_to_accuracy": self.samples,
            "cost_to_accuracy": self.cost,
            "accuracy_basis": self.basis,
            "accuracy_source": self.source,
            "accuracy_target": self.target,
        }

    @property
    def words(self) -> str:
        """Where the iterations come from."""
        return f"iterations {self.basis}" + (f": {self.source}" if self.source else "")

    def __str__(self) -> str:
        price = "" if self.cost is None else f", {self.cost:,.2f} {self.currency}".rstrip()
        step = self.seconds / self.iterations
        target = f" to {self.target}" if self.target else ""
        return f"{self.hours:,.4g} h{target} = {self.iterations:,.0f} iterations x {step * 1e3:.2f} ms{price} ({self.words})"


def time_to_accuracy(
    run: Run,
    convergence: Convergence | None = None,
    *,
    iterations: float | None = None,
    epochs: float | None = None,
    dataset_size: float | None = None,
    source: str = "",
) -> TimeToAccuracy:
    """Return how long `run` trains to the target: by `convergence`, or a given number of iterations, or of epochs.

    What the strategy's settings `staleness`, `local_steps` and `density` say of how it trains goes into a convergence; a
    given number of iterations or epochs is taken as it is.

    >>> from poseidon_sim import Cluster, gpu, load_model, simulate
    >>> cluster = Cluster(nodes=1, gpu=gpu("p100-sxm2-16gb"))
    >>> run = simulate(load_model("resnet50", single_gpu_throughput=200), cluster, "all-reduce", batch_size=32)
    >>> print(time_to_accuracy(run, epochs=90, dataset_size=1_281_167))
    160.1 h = 3,603,282 iterations x 160.00 ms (iterations given)
    """
    if convergence is None and iterations is not None and epochs is None:
        convergence = Convergence(min_steps=iterations, basis="given", source=source)
    elif convergence is None and iterations is None and epochs is not None and dataset_size is not None:
        convergence = Convergence(min_samples=epochs * dataset_size, basis="given", source=source)
    elif convergence is None or iterations is not None or epochs is not None:
        raise InputError("time_to_accuracy takes exactly one of the three: a convergence, iterations, or epochs and dataset_size")
    settings = run.strategy.describe()
    how = {name: float(value) for name in HOW_TRAINED if isinstance(value := settings.get(name), (int, float))}
    steps = convergence.iterations(run.global_batch, **how)
    seconds = steps * run.step_time
    cost = None if run.price_per_hour is None else run.price_per_hour * seconds / HOUR
    return TimeToAccuracy(
        steps, steps * run.global_batch, seconds, cost, convergence.basis, convergence.source, convergence.target, run.currency,
        tuple(convergence.doubts(run.global_batch, **how)),
    )  # fmt: skip


def fit_convergence(points: Iterable[tuple[float, float]], **more: Any) -> Convergence:
    """Fit min_steps and min_samples to measured (global batch, iterations), by least squares between logarithms.

    >>> law = fit_convergence([(32, 9000), (128, 3000), (512, 1500)])
    >>> round(law.min_steps), round(law.critical_batch), law.basis
    (1000, 256, 'fitted')
    """
    curve = tuple(sorted((float(batch), float(steps)) for batch, steps in points))
    if len({batch for batch, _ in curve}) < 2 or any(not 0 < value < math.inf for point in curve for value in point):
        raise InputError("fitting convergence needs iterations at two or more global batches, all above 0")

    def missed(log_critical: float) -> tuple[float, float]:
        logs = [math.log(steps / (1.0 + math.exp(log_critical) / batch)) for batch, steps in curve]
        mean = math.fsum(logs) / len(logs)
        return math.fsum((each - mean) ** 2 for each in logs), mean

    low, high = math.log(curve[0][0] / 1e3), math.log(curve[-1][0] * 1e3)
    tries = [low + (high - low) * i / 400 for i in range(401)]
    best = min(range(401), key=lambda i: missed(tries[i])[0])
    low, high = tries[max(0, best - 1)], tries[min(400, best + 1)]
    for _ in range(60):  # golden section
        left, right = high - 0.618 * (high - low), low + 0.618 * (high - low)
        low, high = (low, right) if missed(left)[0] < missed(right)[0] else (left, high)
    steps = math.exp(missed(low)[1])
    return replace(Convergence(min_steps=steps, min_samples=steps * math.exp(low), basis="fitted"), **more)


def read_curve(path: str | Path) -> tuple[tuple[float, float], ...]:
    """Read a CSV with the columns global_batch and iterations; others are ignored."""
    try:
        with open(path, newline="", encoding="utf-8") as lines:
            rows = list(csv.DictReader(lines))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        advice = "give a CSV with the columns global_batch and iterations"
        raise UnreadableFileError(f"{path}: cannot be read ({reason}); {advice}") from None
    if not rows or not {"global_batch", "iterations"} <= set(rows[0]):
        raise UnreadableFileError(f"{path}: has no columns global_batch and iterations with a row below")
    try:
        curve = tuple(sorted((float(row["global_batch"]), float(row["iterations"])) for row in rows))
    except (TypeError, ValueError):
        raise UnreadableFileError(f"{path}: global_batch and iterations must be numbers in every row") from None
    _check_curve(curve)
    return curve


def _check_curve(curve: tuple[tuple[float, float], ...]) -> None:
    for batch, steps in curve:
        if not (0 < batch < math.inf and 0 < steps < math.inf):
            raise InputError(f"convergence.curve: global batch {batch:g} with {steps:g} iterations; both must be above 0")
    batches = [batch for batch, _ in curve]
    if batches != sorted(set(batches)):
        raise InputError("convergence.curve: global batches must rise from point to point, each given once")


def _on_curve(curve: tuple[tuple[float, float], ...], batch: float) -> float:
    """Return the iterations at a batch: a straight line between two points on logarithms."""
    if batch <= curve[0][0]:
        return curve[0][1] * curve[0][0] / batch
    for (left, above), (right, below) in pairwise(curve):
        if batch <= right:
            share = math.log(batch / left) / math.log(right / left)
            return math.exp((1 - share) * math.log(above) + share * math.log(below))
    return curve[-1][1]
