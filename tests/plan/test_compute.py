"""The compute model: rooflines by hand, measured times win, and splits of an iteration on a Maxwell card."""

from __future__ import annotations

import pytest

import poseidon_sim as ps

MINE = ps.Gpu("mine", flops={"fp32": 1e12}, memory_bandwidth=1e11, efficiency={"default": 0.5}, memory_efficiency=1.0)


def workload(*layers: ps.Layer, **changes: object) -> ps.Workload:
    return ps.Workload("w", layers, batch_size=2).with_changes(**changes)


# 1 GFLOP per sample, batch 2, 0.5 x 1 TFLOP/s: 4 ms forward; backward 2 GFLOP at 0.85 of that rate: 8 / 0.85 ms.
def test_a_layer_of_many_flops_is_limited_by_the_rate() -> None:
    layer = ps.Layer("a", "conv", (10,), forward_flops=1e9, backward_flops=2e9)
    times = ps.layer_times(workload(layer), MINE, 2)[0]
    assert times == pytest.approx([4e-3, 8e-3 / 0.85], rel=1e-9)


# 1e6 elements in and out per sample, batch 2, 4 bytes, 100 GB/s: 16 MB in 160 us forward, twice that backward.
def test_a_layer_of_many_bytes_is_limited_by_memory() -> None:
    layer = ps.Layer("a", "norm", (), forward_flops=1.0, backward_flops=1.0, input_elements=1e6, output_elements=1e6)
    assert ps.layer_times(workload(layer), MINE, 2)[0] == pytest.approx([160e-6, 320e-6], rel=1e-9)


def test_measured_times_stand_and_the_rest_is_scaled_to_the_measured_total() -> None:
    measured = ps.Layer("a", "conv", (10,), forward_time=1e-3, backward_time=2e-3)
    modelled = ps.Layer("b", "conv", (10,), forward_flops=1e9, backward_flops=2e9)
    times = ps.layer_times(workload(measured, modelled, single_gpu_throughput=100.0), MINE, 2)
    assert times[0] == pytest.approx([1e-3, 2e-3]) and times.sum() == pytest.approx(2 / 100.0)


def test_a_throughput_that_the_measured_times_already_exceed_is_refused() -> None:
    measured = ps.Layer("a", "conv", (10,), forward_time=1.0, backward_time=2.0)
    modelled = ps.Layer("b", "conv", (10,), forward_flops=1e9, backward_flops=2e9)
    with pytest.raises(ps.InputError, match="single_gpu_throughput"):
        ps.layer_times(workload(measured, modelled, single_gpu_throughput=100.0), MINE, 2)


def test_a_layer_that_cannot_be_modelled_is_named() -> None:
    with pytest.raises(ps.InputError, match="'b'"):
        ps.layer_times(workload(ps.Layer("b", "conv", (10,), forward_flops=1e9, backward_flops=2e9)), None, 2)


# Published on a Titan X (Maxwell), cuDNN 5.0 / R4: forward is 29, 34 and 28 % of an iteration.
@pytest.mark.parametrize(("model", "batch", "share"), [("vgg19", 16, 0.290), ("resnet152", 16, 0.342), ("googlenet", 128, 0.277)])
def test_forward_takes_the_published_share_of_an_iteration_within_five_points(model: str, batch: int, share: float) -> None:
    times = ps.layer_times(ps.load_model(model), ps.gpu("titan-x-maxwell"), batch).sum(axis=0)
    assert times[0] / times.sum() == pytest.approx(share, abs=0.05)


def test_every_catalog_gpu_models_every_vision_model_and_stays_under_its_peak() -> None:
    for name in ps.list_gpus():
        for model in ("resnet50", "vgg16"):
            part, network = ps.gpu(name), ps.load_model(model)
            seconds = ps.layer_times(network, part, 32).sum()
            flops = 32 * (network.forward_flops + network.backward_flops)
            assert 0 < flops / seconds < 2.25 * max(part.flops.values())
