"""Horovod, DDP, ByteScheduler, BytePS, backup workers and local SGD against recursions of their papers and hand-made cases."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import poseidon_sim as ps

from .oracle import BANDWIDTH, LATENCY, cluster, network, ring, step

INSTANT = 1e-12  # moments closer than this share are one: the law of ties in DESIGN.md, without which rounding plays the schedule

layers = st.lists(
    st.tuples(st.integers(1, 60), st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=7
).map(lambda rows: tuple(zip(*((4e4 * s, 1e-3 * f, 1e-3 * b) for s, f, b in rows), strict=True)))


def one_after_another(messages: list[tuple[float, float]], nodes: int) -> float:
    """Return the end of messages (ready, bytes) sent in this order on one channel: tau_c = max(ready, end of the last)."""
    end = 0.0
    for ready, size in messages:
        end = max(end, ready) + ring(size, nodes)
    return end


def readiness(forward: tuple[float, ...], backward: tuple[float, ...]) -> list[tuple[int, float]]:
    """Return (layer, gradient ready) in backward order."""
    now, found = sum(forward), []
    for i in reversed(range(len(backward))):
        now += backward[i]
        found.append((i, now))
    return found


# Without ticks and fusion Horovod is wait-free backpropagation over one FIFO channel: Shi et al. 2018,
# tau_c(l) = max(tau_c(l+1) + t_c(l+1), tau_b(l) + t_b(l)).
@settings(max_examples=25, deadline=None)
@given(rows=layers, nodes=st.integers(2, 9))
def test_horovod_without_ticks_or_fusion_is_the_wfbp_recursion(rows: tuple[tuple[float, ...], ...], nodes: int) -> None:
    sizes, forward, backward = rows
    messages = [(ready, sizes[i]) for i, ready in readiness(forward, backward)]
    found = step(network(*rows), cluster(nodes), ps.Horovod(cycle_time=0.0, fusion_size=0.0))
    assert found == pytest.approx(one_after_another(messages, nodes), rel=1e-9)


# A tick every c seconds of backward; what is ready at a tick is cut, in order, into messages of at most the threshold.
@settings(max_examples=40, deadline=None)
@given(rows=layers, nodes=st.integers(2, 9), cycle=st.sampled_from([3.3e-3, 7.7e-3, 0.1]), limit=st.sampled_from([1e5, 8e5, 1e9]))
def test_horovod_sends_at_each_tick_what_is_ready_up_to_the_threshold(
    rows: tuple[tuple[float, ...], ...], nodes: int, cycle: float, limit: float
) -> None:
    sizes, forward, backward = rows
    waiting = [(ready - sum(forward), sizes[i]) for i, ready in readiness(forward, backward)]
    messages, tick = [], 0
    while waiting:
        tick += 1
        heard = [size for ready, size in waiting if ready <= tick * cycle]
        waiting = waiting[len(heard) :]
        while heard:
            count = 1
            while count < len(heard) and sum(heard[: count + 1]) <= limit:
                count += 1
            messages.append((sum(forward) + tick * cycle, sum(heard[:count])))
            heard = heard[count:]
    found = step(network(*rows), cluster(nodes), ps.Horovod(cycle_time=cycle, fusion_size=limit))
    assert found == pytest.approx(one_after_another(messages, nodes), rel=1e-9)


# Backward makes 40, 30, 20, 10 kB (5 ms each). First bucket closes at 35 kB, others at 45: {40}, {30, 20}, {10}.
# Ready at 5, 15, 20 ms of backward; 2 nodes, ring of S: 2 x 0.2 ms + S / B = 0.8, 0.9, 0.5 ms, each before the next is ready.
def test_ddp_fills_buckets_in_reverse_order_and_sends_each_when_it_is_full() -> None:
    work = network([10e3, 20e3, 30e3, 40e3], [1e-3] * 4, [5e-3] * 4)
    strategy = ps.Ddp(bucket_size=45e3, first_bucket_size=35e3)
    run = ps.simulate(work, cluster(2), strategy, batch_size=1)
    table = run.trace.table
    sent = sorted(
        (round(float(run.trace.times.start[t]), 9), table.layer_names[table.layer[t]])
        for t in range(len(table.kind)) if "bucket" in table.name(t)
    )  # fmt: skip
    assert sent == [(0.009, "layer3"), (0.019, "layer1"), (0.024, "layer0")]
    assert step(work, cluster(2), strategy) == pytest.approx(0.024 + 2 * LATENCY + 10e3 / BANDWIDTH, rel=1e-12)


@settings(max_examples=25, deadline=None)
@given(rows=layers, nodes=st.integers(2, 9), first=st.sampled_from([1.0, 2e5]), limit=st.sampled_from([3e5, 1.5e6]))
def test_ddp_is_the_wfbp_recursion_over_its_buckets(
    rows: tuple[tuple[float, ...], ...], nodes: int, first: float, limit: float
) -> None:
    sizes, forward, backward = rows
    messages: list[tuple[float, float]] = []
    held = 0.0
    for i, ready in readiness(forward, backward):
        held += sizes[i]
        if held >= (limit if messages else first) or i == 0:
            messages.append((ready, held))
            held = 0.0
    found = step(network(*rows), cluster(nodes), ps.Ddp(bucket_size=limit, first_bucket_size=first))
    assert found == pytest.approx(one_after_another(messages, nodes), rel=1e-9)


MEMORY = 1e9  # bytes/s of the made-up GPU below: slow, so that copies weigh


@pytest.mark.parametrize(
    ("strategy", "copied"),
    [
        (ps.Ddp(bucket_size=1e9, first_bucket_size=1e9), True),
        (ps.AllReduce(fusion="1 GB"), True),
        (ps.Horovod(cycle_time=0.0, fusion_size=1e9), False),
        (ps.Horovod(cycle_time=0.02, fusion_size=1e9), True),
        (ps.AllReduce(), False),
    ],
    ids=repr,
)
@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_tensors_that_share_a_message_are_copied_into_a_bucket_and_out_of_it(strategy: ps.Strategy, copied: bool, nodes: int) -> None:
    sizes, forward, backward = (4e6, 8e6, 2e6), (1e-3,) * 3, (2e-3,) * 3
    job, gpu = network(sizes, forward, backward), ps.Gpu("made up", flops={"fp32": 1e13}, memory_bandwidth=MEMORY, memory_efficiency=1.0)
    without, run = (step(job, cluster(nodes, gpu=each), strategy) for each in (None, gpu))
    once = 2 * sum(sizes) / MEMORY  # read and written
    assert run - without == pytest.approx(2 * once if copied and nodes > 1 else 0.0, abs=1e-9)


def scheduled(rows: tuple[tuple[float, ...], ...], nodes: int, partition: float, prioritised: bool, iterations: int) -> list[float]:
    """Play P3 by hand: one channel takes, whenever it is free, the waiting partition of the front-most layer."""
    sizes, forward, backward = rows
    count = len(sizes)
    parts = [math.ceil(s / partition) for s in sizes]
    waiting: list[tuple[float, int, int]] = []  # (ready, layer, number)
    left = [0] * count
    fresh = [0.0] * count
    channel, now, ends, number = 0.0, 0.0, [], 0

    def pump(until: float, layer: int | None) -> None:
        """Send until the channel would start later than `until`, or until a layer is through."""
        nonlocal channel
        while waiting and (layer is None or left[layer]):
            begin = max(channel, min(w[0] for w in waiting))
            if begin >= until * (1 - INSTANT) and layer is None:
                return
            choices = [w for w in waiting if w[0] <= begin * (1 + INSTANT)]
            chosen = min(choices, key=lambda w: (w[1] if prioritised else 0, w[0], w[2]))
            waiting.remove(chosen)
            channel = begin + ring(sizes[chosen[1]] / parts[chosen[1]], nodes)
            left[chosen[1]] -= 1
            fresh[chosen[1]] = channel

    for _ in range(iterations):
        for i in range(count):
            pump(now, i)  # nothing new becomes ready during forward
            now = max(now, fresh[i]) + forward[i]
        for i in reversed(range(count)):
            now += backward[i]
            pump(now, None)
            left[i] = parts[i]
            waiting += [(now, i, number + p) for p in range(parts[i])]
            number += parts[i]
        ends.append(now)
    return ends


# Ties: a partition that becomes ready at the instant at which the channel is free takes part in the choice.
@pytest.mark.parametrize("prioritised", [True, False])
@settings(max_examples=25, deadline=None)
@given(rows=layers, nodes=st.integers(2, 6), partition=st.sampled_from([1.1e5, 5e5, 1e9]))
def test_byte_scheduler_with_one_partition_under_way_is_the_schedule_played_by_hand(
    rows: tuple[tuple[float, ...], ...], nodes: int, partition: float, prioritised: bool
) -> None:
    strategy = ps.ByteScheduler("all-reduce", partition_size=partition, credit=1, prioritised=prioritised)
    ends = scheduled(rows, nodes, partition, prioritised, 5)
    assert step(network(*rows), cluster(nodes), strategy) == pytest.approx((ends[4] - ends[2]) / 2, rel=1e-9)


# Two layers of 1 MB (5 ms a push and 5 ms a pull on 2 nodes: half of it leaves). Backward makes layer 1 first, so in order of
# readiness layer 0, whose long forward comes first, is behind it and starts 20 ms late; with priority it overtakes all but the
# partition under way, and its forward hides the rest.
def test_priority_brings_the_front_layer_in_early_on_a_parameter_server() -> None:
    work = network([1e6, 1e6], [20e-3, 1e-3], [1e-3, 1e-3])
    first, last = (
        step(work, cluster(2), ps.ByteScheduler("parameter-server", partition_size=5e4, prioritised=each)) for each in (True, False)
    )
    assert 23e-3 <= first < last - 7e-3


# Four GPU machines and four CPU hosts: hosts sum everything. A push of M leaves each port in M/B; pulls come in the other
# way, one partition behind: (1 + 1/p) M / B and two latencies. Paper: M / B in the limit.
@pytest.mark.parametrize("pieces", [1, 4, 20])
def test_byteps_with_a_host_per_machine_takes_one_model_through_the_port(pieces: int) -> None:
    work = network([4e6], [0.0], [1e-9])
    strategy = ps.BytePs(hosts="per-node", partition_size=4e6 / pieces)
    expected = 1e-9 + (1 + 1 / pieces) * 4e6 / BANDWIDTH + 2 * LATENCY
    assert step(work, cluster(4), strategy) == pytest.approx(expected, rel=1e-9)


# The optimum of the paper, section 4.1: every port, of a machine or a host, sends 2 n (n - 1) / (n^2 + k n - 2 k) M / ... the
# same: M - G + (n - 1) G on a machine, n C on a host, and that is n (2 n - 2) / (n^2 + k n - 2 k) of the model.
@pytest.mark.parametrize(("n", "k"), [(2, 1), (4, 1), (4, 2), (5, 3), (8, 4), (8, 7)])
def test_byteps_loads_all_ports_alike_as_its_paper_says(n: int, k: int) -> None:
    run = ps.simulate(network([4e6], [0.0], [1e-3]), cluster(n), ps.BytePs(hosts=k), batch_size=1)
    fabric, amounts = run.trace.fabric, run.trace.link_amounts()
    best = 4e6 * 2 * n * (n - 1) / (n * n + k * n - 2 * k)
    for kind in ("nic_out", "nic_in"):
        assert [amounts[fabric.link(kind, c.index)] for c in fabric.classes] == pytest.approx([best] * len(fabric.classes))


# Four GPUs a node on PCIe lanes of 4 MB/s: reduce-scatter 3 x 1 MB, copy out 1 MB, network free, copy in 1 MB, gather 3 x 1 MB.
def test_byteps_sums_inside_the_node_before_anything_leaves_it() -> None:
    where = ps.Cluster(nodes=2, gpus_per_node=4, network=ps.Network(1e15), pcie=4e6)
    found = step(network([4e6], [0.0], [1e-9]), where, ps.BytePs(partition_size=1e9))
    assert found == pytest.approx((0.75 + 0.25 + 0.25 + 0.75) * 4e6 / 4e6, rel=1e-6)


# Four workers, the last three times as slow, a network that costs latencies only: with one backup a step takes what the
# fast ones need, without one what the slow one needs.
@pytest.mark.parametrize(("backups", "slowdown"), [(1, 1.0), (0, 3.0), (2, 1.0)])
def test_backup_workers_do_not_wait_for_the_slowest(backups: int, slowdown: float) -> None:
    slow = ps.Cluster(
        nodes=4, network=ps.Network(1e15, latency=LATENCY), groups=(ps.NodeGroup(3), ps.NodeGroup(1, slowdown=3.0))
    )
    found = step(network([4e5, 4e5], [1e-3] * 2, [2e-3] * 2), slow, ps.BackupWorkers(backups=backups))
    assert found == pytest.approx(6e-3 * slowdown + 2 * LATENCY, rel=1e-6)


@pytest.mark.parametrize("period", [1, 2, 5])
@pytest.mark.parametrize("nodes", [2, 5])
def test_local_sgd_pays_for_one_all_reduce_in_h_iterations(period: int, nodes: int) -> None:
    work = network([4e5, 8e5], [1e-3, 2e-3], [2e-3, 3e-3])
    expected = 8e-3 + ring(1.2e6, nodes) / period
    assert step(work, cluster(nodes), ps.LocalSgd(local_steps=period)) == pytest.approx(expected, rel=1e-9)


# A worker that is slow in every iteration is waited for only at the average: 3 x 2 x 8 ms, then the ring.
def test_local_sgd_waits_for_a_straggler_only_at_the_average() -> None:
    slow = cluster(2, groups=(ps.NodeGroup(1, slowdown=2.0),))
    expected = 2 * 8e-3 + ring(1.2e6, 2) / 3
    assert step(network([1.2e6], [3e-3], [5e-3]), slow, ps.LocalSgd(local_steps=3)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        (ps.Horovod(cycle_time=-1.0), "cycle_time"), (ps.Horovod(fusion_size=-1.0), "fusion_size"),
        (ps.Ddp(bucket_size=0.0), "bucket_size"), (ps.ByteScheduler(credit=0), "credit"),
        (ps.ByteScheduler(over="pigeon"), "over"), (ps.ByteScheduler(partition_size=0.0), "partition_size"),
        (ps.BytePs(hosts="many"), "hosts"), (ps.BackupWorkers(backups=4), "backups"), (ps.LocalSgd(local_steps=0), "local_steps"),
    ],
)  # fmt: skip
def test_a_setting_that_makes_no_sense_is_named(strategy: ps.Strategy, words: str) -> None:
    with pytest.raises(ps.InputError, match=words):
        ps.simulate(network([4e5], [1e-3], [1e-3]), cluster(4), strategy, batch_size=1)


def test_scenarios_spell_sizes_and_times_with_units() -> None:
    raw = {
        "model": "resnet50", "batch_size": 32, "cluster": {"nodes": 4, "gpu": "v100", "network": {"bandwidth": "10 Gbit/s"}},
        "strategy": {"name": "horovod", "cycle_time": "5 ms", "fusion_size": "64 MiB"},
    }  # fmt: skip
    assert ps.load_scenario(raw).strategy == ps.Horovod(cycle_time=5e-3, fusion_size=64 * 2.0**20)
