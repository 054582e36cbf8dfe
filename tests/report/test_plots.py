"""Figures are written, hold what they should, and are the same each time; looks are for people to judge."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import poseidon_sim as ps
from poseidon_sim.errors import InputError, UnknownNameError, UnreadableFileError
from poseidon_sim.report import plots, style
from poseidon_sim.report.gantt import timeline
from poseidon_sim.report.results import read_results
from poseidon_sim.report.winner_map import _winners

SCENARIO = {
    "model": "alexnet",
    "batch_size": 64,
    "cluster": {
        "nodes": 2,
        "gpu": "titan-x-maxwell",
        "pcie": "12 GB/s",
        "network": {"bandwidth": "10 Gbit/s"},
    },
    "strategy": "poseidon",
}
GRID: dict[str, list[object]] = {
    "nodes": [1, 4, 8],
    "cluster.network.bandwidth": ["1 Gbit/s", "10 Gbit/s"],
    "strategy": ["poseidon", "parameter-server", "all-reduce"],
}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ps.sweep(SCENARIO, GRID, tmp_path_factory.mktemp("sweep")).parent


def is_figure(path: Path) -> bool:
    """A PNG of more than one colour, an SVG and a CSV with rows stand beside one another."""
    from matplotlib.image import imread

    pixels = imread(path)
    rows = list(csv.reader(path.with_suffix(".csv").open(encoding="utf-8")))
    varied = len(np.unique(pixels.reshape(-1, pixels.shape[-1]), axis=0)) > 20
    return varied and "<svg" in path.with_suffix(".svg").read_text(encoding="utf-8") and len(rows) > 1


@pytest.mark.parametrize("kind", [kind for kind in plots.KINDS if kind != "timeline"])
def test_every_kind_of_figure_comes_out_of_a_sweep(kind: str, swept: Path, tmp_path: Path) -> None:
    assert is_figure(plots.plot_file(swept, kind, tmp_path / f"{kind}.png"))


def test_a_timeline_comes_out_of_a_scenario_file(tmp_path: Path) -> None:
    scenario = tmp_path / "one.yaml"
    scenario.write_text(
        "model: alexnet\nbatch_size: 64\nstrategy: parameter-server\n"
        "cluster: {nodes: 4, gpu: titan-x-maxwell, pcie: 12 GB/s, network: {bandwidth: 10 Gbit/s}}\n"
    )
    path = plots.plot_file(scenario, "timeline")
    assert path == tmp_path / "one-timeline.png" and is_figure(path)


def test_without_a_place_the_figure_lies_in_the_sweeps_folder(swept: Path) -> None:
    assert plots.plot(swept / "results.csv", None) == swept / "scaling.png"


def test_the_same_table_gives_the_same_bytes(swept: Path, tmp_path: Path) -> None:
    first, second = (plots.plot_file(swept, "scaling", tmp_path / name) for name in ("a.png", "b.png"))
    assert first.read_bytes() == second.read_bytes()
    assert first.with_suffix(".svg").read_bytes() == second.with_suffix(".svg").read_bytes()


def test_measured_points_stand_in_the_figures_numbers_beside_the_predicted(
    swept: Path, tmp_path: Path
) -> None:
    table, _ = read_results(swept)
    one = table[table["cluster.network.bandwidth"] == "10 Gbit/s"]
    measured = pd.DataFrame({"nodes": [4, 8], "strategy": "poseidon", "speedup": [3.5, 7.0]})
    written = pd.read_csv(plots.scaling(one, measured, tmp_path / "s.png").with_suffix(".csv"))
    assert written["source"].value_counts().to_dict() == {"predicted": 9, "measured": 2}


def test_the_winner_of_a_cell_is_the_fastest_and_the_margin_is_to_the_first_that_does_not_tie() -> None:
    # a and b tie at 1 s on 10 Gbit/s, c takes 1.5 s: +50 %; on 1 Gbit/s b wins alone by 20 % over a
    table = pd.DataFrame(
        [
            *((4, "10 Gbit/s", name, step) for name, step in (("a", 1.0), ("b", 1.001), ("c", 1.5))),
            *((4, "1 Gbit/s", name, step) for name, step in (("a", 2.4), ("b", 2.0), ("c", 3.0))),
        ],
        columns=["nodes", "bandwidth", "strategy", "step_time_s"],
    )
    fast, slow = _winners(table, "bandwidth").to_dict("records")
    assert (fast["winner"], fast["tied_with"], fast["next"]) == ("b", "a", "c")  # b is in front in both cells
    assert fast["margin"] == pytest.approx(0.5)
    assert (slow["winner"], slow["tied_with"]) == ("b", "")
    assert slow["margin"] == pytest.approx(0.2)


def test_cases_used_to_fit_are_left_out_of_the_error(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {"measured": [1.0, 2.0, 4.0], "predicted": [9.0, 2.2, 3.6], "fitted": [True, False, False]}
    )
    path = plots.predicted_against_measured(table, tmp_path / "p.png")
    assert "mean absolute error 10.0% over 2 predicted cases" in text_of(path.with_suffix(".svg"))


def text_of(svg: Path) -> str:
    """The comments of our SVGs hold the words that are drawn as outlines."""
    return svg.read_text(encoding="utf-8").replace("&#x27;", "'")


def test_a_failed_row_is_left_out_and_counted(swept: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(swept, folder)
    text = (folder / "results.csv").read_text().splitlines()
    blank = "8,10 Gbit/s,adam" + "," * (text[0].count(",") - 3) + ",does not fit"
    (folder / "results.csv").write_text("\n".join([*text, blank]) + "\n")
    table, failed = read_results(folder)
    assert (len(table), failed) == (18, 1)
    path = plots.plot_file(folder, "scaling")
    assert "1 of 19 scenarios could not be simulated" in text_of(path.with_suffix(".svg"))


def test_a_timeline_lists_the_spans_of_one_iteration(tmp_path: Path) -> None:
    cluster = ps.Cluster(nodes=4, gpu=ps.gpu("titan-x-maxwell"), network=ps.Network(1.25e9), pcie=12e9)
    run = ps.simulate("alexnet", cluster, ps.ParameterServer(staleness=1), batch_size=64)
    spans = pd.read_csv(timeline(run, tmp_path / "t.png").with_suffix(".csv"))
    assert {"GPU", "sending", "receiving", "to host", "to GPU", "critical path"} <= set(spans["lane"])
    assert (spans["end_s"] > spans["start_s"]).all()


def test_known_strategies_keep_their_look_and_no_two_share_colour_and_marker() -> None:
    given = style.looks(["mine", "all-reduce", "yours", "poseidon"])
    assert given["poseidon"] == style.looks(["poseidon"])["poseidon"]
    assert len({(look.colour, look.marker) for look in given.values()}) == 4


def test_what_cannot_be_drawn_says_why_and_what_to_do(swept: Path, tmp_path: Path) -> None:
    table, _ = read_results(swept)
    with pytest.raises(InputError, match="at least two strategies"):
        plots.winner(table[table["strategy"] == "poseidon"], tmp_path / "x.png")
    with pytest.raises(InputError, match=r"add cluster\.network\.bandwidth"):
        plots.winner(table.drop(columns="cluster.network.bandwidth"), tmp_path / "x.png")
    with pytest.raises(InputError, match="needs the column speedup"):
        plots.scaling(table.drop(columns="speedup"), path=tmp_path / "x.png")
    with pytest.raises(InputError, match="give the scenario file"):
        plots.plot_file(swept, "timeline")
    with pytest.raises(UnknownNameError, match="scaling"):
        plots.plot_file(swept, "scalling")
    with pytest.raises(UnreadableFileError, match="cannot be read"):
        read_results(tmp_path)
    (tmp_path / "results.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UnreadableFileError, match="no column step_time_s"):
        read_results(tmp_path)


def test_a_table_cut_short_is_not_drawn(swept: Path, tmp_path: Path) -> None:
    from poseidon_sim.report.results import read_results

    whole = (swept / "results.csv" if swept.is_dir() else swept).read_text(encoding="utf-8")
    cut = tmp_path / "results.csv"
    cut.write_text(whole.rstrip()[: -len(whole.splitlines()[-1]) // 2], encoding="utf-8")
    with pytest.raises(ps.UnreadableFileError, match="it is cut"):
        read_results(cut)
