"""ParDNN: the operators of a model too large for one GPU are placed on several; one batch flows through them.

Paper: Qararyah, Wahib, Dikbayir, Belviranli, Unat, A computational-graph partitioning method for training memory-constrained
DNNs, Parallel Computing 2021: cluster along critical paths, then move operators where memory overflows.
Simplified: an operator's forward and backward pass share a device; memory is counted at the end of forward, when it is largest;
the cut takes all devices for the cluster's GPU and all edges for one kind of link, and only then meets the real ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from poseidon_sim.cluster import Cluster, Layout
from poseidon_sim.plan.compute import layer_times
from poseidon_sim.plan.partition import OperatorGraph, makespan, partition
from poseidon_sim.plan.placed import compute_on, move, one_class_per_gpu, operator_layers, operator_times
from poseidon_sim.plan.plan import Plan
from poseidon_sim.plan.record import Handles
from poseidon_sim.strategy.base import Job, Strategy, require
from poseidon_sim.strategy.feasible import whole_batch
from poseidon_sim.workload.activations import kept_by_layer
from poseidon_sim.workload.graph import readers, sources
from poseidon_sim.workload.layer import ELEMENT_BYTES, Workload

#: share of a GPU's memory that operators may fill; the rest is the framework's (context, workspaces)
FOR_OPERATORS = 0.9


@dataclass(frozen=True)
class ParDnn(Strategy):
    """Place operators on devices so that the critical path stays short and every device's memory suffices.

    Parameters
    ----------
    memory_size : bytes for operators on every device; 90 % of the GPU's memory if not given.
    """

    name: ClassVar[str] = "par-dnn"
    summary: ClassVar[str] = "operators of one model placed on several GPUs along critical paths, within their memory"
    source: ClassVar[str] = "Qararyah et al., ParDNN, Parallel Computing 2021"
    model_parallel: ClassVar[bool] = True
    every_micro_batch: ClassVar[bool] = True

    memory_size: float | None = None

    def layout(self, job: Job) -> Layout:
        return one_class_per_gpu(job.cluster)

    def passes(self, job: Job) -> tuple[int, int]:
        micro = job.micro_batch_size
        require(micro is None, f"micro_batch_size={micro}: par-dnn sends the whole batch through the operators at once; drop it")
        return whole_batch(job), 1

    def validate(self, job: Job) -> Iterator[str]:
        used = len(set(self.placement(job.workload, job.cluster, int(job.global_batch_size))))
        if used < job.cluster.num_gpus:
            yield f"par-dnn uses {used} of {job.cluster.num_gpus} GPUs: more of them would not make the step shorter"

    def placement(self, workload: Workload, cluster: Cluster, batch_size: int) -> tuple[int, ...]:
        """Return the device of every layer; raise InfeasibleError where they do not fit."""
        capacity = cluster.gpu.memory if cluster.gpu is not None else None
        default = FOR_OPERATORS * capacity if capacity else np.inf
        return _placed(workload, cluster, batch_size, default if self.memory_size is None else self.memory_size)

    def memory_shares(self, job: Job) -> dict[str, float]:
        """Of the device that holds most."""
        batch, device = int(job.global_batch_size), np.array(self.placement(job.workload, job.cluster, int(job.global_batch_size)))
        fixed, kept = _memory(job.workload, batch)
        most = np.bincount(device, weights=fixed + kept).argmax() == device
        held, active = float(fixed[most].sum() / fixed.sum()), float(kept[most].sum() / max(1.0, kept.sum()))
        return {"parameters": held, "gradients": held, "optimizer": held, "activations": active}

    def iteration(self, plan: Plan, start: Handles) -> Handles:
        device = self.placement(plan.workload, plan.cluster, plan.batch_size)
        before, times, owners = sources(plan.workload.layers), operator_times(plan), operator_layers(plan)
        num_bytes = _output_bytes(plan.workload, plan.batch_size)
        names = [x.name for x in plan.workload.layers]
        arrived: dict[tuple[int, int], Handles] = {}  # (operator, device) -> its output is there
        for i, needs in enumerate(before):
            d = device[i]
            for j in needs:
                if (j, d) not in arrived:
                    arrived[j, d] = move(plan, device[j], d, num_bytes[j], arrived[j, device[j]], label=f"output of {names[j]}")
            ready = plan.all_of(*(arrived[j, d] for j in needs)) if needs else start[d : d + 1]
            arrived[i, d] = compute_on(plan, d, "forward", times[i, 0, d], ready, layer=owners[i])
        gradient: dict[int, Handles] = {}
        for i, after in reversed(list(enumerate(readers(before)))):
            d, parts = device[i], []
            for other in sorted({device[j] for j in after}):
                there = plan.all_of(*(gradient[j] for j in after if device[j] == other))
                parts.append(move(plan, other, d, num_bytes[i], there, label=f"gradient of {names[i]}"))
            ready = plan.all_of(*parts) if parts else arrived[i, d]
            gradient[i] = compute_on(plan, d, "backward", times[i, 1, d], ready, layer=owners[i])
        return np.repeat(plan.all_of(*gradient.values()), len(plan.workers))

    def network_bytes(self, job: Job) -> float:
        """Every output once to each other device that reads it, and its gradient back, where the two stand in different nodes."""
        batch, per_node = int(job.global_batch_size), job.cluster.gpus_per_node
        device = self.placement(job.workload, job.cluster, batch)
        num_bytes, after = _output_bytes(job.workload, batch), readers(sources(job.workload.layers))
        there = [{device[j] for j in row if device[j] // per_node != device[i] // per_node} for i, row in enumerate(after)]
        return 2.0 * sum(num_bytes[i] * len(row) for i, row in enumerate(there))


def _output_bytes(workload: Workload, batch_size: int) -> list[float]:
    return [batch_size * x.output_elements * ELEMENT_BYTES[workload.precision] for x in workload.layers]


def _memory(workload: Workload, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (L,) bytes of parameters with gradients and optimizer state, and of activations kept for backward."""
    size = workload.element_bytes
    fixed = np.array([x.parameters * (2 * size + workload.optimizer_bytes) for x in workload.layers], dtype=np.float64)
    return fixed, batch_size * size * np.array(kept_by_layer(workload))


