"""AxoNN's published figures: every row has one of ours, what was chosen is marked, what it did is reproduced."""

from __future__ import annotations

from pathlib import Path

import pytest

from .script import Table, complete, errors, script, script_rows


@pytest.fixture(scope="module")
def table() -> Table:
    return script_rows("axonn")


def test_every_published_row_has_a_figure_or_a_reason(table: Table) -> None:
    assert complete(table, "S3-")


def test_rows_that_chose_a_number_are_marked_and_the_share_of_peak_fits(table: Table) -> None:
    assert [name for name, row in table.items() if row.use == "fitted"] == ["S3-02", "S3-03", "S3-04"]
    assert abs(table["S3-02"].error) < 0.01


def test_the_lowest_share_of_peak_is_predicted_from_the_highest(table: Table) -> None:
    assert abs(table["S3-01"].error) < 0.1


def test_the_batch_of_24_billion_parameters_takes_a_time_between_the_published_ends_to_half_a_per_cent(table: Table) -> None:
    assert 0.995 * table["S3-07"].published <= table["S3-07"].predicted == table["S3-08"].predicted <= 1.005 * table["S3-08"].published


def test_gains_are_within_ten_per_cent_and_memory_shrinks_to_a_third(table: Table) -> None:
    assert all(abs(table[name].error) < 0.1 for name in ("S3-03", "S3-04", "S3-05"))
    assert 2.5 < table["S3-06"].predicted <= 4
    assert errors(table, "S3-")[len(errors(table, "S3-")) // 2] < 0.1


def test_two_short_runs_tell_of_a_long_one() -> None:
    axonn = script("axonn")
    strategy = axonn.ps.Axonn(pipeline=12)
    gpus = axonn.JOBS["24B"][3]
    long = axonn.ps.simulate(axonn.workload("24B"), axonn.summit(gpus), strategy, batch_size=axonn.BATCH / gpus, micro_batch_size=axonn.MICRO)
    assert long.step_time == pytest.approx(axonn.batch_time("24B", strategy), rel=0.01)


def test_the_script_writes_its_table(table: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert script("axonn").main(tmp_path) == 0
    assert "S3-08" in capsys.readouterr().out and (tmp_path / "rows.csv").exists()
