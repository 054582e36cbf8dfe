"""The pictures of the Poseidon reproduction: lines are predicted, points were measured by the authors.

Each is written as PNG and SVG with the plotted numbers as CSV beside it. Colours: Okabe and Ito.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from fit_poseidon import measured
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from poseidon_systems import NODES, figures

BLUE, VERMILLION, GREEN, ORANGE, GREY = "#0072B2", "#D55E00", "#009E73", "#E69F00", "#8C8C8C"
#: system -> (name in the published rows, colour, marker, line, how the line came about)
LOOKS: dict[str, tuple[str, str, str, Any, str]] = {
    "Poseidon": ("Poseidon-Caffe", GREEN, "^", "-", "predicted"),
    "Caffe+WFBP": ("Caffe+WFBP", VERMILLION, "s", (0, (5, 2)), "fitted"),
    "Caffe+PS": ("Caffe+PS", BLUE, "o", (0, (7, 2, 1.5, 2)), "fitted"),
}
STYLE = {
    "font.size": 10, "axes.grid": True, "grid.color": "#E4E4E4", "axes.axisbelow": True, "axes.spines.top": False,
    "axes.spines.right": False, "legend.frameon": False, "svg.hashsalt": "poseidon_sim", "font.family": "DejaVu Sans",
    "hatch.linewidth": 0.6,
}  # fmt: skip
NAMES = {"inception-v3": "Inception-V3", "vgg19": "VGG19", "vgg19-22k": "VGG19-22K"}
ONE_GPU = 0.925  # seconds per iteration of one Titan X, P1
SOURCE = "measured: Zhang et al., ATC'17 (plot data of the authors)"


def new_figure(title: str, note: str, width: float, height: float, columns: int, **options: Any) -> tuple[Figure, list[Any]]:
    """Return a figure with a bold title, a note below it and a row of axes."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(f"{title}\n\n", x=0.01, ha="left", fontsize=13, fontweight="bold", linespacing=0.85)
    figure.text(0.01, 1.0 - 0.47 / height, note, ha="left", va="center", fontsize=9, color="#444444")
    return figure, list(figure.subplots(1, columns, squeeze=False, **options)[0])


def save(figure: Figure, table: pd.DataFrame, path: Path) -> Path:
    """Write PNG, SVG and CSV under one stem; return the PNG."""
    figure.savefig(path, dpi=150, metadata={"Software": None})
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None, "Creator": None})
    table.to_csv(path.with_suffix(".csv"), index=False)
    return path


def size_axis(axis: Any, sizes: Sequence[float], label: str) -> None:
    """Make the horizontal axis logarithmic with a tick at every size."""
    axis.set_xscale("log", base=2)
    axis.set_xticks(list(sizes), [f"{n:g}" for n in sizes])
    axis.minorticks_off()
    axis.set_xlabel(label)


