"""Sharing only what a change disturbs gives the rates of sharing everything: jobs of nodes that all differ, both engines."""

from __future__ import annotations

import numpy as np
import pytest

import poseidon_sim as ps
from poseidon_sim.engine import run
from poseidon_sim.simulation import record
from poseidon_sim.strategy.base import Job

NETWORKS = {
    "flat": {"bandwidth": "10 Gbit/s", "latency": "20 us"},
    "leaves and incast": {"bandwidth": "40 Gbit/s", "oversubscription": 2, "nodes_per_leaf": 2, "incast": [[1, 1], [4, 0.7]]},
}


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("nodes", [3, 7, 9])
@pytest.mark.parametrize("strategy", ["poseidon", "parameter-server", "adam"])
def test_nodes_that_all_differ_take_the_same_times_on_both_engines(strategy: str, nodes: int, network: str) -> None:
    cluster = {"nodes": nodes, "gpu": "titan-x-maxwell", "jitter": 0.1, "seed": nodes, "network": NETWORKS[network]}
    job = ps.load_scenario({"model": "alexnet", "cluster": {**cluster, "host": {"channel_bandwidth": "6 GB/s"}}, "strategy": strategy})
    program, _ = record(Job(job.workload, job.cluster, job.batch_size), job.strategy, num_iterations=1).lower()
    fast, reference = (run(program, engine, check=engine == "fast") for engine in ("fast", "reference"))
    assert np.abs(fast.end / np.where(reference.end > 0, reference.end, 1.0) - (reference.end > 0)).max() < 1e-9


def test_levels_that_differ_by_rounding_alone_spread_nothing() -> None:
    """24 senders to 24 receivers, links full: 23 shares of a link do not sum to it exactly."""
    job = ps.load_scenario({
        "model": "alexnet", "strategy": "parameter-server",
        "cluster": {"nodes": 24, "gpu": "titan-x-maxwell", "jitter": 0.05, "network": {"bandwidth": "1 Gbit/s"}},
    })  # fmt: skip
    program, _ = record(Job(job.workload, job.cluster, job.batch_size), job.strategy, num_iterations=1).lower()
    assert run(program, "fast", check=True).makespan > 0
