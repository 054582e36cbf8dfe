"""The engine's only input: plain arrays of tasks, queues and links. No domain words live here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from poseidon_sim.errors import CheckError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_STRUCTURAL = frozenset(("use_owner", "dep_owner", "dependents"))


@dataclass(frozen=True, eq=False)
class Program:
    """Tasks that wait for tasks, queue for servers and share links.

    T tasks, Q queues, L links; `*_ptr` arrays are CSR row pointers of length T + 1 (or L + 1).

    Life of a task: it becomes *ready* when `needed` of its dependencies have ended; it then waits for its
    queue (if any) in the order (priority, time ready, task id); it *starts*; `latency` seconds pass; then its
    fluid phase moves `work` units at the rate that weighted max-min sharing of the links grants, never above
    `rate_cap`; then it gives its queue slot back; `delay` seconds later it *ends* (propagation: the
    channel is free for the next message while this one is still on the wire).

    Parameters
    ----------
    work : (T,) amount of fluid work, in any unit; 0 means no fluid phase.
    latency, delay : (T,) seconds before and after the fluid phase; only the first holds the queue.
    rate_cap : (T,) units of work per second; inf for none. A task with work but neither links nor a cap is
        refused.
    weight : (T,) share in max-min fairness: rates of unfrozen tasks rise in proportion to it.
    priority : (T,) smaller is served first in a queue.
    queue : (T,) queue id, or -1.
    needed : (T,) how many of the dependencies must have ended (k of n); equal to their number for "all".
    dep_ptr, dep : dependencies of task i are dep[dep_ptr[i]:dep_ptr[i+1]] (task ids; a duplicate counts once
        each, so do not list one twice).
    use_ptr, use_link, use_coefficient : demand of task i: for each unit of work it takes
        use_coefficient units from link use_link. No link appears twice in one task.
    capacity : (L,) units per second of each link; > 0. inf is allowed.
    curve_ptr, curve_flows, curve_capacity : for links whose capacity depends on concurrency: piecewise linear
        points (number of flows, capacity), constant beyond both ends; an empty row means `capacity` holds.
        The number of flows on a link is the sum of the use coefficients of the tasks in their fluid phase.
    queue_slots : (Q,) how many tasks a queue serves at once.
    """

    work: Floats
    latency: Floats
    delay: Floats
    rate_cap: Floats
    weight: Floats
    priority: Floats
    queue: Ints
    needed: Ints
    dep_ptr: Ints
    dep: Ints
    use_ptr: Ints
    use_link: Ints
    use_coefficient: Floats
    capacity: Floats
    curve_ptr: Ints
    curve_flows: Floats
    curve_capacity: Floats
    queue_slots: Ints

    @cached_property
    def use_owner(self) -> Ints:
        """(U,) the task of each demand."""
        return np.repeat(np.arange(self.num_tasks), np.diff(self.use_ptr))

    @cached_property
    def dep_owner(self) -> Ints:
        """(D,) the task that waits, of each dependency."""
        return np.repeat(np.arange(self.num_tasks), np.diff(self.dep_ptr))

    @cached_property
    def dependents(self) -> tuple[Ints, Ints]:
        """CSR: (T + 1,) pointers and (D,) the tasks that wait for each task."""
        pointers = np.zeros(self.num_tasks + 1, dtype=np.int64)
        np.cumsum(np.bincount(self.dep, minlength=self.num_tasks), out=pointers[1:])
        return pointers, self.dep_owner[np.argsort(self.dep, kind="stable")]

    def with_numbers(self, **columns: npt.NDArray[Any]) -> Program:
        """Return the same tasks with other numbers (work, rate caps, capacities): what follows from the structure is kept."""
        changed = replace(self, **columns)
        kept = {name: value for name, value in vars(self).items() if name in _STRUCTURAL}
        vars(changed).update(kept)
        return changed

    @property
    def num_tasks(self) -> int:
        return len(self.work)

    @property
    def num_links(self) -> int:
        return len(self.capacity)

    @property
    def num_queues(self) -> int:
        return len(self.queue_slots)


@dataclass(frozen=True, eq=False)
class Times:
    """What the engine answers: when each task was ready, started, left its queue and ended, in seconds.

    `ready`, `start`, `release`, `end` are (T,) arrays. start - ready is the wait for a queue; release is the
    end of the fluid phase; end = release + delay. `mate` is the (T,) task that had left a task's queue last when it
    started, -1 for none (of several slots, let go at one instant, the lowest). `num_instants` counts the instants processed.
    """

    ready: Floats
    start: Floats
    release: Floats
    end: Floats
    mate: Ints
    num_instants: int

    @property
    def makespan(self) -> float:
        """End of the last task, in seconds (0 for an empty program)."""
        return float(self.end.max()) if len(self.end) else 0.0


def make_program(
    work: object,
    *,
    dependencies: list[list[int]] | None = None,
    uses: list[dict[int, float]] | None = None,
    capacity: object = (),
    curves: dict[int, list[tuple[float, float]]] | None = None,
    queue_slots: object = (),
    latency: object = 0.0,
    delay: object = 0.0,
    rate_cap: object = np.inf,
    weight: object = 1.0,
    priority: object = 0.0,
    queue: object = -1,
    needed: object = None,
) -> Program:
    """Build a program from lists, for tests and small puzzles; scalars are broadcast over the tasks.

    Two transfers of 10 units over one link of 2 units/s:

    >>> program = make_program([10.0, 10.0], uses=[{0: 1.0}, {0: 1.0}], capacity=[2.0])
    >>> program.num_tasks, program.num_links
    (2, 1)
    """
    w = np.asarray(work, dtype=np.float64)
    n = len(w)
    deps = dependencies or [[] for _ in range(n)]
    use = uses or [{} for _ in range(n)]
    cap = np.asarray(capacity, dtype=np.float64)
    curve = curves or {}

    def floats(value: object) -> Floats:
        return np.broadcast_to(np.asarray(value, dtype=np.float64), (n,)).copy()

    def pointers(sizes: list[int]) -> Ints:
        return np.concatenate([[0], np.cumsum(np.asarray(sizes, dtype=np.int64))]).astype(np.int64)

    points = [curve.get(link, []) for link in range(len(cap))]
    return Program(
        work=w,
        latency=floats(latency),
        delay=floats(delay),
        rate_cap=floats(rate_cap),
        weight=floats(weight),
        priority=floats(priority),
        queue=np.broadcast_to(np.asarray(queue, dtype=np.int64), (n,)).copy(),
        needed=np.asarray([len(d) for d in deps] if needed is None else needed, dtype=np.int64),
        dep_ptr=pointers([len(d) for d in deps]),
        dep=np.asarray([d for row in deps for d in row], dtype=np.int64),
        use_ptr=pointers([len(u) for u in use]),
        use_link=np.asarray([link for row in use for link in row], dtype=np.int64),
        use_coefficient=np.asarray([c for row in use for c in row.values()], dtype=np.float64),
        capacity=cap,
        curve_ptr=pointers([len(p) for p in points]),
        curve_flows=np.asarray([p[0] for row in points for p in row], dtype=np.float64),
        curve_capacity=np.asarray([p[1] for row in points for p in row], dtype=np.float64),
        queue_slots=np.asarray(queue_slots, dtype=np.int64),
    )


def validate_program(program: Program) -> None:
    """Raise CheckError with the first thing that makes the arrays meaningless; silent when they are sound."""
    p = program
    n = p.num_tasks
    for name in ("latency", "delay", "rate_cap", "weight", "priority", "queue", "needed"):
        if len(getattr(p, name)) != n:
            raise CheckError(f"program: {name} has {len(getattr(p, name))} entries for {n} tasks")
    rules = [
        ("work is finite and not negative", np.isfinite(p.work) & (p.work >= 0)),
        ("latency is finite and not negative", np.isfinite(p.latency) & (p.latency >= 0)),
        ("delay is finite and not negative", np.isfinite(p.delay) & (p.delay >= 0)),
        ("rate_cap is positive", p.rate_cap > 0),
        ("weight is finite and positive", np.isfinite(p.weight) & (p.weight > 0)),
        ("queue exists", (p.queue >= -1) & (p.queue < p.num_queues)),
        ("needed lies between 0 and the number of dependencies", (p.needed >= 0) & (p.needed <= np.diff(p.dep_ptr))),
        ("work has a link or a rate cap", (p.work == 0) | (np.diff(p.use_ptr) > 0) | np.isfinite(p.rate_cap)),
    ]
    for rule, holds in rules:
        if not holds.all():
            task = int(np.argmin(holds))
            raise CheckError(f"program: task {task} breaks the rule that {rule}")
    if not ((p.capacity > 0).all() and (p.curve_capacity > 0).all()):
        raise CheckError("program: a link has no capacity; every capacity must be above 0")
    if len(p.dep) and not ((p.dep >= 0) & (p.dep < n)).all():
        raise CheckError("program: a dependency names a task that does not exist")
    if len(p.use_link) and not ((p.use_link >= 0) & (p.use_link < p.num_links)).all():
        raise CheckError("program: a demand names a link that does not exist")
    if (p.use_coefficient <= 0).any():
        raise CheckError("program: a use coefficient is not above 0; leave the link out instead")
    if (p.queue_slots <= 0).any():
        raise CheckError("program: a queue has no slots")
