"""What the scripts of the systems share: published rows, rows predicted beside them, the table and its file.

A script of a system defines ``rows() -> list[Row]`` and ``main(out_dir)``, which shows them;
`reproduce report` gathers the rows of all of them.
"""

from __future__ import annotations

import csv
import importlib
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
#: in a checkout validation/ stands beside experiments/, in a wheel _validation/ beside _experiments/
TARGETS = HERE.parent / HERE.name.replace("experiments", "validation") / "corpora" / "data" / "system_targets.csv"
USES = ("fitted", "predicted", "given", "counted", "not modelled")
FLAGS = ("exact", "derived", "figure", "secondary", "recalled")


@dataclass(frozen=True)
class Row:
    """One published figure and ours, in the same unit.

    Parameters
    ----------
    id : of the published row.
    what : system, job, size and metric in words.
    published, predicted : the figure; None where we predict nothing (`reason` says why).
    use : 'fitted' (a number was chosen by it), 'predicted', 'given' (an input), 'counted' (bytes or rounds, no time) or 'not modelled'.
    flag : how the published figure is known: exact, derived, figure, secondary or recalled.
    reason : why it is not modelled, or the mechanism suspected behind a miss.
    """

    id: str
    what: str
    published: float
    predicted: float | None
    use: str
    flag: str
    reason: str = ""

    def __post_init__(self) -> None:
        assert self.use in USES and self.flag in FLAGS, (self.id, self.use, self.flag)

    @property
    def error(self) -> float | None:
        """Relative error, None without a prediction."""
        return None if self.predicted is None else self.predicted / self.published - 1.0


def targets(*prefixes: str) -> list[dict[str, str]]:
    """Return the published rows whose id begins with one of these, in file order; values are text as in the file."""
    with open(TARGETS, newline="", encoding="utf-8") as lines:
        return [line for line in csv.DictReader(lines) if line["id"].startswith(prefixes)]


def corpora(name: str) -> Any:
    """Return a module of validation/corpora: the records of all published rows, the replay of a recorded trace."""
    folder = TARGETS.parents[2]  # validation, called _validation in a wheel
    sys.path.insert(0, str(folder.parent))
    try:
        return importlib.import_module(f"{folder.name}.corpora.{name}")
    finally:
        sys.path.remove(str(folder.parent))


def flag_of(confidence: str) -> str:
    """Return how a figure is known, from the words of its row's confidence: the same for scripts and corpora."""
    return str(corpora("records").flag_of(confidence))


def summary(table: Iterable[Row]) -> list[str]:
    """Return a line per use: number of rows that are not recalled or second-hand, median and worst error."""
    lines = []
    for use in USES[:2]:
        errors = sorted(abs(r.error) for r in table if r.use == use and r.error is not None and r.flag in FLAGS[:3])
        if errors:
            lines.append(f"{use}: {len(errors)} rows, median error {errors[len(errors) // 2]:.1%}, worst {errors[-1]:.1%}")
    return lines


def show(table: list[Row], out_dir: Path) -> None:
    """Print the table with its summary and write it to `out_dir`/rows.csv."""
    print(f"{'id':<30} {'what':<90} {'published':>10} {'predicted':>10} {'error':>7}  {'use':<12} flag")
    for row in table:
        predicted = "-" if row.predicted is None else f"{row.predicted:.4g}"
        error = "-" if row.error is None else f"{row.error:+.1%}"
        print(f"{row.id:<30} {row.what:<90.90} {row.published:>10.4g} {predicted:>10} {error:>7}  {row.use:<12} {row.flag}"
              f"{row.reason and '  ' + row.reason}")  # fmt: skip
    for line in summary(table):
        print(line)
    out_dir.mkdir(parents=True, exist_ok=True)
    with open(out_dir / "rows.csv", "w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, [*Row.__dataclass_fields__, "error"])
        writer.writeheader()
        writer.writerows({**asdict(row), "error": row.error} for row in table)
    print(f"table: {out_dir / 'rows.csv'}")
