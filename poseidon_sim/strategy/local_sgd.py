"""Local SGD: every worker trains alone for some steps, then all average their parameters.

Paper: Stich, ICLR'19; Lin et al., ICLR'20 (post-local SGD); periodic averaging since McDonald et al. 2010.
Simplified: averaging costs one all-reduce of the parameters after the last local step, and nothing overlaps; what fewer averages
do to convergence is what `ps.Convergence` is told (`local_steps_exponent`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from poseidon_sim.plan.plan import Plan
from poseidon_sim.plan.record import Handles
from poseidon_sim.strategy.all_reduce import AllReduce, fill_buckets
from poseidon_sim.strategy.base import Job, Strategy, backward_pass, require


@dataclass(frozen=True)
class LocalSgd(Strategy):
    """Average parameters every few steps.

    Parameters
    ----------
    local_steps : steps between two averages; 1 averages after every step.
    algorithm, fusion : of the all-reduce, as in `AllReduce`.
    """

    name: ClassVar[str] = "local-sgd"
    summary: ClassVar[str] = "workers train alone and average their parameters every few steps"
    source: ClassVar[str] = "Stich, ICLR'19; Lin et al., ICLR'20"

    local_steps: int = 4
    algorithm: str = "ring"
    fusion: str = "all"

    @property
    def _all_reduce(self) -> AllReduce:
        return AllReduce(algorithm=self.algorithm, fusion=self.fusion)

    @property
    def iteration_staleness(self) -> float:
        return math.inf if self.local_steps > 1 else 0.0

    def num_iterations(self) -> tuple[int, int]:
        return self.local_steps, self.local_steps

    def validate(self, job: Job) -> Iterator[str]:
        require(self.local_steps >= 1, f"local_steps={self.local_steps} must be at least 1")
        if self.local_steps > 1:
            yield "step times of local-sgd do not tell how many more steps training then needs"
        yield from self._all_reduce.validate(job)

    def iteration(self, plan: Plan, start: Handles) -> Handles:
        gradients, ready = backward_pass(plan, start, overlap=False)
        if (plan.iteration + 1) % self.local_steps:
            return ready
        counts = fill_buckets([layer.gradient_bytes for layer, _ in gradients], self._all_reduce.bucket_bytes())
        return plan.all_of(ready, *self._all_reduce.reduce_buckets(plan, gradients, counts, "average"))

    def network_bytes(self, job: Job) -> float:
        """An all-reduce's bytes, once in `local_steps` steps."""
        return self._all_reduce.network_bytes(job) / self.local_steps
