"""MG-WFBP against the recursions of its paper, written here anew in the paper's order and with its words.

One FIFO channel: two nodes, ring, so an all-reduce of M bytes takes 2 latency + M / bandwidth = alpha + beta M.
"""

from __future__ import annotations

import random

import pytest

import poseidon_sim as ps
from poseidon_sim.errors import InputError

LATENCY, BANDWIDTH = 2e-3, 1e8
ALPHA, BETA = 2 * LATENCY, 1 / BANDWIDTH


def net(rng: random.Random, layers: int) -> ps.Workload:
    """Layers of 1 kB to 4 MB with backward passes of 0 to 20 ms."""
    return ps.Workload(
        "random", tuple(
            ps.Layer(f"l{i}", "conv", (rng.choice((250, 10_000, 100_000, 1_000_000)),),
                     forward_time=rng.uniform(0.0, 5e-3), backward_time=rng.choice((0.0, 1e-3, 3e-3, rng.uniform(0, 20e-3))))
            for i in range(layers)
        ),
    )  # fmt: skip


def pair(**network: float) -> ps.Cluster:
    return ps.Cluster(nodes=2, network=ps.Network(BANDWIDTH, latency=LATENCY, **network))


def starts(t_f: float, t_b: list[float], t_c: list[float]) -> list[float]:
    """tau_c, layer 1 first: the last layer begins when it is ready, each other when the channel and its gradient are."""
    last = len(t_b) - 1
    tau_b, tau_c = [0.0] * (last + 1), [0.0] * (last + 1)
    tau_b[last] = t_f
    for layer in range(last - 1, -1, -1):
        tau_b[layer] = tau_b[layer + 1] + t_b[layer + 1]
    tau_c[last] = tau_b[last] + t_b[last]
    for layer in range(last - 1, -1, -1):
        tau_c[layer] = max(tau_c[layer + 1] + t_c[layer + 1], tau_b[layer] + t_b[layer])
    return tau_c


def wfbp(workload: ps.Workload) -> float:
    t_f = sum(layer.forward_time or 0.0 for layer in workload.layers)
    t_b = [layer.backward_time or 0.0 for layer in workload.layers]
    t_c = [ALPHA + BETA * layer.gradient_bytes() for layer in workload.layers]
    return starts(t_f, t_b, t_c)[0] + t_c[0]


def merged(workload: ps.Workload, alpha: float, beta: float) -> tuple[float, int]:
    """The paper's Algorithm 1: merge layer l into l-1, set t_c(l) = 0, compute tau_c anew; return the step and the merges."""
    t_f = sum(layer.forward_time or 0.0 for layer in workload.layers)
    t_b = [layer.backward_time or 0.0 for layer in workload.layers]
    size = [layer.gradient_bytes() for layer in workload.layers]
    t_c = [alpha + beta * each for each in size]
    ready = [t_f + sum(t_b[layer:]) for layer in range(len(t_b))]
    tau_c, merges = starts(t_f, t_b, t_c), 0
    for layer in range(len(t_b) - 1, 0, -1):
        r = ready[layer - 1]
        not_begun = tau_c[layer] > r
        worth_waiting = tau_c[layer] + t_c[layer] > r and r - tau_c[layer] < alpha
        if not_begun or worth_waiting:
            size[layer - 1] += size[layer]
            t_c[layer - 1], t_c[layer], size[layer] = alpha + beta * size[layer - 1], 0.0, 0.0
            tau_c, merges = starts(t_f, t_b, t_c), merges + 1
    real = [ALPHA + BETA * each if each else 0.0 for each in size]  # as sent, whatever was assumed
    return max(starts(t_f, t_b, real)[0] + real[0], ready[0]), merges


@pytest.mark.parametrize("seed", range(25))
def test_wait_free_backpropagation_equals_the_papers_recursion(seed: int) -> None:
    workload = net(random.Random(seed), 1 + seed)
    step = ps.simulate(workload, pair(), ps.AllReduce(), batch_size=1).step_time
    assert step == pytest.approx(wfbp(workload), rel=1e-9)


