"""FRNN's epochs: every row has a figure, three rows chose a number, the curve of 4 to 160 GPUs is predicted."""

from __future__ import annotations

import pytest

from .script import Table, complete, errors, script, script_rows


@pytest.fixture(scope="module")
def table() -> Table:
    return script_rows("frnn")


def test_every_published_row_is_in_the_table(table: Table) -> None:
    assert complete(table, "B-FRNN") and all(row.predicted is not None for row in table.values())


def test_the_rows_that_chose_a_number_are_fitted_and_fit(table: Table) -> None:
    fitted = {name for name, row in table.items() if row.use == "fitted"}
    assert fitted == set(script("frnn").FITTED)
    assert all(abs(table[name].error) < 0.02 for name in fitted)


def test_the_epoch_on_four_gpus_is_given(table: Table) -> None:
    assert {n for n, row in table.items() if row.use == "given"} == {f"B-FRNN{n}-4" for n in ("-full", "-large", "-medium", "-small", "18-epoch")}


def test_the_curve_of_the_full_set_is_predicted_within_ten_per_cent(table: Table) -> None:
    found = errors(table, "B-FRNN-full")
    assert len(found) == 22 and found[-1] < 0.10 and found[len(found) // 2] < 0.05


def test_the_small_sets_are_predicted_within_a_fifth(table: Table) -> None:
    found = errors(table, "B-FRNN-small", "B-FRNN-medium", "B-FRNN-large")
    assert len(found) == 14 and found[-1] < 0.20 and found[len(found) // 2] < 0.08


def test_the_small_set_stops_gaining_where_the_published_one_does(table: Table) -> None:
    assert table["B-FRNN-small-20"].predicted / table["B-FRNN-small-32"].predicted < 1.15
