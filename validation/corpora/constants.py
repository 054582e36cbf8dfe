"""The fitted numbers and the split of sets into fitted and predicted, as they stand in fitted.csv and split.csv."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

import poseidon_sim as ps

HERE = Path(__file__).resolve().parent


@cache
def fitted() -> dict[str, tuple[float, str]]:
    """Return (value, unit) by name."""
    with open(HERE / "fitted.csv", newline="", encoding="utf-8") as lines:
        return {row["name"]: (float(row["value"]), row["unit"]) for row in csv.DictReader(lines)}


def text(name: str) -> str | float:
    """Return a fitted number as a scenario spells it: '6.4 GB/s', or a bare share."""
    value, unit = fitted()[name]
    return value if unit == "share" else f"{value} {unit}"


@cache
def split() -> dict[str, str]:
    """Return 'fitted' or 'predicted' by set."""
    with open(HERE / "split.csv", newline="", encoding="utf-8") as lines:
        return {row["set"]: row["use"] for row in csv.DictReader(lines)}


def use_of(name: str) -> str:
    """Return how a set is used; sets that are not named are predicted."""
    found = split()
    if name not in found and not name:
        raise ps.InputError("a set needs a name; see split.csv")
    return found.get(name, "predicted")
