"""The comparison counts right: hops behind token buckets, errors, winners, trust."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import poseidon_sim as ps
from validation.campaign.cases import PS, RING, SFB, Case, all_cases
from validation.campaign.compare import Comparison, compare, read_calibration, ring_hop, winners
from validation.campaign.run import MEASURED, read_table

CASE = Case("deep8", RING, 4, 200)


def comparison(case: Case, measured: float, predicted: float) -> Comparison:
    return Comparison(case, measured, predicted, 0.001, 0.001, 0.1, 0.2, 0, 3)


def test_a_hop_shorter_than_the_bucket_costs_nothing_and_a_longer_one_what_exceeds_it() -> None:
    # 200 Mbit/s = 25e6 bytes/s; the bucket holds a segment of 11 frames of 1514 bytes, and 0.4 ms; a chunk of 147 kB is longer
    bucket = 11 * 1514 / 25e6 + 0.4e-3
    assert bucket == pytest.approx(1.066e-3, rel=1e-3)
    assert ring_hop(CASE, 0.9e-3) == 0.0
    assert ring_hop(CASE, 5e-3) == pytest.approx(5e-3 - bucket)


def test_a_hop_of_a_chunk_smaller_than_the_bucket_is_hidden_by_no_more_than_the_chunks_time() -> None:
    # 'mlp4b' has chunks of 0.04 to 2 MB / 4 and four tiny biases: 2048, 4096, 800 and 40 bytes over 4 nodes
    hop = ring_hop(replace(CASE, net="mlp4b"), 0.5e-3)
    tiny = sum(0.5e-3 - size / 4 / 25e6 for size in (2048, 4096, 800, 40, 4 * 2000))
    assert hop == pytest.approx(tiny / 8)


def test_the_winner_is_right_when_the_predicted_best_is_the_measured_best() -> None:
    slow, fast = replace(CASE, strategy=PS), replace(CASE, strategy=SFB)
    assert winners([comparison(slow, 2.0, 2.1), comparison(fast, 1.0, 1.2)]) == (1, 1, 0.0)
    groups, right, regret = winners([comparison(slow, 2.0, 1.0), comparison(fast, 1.0, 1.2)])
    assert (groups, right) == (1, 0) and regret == pytest.approx(1.0)


def test_groups_whose_strategies_take_the_same_time_have_no_winner() -> None:
    pair = [comparison(CASE, 1.0, 1.0), comparison(replace(CASE, strategy=PS), 1.02, 0.9)]
    assert winners(pair) == (0, 0, 0.0)


def test_dropped_packets_a_busy_runner_or_wide_repetitions_make_a_case_untrusted() -> None:
    good = comparison(CASE, 1.0, 1.0)
    assert good.trusted
    assert not any(x.trusted for x in (replace(good, drops=1), replace(good, own_cpu=0.5), replace(good, spread=0.05)))


def test_the_committed_campaign_covers_every_case_and_meets_its_targets() -> None:
    rows = compare(MEASURED / "emulated.csv", read_calibration(MEASURED / "emulated_network.csv"))
    assert {one.case for one in rows} == set(all_cases())
    errors = sorted(abs(one.error) for one in rows if one.trusted)
    assert errors[len(errors) // 2] < 0.01
    assert errors[int(0.95 * len(errors))] < 0.04
    groups, right, _ = winners(one for one in rows if one.trusted)
    assert right == groups >= 15


def test_a_line_that_a_kill_cut_off_and_a_foreign_file_are_named(tmp_path: Path) -> None:
    whole = (MEASURED / "emulated.csv").read_text(encoding="utf-8").splitlines()[:3]
    table = tmp_path / "cut.csv"
    table.write_text("\n".join([*whole, whole[1][:40]]), encoding="utf-8")
    with pytest.raises(ps.UnreadableFileError, match=r"cut.csv:4: has not as many fields"):
        read_table(table)
    table.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(ps.UnreadableFileError, match="is no table of the campaign"):
        read_table(table)
