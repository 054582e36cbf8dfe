"""Every all-reduce: the schedule sums, the engine meets the closed form, the ports carry what the schedule says."""

from __future__ import annotations

import numpy as np
import pytest

import poseidon_sim as ps
from poseidon_sim.collective import collective_algorithm, list_collectives

RANKS = (2, 3, 4, 5, 7, 8, 16)
BANDWIDTH, LATENCY = 1e8, 3e-5


def run_schedule(rounds: list, vectors: np.ndarray) -> np.ndarray:
    """Move the data as the messages say: all of a round read before any is written."""
    size = vectors.shape[1]
    for messages in rounds:
        before = vectors.copy()
        for m in messages:
            part = slice(round(m.start * size), round(m.stop * size))
            if m.reduce:
                vectors[m.target, part] += before[m.source, part]
            else:
                vectors[m.target, part] = before[m.source, part]
    return vectors


@pytest.mark.parametrize("per_node", [1, 2, 4])
@pytest.mark.parametrize("num_ranks", RANKS)
@pytest.mark.parametrize("name", list_collectives())
def test_every_rank_ends_with_the_full_sum(name: str, num_ranks: int, per_node: int) -> None:
    if num_ranks % per_node:
        pytest.skip("ranks fill whole nodes")
    size = 5040 * 16  # divides by every chunk in use
    rng = np.random.default_rng(0)
    vectors = rng.integers(0, 1000, (num_ranks, size)).astype(np.int64)
    wanted = vectors.sum(axis=0)
    done = run_schedule(collective_algorithm(name).schedule(num_ranks, per_node), vectors)
    assert (done == wanted).all()


def one_tensor(num_bytes: float) -> ps.Workload:
    layer = ps.Layer("only", "conv", (int(num_bytes / 4),), forward_time=0.0, backward_time=1e-9)
    return ps.Workload("one tensor", (layer,), batch_size=1)


def simulated(name: str, nodes: int, num_bytes: float, detail: str = "folded") -> ps.Run:
    cluster = ps.Cluster(nodes=nodes, network=ps.Network(BANDWIDTH, latency=LATENCY))
    return ps.simulate(one_tensor(num_bytes), cluster, ps.AllReduce(algorithm=name), batch_size=1, detail=detail, check=nodes < 9)


# One tensor of S bytes on n nodes, an empty flat network, ports of B bytes/s, a hop of alpha seconds:
# the engine's step minus the 1 ns of compute is the closed form of the literature (Collective.time, written apart).
@pytest.mark.parametrize("num_bytes", [4000.0, 4e6])
@pytest.mark.parametrize("nodes", RANKS)
@pytest.mark.parametrize("name", list_collectives())
def test_the_engine_meets_the_closed_form(name: str, nodes: int, num_bytes: float) -> None:
    expected = collective_algorithm(name).time(num_bytes, nodes, BANDWIDTH, LATENCY)
    assert simulated(name, nodes, num_bytes).step_time - 1e-9 == pytest.approx(expected, rel=1e-9)


# For other n the tree and halving-doubling leave ranks without a part in a round; these start their next message early and
# share a port with the round before, so the messages may take longer than round after round (3 nodes: 1.33 times).
@pytest.mark.parametrize(
    ("name", "nodes"),
    [*((n, k) for n in ("ring", "hierarchical", "two-dimensional") for k in RANKS),
     *((n, k) for n in ("tree", "halving-doubling") for k in (2, 4, 8, 16))],
)  # fmt: skip
def test_every_message_of_every_round_takes_as_long_as_the_fluid_task(name: str, nodes: int) -> None:
    fluid = simulated(name, nodes, 4e6).step_time
    assert simulated(name, nodes, 4e6, "rounds").step_time == pytest.approx(fluid, rel=1e-9)


# Unpipelined, the double tree's rounds move half the buffer 2 log2(n) times: slower than the pipelined model by design.
def test_the_rounds_of_a_double_tree_are_not_pipelined_and_so_bound_the_fluid_model_from_above() -> None:
    assert simulated("double-tree", 8, 4e6, "rounds").step_time > simulated("double-tree", 8, 4e6).step_time


@pytest.mark.parametrize("gpus", [1, 2, 4])
@pytest.mark.parametrize("name", list_collectives())
def test_ports_carry_what_the_schedule_sends_between_nodes(name: str, gpus: int) -> None:
    cluster = ps.Cluster(nodes=4, gpus_per_node=gpus, network=ps.Network(BANDWIDTH), pcie=1e9)
    run = ps.simulate(one_tensor(4e6), cluster, ps.AllReduce(algorithm=name), batch_size=1, check=True)
    rounds = collective_algorithm(name).schedule(4 * gpus, gpus)
    crossing = sum(m.share for each in rounds for m in each if m.source // gpus != m.target // gpus)
    assert 4 * run.summary()["bytes_sent_per_node"] == pytest.approx(4e6 * crossing, rel=1e-9)


# 6 nodes in leaves of 3, uplink = 3 ports / 3: the ring enters and leaves each leaf once, so the uplink is no limit.
def test_a_ring_in_node_order_crosses_each_leaf_uplink_once() -> None:
    flat = ps.Cluster(nodes=6, network=ps.Network(BANDWIDTH))
    leaves = ps.Cluster(nodes=6, network=ps.Network(BANDWIDTH, oversubscription=3, nodes_per_leaf=3))
    times = [ps.simulate(one_tensor(4e6), c, ps.AllReduce(), batch_size=1).step_time for c in (flat, leaves)]
    assert times[0] == pytest.approx(times[1], rel=1e-9)


def test_each_collective_of_one_rank_does_nothing() -> None:
    for name in list_collectives():
        assert ps.simulate(one_tensor(4e6), ps.Cluster(nodes=1), ps.AllReduce(algorithm=name), batch_size=1).step_time == pytest.approx(1e-9)
