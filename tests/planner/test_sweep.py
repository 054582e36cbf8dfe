"""Sweeps: rows do not depend on jobs or interruptions, and errors are rows."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import poseidon_sim as ps
from poseidon_sim.scenario import parse_grid

BASE = {
    "model": "alexnet",
    "cluster": {"nodes": 2, "gpu": "titan-x-maxwell", "network": {"bandwidth": "10 Gbit/s"}},
    "strategy": "poseidon",
}
GRID = parse_grid(["nodes=1,2,4", "cluster.network.bandwidth=1,10Gbit/s", "strategy=poseidon,all-reduce"])


def test_a_grid_has_a_row_for_every_combination(tmp_path: Path) -> None:
    path = ps.sweep(BASE, GRID, tmp_path)
    rows = list(csv.DictReader(path.open()))
    assert len(rows) == 12 and [r["nodes"] for r in rows[:5]] == ["1", "1", "1", "1", "2"]


def test_two_jobs_write_the_same_bytes_as_one(tmp_path: Path) -> None:
    one, two = (ps.sweep(BASE, GRID, tmp_path / str(jobs), jobs=jobs) for jobs in (1, 2))
    assert one.read_bytes() == two.read_bytes()


def test_a_point_that_cannot_run_is_a_row_with_its_error(tmp_path: Path) -> None:
    path = ps.sweep(BASE, {"batch_size": [32, 10**6], "strategy": ["poseidon", "nonsense"]}, tmp_path)
    errors = [bool(row["error"]) for row in csv.DictReader(path.open())]
    assert errors == [False, True, True, True]


def test_a_grid_that_cannot_be_read_at_all_is_refused_before_it_starts(tmp_path: Path) -> None:
    with pytest.raises(ps.InputError, match="nodse"):
        ps.sweep(BASE, {"nodse": [2, 4]}, tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()


def test_another_question_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    ps.sweep(BASE, {"nodes": [1]}, tmp_path)
    with pytest.raises(ps.InputError, match="another sweep"):
        ps.sweep(BASE, {"nodes": [1, 2]}, tmp_path)


@pytest.mark.parametrize("line", ["[]", "5", "null", "{}", '{"row": 3}', '{"row": true, "values": {}}', '{"row": 1.5, "values": {}}', '{"row": 99, "values": {}}',
                                  '{"row": 3, "values": {"nodes": 1}}', "garbage"])  # fmt: skip
def test_a_line_of_the_log_that_is_no_row_is_done_again(tmp_path: Path, line: str) -> None:
    whole = ps.sweep(BASE, GRID, tmp_path).read_bytes()
    log = tmp_path / "rows.jsonl"
    lines = log.read_text().splitlines()
    log.write_text("\n".join([*lines[:3], line, *lines[4:]]) + "\n")
    assert ps.sweep(BASE, GRID, tmp_path).read_bytes() == whole


@pytest.mark.parametrize(("grid", "jobs"), [({"nodes": 4}, 1), ({"nodes": "2,4"}, 1), ({"nodes": []}, 1), ({"nodes": [2]}, "2"), ({"nodes": [2]}, 2.5)])
def test_a_grid_or_a_number_of_jobs_that_is_none_is_named(tmp_path: Path, grid: dict[str, object], jobs: object) -> None:
    with pytest.raises(ps.InputError, match="must be a"):
        ps.sweep(BASE, grid, tmp_path / "never", jobs=jobs)  # type: ignore[arg-type]


def test_a_plot_of_an_unfinished_sweep_says_how_to_finish_it(tmp_path: Path) -> None:
    from poseidon_sim.report.plots import plot_file

    (tmp_path / "rows.jsonl").write_text('{"sweep": "x", "rows": 10}\n')
    with pytest.raises(ps.UnreadableFileError, match="not finished; run the same sweep command again"):
        plot_file(tmp_path)


def test_a_killed_sweep_resumes_and_loses_nothing(tmp_path: Path) -> None:
    whole = ps.sweep(BASE, GRID, tmp_path / "whole").read_bytes()
    code = f"import poseidon_sim as ps; ps.sweep({BASE!r}, {GRID!r}, {str(tmp_path / 'cut')!r})"
    for pause in (0.6, 0.8, 1.0):
        child = subprocess.Popen([sys.executable, "-c", code])
        time.sleep(pause)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    assert ps.sweep(BASE, GRID, tmp_path / "cut").read_bytes() == whole


def test_a_line_cut_short_by_a_kill_is_done_again(tmp_path: Path) -> None:
    whole = ps.sweep(BASE, GRID, tmp_path / "whole").read_bytes()
    ps.sweep(BASE, GRID, tmp_path / "cut")
    log = tmp_path / "cut" / "rows.jsonl"
    log.write_bytes(log.read_bytes()[:-40])
    assert ps.sweep(BASE, GRID, tmp_path / "cut").read_bytes() == whole


def test_a_grid_that_no_memory_holds_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ps.InputError, match="8,000,000 points"):
        ps.sweep(BASE, {"nodes": list(range(1, 2001)), "batch_size": list(range(1, 4001))}, tmp_path)


def test_a_file_that_is_no_log_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("my notes\n")
    with pytest.raises(ps.InputError, match="is no log of a sweep"):
        ps.sweep(BASE, GRID, tmp_path)
    assert (tmp_path / "rows.jsonl").read_text() == "my notes\n"
