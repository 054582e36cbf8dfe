"""Reports of runs as text and Markdown."""

from __future__ import annotations

import subprocess
import sys

import pytest

import poseidon_sim as ps
from poseidon_sim.report.tables import (
    bar,
    compare_markdown,
    compare_text,
    markdown_table,
    run_markdown,
    run_text,
    text_table,
    verdict,
)

CLUSTER = ps.Cluster(nodes=8, gpu=ps.gpu("titan-x-maxwell"), network=ps.Network(1.25e9), pcie=12e9)


def run(strategy: str, cluster: ps.Cluster = CLUSTER) -> ps.Run:
    return ps.simulate("vgg19-22k", cluster, strategy, batch_size=32)


@pytest.fixture(scope="module")
def runs() -> list[ps.Run]:
    names = ("poseidon", "sufficient-factor-broadcast", "parameter-server", "adam")
    return sorted((run(name) for name in names), key=lambda one: one.step_time)


def test_the_report_holds_headline_time_path_traffic_and_bottleneck() -> None:
    one = run("parameter-server")
    text = run_text(one)
    assert text.splitlines()[0].endswith("(predicted)")
    for part in (
        f"{one.step_time * 1e3:.2f} ms",
        f"{one.throughput:.1f} samples/s",
        f"{one.speedup:.2f} on 8 GPUs",
        "exposed communication",
        "the critical path",
        "transfer: node port out",
        f"each node sends {one.summary()['bytes_sent_per_node'] / 1e6:.1f} MB",
        "of 12.9 GB per GPU",
        f"limited by   {one.bottleneck}",
    ):
        assert part in text
    assert text.isascii() and "\x1b" not in text


def test_the_parts_of_a_step_in_the_report_add_up_to_all_of_it() -> None:
    shares = [
        float(line.split("%")[0].split()[-1])
        for line in run_text(run("adam")).splitlines()
        if line.startswith(("    compute ", "    exposed", "    waiting"))
    ]
    assert sum(shares[:3]) == pytest.approx(100.0, abs=0.2)


def test_a_busy_node_is_listed_apart_from_the_mean() -> None:
    text = run_text(run("adam"))
    assert "(mean); most:" in text


def test_one_gpu_has_no_communication_and_the_report_says_so() -> None:
    text = run_text(run("all-reduce", ps.Cluster(nodes=1, gpu=ps.gpu("titan-x-maxwell"))))
    assert "overlap: no communication" in text
    assert "1.00 on 1 GPU (" in text


def test_the_ranking_shows_the_margin_to_the_winner_and_ties(runs: list[ps.Run]) -> None:
    lines = compare_text(runs).splitlines()
    rows = [line for line in lines if " ms " in line]
    assert [row.split()[0] for row in rows] == ["1.", "=", "3.", "4."]
    assert f"{runs[2].step_time / runs[0].step_time - 1:+.1%}" in rows[2]
    positions = {row.index(" ms ") for row in rows}
    assert len(positions) == 1, "columns are aligned"


def test_the_verdict_names_ties_and_what_the_next_one_loses(runs: list[ps.Run]) -> None:
    loss = f"{runs[2].step_time / runs[0].step_time - 1:.1%}"
    assert "tie (within 0.5%); parameter-server takes " + loss in verdict(runs)
    assert verdict(runs[2:3]) == "parameter-server wins."


def test_markdown_tables_have_as_many_cells_in_every_row(runs: list[ps.Run]) -> None:
    for text in (compare_markdown(runs), run_markdown(runs[0])):
        rows = [line for line in text.splitlines() if line.startswith("|")]
        assert len(rows) > 4
        assert len({row.replace("\\|", "").count("|") for row in rows}) == 1


def test_a_pipe_inside_a_cell_is_escaped() -> None:
    assert markdown_table(("a",), [("x|y",)]).splitlines()[-1] == "| x\\|y |"


def test_bars_are_in_proportion_and_small_ones_still_show() -> None:
    assert [bar(x, 10) for x in (1.0, 0.5, 0.01, 0.0)] == ["##########", "#####", "#", ""]


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert text_table(("", "n", "x", ""), [("a", "long", "1", "")]) == ["   n     x", "a  long  1"]


def test_importing_reports_loads_neither_matplotlib_nor_pandas() -> None:
    code = (
        "import sys, poseidon_sim.report, poseidon_sim.report.plots, poseidon_sim.report.tables\n"
        "print([m for m in ('matplotlib', 'pandas') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
