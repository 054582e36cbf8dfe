"""Ovi's ranges: every row has a figure or a reason, what was picked is marked, the directions are the published ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from .script import Table, complete, script, script_rows


@pytest.fixture(scope="module")
def table() -> Table:
    return script_rows("ovi")


def test_every_published_row_has_a_figure_or_a_reason(table: Table) -> None:
    assert complete(table, "S6-")
    assert {name for name, row in table.items() if row.use == "not modelled"} == {"S6-06", "S6-06b"}
    assert {name for name, row in table.items() if row.use == "fitted"} == {"S6-01", "S6-01b"}  # the cluster was picked in their sight


def test_sharding_saves_memory_and_costs_time(table: Table) -> None:
    of = script("ovi").ratios()
    assert min(of["memory"]) > 1 and min(of["time"]) > 1
    assert table["S6-04"].predicted > 0.3


def test_an_asynchronous_server_saves_time_where_gpus_differ_and_a_limit_on_staleness_takes_most_of_it_away() -> None:
    ovi = script("ovi")
    free, bound = max(ovi.ratios()["saved"]), max(ovi.ratios(3.0)["saved"])
    assert 0.05 < free <= 0.28 and bound < free / 2


def test_replicas_gain_two_to_four_times_on_four_gpus() -> None:
    assert all(1.8 < each <= 4 for each in script("ovi").ratios()["speedup"])


def test_the_script_writes_its_table(table: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert script("ovi").main(tmp_path) == 0
    assert "S6-05" in capsys.readouterr().out and (tmp_path / "rows.csv").exists()
