"""The slowest of many equal GPUs sets the pace: against order statistics drawn and known, and where nobody waits for it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import poseidon_sim as ps
from poseidon_sim.cluster.spread import CATALOG_SPREAD, expected_slowest
from poseidon_sim.plan.record import KIND

V100 = ps.gpu("v100-sxm2-16gb")
RESNET = ps.load_model("resnet50", single_gpu_throughput=360.0)


def cluster(gpus: int = 8, **settings: object) -> ps.Cluster:
    return ps.Cluster(nodes=1, gpus_per_node=gpus, gpu=V100, node="nvlink-ring", **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [2, 3, 8, 64, 512])
def test_the_expected_slowest_is_the_mean_of_the_largest_of_so_many_draws(number: int) -> None:
    drawn = np.random.default_rng(0).standard_normal((20_000, number)).max(axis=1)
    assert expected_slowest(number) == pytest.approx(drawn.mean(), abs=5 * drawn.std() / math.sqrt(len(drawn)))


def test_the_expected_slowest_of_two_and_three_are_the_known_closed_forms() -> None:
    assert expected_slowest(2) == pytest.approx(1 / math.sqrt(math.pi), rel=1e-6)
    assert expected_slowest(3) == pytest.approx(1.5 / math.sqrt(math.pi), rel=1e-6)


def test_compute_of_a_run_is_that_of_the_slowest_and_one_gpu_is_not_slowed() -> None:
    alone, even, usual = (ps.simulate(RESNET, each, "ddp", batch_size=64) for each in (cluster(1), cluster(gpu_spread=0.0), cluster()))
    slowdown = 1 + CATALOG_SPREAD * expected_slowest(8)
    assert alone.metrics.compute_time == pytest.approx(64 / 360.0, rel=1e-6)
    assert even.to_dict()["slowest_gpu_slowdown"] == alone.to_dict()["slowest_gpu_slowdown"] == 1.0
    assert usual.to_dict()["slowest_gpu_slowdown"] == pytest.approx(slowdown)
    forward = [run.trace.program.work[run.trace.table.kind == KIND["forward"]].sum() for run in (even, usual)]
    assert forward[1] == pytest.approx(forward[0] * slowdown)
    assert "slower than the mean, sets the pace" in str(usual) and "sets the pace" not in str(even)


def test_scaling_is_counted_against_one_gpu_that_waits_for_nobody() -> None:
    run = ps.simulate(RESNET, cluster(), "ddp", batch_size=64)
    assert run.single_gpu_time == pytest.approx(64 / 360.0, rel=1e-6)


def test_more_gpus_have_a_slower_slowest() -> None:
    slowest = [replace(cluster(), gpus_per_node=n).slowest(V100) for n in (1, 2, 8, 64, 512)]
    assert slowest == sorted(slowest) and len(set(slowest)) == 5
    assert slowest[-1] < 1.06


def test_measured_layer_times_jitter_and_a_gpu_written_out_keep_the_catalogs_spread_out() -> None:
    timed = RESNET.with_changes(
        layers=tuple(replace(x, forward_time=1e-3, backward_time=2e-3) for x in RESNET.layers), single_gpu_throughput=None
    )
    assert ps.simulate(timed, cluster(), "ddp", batch_size=64).slowest_words == ""
    assert ps.simulate(RESNET, cluster(jitter=0.01), "ddp", batch_size=64).slowest_words == ""
    assert cluster().slowest(ps.Gpu("own", flops={"fp32": 1e13})) == 1.0
    assert ps.simulate(timed, cluster(gpu_spread=0.02), "ddp", batch_size=64).slowest_words


@pytest.mark.parametrize("value", [-0.1, 1.0, math.nan])
def test_a_spread_that_is_no_share_is_refused(value: float) -> None:
    with pytest.raises(ps.InputError, match="gpu_spread"):
        cluster(gpu_spread=value)


def test_the_scenario_key_is_a_share_and_zero_turns_it_off() -> None:
    scenario = {
        "model": "resnet50", "strategy": "ddp", "batch_size": 64,
        "cluster": {"nodes": 1, "gpus_per_node": 8, "gpu": "v100-sxm2-16gb", "node": "nvlink-ring", "gpu_spread": "0 %"},
    }  # fmt: skip
    assert ps.simulate(ps.load_scenario(scenario)).slowest_words == ""
    scenario["cluster"]["gpu_spread"] = "3 %"  # type: ignore[index]
    assert "gpu_spread 3.0%" in ps.simulate(ps.load_scenario(scenario)).slowest_words

