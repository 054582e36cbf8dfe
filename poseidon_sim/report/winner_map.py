"""The winner map: which strategy is fastest on which network and size, and by how much."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from poseidon_sim.errors import InputError
from poseidon_sim.report import style
from poseidon_sim.report.results import axes_of, bandwidth_column, constant, facets, rate, require

if TYPE_CHECKING:
    import pandas as pd

#: a margin at which a winner's colour is at its fullest, and one below which there is no winner
FULL_MARGIN, TIE = 0.5, 0.005


def winner(
    table: pd.DataFrame,
    path: str | Path = "winner.png",
    title: str = "Which strategy wins where",
    note: str = "",
) -> Path:
    """Draw a map, network bandwidth x nodes: the colour says who is fastest, its strength by how much."""
    column = bandwidth_column(table)
    require(table, ("nodes", "strategy", "step_time_s"), "winner")
    if column is None:
        raise InputError(
            "the winner figure needs a sweep over the network's bandwidth; add cluster.network.bandwidth=..."
        )
    if table["strategy"].nunique() < 2:
        raise InputError("the winner figure needs at least two strategies; add strategy=poseidon,all-reduce")
    parts = facets(table, axes_of(table, ("nodes", "strategy", column)))
    cells = [(name, _winners(rows, column)) for name, rows in parts]
    ahead = {name for _, c in cells for name in c["winner"][~c["all_tie"]]}
    tied = {name for _, c in cells for row in c["tied_with"][~c["all_tie"]] for name in row.split(" + ")}
    order = list(dict.fromkeys(table["strategy"]))
    look = style.looks([name for name in order if name in ahead])
    columns, rows_high = table[column].nunique(), table["nodes"].nunique()
    with style.styled():
        figure, axes = style.new_figure(
            (1.25 * columns + 1.0) * len(parts) + 2.6,
            max(3.2, 0.7 * rows_high + 1.9),
            len(parts),
            sharey=True,
        )
        for axis, (name, one) in zip(axes, cells, strict=True):
            _winner_cells(axis, one, look)
            axis.set_title(name, loc="left", color="#444444")
            axis.set_xlabel("network bandwidth of a node (one direction)")
        axes[0].set_ylabel("nodes")
        words = f"predicted; =: tie (within {TIE:.1%}); +x %: how much longer the next one's step is"
        style.heading(figure, title, "; ".join(x for x in (words, constant(table), note) if x))
        _winner_legend(figure, look, [name for name in order if name in tied - ahead])
    import pandas as pd

    return style.save(figure, pd.concat([c.assign(case=name) for name, c in cells]), path)


def _winners(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return a row per cell: the winner, who ties with it, and the margin over the first that does not tie.

    Among those that tie the winner is the one that is in front in most cells, so that a map has no speckles.
    """
    import pandas as pd

    cells = []
    for key, rows in table.groupby(["nodes", column], sort=False):
        times = rows.sort_values("step_time_s", kind="stable").set_index("strategy")["step_time_s"]
        cells.append(
            (key, times[times <= times.iloc[0] * (1 + TIE)], times[times > times.iloc[0] * (1 + TIE)])
        )
    in_front = pd.Series([name for _, near, _ in cells for name in near.index]).value_counts()
    found = []
    for (nodes, bandwidth), near, behind in cells:
        names = sorted(near.index, key=lambda name: -in_front[name])
        found.append({
            "nodes": nodes, "bandwidth": bandwidth, "winner": names[0], "tied_with": " + ".join(names[1:]),
            "next": behind.index[0] if len(behind) else "", "all_tie": not len(behind),
            "margin": float(behind.iloc[0] / near.iloc[0] - 1.0) if len(behind) else 0.0,
        })  # fmt: skip
    return pd.DataFrame(found)


def _winner_cells(axis: Any, cells: pd.DataFrame, look: dict[str, style.Look]) -> None:
    from matplotlib.patches import Rectangle

    widths = sorted(dict.fromkeys(cells["bandwidth"]), key=lambda v: rate(v))
    heights = sorted(set(cells["nodes"]))
    for _, cell in cells.iterrows():
        x, y = widths.index(cell["bandwidth"]), heights.index(cell["nodes"])
        tied, share = bool(cell["tied_with"]), min(1.0, float(cell["margin"]) / FULL_MARGIN)
        colour = style.GREY if cell["all_tie"] else look[cell["winner"]].colour
        alpha = 0.22 + 0.48 * share
        axis.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, fc=colour, alpha=alpha, ec="white", lw=2))
        names = [cell["winner"], *cell["tied_with"].split(" + ")] if tied else [cell["winner"]]
        words = " = ".join(map(_short, names)).replace(" = ", " =\n", max(0, len(names) - 2))
        text = f"{words}\n+{cell['margin']:.0%}"
        axis.text(
            x, y, "all tie" if cell["all_tie"] else text, ha="center", va="center", fontsize=8, color="black"
        )
    axis.set_xlim(-0.5, len(widths) - 0.5)
    axis.set_ylim(-0.5, len(heights) - 0.5)
    axis.set_xticks(range(len(widths)), [str(w) for w in widths])
    axis.set_yticks(range(len(heights)), [f"{h:g}" for h in heights])
    axis.grid(False)
    axis.tick_params(length=0)


def _short(name: str) -> str:
    """Shorten a strategy's name for a cell.

    >>> _short("sufficient-factor-broadcast"), _short("poseidon")
    ('SFB', 'poseidon')
    """
    return "".join(word[0] for word in name.split("-")).upper() if name.count("-") else name


def _winner_legend(figure: Any, look: dict[str, style.Look], only_tied: list[str]) -> None:
    from matplotlib.patches import Patch

    def words(name: str) -> str:
        return f"{name} ({_short(name)})" if _short(name) != name else name

    handles = [Patch(facecolor=each.colour, alpha=0.75, label=words(name)) for name, each in look.items()]
    handles += [Patch(facecolor="white", label=f"{words(name)}: ties only") for name in only_tied]
    figure.legend(handles=handles, loc="outside right center")
