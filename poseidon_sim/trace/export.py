"""Write a trace as Chrome trace JSON: a process per GPU, host and port of a node class, lanes for what they do.

Format: the Trace Event Format ('X' spans, 'C' counters, 's'/'f' arrows, 'M' names); opens in the Perfetto UI.
"""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from poseidon_sim.cluster.build import class_label
from poseidon_sim.plan.record import KIND, KINDS
from poseidon_sim.trace.trace import Trace

#: kind -> (process, lane)
_LANES = {
    "forward": ("GPU", "compute"),
    "backward": ("GPU", "compute"),
    "load": ("GPU", "input"),
    "rebuild": ("GPU", "rebuild"),
    "update": ("GPU", "quantise and update"),
    "copy_out": ("host", "copy to host"),
    "copy_in": ("host", "copy to GPU"),
    "host": ("host", "summing"),
    "send": ("port", "sending"),
    "collective": ("port", "collective"),
}
_PROCESSES = ("GPU", "host", "port")
MAX_EVENTS = 1_000_000


def save_timeline(trace: Trace, path: str | Path) -> Path:
    """Write the timeline to `path` (gzip if it ends in .gz), by way of a temporary name; return the path."""
    target = Path(path)
    text = json.dumps({"displayTimeUnit": "ms", "traceEvents": timeline_events(trace)}, separators=(",", ":"))
    temporary = target.with_name(target.name + ".tmp")
    if target.suffix == ".gz":
        temporary.write_bytes(gzip.compress(text.encode(), mtime=0))
    else:
        temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, target)
    return target


def timeline_events(trace: Trace) -> list[dict[str, Any]]:
    """Return the events, at most about a million; times in microseconds."""
    lanes = _Lanes(trace)
    table, times, program = trace.table, trace.times, trace.program
    spans = np.flatnonzero((table.kind != KIND["join"]) & (times.end > times.start))
    spans = spans[np.lexsort((spans, times.start[spans]))][:MAX_EVENTS]
    events: list[dict[str, Any]] = []
    for task in spans.tolist():
        kind = KINDS[int(table.kind[task])]
        start, end = float(times.start[task]), float(times.end[task])
        node, peer = int(table.node[task]), int(table.peer[task])
        args: dict[str, Any] = {
            "iteration": int(table.iteration[task]),
            "waited_for_queue_us": round(float(times.start[task] - times.ready[task]) * 1e6, 3),
        }
        if kind in ("send", "collective", "copy_out", "copy_in", "host"):
            args["bytes_per_flow"] = float(program.work[task])
        if peer >= 0:
            args["to"] = class_label(trace.fabric.classes[peer])
        places = [(node, _LANES[kind][1])] if node >= 0 else [(int(w), _LANES[kind][1]) for w in trace.fabric.workers]
        if kind == "send" and peer >= 0:
            places.append((peer, "receiving"))
        for where, lane in places:
            pid, tid = lanes.place(where, _LANES[kind][0], lane, start, end)
            events.append({
                "name": table.name(task), "cat": kind, "ph": "X", "ts": start * 1e6, "dur": (end - start) * 1e6,
                "pid": pid, "tid": tid, "args": args,
            })  # fmt: skip
    return [*lanes.names(), *events, *_counters(trace, lanes)]


class _Lanes:
    """Gives every (node class, process, lane) an id; spans that overlap go to sub-lanes of their own."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.ends: dict[tuple[int, str, str], list[float]] = {}
        self.ids: dict[tuple[int, str, str, int], int] = {}

    def place(self, node: int, process: str, lane: str, start: float, end: float) -> tuple[int, int]:
        ends = self.ends.setdefault((node, process, lane), [])
        for index, busy_until in enumerate(ends):
            if busy_until <= start * (1 + 1e-12) + 1e-15:
                break
        else:
            index = len(ends)
            ends.append(0.0)
        ends[index] = end
        tid = self.ids.setdefault((node, process, lane, index), len(self.ids) + 1)
        return self.pid(node, process), tid

    def pid(self, node: int, process: str) -> int:
        return node * len(_PROCESSES) + _PROCESSES.index(process) + 1

    def names(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for node, process in sorted({(key[0], key[1]) for key in self.ids}):
            pid = self.pid(node, process)
            label = f"{class_label(self.trace.fabric.classes[node])} {process}"
            found.append({"name": "process_name", "ph": "M", "pid": pid, "tid": 0, "args": {"name": label}})
            found.append({"name": "process_sort_index", "ph": "M", "pid": pid, "tid": 0, "args": {"sort_index": pid}})
        for (node, process, lane, index), tid in self.ids.items():
            label = lane if index == 0 else f"{lane} ({index + 1})"
            found.append({"name": "thread_name", "ph": "M", "pid": self.pid(node, process), "tid": tid, "args": {"name": label}})
        return found


def _counters(trace: Trace, lanes: _Lanes) -> list[dict[str, Any]]:
    """Return counters of port utilisation (0 to 1): bytes in flight spread evenly over each transfer."""
    program, times, fabric = trace.program, trace.times, trace.fabric
    events: list[dict[str, Any]] = []
    owners = np.repeat(np.arange(program.num_tasks), np.diff(program.use_ptr))
    for kind in ("nic_out", "nic_in"):
        for c in fabric.classes:
            link = fabric.link(kind, c.index)
            rows = np.flatnonzero(program.use_link == link) if link >= 0 else np.zeros(0, dtype=np.int64)
            tasks = owners[rows]
            begin = np.minimum(times.start[tasks] + program.latency[tasks], times.release[tasks])
            span = times.release[tasks] - begin
            rows, tasks, begin, span = (x[span > 0] for x in (rows, tasks, begin, span))
            if not len(tasks):
                continue
            rate = program.work[tasks] * program.use_coefficient[rows] / span / program.capacity[link]
            moments = np.concatenate([begin, begin + span])
            change = np.concatenate([rate, -rate])
            order = np.argsort(moments, kind="stable")
            level = np.clip(np.cumsum(change[order]), 0.0, None)
            last = np.append(np.diff(moments[order]) > 0, True)
            name = "sending, share of the port" if kind == "nic_out" else "receiving, share of the port"
            for moment, value in zip(moments[order][last], level[last], strict=True):
                events.append({
                    "name": name, "ph": "C", "ts": float(moment) * 1e6, "pid": lanes.pid(c.index, "port"), "tid": 0,
                    "args": {"share": round(float(value), 6)},
                })  # fmt: skip
    return events
