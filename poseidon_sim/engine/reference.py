"""The reference engine, on SimPy: what the semantics of DESIGN.md mean, as plainly as we can say it.

A task is a SimPy process whose body is its life. One more process, the clock, keeps the law of ties: at every
instant it repeats, until nothing changes,

* (A) everything that completes now is retired: slots are given back, tasks end, dependents become ready, and
  joins (no queue, no latency, no work, no delay) end in the same cascade;
* (B) only then ready tasks start and queues hand out free slots, in the order (priority, time ready, task);
* (C) only then the links are shared anew, and the clock moves on to the next completion.

(A) before (B) is had from SimPy itself: events at one time run in the order of their priority, and the clock
waits in the lowest one. A fluid phase that takes no time (infinite rate) is known only after (C); it is then
retired by another (A) at the same instant.

The tolerance of "now": completions up to ``t * (1 + TOLERANCE)`` belong to the instant ``t`` of the earliest
one and are stamped ``t``; a wait that would end within that span is no wait. The rule is relative only, so it
does not depend on the unit of time.
"""

from __future__ import annotations

from collections.abc import Generator
from heapq import heappop, heappush
from itertools import pairwise
from math import inf
from typing import Any

import numpy as np
import simpy
from simpy.events import EventPriority

from poseidon_sim.engine.check import Observer
from poseidon_sim.engine.program import Program, Times
from poseidon_sim.engine.sharing import Flow, interpolate, max_min_rates
from poseidon_sim.errors import CheckError

TOLERANCE = 1e-12
"""Relative width of an instant: a thousandth of a nanosecond after one second."""


Steps = Generator[Any, Any, None]


class Quiet(simpy.Event):
    """An event of this moment that comes after all others of this moment, also those not yet known."""

    def __init__(self, env: simpy.Environment) -> None:
        super().__init__(env)
        self._ok = True
        self._value = None
        env.schedule(self, EventPriority(2))  # SimPy's own are urgent (0) and normal (1)


class Fluid:
    """A task in its fluid phase: `left` units of work at time `since`, flowing at `rate` from then on."""

    __slots__ = ("done", "ends_at", "flow", "left", "rate", "since")

    def __init__(self, flow: Flow, work: float, now: float, done: Any) -> None:
        self.flow, self.left, self.since, self.done = flow, work, now, done
        self.rate, self.ends_at = 0.0, inf

    def set_rate(self, rate: float, now: float) -> None:
        if rate != self.rate:
            self.left = max(0.0, self.left - self.rate * (now - self.since))
            self.rate, self.since, self.ends_at = rate, now, now + self.left / rate


