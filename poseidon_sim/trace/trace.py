"""What happened: the engine's times beside the meaning of every task, and the fabric they ran on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from poseidon_sim.cluster import Fabric
from poseidon_sim.engine.program import Program, Times
from poseidon_sim.plan.record import TaskTable


@dataclass(frozen=True, eq=False)
class Trace:
    """A finished run, column by column; all times in seconds from the start of the first iteration.

    `iteration_ends` is (iterations, W): when each worker class finished each iteration. The first `warm_up`
    iterations are left out of every metric.
    """

    program: Program
    times: Times
    table: TaskTable
    fabric: Fabric
    iteration_ends: npt.NDArray[np.float64]
    warm_up: int

    @property
    def num_measured(self) -> int:
        """Iterations that count."""
        return len(self.iteration_ends) - self.warm_up

    def window(self, worker: int) -> tuple[float, float]:
        """Return the measured window of the worker class in row `worker`: (start, end)."""
        column = self.iteration_ends[:, worker]
        return (float(column[self.warm_up - 1]) if self.warm_up else 0.0), float(column[-1])

    def link_amounts(self) -> npt.NDArray[np.float64]:
        """Return (L,) units of work each link carried in one iteration, averaged over all iterations."""
        return self._link_amounts

    @cached_property
    def _link_amounts(self) -> npt.NDArray[np.float64]:
        p = self.program
        per_use = p.work[p.use_owner] * p.use_coefficient
        total = np.bincount(p.use_link, weights=per_use, minlength=p.num_links)
        return total / max(1, len(self.iteration_ends))
