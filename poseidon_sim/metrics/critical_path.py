"""Why a step takes as long as it does: the chain of tasks that ends last, and what its pieces were spent on.

Walk back from the last end of the measured window. A task was held up by the dependency whose end made it
ready or, when it then waited for its queue, by the task that let the queue go at the moment it started. What
each task on the chain spent its time on says `poseidon_sim.metrics.blame`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from poseidon_sim.cluster.build import class_label
from poseidon_sim.metrics.blame import WAITING, Words, pieces, subject_of, subject_words
from poseidon_sim.metrics.links import link_words
from poseidon_sim.plan.record import KIND
from poseidon_sim.trace import Trace

Ints = npt.NDArray[np.int64]
#: moments closer than this share of each other are one moment
CLOSE = 1e-9
#: the second-largest blame is named too when the largest is below and it is above these shares of the step
MOSTLY, NOTABLE = 0.8, 0.15
#: a link that carries this many times the mean of its kind is named with its node
UNEVEN = 1.3


@dataclass(frozen=True)
class Span:
    """A piece of the critical path: from `start` to `end` (seconds) task `task` spent its time on `blame`."""

    task: int
    start: float
    end: float
    blame: str


def critical_path(trace: Trace) -> list[Span]:
    """Return the critical path of the measured iterations in order of time.

    A message still on the wire when its channel was let go to the next task of the path is cut there, so
    spans never overlap.
    """
    tasks, edges, row, names = _cut(trace)
    rows, columns = np.nonzero(edges[:, 1:] > edges[:, :-1])
    return [
        Span(int(tasks[i]), float(edges[i, j]), float(edges[i, j + 1]), names[row[i]][j])
        for i, j in zip(rows.tolist(), columns.tolist(), strict=True)
    ]


def _cut(trace: Trace) -> tuple[Ints, npt.NDArray[np.float64], Ints, list[Words]]:
    """Return the tasks of the critical path and their pieces, cut to the measured window and to each other."""
    begin, finish = _window(trace)
    tasks = path_tasks(trace)
    limits = np.append(trace.times.start[tasks][1:], finish)[: len(tasks)]
    edges, row, names = pieces(trace, tasks)  # (n, 5) moments, (n,) rows of words
    edges = np.clip(np.minimum(edges, limits[:, None]), begin, finish)
    return tasks, edges, row, names


def path_tasks(trace: Trace) -> Ints:
    """Return the task ids of the critical path of the measured window, in order of time."""
    begin, finish = _window(trace)
    task = _last(trace, finish)
    start = trace.times.start.tolist()
    before = _Causes(trace)
    found: list[int] = []
    seen: set[int] = set()
    while task >= 0 and task not in seen:
        seen.add(task)
        found.append(task)
        if start[task] <= begin + CLOSE * finish:
            break
        task = before.of(task)
    return np.array(found[::-1], dtype=np.int64)


def blame_shares(trace: Trace) -> dict[str, float]:
    """Return seconds of one iteration by what is to blame, largest first; they add up to the step time.

    With workers of different pace (stale strategies) it is the step time of the last worker. Names:
    'compute', 'transfer: <link>' (the time the task's own bytes need on its tightest link), 'contention:
    <link>' (what sharing that link with other work added), 'message latency', 'collective latency',
    'waiting'.
    """
    begin, finish = _window(trace)
    total: dict[str, float] = {}
    _, edges, row, names = _cut(trace)
    spent = np.zeros((len(names), 4))
    np.add.at(spent, row, np.diff(edges, axis=1))
    for words, seconds in zip(names, spent.tolist(), strict=True):
        for word, second in zip(words, seconds, strict=True):
            if second > 0:
                total[word] = total.get(word, 0.0) + second
    missing = (finish - begin) - sum(total.values())
    if missing > CLOSE * finish:
        total[WAITING] = total.get(WAITING, 0.0) + missing
    return {k: v / trace.num_measured for k, v in sorted(total.items(), key=lambda item: (-item[1], item[0]))}


def bottleneck(blame: dict[str, float], trace: Trace | None = None) -> str:
    """Say in words what limits the step: the largest blame and its share, and the second when it matters.

    A link's own transfers and the contention on it count together. `trace` adds the number of collective
    calls and, when one node's link carries much more than the others', that node.

    >>> bottleneck({"compute": 0.9, "transfer: node port in": 0.1})
    'compute (90% of the step)'
    >>> bottleneck({"transfer: node port in": 0.5, "compute": 0.3, "contention: node port in": 0.2})
    'network: node port in (70% of the step), then compute (30%)'
    """
    total = sum(blame.values())
    if total <= 0:
        return "nothing: the step takes no time"
    by_subject: dict[str, float] = {}
    for name, seconds in blame.items():
        by_subject[subject_of(name)] = by_subject.get(subject_of(name), 0.0) + seconds / total
    ranked = sorted(by_subject.items(), key=lambda item: (-item[1], item[0]))
    first, share = ranked[0]
    place = _place(trace, first)
    text = f"{subject_words(first, _collective_calls(trace))}{place} ({share:.0%} of the step)"
    if share < MOSTLY and ranked[1][1] > NOTABLE:
        text += f", then {subject_words(ranked[1][0], _collective_calls(trace))} ({ranked[1][1]:.0%})"
    return text


class _Causes:
    """Tells which task let another start: a dependency, or the one that left its queue; looked up as the walk asks."""

    def __init__(self, trace: Trace) -> None:
        program, times = trace.program, trace.times
        self.waited = ((program.queue >= 0) & (times.start > times.ready * (1 + CLOSE)) & (times.mate >= 0)).tolist()
        self.mate, self.ready, self.end = times.mate, times.ready, times.end
        self.pointers, self.dep = program.dep_ptr.tolist(), program.dep

    def of(self, task: int) -> int:
        """Return the cause, or -1: of dependencies that ended in time the last, the first of equals."""
        if self.waited[task]:
            return int(self.mate[task])
        first, last = self.pointers[task : task + 2]
        if last - first <= 1:
            return int(self.dep[first]) if last > first else -1
        dep = self.dep[first:last]
        ends = self.end[dep]
        ends[ends > self.ready[task] * (1 + CLOSE) + 1e-15] = -np.inf
        return int(dep[ends.argmax()])


def _window(trace: Trace) -> tuple[float, float]:
    ends = trace.iteration_ends
    begin = float(ends[trace.warm_up - 1].max()) if trace.warm_up else 0.0
    return begin, float(ends[-1].max())


def _last(trace: Trace, finish: float) -> int:
    """The task that ends when the measured window does; real work before joins."""
    times, last = trace.times, int(trace.table.iteration.max()) if trace.program.num_tasks else -1
    close = np.flatnonzero(np.abs(times.end - finish) <= CLOSE * max(finish, 1e-30))
    close = close[np.argsort(trace.table.iteration[close] != last, kind="stable")]
    real = close[trace.table.kind[close] != KIND["join"]]
    chosen = real if len(real) else close
    return int(chosen[0]) if len(chosen) else -1


def _collective_calls(trace: Trace | None) -> int | None:
    if trace is None:
        return None
    calls = int((trace.table.kind == KIND["collective"]).sum())
    return calls // max(1, len(trace.iteration_ends))


def _place(trace: Trace | None, subject: str) -> str:
    """Name the node whose link of this kind carries much more than the mean, if there is one."""
    if trace is None:
        return ""
    fabric, amounts = trace.fabric, trace.link_amounts()
    links = {index: link for (kind, index), link in fabric.of.items() if link_words(kind) == subject}
    classes = {index: fabric.classes[index] for index in links} if "leaf" not in subject else {}
    if len(classes) < 2:
        return ""
    busy = {index: float(amounts[link] / fabric.capacities[link]) for index, link in links.items()}
    mean = sum(busy[i] * c.count for i, c in classes.items()) / sum(c.count for c in classes.values())
    most = max(busy, key=lambda index: busy[index])
    return f" of {class_label(classes[most])}" if busy[most] > UNEVEN * mean else ""