@lru_cache(maxsize=64)
def _placed(workload: Workload, cluster: Cluster, batch_size: int, memory: float) -> tuple[int, ...]:
    """Cut the forward graph, each operator and edge as long as both passes; then judge it on the graph of both passes."""
    times, num = layer_times(workload, cluster.gpu, batch_size), len(workload.layers)
    edges = [(j, i) for i, needs in enumerate(sources(workload.layers)) for j in needs]
    source, target = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    network, output = cluster.network, np.array(_output_bytes(workload, batch_size))
    wait, rate = cluster.peer_latency, cluster.peer_bandwidth(cluster.gpu) or np.inf
    if cluster.nodes > 1 and network is not None:
        wait, rate = network.latency + network.message_overhead, network.goodput
    sent = np.where(output > 0, wait + output / rate, 0.0)[source]
    held = sum(_memory(workload, batch_size))
    device = partition(OperatorGraph(times.sum(axis=1), np.asarray(held), source, target, 2 * sent), cluster.num_gpus, memory)
    both = OperatorGraph(
        np.concatenate([times[:, 0], times[::-1, 1]]), np.zeros(2 * num),
        np.concatenate([source, 2 * num - 1 - target, np.arange(num)]),
        np.concatenate([target, 2 * num - 1 - source, 2 * num - 1 - np.arange(num)]),
        np.concatenate([sent, sent, np.zeros(num)]),
    )  # fmt: skip
    alone = makespan(both, np.concatenate([device, device[::-1]])) >= times.sum() and np.sum(held) <= memory
    return tuple([0] * num if alone else device.tolist())
