"""FireCaffe, GradientFlow and PowerAI DDL: every published row has a figure or a reason; exact rows are near."""

from __future__ import annotations

import pytest

from .script import Table, complete, script_rows


@pytest.mark.parametrize(("name", "prefix"), [("fire_caffe", "B-FC"), ("gradientflow", "S8-"), ("ddl", "S7-"), ("poseidon_pde", "S9-")])
def test_every_published_row_has_a_figure_or_a_reason(name: str, prefix: str) -> None:
    assert complete(script_rows(name), prefix)


def test_one_rate_per_hop_explains_the_exact_speedups_of_fire_caffe() -> None:
    table: Table = script_rows("fire_caffe")
    exact = [row for row in table.values() if row.use == "predicted" and row.flag == "exact"]
    assert len(exact) == 2
    assert all(abs(row.error) < 0.06 for row in exact)


def test_the_speedup_of_gradientflow_on_512_gpus_is_predicted_within_a_sixth() -> None:
    table: Table = script_rows("gradientflow")
    assert abs(table["S8-01"].error) < 1 / 6
