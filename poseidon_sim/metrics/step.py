"""Step time, throughput, and where the time goes: compute, communication, exposed communication, waiting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from poseidon_sim.metrics.intervals import Intervals, clip, length, shared, union
from poseidon_sim.plan.record import COMPUTE_KINDS, KINDS, TRANSFER_KINDS
from poseidon_sim.trace import Trace

_IS_KIND = {
    kinds: np.array([code in kinds for code in range(len(KINDS))]) for kinds in (COMPUTE_KINDS, TRANSFER_KINDS)
}


@dataclass(frozen=True)
class StepMetrics:
    """Steady-state figures of a run, averaged over workers (seconds per iteration; shares are of 1).

    `step_time` : global batch / throughput; for BSP the time of one iteration.
    `throughput` : samples/s of the whole job.
    `compute_time` : GPU busy. `communication_time` : some transfer of the worker's under way.
    `exposed_communication` : GPU idle while one of its transfers is under way.
    `wait_time` : GPU idle with no transfer of its own under way (stragglers, a busy server).
    `overlap` : 1 - exposed / communication (1 when there is no communication).
    """

    step_time: float
    throughput: float
    compute_time: float
    communication_time: float
    exposed_communication: float
    wait_time: float

    @property
    def overlap(self) -> float:
        if self.communication_time <= 0:
            return 1.0
        return max(0.0, 1.0 - self.exposed_communication / self.communication_time)


def step_metrics(trace: Trace, batch_sizes: npt.NDArray[np.float64]) -> StepMetrics:
    """Measure a trace; `batch_sizes` is (W,): samples per iteration of one node of each worker class."""
    fabric = trace.fabric
    counts = np.array([fabric.classes[c].count for c in fabric.workers], dtype=np.float64)
    windows = [trace.window(w) for w in range(len(counts))]
    spans = np.array([end - start for start, end in windows])
    samples = batch_sizes * counts
    throughput = float((samples * trace.num_measured / spans).sum())
    busy, moving = (_by_node(trace, kinds) for kinds in (COMPUTE_KINDS, TRANSFER_KINDS))
    workers = [int(c) for c in fabric.workers]
    rows = np.array([_worker_times(busy(c), moving(c), window) for c, window in zip(workers, windows, strict=True)])
    rows = rows / trace.num_measured
    mean = (rows * counts[:, None]).sum(axis=0) / counts.sum()
    return StepMetrics(float(samples.sum() / throughput), throughput, *(float(x) for x in mean))


def _worker_times(
    busy: Intervals, moving: Intervals, window: tuple[float, float]
) -> tuple[float, float, float, float]:
    busy, moving = clip(busy, *window), clip(moving, *window)
    compute, communication = length(busy), length(moving)
    exposed = communication - shared(busy, moving)
    wait = max(0.0, (window[1] - window[0]) - compute - exposed)
    return compute, communication, exposed, wait


def _by_node(trace: Trace, kinds: frozenset[int]) -> Callable[[int], Intervals]:
    """Return a function of a node class: when tasks of these kinds ran there (tasks of all nodes ran everywhere)."""
    table, times = trace.table, trace.times
    tasks = np.flatnonzero(_IS_KIND[kinds][table.kind])
    node, peer = table.node[tasks], table.peer[tasks]
    everywhere = tasks[(node == -1) & (peer == -1)]
    where = np.concatenate([node, peer])
    order = np.argsort(where, kind="stable")
    where, here = where[order], np.concatenate([tasks, tasks])[order]

    def intervals(node_class: int) -> Intervals:
        first, last = np.searchsorted(where, [node_class, node_class + 1])
        mine = np.concatenate([here[first:last], everywhere])
        return union(times.start[mine], times.end[mine])

    return intervals
