"""Intervals come from the misses: they span what they say, every source weighs the same, and far away is named."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest

import poseidon_sim as ps
from poseidon_sim.metrics import trust as module
from poseidon_sim.metrics import trust_in
from poseidon_sim.metrics.trust import SPANS, Residual, like, residuals, spread, weighted

COMPUTE = {"compute": 1.0}
WIRE = {"compute": 0.5, "transfer: node port out": 0.5}


def test_the_shipped_residuals_name_several_sources_of_every_place() -> None:
    sources = defaultdict(set)
    for row in residuals():
        sources[row.place].add(row.source)
        assert math.isfinite(row.log_error) and row.num_gpus >= 1
    assert {place for place, found in sources.items() if len(found) >= 5} == {"one GPU", "one node", "several nodes"}


def test_a_source_with_many_rows_weighs_no_more_than_one_with_a_single_row() -> None:
    many = [Residual("a", "one node", "compute-bound", "assumed", "x", 8, 0.1)] * 99
    rows = [*many, Residual("b", "one node", "compute-bound", "assumed", "x", 8, 0.3)]
    low, high = spread(*weighted(rows), 1.0)
    assert (low, high) == pytest.approx((0.1, 0.3), abs=0.01)
    values, weights = weighted(rows)
    assert np.average(values, weights=weights) == pytest.approx(0.2)


def test_the_wide_interval_holds_the_narrow_one() -> None:
    for blame, modelled in ((COMPUTE, True), (COMPUTE, False), (WIRE, True), (WIRE, False)):
        for nodes, gpus in ((1, 1), (1, 8), (4, 32)):
            found = trust_in(0.1, nodes, gpus, blame, "all-reduce", modelled)
            assert found.most[0] <= found.half[0] <= found.half[1] <= found.most[1]


def test_modelled_compute_widens_the_interval_of_a_job_that_compute_bounds() -> None:
    given, modelled = (trust_in(0.1, 4, 4, COMPUTE, "all-reduce", m).most for m in (False, True))
    assert modelled[1] / modelled[0] > given[1] / given[0]


def test_the_intervals_hold_what_they_say_of_sources_they_were_not_made_from() -> None:
    steps = [r for r in residuals() if r.place != "one GPU"]
    for level, span in SPANS.items():
        shares = []
        for source in {r.source for r in steps}:
            rest, mine = [r for r in steps if r.source != source], [r for r in steps if r.source == source]
            ends = [spread(*weighted(like(rest, r.place, r.bound, r.goodput)[0]), span) for r in mine]
            shares.append(np.mean([low <= r.log_error <= high for r, (low, high) in zip(mine, ends, strict=True)]))
        assert np.mean(shares) == pytest.approx(level / 100, abs=0.06)


def test_one_gpu_whose_times_are_given_borrows_no_misses_of_the_compute_model() -> None:
    found = trust_in(0.1, 1, 1, COMPUTE, "all-reduce", modelled=False)
    assert found.most == found.half == (0.1, 0.1) and found.cases == 0
    assert "nothing is predicted" in str(found)
    assert trust_in(0.1, 1, 1, COMPUTE, "all-reduce", modelled=True).cases > 0


def test_a_strategy_nobody_measured_and_a_size_far_beyond_are_named() -> None:
    assert trust_in(0.1, 4, 4, WIRE, "nobody-measured", False).outside == ("no measured case of nobody-measured",)
    assert "100,000 GPUs; the largest measured case of all-reduce has" in trust_in(0.1, 100_000, 100_000, WIRE, "all-reduce", False).outside[0]


def test_a_run_tells_whether_its_compute_times_were_given() -> None:
    cluster = ps.Cluster(nodes=4, gpu=ps.gpu("titan-x-maxwell"), network=ps.Network(1e9))
    modelled = ps.simulate("vgg19", cluster, "poseidon")
    given = ps.simulate(ps.load_model("vgg19", single_gpu_throughput=35.5), cluster, "poseidon")
    assert modelled.trust.regime.endswith("compute modelled") and given.trust.regime.endswith("compute times given")
    assert str(given.trust) in str(given) and given.to_dict()["trust"]["cases"] == given.trust.cases


def test_a_regime_without_enough_sources_asks_the_next_wider_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tuple(Residual(str(i), "several nodes", "bandwidth-bound", "assumed", "x", 8, 0.01 * i) for i in range(4))
    monkeypatch.setattr(module, "residuals", lambda: rows)
    for goodput, name in (("assumed", "several nodes, network-bound, goodput assumed"), ("stated", "several nodes")):
        assert trust_in(0.1, 4, 4, {"message latency": 1.0}, "x", False, goodput).regime == f"{name}, compute times given"


def test_a_stated_goodput_is_held_against_networks_that_were_measured() -> None:
    bare, stated = (trust_in(0.1, 4, 4, WIRE, "all-reduce", False, each) for each in ("assumed", "stated"))
    assert stated.regime.startswith("several nodes, network-bound, goodput stated")
    assert stated.most[1] / stated.most[0] < bare.most[1] / bare.most[0]
    network = ps.Network(1.25e9)
    assert not network.states_goodput and not network.shared_by(3).states_goodput
    cluster = {"nodes": 2, "gpu": "titan-x-maxwell"}
    told = [
        ps.load_scenario({"model": "vgg19", "strategy": "ddp", "cluster": {**cluster, "network": each}}).cluster.network
        for each in ("10gbe-tcp", "10 Gbit/s", {"link": "10gbe-tcp", "efficiency": 0.8}, {"bandwidth": "10 Gbit/s", "efficiency": 0.8})
    ]
    assert [each is not None and each.states_goodput for each in told] == [False, False, True, True]
