"""Read a sweep's results.csv: which columns are axes of the grid, which rows failed, what a rate is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from poseidon_sim.errors import InputError, UnreadableFileError
from poseidon_sim.units import parse_rate

if TYPE_CHECKING:
    import pandas as pd

#: columns of results.csv that are measured; whatever else stands there is an axis of the grid
MEASURED = frozenset({
    "step_time_s", "step_time_p5_s", "step_time_p25_s", "step_time_p75_s", "step_time_p95_s",
    "throughput_samples_per_s", "speedup", "scaling_efficiency", "compute_time_s",
    "communication_time_s", "exposed_communication_s", "wait_time_s", "overlap", "bytes_sent_per_node",
    "bottleneck", "num_gpus", "currency", "iterations_to_accuracy", "time_to_accuracy_s", "cost_to_accuracy", "warnings", "error",
})  # fmt: skip


def read_results(source: str | Path) -> tuple[pd.DataFrame, int]:
    """Return (rows that were simulated, number of rows that failed) of a sweep's folder or its CSV."""
    import csv
    import io

    import pandas as pd

    path = Path(source)
    path = path / "results.csv" if path.is_dir() else path
    try:
        text = path.read_bytes().decode("utf-8-sig")
        table = pd.read_csv(io.StringIO(text))
        widths = [len(row) for row in csv.reader(io.StringIO(text, newline="")) if row]
    except OSError as error:
        if path.with_name("rows.jsonl").exists():
            raise UnreadableFileError(
                f"{path.parent}: the sweep is not finished; run the same sweep command again and it goes on where it stopped"
            ) from None
        raise UnreadableFileError(
            f"{path}: cannot be read ({error.strerror}); give a sweep's folder"
        ) from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError):
        raise UnreadableFileError(f"{path}: is not a table; give the results.csv of a sweep") from None
    short = next((i for i, width in enumerate(widths) if width != widths[0]), None)
    if short is not None:
        raise UnreadableFileError(f"{path}: row {short} has {widths[short]} of {widths[0]} columns, it is cut; run the sweep again")
    if "step_time_s" not in table.columns:
        raise UnreadableFileError(f"{path}: has no column step_time_s; give the results.csv of a sweep")
    good = table[table["step_time_s"].notna()].reset_index(drop=True)
    if not len(good):
        raise InputError(f"{path}: no row was simulated; see its column error")
    return good, len(table) - len(good)


def require(table: pd.DataFrame, columns: tuple[str, ...], figure: str) -> None:
    """Raise InputError when a figure lacks a column."""
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise InputError(
            f"the {figure} figure needs the column{'s' if len(missing) > 1 else ''} {', '.join(missing)}; "
            f"the table has {', '.join(map(str, table.columns))}"
        )


def with_strategy(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with a strategy column, 'predicted' when the grid has none."""
    return table if "strategy" in table.columns else table.assign(strategy="predicted")


def axes_of(table: pd.DataFrame, but: tuple[str, ...] = ("nodes", "strategy")) -> list[str]:
    """Return the grid's columns that take more than one value, without `but`."""
    return [c for c in table.columns if c not in MEASURED and c not in but and table[c].nunique() > 1]


def bandwidth_column(table: pd.DataFrame) -> str | None:
    """Return the column of the grid that holds the network's bandwidth, if there is one."""
    names = [
        c
        for c in table.columns
        if c not in MEASURED and str(c).rsplit(".", 1)[-1] in ("bandwidth", "network")
    ]
    return str(names[0]) if names else None


def rate(value: object, name: str = "bandwidth") -> float:
    """Return a rate in bytes/s: text with a unit, or a number that already is one.

    >>> rate("10 Gbit/s")
    1250000000.0
    """
    if isinstance(value, str):
        return parse_rate(value, name)
    return float(value)  # type: ignore[arg-type]


def facets(table: pd.DataFrame, columns: list[str], most: int = 4) -> list[tuple[str, pd.DataFrame]]:
    """Split a table by the values of further axes: (title, rows) each, in order of first appearance.

    Raises InputError with what to do when there are more than `most`.
    """
    if not columns:
        return [("", table)]
    found = []
    for key, rows in table.groupby(columns, sort=False):
        title = ", ".join(f"{c.rsplit('.', 1)[-1]} {v}" for c, v in zip(columns, key, strict=True))
        found.append((title, rows))
    if len(found) > most:
        raise InputError(
            f"{len(found)} combinations of {', '.join(columns)} do not fit one figure (at most {most}); "
            "sweep fewer values or plot a part of results.csv"
        )
    return found


def gpus(table: pd.DataFrame) -> pd.Series[float]:
    """Return the number of GPUs of every row (the number of nodes when that is all there is)."""
    require(table, ("nodes",), "chosen")
    return (table["num_gpus"] if "num_gpus" in table.columns else table["nodes"]).astype(float)


def constant(table: pd.DataFrame) -> str:
    """Say the axes of the grid that have one value only."""
    ours = MEASURED | {"nodes", "strategy", "source", "megabytes", "num_gpus"}
    fixed = [c for c in table.columns if c not in ours and table[c].nunique() == 1]
    return ", ".join(f"{str(c).rsplit('.', 1)[-1]} {table[c].iloc[0]}" for c in fixed[:3])
