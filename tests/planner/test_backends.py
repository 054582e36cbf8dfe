"""The same sweep on any backend writes the same file; a dead worker costs nothing but time."""

from __future__ import annotations

import csv
import os
import signal
from pathlib import Path

import pytest

import poseidon_sim as ps
from poseidon_sim.planner.pools import DeadWorkerError, run_slices

BASE = {
    "model": "alexnet",
    "cluster": {"nodes": 2, "gpu": "titan-x-maxwell", "network": {"bandwidth": "10 Gbit/s"}},
    "strategy": "poseidon",
}
GRID = {
    "nodes": [1, 2, 4, 8],
    "cluster.network.bandwidth": ["1 Gbit/s", "10 Gbit/s"],
    "strategy": ["poseidon", "all-reduce"],
}


def killed_at_three(numbers: list[int]) -> list[int]:
    """Square numbers; whoever gets a 3 is ended as by the system, the first time or always."""
    for number in numbers:
        marker = Path(os.environ["POSEIDON_SIM_TEST_MARKER"])
        if number == 3 and (os.environ.get("POSEIDON_SIM_TEST_ALWAYS") or not marker.exists()):
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    return [number**2 for number in numbers]


@pytest.fixture(autouse=True)
def marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSEIDON_SIM_TEST_MARKER", str(tmp_path / "marker"))


def answers(slices: list[list[int]]) -> dict[int, object]:
    found: dict[int, object] = {}
    with pytest.warns(RuntimeWarning, match="ended by the system"):
        for each, answer in run_slices(killed_at_three, slices, jobs=2, backend="processes"):
            found.update({n: answer if isinstance(answer, DeadWorkerError) else answer[i] for i, n in enumerate(each)})
    return found


def test_what_a_dead_worker_left_undone_runs_again() -> None:
    assert answers([[0, 1], [2, 3, 4], [5], [6, 7], [8, 9]]) == {n: n**2 for n in range(10)}


def test_a_point_that_ends_every_worker_is_given_up_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSEIDON_SIM_TEST_ALWAYS", "1")
    found = answers([[0, 1], [2, 3, 4], [5], [6, 7], [8, 9]])
    assert isinstance(found.pop(3), DeadWorkerError)
    assert found == {n: n**2 for n in range(10) if n != 3}


def test_an_unknown_backend_is_named_with_the_nearest_known_one(tmp_path: Path) -> None:
    with pytest.raises(ps.InputError, match="dask"):
        ps.sweep(BASE, GRID, tmp_path, backend="dusk")


def test_a_dask_cluster_writes_the_same_bytes_as_this_process(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    pytest.importorskip("joblib")
    here = ps.sweep(BASE, GRID, tmp_path / "here").read_bytes()
    there = ps.sweep(BASE, GRID, tmp_path / "there", jobs=2, backend="dask").read_bytes()
    assert there == here
    assert len(list(csv.DictReader((tmp_path / "there" / "results.csv").open()))) == 16
