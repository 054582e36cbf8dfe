"""Poplar against exhaustive search on small cases, and its steps against closed forms on GPUs that differ."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import poseidon_sim as ps
from poseidon_sim.plan.uneven import alone, together
from poseidon_sim.strategy.base import Job

FAST = 1e18  # bytes/s: collectives cost nothing


def table(fixed: int, each: int, most: int) -> np.ndarray:
    return np.array([0.0, *(fixed + each * b for b in range(1, most + 1))])


KINDS = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 6), st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=3)


def cheapest(samples: int, times: np.ndarray) -> float:
    """The least time of one GPU for so many samples, over all ways to cut them into micro-batches."""
    best = [0.0]
    for n in range(1, samples + 1):
        best.append(min(best[n - b] + times[b] for b in range(1, min(n, len(times) - 1) + 1)))
    return best[samples]


@settings(max_examples=60, deadline=None)
@given(kinds=KINDS, total=st.integers(1, 9))
def test_where_all_wait_once_a_step_no_other_deal_is_faster(kinds: list[tuple[int, int, int, int]], total: int) -> None:
    """The slowest GPU's time, against every way to give each kind 0 to all samples and to cut them."""
    counts, tables = [k[0] for k in kinds], [table(*k[1:]) for k in kinds]
    found = alone(total, counts, tables)
    assert found is not None and sum(n * sum(b) for n, b in zip(counts, found, strict=True)) >= total
    ours = max(sum(t[b] for b in each) for t, each in zip(tables, found, strict=True))
    deals = (d for d in product(range(total + 1), repeat=len(kinds)) if sum(n * g for n, g in zip(counts, d, strict=True)) >= total)
    assert ours == pytest.approx(min(max(cheapest(g, t) for g, t in zip(d, tables, strict=True)) for d in deals))


