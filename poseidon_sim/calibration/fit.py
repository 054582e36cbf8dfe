"""Fits of transport: latency and bandwidth from times by size, goodput from streams, and what a collective call costs.

A transfer of S bytes is taken to cost alpha + S / beta (Hockney), an all-reduce among n ranks in a ring overhead + 2 (n - 1) hops +
2 (n - 1) / n S / beta (Thakur et al. 2005). Lines are fitted to relative errors, so small messages count as much as large ones, and
points far off count less. What the logs cannot tell apart is left out, and said.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from poseidon_sim.calibration.readers import Measurement
from poseidon_sim.errors import InputError
from poseidon_sim.units import format_rate

Floats = npt.NDArray[np.float64]
#: relative errors above this many times their median are held for outliers
FAR = 4.0
#: median relative error above which one straight line does not describe the data
BENT = 0.1


@dataclass(frozen=True)
class Line:
    """time = alpha + size x slope, and how far the points are from it: median and worst relative error."""

    alpha: float
    slope: float
    median: float
    worst: float


@dataclass(frozen=True)
class Parameter:
    """One number of a cluster file: its key below cluster, its value in SI units and as written, and where it comes from."""

    key: str
    value: float
    written: str
    source: str


@dataclass(frozen=True)
class Calibration:
    """What logs say of a cluster, and what they leave open."""

    parameters: tuple[Parameter, ...]
    notes: tuple[str, ...]

    def cluster(self) -> dict[str, Any]:
        """Return the keys below `cluster`, as a scenario spells them."""
        found: dict[str, Any] = {}
        for each in self.parameters:
            where = found
            *path, last = each.key.split(".")
            for part in path:
                where = where.setdefault(part, {})
            where[last] = each.written
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {"cluster": self.cluster(), "parameters": [vars(p) for p in self.parameters], "notes": list(self.notes)}

    def __str__(self) -> str:
        lines = ["# put these under cluster: of a scenario"]
        opened = ""
        for each in self.parameters:
            head, _, last = each.key.rpartition(".")
            if head and head != opened:
                lines.append(f"{head}:")
            opened = head
            lines.append(f"{'  ' if head else ''}{last or head}: {each.written}  # {each.source}")
        return "\n".join([*lines, *(f"# {note}" for note in self.notes)])


def fit_line(sizes: Sequence[float], times: Sequence[float]) -> Line:
    """Fit time = alpha + slope x size to relative errors, alpha and slope at least 0; outliers count less.

    >>> line = fit_line([1e3, 1e5, 1e7], [1.1e-5, 1.1e-4, 1.001e-2])
    >>> f"{line.alpha:.1e} {line.slope:.2e}"
    '1.0e-05 1.00e-09'
    """
    x, y = np.asarray(sizes, dtype=np.float64), np.asarray(times, dtype=np.float64)
    weights = np.ones(len(x))
    alpha = slope = 0.0
    for _ in range(30):
        scale = np.sqrt(weights) / y
        matrix = np.stack([scale, x * scale], axis=1)
        unit = np.maximum(np.linalg.norm(matrix, axis=0), 1e-300)
        solved = np.linalg.lstsq(matrix / unit, np.sqrt(weights), rcond=None)[0] / unit
        alpha, slope = float(solved[0]), float(solved[1])
        if alpha < 0 or slope < 0:
            alpha, slope = _one_sided(x, y, weights, keep_slope=alpha < 0)
        errors = np.abs((alpha + slope * x) / y - 1.0)
        width = FAR * max(float(np.median(errors)), 1e-9)
        renewed = np.where(errors <= width, 1.0, width / np.maximum(errors, 1e-300))
        if np.allclose(renewed, weights, rtol=1e-6):
            break
        weights = renewed
    errors = np.abs((alpha + slope * x) / y - 1.0)
    return Line(alpha, slope, float(np.median(errors)), float(errors.max()))


def _one_sided(x: Floats, y: Floats, weights: Floats, keep_slope: bool) -> tuple[float, float]:
    basis = x / y if keep_slope else 1.0 / y
    value = float((weights * basis).sum() / max(float((weights * basis * basis).sum()), 1e-300))
    return (0.0, value) if keep_slope else (value, 0.0)


def calibrate(measurements: Iterable[Measurement], line_rate: float | None = None) -> Calibration:
    """Return the cluster parameters that measurements determine.

    Parameters
    ----------
    line_rate : bytes/s of a port; with it the file says bandwidth and efficiency apart.
    """
    rows = list(measurements)
    if not rows:
        raise InputError("no measurements are given; give the logs of at least one benchmark")
    parameters: list[Parameter] = []
    notes: list[str] = []
    latency, rates = _point_to_point(rows, notes)
    overhead, ring_rate, ring_latency = _all_reduces(rows, latency[0] if latency else None, notes)
    rate = ring_rate or (max(rates) if rates else None)
    if ring_rate and rates:
        notes.append(f"streams reached {format_rate(max(rates)[0])}; the all-reduces' rate is taken, it is what training sees")
    if rate is not None:
        goodput, source = rate
        if line_rate is None:
            parameters.append(Parameter("network.bandwidth", goodput, _rate(goodput), source))
        else:
            if goodput > line_rate * 1.02:
                text = f"the measured goodput {format_rate(goodput)} exceeds the line rate {format_rate(line_rate)}"
                raise InputError(f"{text}; give the port's rate")
            share = min(1.0, goodput / line_rate)
            parameters.append(Parameter("network.bandwidth", line_rate, _rate(line_rate), "line rate as given"))
            parameters.append(Parameter("network.efficiency", share, f"{share:.4g}", f"goodput over line rate: {source}"))
    for key, found in (("network.latency", latency or ring_latency), ("network.collective_overhead", overhead)):
        if found is not None and found[0] > 0:
            parameters.append(Parameter(key, found[0], f"{found[0] * 1e6:.4g} us", found[1]))
    parameters += _inside(rows, notes)
    return Calibration(tuple(parameters), tuple(notes))


Found = tuple[float, str]


def _point_to_point(rows: list[Measurement], notes: list[str]) -> tuple[Found | None, list[Found]]:
    timed = [r for r in rows if r.operation == "point-to-point" and r.time is not None and r.size > 0]
    streams = [(float(r.bandwidth), f"{r.tool}, {r.where}") for r in rows if r.operation == "stream" and r.bandwidth]
    if not timed:
        return None, streams
    line = _line_of(timed, notes, "point-to-point times")
    source = f"{_files(timed)}: alpha of alpha + S/beta, {_residual(line)}"
    if line.slope > 0:
        streams.append((1.0 / line.slope, f"{_files(timed)}: beta of alpha + S/beta, {_residual(line)}"))
    return (line.alpha, source), streams


def _all_reduces(
    rows: list[Measurement], latency: float | None, notes: list[str]
) -> tuple[Found | None, Found | None, Found | None]:
    """Return (overhead of a call, goodput, latency of a hop) from all-reduces among one GPU of each of several nodes."""
    by_ranks: dict[int, list[Measurement]] = {}
    for row in rows:
        if row.operation == "all-reduce" and row.time is not None and row.ranks > 1 and row.nodes == row.ranks:
            by_ranks.setdefault(row.ranks, []).append(row)
    mixed = {(r.ranks, r.nodes) for r in rows if r.operation == "all-reduce" and 1 < r.nodes < r.ranks}
    if mixed:
        text = "all-reduces with several GPUs in each of several nodes load wires inside and between nodes at once"
        notes.append(f"{text}; they are not used")
    if any(r.operation == "all-reduce" and not r.ranks for r in rows):
        notes.append("all-reduces whose log does not tell the number of ranks (OSU) are not used")
    if not by_ranks:
        return None, None, None
    lines = {n: _line_of(found, notes, f"all-reduces of {n} ranks") for n, found in by_ranks.items()}
    largest = max(lines)
    line, source = lines[largest], f"{_files(by_ranks[largest])}: ring of {largest}, {_residual(lines[largest])}"
    goodput = (2 * (largest - 1) / largest / line.slope, source) if line.slope > 0 else None
    if latency is not None:
        overhead = max(0.0, line.alpha - 2 * (largest - 1) * latency)
        return (overhead, f"{source}, less 2(n-1) hops of the latency"), goodput, None
    if len(lines) > 1:
        hops = fit_line([2.0 * (n - 1) for n in lines], [max(each.alpha, 1e-9) for each in lines.values()])
        over = f"alpha of all-reduces of {', '.join(map(str, sorted(lines)))} ranks over 2(n-1)"
        return (hops.alpha, over), goodput, (hops.slope, over)
    text = "one number of ranks cannot tell the latency of a hop from the overhead of a call"
    notes.append(f"{text}: all is called overhead; add osu_latency, or a log of another number of ranks")
    return (line.alpha, source), goodput, None


def _inside(rows: list[Measurement], notes: list[str]) -> list[Parameter]:
    """Return what all-reduces inside one node say of the wires between its GPUs."""
    inner = [r for r in rows if r.operation == "all-reduce" and r.time is not None and r.ranks > 1 and r.nodes == 1]
    if not inner:
        return []
    ranks = max(r.ranks for r in inner)
    mine = [r for r in inner if r.ranks == ranks]
    line = _line_of(mine, notes, f"all-reduces of {ranks} GPUs of one node")
    source = f"{_files(mine)}: ring of {ranks} GPUs of one node, {_residual(line)}"
    hop = line.alpha / (2 * (ranks - 1))
    if line.slope > 0:
        rate = 2 * (ranks - 1) / ranks / line.slope
        text = f"each GPU reaches {format_rate(rate)} towards its neighbours ({source})"
        notes.append(f"{text}: that is gpu.peer_bandwidth of a GPU written out")
    return [Parameter("peer_latency", hop, f"{hop * 1e6:.4g} us", f"{source}, over 2(n-1) hops")] if hop > 0 else []


def _line_of(rows: list[Measurement], notes: list[str], what: str) -> Line:
    if len({r.size for r in rows}) < 2:
        text = f"{_files(rows)}: {what} have one size; a latency and a rate need at least two"
        raise InputError(f"{text}, better a range from 1 KB to 256 MB")
    line = fit_line([r.size for r in rows], [float(r.time or 0.0) for r in rows])
    if line.median > BENT:
        notes.append(f"{what} are not on one line ({_residual(line)}): protocols change with size; trust neither end beyond that")
    return line


def _residual(line: Line) -> str:
    return f"residual {line.median:.1%} median, {line.worst:.1%} worst"


def _files(rows: list[Measurement]) -> str:
    return ", ".join(dict.fromkeys(r.where.split(":")[0].split("/")[-1] for r in rows))


def _rate(rate: float) -> str:
    return f"{rate * 8e-9:.5g} Gbit/s"
