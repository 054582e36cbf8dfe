"""The roofline on layers small enough to compute by hand, its errors, and its fit to published splits."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

import poseidon_sim as ps
from poseidon_sim.plan.compute import BACKWARD_EFFICIENCY
from poseidon_sim.plan.rates import achievable_share

# 1 TFLOP/s at 50 %, 100 GB/s at 80 %: 0.5 TFLOP/s and 80 GB/s are achievable
GPU = ps.Gpu(
    "mine", flops={"fp32": 1e12}, efficiency={"default": 0.5}, memory_bandwidth=100e9, memory_efficiency=0.8
)
# 1 GFLOP forward and few bytes a sample: bound by compute
HEAVY = ps.Layer("heavy", "conv", (1000,), 1e9, 2e9, 1000.0, 1000.0)
# 8 MB of weights, few samples: bound by weights
WIDE = ps.Layer("wide", "linear", (2_000_000,), 4e6, 8e6, 1000.0, 2000.0)


def net(*layers: ps.Layer, **more: object) -> ps.Workload:
    return ps.Workload("net", layers).with_changes(**more)


def test_a_layer_bound_by_compute_takes_its_flop_over_the_achievable_rate() -> None:
    # 10 samples x 1 GFLOP / 0.5 TFLOP/s = 20 ms; backward twice the FLOP at a lower share
    assert ps.layer_times(net(HEAVY), GPU, 10) == pytest.approx(np.array([[0.02, 0.04 / BACKWARD_EFFICIENCY]]))


def test_a_linear_layer_with_few_rows_is_bound_by_reading_its_weights() -> None:
    # 1 sample: (2,000,000 + 1,000 + 2,000) x 4 B / 80 GB/s = 100.15 us; backward moves each twice
    forward = 4 * 2_003_000 / 80e9
    assert ps.layer_times(net(WIDE), GPU, 1) == pytest.approx(np.array([[forward, 2 * forward]]))


def test_weights_are_moved_once_however_many_samples_there_are() -> None:
    one, two = (ps.layer_times(net(WIDE), GPU, batch)[0, 0] for batch in (1, 2))
    assert two - one == pytest.approx(4 * 3000 / 80e9)


def test_every_pass_of_a_layer_that_does_something_is_launched_once() -> None:
    view = ps.Layer("view", "flatten", input_elements=10.0, output_elements=10.0)
    launched = ps.layer_times(net(HEAVY, view), replace(GPU, launch_overhead=1e-3), 10)
    assert launched - ps.layer_times(net(HEAVY, view), GPU, 10) == pytest.approx(np.array([[1e-3, 1e-3], [0, 0]]))


def test_filling_the_gpu_costs_a_matrix_kernel_a_fixed_amount_and_at_most_its_own() -> None:
    # 10 GFLOP + 1 GFLOP lost; backward is two kernels; a kernel of 4 MFLOP loses no more than 4 MFLOP
    filling = replace(GPU, fill_flops=1e9, memory_bandwidth=None)
    times = ps.layer_times(net(HEAVY, WIDE), filling, 10)
    assert times[0] == pytest.approx([11e9 / 0.5e12, 22e9 / 0.5e12 / BACKWARD_EFFICIENCY])
    assert times[1, 0] == pytest.approx(2 * 40e6 / 0.5e12)


def test_winograd_saves_multiplications_in_fp32_only() -> None:
    fast = replace(HEAVY, saved_flops=2.25)
    gpu = replace(GPU, flops={"fp32": 1e12, "fp16": 1e12})
    for precision, saved in (("fp32", 2.25), ("fp16", 1.0)):
        plain, quick = (ps.layer_times(net(each, precision=precision), gpu, 10) for each in (HEAVY, fast))
        assert plain / quick == pytest.approx(np.full((1, 2), saved))


def test_scores_of_unfused_attention_are_moved_and_those_of_fused_are_not() -> None:
    # 64 x 1000 x 4 FLOP a sample stand for 1000 scores, moved 8 times forward
    attention = ps.Layer("a", "attention", (), 256e3, 512e3, 10.0, 10.0)
    slow = replace(GPU, flops={"fp16": 1e15, "fp32": 1e15})
    plain = ps.layer_times(net(attention, precision="fp16"), slow, 1)[0, 0]
    fused = ps.layer_times(net(attention, precision="fp16"), replace(slow, fused_attention=True), 1)[0, 0]
    assert plain - fused == pytest.approx(8000 * 2 / 80e9, rel=1e-3)  # fused is bound by its few FLOP
    in_fp32 = ps.layer_times(net(attention), replace(slow, fused_attention=True), 1)[0, 0]
    assert in_fp32 == pytest.approx((8000 + 20) * 4 / 80e9)


def test_the_most_specific_share_wins() -> None:
    gpu = ps.Gpu("g", efficiency={"default": 0.1, "default/fp16": 0.2, "conv": 0.3, "conv/fp16": 0.4})
    shares = [achievable_share(gpu, kind, p) for kind in ("conv", "lstm") for p in ("fp16", "fp32")]
    assert shares == [0.4, 0.3, 0.2, 0.1]


def test_measured_times_stand_as_they_are_and_need_no_gpu() -> None:
    timed = replace(HEAVY, forward_time=1e-3, backward_time=3e-3)
    assert ps.layer_times(net(timed), None, 7).tolist() == [[1e-3, 3e-3]]
    assert ps.layer_times(net(timed, HEAVY), GPU, 10)[0].tolist() == [1e-3, 3e-3]


def test_one_measured_pass_stands_beside_a_modelled_one() -> None:
    half = replace(HEAVY, forward_time=1e-3)
    assert ps.layer_times(net(half), GPU, 10)[0] == pytest.approx([1e-3, 0.04 / BACKWARD_EFFICIENCY])


def test_a_measured_throughput_scales_the_modelled_layers_only() -> None:
    timed = replace(HEAVY, name="timed", forward_time=1e-3, backward_time=3e-3)
    given = net(timed, HEAVY, replace(WIDE), single_gpu_throughput=100.0)
    times = ps.layer_times(given, GPU, 10)
    assert times.sum() == pytest.approx(10 / 100.0)
    assert times[0].tolist() == [1e-3, 3e-3]
    free = ps.layer_times(net(timed, HEAVY, WIDE), GPU, 10)
    assert times[1:] / free[1:] == pytest.approx(np.full((2, 2), (times / free)[1, 0]))


def test_a_throughput_that_measured_times_already_exceed_is_refused() -> None:
    timed = replace(HEAVY, name="timed", forward_time=0.1, backward_time=0.1)
    with pytest.raises(ps.InputError, match=r"measured layer times alone are 0\.2 s"):
        ps.layer_times(net(timed, HEAVY, single_gpu_throughput=100.0), GPU, 10)
    with pytest.raises(ps.InputError, match="give one of them, or make them agree"):
        ps.layer_times(net(timed, single_gpu_throughput=100.0), None, 10)


def test_a_missing_gpu_names_the_layer_and_what_to_give() -> None:
    with pytest.raises(ps.InputError, match=r"layer 'heavy' of model 'net' has no forward_time .* give the times, or a gpu"):
        ps.layer_times(net(HEAVY), None, 1)


def test_a_precision_the_gpu_does_not_state_is_refused() -> None:
    with pytest.raises(ps.InputError, match=r"states no flops for precision bf16 .*stated: fp32"):
        ps.layer_times(net(HEAVY, precision="bf16"), GPU, 1)


def test_tf32_on_a_card_without_it_runs_as_fp32() -> None:
    fast = replace(HEAVY, saved_flops=2.25)
    in_fp32, in_tf32 = (ps.layer_times(net(fast, precision=each), GPU, 10) for each in ("fp32", "tf32"))
    assert in_fp32.tolist() == in_tf32.tolist()


def test_fp32_convolutions_run_in_tf32_where_a_card_has_it_and_linear_layers_do_not() -> None:
    # ten times the rate for the convolution, without Winograd; the linear layer keeps its fp32 rate
    both = replace(GPU, flops={"fp32": 1e12, "tf32": 1e13}, memory_bandwidth=None)
    conv, linear = replace(HEAVY, saved_flops=2.25), replace(HEAVY, name="fc", kind="linear")
    assert ps.layer_times(net(conv, linear), both, 10)[:, 0] == pytest.approx([2e-3, 20e-3])


def test_every_card_models_every_vision_net_and_stays_under_its_peak() -> None:
    for name in ps.list_gpus():
        for model in ("resnet50", "vgg16"):
            card, network = ps.gpu(name), ps.load_model(model)
            seconds = ps.layer_times(network, card, 32).sum()
            flops = 32 * (network.forward_flops + network.backward_flops)
            assert 0 < flops / seconds < 2.25 * max(card.flops.values())


def test_a_matrix_layer_without_flop_is_refused() -> None:
    with pytest.raises(ps.InputError, match=r"layer 'fc' \(linear\) has neither FLOP nor times"):
        ps.layer_times(net(ps.Layer("fc", "linear", (10,))), GPU, 1)


def test_the_result_may_be_changed_without_changing_the_next() -> None:
    timed = net(replace(HEAVY, forward_time=1e-3, backward_time=3e-3))
    ps.layer_times(timed, None, 1)[:] = 0.0
    assert ps.layer_times(timed, None, 1).sum() == pytest.approx(4e-3)


def test_two_hundred_layers_take_less_than_a_millisecond() -> None:
    workload, gpu = ps.load_model("resnet50"), ps.gpu("titan-x-maxwell")  # 174 layers
    best = float("inf")
    for batch in range(1, 60):
        start = time.perf_counter()
        ps.layer_times(workload, gpu, batch)
        best = min(best, time.perf_counter() - start)
    assert best < 1e-3


# Published on a Titan X (Maxwell): model, batch, forward and backward in ms, Winograd, tolerance. All published splits stand
# here. cuDNN 5.0 was slower than 5.1 on the same net (-30 %); AlexNet's software beat the card's peak rate by FLOP count
# (+66 %), which the model cannot do without Winograd. Sources: docs/compute-model.md.
SPLITS = [
    ("vgg19", 16, 93.5, 229.3, True, 0.35),
    ("vgg19", 16, 139.0, 279.0, False, 0.35),
    ("vgg19", 16, 73.7, 151.5, True, 0.35),
    ("resnet152", 16, 125.0, 240.0, True, 0.35),
    ("googlenet", 128, 130.0, 340.0, False, 0.35),
    ("alexnet", 128, 27.0, 53.0, False, 0.80),
]


@pytest.mark.parametrize(("model", "batch_size", "forward", "backward", "winograd", "tolerance"), SPLITS)
def test_a_published_split_is_met_within_its_stated_tolerance(
    model: str, batch_size: int, forward: float, backward: float, winograd: bool, tolerance: float
) -> None:
    workload = ps.load_model(model)
    if not winograd:
        workload = workload.with_changes(layers=tuple(replace(each, saved_flops=1.0) for each in workload.layers))
    times = 1e3 * ps.layer_times(workload, ps.gpu("titan-x-maxwell"), batch_size).sum(axis=0)
    assert times.sum() == pytest.approx(forward + backward, rel=tolerance)
    assert times[0] / times.sum() == pytest.approx(forward / (forward + backward), abs=0.05)


@pytest.mark.parametrize("name", ["resnet50", "bert-base-pretraining"])
def test_a_throughput_measured_at_another_batch_scales_the_model_there(name: str) -> None:
    card, rate = ps.gpu("v100-sxm2-16gb"), 300.0
    bare = ps.load_model(name)
    told = ps.load_model(name, single_gpu_throughput=rate, single_gpu_batch_size=64)
    assert ps.layer_times(told, card, 64).sum() == pytest.approx(64 / rate)
    for batch in (1, 8, 32, 128):
        grown = ps.layer_times(bare, card, batch).sum() / ps.layer_times(bare, card, 64).sum()
        assert ps.layer_times(told, card, batch).sum() == pytest.approx(64 / rate * grown)
        assert ps.layer_times(told, card, batch).sum() / batch >= ps.layer_times(told, card, 2 * batch).sum() / (2 * batch)
    assert ps.layer_times(ps.load_model(name, single_gpu_throughput=rate), card, 8).sum() == pytest.approx(8 / rate)


def test_a_batch_of_measuring_needs_a_throughput_or_times() -> None:
    with pytest.raises(ps.InputError, match="single_gpu_batch_size=8 needs single_gpu_throughput"):
        ps.load_model("vgg19", single_gpu_batch_size=8)


def test_measured_times_grow_evenly_from_the_batch_they_were_measured_at() -> None:
    times = {"kind": "linear", "shape": [10, 10], "forward_time": "10 ms", "backward_time": "20 ms"}
    model = {"name": "mine", "layers": [{"name": "a", **times}]}
    base = {"model": model, "batch_size": 10, "strategy": "all-reduce", "cluster": {"nodes": 2, "network": "100 Gbit/s"}}

    def compute(**changes: object) -> tuple[float, bool]:
        scenario = ps.load_scenario(base, **changes)
        return ps.simulate(scenario).metrics.compute_time, any("grow evenly" in text for text in scenario.warnings)

    assert compute() == (pytest.approx(30e-3), False)
    assert compute(batch_size=20) == (pytest.approx(60e-3), True)
    assert compute(batch_size=20, micro_batch_size=5) == (pytest.approx(60e-3), True)
    assert compute(**{"batch_size": 20, "model.single_gpu_batch_size": 40}) == (pytest.approx(15e-3), True)
    unlike = ps.simulate(ps.load_scenario(base, **{"cluster.groups": [{"nodes": 1, "batch_size": 30}]}))
    assert unlike.metrics.compute_time == pytest.approx((30e-3 + 90e-3) / 2) and unlike.scaling_efficiency < 1


def test_stages_of_a_pipeline_take_the_throughput_at_the_batch_it_was_measured_at() -> None:
    told = ps.load_model("bert-large-pretraining", single_gpu_throughput=50, single_gpu_batch_size=32)
    cluster = ps.Cluster(nodes=1, gpus_per_node=2, gpu=ps.gpu("a100-sxm-80gb"), node="nvswitch")
    strategy = ps.Megatron(pipeline=2)  # type: ignore[attr-defined]
    small, large = (ps.simulate(told, cluster, strategy, batch_size=32, micro_batch_size=m).metrics.compute_time for m in (1, 32))
    assert small > 1.02 * large  # 64 passes of one sample against two of 32


def test_a_small_batch_of_a_transformer_waits_for_the_host_and_says_so() -> None:
    cluster = ps.Cluster(nodes=1, gpus_per_node=2, gpu=ps.gpu("h100-sxm"), node="nvswitch", gpu_spread=0.0)
    model = ps.load_model("bert-large", precision="bf16", sequence_length=128)
    layers = sum(x.kind != "select" for x in model.layers)
    usual, quick, none = (ps.simulate(model.with_changes(issue_time=each), cluster, "all-reduce", batch_size=4) for each in (None, 60e-6, 0.0))
    assert usual.metrics.compute_time == pytest.approx(2 * layers * 160e-6, rel=0.01)
    assert quick.metrics.compute_time == pytest.approx(2 * layers * 60e-6, rel=0.01)
    assert none.metrics.compute_time < quick.metrics.compute_time
    assert [any("waits for the host" in text for text in run.warnings) for run in (usual, quick, none)] == [True, True, False]
