"""Write a trace as Chrome trace JSON: processes for a node's GPU, host and port, lanes for what they do.

Format: the Trace Event Format ('X' spans, 'C' counters, 's'/'f' arrows, 'M' names, times in microseconds);
the Perfetto UI opens it. Equal nodes that were folded show once, as "nodes 0.. (16 alike)".
"""

from __future__ import annotations

import gzip
import json
import os
import warnings
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from poseidon_sim.cluster.build import class_label
from poseidon_sim.plan.record import KIND, KINDS
from poseidon_sim.trace.trace import Trace

#: kind of task -> (process, lane)
_LANES = {
    "forward": ("GPU", "compute"),
    "backward": ("GPU", "compute"),
    "load": ("GPU", "input"),
    "rebuild": ("GPU", "rebuild"),
    "update": ("GPU", "quantise, pack and update"),
    "copy_out": ("host", "copy to host"),
    "copy_in": ("host", "copy to GPU"),
    "host": ("host", "summing"),
    "send": ("NIC", "sending"),
    "collective": ("NIC", "collective"),
}
_PROCESSES = ("GPU", "host", "NIC")
_LANE_ORDER = (
    *("compute", "rebuild", "quantise, pack and update", "input", "copy to host", "copy to GPU", "summing"),
    *("sending", "receiving", "collective"),
)
#: sub-lanes of one lane get consecutive places; more than this many share the last place in the sort order
_SUB_LANES = 1000
#: counters of utilisation: kind of link -> (process it shows under, name)
_COUNTERS = {
    "nic_out": ("NIC", "sending, share of the port"),
    "nic_in": ("NIC", "receiving, share of the port"),
    "pcie_to_host": ("host", "PCIe to host, share"),
    "pcie_to_gpu": ("host", "PCIe to GPU, share"),
}
MAX_EVENTS = 1_000_000


def save_timeline(
    trace: Trace, path: str | Path, arrows: Sequence[int] = (), max_events: int = MAX_EVENTS
) -> Path:
    """Write the timeline to `path` (gzip if it ends in .gz) by way of a temporary name; return the path.

    Parameters
    ----------
    arrows : tasks, in order of time, that arrows connect: the critical path.
    max_events : spans and counters beyond about this number are left out, latest first, with a warning.
    """
    target = Path(path)
    events = timeline_events(trace, arrows, max_events)
    other = {
        "tool": "poseidon_sim",
        "warm_up_iterations": trace.warm_up,
        "measured_iterations": trace.num_measured,
    }
    text = json.dumps(
        {"displayTimeUnit": "ms", "otherData": other, "traceEvents": events},
        separators=(",", ":"),
        allow_nan=False,
    )
    temporary = target.with_name(target.name + ".tmp")
    if target.suffix == ".gz":
        temporary.write_bytes(gzip.compress(text.encode(), compresslevel=6, mtime=0))
    else:
        temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, target)
    return target


def timeline_events(
    trace: Trace, arrows: Sequence[int] = (), max_events: int = MAX_EVENTS
) -> list[dict[str, Any]]:
    """Return the events: names first, then spans in order of time, counters, and arrows along `arrows`."""
    table, times = trace.table, trace.times
    shown = np.flatnonzero((table.kind != KIND["join"]) & (times.end > times.start))
    shown = shown[np.lexsort((shown, times.start[shown]))]
    if len(shown) > max_events:
        warnings.warn(
            f"the timeline shows the first {max_events} of {len(shown)} tasks, up to "
            f"{times.start[shown[max_events]]:.6g} s; simulate folded, or fewer nodes, for a complete one",
            stacklevel=3,
        )
        shown = shown[:max_events]
    lanes = _Lanes(trace)
    spans: list[dict[str, Any]] = []
    placed: dict[int, tuple[int, int]] = {}
    for task in shown.tolist():
        for place in _spans(trace, lanes, task, spans):
            placed.setdefault(task, place)
    counters = _counters(trace, lanes, max(0, max_events - len(spans)))
    return [*lanes.names(), *spans, *counters, *_arrows(trace, [t for t in arrows if t in placed], placed)]


def _spans(trace: Trace, lanes: _Lanes, task: int, events: list[dict[str, Any]]) -> Iterable[tuple[int, int]]:
    """Append the spans of one task, one on every lane it shows on, and return their (pid, tid)."""
    table, times = trace.table, trace.times
    kind = KINDS[int(table.kind[task])]
    process, lane = _LANES[kind]
    start, end = float(times.start[task]), float(times.end[task])
    node, peer = int(table.node[task]), int(table.peer[task])
    where = [node] if node >= 0 else [int(w) for w in trace.fabric.workers]
    places = [(each, lane, peer if kind == "send" else -1) for each in where]
    if kind == "send" and peer >= 0:
        places.append((peer, "receiving", node))
    found = []
    for each, lane_name, other in places:
        pid, tid = lanes.place(each, process, lane_name, start, end)
        found.append((pid, tid))
        args = _arguments(trace, task, kind)
        if other >= 0:
            args["from" if lane_name == "receiving" else "to"] = class_label(trace.fabric.classes[other])
        events.append({
            "name": table.name(task), "cat": kind, "ph": "X", "ts": start * 1e6, "dur": (end - start) * 1e6,
            "pid": pid, "tid": tid, "args": args,
        })  # fmt: skip
    return found