class Simulation:
    """One run of one program; :func:`run_reference` is the way in."""

    def __init__(self, program: Program, observe: Observer | None) -> None:
        p = program
        self.env = simpy.Environment()
        self.observe = observe
        self.work, self.latency, self.delay = p.work.tolist(), p.latency.tolist(), p.delay.tolist()
        self.priority, self.queue = p.priority.tolist(), p.queue.tolist()
        self.still_needed = p.needed.tolist()
        self.dependents: list[list[int]] = [[] for _ in range(p.num_tasks)]
        for task, row in enumerate(rows(p.dep_ptr, p.dep.tolist())):
            for other in row:
                self.dependents[other].append(task)
        uses = zip(p.use_link.tolist(), p.use_coefficient.tolist(), strict=True)
        demands = rows(p.use_ptr, list(uses))
        self.flows = [
            Flow(tuple(demand), weight, cap)
            for demand, weight, cap in zip(demands, p.weight.tolist(), p.rate_cap.tolist(), strict=True)
        ]
        self.link_capacity = p.capacity.tolist()
        points = zip(p.curve_flows.tolist(), p.curve_capacity.tolist(), strict=True)
        self.curves = rows(p.curve_ptr, list(points))
        self.slots, self.free = p.queue_slots.tolist(), p.queue_slots.tolist()
        self.waiting: list[list[tuple[float, float, int, Any]]] = [[] for _ in self.free]
        self.unqueued: list[Any] = []  # ready tasks that need no queue
        self.askable: set[int] = set()  # queues where a slot or a task has come free since the last look
        self.alarms: list[tuple[float, float, int, Any]] = []  # (time, priority, task, event)
        self.fluid: dict[int, Fluid] = {}
        self.must_share = False
        self.num_instants = 0
        self.ready, self.start, self.release, self.end = ([np.nan] * p.num_tasks for _ in range(4))
        self.mate = [-1] * p.num_tasks
        self.left_last = [-1] * p.num_queues

    def life(self, task: int) -> Steps:
        """From ready to end: queue, latency, fluid phase, release, delay."""
        queue, work = self.queue[task], self.work[task]
        self.ready[task] = self.env.now
        if queue >= 0 or work or self.latency[task] or self.delay[task]:
            yield self.turn(task, queue)
        self.start[task] = self.env.now
        if queue >= 0:
            self.mate[task] = self.left_last[queue]
        yield from self.wait(task, self.latency[task])
        if work:
            done = self.env.event()
            self.fluid[task] = Fluid(self.flows[task], work, self.env.now, done)
            self.must_share = True
            yield done
            del self.fluid[task]
            self.must_share = True
        self.release[task] = self.env.now
        if queue >= 0:
            last = self.left_last[queue]
            several = self.slots[queue] > 1 and last >= 0 and self.release[last] == self.env.now
            self.left_last[queue] = min(last, task) if several else task
            self.free[queue] += 1
            self.askable.add(queue)
        yield from self.wait(task, self.delay[task])
        self.end[task] = self.env.now
        for dependent in self.dependents[task]:
            self.still_needed[dependent] -= 1
            if self.still_needed[dependent] == 0:
                self.env.process(self.life(dependent))

    def turn(self, task: int, queue: int) -> Any:
        """Return the event of being started."""
        started = self.env.event()
        if queue < 0:
            self.unqueued.append(started)
        else:
            heappush(self.waiting[queue], (self.priority[task], self.env.now, task, started))
            self.askable.add(queue)
        return started

    def wait(self, task: int, seconds: float) -> Steps:
        """Pass the time; none at all if it would end within the tolerance of now."""
        time = self.env.now + seconds
        if time > latest(self.env.now):
            alarm = self.env.event()
            heappush(self.alarms, (time, self.priority[task], task, alarm))
            yield alarm

    def clock(self) -> Steps:
        """Keep the law of ties."""
        for task, needed in enumerate(self.still_needed):
            if needed == 0:
                self.env.process(self.life(task))
        self.num_instants = min(1, len(self.still_needed))
        while True:
            yield Quiet(self.env)  # (A) has run dry
            if self.grant():  # (B)
                continue
            self.share()  # (C)
            alarm = self.alarms[0][0] if self.alarms else inf
            time = min(alarm, min((fluid.ends_at for fluid in self.fluid.values()), default=inf))
            if time == inf:
                return
            if time > latest(self.env.now):
                before = self.env.now
                yield self.env.timeout(time - before)
                self.num_instants += 1
                if self.observe:
                    self.observe(
                        before, self.env.now, list(self.fluid), [f.rate for f in self.fluid.values()]
                    )
            self.complete(latest(self.env.now))

    def grant(self) -> bool:
        """(B) Start what may start; say whether anything did."""
        started, self.unqueued = self.unqueued, []
        for queue in sorted(self.askable):
            while self.free[queue] and self.waiting[queue]:
                started.append(heappop(self.waiting[queue])[-1])
                self.free[queue] -= 1
        self.askable.clear()
        for event in started:
            event.succeed()
        return bool(started)

    def share(self) -> None:
        """(C) Give every task in its fluid phase its max-min fair rate."""
        if self.must_share:
            self.must_share = False
            self.fluid = dict(sorted(self.fluid.items()))
            rates = max_min_rates([fluid.flow for fluid in self.fluid.values()], self.capacity)
            for fluid, rate in zip(self.fluid.values(), rates, strict=True):
                fluid.set_rate(rate, self.env.now)

    def capacity(self, link: int, num_flows: float) -> float:
        return interpolate(num_flows, self.curves[link]) if self.curves[link] else self.link_capacity[link]

    def complete(self, until: float) -> None:
        """(A) Wake every task whose wait or fluid phase ends by `until`, in the order (priority, task id)."""
        due = [(self.priority[t], t, f.done) for t, f in self.fluid.items() if f.ends_at <= until]
        while self.alarms and self.alarms[0][0] <= until:
            due.append(heappop(self.alarms)[1:])
        for _, _, event in sorted(due, key=lambda entry: entry[:2]):
            event.succeed()


def rows(pointers: Any, values: list[Any]) -> list[list[Any]]:
    """Cut a CSR array into its rows."""
    bounds = pointers.tolist()
    return [values[first:last] for first, last in pairwise(bounds)]


def latest(now: float) -> float:
    """Return the last moment that still belongs to the instant `now`."""
    return now * (1.0 + TOLERANCE)


def run_reference(program: Program, observe: Observer | None = None) -> Times:
    """Execute `program` and return its times, in seconds.

    `observe(begin, finish, tasks, rates)`, if given, is told after each step of the clock which tasks were in
    their fluid phase and how fast they went.

    >>> from poseidon_sim.engine.program import make_program
    >>> times = run_reference(make_program([10.0, 20.0], uses=[{0: 1.0}, {0: 1.0}], capacity=[2.0]))
    >>> times.end.tolist()
    [10.0, 15.0]
    """
    simulation = Simulation(program, observe)
    simulation.env.process(simulation.clock())
    simulation.env.run()
    if np.isnan(simulation.end).any():
        raise deadlock(np.flatnonzero(np.isnan(simulation.end)))
    ready, start, release, end = (
        np.array(stamps, dtype=np.float64)
        for stamps in (simulation.ready, simulation.start, simulation.release, simulation.end)
    )
    return Times(ready, start, release, end, np.array(simulation.mate, dtype=np.int64), simulation.num_instants)


def deadlock(tasks: Any) -> CheckError:
    """Build the error for tasks that can never become ready."""
    shown = ", ".join(str(task) for task in tasks[:8]) + (", ..." if len(tasks) > 8 else "")
    return CheckError(
        f"program: {len(tasks)} of its tasks never become ready (tasks {shown}); their dependencies form a "
        "cycle, or they wait for tasks on one: take one of those dependencies away"
    )
