"""Fits of transport: latency and bandwidth from times by size, goodput from streams, and what a collective call costs.

A transfer of S bytes is taken to cost alpha + S / beta (Hockney), an all-reduce among n ranks in a ring overhead + 2 (n - 1) hops +
2 (n - 1) / n S / beta (Thakur et al. 2005). Lines are fitted to relative errors, so small messages count as much as large ones, and
points far off count less. What the logs cannot tell apart is left out, and said.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from poseidon_sim.calibration.lines import Line, Piece, fit_line, fit_pieces
from poseidon_sim.calibration.readers import Measurement
from poseidon_sim.errors import InputError
from poseidon_sim.units import format_rate, format_size, format_time

#: median relative error above which one straight line does not describe the data
BENT = 0.1
#: changes of goodput below this share are not told from chance
NOISE = 0.02


@dataclass(frozen=True)
class Parameter:
    """One entry of a cluster file: its key below cluster, its value in SI units and as written, and where it comes from.

    For `network.incast`, `value` is the smallest share and `written` the points.
    """

    key: str
    value: float
    written: str | list[list[float]]
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


def calibrate(measurements: Iterable[Measurement], line_rate: float | None = None, ranks: int | None = None) -> Calibration:
    """Return the cluster parameters that measurements determine.

    Parameters
    ----------
    line_rate : bytes/s of a port; with it the file says bandwidth and efficiency apart.
    ranks : processes, one a node, of the collectives whose logs do not tell (OSU).
    """
    if ranks is not None and ranks < 2:
        raise InputError(f"ranks={ranks} must be at least 2, the number of processes that took part")
    rows = [replace(r, ranks=ranks, nodes=ranks) if ranks and not r.ranks else r for r in measurements]
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
            best = _best_measured(rows)
            if goodput > line_rate and best <= line_rate * 1.02:  # what the slope says is not what any message reached
                text = f"the slope says {format_rate(goodput)}, more than the port has"
                notes.append(f"{text}: times do not grow along one line; the best that was measured is taken, {format_rate(best)}")
                goodput = best
            if goodput > line_rate * 1.02:
                text = f"the measured goodput {format_rate(goodput)} exceeds the line rate {format_rate(line_rate)}"
                raise InputError(f"{text}; give the port's rate")
            share = min(1.0, goodput / line_rate)
            parameters.append(Parameter("network.bandwidth", line_rate, _rate(line_rate), "line rate as given"))
            parameters.append(Parameter("network.efficiency", share, f"{share:.4g}", f"goodput over line rate: {source}"))
    for key, found in (("network.latency", latency or ring_latency), ("network.collective_overhead", overhead)):
        if found is not None and found[0] > 0:
            parameters.append(Parameter(key, found[0], format_time(found[0]), found[1]))
    parameters += _incast(rows, notes)
    parameters += _inside(rows, notes)
    return Calibration(tuple(parameters), tuple(notes))


def _incast(rows: list[Measurement], notes: list[str]) -> list[Parameter]:
    """Return how the goodput of a port falls with the number of streams into it, from iperf3 runs with several -P."""
    best: dict[int, Measurement] = {}
    for row in rows:
        if row.tool == "iperf3" and row.bandwidth:
            best[row.flows] = max(row, best.get(row.flows, row), key=lambda each: each.bandwidth or 0.0)
    if len(best) < 2:
        return []
    rates = {flows: float(best[flows].bandwidth or 0.0) for flows in sorted(best)}
    top = max(rates, key=lambda flows: rates[flows])
    fewest = min(rates)
    if rates[fewest] < (1 - NOISE) * rates[top]:
        text = f"{fewest} streams reach {format_rate(rates[fewest])}, {top} reach {format_rate(rates[top])}"
        notes.append(f"{text}: a stream has a limit of its own, which a cluster file cannot say; the rate of {top} is the port's")
    points = [[float(flows), round(rate / rates[top], 4)] for flows, rate in rates.items() if flows >= top]
    smallest = min(share for _, share in points)
    if smallest > 1 - NOISE:
        notes.append(f"up to {max(rates)} streams cost a port less than {NOISE:.0%} of its goodput: no incast")
        return []
    source = f"{_files(list(best.values()))}: goodput by streams over the best ({top}); streams of one sender stand for senders"
    return [Parameter("network.incast", smallest, points, source)]


Found = tuple[float, str]


def _best_measured(rows: list[Measurement]) -> float:
    """Return the highest goodput of a port in any single row, bytes/s; of all-reduces the bus bandwidth."""
    best = 0.0
    for row in rows:
        if row.bandwidth:
            best = max(best, row.bandwidth)
        elif row.time and row.operation == "point-to-point":
            best = max(best, row.size / row.time)
        elif row.time and row.operation == "all-reduce" and row.ranks == row.nodes > 1:
            best = max(best, 2 * (row.ranks - 1) / row.ranks * row.size / row.time)
    return best


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
        notes.append("all-reduces whose log does not tell the number of ranks (OSU) are not used; say it (--ranks)")
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
    return [Parameter("peer_latency", hop, format_time(hop), f"{source}, over 2(n-1) hops")] if hop > 0 else []


def _line_of(rows: list[Measurement], notes: list[str], what: str) -> Line:
    if len({r.size for r in rows}) < 2:
        text = f"{_files(rows)}: {what} have one size; a latency and a rate need at least two"
        raise InputError(f"{text}, better a range from 1 KB to 256 MB")
    sizes, times = [r.size for r in rows], [float(r.time or 0.0) for r in rows]
    line = fit_line(sizes, times)
    pieces = fit_pieces(sizes, times)
    if len(pieces) > 1:
        notes.append(f"{what} change with size ({_residual(line)} as one line, which the file holds): {_table(pieces)}")
    elif line.median > BENT:
        notes.append(f"{what} are not on one line ({_residual(line)}), nor on a few: trust neither end beyond that")
    return line


def _table(pieces: tuple[Piece, ...]) -> str:
    """Write pieces as one line: sizes, latency, rate, and the residual they leave."""
    parts = []
    for each in pieces:
        rate = format_rate(1.0 / each.line.slope) if each.line.slope > 0 else "no limit seen"
        span = f"{format_size(each.smallest)} to {format_size(each.largest)}"
        parts.append(f"{span}: {format_time(each.line.alpha)}, {rate} ({_residual(each.line)})")
    return "; ".join(parts)


def _residual(line: Line) -> str:
    return f"residual {line.median:.1%} median, {line.worst:.1%} worst"


def _files(rows: list[Measurement]) -> str:
    return ", ".join(dict.fromkeys(r.where.split(":")[0].split("/")[-1] for r in rows))


def _rate(rate: float) -> str:
    return f"{rate * 8e-9:.5g} Gbit/s"
