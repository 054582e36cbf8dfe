"""Predicted against measured: how far the toolkit can be trusted, case by case."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from poseidon_sim.report import style
from poseidon_sim.report.results import require, with_strategy

if TYPE_CHECKING:
    import pandas as pd


def predicted_against_measured(
    table: pd.DataFrame, path: str | Path = "predicted_against_measured.png",
    title: str = "Predicted against measured",
    quantity: str = "step time (s)", note: str = "",
) -> Path:  # fmt: skip
    """Draw a point per case with bands of +-10 % and +-20 %; the title gives the mean absolute error.

    Columns: measured, predicted; optional strategy (colour and marker), fitted (true: used to fit; drawn
    hollow and left out of the error).
    """
    require(table, ("measured", "predicted"), "predicted-against-measured")
    table = with_strategy(table)
    fitted = table["fitted"].astype(bool) if "fitted" in table else table["measured"] != table["measured"]
    table = table.assign(fitted=fitted, error=table["predicted"] / table["measured"] - 1.0)
    held_out = table[~table["fitted"]]
    with style.styled():
        figure, (axis,) = style.new_figure(8.6, 5.4)
        _bands(axis, table)
        _points(axis, table)
        axis.set_xlabel(f"measured {quantity}")
        axis.set_ylabel(f"predicted {quantity}")
        error = (
            f"mean absolute error {held_out['error'].abs().mean():.1%}"
            if len(held_out)
            else "no case held out"
        )
        inside = f", {(held_out['error'].abs() <= 0.2).mean():.0%} within 20 %" if len(held_out) else ""
        words = f"{error} over {len(held_out)} predicted case{'s' * (len(held_out) != 1)}{inside}"
        style.heading(figure, title, f"{words}; {note}" if note else words)
        figure.legend(*style.unique(axis), loc="outside right center")
    columns = [c for c in table.columns if c not in ("warnings",)]
    return style.save(figure, table[columns], path)


def _points(axis: Any, table: pd.DataFrame) -> None:
    look = style.looks(list(dict.fromkeys(table["strategy"])))
    for name, rows in table.groupby("strategy", sort=False):
        colour, marker, _ = look[str(name)]
        for hollow in (False, True):
            some = rows[rows["fitted"] == hollow]
            if len(some):
                axis.plot(
                    some["measured"], some["predicted"], linestyle="none", marker=marker, markersize=7,
                    color=colour, markerfacecolor="white" if hollow else colour,
                    markeredgecolor=colour if hollow else "white",
                    label=f"{name}{' (used to fit)' if hollow else ''}", zorder=5,
                )  # fmt: skip


def _bands(axis: Any, table: pd.DataFrame) -> None:
    values = [float(v) for c in ("measured", "predicted") for v in table[c]]
    low, high = min(values) / 1.4, max(values) * 1.4
    line = [low, high]
    for share, shade, words in ((0.2, "#EBEBEB", "within 20 %"), (0.1, "#D3D3D3", "within 10 %")):
        axis.fill_between(
            line,
            [v * (1 - share) for v in line],
            [v * (1 + share) for v in line],
            color=shade,
            label=words,
            lw=0,
        )
    axis.plot(line, line, color="#555555", linewidth=1, label="exact")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlim(low, high)
    axis.set_ylim(low, high)
    for one in (axis.xaxis, axis.yaxis):
        one.set_major_formatter("{x:g}")
