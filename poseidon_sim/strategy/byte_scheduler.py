"""Priority scheduling: gradients cut into partitions, sent in the order in which the next forward pass needs them.

Paper: P3, Jayarajan et al., MLSys'19; ByteScheduler, Peng et al., SOSP'19. Backward makes the last layer's gradient first, but
the next forward pass needs the first layer's first. So a layer's forward waits for that layer alone, and where transfers queue,
those of front layers overtake; partitions bound how long a large tensor in service can hold them up.
Simplified: the credit (partitions in flight) is a number of all-reduces at once; under the parameter server every connection has
one in flight. Partitions of one layer are equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from poseidon_sim.plan.plan import Plan, PlanLayer
from poseidon_sim.plan.record import Handles
from poseidon_sim.strategy.all_reduce import AllReduce
from poseidon_sim.strategy.base import Job, Strategy, require, require_choices
from poseidon_sim.strategy.parameter_server import ParameterServer


@dataclass(frozen=True)
class ByteScheduler(Strategy):
    """Partition gradients and serve front layers first.

    Parameters
    ----------
    over : 'all-reduce' or 'parameter-server'.
    partition_size : bytes of a partition (4 MB is the usual order; P3 cuts into 50,000 elements).
    credit : all-reduces in flight at a time.
    prioritised : serve front layers first; else in the order in which gradients become ready.
    algorithm, staging : of the all-reduce, as in `AllReduce`.
    """

    name: ClassVar[str] = "byte-scheduler"
    summary: ClassVar[str] = "partitioned gradients, front layers first; the next forward waits layer by layer"
    source: ClassVar[str] = "Jayarajan et al. MLSys'19 (P3); Peng et al. SOSP'19 (ByteScheduler)"

    over: str = "all-reduce"
    partition_size: float = 4e6
    credit: int = 1
    prioritised: bool = True
    algorithm: str = "ring"
    staging: str = "direct"

    @property
    def _inner(self) -> AllReduce | ParameterServer:
        return AllReduce(algorithm=self.algorithm, staging=self.staging) if self.over == "all-reduce" else ParameterServer()

    def validate(self, job: Job) -> Iterator[str]:
        require_choices(self, over=("all-reduce", "parameter-server"))
        require(self.partition_size > 0, f"partition_size={self.partition_size} must be above 0 bytes")
        require(self.credit >= 1, f"credit={self.credit} must be at least 1 partition")
        if self.over == "parameter-server" and self.credit != 1:
            yield "credit has no effect over parameter-server: every connection sends in order"
        yield from self._inner.validate(job)

    def iteration(self, plan: Plan, start: Handles) -> Handles:
        plan.collectives_at_once = self.credit
        ready = start
        for layer in plan.layers:
            before = [plan.carried[layer.name]] if layer.name in plan.carried else []
            ready = plan.forward(after=plan.all_of(ready, *before), layer=layer)
        for layer in reversed(plan.layers):
            ready = plan.backward(layer, after=ready)
            with plan.at_priority(layer.index if self.prioritised else 0):
                plan.carried[layer.name] = self.sync(plan, layer, ready)
        return ready

    def sync(self, plan: Plan, layer: PlanLayer, ready: Handles) -> Handles:
        """Record the synchronisation of one layer, partition by partition."""
        count = math.ceil(layer.gradient_bytes / self.partition_size)
        size = layer.gradient_bytes / count
        inner = self._inner
        if isinstance(inner, AllReduce):
            return plan.all_of(*(inner.reduce(plan, size, ready, layer, "all-reduce partition") for _ in range(count)))
        return plan.all_of(*(inner.sync(plan, layer, ready, size) for _ in range(count)))

    def network_bytes(self, job: Job) -> float:
        """What the all-reduce or the parameter server sends: cutting changes no bytes."""
        return self._inner.network_bytes(job)