def _arguments(trace: Trace, task: int, kind: str) -> dict[str, Any]:
    table, times, layer = trace.table, trace.times, int(trace.table.layer[task])
    args: dict[str, Any] = {
        "task": task,
        "iteration": int(table.iteration[task]),
        "waited_for_queue_us": round(float(times.start[task] - times.ready[task]) * 1e6, 3),
    }
    if layer >= 0:
        args["layer"] = table.layer_names[layer]
    if kind in ("send", "collective", "copy_out", "copy_in", "host"):
        args["bytes_per_flow"] = float(trace.program.work[task])
    return args


class _Lanes:
    """Gives every (node class, process, lane) an id; spans that overlap go to sub-lanes of their own."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.ends: dict[tuple[int, str, str], list[float]] = {}
        self.ids: dict[tuple[int, str, str, int], int] = {}
        self.processes: set[tuple[int, str]] = set()

    def place(self, node: int, process: str, lane: str, start: float, end: float) -> tuple[int, int]:
        ends = self.ends.setdefault((node, process, lane), [])
        free = next((i for i, busy_until in enumerate(ends) if busy_until <= start), len(ends))
        if free == len(ends):
            ends.append(0.0)
        ends[free] = end
        tid = self.ids.setdefault((node, process, lane, free), len(self.ids) + 1)
        return self.pid(node, process), tid

    def pid(self, node: int, process: str) -> int:
        self.processes.add((node, process))
        return node * len(_PROCESSES) + _PROCESSES.index(process) + 1

    def names(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for node, process in sorted(self.processes, key=lambda x: (x[0], _PROCESSES.index(x[1]))):
            pid = self.pid(node, process)
            label = f"{class_label(self.trace.fabric.classes[node])} {process}"
            found += [
                _meta("process_name", pid, 0, name=label),
                _meta("process_sort_index", pid, 0, sort_index=pid),
            ]
        for (node, process, lane, index), tid in self.ids.items():
            pid = self.pid(node, process)
            label = lane if index == 0 else f"{lane} ({index + 1})"
            place = _LANE_ORDER.index(lane) * _SUB_LANES + min(index, _SUB_LANES - 1)
            found += [
                _meta("thread_name", pid, tid, name=label),
                _meta("thread_sort_index", pid, tid, sort_index=place),
            ]
        return found


def _meta(kind: str, pid: int, tid: int, **args: object) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": args}


def _arrows(trace: Trace, tasks: list[int], placed: dict[int, tuple[int, int]]) -> list[dict[str, Any]]:
    """Return an arrow from each task of the critical path to the next one."""
    events: list[dict[str, Any]] = []
    start, end = trace.times.start, trace.times.end
    for number, (a, b) in enumerate(pairwise(tasks), 1):
        common = {"id": number, "name": "critical path", "cat": "critical path"}
        leaves = min(float(end[a]), float(start[b]))
        for phase, moment, (pid, tid) in (("s", leaves, placed[a]), ("f", float(start[b]), placed[b])):
            event = {**common, "ph": phase, "ts": moment * 1e6, "pid": pid, "tid": tid}
            events.append({**event, "bp": "e"} if phase == "f" else event)
    return events


def _counters(trace: Trace, lanes: _Lanes, most: int) -> list[dict[str, Any]]:
    """Return counters of the use of ports and PCIe lanes (shares of 1), at most about `most` of them."""
    owners = np.repeat(np.arange(trace.program.num_tasks), np.diff(trace.program.use_ptr))
    events: list[dict[str, Any]] = []
    for kind, (process, name) in _COUNTERS.items():
        for c in trace.fabric.classes:
            link = trace.fabric.link(kind, c.index)
            rows = np.flatnonzero(trace.program.use_link == link) if link >= 0 else owners[:0]
            if not len(rows) or len(events) + 2 * len(rows) > most:
                continue
            moments, level = _level(trace, rows, owners[rows], link)
            pid = lanes.pid(c.index, process) if len(moments) else 0
            events += [
                {
                    "name": name,
                    "ph": "C",
                    "ts": moment * 1e6,
                    "pid": pid,
                    "tid": 0,
                    "args": {"share": round(share, 6)},
                }
                for moment, share in zip(moments.tolist(), level.tolist(), strict=True)
            ]
    return events


def _level(
    trace: Trace, rows: npt.NDArray[np.int64], tasks: npt.NDArray[np.int64], link: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return (moments, share of the link in use from then on), work spread evenly over each fluid phase."""
    program, times = trace.program, trace.times
    begin = np.minimum(times.start[tasks] + program.latency[tasks], times.release[tasks])
    span = times.release[tasks] - begin
    moving = span > 0
    rows, tasks, begin, span = rows[moving], tasks[moving], begin[moving], span[moving]
    rate = program.work[tasks] * program.use_coefficient[rows] / span / program.capacity[link]
    moments = np.concatenate([begin, begin + span])
    order = np.argsort(moments, kind="stable")
    moments = moments[order]
    level = np.clip(np.cumsum(np.concatenate([rate, -rate])[order]), 0.0, None)
    last = np.append(np.diff(moments) > 1e-12, True)[: len(moments)]
    return moments[last], level[last]