@settings(max_examples=60, deadline=None)
@given(kinds=KINDS, total=st.integers(1, 9), sync=st.integers(0, 9))
def test_where_all_wait_in_every_micro_batch_no_other_deal_is_faster(kinds: list[tuple[int, int, int, int]], total: int, sync: int) -> None:
    """Against every number of equal micro-batches (one sample more in the first ones) and every batch of every kind in them."""
    counts, tables = [k[0] for k in kinds], [table(*k[1:]) for k in kinds]

    def one(size: int) -> float:
        deals = product(*(range(len(t)) for t in tables))
        times = [max(t[b] for t, b in zip(tables, d, strict=True)) for d in deals if sum(n * b for n, b in zip(counts, d, strict=True)) >= size]
        return sync + min(times, default=np.inf)

    best = min(sum(one(total // k + (i < total % k)) for i in range(k)) for k in range(1, total + 1))
    found = together(total, counts, tables, sync)
    assert found is not None and len({len(each) for each in found}) == 1
    assert sum(sync + max(t[b] for t, b in zip(tables, step, strict=True)) for step in zip(*found, strict=True)) == pytest.approx(best)


def model(*seconds: float) -> ps.Workload:
    layers = tuple(ps.Layer(f"l{i}", "conv", (1000,), forward_time=s / 3, backward_time=2 * s / 3) for i, s in enumerate(seconds))
    return ps.Workload("net", layers)


def mixed(*slowdowns: float, bandwidth: float = FAST) -> ps.Cluster:
    return ps.Cluster(nodes=len(slowdowns), network=ps.Network(bandwidth), groups=tuple(ps.NodeGroup(1, slowdown=s) for s in slowdowns))


# Two GPUs, one twice as slow, 12 samples of 1 s: 8 and 4, both 8 s; dealt out equally the slow one takes 12 s.
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_a_gpu_of_half_the_speed_gets_a_third_of_the_samples(zero: int) -> None:
    ours, equal = (ps.simulate(model(4.0, 2.0), mixed(1.0, 2.0), ps.Poplar(zero=zero, split=s), batch_size=6, check=True) for s in ("measured", "equal"))
    assert ours.step_time == pytest.approx(8.0, rel=1e-6)
    assert equal.step_time == pytest.approx(12.0, rel=1e-6)


# A limit of 3 samples, 1 s and 2 s each, 12 in all. Stage 0 runs 3 + 3 + 2 beside 2 + 2: 8 s. Stage 2 waits in every micro-batch: 2 of
# (3, 3) take 6 s each, 3 of (3, 1) take 3 s each, 4 of (2, 1) take 2 s each. With 2 s for a reduction that is 16, 15 and 16 s.
def test_stage_two_weighs_idle_gpus_against_the_price_of_a_reduction() -> None:
    once, often = (ps.simulate(model(6.0), mixed(1.0, 2.0), ps.Poplar(zero=z, most=3), batch_size=6, check=True) for z in (0, 2))
    assert once.step_time == pytest.approx(8.0, rel=1e-6) and often.step_time == pytest.approx(8.0, rel=1e-6)
    dealt = [
        [*ps.Poplar(zero=2, most=3).batches(Job(model(6.0), mixed(1.0, 2.0, bandwidth=b), 6)).values()] for b in (FAST, 1000.0, 1.0)
    ]  # fmt: skip
    assert dealt == [[(2,) * 4, (1,) * 4], [(3,) * 3, (1,) * 3], [(3, 3), (3, 3)]]


@pytest.mark.parametrize(("zero", "halves"), [(0, 2), (1, 2), (2, 4), (3, 9)])
def test_stage_two_reduces_and_stage_three_gathers_twice_too_in_every_micro_batch(zero: int, halves: int) -> None:
    """Three micro-batches of 2 samples on each of 4 GPUs: stages 0 and 1 move 2 halves once, 2 three reductions and a gathering, 3 nine."""
    work, nodes = model(1.0, 1.0), 4
    run = ps.simulate(work, ps.Cluster(nodes=nodes, network=ps.Network(FAST)), ps.Poplar(zero=zero, most=2), batch_size=6, check=True)
    assert run.summary()["bytes_sent_per_node"] == pytest.approx(halves * (nodes - 1) / nodes * work.gradient_bytes)


@settings(max_examples=25, deadline=None)
@given(slow=st.lists(st.integers(10, 40), min_size=2, max_size=4), zero=st.integers(0, 3), batch=st.integers(1, 6), most=st.integers(1, 4))
def test_an_equal_deal_is_never_faster(slow: list[int], zero: int, batch: int, most: int) -> None:
    where = mixed(*(s / 10 for s in slow))
    ours, equal = (ps.simulate(model(1.0, 2.0), where, ps.Poplar(zero=zero, split=s, most=most), batch_size=batch).step_time for s in ("measured", "equal"))
    assert ours <= equal * (1 + 1e-6)


def test_memory_limits_each_kind_and_what_fits_nowhere_is_refused() -> None:
    """A card of 16 GB takes smaller micro-batches than one of 80; without sharding a billion parameters do not fit on 16 GB at all."""
    where = ps.Cluster(nodes=2, gpus_per_node=4, network=ps.Network(1e10), groups=(ps.NodeGroup(1, gpu=ps.gpu("v100-16gb")), ps.NodeGroup(1, gpu=ps.gpu("t4"))))
    shape = {"layers": 24, "hidden": 1024, "heads": 16, "vocabulary": 32000}
    small = ps.load_model({"name": "small", "transformer": shape, "precision": "fp16", "optimizer": "adam"}, sequence_length=512)
    batches = ps.Poplar(zero=3).batches(Job(small, where, 64))
    (fast, fast_batches), (slow, slow_batches) = batches.items()
    assert fast.gpu is not None and slow.gpu is not None and fast.gpu.name.startswith("v100") and slow.gpu.name == "t4"
    assert sum(fast_batches) > sum(slow_batches) and 4 * (sum(fast_batches) + sum(slow_batches)) >= 64 * 8
    large = ps.load_model({"name": "large", "transformer": {**shape, "layers": 200}, "precision": "fp16", "optimizer": "adam"}, sequence_length=512)
    with pytest.raises(ps.InfeasibleError, match="shard more"):
        ps.simulate(large, where, ps.Poplar(zero=0), batch_size=1)


@pytest.mark.parametrize(
    ("strategy", "options", "words"),
    [(ps.Poplar(zero=4), {}, "zero=4"), (ps.Poplar(split="fair"), {}, "split"), (ps.Poplar(), {"micro_batch_size": 2}, "micro-batches itself")],
)
def test_settings_that_make_no_sense_are_refused_in_words(strategy: ps.Strategy, options: dict[str, int], words: str) -> None:
    with pytest.raises(ps.InputError, match=words):
        ps.simulate(model(1.0), mixed(1.0, 1.0), strategy, batch_size=4, **options)
