"""Poplar: ZeRO on GPUs that differ; every kind of GPU gets the micro-batches and the number of them that leave it idle least.

Paper: Zhang et al., Poplar, AAAI'25, arXiv 2408.12596; ZeRO: Rajbhandari et al., SC'20.
Simplified: GPUs of a kind get the same batches; curves are straight between powers of two (the paper: cubic splines); shares of
parameters are equal; collectives are counted by their closed form when the batches are chosen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np

from poseidon_sim.cluster import Cluster, Gpu
from poseidon_sim.collective import AllGather
from poseidon_sim.errors import InfeasibleError
from poseidon_sim.plan.layers import batch_seconds
from poseidon_sim.plan.memory import largest_batch, memory_per_gpu
from poseidon_sim.plan.plan import Plan
from poseidon_sim.plan.record import Handles
from poseidon_sim.plan.uneven import Table, alone, curve, together
from poseidon_sim.strategy.base import Job, Strategy, require, require_choices
from poseidon_sim.strategy.fsdp import Fsdp

SHARD = ("none", "optimizer", "gradients", "full")


class Kind(NamedTuple):
    """GPUs that are alike."""

    gpu: Gpu | None
    slowdown: float


@dataclass(frozen=True)
class Poplar(Strategy):
    """Deal the global batch out by measured speed.

    Parameters
    ----------
    zero : 0 (plain data parallelism), 1, 2 or 3: what ZeRO shards. Below 2 GPUs wait for each other once a step, else in every
        micro-batch.
    split : 'measured' (time against batch), 'peak' (peak rates: Whale) or 'equal' (DeepSpeed).
    most : largest micro-batch of a GPU; 0 for what its memory holds.
    """

    name: ClassVar[str] = "poplar"
    summary: ClassVar[str] = "ZeRO on unequal GPUs: batches by measured speed and memory, so that nobody waits long"
    source: ClassVar[str] = "Zhang et al., AAAI'25"
    every_micro_batch: ClassVar[bool] = True

    zero: int = 0
    split: str = "measured"
    most: int = 0

    @property
    def sharded(self) -> Fsdp:
        """What moves parameters and gradients."""
        return Fsdp(shard=SHARD[self.zero])

    def validate(self, job: Job) -> Iterator[str]:
        require(self.zero in (0, 1, 2, 3), f"zero={self.zero} must be 0, 1, 2 or 3")
        require_choices(self, split=("measured", "peak", "equal"))
        require(job.micro_batch_size is None, "poplar chooses micro-batches itself; drop micro_batch_size (or set most)")
        require(not any(g.batch_size for g in job.cluster.groups), "poplar deals out the batch; drop batch_size from the groups")
        yield from self.sharded.validate(job)
        self.batches(job)

    def memory_shares(self, job: Job) -> dict[str, float]:
        """Those of ZeRO, with the activations of the largest micro-batch on the cluster's usual GPU."""
        mine = [max(b) for kind, b in self.batches(job).items() if kind.gpu == job.cluster.gpu]
        shares = self.sharded.memory_shares(job)
        return {**shares, "activations": shares["activations"] * max(mine, default=0) / job.batch_size}

    def batches(self, job: Job) -> dict[Kind, tuple[int, ...]]:
        """Return the micro-batches of one GPU of every kind, in order."""
        return _batches(self, job)

    def choose(self, job: Job) -> dict[Kind, tuple[int, ...]]:
        """Search for them; raise InfeasibleError where memory is too small."""
        counts = kinds(job.cluster)
        total = int(job.global_batch_size)
        tables = [self.table(job, kind, total) for kind in counts]
        if self.split == "equal":
            shortest = min(len(table) for table in tables)
            tables = [np.max([table[:shortest] for table in tables], axis=0)] * len(tables)
        if min(map(len, tables)) < 2:
            raise InfeasibleError(f"not even one sample of {job.workload.name} fits on a GPU with zero={self.zero}; shard more")
        numbers = [*counts.values()]
        found = alone(total, numbers, tables) if self.zero < 2 else together(total, numbers, tables, self.sync_time(job))
        return {kind: tuple(each) for kind, each in zip(counts, found, strict=True)}

    def table(self, job: Job, kind: Kind, total: int) -> Table:
        """Return the seconds of 0 to as many samples as fit, as this way of splitting believes them to be."""
        memory = memory_per_gpu(job.workload, kind.gpu, 1.0, self.sharded.memory_shares(job))
        most = min(total, largest_batch(memory, 1.0), self.most or total)
        if self.split == "peak" and kind.gpu is not None:
            rate = kind.gpu.flops.get(job.workload.precision, 0.0)
            require(rate > 0, f"split=peak needs the peak rate of {kind.gpu.name} in {job.workload.precision}")
            flops = job.workload.forward_flops + job.workload.backward_flops
            return np.linspace(0.0, most * flops / rate, most + 1)
        usual = int(job.batch_size)
        return curve(lambda b: batch_seconds(job.workload, kind.gpu, b, usual) * kind.slowdown, most)

    def sync_time(self, job: Job) -> float:
        """Return the seconds of a micro-batch's collectives (stages 2 and 3), were nothing beside them."""
        cluster, network, halves = job.cluster, job.cluster.network, {2: 1, 3: 3}.get(self.zero, 0)
        if network is None:
            return 0.0
        peer = cluster.peer_bandwidth(cluster.gpu) or float("inf")
        return halves * AllGather().time(
            job.workload.gradient_bytes, cluster.num_gpus, network.goodput, network.latency, cluster.gpus_per_node, peer
        )

    def iteration(self, plan: Plan, start: Handles) -> Handles:
        of = self.batches(Job(plan.workload, plan.cluster, plan.batch_size))
        classes = [plan.classes[int(c)] for c in plan.workers]
        rows = [of[Kind(c.gpu, c.slowdown)] for c in classes]
        units, ready, synced = self.sharded.units(plan.layers), start, [start]
        if self.zero < 2:
            usual, before = plan.batch_size, zip(classes, rows, strict=True)
            earlier = [sum(batch_seconds(plan.workload, c.gpu, b, usual) for b in row[:-1]) for c, row in before]
            ready = plan.on_gpu("forward", np.array(earlier), ready, label="earlier micro-batches")
            rows = [row[-1:] for row in rows]
        for step in zip(*rows, strict=True):
            with plan.at_batches(step):
                ready, synced = self.sharded.one_pass(plan, units, ready, last=True)
        return self.sharded.update(plan, units, plan.all_of(ready, *synced))

    def network_bytes(self, job: Job) -> float:
        """ZeRO's, with as many micro-batches as wait for each other."""
        steps = len(next(iter(self.batches(job).values()))) if self.zero > 1 else 1
        return self.sharded.network_bytes(Job(job.workload, job.cluster, steps, 1))


def kinds(cluster: Cluster) -> dict[Kind, int]:
    """Return how many GPUs there are of each kind."""
    found: dict[Kind, int] = {}
    for group in cluster.runs():
        kind = Kind(group.gpu, group.slowdown)
        found[kind] = found.get(kind, 0) + group.nodes * cluster.gpus_per_node
    return found


@lru_cache(maxsize=64)
def _batches(strategy: Poplar, job: Job) -> dict[Kind, tuple[int, ...]]:
    return strategy.choose(job)
