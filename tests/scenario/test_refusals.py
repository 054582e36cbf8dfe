"""Keys that contradict each other are refused with both named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import poseidon_sim as ps

MIXED: dict[str, Any] = {
    "model": "vgg19", "batch_size": 32, "strategy": "ddp",
    "cluster": {"nodes": 4, "gpu": "titan-x-maxwell", "network": "10 Gbit/s", "groups": [{"nodes": 1, "batch_size": 16}]},
}  # fmt: skip


def test_a_batch_of_a_group_stands_beside_no_micro_batch() -> None:
    assert ps.simulate(ps.load_scenario(MIXED)).step_time > 0
    with pytest.raises(ps.InputError, match="batch_size=16 and micro_batch_size=8"):
        ps.simulate(ps.load_scenario(MIXED, micro_batch_size=8))


@pytest.mark.parametrize("strategy", ["fpdeep", "par-dnn"])
def test_a_batch_of_a_group_is_refused_where_gpus_share_the_samples(strategy: str) -> None:
    with pytest.raises(ps.InputError, match=f"batch_size=16: use global_batch_size; under {strategy} "):
        ps.simulate(ps.load_scenario(MIXED, strategy=strategy))


@pytest.mark.parametrize("junk", ["{}", "{0}", "{ge", {"{x}": 1}])
def test_braces_in_a_value_are_shown_as_given(junk: object) -> None:
    for key in ("batch_size", "scaling", "model", "cluster"):
        with pytest.raises(ps.PoseidonSimError):
            ps.load_scenario({**MIXED, key: junk})


def test_strong_scaling_of_a_measured_rate_asks_for_the_batch_it_was_measured_at() -> None:
    told = {**MIXED, "model": {"name": "vgg19", "single_gpu_throughput": 35}, "scaling": "strong", "cluster": {**MIXED["cluster"], "groups": None}}
    assert any("single_gpu_batch_size" in each for each in ps.load_scenario(told).warnings)
    told["model"]["single_gpu_batch_size"] = 32
    assert not any("single_gpu" in each for each in ps.load_scenario(told).warnings)


def test_a_batch_that_does_not_fit_names_the_micro_batch_that_does_and_the_file(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_text("{model: resnet50, batch_size: 4096, strategy: ddp, cluster: {nodes: 4, gpu: v100-sxm2-16gb, network: 10 Gbit/s}}")
    with pytest.raises(ps.InfeasibleError, match=r"large.yaml: .*; micro_batch_size: 128 fits"):
        ps.simulate(ps.load_scenario(path))
    assert ps.simulate(ps.load_scenario(path, micro_batch_size=128)).memory.fits
    with pytest.raises(ps.InputError, match=r"large.yaml: tensor=3 "):
        ps.simulate(ps.load_scenario(path, strategy={"name": "megatron", "tensor": 3}))


@pytest.mark.parametrize("strategy", ["fpdeep", "par-dnn"])
def test_no_micro_batch_is_named_where_a_strategy_takes_the_whole_batch_at_once(strategy: str) -> None:
    told = {**MIXED, "model": "resnet50", "batch_size": 20_000, "strategy": strategy, "cluster": {"nodes": 2, "gpu": "v100-sxm2-16gb", "network": "10 Gbit/s"}}
    with pytest.raises(ps.InfeasibleError) as refused:
        ps.simulate(ps.load_scenario(told))
    assert "micro_batch_size" not in str(refused.value)
