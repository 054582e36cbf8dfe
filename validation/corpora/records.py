"""Read the collected measurements; say in one line what is wrong with a file that is not one of them."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path

import poseidon_sim as ps

DATA = Path(__file__).resolve().parent / "data"
#: file -> (corpus, number of rows it must hold)
FILES = {"measurements.csv": 2450, "system_targets.csv": 596, "vtrain_single_node.csv": 1080}
MAX_BYTES = 20_000_000
FLAGS = ("exact", "derived", "figure", "secondary", "recalled")
COLUMNS = {
    "measurements.csv": (
        "id", "source", "system", "model", "strategy", "nodes", "gpus_per_node", "gpu", "network", "bandwidth_gbps",
        "batch_per_gpu", "precision", "metric", "value", "confidence",
    ),
    "system_targets.csv": (
        "id", "paper", "system", "model", "strategy", "nodes", "gpus_per_node", "bandwidth_gbps", "batch_per_gpu", "metric",
        "value", "source", "confidence",
    ),
    "vtrain_single_node.csv": (
        "# GPUs", "global batch", "micro batch", "hidden size", "attention heads", "# layers", "sequence length",
        "tensor parallelism", "data parallelism", "pipeline parallelism", "iteration time (ms)",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Record:
    """One published figure. Text fields are as published; `nodes`, `gpus` (per node), `value` are None where not stated.

    `flag` is exact, derived, figure, secondary or recalled: how the figure is known.
    """

    corpus: str
    id: str
    source: str
    system: str
    model: str
    strategy: str
    nodes: int | None
    gpus: int | None
    gpu: str
    network: str
    bandwidth_gbps: float | None
    batch: str
    precision: str
    metric: str
    value: float | None
    confidence: str
    flag: str

    @property
    def set(self) -> str:
        """The prefix of the id, which names the source."""
        return self.id.split("-")[0]


def read(path: Path) -> list[Record]:
    """Read one file of measurements.

    Raises
    ------
    ps.UnreadableFileError : missing, too large, not UTF-8, not CSV.
    ps.InputError : other columns than this file has, a row cut short, an id twice, a number that is none.
    """
    header, rows = _table(path)
    known = COLUMNS[_kind(path, header)]
    records, seen = [], set()
    for line, row in enumerate(rows, start=2):
        if len(row) != len(known):
            raise ps.InputError(
                f"{path.name}:{line}: {len(row)} fields where the header has {len(known)}; the file is cut short or a comma is unquoted"
            )
        record = _record(path.name, line, dict(zip(known, row, strict=True)))
        if record.id in seen:
            raise ps.InputError(f"{path.name}:{line} id={record.id!r} stands twice; give each row an id of its own")
        seen.add(record.id)
        records.append(record)
    if not records:
        raise ps.InputError(f"{path.name}: holds a header and no rows; restore the file")
    return records


def read_all(folder: Path = DATA) -> list[Record]:
    """Read every file and check that none has lost a row."""
    found = []
    for name, expected in FILES.items():
        records = read(folder / name)
        if len(records) != expected:
            raise ps.InputError(f"{name}: {len(records)} rows, but {expected} were collected; restore the file (a part is missing)")
        found += records
    return found


def _table(path: Path) -> tuple[list[str], list[list[str]]]:
    try:
        size = path.stat().st_size
        text = path.read_bytes().decode("utf-8-sig") if size <= MAX_BYTES else ""
    except OSError as error:
        raise ps.UnreadableFileError(f"{path}: cannot be read ({error.strerror}); restore the file") from None
    except UnicodeDecodeError as error:
        raise ps.UnreadableFileError(f"{path}: is not UTF-8 text (byte {error.start}); restore the file") from None
    if size > MAX_BYTES:
        raise ps.UnreadableFileError(f"{path}: larger than {MAX_BYTES} bytes, which no file of measurements is")
    try:
        rows = list(csv.reader(text.splitlines(keepends=True), strict=True))
    except csv.Error as error:
        raise ps.UnreadableFileError(f"{path}: is not CSV ({error}); restore the file") from None
    if not rows:
        raise ps.UnreadableFileError(f"{path}: is empty; restore the file")
    return rows[0], rows[1:]


def _kind(path: Path, header: list[str]) -> str:
    for name, columns in COLUMNS.items():
        if tuple(header) == columns:
            return name
    wanted = COLUMNS.get(path.name)
    missing = [c for c in wanted or () if c not in header]
    detail = f"columns {', '.join(missing[:5])} are missing" if missing else f"the header begins {', '.join(header[:4])!r}"
    raise ps.InputError(f"{path.name}:1: not a file of measurements: {detail}; known are {', '.join(COLUMNS)}")


def _record(file: str, line: int, row: dict[str, str]) -> Record:
    def number(key: str, required: bool = False) -> float | None:
        text = row.get(key, "").strip()
        try:
            value = float(text) if text else None
        except ValueError:
            value = None if not required else math.nan
        if required and (value is None or not math.isfinite(value)):
            raise ps.InputError(f"{file}:{line} {key}={text!r} must be a finite number")
        return value

    def whole(key: str) -> int | None:
        value = number(key)
        return int(value) if value is not None and value == int(value) else None

    if file.startswith("vtrain") or "# GPUs" in row:
        value = number("iteration time (ms)", required=True)
        tp, dp, pp = (row[f"{kind} parallelism"] for kind in ("tensor", "data", "pipeline"))
        model = (
            f"GPT hidden {row['hidden size']}, {row['attention heads']} heads, {row['# layers']} layers, "
            f"sequence {row['sequence length']}"
        )
        strategy = f"TP={tp} DP={dp} PP={pp}; micro batch {row['micro batch']}, global batch {row['global batch']}"
        return Record(
            "vtrain_single_node", f"vtrs-{line - 1:04d}", "VIA-Research/vTrain@f8dda84", "one node of 8 A100", model, strategy, 1,
            whole("# GPUs"), "A100", "NVLink", None, row["micro batch"], "fp16", "step_time_ms", value, "exact", "exact",
        )  # fmt: skip
    targets = "paper" in row
    value = number("value", required=not targets)  # a target may be a pair or a range in words
    confidence = row["confidence"]
    return Record(
        "system_targets" if targets else "measurements", row["id"], row.get("paper", row["source"]), row["system"], row["model"],
        row["strategy"], whole("nodes"), whole("gpus_per_node"), row.get("gpu", ""), row.get("network", ""),
        number("bandwidth_gbps"), row["batch_per_gpu"], row.get("precision", ""), row["metric"], value, confidence,
        flag_of(confidence),
    )  # fmt: skip


def flag_of(confidence: str) -> str:
    """Return how a figure is known, from the words of its file.

    >>> flag_of("high (value computed from logs)"), flag_of("low until checked (recalled from the paper)")
    ('derived', 'recalled')
    """
    words = confidence.lower()
    if "recall" in words and not words.startswith("exact"):
        return "recalled"
    first = words.split()[0].strip(";,(") if words else ""
    if first in FLAGS:
        return "secondary" if first == "exact" and "secondary" in words else first
    if "computed" in words or first == "derived":
        return "derived"
    if "only in a figure" in words:
        return "figure"
    return "exact" if first == "high" or "throughput exact" in words else "secondary"
