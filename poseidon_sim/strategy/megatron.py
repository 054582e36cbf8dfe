"""Megatron: tensor, pipeline and data parallelism together, with interleaving, recomputation and a sharded optimizer.

Paper: Shoeybi et al., arXiv 1909.08053 (tensor); Narayanan et al., SC'21 (pipeline, interleaving, the three together); Korthikanti
et al., arXiv 2205.05198 (sequence parallelism, recomputation); Huang et al., NeurIPS'19 (GPipe); ZeRO-1, SC'20.
Simplified: a pass's all-reduces among tensor-parallel GPUs, and all-to-alls among experts, follow its compute as one; experts are
evenly used; context parallelism's exchange of keys and values is hidden; replicas of a stage are rings that leave every node once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from poseidon_sim.cluster import Cluster, Layout
from poseidon_sim.errors import InputError
from poseidon_sim.plan.pipeline import Placement, record_passes
from poseidon_sim.plan.plan import Plan
from poseidon_sim.plan.record import Handles
from poseidon_sim.plan.replicas import sum_copies, sum_gradients, traffic, update_parameters
from poseidon_sim.plan.schedule import SCHEDULES, bubble_words, pipeline_schedule
from poseidon_sim.plan.stages import Split, stages
from poseidon_sim.strategy.base import Job, Strategy, require, require_choices
from poseidon_sim.workload.activations import recomputed_share
from poseidon_sim.workload.layer import ELEMENT_BYTES


@dataclass(frozen=True)
class Megatron(Strategy):
    """Split layers over `tensor` GPUs, runs of layers over `pipeline` devices, samples over the rest.

    Parameters
    ----------
    tensor, pipeline, context : GPUs that share a layer, devices of a pipeline, GPUs that share a sequence.
    schedule : '1f1b', 'gpipe' or 'message-driven'. `interleave` : runs of layers on each device (1f1b only).
    recompute : 'none', 'selective' (attention) or 'full' (whole blocks) forward again before backward.
    sequence_parallel : norms and residual sums are dealt out over the tensor-parallel GPUs too.
    zero : 0, or 1 (every replica updates its part of the parameters). `experts` : replicas with different experts.
    overlap : gradients are summed beside the last backward pass. `blocking` : a device waits until its message is through.
    """

    name: ClassVar[str] = "megatron"
    summary: ClassVar[str] = "tensor, pipeline and data parallelism: GPipe, 1F1B, interleaving, recomputation, sharded optimizer"
    source: ClassVar[str] = "Narayanan et al., SC'21; Shoeybi et al. 2019; Korthikanti et al. 2022"
    model_parallel: ClassVar[bool] = True
    every_micro_batch: ClassVar[bool] = True

    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    schedule: str = "1f1b"
    interleave: int = 1
    recompute: Literal["none", "selective", "full"] = "none"
    sequence_parallel: bool = False
    zero: int = 0
    experts: int = 1
    overlap: bool = False
    blocking: bool = True

    @cached_property
    def split(self) -> Split:
        """How the model is cut."""
        return Split(
            self.pipeline * self.interleave, self.tensor, self.context, self.sequence_parallel, self.recompute, self.experts
        )  # fmt: skip

    def placement(self, cluster: Cluster) -> Placement:
        """Return where the pipeline's devices stand; raise InputError where the GPUs cannot be dealt out so."""
        per_replica, gpus, node = self.tensor * self.pipeline * self.context, cluster.num_gpus, cluster.gpus_per_node
        for name in ("tensor", "pipeline", "context", "interleave", "experts"):
            require(getattr(self, name) >= 1, f"{name}={getattr(self, name)} must be at least 1")
        require(
            gpus % per_replica == 0,
            f"tensor={self.tensor} x pipeline={self.pipeline} x context={self.context} = {per_replica} does not divide {gpus} GPUs",
        )
        device = gpus // self.pipeline
        fits = device % node == 0 or node % device == 0
        require(
            fits, f"pipeline={self.pipeline} leaves {device} GPUs per stage, neither a part nor a multiple of gpus_per_node={node}"
        )
        inside = node % self.tensor == 0 or self.tensor % node == 0
        require(inside, f"tensor={self.tensor} is neither a part nor a multiple of gpus_per_node={node}")
        place = Placement(self.pipeline, device, self.tensor, node, self.experts)
        among = place.replicas % self.experts == 0 and (
            place.replicas_inside % self.experts == 0 or self.experts % place.replicas_inside == 0
        )
        require(among, f"experts={self.experts} does not divide {place.replicas} replicas ({place.replicas_inside} in a node)")
        return place

    def layout(self, job: Job) -> Layout:
        return self.placement(job.cluster).layout(job.cluster)

    def passes(self, job: Job) -> tuple[int, int]:
        replicas = job.cluster.num_gpus // (self.tensor * self.pipeline * self.context)
        batch = job.global_batch_size / max(1, replicas)
        micro = job.micro_batch_size or (1 if self.pipeline > 1 else int(batch))
        if micro < 1 or batch % micro:
            raise InputError(
                f"{job.global_batch_size:g} samples over {replicas} replicas are {batch:g} each, no multiple of "
                f"micro_batch_size={micro}; change global_batch_size or micro_batch_size"
            )
        return micro, int(batch) // micro

    def validate(self, job: Job) -> Iterator[str]:
        require_choices(self, schedule=SCHEDULES, recompute=("none", "selective", "full"))
        require(self.zero in (0, 1), f"zero={self.zero} must be 0 or 1; for more sharding use strategy fsdp")
        require(self.interleave == 1 or self.schedule == "1f1b", f"interleave={self.interleave} needs schedule: 1f1b")
        self.placement(job.cluster)
        dealt = self.experts == 1 or any(layer.experts > 1 for layer in job.workload.layers)
        require(dealt, f"experts={self.experts}, but {job.workload.name} has no layers of experts; drop it")
        if self.sequence_parallel and self.tensor == 1:
            yield "sequence_parallel has no effect without tensor above 1"
        _, count = self.passes(job)
        rounds = self.interleave == 1 or count % self.pipeline == 0
        require(rounds, f"interleave={self.interleave} needs micro-batches in multiples of pipeline={self.pipeline}, not {count}")
        yield from bubble_words(self.pipeline, count)

    def memory_shares(self, job: Job) -> dict[str, float]:
        """Of the first stage, which holds most: the micro-batches in flight and its part of the layers."""
        count, place, v, p = self.passes(job)[1], self.placement(job.cluster), self.interleave, self.pipeline
        made = stages(job.workload.with_changes(single_gpu_throughput=None), job.cluster.gpu, 1.0, self.split)
        dense, experts = made.parameters / max(1, job.workload.parameters), made.expert_parameters / max(1, job.workload.parameters)
        held = max((dense + experts)[d::p].sum() for d in range(p))
        mine = dense / place.replicas + experts / place.of_experts.replicas if self.zero else dense + experts
        flying = count if self.schedule == "gpipe" else min(count, p + (p - 1) / v * (v > 1))
        split = self.tensor if self.sequence_parallel else 1.0 / (10 / 34 + 24 / 34 / self.tensor)  # Korthikanti et al., table 2
        kept = flying / p / self.context / split * recomputed_share(job.workload, self.recompute)
        most = max(mine[d::p].sum() for d in range(p))
        return {"parameters": held, "gradients": held, "optimizer": most, "activations": kept}

    def iteration(self, plan: Plan, start: Handles) -> Handles:
        place = self.placement(plan.cluster)
        micro, lines = plan.batch_size // plan.num_passes, place.lines(plan)
        of = [stages(plan.workload, plan.classes[int(c)].gpu, micro, self.split) for c in plan.workers]
        pieces = of[0].backward.shape[1] if self.overlap else 1
        order = pipeline_schedule(self.schedule, self.pipeline, plan.num_passes, self.interleave, pieces)
        done = [record_passes(plan, place, [of[w] for w in line], line, order, start, self.blocking) for line in lines]
        summed = sum_gradients(plan, place, of, lines, order, np.stack(done), sharded=self.zero > 0, by_piece=self.overlap)
        return update_parameters(plan, place, of, lines, sum_copies(plan, place, of, lines, summed), sharded=self.zero > 0)

    def network_bytes(self, job: Job) -> float:
        """What crosses between nodes: `traffic`, formula by formula."""
        micro, count = self.passes(job)
        size = ELEMENT_BYTES[job.workload.precision] if self.zero else 0
        return traffic(self.placement(job.cluster), stages(job.workload, job.cluster.gpu, micro, self.split), count, size)
