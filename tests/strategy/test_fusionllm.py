"""FusionLLM against closed forms of a pipeline over slow links: m micro-batches pass the slowest link one after the other, both ways."""

from __future__ import annotations

import math

import numpy as np
import pytest

import poseidon_sim as ps

FAST, SLOW, DELAY = 1e9, 1e5, 2e-3
F, B = 1e-3, 2e-3  # s of a layer's passes
ELEMENTS = 1000.0  # that a layer hands on, per sample
C = 4 * ELEMENTS / SLOW  # s of a micro-batch of one sample on the slow link: 40 ms


def network(layers: int, **more: object) -> ps.Workload:
    each = [
        ps.Layer(f"l{i}", "conv", (50 * (i + 1),), forward_time=F, backward_time=B, input_elements=ELEMENTS, output_elements=ELEMENTS)
        for i in range(layers)
    ]
    return ps.Workload("chain", tuple(each), batch_size=1, **more)  # type: ignore[arg-type]


def links(nodes: int, *slow: tuple[int, int], rate: float = SLOW, latency: float = DELAY, gpus: int = 1, **more: object) -> ps.Cluster:
    """Nodes joined at 1 GB/s, some ordered pairs at 0.1 MB/s."""
    caps = np.full((nodes, nodes), FAST)
    for one, other in slow:
        caps[one, other] = rate
    net = ps.Network(FAST, latency=latency, pair_bandwidth=tuple(map(tuple, caps.tolist())))
    return ps.Cluster(nodes=nodes, gpus_per_node=gpus, network=net, **more)  # type: ignore[arg-type]


def run(workload: ps.Workload, where: ps.Cluster, micro_batches: int, micro: int = 1, **settings: object) -> ps.Run:
    strategy = ps.FusionLlm(**settings)  # type: ignore[arg-type]
    batch = micro_batches * micro / where.num_gpus
    return ps.simulate(workload, where, strategy, batch_size=batch, micro_batch_size=micro, check=True)


# GPipe: the first micro-batch is computed, all cross one after the other, the last is computed; backward the same the other way.
@pytest.mark.parametrize("count", [1, 2, 8])
def test_on_two_nodes_all_micro_batches_cross_the_slow_link_twice(count: int) -> None:
    found = run(network(2), links(2, (0, 1), (1, 0)), count, schedule="gpipe").step_time
    assert found == pytest.approx(2 * (F + B) + 2 * (count * C + DELAY), rel=1e-9)


def test_each_direction_of_a_link_has_its_own_rate() -> None:
    """Gradients come back over the fast direction: each is through long before the next is computed."""
    found = run(network(2), links(2, (0, 1)), 4, schedule="gpipe").step_time
    assert found == pytest.approx(2 * F + 4 * C + DELAY + 5 * B + 4 * ELEMENTS / FAST + DELAY, rel=1e-9)


# As numbered the second cut lies on the slow link: both ways a micro-batch crosses the fast link and waits for the slow one.
@pytest.mark.parametrize("count", [1, 5])
def test_as_numbered_on_three_nodes_the_slow_link_sets_the_step(count: int) -> None:
    found = run(network(3), links(3, (1, 2), (2, 1)), count, schedule="gpipe", fence=False).step_time
    assert found == pytest.approx(3 * (F + B) + 2 * (count * C + 4 * ELEMENTS / FAST + 2 * DELAY), rel=1e-9)


# Of three nodes with one slow pair the fence puts the third between the two; 1F1B then takes m + 2 passes of equal stages.
@pytest.mark.parametrize("slow", [(0, 1), (1, 2), (0, 2)])
def test_a_slow_pair_of_three_is_not_neighboured(slow: tuple[int, int]) -> None:
    where = links(3, slow, slow[::-1], latency=0.0)
    found = run(network(3), where, 6)
    order = found.strategy.chain(found.job.workload, where, 1, 4).order
    assert set(order) == {0, 1, 2} and order[1] not in slow
    assert found.step_time == pytest.approx(8 * (F + B), rel=1e-2)


def test_the_cut_lies_where_least_crosses_the_slow_link() -> None:
    """Six equal layers on two nodes; one hands on 10 elements. A link at 40 ms for 1000 is avoided at the price of uneven stages."""
    layers = list(network(6).layers)
    layers[4] = ps.Layer("l4", "conv", (50,), forward_time=F, backward_time=B, input_elements=ELEMENTS, output_elements=10.0)
    work, where = ps.Workload("narrow", tuple(layers), batch_size=1), links(2, (0, 1), (1, 0))
    assert ps.FusionLlm().chain(work, where, 1, 4).starts == (0, 5, 6)
    assert ps.FusionLlm(fence=False).chain(work, where, 1, 4).starts == (0, 3, 6)


# Compression 50 sends 20 of 1000 values, 8 bytes each with its place; selecting takes x log2(x) of its seconds on each side.
def test_a_compressed_message_is_its_values_and_places_after_a_selection() -> None:
    select = 1e-7 * ELEMENTS * math.log2(ELEMENTS)
    found = run(network(2), links(2, (0, 1), (1, 0), rate=1e4), 4, schedule="gpipe", compression=50.0, selection_time=1e-7)
    assert found.step_time == pytest.approx(2 * (F + B) + 2 * (select + 4 * 160 / 1e4 + DELAY), rel=1e-9)


