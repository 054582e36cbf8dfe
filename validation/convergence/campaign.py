"""Measure every way of training; a run that was cut short goes on where it stopped.

    python -m validation.convergence.campaign          # about 13 minutes of one core; needs torch and scikit-learn
"""

from __future__ import annotations

import csv
import datetime
import platform
import time
from pathlib import Path

import numpy
import sklearn
import torch

from validation.convergence.measure import RATES, Found, measure
from validation.convergence.training import Way

MEASURED = Path(__file__).resolve().parents[1] / "measured" / "convergence.csv"
TARGET = 0.95
SEEDS = {"mlp": tuple(range(1, 12)), "cnn": tuple(range(1, 8))}
COLUMNS = (
    "network", "way", "global_batch", "workers", "amount", "target_accuracy", "iterations", "learning_rate", "iterations_by_seed",
    "rates_tried", "seconds", "torch", "numpy", "sklearn", "python", "threads", "taken",
)  # fmt: skip

MLP = [
    *(Way("sync", batch, 1) for batch in (2, 4, 8, 16, 32, 64, 128, 256, 512)),
    *(Way("stale", batch, 1, delay) for batch in (16, 64, 256) for delay in (1, 2, 4, 8)),
    *(Way("local", batch, 8, steps) for batch in (16, 64, 256) for steps in (2, 4, 8, 16)),
    *(Way("elastic", batch, 8, steps) for batch in (16, 64, 256) for steps in (1, 4, 16)),
    *(Way("sparse", batch, 8, density) for batch in (16, 64, 256) for density in (1.0, 0.3, 0.1, 0.03, 0.01)),
]
CNN = [
    *(Way("sync", batch, 1) for batch in (4, 16, 64, 256)),
    *(Way("stale", batch, 1, delay) for batch in (16, 64) for delay in (2, 8)),
    *(Way("local", 64, 8, steps) for steps in (4, 16)),
    Way("elastic", 64, 8, 4),
    *(Way("sparse", 64, 8, density) for density in (0.1, 0.01)),
]


def key(row: dict[str, str]) -> tuple[str, str, int, int, float]:
    """Return what a row measured."""
    return row["network"], row["way"], int(row["global_batch"]), int(row["workers"]), float(row["amount"])


def rows(path: Path = MEASURED) -> list[dict[str, str]]:
    """Return what is measured so far."""
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def run(path: Path = MEASURED) -> None:
    """Measure what is missing; every result is on disk at once."""
    torch.set_num_threads(1)
    done = {key(row) for row in rows(path)}
    with open(path, "a", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
        if out.tell() == 0:
            writer.writeheader()
        for network, ways in (("mlp", MLP), ("cnn", CNN)):
            for way in ways:
                if (network, way.kind, way.batch, way.workers, float(way.amount)) not in done:
                    began = time.process_time()
                    row = _row(network, way, measure(network, way, TARGET, SEEDS[network]), time.process_time() - began)
                    writer.writerow(row)
                    out.flush()
                    print(network, way, row["iterations"], row["learning_rate"], f"{row['seconds']} s", flush=True)


def _row(network: str, way: Way, found: Found | None, seconds: float) -> dict[str, object]:
    """Return a line of the file; no iterations where the target was not reached."""
    return {
        "network": network, "way": way.kind, "global_batch": way.batch, "workers": way.workers, "amount": way.amount,
        "target_accuracy": TARGET, "iterations": f"{found.mean:.1f}" if found else "", "learning_rate": found.rate if found else "",
        "iterations_by_seed": ";".join(map(str, found.iterations)) if found else "",
        "rates_tried": ";".join(f"{rate:g}" for rate in RATES), "seconds": f"{seconds:.1f}", "torch": torch.__version__,
        "numpy": numpy.__version__, "sklearn": sklearn.__version__, "python": platform.python_version(),
        "threads": torch.get_num_threads(), "taken": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
    }  # fmt: skip


if __name__ == "__main__":
    run()