@pytest.mark.parametrize("seed", range(40))
def test_merged_gradients_equal_the_papers_merging_and_recursion(seed: int) -> None:
    workload = net(random.Random(100 + seed), 1 + seed)
    step = ps.simulate(workload, pair(), ps.MergedGradient(), batch_size=1).step_time
    assert step == pytest.approx(merged(workload, ALPHA, BETA)[0], rel=1e-9)


@pytest.mark.parametrize("seed", range(15))
def test_merging_goes_by_the_figures_it_is_given_though_the_network_differs(seed: int) -> None:
    workload = net(random.Random(200 + seed), 20)
    alpha, beta = (10e-3, 1e-10) if seed % 2 else (1e-4, 5e-9)
    step = ps.simulate(workload, pair(), ps.MergedGradient(startup_time=alpha, byte_time=beta), batch_size=1).step_time
    assert step == pytest.approx(merged(workload, alpha, beta)[0], rel=1e-9)


def test_the_random_networks_cover_merging_some_all_and_none() -> None:
    found = [merged(net(random.Random(100 + seed), 1 + seed), ALPHA, BETA)[1] / max(1, seed) for seed in range(40)]
    assert any(0.2 < share < 0.8 for share in found)
    assert merged(net(random.Random(3), 12), 1e9, 0.0)[1] == 11


def test_no_start_up_cost_and_a_free_channel_merge_nothing() -> None:
    workload = ps.Workload("even", tuple(ps.Layer(f"l{i}", "conv", (25,), forward_time=1.0, backward_time=1.0) for i in range(5)))
    free = ps.Cluster(nodes=2, network=ps.Network(BANDWIDTH))
    given = ps.simulate(workload, free, ps.MergedGradient(), batch_size=1)
    assert given.step_time == ps.simulate(workload, free, ps.AllReduce(), batch_size=1).step_time


def test_a_start_up_cost_that_dwarfs_backward_makes_one_message() -> None:
    workload = ps.Workload("even", tuple(ps.Layer(f"l{i}", "conv", (25,), forward_time=1.0, backward_time=1.0) for i in range(5)))
    run = ps.simulate(workload, pair(), ps.MergedGradient(startup_time=100.0), batch_size=1)
    assert run.step_time == ps.simulate(workload, pair(), ps.AllReduce(fusion="all", overlap=False), batch_size=1).step_time


def test_a_scenario_gives_times_with_units_and_a_bare_number_is_refused() -> None:
    scenario = {"model": "resnet50", "batch_size": 64, "cluster": {"nodes": 2, "gpu": "v100-sxm2", "network": "10 Gbit/s"}}
    loaded = ps.load_scenario({**scenario, "strategy": {"name": "mg-wfbp", "startup_time": "1.44 ms", "byte_time": "3.66 ns"}})
    assert isinstance(loaded.strategy, ps.MergedGradient)
    assert (loaded.strategy.startup_time, loaded.strategy.byte_time) == pytest.approx((1.44e-3, 3.66e-9))
    with pytest.raises(InputError, match=r"startup_time"):
        ps.load_scenario({**scenario, "strategy": {"name": "mg-wfbp", "startup_time": 3}})


def test_a_gradient_under_the_least_size_waits_though_waiting_costs_more() -> None:
    """Backward passes of 1 s, start-up 1 ms: nothing merges, but the 40-byte gradient of l2 may not go alone; the last one must."""
    layers = tuple(ps.Layer(f"l{i}", "conv", (n,), forward_time=1.0, backward_time=1.0) for i, n in enumerate((10, 1000, 10, 1000)))
    sizes = [layer.gradient_bytes() for layer in reversed(layers)]
    assert ps.merge_plan([1.0] * 4, sizes, 1e-3, 0.0) == [1, 1, 1, 1]
    assert ps.merge_plan([1.0] * 4, sizes, 1e-3, 0.0, least_size=100.0) == [1, 2, 1]
    step = ps.simulate(ps.Workload("tiny", layers), pair(), ps.MergedGradient(least_size=100.0), batch_size=1).step_time
    assert step == pytest.approx(8.0 + ALPHA + BETA * 40, rel=1e-9)
