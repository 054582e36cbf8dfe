"""ChainerMN: rates across nodes are predicted from one GPU and one node; TCP's goodput makes two nodes slower than one."""

from __future__ import annotations

import pytest

from .script import Table, complete, errors, script, script_rows


@pytest.fixture(scope="module")
def table() -> Table:
    return script_rows("chainermn")


def test_every_published_row_has_a_figure_or_a_reason(table: Table) -> None:
    assert complete(table, "B-CMN") and len(table) == 62


def test_rows_that_chose_a_number_are_fitted_and_fit(table: Table) -> None:
    assert {name for name, row in table.items() if row.use == "fitted"} == set(script("chainermn").FITTED)
    assert max(errors(table, "B-CMN", use="fitted")) < 0.01


def test_chainermn_is_predicted_within_five_per_cent_from_2_to_128_gpus(table: Table) -> None:
    found = errors(table, "B-CMN-ips-ChainerMN", "B-CMN-speedup", "B-CMN-curve")
    assert len(found) == 15 and found[-1] < 0.05


def test_two_nodes_on_tcp_are_slower_than_one(table: Table) -> None:
    two, four = (table[f"B-CMN13-ips-eth-{gpus}"] for gpus in (16, 32))
    assert two.predicted < table["B-CMN13-ips-eth-8"].predicted < four.predicted
    assert abs(four.error) < 0.02


# An even spread of 1 +- s: the mean of the largest of n draws is 1 + s (n - 1) / (n + 1).
def test_the_slowest_of_many_comes_near_the_end_of_the_spread() -> None:
    chainermn = script("chainermn")
    assert chainermn.slowest(1) == 1.0
    assert chainermn.slowest(3) == pytest.approx(1 + chainermn.SPREAD / 2)
