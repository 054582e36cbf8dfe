"""A recorded plan as arrays, and the same recording for other jobs of its shape.

Recording an iteration costs more than running it, and most jobs of a sweep differ only in numbers: a link's rate, the time
of a layer. A recording says which figures the strategy read while it was made. A job that differs from it only in figures that were
not read has the same tasks; the numbers that depend on those figures (times of layers, capacities of links, rate caps of
collectives) are worked out for the job by the same code and written into the arrays. What cannot be so is recorded anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from poseidon_sim.cluster import Cluster
from poseidon_sim.engine.program import Program
from poseidon_sim.plan.loading import AHEAD
from poseidon_sim.plan.plan import Phase, Plan
from poseidon_sim.plan.record import TaskTable, link_arrays


@dataclass(frozen=True, eq=False)
class Recording:
    """What a plan recorded. `iteration_ends` is (iterations, W) task ids, -1 for none; `carried`: work is handed on."""

    program: Program
    table: TaskTable
    iteration_ends: npt.NDArray[np.int64]
    carried: bool
    warnings: tuple[str, ...]
    reads: frozenset[str]
    busy: npt.NDArray[np.bool_]
    timed: npt.NDArray[np.int64]
    slowed: tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]
    phased: npt.NDArray[np.int64]
    phases: tuple[tuple[Any, list[Phase]], ...]

    @classmethod
    def of(cls, plan: Plan) -> Recording:
        """Turn what a plan recorded into arrays."""
        program, table = plan.lower()
        keys = dict.fromkeys(key for _, key, _ in plan.phased)
        first = dict(zip(keys, accumulate((len(plan.known.get(key, ())) for key in keys), initial=0), strict=False))
        phased = np.array([(task, first[key] + index) for task, key, index in plan.phased], dtype=np.int64).reshape(-1, 2)
        slowed = np.array([first for first, _ in plan.slowed], dtype=np.int64), np.array([x for _, x in plan.slowed])
        phases = tuple((key, plan.known.get(key, [])) for key in keys)
        carried = bool(plan.carried) or AHEAD in plan.known
        return cls(
            program, table, np.array(plan.iteration_ends), carried, tuple(plan.warnings), frozenset(plan.reads),
            plan.times != 0, np.array(plan.timed, dtype=np.int64).reshape(-1, 2), slowed, phased, phases,
        )  # fmt: skip

    def for_job(self, plan: Plan) -> Program | None:
        """Return the program of another job, given its plan with nothing recorded; None when its tasks would differ."""
        if not np.array_equal(plan.times != 0, self.busy) or len(plan.links.capacities) != self.program.num_links:
            return None
        work, cap = self.program.work, self.program.rate_cap
        if len(self.timed):
            work = work.copy()
            first, row = self.timed.T
            work[first[:, None] + np.arange(len(plan.workers))] = plan.times[row]
        if len(self.slowed[0]):
            work = work.copy()
            first, whole = self.slowed
            work[first[:, None] + np.arange(len(plan.workers))] = whole * plan.slowdown
        if len(self.phased):
            caps: list[float] = []
            for key, before in self.phases:
                now = key.of(plan) if key is not None else []
                if not now or not _differ_in_rates_alone(before, now):
                    return None
                caps += [phase.rate_cap for phase in now]
            cap = cap.copy()
            cap[self.phased[:, 0]] = np.array(caps)[self.phased[:, 1]]
        return self.program.with_numbers(work=work, rate_cap=cap, **link_arrays(plan.links.capacities, plan.links.curves))


def _differ_in_rates_alone(before: list[Phase], now: list[Phase]) -> bool:
    return len(before) == len(now) and all(
        a.work == b.work and a.latency == b.latency and a.uses == b.uses for a, b in zip(before, now, strict=True)
    )


def shape_of(cluster: Cluster) -> Cluster:
    """Return the cluster without the rate of its network and the draw of its jitter: one shape has the same tasks."""
    network = cluster.network
    if network is not None:
        network = replace(network, bandwidth=1.0, efficiency=1.0)
    jittered = cluster.jitter > 0  # every node is a class of its own, whatever is drawn
    return replace(cluster, network=network, seed=0 if jittered else cluster.seed, jitter=0.5 if jittered else 0.0)


class Recordings:
    """The recordings of late, by shape of the job; the one used longest ago goes first."""

    def __init__(self, most: int = 256, most_tasks: int = 2_000_000) -> None:
        self.most, self.most_tasks = most, most_tasks
        self._kept: OrderedDict[Hashable, Recording] = OrderedDict()

    def get(self, key: Hashable, plan: Plan, record: Callable[[Plan], None]) -> tuple[Recording, Program]:
        """Return the recording and the program of the job that `plan` (still empty) stands for.

        `key` is everything that the tasks depend on but the batch and the network's rate.
        """
        exact = (key, plan.hardware, plan.own_batch_size)
        for each in (key, (key, plan.own_batch_size), exact):
            found = self._kept.get(each)
            program = found.for_job(plan) if found is not None else None
            if found is not None and program is not None:
                self._kept.move_to_end(each)
                return found, program
        record(plan)
        made = Recording.of(plan)
        where = exact if "rates" in made.reads else (key, plan.own_batch_size) if "batch" in made.reads else key
        self._keep(where, made)
        return made, made.program

    def _keep(self, key: Hashable, made: Recording) -> None:
        if made.program.num_tasks > self.most_tasks // 10:
            return
        self._kept[key] = made
        while len(self._kept) > self.most or sum(x.program.num_tasks for x in self._kept.values()) > self.most_tasks:
            self._kept.popitem(last=False)
