"""Chains of devices: the cut is the best of all cuts, slow links are crossed as seldom as can be, no order of numbers is better."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import poseidon_sim as ps
from poseidon_sim.plan.fence import Fence, Links, Operators, grouped

SIZE = 4


def operators(seconds: np.ndarray, elements: np.ndarray, tensors: np.ndarray | None = None, memory: float = np.inf) -> Operators:
    """Operators of one byte of parameters and two of activations each."""
    devices, count = seconds.shape
    tensors = np.ones(count - 1) if tensors is None else tensors
    return Operators(seconds, elements, tensors, SIZE, np.ones(count), np.full(count, 2.0), np.full(devices, memory))


@st.composite
def fences(draw: st.DrawFn, devices: int = 4, most: int = 7) -> Fence:
    num, v = draw(st.integers(1, devices)), draw(st.integers(1, most))
    speed = [draw(st.sampled_from([1.0, 1.0, 2.0])) for _ in range(num)]
    work = np.array([float(draw(st.integers(1, 9))) for _ in range(v)])
    elements = np.array([float(draw(st.integers(0, 40))) for _ in range(v - 1)])
    tensors = np.array([float(draw(st.integers(1, 3))) for _ in range(v - 1)])
    rate = np.array([[float(draw(st.sampled_from([1, 5, 20, 1000]))) for _ in range(num)] for _ in range(num)])
    latency = np.full((num, num), draw(st.sampled_from([0.0, 0.5])))
    compression, selection = draw(st.sampled_from([1.0, 2.0, 10.0])), draw(st.sampled_from([0.0, 1e-2]))
    return Fence(operators(np.outer(speed, work), elements, tensors), Links(rate, latency), compression, selection)


def by_hand(fence: Fence, order: list[int], starts: list[int]) -> tuple[float, float]:
    """Seconds of the slowest stage or link and of all together: ratio in proportion to slowness, 8 bytes a value and its place."""
    ops, links = fence.operators, fence.links
    pairs = list(itertools.pairwise(order))
    slower = [min(links.rate[a, b], links.rate[b, a]) for a, b in pairs]
    stages = [float(ops.seconds[d, starts[k] : starts[k + 1]].sum()) for k, d in enumerate(order)]
    slowest, total = 0.0, 0.0
    for k, (a, b) in enumerate(pairs):
        count = ops.elements[starts[k + 1] - 1]
        sparse = math.ceil(count / max(1.0, fence.compression * min(slower) / slower[k])) * 8
        if sparse < SIZE * count:
            stages[k] += fence.selection_time * count * math.log2(count)
            stages[k + 1] += fence.selection_time * count * math.log2(count)
        if count:
            ways = [links.latency[i, j] + min(sparse, SIZE * count) / links.rate[i, j] for i, j in ((a, b), (b, a))]
            slowest, total = max(slowest, *ways), total + sum(ways)
    return max(slowest, *stages), total + sum(stages)


def cuts(count: int, stages: int) -> list[list[int]]:
    return [[0, *inner, count] for inner in itertools.combinations(range(1, count), stages - 1)]


@settings(max_examples=150, deadline=None)
@given(fence=fences())
def test_no_other_cut_along_the_same_devices_is_better(fence: Fence) -> None:
    order = list(range(fence.stages))
    found = fence.chain(order)
    ways = [by_hand(fence, order, starts) for starts in cuts(fence.operators.seconds.shape[1], len(order))]
    best = min(slowest for slowest, _ in ways)
    assert found.bottleneck == pytest.approx(best, rel=1e-9)
    assert found.total == pytest.approx(min(total for slowest, total in ways if slowest <= best * (1 + 1e-9)), rel=1e-9)
    assert (found.bottleneck, found.total) == pytest.approx(by_hand(fence, order, list(found.starts)), rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(fence=fences())
def test_the_even_cut_has_the_lightest_heaviest_stage_where_one_tensor_crosses(fence: Fence) -> None:
    work, n = fence.operators.seconds.mean(axis=0), fence.stages
    narrow = {i + 1 for i in np.flatnonzero(fence.operators.tensors <= 1)}
    allowed = [c for c in cuts(len(work), n) if len(narrow) < n - 1 or narrow.issuperset(c[1:-1])]
    heaviest = [max(work[a:b].sum() for a, b in itertools.pairwise(c)) for c in allowed]
    found = fence.even()
    assert found.order == tuple(range(n)) and list(found.starts) in allowed
    assert max(work[a:b].sum() for a, b in itertools.pairwise(found.starts)) == pytest.approx(min(heaviest), rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(fence=fences())
def test_the_bottleneck_is_never_above_that_of_devices_as_numbered(fence: Fence) -> None:
    found = fence.fenced().bottleneck
    assert found <= fence.chain(range(fence.stages)).bottleneck * (1 + 1e-9)
    assert found <= fence.even().bottleneck * (1 + 1e-9)


def small_groups(seed: int) -> tuple[Fence, np.ndarray]:
    """Two or three groups of up to five equal devices, numbered at random: 1000 bytes/s inside a group, 1 between; and the groups."""
    random = np.random.default_rng(seed)
    groups = random.integers(1, 4, random.integers(2, 4))
    of = random.permutation(np.repeat(np.arange(len(groups)), groups))[:5]
    count = int(random.integers(5, 9))
    rate = np.where(of[:, None] == of, 1000.0, 1.0)
    work = np.tile(random.integers(1, 9, count).astype(float), (len(of), 1))
    elements = random.integers(1, 20, count - 1).astype(float)
    return Fence(operators(work, elements), Links(rate, np.zeros_like(rate))), of


def test_hardly_ever_is_another_order_better_and_then_mostly_one_that_breaks_groups() -> None:
    """All orders of up to five devices, in a hundred cases; what counts is the slowest link, not how many there are."""
    missed, broken = 0, 0
    for seed in range(100):
        fence, of = small_groups(seed)
        different = {tuple(of[list(p)].tolist()): list(p) for p in itertools.permutations(range(len(of)))}.values()
        together = [p for p in different if (np.diff(of[p]) != 0).sum() == len(set(of.tolist())) - 1]
        found = fence.fenced().bottleneck * (1 - 1e-9)
        missed += min(fence.chain(p).bottleneck for p in together) < found
        broken += min(fence.chain(p).bottleneck for p in different) < found
    assert (missed, broken) == (0, 3)


@settings(max_examples=40, deadline=None)
@given(groups=st.lists(st.integers(1, 5), min_size=1, max_size=5), seed=st.integers(0, 1000))
def test_a_chain_crosses_slow_links_once_less_than_there_are_groups(groups: list[int], seed: int) -> None:
    of = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(groups)), groups))
    order, found = grouped(np.where(of[:, None] == of, 9.0, 1.0))
    assert sorted(order) == list(range(len(of)))
    assert int((np.diff(of[order]) != 0).sum()) == len(groups) - 1
    inside = [len(x) for x in (np.flatnonzero(of == g) for g in range(len(groups))) if len(x) > 1]
    assert sorted(len(parts) for parts in found) == sorted([*inside, *([len(groups)] if len(groups) > 1 else [])])


@settings(max_examples=60, deadline=None)
@given(fence=fences(), factor=st.sampled_from([0.5, 3.0]))
def test_seconds_of_free_operators_fall_as_all_rates_rise(fence: Fence, factor: float) -> None:
    """Nothing to compute and no latency: bottleneck and total are bytes over rates."""
    ops = operators(0 * fence.operators.seconds, fence.operators.elements, fence.operators.tensors)
    one, other = (Fence(ops, Links(rate, 0 * rate), fence.compression) for rate in (fence.links.rate, factor * fence.links.rate))
    order = list(range(one.stages))
    for name in ("bottleneck", "total"):
        assert getattr(one.chain(order), name) == pytest.approx(factor * getattr(other.chain(order), name), rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(fence=fences())
def test_no_message_is_larger_for_being_compressed_and_none_smaller_than_at_the_slowest_link(fence: Fence) -> None:
    found = fence.even()
    elements = fence.operators.elements[np.array(found.starts[1:-1], dtype=np.int64) - 1]
    assert (found.message_bytes <= SIZE * elements).all()
    assert (found.message_bytes >= np.minimum(SIZE * elements, 8 * np.ceil(elements / fence.compression))).all()
    whole = Fence(fence.operators, fence.links).even()
    assert whole.starts == found.starts and (whole.message_bytes == SIZE * elements).all()


def test_compression_is_in_proportion_to_slowness_down_to_none() -> None:
    """Links of 1, 10 and 1000 bytes/s in a chain at 100 on the slowest: 100, 10, 1."""
    rate = np.full((4, 4), 1.0)
    rate[1, 2] = rate[2, 1] = 10.0
    rate[2, 3] = rate[3, 2] = 1000.0
    ops = operators(np.ones((4, 4)), np.full(3, 1000.0))
    fence = Fence(ops, Links(rate, 0 * rate), compression=100.0)
    assert fence.ratios(range(4)) == pytest.approx([100.0, 10.0, 1.0])
    assert fence.even().message_bytes.tolist() == [80.0, 800.0, 4000.0]


def test_links_are_ports_caps_of_pairs_and_lanes() -> None:
    """Node 0's port has half the rate at 0.9 of it, the pair 1 -> 2 is capped; inside a node PCIe carries."""
    caps = ((0.0, 1e9, 1e9), (1e9, 0.0, 2e6), (1e9, 1e9, 0.0))
    net = ps.Network(1e8, latency=1e-3, message_overhead=1e-4, efficiency=0.9, pair_bandwidth=caps)
    where = ps.Cluster(nodes=3, gpus_per_node=2, network=net, pcie=5e9, peer_latency=1e-5, groups=(ps.NodeGroup(1, bandwidth=5e7),))
    links = Links.of(where)
    assert [links.rate[0, 1], links.rate[1, 2], links.rate[2, 4], links.rate[4, 2]] == [5e9, 4.5e7, 2e6, 9e7]
    assert [links.latency[0, 1], links.latency[1, 2]] == pytest.approx([1e-5, 1.1e-3])


