"""How figures look and are written: colours for the colour-blind; PNG, SVG and CSV; the same each time."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

#: Okabe and Ito's palette, which people with any common colour blindness can tell apart
BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY, BLACK, GREY = (
    "#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#000000", "#8C8C8C",
)  # fmt: skip


class Look(NamedTuple):
    """Colour, marker and line style of one series; no two series share more than one of the three."""

    colour: str
    marker: str
    line: Any


_LOOKS = (
    Look(BLUE, "o", "-"),
    Look(VERMILLION, "s", (0, (5, 2))),
    Look(GREEN, "^", (0, (7, 2, 1.5, 2))),
    Look(ORANGE, "v", (0, (2, 1.2))),
    Look(PURPLE, "D", (0, (1, 1.2))),
    Look(SKY, "P", (0, (9, 3))),
    Look(BLACK, "X", (0, (3, 1, 1, 1, 1, 1))),
    Look(GREY, "*", (0, (4, 4))),
)
#: strategies people meet most keep their look in every figure
_KNOWN = (
    "poseidon", "parameter-server", "sufficient-factor-broadcast", "all-reduce", "adam", "one-bit",
)  # fmt: skip

#: what a GPU's time goes to: (column, words, colour, hatch)
PARTS = (
    ("compute_time_s", "compute", BLUE, ""),
    ("exposed_communication_s", "exposed communication", ORANGE, "///"),
    ("wait_time_s", "waiting for others", GREY, "..."),
)


def looks(names: Sequence[str]) -> dict[str, Look]:
    """Give every series a look: known strategies their own, the others what is left, in the order given.

    >>> looks(["mine", "poseidon"])["poseidon"].marker
    'o'
    """
    given = {name: _LOOKS[_KNOWN.index(name)] for name in names if name in _KNOWN}
    free = [look for look in _LOOKS if look not in given.values()]
    for number, name in enumerate(name for name in names if name not in given):
        given[name] = free[number % len(free)] if free else _LOOKS[number % len(_LOOKS)]
    return {name: given[name] for name in names}


def styled() -> AbstractContextManager[None]:
    """Return a context in which figures have our fonts and grid; nothing global changes."""
    import matplotlib

    matplotlib.use("Agg", force=False)
    return matplotlib.rc_context({
        "font.size": 10, "axes.titlesize": 11, "axes.labelsize": 10, "axes.grid": True,
        "grid.color": "#E4E4E4", "grid.linewidth": 0.8, "axes.axisbelow": True, "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": "#555555", "legend.frameon": False, "svg.hashsalt": "poseidon_sim",
        "hatch.linewidth": 0.6, "font.family": "DejaVu Sans",
    })  # fmt: skip


def new_figure(width: float, height: float, columns: int = 1, **options: Any) -> tuple[Figure, list[Any]]:
    """Return a figure (inches) without pyplot's global state, and its row of axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, columns, squeeze=False, **options)
    return figure, list(axes[0])


def heading(figure: Figure, title: str, note: str) -> None:
    """Put the title and, smaller below it, what is predicted and what is measured, at the top left."""
    figure.suptitle(f"{title}\n", x=0.01, ha="left", fontsize=12.5, fontweight="bold")
    height = figure.get_size_inches()[1]
    figure.text(0.01, 1.0 - 0.44 / height, note, ha="left", va="center", fontsize=9, color="#444444")


def save(figure: Figure, table: pd.DataFrame, path: str | Path) -> Path:
    """Write PNG, SVG and the plotted numbers as CSV under one stem; return the path of the PNG."""
    target = Path(path)
    target = target if target.suffix == ".png" else target.with_name(target.name + ".png")
    target.parent.mkdir(parents=True, exist_ok=True)
    with styled():
        figure.savefig(target, dpi=150, metadata={"Software": None})
        figure.savefig(target.with_suffix(".svg"), metadata={"Date": None, "Creator": None})
    table.to_csv(target.with_suffix(".csv"), index=False)
    return target


def unique(axis: Any) -> tuple[list[Any], list[str]]:
    """Return handles and labels, each label once."""
    handles, labels = axis.get_legend_handles_labels()
    first = {label: handle for handle, label in reversed(list(zip(handles, labels, strict=True)))}
    return [first[x] for x in dict.fromkeys(labels)], list(dict.fromkeys(labels))


def outside_legend(figure: Any, axis: Any) -> None:
    """Put the legend of one of the axes to the right of all of them, where it covers nothing."""
    handles, labels = unique(axis)
    figure.legend(handles, labels, loc="outside right center", handlelength=3.6)
