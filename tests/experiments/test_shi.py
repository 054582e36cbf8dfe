"""Shi et al.: gTop-k, MG-WFBP, shared ports and NCCL's byte times are predicted; two numbers are fitted on VGG-16."""

from __future__ import annotations

import pytest

from .script import Table, complete, errors, script, script_rows


@pytest.fixture(scope="module")
def table() -> Table:
    return script_rows("shi")


def test_every_published_row_has_a_figure_or_a_reason(table: Table) -> None:
    assert complete(table, "S11") and len(table) == 181


def test_two_rows_of_vgg16_chose_a_number(table: Table) -> None:
    assert {name for name, row in table.items() if row.use == "fitted"} == set(script("shi").FITTED)
    assert max(errors(table, "S11", use="fitted")) < 0.01


def test_gtop_k_of_alexnet_is_predicted_from_vgg16(table: Table) -> None:
    assert max(abs(table[f"S11G-{row}"].error) for row in range(33, 37)) < 0.08
    assert abs(table["S11G-brk-AlexNet-communication_s"].error) < 0.03


def test_merging_is_predicted_to_gain_a_sixth_at_eight_nodes(table: Table) -> None:
    published, ours = (getattr(table["S11B-06t"], what) / getattr(table["S11B-03t"], what) for what in ("published", "predicted"))
    assert ours == pytest.approx(published, rel=0.04) and ours > 1.16


# Two nodes exchange M bytes in a ring: a + b M alone; k that share a port move k times as much through it: a + k b M.
@pytest.mark.parametrize("jobs", [1, 2, 7])
def test_jobs_that_share_a_port_end_together(jobs: int) -> None:
    assert script("shi").at_once(4e6, jobs, 0.05, 1e-8) == pytest.approx(0.05 + jobs * 0.04, rel=1e-6)


def test_jobs_on_one_port_are_predicted_from_one_alone(table: Table) -> None:
    found = errors(table, "S11M-cont")
    assert len(found) == 19 and found[9] < 0.08 and found[-1] < 0.14


def test_nccls_byte_time_on_10_gbe_is_a_rings(table: Table) -> None:
    assert max(errors(table, "S11M-10g-NCCL")) < 0.04


def test_merging_exposes_less_than_a_tensor_at_a_time_and_two_streams_less_than_one(table: Table) -> None:
    for model in ("ResNet-152", "BERT-Base"):
        ours = [table[f"S11A-{model}-{method}"].predicted for method in ("WFBP", "MG-WFBP", "ASC-WFBP")]
        assert ours == sorted(ours, reverse=True)
