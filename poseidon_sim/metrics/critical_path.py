"""Why a step takes as long as it does: the chain of tasks and waits that ends last, and what each link of it is to blame for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from poseidon_sim.metrics.links import LINK_WORDS
from poseidon_sim.plan.record import COMPUTE_KINDS, KIND
from poseidon_sim.trace import Trace

CLOSE = 1e-9


@dataclass(frozen=True)
class Span:
    """A piece of the critical path: from `start` to `end` (seconds) task `task` (or a wait) is to blame as `blame` says."""

    task: int
    start: float
    end: float
    blame: str


def critical_path(trace: Trace) -> list[Span]:
    """Return the critical path of the last measured iterations, in order of time, without gaps."""
    begin, finish = _window(trace)
    task = _last(trace, finish)
    spans: list[Span] = []
    finder, limit = _Finder(trace), finish
    while task >= 0:
        start = float(trace.times.start[task])
        cut = [Span(s.task, s.start, min(s.end, limit), s.blame) for s in _blame(trace, task)]
        spans += [s for s in cut if s.end > s.start]  # a message still on the wire when its channel was let go is cut
        if start <= begin + CLOSE * finish:
            break
        task, limit = finder.before(task), start
    spans.sort(key=lambda s: s.start)
    return [Span(s.task, max(s.start, begin), s.end, s.blame) for s in spans if s.end > begin]


def blame_shares(trace: Trace, path: list[Span] | None = None) -> dict[str, float]:
    """Return seconds of one iteration by what is to blame; they add up to the step time of the slowest worker."""
    begin, finish = _window(trace)
    total: dict[str, float] = {}
    spans = critical_path(trace) if path is None else path
    for span in spans:
        total[span.blame] = total.get(span.blame, 0.0) + (span.end - span.start)
    missing = (finish - begin) - sum(total.values())
    if missing > CLOSE * finish:
        total["waiting"] = total.get("waiting", 0.0) + missing
    return {k: v / trace.num_measured for k, v in sorted(total.items(), key=lambda item: -item[1])}


def bottleneck(blame: dict[str, float]) -> str:
    """Say in words what limits the step: the largest blame and its share."""
    total = sum(blame.values())
    if total <= 0:
        return "nothing: the step takes no time"
    name, seconds = next(iter(blame.items()))
    return f"{name} ({seconds / total:.0%} of the step)"


def _window(trace: Trace) -> tuple[float, float]:
    ends = trace.iteration_ends
    begin = float(ends[trace.warm_up - 1].max()) if trace.warm_up else 0.0
    return begin, float(ends[-1].max())


def _last(trace: Trace, finish: float) -> int:
    """The task that ends when the measured window does; real work before joins."""
    ends = trace.times.end
    close = np.flatnonzero(np.abs(ends - finish) <= CLOSE * max(finish, 1e-30))
    real = close[trace.times.end[close] > trace.times.start[close]]
    if len(real):
        return int(real[-1])
    return int(close[-1]) if len(close) else -1


class _Finder:
    """Finds what a task waited for: the dependency that made it ready, or the task that left its queue."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        program = trace.program
        self.by_queue: dict[int, npt.NDArray[np.int64]] = {}
        queued = np.flatnonzero(program.queue >= 0)
        order = queued[np.lexsort((trace.times.release[queued], program.queue[queued]))]
        queues = program.queue[order]
        for queue in np.unique(queues):
            self.by_queue[int(queue)] = order[queues == queue]

    def before(self, task: int) -> int:
        """Return the task whose end (or release) let `task` start, or -1."""
        program, times = self.trace.program, self.trace.times
        if times.start[task] > times.ready[task] * (1 + CLOSE) and program.queue[task] >= 0:
            mates = self.by_queue[int(program.queue[task])]
            at = int(np.searchsorted(times.release[mates], times.start[task] * (1 - 1e-12) - 1e-15))
            for mate in mates[at : at + 4]:
                if mate != task and abs(times.release[mate] - times.start[task]) <= CLOSE * max(times.start[task], 1e-30):
                    return int(mate)
        deps = program.dep[program.dep_ptr[task] : program.dep_ptr[task + 1]]
        if not len(deps):
            return -1
        ended = deps[times.end[deps] <= times.ready[task] * (1 + CLOSE) + 1e-15]
        if not len(ended):
            return -1
        return int(ended[np.argmax(times.end[ended])])


def _blame(trace: Trace, task: int) -> list[Span]:
    """Cut one task's span into latency, work alone, and what sharing added."""
    program, times, kind = trace.program, trace.times, int(trace.table.kind[task])
    start, release, end = float(times.start[task]), float(times.release[task]), float(times.end[task])
    fluid = start + float(program.latency[task])
    fluid = min(fluid, release)
    label = "compute" if kind in COMPUTE_KINDS else _transfer_words(trace, task, kind)
    alone = _alone(trace, task)
    spans = [Span(task, start, fluid, "latency"), Span(task, release, end, "latency")]
    shared = (release - fluid) - alone
    if shared > CLOSE * max(end, 1e-30):
        extra = "compute slowed by other work on the GPU" if kind in COMPUTE_KINDS else f"sharing of {label}"
        spans += [Span(task, fluid, release - shared, label), Span(task, release - shared, release, extra)]
    else:
        spans.append(Span(task, fluid, release, label))
    return spans


def _uses(trace: Trace, task: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    p = trace.program
    row = slice(p.use_ptr[task], p.use_ptr[task + 1])
    return p.use_link[row], p.use_coefficient[row]


def _alone(trace: Trace, task: int) -> float:
    """Seconds the fluid phase takes with all links to itself."""
    p = trace.program
    links, coefficients = _uses(trace, task)
    rate = min([float(p.rate_cap[task]), *(p.capacity[links] / coefficients)])
    return float(p.work[task] / rate) if rate > 0 and p.work[task] > 0 else 0.0


def _transfer_words(trace: Trace, task: int, kind: int) -> str:
    """Name the link that limits a transfer: the one it alone would fill first."""
    if kind == KIND["join"]:
        return "waiting"
    links, coefficients = _uses(trace, task)
    if not len(links):
        return "latency"
    tightest = int(links[np.argmax(coefficients / trace.program.capacity[links])])
    return _words(trace)[tightest]


def _words(trace: Trace) -> dict[int, str]:
    return {link: LINK_WORDS[kind] for (kind, _), link in trace.fabric.of.items()}
