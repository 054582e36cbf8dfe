"""The all-reduces of single systems: grid (DDL), pairwise exchange (ChainerMN), swap tree (Theano-MPI)."""

from __future__ import annotations

import numpy as np
import pytest

import poseidon_sim as ps
from poseidon_sim.collective import Collective, Grid, LeaderExchange, LocalExchange, SwapTree
from poseidon_sim.collective.messages import Schedule
from poseidon_sim.plan.plan import Plan

BANDWIDTH, LATENCY, LANES, HOP = 1e8, 3e-5, 3e8, 2e-6

#: (collective, ranks, GPUs per node)
CASES = [
    *((LeaderExchange(), nodes * gpus, gpus) for nodes in (1, 2, 3, 5, 8) for gpus in (1, 2, 4)),
    *((LocalExchange(), nodes * gpus, gpus) for nodes in (1, 2, 3, 5, 8) for gpus in (1, 2, 4)),
    *((SwapTree(), ranks, gpus) for ranks, gpus in ((2, 1), (2, 2), (4, 2), (8, 1), (8, 4), (8, 8), (16, 4))),
    (Grid((4, 2, 2)), 16, 4), (Grid((2, 3, 5)), 30, 2), (Grid((3,)), 3, 1), (Grid((1, 6, 1)), 6, 1), (Grid((4, 1, 3)), 12, 4),
    (Grid((4, 2, 2), ("halving", "halving", "ring")), 16, 4), (Grid((2, 8), ("ring", "halving")), 16, 2),
    (Grid((8, 3), ("halving", "ring")), 24, 8), (Grid((4, 4), ("halving", "halving")), 16, 1),
]  # fmt: skip


def run_schedule(rounds: Schedule, vectors: np.ndarray, size: int) -> np.ndarray:
    """Move the data as the messages say: all of a round read before any is written."""
    for messages in rounds:
        before = vectors.copy()
        for m in messages:
            part = slice(round(m.start * size), round(m.stop * size))
            if m.reduce:
                vectors[m.target, part] += before[m.source, part]
            else:
                vectors[m.target, part] = before[m.source, part]
    return vectors


@pytest.mark.parametrize(("algorithm", "ranks", "gpus"), CASES, ids=lambda x: getattr(x, "name", str(x)))
def test_every_rank_ends_with_the_full_sum(algorithm: Collective, ranks: int, gpus: int) -> None:
    size = 240 if 240 % ranks == 0 else 15360
    vectors = np.random.default_rng(0).integers(0, 1000, (ranks, size)).astype(np.int64)
    wanted = vectors.sum(axis=0)
    assert (run_schedule(algorithm.schedule(ranks, gpus), vectors, size) == wanted).all()


def cluster(ranks: int, gpus: int) -> ps.Cluster:
    network = ps.Network(BANDWIDTH, latency=LATENCY)
    return ps.Cluster(ranks // gpus, gpus, network=network, pcie=LANES, peer_latency=HOP)


def recorded(algorithm: Collective, where: ps.Cluster, num_bytes: float) -> float:
    """Return how long the fluid phases take alone."""
    work = ps.Workload("one", (ps.Layer("only", "conv", (25,), forward_time=0.0, backward_time=1.0),))
    plan = Plan(work, where, 1)
    links = plan.links.capacities
    return sum(
        p.latency + p.work / min([p.rate_cap, *(links[link] / share for link, share in p.uses)]) for p in algorithm.phases(plan, num_bytes)
    )


# The fluid model against the closed form of the literature. A halving round inside a node takes each GPU's own lanes,
# between nodes the GPUs of a node share its port.
@pytest.mark.parametrize(("algorithm", "ranks", "gpus"), [c for c in CASES if c[1] > 1], ids=lambda x: getattr(x, "name", str(x)))
def test_a_call_on_an_empty_cluster_takes_the_closed_form(algorithm: Collective, ranks: int, gpus: int) -> None:
    if isinstance(algorithm, Grid) and algorithm.extents[0] < gpus:
        pytest.skip("the closed form wants dimensions inside or between nodes")
    stated = algorithm.time(4e6, ranks, BANDWIDTH, LATENCY, gpus, LANES, HOP)
    assert recorded(algorithm, cluster(ranks, gpus), 4e6) == pytest.approx(stated, rel=1e-9)


# DDL's manual counts, per GPU and N bytes on a grid x, y, z: X 2N(x-1)/x, Y 2(N/x)(y-1)/y, Z 2(N/xy)(z-1)/z.
@pytest.mark.parametrize("extents", [(4, 2, 2), (2, 3, 5), (4, 8, 8)])
def test_a_grid_sends_smaller_shards_along_every_further_dimension(extents: tuple[int, ...]) -> None:
    x, y, z = extents
    sent = np.zeros(3)
    for each in Grid(extents).schedule(x * y * z, x):
        moved = each.share[each.source == 0].sum()
        apart = abs(int(each.target[each.source == 0][0]))
        sent[0 if apart < x else 1 if apart < x * y else 2] += moved
    assert sent == pytest.approx([2 * (x - 1) / x, 2 * (y - 1) / (x * y), 2 * (z - 1) / (x * y * z)])


# Eight GPUs in two sockets: five steps of the whole buffer, one of them across.
def test_a_swap_tree_of_eight_takes_five_steps_and_crosses_once() -> None:
    rounds = SwapTree().schedule(8, 8)
    crossing = [any((m.source < 4) != (m.target < 4) for m in each) for each in rounds]
    assert crossing == [False, False, True, False, False]
    assert all(m.share == 1.0 for each in rounds for m in each)


# Six nodes in two leaves of three. Of the n - 1 = 5 exchanges of W/6 by each node, 3 cross: 3 x 3 W/6 up a leaf, twice. A ring
# leaves a leaf once: 2 x 5/6 W.
def test_pairwise_exchange_crosses_leaves_more_often_than_a_ring() -> None:
    def crossing(algorithm: Collective) -> float:
        return sum(m.share for each in algorithm.schedule(6, 1) for m in each if m.source < 3 <= m.target)

    assert crossing(LeaderExchange()) == pytest.approx(2 * 9 / 6)
    assert crossing(ps.collective_algorithm("ring")) == pytest.approx(2 * 5 / 6)


@pytest.mark.parametrize("algorithm", [LeaderExchange(), LocalExchange(), Grid((2, 4))], ids=lambda a: a.name)
def test_ports_carry_what_the_schedule_sends_between_nodes(algorithm: Collective) -> None:
    plan_bytes = algorithm.network_bytes(4e6, cluster(8, 2))
    crossing = sum(m.share for e in algorithm.schedule(8, 2) for m in e if m.source // 2 != m.target // 2)
    assert plan_bytes == pytest.approx(4e6 * crossing)
