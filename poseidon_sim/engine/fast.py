"""The fast engine: the semantics of the reference, compiled with numba, on records instead of processes.

Three ideas make it fast and none of them changes an answer:

* Tasks whose demand, weight and cap are equal share one *route*. All members of a route flow at one rate, so
  the sharing problem has one unknown a route, and a member ends when the work *served* to each since the
  route became busy reaches the member's own *rank*.
* Only routes on the links of a change are shared anew, and others as far as the change spreads; the rest keep their
  rates and ends (see :mod:`.filling`).
* Heaps find the next end: one of timers (latency, delay), one of routes; a queue and a route keep their
  members in skew heaps threaded through the tasks, in the order (rank, time ready, task id).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from poseidon_sim.engine.check import Observer, replay
from poseidon_sim.engine.filling import carry, next_end, share
from poseidon_sim.engine.program import Program, Times
from poseidon_sim.engine.records import (
    Heap,
    World,
    compiled,
    heap_first,
    heap_remove,
    heap_set,
    insert,
    make_world,
    merge,
    pop,
    push,
)
from poseidon_sim.engine.reference import TOLERANCE, deadlock

STARTED, FLOWED, DELAYED = 1, 2, 3  # stages: what is behind a task that is due


# --- (A) retire ---------------------------------------------------------------------------------------------


@compiled
def become_ready(tasks: Any, queues: Any, asked: Any, unqueued: Any, due: Any, task: int, now: float) -> None:
    t = tasks[task]
    t.ready = now
    if t.queue >= 0:
        queues[t.queue].root = insert(tasks, queues[t.queue].root, task, t.priority)
        ask(queues, asked, t.queue)
    elif t.work > 0 or t.latency > 0 or t.delay > 0:
        push(unqueued, task)
    else:  # a join
        t.start, t.release, t.stage = now, now, DELAYED
        push(due, task)


@compiled
def ask(queues: Any, asked: Any, queue: int) -> None:
    """Have the next (B) look at this queue: a slot or a task has come."""
    if queues[queue].asked == 0:
        queues[queue].asked = 1
        push(asked, queue)


@compiled
def retire(w: World, now: float, limit: float) -> None:
    """(A) Let every task that is due take its next step, and what follows at once from that."""
    tasks, queues, asked, unqueued, due = w.tasks, w.queues, w.asked, w.unqueued, w.due
    timers, dependents = w.timers, w.dependents
    while due[0]:
        task = pop(due)
        t = tasks[task]
        if t.stage == STARTED:
            if t.work > 0:
                join_route(tasks, w.routes, w.uses, w.links, w.on_link, w.changed, task, now)
                continue
            t.stage = FLOWED
        if t.stage == FLOWED:
            t.release = now
            if t.queue >= 0:
                q = queues[t.queue]
                q.free += 1
                several = q.slots > 1 and q.last >= 0 and tasks[q.last].release == now
                q.last = min(q.last, task) if several else task
                ask(queues, asked, t.queue)
            if now + t.delay > limit:
                t.stage = DELAYED
                heap_set(timers, task, now + t.delay)
                continue
        t.end = now
        for index in range(t.first_dependent, t.last_dependent):
            dependent = dependents[index]
            tasks[dependent].needed -= 1
            if tasks[dependent].needed == 0:
                become_ready(tasks, queues, asked, unqueued, due, dependent, now)


# --- (B) grant ----------------------------------------------------------------------------------------------


@compiled
def grant(w: World, now: float, limit: float) -> None:
    """(B) Start ready tasks without a queue; hand free slots to the first in line."""
    tasks, timers, due = w.tasks, w.timers, w.due
    unqueued, asked, queues = w.unqueued, w.asked, w.queues
    while unqueued[0]:
        begin(tasks, timers, due, pop(unqueued), now, limit)
    while asked[0]:
        q = queues[pop(asked)]
        q.asked = 0
        while q.free > 0 and q.root >= 0:
            task = q.root
            q.root = merge(tasks, tasks[task].left, tasks[task].right)
            q.free -= 1
            tasks[task].mate = q.last
            begin(tasks, timers, due, task, now, limit)


@compiled
def begin(tasks: Any, timers: Heap, due: Any, task: int, now: float, limit: float) -> None:
    t = tasks[task]
    t.start, t.stage = now, STARTED
    if now + t.latency > limit:
        heap_set(timers, task, now + t.latency)
    else:
        push(due, task)


# --- (C) share: who takes part (how, says filling.py) -------------------------------------------------------


@compiled
def join_route(
    tasks: Any, routes: Any, uses: Any, links: Any, on_link: Any, changed: Any, task: int, now: float
) -> None:
    """Begin the fluid phase."""
    t = tasks[task]
    t.stage, t.flow = FLOWED, now
    r = routes[t.route]
    if r.members == 0:
        r.served, r.since = 0.0, now
        for use in range(r.first_use, r.last_use):
            k = links[uses[use].link]
            uses[use].place = k.first_place + k.members
            on_link[uses[use].place] = use
            k.members += 1
    else:
        r.served += r.rate * (now - r.since)
        r.since = now
    r.root = insert(tasks, r.root, task, r.served + t.work)
    r.members += 1
    carry(uses, links, r.first_use, r.last_use, r.rate)
    mark(routes, changed, t.route)


@compiled
def mark(routes: Any, changed: Any, route: int) -> None:
    """Have the next (C) share anew around this route."""
    if routes[route].changed == 0:
        routes[route].changed = 1
        push(changed, route)


@compiled
def finish(w: World, route: int, limit: float) -> None:
    """Make the members of a route due whose fluid phase ends by `limit`."""
    tasks, routes, uses, links, on_link, due = w.tasks, w.routes, w.uses, w.links, w.on_link, w.due
    r = routes[route]
    while r.root >= 0 and next_end(tasks, routes, route) <= limit:
        push(due, r.root)
        r.root = merge(tasks, tasks[r.root].left, tasks[r.root].right)
        r.members -= 1
        carry(uses, links, r.first_use, r.last_use, -r.rate)
    mark(routes, w.changed, route)
    if r.members:
        heap_set(w.finishes, route, next_end(tasks, routes, route))
        return
    heap_remove(w.finishes, route)
    for use in range(r.first_use, r.last_use):
        k = links[uses[use].link]
        k.members -= 1
        moved = on_link[k.first_place + k.members]
        on_link[uses[use].place] = moved
        uses[moved].place = uses[use].place
        if k.members == 0:
            k.used = 0.0


@compiled
def execute(w: World, tolerance: float) -> int:
    """Run to the end and return the number of instants."""
    timers, finishes, due, tasks = w.timers, w.finishes, w.due, w.tasks
    now = limit = 0.0
    num_instants = min(1, len(tasks))
    for task in range(len(tasks)):
        if tasks[task].needed == 0:
            become_ready(tasks, w.queues, w.asked, w.unqueued, due, task, now)
    while True:
        retire(w, now, limit)
        grant(w, now, limit)
        if due[0]:
            continue
        if w.changed[0]:
            share(w, now)
        time = min(heap_first(timers), heap_first(finishes))
        if time == np.inf:
            return num_instants
        if time > limit:
            now, limit = time, time * (1.0 + tolerance)
            num_instants += 1
        while heap_first(timers) <= limit:
            task = timers.items[1]
            heap_remove(timers, task)
            push(due, task)
        while heap_first(finishes) <= limit:
            finish(w, finishes.items[1], limit)


def run_fast(program: Program, observe: Observer | None = None) -> Times:
    """Execute `program` and return its times, in seconds; `observe` is told what flowed, as in the reference.

    >>> from poseidon_sim.engine.program import make_program
    >>> times = run_fast(make_program([10.0, 20.0], uses=[{0: 1.0}, {0: 1.0}], capacity=[2.0]))
    >>> times.end.tolist()
    [10.0, 15.0]
    """
    world = make_world(program, log_size=0)
    num_instants = execute(world, TOLERANCE)
    if np.isnan(world.tasks["end"]).any():
        raise deadlock(np.flatnonzero(np.isnan(world.tasks["end"])))
    if observe:  # once more, now that the length of the log is known
        world = make_world(program, log_size=int(world.log[0, 0]))
        execute(world, TOLERANCE)
        tasks = world.tasks
        for interval in replay(tasks["flow"], tasks["release"], tasks["route"], world.log[1:]):
            observe(*interval)
    moments = (world.tasks[name].copy() for name in ("ready", "start", "release", "end", "mate"))
    ready, start, release, end, mate = moments
    return Times(ready, start, release, end, mate, num_instants)
