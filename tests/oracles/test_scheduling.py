"""Priority scheduling, buckets, FireCaffe's trees and local steps against recursions and closed forms written apart from them."""

from __future__ import annotations

import math

import pytest

import poseidon_sim as ps

BANDWIDTH, LATENCY = 1e8, 2e-4
TIMES = [(2e-3, 4e-3, 400_000), (1e-3, 3e-3, 100_000), (3e-3, 2e-3, 900_000)]  # (forward s, backward s, bytes), first layer first
MODEL = ps.Workload("three", tuple(
    ps.Layer(f"l{i}", "conv", (size // 4,), forward_time=f, backward_time=b) for i, (f, b, size) in enumerate(TIMES)
), batch_size=1)  # fmt: skip


def cluster(nodes: int, **more: object) -> ps.Cluster:
    return ps.Cluster(nodes=nodes, network=ps.Network(BANDWIDTH, latency=LATENCY), **more)  # type: ignore[arg-type]


def ring(nodes: int, size: float) -> float:
    """2 (n - 1) hops, 2 (n - 1) / n of the bytes."""
    return 2 * (nodes - 1) * LATENCY + 2 * (nodes - 1) / nodes * size / BANDWIDTH


def priority_steps(nodes: int, partition: float, iterations: int) -> list[float]:
    """Ends of backward, by a list schedule of one channel: of the partitions that are ready, one of the frontmost layer goes next.

    The channel is looked at whenever it is free; forward of a layer waits for all partitions of its layer of the last iteration.
    """
    free, clock = 0.0, 0.0
    pending: list[tuple[int, float, int, float]] = []  # (layer, ready, order, bytes)
    done = dict.fromkeys(range(len(TIMES)), 0.0)
    left = dict.fromkeys(range(len(TIMES)), 0)
    ends, order = [], 0

    def serve(until_layer: int | None, until: float) -> None:
        """Serve until a layer has all its partitions (or, with None, everything that can start before `until`)."""
        nonlocal free
        while pending and (left[until_layer] > 0 if until_layer is not None else True):
            begin = max(free, min(ready for _, ready, _, _ in pending))
            if until_layer is None and begin >= until:
                return
            entry = min(e for e in pending if e[1] <= begin)
            pending.remove(entry)
            free = begin + ring(nodes, entry[3])
            left[entry[0]] -= 1
            done[entry[0]] = free

    for _ in range(iterations):
        for layer, (forward, _, _) in enumerate(TIMES):
            serve(layer, math.inf)
            clock = max(clock, done[layer]) + forward
        for layer in reversed(range(len(TIMES))):
            serve(None, clock + TIMES[layer][1])  # what starts before this gradient is there cannot know of it
            clock += TIMES[layer][1]
            count = math.ceil(TIMES[layer][2] / partition)
            for _ in range(count):
                pending.append((layer, clock, order, TIMES[layer][2] / count))
                order += 1
            left[layer] += count
        ends.append(clock)
    return ends


@pytest.mark.parametrize("partition", [1e9, 250e3, 60e3])
@pytest.mark.parametrize("nodes", [2, 5])
def test_priority_scheduling_takes_the_times_of_a_list_schedule(nodes: int, partition: float) -> None:
    run = ps.simulate(MODEL, cluster(nodes), ps.ByteScheduler(partition_size=partition))
    ends = priority_steps(nodes, partition, 40)
    assert run.step_time == pytest.approx((ends[-1] - ends[-9]) / 8, rel=1e-6)


def test_small_partitions_let_front_layers_overtake_and_cost_a_start_up_each() -> None:
    def steps(latency: float) -> list[float]:
        fabric = ps.Cluster(nodes=4, network=ps.Network(BANDWIDTH, latency=latency))
        return [ps.simulate(MODEL, fabric, s).step_time for s in (ps.ByteScheduler(partition_size=90e3), ps.ByteScheduler(partition_size=1e9), ps.AllReduce())]

    cut, whole, plain = steps(latency=0.0)
    assert cut < whole <= plain * (1 + 1e-9)
    cut, whole, _ = steps(latency=1e-3)
    assert cut > whole


@pytest.mark.parametrize(("bucket", "first"), [(1e9, 1e9), (450e3, 1.0), (1.0, 1.0)])
def test_ddp_takes_the_time_of_the_recursion_over_its_buckets(bucket: float, first: float) -> None:
    nodes = 4
    forward = sum(f for f, _, _ in TIMES)
    clock, free, held, limit = forward, 0.0, 0.0, first
    for index, (_, backward, size) in enumerate(reversed(TIMES)):
        clock, held = clock + backward, held + size
        if held >= limit or index == len(TIMES) - 1:
            free, held, limit = max(clock, free) + ring(nodes, held), 0.0, bucket
    run = ps.simulate(MODEL, cluster(nodes), ps.Ddp(bucket_size=bucket, first_bucket_size=first))
    assert run.step_time == pytest.approx(max(clock, free), rel=1e-9)


@pytest.mark.parametrize("nodes", [2, 4, 8, 32])
def test_fire_caffe_s_tree_grows_with_the_logarithm_of_the_workers(nodes: int) -> None:
    size, compute, lanes = sum(s for _, _, s in TIMES), sum(f + b for f, b, _ in TIMES), 1e9
    expected = compute + 2 * size / lanes + 2 * math.log2(nodes) * (size / BANDWIDTH + LATENCY)  # section 4: 2 log2(p) W / BW
    run = ps.simulate(MODEL, cluster(nodes, pcie=lanes), ps.FireCaffe())
    assert run.step_time == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("nodes", [2, 4, 8])
def test_fire_caffe_s_server_grows_with_the_workers(nodes: int) -> None:
    size, compute = sum(s for _, _, s in TIMES), sum(f + b for f, b, _ in TIMES)
    run = ps.simulate(MODEL, cluster(nodes), ps.FireCaffe(aggregation="parameter-server"))
    wires = 2 * nodes * size / BANDWIDTH  # section 4: p W / BW in, p W / BW out; layer by layer the two directions overlap
    assert compute + wires / 2 < run.step_time <= compute + wires + 2 * LATENCY * (1 + 1e-9)


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_local_steps_share_one_average(steps: int) -> None:
    size, compute = sum(s for _, _, s in TIMES), sum(f + b for f, b, _ in TIMES)
    run = ps.simulate(MODEL, cluster(4), ps.LocalSgd(local_steps=steps))
    assert run.step_time == pytest.approx(compute + ring(4, size) / steps, rel=1e-9)
