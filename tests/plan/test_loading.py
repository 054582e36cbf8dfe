"""Batches on their way to the GPUs, and jobs that share a network, against closed forms."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import poseidon_sim as ps
from poseidon_sim.laws import small_workload

NETWORK = ps.Network(50e6, latency=2e-5)
MODEL = small_workload()
#: strategies that hand no work from one iteration to the next
STRATEGIES = (ps.AllReduce(), ps.ParameterServer(), ps.Poseidon(), ps.strategy_class("mg-wfbp")(), ps.strategy_class("horovod")())


def cluster(given: ps.Input | None, gpus: int = 1, pcie: float = 5e8) -> ps.Cluster:
    return ps.Cluster(nodes=3, gpus_per_node=gpus, network=NETWORK, pcie=pcie, host=ps.Host(input=given))


def step(where: ps.Cluster, strategy: ps.Strategy) -> float:
    return ps.simulate(MODEL, where, strategy, batch_size=4).step_time


@settings(max_examples=40, deadline=None)
@given(
    gpus=st.sampled_from([1, 2, 4]), read=st.floats(1e5, 1e9), size=st.floats(0, 1e5), decode=st.floats(0, 5e-3),
    copied=st.floats(0, 1e6), strategy=st.sampled_from(STRATEGIES),
)  # fmt: skip
def test_a_step_takes_the_load_longer_without_prefetching_and_the_longer_of_the_two_with_it(
    gpus: int, read: float, size: float, decode: float, copied: float, strategy: ps.Strategy
) -> None:
    """t_io = GPUs of the node x batch x (bytes / rate + decoding), t_h2d = batch x bytes / PCIe rate."""
    ahead = ps.Input(read_bandwidth=read, sample_size=size, decode_time=decode, copied_size=copied)
    load = 4 * gpus * (size / read + decode) + 4 * copied / 5e8
    alone = step(cluster(None, gpus), strategy)
    assert step(cluster(replace(ahead, prefetch=False), gpus), strategy) == pytest.approx(alone + load, rel=1e-6)
    # the copy ahead shares PCIe with the strategy's own copies, so it can only add to the longer of the two
    both = step(cluster(replace(ahead, copied_size=0.0), gpus), strategy)
    assert both == pytest.approx(max(alone, load - 4 * copied / 5e8), rel=1e-6)
    assert both * (1 - 1e-9) <= step(cluster(ahead, gpus), strategy) <= (alone + load) * (1 + 1e-6)


def test_a_step_bound_by_its_input_says_so() -> None:
    run = ps.simulate(MODEL, cluster(ps.Input(decode_time=0.5)), "ddp", batch_size=4)
    assert run.step_time == pytest.approx(2.0, rel=1e-6)
    assert "input" in run.bottleneck
    assert "no measured case that waits for its input" in run.trust.outside


def test_input_is_refused_where_gpus_share_the_samples() -> None:
    for name in ("megatron", "axonn", "par-dnn", "fpdeep"):
        with pytest.raises(ps.InputError, match="not modelled there"):
            ps.simulate(MODEL, cluster(ps.Input(decode_time=0.5)), name, batch_size=4)


@settings(max_examples=30, deadline=None)
@given(jobs=st.integers(1, 16), contention=st.floats(0, 0.9), size=st.integers(1, 10**7))
def test_equal_jobs_take_what_one_job_takes_on_a_share_of_the_port(jobs: int, contention: float, size: int) -> None:
    """One all-reduce of M bytes over two nodes: 2 (a + M/2 b (k + contention (k - 1)))."""
    layer = ps.Layer("w", "linear", (size,), forward_time=1e-6, backward_time=1e-6)
    where = ps.Cluster(nodes=2, network=NETWORK.shared_by(jobs, contention))
    run = ps.simulate(ps.Workload("one", (layer,), batch_size=1), where, ps.AllReduce(), batch_size=1)
    closed = 2 * (2e-5 + 2 * size / 50e6 * (jobs + contention * (jobs - 1)))
    assert run.step_time == pytest.approx(2e-6 + closed, rel=1e-6)


def test_a_scenario_says_input_and_jobs_in_units() -> None:
    scenario = ps.load_scenario({
        "model": "vgg19", "batch_size": 32, "strategy": "ddp",
        "cluster": {
            "nodes": 2, "gpu": "titan-x-maxwell", "pcie": "12 GB/s", "network": {"bandwidth": "10 Gbit/s", "jobs": 4, "contention": "10 %"},
            "host": {"input": {"read_bandwidth": "500 MB/s", "sample_size": "110 kB", "decode_time": "2 ms", "copied_size": "600 kB"}},
        },
    })  # fmt: skip
    assert scenario.cluster.host.input == ps.Input(5e8, 110e3, 2e-3, 600e3)
    assert scenario.cluster.network is not None and scenario.cluster.network.goodput == pytest.approx(1.25e9 / 4.3)
    assert scenario.warnings == ()
