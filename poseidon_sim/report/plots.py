"""Figures of sweeps: scaling, where the time goes, traffic, who wins where, predicted against measured.

Each function takes a table (a DataFrame with the columns of a sweep's results.csv), writes PNG, SVG and
the plotted numbers as CSV under one stem, and returns the path of the PNG. matplotlib and pandas load when
one is called.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from poseidon_sim.errors import InputError, unknown_name
from poseidon_sim.report import style
from poseidon_sim.report.accuracy import predicted_against_measured
from poseidon_sim.report.gantt import timeline
from poseidon_sim.report.results import axes_of, constant, facets, gpus, read_results, require, with_strategy
from poseidon_sim.report.winner_map import winner

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "KINDS", "breakdown", "plot", "plot_file", "predicted_against_measured", "scaling", "timeline", "traffic",
    "winner",
]  # fmt: skip

KINDS = ("scaling", "breakdown", "timeline", "winner", "traffic")
#: most rows of bars in one figure
MOST_BARS = 40


def plot_file(source: str | Path, kind: str | None = "scaling", out: str | Path | None = None) -> Path:
    """Draw one kind of figure from a sweep's folder or results.csv, or a timeline from a scenario file.

    Parameters
    ----------
    source : folder of a sweep, its results.csv, or (kind 'timeline') a scenario.
    kind : one of `KINDS`; None chooses 'scaling' when the sweep has several sizes, else 'breakdown'.
    out : the PNG to write; by default <kind>.png in the sweep's folder, or beside the scenario.
    """
    path = Path(source)
    if kind == "timeline":
        return _timeline_of(path, out)
    table, failed = read_results(path)
    if kind is None:
        kind = "scaling" if "nodes" in table.columns and table["nodes"].nunique() > 1 else "breakdown"
    figures: dict[str, Callable[..., Path]] = {
        "scaling": scaling, "breakdown": breakdown, "winner": winner, "traffic": traffic,
    }  # fmt: skip
    if kind not in figures:
        raise unknown_name("kind of figure", kind, KINDS)
    target = Path(out) if out is not None else (path if path.is_dir() else path.parent) / f"{kind}.png"
    note = f"{failed} of {failed + len(table)} scenarios could not be simulated" if failed else ""
    return figures[kind](table, path=target, note=note)


plot = plot_file


def scaling(
    table: pd.DataFrame, measured: pd.DataFrame | None = None, path: str | Path = "scaling.png",
    title: str = "Speedup over one GPU", note: str = "",
) -> Path:  # fmt: skip
    """Draw speedup against GPUs: the ideal, a line per strategy (predicted), points (measured).

    `measured` has columns nodes (or num_gpus), strategy and speedup, and any of the table's other axes.
    """
    require(table, ("nodes", "speedup"), "scaling")
    table = with_strategy(table).assign(num_gpus=gpus(table), source="predicted")
    points = None
    if measured is not None and len(measured):
        points = with_strategy(measured).assign(num_gpus=gpus(measured), source="measured")
    parts = facets(table, axes_of(table))
    look = style.looks(list(dict.fromkeys(table["strategy"])))
    with style.styled():
        figure, axes = style.new_figure(4.6 * len(parts) + 2.4, 4.8, len(parts), sharey=True)
        for axis, (name, rows) in zip(axes, parts, strict=True):
            _scaling_panel(axis, rows, _matching(points, rows, axes_of(table)), look)
            axis.set_title(name, loc="left", color="#444444")
        axes[0].set_ylabel("speedup (times one GPU without communication)")
        band = "; bands: where half of the measured cases like it lay" if "step_time_p25_s" in table else ""
        kinds = "lines: predicted; grey: ideal" + band + ("; points: measured" if points is not None else "")
        style.heading(figure, title, "; ".join(x for x in (kinds, constant(table), note) if x))
        style.outside_legend(figure, axes[-1])
    import pandas as pd

    columns = [
        c for c in ("source", "strategy", "nodes", "num_gpus", *axes_of(table), "speedup") if c in table
    ]
    return style.save(figure, pd.concat([table, points] if points is not None else [table])[columns], path)


def _scaling_panel(
    axis: Any, rows: pd.DataFrame, points: pd.DataFrame | None, look: dict[str, style.Look]
) -> None:
    ticks = sorted(set(rows["num_gpus"]))
    low, high = ticks[0], ticks[-1]
    axis.plot(
        [low, high],
        [low, high],
        color="#9A9A9A",
        linewidth=1.2,
        linestyle=(0, (4, 3)),
        label="ideal",
        zorder=1,
    )
    for number, (name, one) in enumerate(rows.groupby("strategy", sort=False)):
        one, (colour, marker, line) = one.sort_values("num_gpus"), look[str(name)]
        # earlier lines are wider, so that a line that coincides with another stays visible under it
        width = 3.4 - 0.35 * min(number, 5)
        own = None if points is None else points[points["strategy"] == name]
        if {"step_time_p25_s", "step_time_p75_s"} <= set(one.columns):
            ends = [one["speedup"] * one["step_time_s"] / one[f"step_time_{end}_s"] for end in ("p75", "p25")]
            axis.fill_between(one["num_gpus"], *ends, color=colour, alpha=0.15, linewidth=0, zorder=1)
        axis.plot(
            one["num_gpus"], one["speedup"], color=colour, linestyle=line, linewidth=width, label=str(name),
            zorder=2 + number,
            marker=marker if own is None or not len(own) else None, markersize=5,
            markerfacecolor="white",
        )  # fmt: skip
        if own is not None and len(own):
            axis.plot(
                own["num_gpus"], own["speedup"], color=colour, linestyle="none", marker=marker, markersize=8,
                markeredgecolor="white", label=f"{name}, measured", zorder=20,
            )  # fmt: skip
    if high / low >= 8:
        axis.set_xscale("log", base=2)
        axis.set_yscale("log", base=2)
        axis.yaxis.set_major_formatter("{x:g}")
    axis.set_xticks(ticks, [f"{t:g}" for t in ticks], minor=False)
    axis.minorticks_off()
    axis.set_xlabel("GPUs")


def breakdown(
    table: pd.DataFrame,
    path: str | Path = "breakdown.png",
    title: str = "Where the time of a step goes",
    note: str = "",
) -> Path:
    """Draw a bar per scenario: compute, exposed communication, waiting (ms); predicted."""
    require(table, tuple(c for c, *_ in style.PARTS[:2]), "breakdown")
    table = with_strategy(table)
    if len(table) > MOST_BARS and "nodes" in table.columns:
        largest = table["nodes"].max()
        table, note = (
            table[table["nodes"] == largest],
            f"{note}; " * bool(note) + f"only the {largest} nodes case",
        )
    if len(table) > MOST_BARS:
        raise InputError(
            f"{len(table)} scenarios are too many bars (at most {MOST_BARS}); plot a part of results.csv"
        )
    names = [c for c in ("nodes", *axes_of(table)) if c in table and table[c].nunique() > 1]
    parts = facets(table, names, most=MOST_BARS)
    heights = [len(rows) for _, rows in parts]
    longest = 1e3 * max(table["step_time_s"] if "step_time_s" in table else table["compute_time_s"])
    with style.styled():
        figure, axes = style.new_figure(9.0, 1.5 + 0.34 * sum(heights) + 0.42 * len(parts))
        _breakdown_bars(axes[0], parts, longest)
        axes[0].set_xlim(0, 1.25 * longest)
        axes[0].set_xlabel("milliseconds per step (mean over GPUs)")
        style.heading(figure, title, "; ".join(x for x in ("predicted", constant(table), note) if x))
        axes[0].legend(
            *style.unique(axes[0]), loc="lower center", bbox_to_anchor=(0.42, 1.0), ncols=3, borderaxespad=0.2
        )
    columns = [
        c
        for c in ("strategy", "nodes", *axes_of(table), *(c for c, *_ in style.PARTS), "step_time_s")
        if c in table
    ]
    return style.save(figure, table[columns], path)


def _breakdown_bars(axis: Any, parts: list[tuple[str, pd.DataFrame]], longest: float) -> None:
    place, places, labels = 0.0, [], []
    for name, rows in parts:
        if name:
            axis.text(
                0.0,
                place - 0.05,
                f" {name}",
                va="center",
                ha="left",
                fontsize=9,
                fontweight="bold",
                color="#444444",
            )
            place += 0.9
        for _, row in rows.iterrows():
            left = 0.0
            for column, words, colour, hatch in style.PARTS:
                width = 1e3 * float(row.get(column, 0.0) or 0.0)
                axis.barh(
                    place, width, left=left, height=0.72, color=colour, hatch=hatch, edgecolor="white",
                    linewidth=0.5, label=words if width > 1e-4 * longest else None,
                )  # fmt: skip
                left += width
            busy = float(row["compute_time_s"]) * 1e3 / left if left else 0.0
            axis.text(
                left, place, f"  {left:.0f} ms, {busy:.0%} computing", va="center", ha="left", fontsize=8.5
            )
            places.append(place)
            labels.append(str(row["strategy"]))
            place += 1.0
        place += 0.35
    axis.set_yticks(places, labels)
    axis.set_ylim(place - 0.5, -0.7)
    axis.grid(False, axis="y")
    axis.tick_params(axis="y", length=0)


def traffic(
    table: pd.DataFrame,
    path: str | Path = "traffic.png",
    title: str = "Bytes a node sends per step",
    note: str = "",
) -> Path:
    """Draw the bytes a node sends in one step (mean over nodes) against nodes; predicted."""
    require(table, ("nodes", "bytes_sent_per_node"), "traffic")
    table, others = with_strategy(table), axes_of(table)
    table = table.assign(megabytes=table["bytes_sent_per_node"] / 1e6)
    same = (
        table.groupby(["nodes", "strategy"])["megabytes"].agg(lambda x: x.max() - x.min())
        <= 1e-6 * table["megabytes"].max()
    )
    if others and bool(same.all()):
        table, others = table.drop_duplicates(["nodes", "strategy"]).drop(columns=others), []
    parts = facets(table, others)
    look = style.looks(list(dict.fromkeys(table["strategy"])))
    with style.styled():
        figure, axes = style.new_figure(4.8 * len(parts) + 2.4, 4.6, len(parts), sharey=True)
        for axis, (name, rows) in zip(axes, parts, strict=True):
            for number, (strategy, one) in enumerate(rows.groupby("strategy", sort=False)):
                one, (colour, marker, line) = one.sort_values("nodes"), look[str(strategy)]
                axis.plot(
                    one["nodes"], one["megabytes"], color=colour, marker=marker, linestyle=line,
                    label=str(strategy), linewidth=3.2 - 0.3 * min(number, 5), markersize=6,
                    markerfacecolor="white",
                )  # fmt: skip
            ticks = sorted(set(rows["nodes"]))
            if ticks[-1] / ticks[0] >= 8:
                axis.set_xscale("log", base=2)
            axis.set_xticks(ticks, [f"{t:g}" for t in ticks], minor=False)
            axis.minorticks_off()
            axis.set_xlabel("nodes")
            axis.set_title(name, loc="left", color="#444444")
        axes[0].set_ylim(0.0, 1.06 * max(float(table["megabytes"].max()), 1e-9))  # one scale, over all panels
        axes[0].set_ylabel("MB sent per node and step (mean over nodes)")
        style.heading(figure, title, "; ".join(x for x in ("predicted", constant(table), note) if x))
        style.outside_legend(figure, axes[-1])
    return style.save(figure, table[["strategy", "nodes", *others, "bytes_sent_per_node"]], path)


def _matching(points: pd.DataFrame | None, rows: pd.DataFrame, columns: list[str]) -> pd.DataFrame | None:
    """Return the measured points that belong to a panel: equal in every further axis they state."""
    if points is None:
        return None
    for column in columns:
        if column in points.columns:
            points = points[points[column] == rows[column].iloc[0]]
    return points


def _timeline_of(path: Path, out: str | Path | None) -> Path:
    if path.is_dir() or path.suffix == ".csv":
        raise InputError(f"{path}: a timeline shows one scenario; give the scenario file instead of a sweep")
    ps: Any = import_module(
        "poseidon_sim"
    )  # public names only: this stage must not look at the simulation's module
    run = ps.simulate(ps.load_scenario(path))
    return timeline(run, path=out or path.with_name(f"{path.stem}-timeline.png"))
