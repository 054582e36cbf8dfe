"""AxoNN: message-driven pipelines beside data parallelism, with the optimizer's state in host memory.

Paper: Singh and Bhatele, AxoNN, IPDPS'22, arXiv 2110.13005.
Simplified: a bucket's optimizer state is fetched when the sum of its chunk of gradients is there; the global overflow check
(4 bytes) is a join without a message; the GPU's buffers never hold up a copy; kernels and copies share no memory bandwidth.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import ClassVar

import numpy as np

from poseidon_sim.cluster import Cluster, Layout
from poseidon_sim.plan.pipeline import Placement, StagesSideBySide, group_phase, record_passes
from poseidon_sim.plan.plan import Plan
from poseidon_sim.plan.record import Handles
from poseidon_sim.plan.replicas import record_group, sum_copies, traffic, update_seconds
from poseidon_sim.plan.schedule import pipeline_schedule
from poseidon_sim.plan.stages import Split, stages
from poseidon_sim.strategy.base import Job, Strategy, require
from poseidon_sim.strategy.megatron import Megatron
from poseidon_sim.workload.activations import recomputed_share

#: bytes of a parameter's state that cross between host and GPU, each way: master weight and two moments in 32 bits
STATE_BYTES = 12.0


@dataclass(frozen=True)
class Axonn(Strategy):
    """Run what has arrived; then sum gradients chunk by chunk while earlier chunks are updated bucket by bucket.

    Parameters
    ----------
    pipeline : GPUs of a pipeline (G_inter), neighbours in a node first; the rest is data parallelism (G_data).
    offload : keep the optimizer's state in host memory. `bucket_parameters` : parameters whose state is on the GPU at once.
    chunk : buckets whose gradients are summed in one all-reduce.
    checkpoint : blocks that are recomputed together; 0 keeps all activations.
    """

    name: ClassVar[str] = "axonn"
    summary: ClassVar[str] = "message-driven pipelines and data parallelism, optimizer state in host memory, fetched by bucket"
    source: ClassVar[str] = "Singh and Bhatele, IPDPS'22"
    model_parallel: ClassVar[bool] = True
    every_micro_batch: ClassVar[bool] = True

    pipeline: int = 1
    offload: bool = True
    bucket_parameters: float = 16e6
    chunk: int = 4
    checkpoint: int = 4

    @property
    def split(self) -> Split:
        """How the model is cut."""
        return Split(self.pipeline, recompute="full" if self.checkpoint else "none")

    def placement(self, cluster: Cluster) -> Placement:
        """Return where the pipelines stand; raise InputError where the GPUs cannot be dealt out so."""
        p, node, gpus = self.pipeline, cluster.gpus_per_node, cluster.num_gpus
        require(p >= 1, f"pipeline={p} must be at least 1")
        require(gpus % p == 0, f"pipeline={p} does not divide {gpus} GPUs")
        require(p % node == 0 or node % p == 0, f"pipeline={p} is neither a part nor a multiple of gpus_per_node={node}")
        return (StagesSideBySide if p > 1 else Placement)(p, gpus // p, 1, node)

    def layout(self, job: Job) -> Layout:
        return self.placement(job.cluster).layout(job.cluster)

    def passes(self, job: Job) -> tuple[int, int]:
        return Megatron(pipeline=self.pipeline).passes(job)

    def validate(self, job: Job) -> Iterator[str]:
        self.placement(job.cluster)
        require(self.bucket_parameters > 0, f"bucket_parameters={self.bucket_parameters} must be above 0")
        for name, least in (("chunk", 1), ("checkpoint", 0)):
            require(getattr(self, name) >= least, f"{name}={getattr(self, name)} must be at least {least}")
        if self.offload and not job.cluster.pcie_bandwidth(job.cluster.gpu):
            yield "no PCIe rate given: the optimizer's state moves between host and GPU for nothing"

    def memory_shares(self, job: Job) -> dict[str, float]:
        """Of the stage that holds most; with `offload` the GPU has room for the state of two buckets."""
        whole = max(1, job.workload.parameters)
        made = stages(job.workload.with_changes(single_gpu_throughput=None), job.cluster.gpu, 1.0, self.split).parameters
        held, two = float(made.max()) / whole, 2 * self.bucket_parameters / whole
        flying = min(self.passes(job)[1], self.pipeline) / self.pipeline
        kept = recomputed_share(job.workload, self.split.recompute, max(1, self.checkpoint))
        optimizer = min(held, two) if self.offload else held
        return {"parameters": held, "gradients": held, "optimizer": optimizer, "activations": flying * kept}

    def iteration(self, plan: Plan, start: Handles) -> Handles:
        place, micro = self.placement(plan.cluster), plan.batch_size // plan.num_passes
        lines = place.lines(plan)
        of = [stages(plan.workload, plan.classes[int(c)].gpu, micro, self.split) for c in plan.workers]
        order = pipeline_schedule("message-driven", self.pipeline, plan.num_passes)
        ready, held, gradients = start.copy(), np.zeros(len(start)), np.zeros(len(start))
        done = np.stack([record_passes(plan, place, [of[w] for w in line], line, order, start, False) for line in lines])
        for device in range(self.pipeline):
            last = int(np.flatnonzero((order.device == device) & order.backward)[-1])
            for k, line in enumerate(lines):
                w = line[device]
                ready[w], held[w], gradients[w] = done[k, last], of[w].parameters[device], of[w].gradient_bytes[device].sum()
        return plan.everyone(self._update(plan, place, lines, sum_copies(plan, place, of, lines, ready), held, gradients))

    def _update(
        self, plan: Plan, place: Placement, lines: list[tuple[int, ...]], ready: Handles, held: np.ndarray, gradients: np.ndarray
    ) -> Handles:
        """Sum and update chunk by chunk; return (W,) handles, true when all of a worker's parameters are new."""
        size, per_parameter = self.chunk * self.bucket_parameters, gradients / np.maximum(held, 1.0)
        updated = [ready]
        for chunk in range(max(1, ceil(held.max() / size))):
            mine, summed = np.clip(held - chunk * size, 0.0, size), ready.copy()
            for device in range(self.pipeline):
                workers = sorted({line[device] for line in lines})
                num_bytes = float(mine[workers[0]] * per_parameter[workers[0]])
                if place.replicas > 1 and num_bytes:
                    phase = group_phase(plan, place, workers, place.replicas, num_bytes, 2.0, within=False)
                    summed[workers] = record_group(plan, phase, ready[workers], "gradients", device, int(plan.workers[workers[0]]))
            bucket = self.bucket_parameters if self.offload else size
            for first in np.arange(0.0, mine.max(), bucket):
                updated.append(self._bucket(plan, summed, np.clip(mine - first, 0.0, bucket)))
        return plan.all_of(*updated)

    def _bucket(self, plan: Plan, ready: Handles, parameters: np.ndarray) -> Handles:
        """Update some parameters of every worker: their state comes from the host and returns to it."""
        seconds = update_seconds(plan, parameters) * (parameters > 0)
        if not self.offload:
            return plan.on_gpu("update", seconds, ready, label="optimizer")
        there = plan.copy_to_gpu(STATE_BYTES * parameters, ready)
        return plan.copy_to_host(STATE_BYTES * parameters, plan.on_gpu("update", seconds, there, label="optimizer"))

    def network_bytes(self, job: Job) -> float:
        """What crosses between nodes: activations over cuts, a ring for every stage, copies of a tied tensor."""
        micro, count = self.passes(job)
        return traffic(self.placement(job.cluster), stages(job.workload, job.cluster.gpu, micro, self.split), count, 0.0)
