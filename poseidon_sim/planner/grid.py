"""Run a grid of scenarios; finished rows are on disk at once, a rerun does only what is missing.

`rows.jsonl` is the log, in order of finishing; `results.csv` is written from it in grid order, so it does not
depend on the number of jobs or on interruptions.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poseidon_sim.errors import InputError, PoseidonSimError, UnreadableFileError
from poseidon_sim.planner.pools import DeadWorkerError, check_backend, connected, run_slices
from poseidon_sim.provenance import digest
from poseidon_sim.scenario import load_scenario
from poseidon_sim.simulation import settled_engine, simulate
from poseidon_sim.strategy.base import Strategy

#: columns of results.csv that are measured, after the columns of the grid; p5 to p95 holds 90 % of measured cases like it
COLUMNS = (
    "step_time_s", "step_time_p5_s", "step_time_p25_s", "step_time_p75_s", "step_time_p95_s",
    "throughput_samples_per_s", "speedup", "scaling_efficiency", "compute_time_s", "communication_time_s",
    "exposed_communication_s", "wait_time_s", "overlap", "bytes_sent_per_node", "bottleneck", "num_gpus",
    "iterations_to_accuracy", "time_to_accuracy_s", "cost_to_accuracy", "warnings", "error",
)  # fmt: skip

Point = dict[str, object]

#: a worker hands its rows over after about so many seconds: what a kill can lose
PATIENCE = 0.5
MOST_IN_SLICE = 200
#: points of one grid: they are held in memory, and hours even of a large cluster
MOST_POINTS = 5_000_000
#: axes along which points share a recording
_BOUND_LATE = ("batch_size", "cluster.network.bandwidth", "cluster.network.efficiency")


def grid_points(grid: Mapping[str, Sequence[object]]) -> list[Point]:
    """Return every combination of a grid, the last key turning fastest.

    >>> grid_points({"nodes": [1, 2], "strategy": ["a"]})
    [{'nodes': 1, 'strategy': 'a'}, {'nodes': 2, 'strategy': 'a'}]
    """
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def run_point(base: Any, point: Point, engine: str = "auto") -> dict[str, object]:
    """Simulate one point of a grid; a point that cannot be simulated gives a row with its error."""
    try:
        run = simulate(load_scenario(base, **point), engine=engine)
        result = run.summary()
    except PoseidonSimError as error:
        return {**point, "error": str(error)}
    row = {name: result.get(name) for name in COLUMNS}
    row["step_time_p5_s"], row["step_time_p95_s"] = run.trust.most
    row["step_time_p25_s"], row["step_time_p75_s"] = run.trust.half
    row["warnings"] = "; ".join(result["warnings"])
    return {**point, **row, "error": ""}


def sweep(
    base: object,
    grid: Mapping[str, Sequence[object]],
    out_dir: str | Path,
    jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
    backend: str = "processes",
) -> Path:
    """Simulate every combination of `grid` over the scenario `base` and return the path of results.csv.

    Parameters
    ----------
    base : a scenario mapping or the path of a scenario file.
    grid : dotted path -> values, e.g. {'nodes': [1, 2, 4], 'strategy': ['poseidon', 'all-reduce']}.
    out_dir : folder for rows.jsonl and results.csv; an earlier, unfinished sweep of the same question is resumed.
    jobs : worker processes.
    progress : called with (done, total) whenever rows are on disk.
    backend : 'processes' on this machine, or joblib's 'dask' or 'ray' on a cluster (see docs/sweeps.md).
    """
    if not isinstance(jobs, int) or jobs < 1:
        raise InputError(f"jobs={jobs!r} must be a whole number of at least 1")
    for name, values in grid.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not len(values):
            raise InputError(f"{name}={values!r} must be a list of values, for example [2, 4, 8]")
        for value in values:
            if isinstance(value, Strategy):
                raise InputError(f"{name}: {value!r} is an object; write its name, {value.name!r}")
    check_backend(backend)
    count = math.prod(len(values) for values in grid.values())
    if count > MOST_POINTS:
        raise InputError(f"the grid has {count:,} points, more than {MOST_POINTS:,}; give fewer values")
    points = grid_points(grid)
    folder = Path(out_dir)
    key = digest({"base": base if isinstance(base, dict) else _text(base), "grid": grid})
    log = folder / "rows.jsonl"
    _refuse_hopeless(base, points)
    done = _resume(log, key, grid, points)
    todo = [i for i in range(len(points)) if i not in done]
    with open(log, "a", encoding="utf-8") as out:
        if out.tell() == 0:
            out.write(json.dumps({"sweep": key, "rows": len(points), "grid": grid}) + "\n")
        for rows in _run_all(base, points, todo, jobs, backend):
            done.update(rows)
            out.write("".join(json.dumps({"row": index, "values": row}) + "\n" for index, row in rows))
            out.flush()
            if progress is not None:
                progress(len(done), len(points))
    return _write_csv(folder / "results.csv", list(grid), [done[i] for i in range(len(points))])


def _refuse_hopeless(base: Any, points: list[Point]) -> None:
    """Raise the first mistake when no point of the grid can even be read: a wrong key or a missing unit."""
    first: PoseidonSimError | None = None
    for point in points:
        try:
            load_scenario(base, **point)
        except PoseidonSimError as error:
            first = first or error
        else:
            return
    if first is not None:
        raise first


def _text(path: object) -> str:
    try:
        return Path(str(path)).read_text(encoding="utf-8")
    except OSError as error:
        raise UnreadableFileError(f"{path}: cannot be read ({error.strerror}); give the path of a scenario file") from None


def _run_all(
    base: object, points: list[Point], todo: list[int], jobs: int, backend: str
) -> Iterator[list[tuple[int, dict[str, object]]]]:
    """Yield rows some at a time. Points that differ in rates or batch alone lie side by side: they share a recording."""
    order = sorted(todo, key=lambda i: [str(value) for name, value in points[i].items() if name not in _BOUND_LATE])
    size = max(1, min(MOST_IN_SLICE, -(-len(order) // (4 * jobs))))
    left = [[(i, points[i]) for i in order[at : at + size]] for at in range(0, len(order), size)]
    work = _Work(base, settled_engine())
    with connected(jobs, backend):
        while left:
            undone: list[list[tuple[int, Point]]] = []
            for each, answer in run_slices(work, left, jobs, backend):
                if isinstance(answer, DeadWorkerError):
                    yield [(index, {**point, "error": str(answer)}) for index, point in each]
                    continue
                yield [(index, row) for (index, _), row in zip(each, answer, strict=False)]
                if len(answer) < len(each):
                    undone.append(each[len(answer) :])
            left = undone


@dataclass(frozen=True)
class _Work:
    """Simulates a slice of the points of a sweep for about `PATIENCE` seconds; returns the rows it got through."""

    base: object
    engine: str

    def __call__(self, points: Sequence[tuple[int, Point]]) -> list[dict[str, object]]:
        if self.engine == "fast":
            settled_engine()  # a worker elsewhere loads it now, and not while its time runs
        rows, until = [], time.monotonic() + PATIENCE
        for _, point in points:
            rows.append(run_point(self.base, point, self.engine))
            if time.monotonic() > until:
                break
        return rows


def _resume(log: Path, key: str, grid: Mapping[str, Sequence[object]], points: list[Point]) -> dict[int, dict[str, object]]:
    """Read the rows an earlier sweep finished; lines cut short by a kill, or that are no row of this sweep, are done again."""
    log.parent.mkdir(parents=True, exist_ok=True)
    if not log.exists():
        return {}
    records: list[Any] = []
    content = log.read_bytes()
    for line in content.split(b"\n")[:-1]:
        try:
            records.append(json.loads(line))
        except ValueError:
            continue
    head = records[0] if records and isinstance(records[0], dict) else {}
    if "sweep" not in head and content and not content.startswith(b'{"sweep"'):
        raise InputError(f"{log} is no log of a sweep; give another folder with -o")
    if records and head.get("sweep") != key:
        other = head.get("grid")
        shown = textwrap.shorten(json.dumps(other), 200, placeholder=" ...")
        differs = "the scenario was another one" if other == json.loads(json.dumps(grid)) else f"its grid was {shown}"
        raise InputError(f"{log} belongs to another sweep: {differs}; give another folder with -o, or delete it")
    kept = [r for r in records[1:] if _is_row(r, points)]
    temporary = log.with_suffix(".tmp")
    temporary.write_bytes(b"".join(json.dumps(r).encode() + b"\n" for r in [*records[:1], *kept]))
    os.replace(temporary, log)
    return {r["row"]: r["values"] for r in kept}


def _is_row(record: Any, points: list[Point]) -> bool:
    """Whether a line of the log is a finished row: its number, the values of its point, and what was measured or an error."""
    if not isinstance(record, dict) or type(record.get("row")) is not int or not isinstance(record.get("values"), dict):
        return False
    index, values = record["row"], record["values"]
    if not 0 <= index < len(points) or any(values.get(k) != json.loads(json.dumps(v)) for k, v in points[index].items()):
        return False
    return bool(values.get("error")) or (set(COLUMNS) <= values.keys() and isinstance(values["step_time_s"], float))


def _write_csv(path: Path, grid_keys: list[str], rows: list[dict[str, object]]) -> Path:
    import csv

    temporary = path.with_suffix(".tmp")
    with open(temporary, "w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, [*grid_keys, *COLUMNS], restval="")
        writer.writeheader()
        writer.writerows(rows)
    os.replace(temporary, path)
    return path
