"""Sync EASGD: all workers exchange weights with the centre together, along a tree.

Paper: You, Buluc, Demmel, SC17 (arXiv 1708.02983). Five steps: 1 gradients, 2 the master broadcasts the centre, 3 tree sum of all
weights, 4 workers update, 5 the master updates; 1 overlaps 2, 4 overlaps 5. A chip cut into NUMA parts is a cluster of the parts.
Simplified: the elastic update is four passes over the weights in GPU memory, the centre's three (one sum on a host); what the
parts of a chip gain in convergence is not modelled.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from poseidon_sim.collective import Broadcast, Collective, Reduce
from poseidon_sim.plan.plan import Plan
from poseidon_sim.plan.record import Handles
from poseidon_sim.plan.service import copy_of_one
from poseidon_sim.strategy.base import Job, Strategy, backward_pass, require, require_choices
from poseidon_sim.strategy.easgd import elastic_update, messages


@dataclass(frozen=True)
class SyncEasgd(Strategy):
    """Broadcast the centre, sum the weights along a tree.

    Parameters
    ----------
    version : 1 (the centre is on a host: a copy each way at the tree's root), 2 (it is on a GPU) or 3 (the sum is of the old
        weights, so that broadcast and sum both run beside compute).
    message : 'single' (all layers packed into one) or 'per-layer'.
    exchange_steps : steps between two exchanges.
    """

    name: ClassVar[str] = "sync-easgd"
    summary: ClassVar[str] = "workers exchange weights with a centre all together, along a tree"
    source: ClassVar[str] = "You, Buluc, Demmel, SC17, arXiv 1708.02983"

    version: int = 3
    message: str = "single"
    exchange_steps: int = 1

    @property
    def iteration_staleness(self) -> float:
        return 0.0 if self.version < 3 and self.exchange_steps == 1 else math.inf

    def num_iterations(self) -> tuple[int, int]:
        every = self.exchange_steps
        return super().num_iterations() if self.iteration_staleness == 0 else (4 * every, 4 * every)

    def validate(self, job: Job) -> Iterator[str]:
        require(self.version in (1, 2, 3), f"version={self.version} must be 1, 2 or 3")
        require_choices(self, message=("single", "per-layer"))
        require(self.exchange_steps >= 1, f"exchange_steps={self.exchange_steps} must be at least 1")
        if job.cluster.num_gpus == 1:
            yield "one GPU: sync-easgd has one worker"

    def iteration(self, plan: Plan, start: Handles) -> Handles:
        _, computed = backward_pass(plan, start, overlap=False)
        if (plan.iteration + 1) % self.exchange_steps:
            return computed
        sizes, hosted = messages(plan, self.message), self.version == 1
        fresh = copy_of_one(plan, "copy_in", sum(sizes), start) if hosted else start
        spread = self._along_tree(plan, Broadcast(), sizes, fresh, "broadcast")
        both = plan.all_of(computed, spread)
        summed = self._along_tree(plan, Reduce(), sizes, spread if self.version == 3 else both, "tree sum")
        ready = plan.all_of(both, summed)
        return plan.all_of(elastic_update(plan, ready), self._update_centre(plan, sum(sizes), ready, hosted))

    def _along_tree(self, plan: Plan, tree: Collective, sizes: Sequence[float], ready: Handles, label: str) -> Handles:
        for size in sizes:
            ready = tree.record(plan, size, ready, label=label)
        return ready

    def _update_centre(self, plan: Plan, weights: float, ready: Handles, hosted: bool) -> Handles:
        if hosted:
            return plan.host_sum(plan.workers, weights, after=copy_of_one(plan, "copy_out", weights, ready))
        seconds = plan.gemm_seconds(0.0, 3.0 * weights)
        return plan.on_gpu("update", seconds, after=ready, label="update centre", stream="centre")

    def network_bytes(self, job: Job) -> float:
        """W down the tree and W up it, over nodes - 1 edges."""
        return 2.0 * (job.cluster.nodes - 1) * job.workload.gradient_bytes / self.exchange_steps
