"""The rows of a script of experiments/, by id."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"
Table = dict[str, Any]


def script(name: str) -> Any:
    """Import a script of experiments/ as `import name` would there."""
    if str(EXPERIMENTS) not in sys.path:
        sys.path.insert(0, str(EXPERIMENTS))
    return importlib.import_module(name)


def script_rows(name: str) -> Table:
    """Return its rows; one row an id."""
    rows = script(name).rows()
    table = {row.id: row for row in rows}
    assert len(table) == len(rows)
    return table


def complete(table: Table, *prefixes: str) -> bool:
    """Whether every published row is there, with a finite figure or a reason."""
    ids = {line["id"] for line in script("published").targets(*prefixes)}
    said = all(row.reason if row.predicted is None else abs(row.predicted) < float("inf") for row in table.values())
    return ids == set(table) and said


def errors(table: Table, *prefixes: str, use: str = "predicted") -> list[float]:
    """Return the sorted sizes of the errors of rows that are not recalled or second-hand."""
    rows = [r for n, r in table.items() if n.startswith(prefixes) and r.use == use and r.flag in ("exact", "derived", "figure")]
    return sorted(abs(r.error) for r in rows)
