"""Horovod: all-reduce of whatever is ready at each tick of a background thread, fused up to a threshold.

Paper: Sergeev and Del Balso 2018 (arXiv 1802.05799), section 4; cycle time and fusion threshold as in its documentation.
Simplified: ticks are counted from the start of the backward pass (the real thread's clock runs freely); a tensor counts as
ready when the slowest worker has it; negotiating costs nothing but the wait for the tick. The technique needs rates: what is
fused depends on when gradients are ready, so `plan.backward_time` is read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from poseidon_sim.plan.plan import Plan, PlanLayer
from poseidon_sim.plan.record import Handles
from poseidon_sim.strategy.all_reduce import AllReduce, through_bucket
from poseidon_sim.strategy.base import Job, Strategy, backward_pass, require


@dataclass(frozen=True)
class Horovod(Strategy):
    """Fuse what became ready since the last tick; one all-reduce per fused buffer.

    Parameters
    ----------
    cycle_time : seconds between ticks (HOROVOD_CYCLE_TIME; 0: every tensor is picked up at once).
    fusion_size : bytes a fused buffer may hold (HOROVOD_FUSION_THRESHOLD; 0: no fusion); a larger tensor goes alone.
    algorithm, staging : as in `AllReduce`.
    """

    name: ClassVar[str] = "horovod"
    summary: ClassVar[str] = "all-reduce of what is ready at each tick, fused up to a threshold"
    source: ClassVar[str] = "Sergeev & Del Balso 2018, arXiv 1802.05799"

    cycle_time: float = 1e-3
    fusion_size: float = 64 * 2.0**20
    algorithm: str = "ring"
    staging: str = "direct"

    @property
    def _all_reduce(self) -> AllReduce:
        return AllReduce(algorithm=self.algorithm, staging=self.staging)

    def validate(self, job: Job) -> Iterator[str]:
        require(self.cycle_time >= 0, f"cycle_time={self.cycle_time} must be 0 or more seconds")
        require(self.fusion_size >= 0, f"fusion_size={self.fusion_size} must be 0 (no fusion) or more bytes")
        yield from self._all_reduce.validate(job)

    def iteration(self, plan: Plan, start: Handles) -> Handles:
        gradients, ready = backward_pass(plan, start, overlap=True)
        if plan.num_gpus == 1:
            return ready
        reduce = partial(self._all_reduce.reduce, label="all-reduce buffer")
        done = [
            through_bucket(reduce, plan, sizes, heard, layer)
            for heard, tensors in self._ticks(plan, gradients)
            for layer, sizes in self._fused(tensors)
        ]
        return plan.all_of(ready, *done)

    def _ticks(
        self, plan: Plan, gradients: list[tuple[PlanLayer, Handles]]
    ) -> Iterator[tuple[Handles, list[tuple[PlanLayer, float]]]]:
        """Yield, tick by tick, when it is heard (a handle) and the tensors (layer, bytes) that became ready before it."""
        elapsed = np.zeros(len(plan.workers))
        groups: dict[float, tuple[float, Handles, list[tuple[PlanLayer, float]]]] = {}
        for layer, ready in gradients:
            elapsed = elapsed + plan.backward_time(layer)
            now = float(elapsed.max())
            tick: float = math.ceil(now / self.cycle_time) if self.cycle_time > 0 else layer.index
            earlier = groups[tick][2] if tick in groups else []
            groups[tick] = now, ready, [*earlier, *((layer, size) for size in reversed(layer.tensor_bytes))]
        for tick, (now, ready, tensors) in groups.items():
            wait = tick * self.cycle_time - now
            yield (plan.pause(wait, ready, "wait for the tick") if wait > 0 else ready), tensors

    def _fused(self, tensors: list[tuple[PlanLayer, float]]) -> Iterator[tuple[PlanLayer, list[float]]]:
        """Yield the messages (last layer, bytes of its tensors) of one tick: in order, what the threshold holds, at least one."""
        first, filled = 0, 0.0
        for end, (_, size) in enumerate(tensors):
            if end > first and filled + size > self.fusion_size:
                yield tensors[end - 1][0], [each for _, each in tensors[first:end]]
                first, filled = end, 0.0
            filled += size
        yield tensors[-1][0], [each for _, each in tensors[first:]]

    def network_bytes(self, job: Job) -> float:
        """What the algorithm's schedule sends between nodes for the whole model."""
        return self._all_reduce.network_bytes(job)
