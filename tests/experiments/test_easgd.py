"""EASGD's published ratios: every row has a figure or a reason, the marks are right, the exact ones are close."""

from __future__ import annotations

from pathlib import Path

import pytest

from .script import Table, complete, script, script_rows


@pytest.fixture(scope="module")
def table() -> Table:
    return script_rows("easgd")


def test_every_published_row_has_a_figure_or_a_reason(table: Table) -> None:
    assert complete(table, "B-YOU")


def test_only_the_two_rows_that_chose_a_number_are_fitted_and_they_fit(table: Table) -> None:
    fitted = {name: row for name, row in table.items() if row.use == "fitted"}
    assert set(fitted) == {"B-YOU-s3-comm", "B-YOU-s3-speed"}
    assert all(abs(row.error or 0.0) < 0.01 for row in fitted.values())


def test_the_share_of_communication_of_the_original_is_predicted_within_five_per_cent(table: Table) -> None:
    row = table["B-YOU-orig-comm"]
    assert row.use == "predicted" and row.flag == "exact" and abs(row.error or 1.0) < 0.05


def test_every_step_from_the_original_to_version_three_gains(table: Table) -> None:
    assert all(table[name].predicted > 1.05 for name in ("B-YOU-s1-speed", "B-YOU-s2-speed", "B-YOU-s3s2-speed"))


def test_the_script_writes_its_table(table: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert script("easgd").main(tmp_path) == 0
    assert "B-YOU-s3-speed" in capsys.readouterr().out and (tmp_path / "rows.csv").exists()
