"""Every collective: schedules move the right data, folding changes nothing, ports carry their messages."""

from __future__ import annotations

import time

import numpy as np
import pytest

import poseidon_sim as ps
from poseidon_sim.collective import (
    AllGather,
    AllToAll,
    Broadcast,
    ReduceScatter,
    collective_algorithm,
    list_collectives,
)
from poseidon_sim.collective.messages import Schedule, expand
from poseidon_sim.laws import small_workload
from poseidon_sim.plan.plan import Plan

RANKS = (2, 3, 4, 5, 6, 7, 8, 12, 16)
BANDWIDTH, LATENCY = 1e8, 3e-5


def run_schedule(rounds: Schedule, vectors: np.ndarray, size: int) -> np.ndarray:
    """Move the data as the messages say: all of a round read before any is written."""
    for messages in rounds:
        before = vectors.copy()
        for m in messages:
            part = slice(round(m.start * size), round(m.stop * size))
            place = slice(round(m.place * size), round((m.place + m.share) * size))
            if m.reduce:
                vectors[m.target, place] += before[m.source, part]
            else:
                vectors[m.target, place] = before[m.source, part]
    return vectors


@pytest.mark.parametrize("per_node", [1, 2, 3, 4])
@pytest.mark.parametrize("num_ranks", RANKS)
@pytest.mark.parametrize("name", list_collectives())
def test_every_rank_ends_with_the_full_sum(name: str, num_ranks: int, per_node: int) -> None:
    if num_ranks % per_node:
        pytest.skip("ranks fill whole nodes")
    size = 40320  # divides by every number of chunks in use
    rng = np.random.default_rng(0)
    vectors = rng.integers(0, 1000, (num_ranks, size)).astype(np.int64)
    wanted = vectors.sum(axis=0)
    done = run_schedule(collective_algorithm(name).schedule(num_ranks, per_node), vectors, size)
    assert (done == wanted).all()


@pytest.mark.parametrize("num_ranks", [2, 3, 5, 8])
def test_the_primitives_scatter_gather_deal_out_and_broadcast(num_ranks: int) -> None:
    n, rng = num_ranks, np.random.default_rng(0)
    mine = rng.integers(0, 1000, (n, n)).astype(np.int64)  # one number per chunk
    scattered = run_schedule(ReduceScatter().schedule(n), mine.copy(), n)
    assert (scattered.diagonal() == mine.sum(axis=0)).all()
    gathered = run_schedule(AllGather().schedule(n), np.diag(mine.diagonal()), n)
    assert (gathered == mine.diagonal()).all()
    inbox = run_schedule(AllToAll().schedule(n), np.concatenate([mine, np.zeros_like(mine)], axis=1), n)[
        :, n:
    ]
    assert (inbox + np.diag(mine.diagonal()) == mine.T).all()
    assert (run_schedule(Broadcast().schedule(n), mine.copy(), n) == mine[0]).all()


# Ring of 3, round 0: rank r passes on its own chunk r - 1; round 1: what came in from r - 1 plus its own.
# Messages 0, 1, 2 are round 0, so message 3 (0 -> 1) waits for message 2 (2 -> 0). In the gathering half a
# rank passes on only what it received.
def test_a_message_waits_for_the_message_whose_data_it_passes_on() -> None:
    found = expand(collective_algorithm("ring").schedule(3), 3, in_order=True)
    waits = [sorted(row[row >= 0].tolist()) for row in found.before]
    assert waits == [[], [], [], [2], [0], [1], [5], [3], [4], [8], [6], [7]]
    assert found.own.tolist() == [True] * 9 + [False] * 3
    assert found.opens.tolist() == [True] * 3 + [False] * 9


def one_tensor(num_bytes: float) -> ps.Workload:
    layer = ps.Layer("only", "conv", (int(num_bytes / 4),), forward_time=0.0, backward_time=1e-9)
    return ps.Workload("one tensor", (layer,), batch_size=1)


