"""Poplar's published range: every row has a figure, nothing is fitted, an equal deal never gains, most where the cards differ most."""

from __future__ import annotations

from pathlib import Path

import pytest

from .script import Table, complete, script, script_rows


@pytest.fixture(scope="module")
def table() -> Table:
    return script_rows("poplar")


def test_every_published_row_has_a_figure_or_a_reason(table: Table) -> None:
    assert complete(table, "S10-")


def test_nothing_is_fitted_and_the_clusters_are_given(table: Table) -> None:
    assert {row.use for row in table.values()} == {"given", "predicted"}
    assert all(row.error == 0 for row in table.values() if row.use == "given")


def test_the_gain_begins_where_published_and_ends_in_the_published_range(table: Table) -> None:
    assert abs(table["S10-01"].error) < 0.05
    assert 1.5 < table["S10-02"].predicted <= table["S10-02"].published


def test_cards_that_differ_in_memory_alone_gain_least_and_those_that_differ_most_in_rate_gain_most(table: Table) -> None:
    found = script("poplar").gains()
    over_equal = [max(found[(c, zero, "equal")] for zero in range(4)) for c in ("S10-c1", "S10-c2", "S10-c3")]
    assert over_equal == sorted(over_equal)
    assert all(gain > 0.99 for gain in found.values())


def test_the_script_writes_its_table(table: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert script("poplar").main(tmp_path) == 0
    assert "S10-02" in capsys.readouterr().out and (tmp_path / "rows.csv").exists()
