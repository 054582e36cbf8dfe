"""The catalog: names, aliases, and figures that are achievable rather than printed on a data sheet."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import poseidon_sim as ps
from poseidon_sim.cluster import catalog

ROWS = list(csv.DictReader(Path(catalog.__file__).with_name("hardware.csv").open(newline="", encoding="utf-8")))


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("titan-x", "titan-x-maxwell"),
        ("v100", "v100-sxm2-16gb"),
        ("p100-sxm2-16gb", "p100-sxm2"),
        ("A100", "a100-sxm-80gb"),
        ("h100-sxm-80gb", "h100-sxm"),
        ("2080ti", "rtx-2080-ti"),
        ("RTX 2080 Ti", "rtx-2080-ti"),
        ("h100_sxm", "h100-sxm"),
    ],
)
def test_short_names_and_other_spellings_stand_for_one_card(alias: str, name: str) -> None:
    assert ps.gpu(alias).name == name
    assert ps.gpu(alias) is ps.gpu(name)


def test_aliases_name_one_thing_only() -> None:
    for gpus in (True, False):
        kept = [row for row in ROWS if (row["kind"] == "gpu") is gpus]
        names = [row["id"] for row in kept] + [alias for row in kept for alias in row["aliases"].split()]
        assert len(names) == len(set(names))


def test_every_name_is_lower_case_with_hyphens() -> None:
    for name in (*ps.list_gpus(), *ps.list_links()):
        assert name == name.lower() and not set(name) & set(" _()/")


def test_every_row_has_a_source_and_a_confidence() -> None:
    for part in (*map(ps.gpu, ps.list_gpus()), *map(ps.link, ps.list_links())):
        assert part.source and part.confidence, part.name


def test_an_unknown_name_is_answered_with_the_nearest_known_one() -> None:
    with pytest.raises(ps.UnknownNameError, match="unknown gpu 'titan-x-maxwel'; did you mean 'titan-x-maxwell'"):
        ps.gpu("titan-x-maxwel")
    with pytest.raises(ps.UnknownNameError, match="unknown link '10gbe-tpc'; did you mean '10gbe-tcp'"):
        ps.link("10gbe-tpc")


def test_memory_sizes_are_binary_and_rates_decimal() -> None:
    card = ps.gpu("titan-x-maxwell")
    assert (card.memory, card.memory_bandwidth, card.flops) == (12 * 2**30, 336.5e9, {"fp32": 6.14e12})


def test_a_k20x_has_the_rates_of_the_titan_supercomputer() -> None:
    assert ps.gpu("k20x").flops["fp32"] == pytest.approx(3.935e12)
    assert ps.gpu("k20x").memory_bandwidth == 250e9


def test_cards_that_software_sees_as_two_count_as_one_of_the_two() -> None:
    # K80: 24 GB on the board; MI250X: 128 GB and 383 TFLOP/s on the card
    assert ps.gpu("k80").memory == 12 * 2**30
    assert ps.gpu("mi250x").memory == 64 * 2**30
    assert ps.gpu("mi250x").flops["fp16"] == pytest.approx(191.5e12)


def test_pcie_is_the_middle_of_the_measured_range_of_its_generation() -> None:
    assert ps.gpu("titan-x-maxwell").pcie_bandwidth == pytest.approx((11.5e9 + 13.2e9) / 2)
    assert ps.gpu("gb200").pcie_bandwidth == ps.gpu("h100").pcie_bandwidth == pytest.approx((46.8e9 + 55e9) / 2)


def test_nvlink_is_the_measured_rate_and_a_bridge_of_two_cards_is_no_fabric() -> None:
    assert ps.gpu("a100").peer_bandwidth == pytest.approx((220e9 + 270e9) / 2)
    assert ps.gpu("a100").peer_bandwidth == pytest.approx(
        ps.link("nvlink-3").bandwidth * ps.link("nvlink-3").efficiency
    )
    assert ps.gpu("a100-pcie-80gb").peer_bandwidth is None


def test_links_carry_less_than_their_raw_rate() -> None:
    for link in map(ps.link, ps.list_links()):
        assert 0 < link.efficiency < 1, link.name


def test_an_assumed_share_of_a_link_says_so() -> None:
    assert "assumed" in ps.link("infinity-fabric-mi300x").confidence


def test_a_range_of_prices_counts_as_its_middle() -> None:
    assert ps.gpu("h100-sxm").price_per_hour == pytest.approx((1.99 + 5.00) / 2)
    assert ps.gpu("v100").price_per_hour == pytest.approx(3.06)
    assert ps.gpu("k20").price_per_hour is None


def test_no_card_reaches_its_whole_peak_in_any_kind_of_layer() -> None:
    for card in map(ps.gpu, ps.list_gpus()):
        assert card.efficiency and all(0 < share < 1 for share in card.efficiency.values()), card.name
