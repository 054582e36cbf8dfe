"""Systems whose published figures are of no step time: the rows stand with their reasons, and what can be said is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from .script import complete, script, script_rows


@pytest.mark.parametrize(("name", "prefix"), [("decentralized_diffusion", "B-DDM"), ("tpa_scd", "B-TPA"), ("fusionllm", "B-FLLM")])
def test_every_row_has_its_reason(name: str, prefix: str, tmp_path: Path) -> None:
    table = script_rows(name)
    assert complete(table, prefix) and all(row.use == "not modelled" and row.reason for row in table.values())
    assert script(name).main(tmp_path) == 0


def test_an_experts_step_is_the_same_on_every_link() -> None:
    assert len(set(script("decentralized_diffusion").steps().values())) == 1


# 300 MB: two copies over PCIe, 2 log2(4) hops at the goodput of 10 GbE (about 1.17 GB/s), one pass at 20 GB/s: 1.03 s + 0.05 + 0.02.
def test_an_aggregation_of_their_vector_takes_a_second_on_four_hosts() -> None:
    assert script("tpa_scd").aggregation(4) == pytest.approx(1.1, rel=0.1)


def test_the_range_of_fusionllm_is_said_to_be_of_conditions_assumed() -> None:
    table = script_rows("fusionllm")
    assert all("conditions assumed" in row.reason for row in table.values())
    assert 1.0 <= table["B-FLLM-min"].predicted <= table["B-FLLM-max"].predicted


def test_to_see_the_links_costs_fusionllm_at_most_a_thousandth() -> None:
    """What is made small is the slowest stage or link, not the step of a schedule."""
    assert min(script("fusionllm").speedups("OP-Fence")) >= 1.0 - 1e-3
