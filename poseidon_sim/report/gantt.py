"""A Gantt chart of one iteration: what a node's GPU, host and port do when, and the critical path."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from poseidon_sim.cluster.build import class_label
from poseidon_sim.metrics import critical_path
from poseidon_sim.plan.record import KINDS
from poseidon_sim.report import style

if TYPE_CHECKING:
    from poseidon_sim.simulation import Run

#: kind of task -> (lane, what it is, colour)
_KINDS = {
    "forward": ("GPU", "forward", style.SKY),
    "backward": ("GPU", "backward", style.BLUE),
    "rebuild": ("GPU, extra work", "rebuild, quantise, update", style.PURPLE),
    "update": ("GPU, extra work", "rebuild, quantise, update", style.PURPLE),
    "load": ("input", "input", style.GREY),
    "copy_out": ("to host", "copy over PCIe", style.GREEN),
    "copy_in": ("to GPU", "copy over PCIe", style.GREEN),
    "host": ("host", "host summation", "#F0E442"),
    "send": ("sending", "send", style.ORANGE),
    "collective": ("collective", "collective", style.ORANGE),
}
_RECEIVE = ("receiving", "receive", style.VERMILLION)
_LANES = (
    "GPU",
    "GPU, extra work",
    "input",
    "to host",
    "host",
    "sending",
    "receiving",
    "collective",
    "to GPU",
    "critical path",
)
_BLAME = (("compute", style.BLUE), ("rebuild", style.PURPLE), ("quantise", style.PURPLE),
          ("contention: GPU", style.PURPLE), ("transfer: node", style.ORANGE),
          ("contention: node", style.VERMILLION), ("transfer: PCIe", style.GREEN),
          ("transfer: leaf", style.ORANGE), ("contention: leaf", style.VERMILLION))  # fmt: skip
#: spans at the same time in one lane take rows of their own, up to this many
MOST_ROWS = 6


def timeline(run: Run, path: str | Path = "timeline.png", title: str = "", node: int | None = None) -> Path:
    """Draw the last measured iteration of one node class (the first worker's by default); predicted."""
    import pandas as pd

    chosen = int(run.trace.fabric.workers[0]) if node is None else node
    begin, end = _window(run)
    spans = [s for s in _spans(run, chosen) if s["end_s"] > begin and s["start_s"] < end]
    spans += [s for s in _path_spans(run) if s["end_s"] > begin and s["start_s"] < end]
    _rows(spans)
    lanes = {name: max((s["row"] for s in spans if s["lane"] == name), default=-1) + 1 for name in _LANES}
    lanes = {name: rows for name, rows in lanes.items() if rows}
    with style.styled():
        figure, (axis,) = style.new_figure(11.5, 2.1 + 0.36 * sum(lanes.values()) + 0.1 * len(lanes))
        _draw(axis, spans, lanes, begin, end)
        job = run.job
        head = (
            title or f"One iteration of {job.workload.name}, {run.strategy.name}, {job.cluster.nodes} nodes"
        )
        where = class_label(run.trace.fabric.classes[chosen])
        style.heading(
            figure,
            head,
            f"predicted; {where}; step {run.step_time * 1e3:.1f} ms; limited by {run.bottleneck}",
        )
        _legend(figure, axis, spans)
    return style.save(figure, pd.DataFrame(spans), path)


def _window(run: Run) -> tuple[float, float]:
    ends = run.trace.iteration_ends
    return (float(ends[-2].max()) if len(ends) > 1 else 0.0), float(ends[-1].max())


def _spans(run: Run, node: int) -> list[dict[str, Any]]:
    trace, found = run.trace, []
    table, times = trace.table, trace.times
    mine = (table.node == node) | (table.peer == node) | ((table.node < 0) & (table.kind > 0))
    for task in np.flatnonzero(mine & (times.end > times.start)).tolist():
        kind = KINDS[int(table.kind[task])]
        if kind not in _KINDS:
            continue
        places = [_KINDS[kind]] if int(table.node[task]) in (node, -1) else []
        places += [_RECEIVE] if kind == "send" and int(table.peer[task]) == node else []
        found += [_span(trace, task, *place) for place in places]
    return found


def _span(trace: Any, task: int, lane: str, what: str, colour: str) -> dict[str, Any]:
    layer = int(trace.table.layer[task])
    return {
        "lane": lane, "what": what, "name": trace.table.name(task), "start_s": float(trace.times.start[task]),
        "end_s": float(trace.times.end[task]), "colour": colour, "row": 0,
        "label": trace.table.layer_names[layer] if layer >= 0 else "",
    }  # fmt: skip


def _path_spans(run: Run) -> list[dict[str, Any]]:
    """The critical path in its own lane; pieces of one blame that follow one another are one span."""
    found: list[dict[str, Any]] = []
    for span in critical_path(run.trace):
        if found and found[-1]["name"] == span.blame and abs(found[-1]["end_s"] - span.start) < 1e-12:
            found[-1]["end_s"] = span.end
            continue
        colour = next((c for start, c in _BLAME if span.blame.startswith(start)), style.GREY)
        found.append({
            "lane": "critical path", "what": "", "name": span.blame, "start_s": span.start, "end_s": span.end,
            "colour": colour, "row": 0, "label": span.blame.split(": ")[-1],
        })  # fmt: skip
    return found


def _rows(spans: list[dict[str, Any]]) -> None:
    """Put spans of one lane that overlap on rows of their own; beyond `MOST_ROWS` the last row is shared."""
    spans.sort(key=lambda s: (s["start_s"], s["end_s"], s["name"]))
    ends: dict[str, list[float]] = {}
    for span in spans:
        rows = ends.setdefault(span["lane"], [])
        free = next((i for i, busy in enumerate(rows) if busy <= span["start_s"] + 1e-12), len(rows))
        free = min(free, MOST_ROWS - 1)
        if free == len(rows):
            rows.append(0.0)
        rows[free], span["row"] = span["end_s"], free


def _draw(axis: Any, spans: list[dict[str, Any]], lanes: dict[str, int], begin: float, end: float) -> None:
    base, places, at = {}, [], 0.0
    for name, rows in lanes.items():
        base[name] = at
        places.append(at + (rows - 1) / 2)
        at += rows + 0.3
    total = 1e3 * (end - begin)
    for span in spans:
        start = max(span["start_s"], begin)
        left, width = 1e3 * (start - begin), 1e3 * (min(span["end_s"], end) - start)
        y = base[span["lane"]] + span["row"]
        axis.barh(
            y,
            width,
            left=left,
            height=0.86,
            color=span["colour"],
            edgecolor="white",
            linewidth=0.4 if width > 0.004 * total else 0.0,
        )
        if span["label"] and width > 0.0095 * total * len(span["label"]):
            dark = span["colour"] in (style.BLUE, style.GREEN, style.VERMILLION)
            axis.text(
                left + width / 2,
                y,
                span["label"],
                ha="center",
                va="center",
                fontsize=7.5,
                color="white" if dark else "black",
            )
    axis.set_yticks(places, list(lanes))
    axis.set_ylim(at - 0.6, -0.7)
    axis.set_xlim(0, total)
    axis.set_xlabel("milliseconds since the iteration began")
    axis.grid(False, axis="y")
    axis.tick_params(axis="y", length=0)


def _legend(figure: Any, axis: Any, spans: list[dict[str, Any]]) -> None:
    from matplotlib.patches import Patch

    seen = {s["what"]: s["colour"] for s in spans if s["what"]}
    handles = [Patch(facecolor=colour, label=what) for what, colour in seen.items()]
    axis.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=min(8, len(handles)),
        borderaxespad=0.2,
    )
