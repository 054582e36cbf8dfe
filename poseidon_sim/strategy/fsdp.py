"""Fully sharded data parallelism: every GPU keeps 1/P of parameters, gradients and optimizer state and gathers what it needs.

Paper: Rajbhandari et al., ZeRO, SC'20 (stages 1 to 3); Zhao et al., PyTorch FSDP, VLDB'23 (units; at most two are whole at a time).
Simplified: collectives are rings over all GPUs, one at a time; parameters are gathered in the precision of compute.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

import numpy as np

from poseidon_sim.collective import AllGather, ReduceScatter, collective_algorithm
from poseidon_sim.plan.layers import plan_layers
from poseidon_sim.plan.plan import Plan, PlanLayer
from poseidon_sim.plan.record import Handles
from poseidon_sim.plan.replicas import update_seconds
from poseidon_sim.strategy.all_reduce import fill_buckets
from poseidon_sim.strategy.base import Job, Strategy, require, require_choices
from poseidon_sim.units import parse_size
from poseidon_sim.workload.activations import recomputed_share
from poseidon_sim.workload.layer import ELEMENT_BYTES

Unit = list[PlanLayer]


@dataclass(frozen=True)
class Fsdp(Strategy):
    """Shard what data parallelism repeats.

    Parameters
    ----------
    shard : 'full' (ZeRO-3), 'gradients' (ZeRO-2), 'optimizer' (ZeRO-1) or 'none' (plain data parallelism).
    unit : what is gathered and reduced at once: 'block' (repeated blocks, else layers), 'all' or a size such as '100 MB'.
    reshard : drop gathered parameters after forward and gather them again for backward (shard: full).
    prefetch : gather the next unit while this one computes. `recompute` : 'none' or 'full' (blocks forward again in backward).
    """

    name: ClassVar[str] = "fsdp"
    summary: ClassVar[str] = "parameters, gradients and optimizer state sharded over all GPUs (ZeRO stages 1 to 3)"
    source: ClassVar[str] = "Rajbhandari et al., SC'20; Zhao et al., VLDB'23"
    every_micro_batch: ClassVar[bool] = True

    shard: str = "full"
    unit: str = "block"
    reshard: bool = True
    prefetch: bool = True
    recompute: str = "none"

    def validate(self, job: Job) -> Iterator[str]:
        require_choices(self, shard=("full", "gradients", "optimizer", "none"), recompute=("none", "full"))
        if self.unit not in ("block", "all"):
            sized = self.unit[:1].isdigit() and parse_size(self.unit, "unit") > 0
            require(sized, f"unit={self.unit!r} must be block, all or a size")
        if job.cluster.num_gpus == 1:
            yield "one GPU: nothing to shard"

    def memory_shares(self, job: Job) -> dict[str, float]:
        """1/P of what is sharded; of the parameters two whole units more, or all where they stay gathered till backward."""
        part = 1.0 / job.cluster.num_gpus
        sharded = {"full": 3, "gradients": 2, "optimizer": 1, "none": 0}[self.shard]
        units = [sum(x.gradient_bytes for x in unit) for unit in self.units(plan_layers(job.workload))]
        whole = min(1.0, part + 2 * max(units) / sum(units))
        return {
            "parameters": whole if sharded == 3 and self.reshard else 1.0, "gradients": whole if sharded >= 2 else 1.0,
            "optimizer": part if sharded else 1.0, "activations": recomputed_share(job.workload, self.recompute),
        }  # fmt: skip

    def units(self, layers: tuple[PlanLayer, ...]) -> list[Unit]:
        """Return the layers by unit, in forward order."""
        if self.unit == "block":
            named = [(x.layer.block or x.name, x) for x in layers]
            return [[x for _, x in each] for _, each in groupby(named, lambda pair: pair[0])]
        size = float("inf") if self.unit == "all" else parse_size(self.unit, "unit")
        counts, rest = fill_buckets([x.gradient_bytes for x in layers], size), iter(layers)
        return [[next(rest) for _ in range(count)] for count in counts]

    def iteration(self, plan: Plan, start: Handles) -> Handles:
        units, ready = self.units(plan.layers), start
        synced: list[Handles] = []
        for micro in range(plan.num_passes):
            ready, synced = self.one_pass(plan, units, ready, last=micro == plan.num_passes - 1)
        return self.update(plan, units, plan.all_of(ready, *synced))

    def one_pass(self, plan: Plan, units: list[Unit], ready: Handles, last: bool) -> tuple[Handles, list[Handles]]:
        """Record one micro-batch; return the end of backward and of every reduction."""
        ended = [ready, ready]  # of the unit before the last, and of the last
        backward = [(unit, True) for unit in reversed(units)]
        synced: list[Handles] = []
        for unit, back in [*((unit, False) for unit in units), *backward]:
            begin = ended[-1]
            if self.shard == "full" and (self.reshard or not back):
                begin = plan.all_of(begin, self._gather(plan, unit, ended[-2] if self.prefetch else ended[-1]))
            if back and self.recompute == "full" and unit[0].layer.block:
                begin = self._forward(plan, unit, begin)
            if back:
                for layer in reversed(unit):
                    begin = plan.backward(layer, after=begin)
                if last or self.shard in ("full", "gradients"):
                    synced.append(self._reduce(plan, unit, begin))
            else:
                begin = self._forward(plan, unit, begin)
            ended.append(begin)
        return ended[-1], synced

    @staticmethod
    def _forward(plan: Plan, unit: Unit, ready: Handles) -> Handles:
        for layer in unit:
            ready = plan.forward(ready, layer)
        return ready

    @staticmethod
    def _gather(plan: Plan, unit: Unit, ready: Handles) -> Handles:
        size = ELEMENT_BYTES[plan.workload.precision] / plan.workload.element_bytes
        return AllGather().record(plan, size * _bytes(unit), ready, label="parameters", layer=unit[0])

    def _reduce(self, plan: Plan, unit: Unit, ready: Handles) -> Handles:
        algorithm = collective_algorithm("ring") if self.shard == "none" else ReduceScatter()
        return algorithm.record(plan, _bytes(unit), ready, label="gradients", layer=unit[-1])

    def update(self, plan: Plan, units: list[Unit], ready: Handles) -> Handles:
        """Record the optimizer's step; where parameters are whole between steps, they are gathered after it."""
        part = 1.0 if self.shard == "none" else 1.0 / plan.num_gpus
        seconds = update_seconds(plan, np.full(len(plan.workers), part * plan.workload.parameters))
        ready = plan.on_gpu("update", seconds, ready, label="optimizer")
        if self.shard in ("gradients", "optimizer"):
            ready = plan.all_of(ready, *[self._gather(plan, unit, ready) for unit in units])
        return ready

    def network_bytes(self, job: Job) -> float:
        """(P-1)/P of the model for each gathering and reduction: 3 halves of an all-reduce per pass when all is sharded."""
        (_, passes), cluster, gradients = self.passes(job), job.cluster, job.workload.gradient_bytes
        parameters = gradients * ELEMENT_BYTES[job.workload.precision] / job.workload.element_bytes
        gather, reduce = AllGather().network_bytes(parameters, cluster), ReduceScatter().network_bytes(gradients, cluster)
        if self.shard == "full":
            return passes * ((2 if self.reshard else 1) * gather + reduce)
        if self.shard == "none":
            return collective_algorithm("ring").network_bytes(gradients, cluster)
        return gather + reduce * (passes if self.shard == "gradients" else 1)


def _bytes(unit: Unit) -> float:
    return sum(layer.gradient_bytes for layer in unit)
