"""Messages folded by symmetry take the times of messages run one by one; what is not symmetric is not folded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import poseidon_sim as ps
from poseidon_sim.engine import run
from poseidon_sim.laws import small_workload
from poseidon_sim.plan.plan import Plan, UnfoldableError

FABRIC = ps.Cluster(
    nodes=4, gpus_per_node=2, gpu=ps.Gpu("mine", peer_bandwidth=3e8), pcie=5e8, peer_latency=3e-6,
    network=ps.Network(50e6, latency=2e-5, message_overhead=1e-5, incast=((1, 1.0), (3, 0.8))),
    host=ps.Host(channel_bandwidth=8e7, channel_sharing=((1, 1.0), (4, 0.6)), memory_bandwidth=1e9),
)  # fmt: skip


def ends(cluster: ps.Cluster, strategy: ps.AllReduce, folded: bool) -> tuple[np.ndarray, int]:
    """(iterations,) when the last node ended each of two iterations, and the number of tasks."""
    plan = Plan(small_workload(), cluster, 4, folded=folded, rounds=True)
    strategy.record(plan, 2)
    program, _ = plan.lower()
    times = run(program, "fast", check=program.num_tasks < 2000)
    return np.array([times.end[row].max() for row in plan.iteration_ends]), program.num_tasks


@pytest.mark.parametrize("node", ["pcie", "pcie-tree", "nvswitch"])
@pytest.mark.parametrize("staging", ["direct", "host"])
@pytest.mark.parametrize(
    ("algorithm", "nodes", "gpus"),
    [("ring", 2, 1), ("ring", 5, 1), ("ring", 4, 4), ("halving-doubling", 8, 1), ("halving-doubling", 4, 2), ("two-dimensional", 4, 2),
     ("two-dimensional", 3, 4), ("hierarchical", 4, 1)],
)  # fmt: skip
def test_folded_messages_take_the_times_of_all_messages(algorithm: str, nodes: int, gpus: int, staging: str, node: str) -> None:
    cluster = replace(FABRIC, nodes=nodes, gpus_per_node=gpus, node=node)
    strategy = ps.AllReduce(algorithm=algorithm, staging=staging)
    folded, few = ends(cluster, strategy, folded=True)
    whole, many = ends(cluster, strategy, folded=False)
    assert folded == pytest.approx(whole, rel=1e-9)
    assert few < many


@pytest.mark.parametrize(("algorithm", "nodes"), [("tree", 4), ("double-tree", 5), ("halving-doubling", 6)])
def test_a_schedule_that_looks_different_from_some_nodes_is_not_folded(algorithm: str, nodes: int) -> None:
    with pytest.raises(UnfoldableError):
        ends(replace(FABRIC, nodes=nodes, gpus_per_node=1), ps.AllReduce(algorithm=algorithm), folded=True)
    ran = ps.simulate(small_workload(), replace(FABRIC, nodes=nodes, gpus_per_node=1), ps.AllReduce(algorithm=algorithm), detail="rounds")
    assert len(ran.trace.fabric.classes) == nodes and "cannot be folded" in str(ran.folding)


@pytest.mark.parametrize(
    "changes",
    [{"groups": (ps.NodeGroup(1, slowdown=1.5),)}, {"jitter": 0.1}, {"network": replace(FABRIC.network or ps.Network(1e6), oversubscription=2.0, nodes_per_leaf=2)}],
)  # fmt: skip
def test_nodes_that_differ_are_not_folded(changes: dict[str, object]) -> None:
    cluster = replace(FABRIC, **changes)  # type: ignore[arg-type]
    if "network" in changes:  # leaves: a ring crosses them at their last node only
        ran = ps.simulate(small_workload(), cluster, "all-reduce", detail="rounds")
        assert len(ran.trace.fabric.workers) == 4
        return
    with pytest.raises(UnfoldableError):
        Plan(small_workload(), cluster, 4, folded=True, rounds=True)


def test_a_folded_run_says_nothing_of_folding_and_a_jittered_one_by_how_much_it_grew() -> None:
    assert ps.simulate(small_workload(), FABRIC, "all-reduce", detail="rounds").folding is None
    text = ps.simulate(small_workload(), replace(FABRIC, jitter=0.1), "poseidon").folding
    assert text is not None and text.startswith("4 nodes differ: 4 classes") and "if they were alike" in text