def test_the_slowest_link_is_compressed_most_and_a_ratio_below_two_sends_everything() -> None:
    """Two halves of a chain of four: 0.1 MB/s in the middle, 1 GB/s beside it, which is 10,000 times as fast: whole."""
    slow = [(a, b) for a in (0, 1) for b in (2, 3)]
    where = links(4, *slow, *[pair[::-1] for pair in slow])
    assert ps.FusionLlm(compression=100.0).chain(network(4), where, 1, 4).message_bytes.tolist() == [4000.0, 80.0, 4000.0]
    assert ps.FusionLlm(compression=1.9).chain(network(4), where, 1, 4).message_bytes.tolist() == [4000.0] * 3


@pytest.mark.parametrize("compression", [1.0, 3.0, 100.0])
def test_bytes_are_micro_batches_times_cuts_both_ways_and_never_more_for_compression(compression: float) -> None:
    found = run(network(5), links(5), 6, micro=2, compression=compression, fence=False)
    message = min(8 * ELEMENTS, 8 * math.ceil(2 * ELEMENTS / compression))
    assert found.strategy.network_bytes(found.job) == 2 * 6 * 4 * message <= 2 * 6 * 4 * 2 * 4 * ELEMENTS


def test_gpus_of_a_node_pass_on_over_their_lanes() -> None:
    """Two nodes of two GPUs: only the cut in the middle leaves a node."""
    where = links(2, gpus=2, pcie=1e8)
    found = run(network(4), where, 4)
    amounts = found.trace.link_amounts()
    sent = sum(amounts[found.trace.fabric.link("nic_out", c.index)] for c in found.trace.fabric.whole_nodes)
    assert sent == found.strategy.network_bytes(found.job) == 2 * 4 * 4 * ELEMENTS


def test_a_tensor_on_two_stages_is_summed_once_both_ways() -> None:
    layers = list(network(3).layers)
    layers[2] = ps.Layer("l2", "linear", forward_time=F, backward_time=B, input_elements=ELEMENTS, output_elements=ELEMENTS, tied="l0")
    work = ps.Workload("tied", tuple(layers), batch_size=1)
    found = run(work, links(3), 4)
    assert found.strategy.network_bytes(found.job) == 2 * 4 * 2 * 4 * ELEMENTS + 2 * 4 * 50


def test_a_gpu_holds_its_own_operators_and_what_its_micro_batches_keep() -> None:
    """50 of 300 parameters on the first of three stages, which keeps three micro-batches of a third of the activations: most bytes."""
    shares = ps.FusionLlm().memory_shares(run(network(3), links(3), 3).job)
    assert shares["parameters"] == shares["gradients"] == shares["optimizer"] == pytest.approx(50 / 300)
    assert shares["activations"] == pytest.approx(3 / 3)


# Every layer's work is halved on node 2, so an equal finish gives it as many layers as the other two together.
def test_a_fast_gpu_gets_more_operators() -> None:
    where = links(3, groups=(ps.NodeGroup(2, slowdown=2.0), ps.NodeGroup(1)))
    found = ps.FusionLlm().chain(network(8), where, 1, 4)
    assert dict(zip(found.order, np.diff(found.starts).tolist(), strict=True)) == {0: 2, 1: 2, 2: 4}


@pytest.mark.parametrize("nodes", [2, 3, 4])
@pytest.mark.parametrize("strategy", [
    ps.FusionLlm(), ps.FusionLlm(fence=False), ps.FusionLlm(compression=20.0), ps.FusionLlm(compression=20.0, schedule="gpipe"),
    ps.FusionLlm(schedule="message-driven"),
], ids=repr)  # fmt: skip
def test_laws_hold_where_activations_cross(strategy: ps.Strategy, nodes: int) -> None:
    ps.check_strategy(strategy, nodes=(nodes,), workload=network(6))


class Longer(ps.FusionLlm):
    """Measured after three iterations."""

    def num_iterations(self) -> tuple[int, int]:
        return 3, 2


@pytest.mark.parametrize("schedule", ["1f1b", "message-driven"])
def test_every_iteration_is_like_the_first(schedule: str) -> None:
    where = links(4, (1, 2), (2, 1), groups=(ps.NodeGroup(1, slowdown=1.5),))
    steps = [
        ps.simulate(network(6), where, each(schedule=schedule), batch_size=2, micro_batch_size=1).step_time for each in (ps.FusionLlm, Longer)
    ]
    assert steps[0] == pytest.approx(steps[1], rel=1e-9)


def test_more_gpus_than_operators_stay_idle_with_a_warning() -> None:
    found = run(network(2), links(4), 8)
    assert any("uses 2 of 4 GPUs" in text for text in found.warnings)


@pytest.mark.parametrize(("settings", "words"), [
    ({"compression": 0.5}, "compression=0.5 must be at least 1"),
    ({"schedule": "zigzag"}, "schedule='zigzag' is not one of 1f1b, gpipe, message-driven"),
    ({"selection_time": -1.0}, "selection_time=-1.0 must be 0 or more"),
])  # fmt: skip
def test_settings_that_make_no_sense_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ps.InputError, match=words):
        run(network(2), links(2), 2, **settings)


def test_samples_that_do_not_make_whole_micro_batches_are_refused() -> None:
    with pytest.raises(ps.InputError, match="no multiple of micro_batch_size=2"):
        ps.simulate(network(2), links(2), ps.FusionLlm(), batch_size=1.5, micro_batch_size=2)