# The strategy end to end: ports carry what the schedule sends between nodes, all invariants of the engine
# hold.
@pytest.mark.parametrize("detail", ["folded", "nodes", "rounds"])
@pytest.mark.parametrize("gpus", [1, 2, 4])
@pytest.mark.parametrize("nodes", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("name", list_collectives())
def test_ports_carry_what_the_schedule_sends_between_nodes(
    name: str, nodes: int, gpus: int, detail: str
) -> None:
    cluster = ps.Cluster(
        nodes=nodes, gpus_per_node=gpus, network=ps.Network(BANDWIDTH, latency=LATENCY), pcie=1e9
    )
    small = nodes * gpus <= 12
    run = ps.simulate(
        one_tensor(4e6), cluster, ps.AllReduce(algorithm=name), batch_size=1, detail=detail, check=small
    )
    rounds = collective_algorithm(name).schedule(nodes * gpus, gpus)
    crossing = sum(m.share for each in rounds for m in each if m.source // gpus != m.target // gpus)
    assert nodes * run.summary()["bytes_sent_per_node"] == pytest.approx(4e6 * crossing, rel=1e-9, abs=1e-9)


def test_each_collective_of_one_rank_does_nothing() -> None:
    for name in list_collectives():
        assert ps.simulate(
            one_tensor(4e6), ps.Cluster(nodes=1), ps.AllReduce(algorithm=name), batch_size=1
        ).step_time == pytest.approx(1e-9)


NETWORK = {"bandwidth": BANDWIDTH, "latency": LATENCY, "message_overhead": 1e-5}
CLUSTERS = {
    "two leaves": ps.Cluster(6, network=ps.Network(**NETWORK, oversubscription=2, nodes_per_leaf=3)),
    "a short leaf": ps.Cluster(
        7, 2, network=ps.Network(**NETWORK, oversubscription=3, nodes_per_leaf=3), pcie=5e8
    ),
    "two speeds of port": ps.Cluster(
        6, network=ps.Network(**NETWORK), groups=(ps.NodeGroup(2, bandwidth=2e7),)
    ),
    "a straggler": ps.Cluster(5, network=ps.Network(**NETWORK), groups=(ps.NodeGroup(1, slowdown=1.7),)),
    "a PCIe tree": ps.Cluster(
        3, 4, node="pcie-tree", socket_bandwidth=4e8, network=ps.Network(**NETWORK), pcie=5e8
    ),
    "slow hosts": ps.Cluster(
        4,
        2,
        network=ps.Network(**NETWORK),
        pcie=5e8,
        host=ps.Host(channel_bandwidth=9e7, memory_bandwidth=3e8),
    ),
}


@pytest.mark.parametrize("staging", ["direct", "host"])
@pytest.mark.parametrize("cluster", CLUSTERS.values(), ids=CLUSTERS.keys())
@pytest.mark.parametrize("name", list_collectives())
def test_folding_nodes_changes_nothing(name: str, cluster: ps.Cluster, staging: str) -> None:
    strategy = ps.AllReduce(algorithm=name, staging=staging)
    folded, nodes = (
        ps.simulate(small_workload(), cluster, strategy, batch_size=4, detail=d, check=True)
        for d in ("folded", "nodes")
    )
    assert folded.step_time == pytest.approx(nodes.step_time, rel=1e-9)


# 4 GPUs behind two PCIe switches, 8 bytes, lanes of 4 bytes/s, a bus of 1 byte/s between the sockets. The
# ring crosses the bus once each way, so every round of 2 bytes takes 2 s: 6 rounds, 12 s. A tree: 8 bytes
# inside each socket (2 s), 8 over the bus (8 s).
@pytest.mark.parametrize(("name", "expected"), [("ring", 12.0), ("tree", 20.0)])
def test_the_bus_between_sockets_holds_a_collective_back(name: str, expected: float) -> None:
    cluster = ps.Cluster(1, 4, node="pcie-tree", pcie=4.0, socket_bandwidth=1.0)
    for detail in ("folded", "rounds"):
        run = ps.simulate(
            one_tensor(8.0), cluster, ps.AllReduce(algorithm=name), batch_size=1, detail=detail, check=True
        )
        assert run.step_time - 1e-9 == pytest.approx(expected, rel=1e-9)


# Tree of 3 with hops of 40 ms: 1 -> 0, 2 -> 0, 0 -> 2, 0 -> 1. Rank 2 is ready 1 s late. Fluid waits for it
# with all four hops. Message by message the first hop is over before it comes, and it goes on with the sum
# two hops after it came, while the last hop runs: its iterations, and so everyone's, take 1.08 s.
def test_message_by_message_a_rank_starts_without_waiting_for_stragglers_it_does_not_need() -> None:
    cluster = ps.Cluster(
        3, network=ps.Network(BANDWIDTH), groups=(ps.NodeGroup(2), ps.NodeGroup(1, slowdown=1e9))
    )
    strategy = ps.AllReduce(algorithm="tree")
    fluid, rounds = (
        ps.simulate(one_tensor(4e6), cluster, strategy, batch_size=1, detail=d).step_time
        for d in ("folded", "rounds")
    )
    assert fluid == pytest.approx(1.0 + 4 * 0.04, rel=1e-9)
    assert rounds == pytest.approx(1.0 + 2 * 0.04, rel=1e-9)


def test_the_messages_of_161_tensors_among_64_gpus_are_recorded_in_seconds() -> None:
    plan = Plan(
        small_workload(),
        ps.Cluster(16, 4, network=ps.Network(BANDWIDTH), pcie=1e9),
        4,
        folded=False,
        rounds=True,
    )
    begin, done = time.perf_counter(), plan.start
    for _ in range(161):
        done = collective_algorithm("ring").record(plan, 1e6, done, label="call")
    assert plan.recorder.num_tasks >= 161 * 126 * 64
    assert time.perf_counter() - begin < 10.0
