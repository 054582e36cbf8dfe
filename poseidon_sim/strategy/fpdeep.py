"""FPDeep: layers and parts of layers along a chain of devices, pipelined row by row; no sum of gradients, whatever the batch.

Paper: Geng et al., FPDeep, arXiv 1901.01007 (FCCM'18, FPL'18): every device gets an equal share of the operations, features flow
one way and errors the other, weight gradients stay where they are made; the chain's link is the limit.
Simplified: rows are so fine that everything runs at the same time; filling the pipeline once costs nothing; a cut inside a layer
passes on what the layer reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np

from poseidon_sim.cluster import Layout
from poseidon_sim.plan.plan import Plan
from poseidon_sim.plan.record import Handles
from poseidon_sim.plan.stages import work_of
from poseidon_sim.strategy.base import Job, Strategy, require
from poseidon_sim.strategy.feasible import whole_batch
from poseidon_sim.workload.layer import ELEMENT_BYTES, Workload


@dataclass(frozen=True)
class FpDeep(Strategy):
    """Deal the operations out evenly along the chain of nodes; one device a node."""

    name: ClassVar[str] = "fpdeep"
    summary: ClassVar[str] = "fine-grained pipeline along a chain of devices: equal shares of the operations, no gradient exchange"
    source: ClassVar[str] = "Geng et al., FPDeep, arXiv 1901.01007"
    model_parallel: ClassVar[bool] = True
    every_micro_batch: ClassVar[bool] = True

    def layout(self, job: Job) -> Layout:
        """Every node has a place in the chain."""
        return Layout(roles={node: node for node in range(job.cluster.nodes)})

    def passes(self, job: Job) -> tuple[int, int]:
        return whole_batch(job), 1

    def memory_shares(self, job: Job) -> dict[str, float]:
        """Weights lie spread over the chain; features of a few rows only are kept."""
        part = 1.0 / job.cluster.num_gpus
        return {"parameters": part, "gradients": part, "optimizer": part, "activations": part}

    def validate(self, job: Job) -> Iterator[str]:
        require(job.cluster.gpus_per_node == 1, f"gpus_per_node={job.cluster.gpus_per_node} must be 1: a chain of nodes")
        return iter(())

    def iteration(self, plan: Plan, start: Handles) -> Handles:
        nodes, batch = plan.num_nodes, plan.batch_size
        seconds = sum(plan.forward_time(layer) + plan.backward_time(layer) for layer in plan.layers) / plan.slowdown
        computed = plan.on_gpu("backward", seconds / nodes, after=start, label="forward and backward of a share")
        order = np.argsort([plan.classes[int(c)].first_node for c in plan.workers])
        crossing = batch * cut_bytes(plan.workload, nodes)
        sizes = np.zeros((nodes, nodes))
        for k, (one, other) in enumerate(pairwise(order)):
            sizes[one, other] = sizes[other, one] = crossing[k]
        sent = plan.send(plan.workers, plan.workers, sizes, after=start, label="features and errors")
        return plan.everyone(plan.all_of(computed, plan.arrived(sent)))

    def network_bytes(self, job: Job) -> float:
        """Features one way and errors the other over every link of the chain."""
        return 2.0 * job.global_batch_size * float(cut_bytes(job.workload, job.cluster.nodes).sum())


def cut_bytes(workload: Workload, devices: int) -> np.ndarray:
    """Return (devices - 1,) bytes per sample that cross each cut one way: what the layer reads in which the cut falls."""
    layers, size = workload.layers, ELEMENT_BYTES[workload.precision]
    ends = np.cumsum([work_of(workload, [i]) for i in range(len(layers))])
    at = ends[-1] * np.arange(1, devices) / devices
    inside = np.minimum(np.searchsorted(ends, at * (1 - 1e-12)), len(layers) - 1)
    return size * np.array([layers[i].input_elements for i in inside], dtype=np.float64)
