"""A recording that serves another job gives, to the bit, what recording that job gives."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

import poseidon_sim as ps
from poseidon_sim.laws import small_workload
from poseidon_sim.plan.plan import Plan
from poseidon_sim.plan.recording import Recording, Recordings, shape_of
from poseidon_sim.strategy.base import Job
from poseidon_sim.strategy.registry import strategy_class

STRATEGIES = [
    *(strategy_class(name)() for name in ps.list_strategies()),
    *(ps.AllReduce(algorithm=name, staging=staging) for name in ps.list_collectives() for staging in ("direct", "host")),
    ps.ParameterServer(placement="round-robin", pair_size=5e4),
    ps.ParameterServer(servers=1, staleness=2),
    ps.ParameterServer(pull="next-iteration"),
    ps.SufficientFactorBroadcast(in_turn=True),
]
NETWORK = ps.Network(50e6, latency=2e-5, message_overhead=1e-6, collective_overhead=1e-5)
CLUSTERS = {
    "equal": ps.Cluster(nodes=4, gpus_per_node=2, network=NETWORK, pcie=5e8, host=ps.Host(channel_bandwidth=8e7)),
    "straggler": ps.Cluster(nodes=4, network=NETWORK, pcie=5e8, groups=(ps.NodeGroup(1, slowdown=1.7),)),
    "leaves": ps.Cluster(nodes=5, network=replace(NETWORK, oversubscription=3.0, nodes_per_leaf=2), pcie=5e8),
    "incast": ps.Cluster(nodes=4, network=replace(NETWORK, incast=((1, 1.0), (3, 0.6))), pcie=5e8),
    "input": ps.Cluster(
        nodes=4, gpus_per_node=2, network=NETWORK, pcie=5e8,
        host=ps.Host(input=ps.Input(read_bandwidth=5e7, sample_size=2e4, decode_time=1e-3, copied_size=4e4)),
    ),
    "jitter": ps.Cluster(nodes=4, network=NETWORK, pcie=5e8, jitter=0.1, seed=1),
}  # fmt: skip


def empty(job: Job, strategy: ps.Strategy) -> Plan:
    return Plan(job.workload, job.cluster, job.batch_size, strategy.layout(job))


def changed(job: Job) -> list[Job]:
    """Jobs of the same shape: other rates, another batch, another draw."""
    cluster = job.cluster
    assert cluster.network is not None
    faster = replace(cluster, network=replace(cluster.network, bandwidth=7e7, efficiency=0.8))
    slower = replace(cluster, network=replace(cluster.network, bandwidth=1e6))
    return [
        Job(job.workload, faster, job.batch_size), Job(job.workload, slower, 7), Job(job.workload, cluster, 9),
        Job(job.workload, replace(faster, seed=5), 3), Job(job.workload, replace(cluster, seed=6), job.batch_size),
    ]  # fmt: skip


@pytest.mark.parametrize("cluster", CLUSTERS, ids=str)
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: "-".join(str(x) for x in s.describe().values()))
def test_a_kept_recording_gives_the_program_of_a_new_one(strategy: ps.Strategy, cluster: str) -> None:
    model = small_workload()
    gpu = ps.Gpu("mine", flops={"fp32": 1e10}, memory_bandwidth=1e9)
    modelled = model.with_changes(layers=tuple(
        replace(x, forward_time=None, backward_time=None, forward_flops=1e6, backward_flops=2e6, input_elements=300, output_elements=200)
        for x in model.layers
    ))  # fmt: skip
    job = Job(modelled, replace(CLUSTERS[cluster], gpu=gpu), 4)
    kept = Recordings()

    def program_of(each: Job) -> Any:
        key = (each.workload, shape_of(each.cluster), strategy)
        return kept.get(key, empty(each, strategy), lambda plan: strategy.record(plan, 2))[1]

    program_of(job)
    for other in changed(job):
        bound = program_of(other)
        plan = empty(other, strategy)
        strategy.record(plan, 2)
        fresh = Recording.of(plan).program
        for field in fields(fresh):
            assert np.array_equal(getattr(bound, field.name), getattr(fresh, field.name)), field.name


def test_other_rates_and_draws_share_a_recording_and_a_batch_that_is_read_does_not() -> None:
    calls = []
    kept = Recordings()
    for name, batch, rate, expected in (
        ("all-reduce", 4, 1e6, 1), ("all-reduce", 8, 2e6, 1), ("poseidon", 4, 1e6, 2), ("poseidon", 4, 2e6, 2), ("poseidon", 8, 2e6, 3),
    ):  # fmt: skip
        strategy = strategy_class(name)()
        cluster = ps.Cluster(nodes=4, network=ps.Network(rate), pcie=5e8)
        job = Job(small_workload(), cluster, batch)
        key = (job.workload, shape_of(cluster), strategy)
        kept.get(key, empty(job, strategy), lambda plan, strategy=strategy: (calls.append(1), strategy.record(plan, 1)))  # type: ignore[misc]
        assert len(calls) == expected


def test_recordings_forget_what_was_used_longest_ago() -> None:
    kept = Recordings(most=2)
    calls = []
    for nodes in (2, 3, 4, 3, 2):
        strategy, cluster = ps.AllReduce(), ps.Cluster(nodes=nodes, network=ps.Network(1e6))
        job = Job(small_workload(), cluster, 4)
        kept.get(nodes, empty(job, strategy), lambda plan, nodes=nodes: (calls.append(nodes), ps.AllReduce().record(plan, 1)))  # type: ignore[misc]
    assert calls == [2, 3, 4, 2]