def scaling(path: Path) -> Path:
    """Draw speedup and seconds per iteration of the three Caffe systems at 40 Gbit/s: 18 measured points."""
    table = pd.DataFrame([
        {"system": s, "nodes": n, "line": look[4], "predicted_s": figures(s, "vgg19-22k", n)["step_time_s"], "measured_s": t}
        for s, look in LOOKS.items() for n, t in measured(look[0]).items()
    ])  # fmt: skip
    worst = (table["predicted_s"] / table["measured_s"] - 1).abs().groupby(table["line"]).max()
    note = f"lines: simulated; points: {SOURCE}; predicted within {worst['predicted']:.1%}, fitted within {worst['fitted']:.1%}"
    figure, (left, right) = new_figure("VGG19-22K on 40 Gbit/s Ethernet: predicted and measured", note, 11.0, 5.0, 2)
    left.plot([1, 32], [1, 32], color=GREY, linestyle=(0, (2, 2)), linewidth=1.2)
    left.text(20.5, 23.0, "ideal", color=GREY, rotation=38, ha="right")
    for system, rows in table.groupby("system", sort=False):
        _, colour, marker, line, how = LOOKS[str(system)]
        points = {"color": colour, "marker": marker, "linestyle": "none", "markersize": 8, "markeredgecolor": "white", "zorder": 5}
        for axis, scale in ((left, lambda t, n: n * ONE_GPU / t), (right, lambda t, n: t)):
            axis.plot(rows["nodes"], scale(rows["predicted_s"], rows["nodes"]), color=colour, linestyle=line, linewidth=2,
                      label=f"{system}: {how}")  # fmt: skip
            axis.plot(rows["nodes"], scale(rows["measured_s"], rows["nodes"]), label=f"{system}: measured", **points)
        last = rows.iloc[-1]
        ours, theirs = 32 * ONE_GPU / last["predicted_s"], 32 * ONE_GPU / last["measured_s"]
        left.annotate(f"{ours:.1f}x\n({theirs:.1f}x)", (32, theirs), (9, 0), textcoords="offset points", color=colour, va="center")
    left.set(xlabel="nodes (one Titan X each)", ylabel="speedup over one GPU", xlim=(0, 36.5), ylim=(0, 33))
    left.set_xticks(NODES[2:], [f"{n}" for n in NODES[2:]])
    left.set_title("speedup; at 32 nodes predicted (measured)", loc="left", fontsize=10, color="#444444")
    size_axis(right, NODES, "nodes (one Titan X each)")
    right.set_yscale("log", base=2)
    right.set_yticks([1, 2, 4, 8], ["1", "2", "4", "8"])
    right.set(ylabel="seconds per iteration", ylim=(0.85, 8))
    right.axhline(ONE_GPU, color=GREY, linestyle=(0, (2, 2)), linewidth=1.2)
    right.set_title("time of an iteration; dotted: one GPU alone", loc="left", fontsize=10, color="#444444")
    right.legend(loc="upper left", fontsize=9)
    return save(figure, table, path)


def bandwidth(path: Path) -> Path:
    """Draw speedup at 16 nodes against the port's rate for three networks."""
    rates = (2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 14.0, 20.0, 30.0, 40.0)
    models = (("googlenet", "GoogLeNet, batch 128", 128), ("vgg19", "VGG19, batch 32", 32), ("vgg19-22k", "VGG19-22K, batch 32", 32))
    table = pd.DataFrame([
        {"model": m, "system": s, "gbit_per_s": g, "speedup": figures(s, m, 16, g, batch)["speedup"]}
        for m, _, batch in models for s in ("Poseidon", "Caffe+WFBP") for g in rates
    ])  # fmt: skip
    points = {"Poseidon": [(10.0, 15.5), (40.0, 15.03)], "Caffe+WFBP": [(40.0, 11.56)]}
    note = f"lines: predicted (Caffe+WFBP at 40 Gbit/s fitted), points: {SOURCE}; 15.5x: abstract"
    figure, axes = new_figure("16 nodes: how much network each system needs", note, 12.0, 4.6, 3, sharey=True)
    for axis, (model, title, _) in zip(axes, models, strict=True):
        axis.axhline(16, color=GREY, linestyle=(0, (2, 2)), linewidth=1.2, label="ideal")
        for number, system in enumerate(("Poseidon", "Caffe+WFBP")):
            rows = table[(table["model"] == model) & (table["system"] == system)]
            _, colour, marker, line, _ = LOOKS[system]
            axis.plot(rows["gbit_per_s"], rows["speedup"], color=colour, linestyle=line, linewidth=3.2 - number, label=f"{system}: predicted")
            if model == "vgg19-22k":
                axis.plot(*zip(*points[system], strict=True), color=colour, marker=marker, linestyle="none", markersize=9,
                          markeredgecolor="white", label=f"{system}: measured", zorder=5)  # fmt: skip
        size_axis(axis, (2, 5, 10, 20, 40), "port of a node, Gbit/s")
        axis.set_title(title, loc="left", fontsize=10, color="#444444")
    axes[0].set(ylabel="speedup over one GPU", ylim=(0, 17.5))
    axes[2].legend(loc="lower right", fontsize=9)
    return save(figure, table, path)