def test_what_crosses_a_cut_inside_a_block_is_the_branch_and_the_shortcut() -> None:
    layers = (
        ps.Layer("a", "conv", (1,), forward_time=1.0, backward_time=1.0, output_elements=3.0),
        ps.Layer("b", "conv", (1,), forward_time=1.0, backward_time=1.0, output_elements=5.0, inputs=("a",)),
        ps.Layer("c", "add", forward_time=1.0, backward_time=1.0, output_elements=3.0, inputs=("a", "b")),
    )
    ops = Operators.of(ps.Workload("block", layers), ps.Cluster(nodes=2, network=ps.Network(1e9)), micro_batch=2)
    assert ops.elements.tolist() == [6.0, 16.0] and ops.tensors.tolist() == [1.0, 2.0]


@settings(max_examples=100, deadline=None)
@given(fence=fences(), memory=st.integers(3, 30), flying=st.lists(st.integers(1, 3), min_size=4, max_size=4))
def test_a_cut_that_fits_is_the_best_that_fits_and_one_that_does_not_is_said_to(fence: Fence, memory: int, flying: list[int]) -> None:
    """An operator holds one byte, and two for each micro-batch in flight."""
    ops = fence.operators
    tight = Fence(operators(ops.seconds, ops.elements, ops.tensors, memory), fence.links, fence.compression, fence.selection_time, tuple(flying))
    order = list(range(fence.stages))
    ways = cuts(ops.seconds.shape[1], len(order))
    fitting = [c for c in ways if all((b - a) * (1 + 2 * flying[k]) <= memory for k, (a, b) in enumerate(itertools.pairwise(c)))]
    found = tight.chain(order)
    assert found.fits == bool(fitting)
    assert found.bottleneck == pytest.approx(min(by_hand(fence, order, c)[0] for c in fitting or ways), rel=1e-9)