def traffic(path: Path) -> Path:
    """Draw counted traffic of a node as bars, the paper's formula as lines on them."""
    systems = {"Caffe+WFBP": ("parameter server", VERMILLION), "Adam": ("Adam, mean of nodes", BLUE), "Poseidon": ("Poseidon", GREEN)}
    formula = {("vgg19", "Caffe+WFBP"): {8: 16.09, 16: 17.24, 32: 17.81}, ("vgg19", "Poseidon"): {8: 2.85, 16: 3.71, 32: 5.18},
               ("vgg19-22k", "Caffe+WFBP"): {8: 25.65, 16: 27.48, 32: 28.4}, ("vgg19-22k", "Poseidon"): {8: 3.15, 16: 4.35, 32: 6.5}}  # fmt: skip
    found = []
    note = "batch 32; bars: bytes counted in the simulation; black ticks: formulas of ATC'17 section 3 (rows P83 to P94)"
    figure, axes = new_figure("What a node sends and receives in one iteration", note, 10.5, 4.6, 2, sharey=True)
    for axis, model in zip(axes, ("vgg19", "vgg19-22k"), strict=True):
        for number, (system, (name, colour)) in enumerate(systems.items()):
            for place, nodes in enumerate((8, 16, 32)):
                gbit = 2 * figures(system, model, nodes)["bytes_sent_per_node"] * 8e-9
                stated, x = formula.get((model, system), {}).get(nodes), place + 0.27 * (number - 1)
                axis.bar(x, gbit, 0.25, color=colour, label=name if place == 0 else None)
                axis.text(x, gbit + 0.35, f"{gbit:.1f}", ha="center", fontsize=9)
                if stated is not None:
                    axis.plot([x - 0.15, x + 0.15], [stated, stated], color="black", linewidth=1.8, label="formula" if place == number == 0 else None)
                found.append({"model": model, "system": name, "nodes": nodes, "counted_gbit": gbit, "formula_gbit": stated})
        axis.set_xticks(range(3), ["8", "16", "32"])
        axis.set(xlabel="nodes")
        axis.grid(False, axis="x")
        axis.set_title(NAMES[model], loc="left", fontsize=10, color="#444444")
    axes[0].set(ylabel="Gbit per node and iteration, in plus out", ylim=(0, 32))
    axes[0].legend(loc="upper left", fontsize=9)
    return save(figure, pd.DataFrame(found), path)


def stalls(path: Path) -> Path:
    """Draw what share of an iteration the GPU computes, or waits, at 8 nodes."""
    systems = {"TensorFlow": "native TensorFlow", "Caffe+WFBP": "wait-free backpropagation", "Poseidon": "Poseidon"}
    table = pd.DataFrame([
        {"model": m, "system": name, **{k: figures(s, m, 8)[k] for k in ("step_time_s", "compute_time_s")}}
        for m in ("inception-v3", "vgg19", "vgg19-22k") for s, name in systems.items()
    ])  # fmt: skip
    note = "predicted, nothing measured to hold it against; computing includes Poseidon's rebuilding of gradients from factors"
    figure, (axis,) = new_figure("8 nodes, 40 Gbit/s: how long GPUs stand still", note, 10.0, 4.8, 1)
    place, ticks = 0.0, []
    for model, rows in table.groupby("model", sort=False):
        axis.text(-1.0, place - 0.75, NAMES[str(model)], fontweight="bold", ha="right", va="center")
        for _, row in rows.iterrows():
            busy = 100 * row["compute_time_s"] / row["step_time_s"]
            axis.barh(place, busy, 0.78, color=BLUE, label="computing")
            axis.barh(place, 100 - busy, 0.78, left=busy, color=ORANGE, hatch="///", edgecolor="white", label="standing still")
            axis.text(101, place, f"{row['step_time_s']:.2f} s, {100 - busy:.0f} % still", va="center", fontsize=9)
            ticks.append((place, row["system"]))
            place += 1.0
        place += 0.9
    axis.set_yticks(*zip(*ticks, strict=True))
    axis.set(xlabel="% of an iteration", xlim=(0, 122), ylim=(place - 1.4, -1.2))
    axis.set_xticks([0, 25, 50, 75, 100])
    axis.grid(False, axis="y")
    axis.tick_params(axis="y", length=0)
    handles, labels = axis.get_legend_handles_labels()
    axis.legend(handles[:2], labels[:2], loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=2)
    return save(figure, table, path)


def draw_all(out_dir: Path) -> list[Path]:
    """Draw all four pictures."""
    out_dir.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        return [
            scaling(out_dir / "scaling-40gbe.png"), bandwidth(out_dir / "bandwidth-16-nodes.png"),
            traffic(out_dir / "traffic.png"), stalls(out_dir / "stalls-8-nodes.png"),
        ]  # fmt: skip


if __name__ == "__main__":
    for each in draw_all(Path("out/poseidon")):
        print(each)
