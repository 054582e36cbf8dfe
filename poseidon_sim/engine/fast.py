"""The fast engine: the semantics of the reference, compiled with numba, on records instead of processes.

Three ideas make it fast and none of them changes an answer:

* Tasks whose demand, weight and cap are equal share one *route*. All members of a route flow at one rate, so the
  sharing problem has one unknown a route, and a member ends when the work *served* to each member since the route
  became busy reaches the member's own *rank*.
* Only the routes and links connected with a change are shared anew; the others keep their rates and their ends.
* Heaps find the next end: one of timers (latency, delay), one of routes; a queue and a route keep their members in
  skew heaps threaded through the tasks, in the order (rank, time ready, task id).

Not done yet: within one connected part a change re-solves the whole part. Networks of thousands of different
concurrent routes would gain from stopping where the levels no longer change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import numba
import numpy as np

from poseidon_sim.engine.program import Program, Times
from poseidon_sim.engine.reference import TOLERANCE, deadlock

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile with numba and keep the machine code on disk for the next process."""
    return cast(Function, numba.njit(cache=True, error_model="numpy")(function))


def _record(floats: str, integers: str) -> np.dtype[Any]:
    return np.dtype([(name, "f8") for name in floats.split()] + [(name, "i8") for name in integers.split()])


TASK = _record(
    "work latency delay priority rank ready start flow release end",
    "queue needed route stage left right first_dependent last_dependent",
)
QUEUE = _record("", "free root asked")
ROUTE = _record("weight cap served since rate next_rate", "first_use last_use members root changed seen")
USE = _record("coefficient", "link route place")
LINK = _record("capacity spare pull", "first_point last_point first_place members unfrozen seen")

STARTED, FLOWED, DELAYED = 1, 2, 3  # stages: what is behind a task that is due


class Heap(NamedTuple):
    """A binary heap of item numbers, smallest key first; `items[0]` holds its size, `place` is 0 outside."""

    items: Any
    place: Any
    key: Any


class World(NamedTuple):
    """Everything a run touches. Stacks are integer arrays whose first entry is their size."""

    tasks: Any
    dependents: Any
    queues: Any
    routes: Any
    uses: Any
    links: Any
    points: Any  # (P, 2) number of flows, capacity
    on_link: Any  # active uses of link l: on_link[first_place : first_place + members]
    timers: Heap  # task -> end of its latency or delay
    finishes: Heap  # route -> end of its next member
    levels: Heap  # link, or num_links + route -> level at which it fills, or reaches its cap
    due: Any  # stack of tasks to retire
    unqueued: Any  # stack of ready tasks that need no queue
    asked: Any  # stack of queues to look at
    changed: Any  # stack of routes that won or lost members
    part_routes: Any
    part_links: Any
    log: Any  # (N, 3) time, route, rate: a record of every change of rate; log[0, 0] counts
    rounds: Any  # (1,) number of parts shared so far


# --- stacks and heaps ------------------------------------------------------------------------------------------


@compiled
def push(stack: Any, item: int) -> None:
    stack[0] += 1
    stack[stack[0]] = item


@compiled
def pop(stack: Any) -> int:
    stack[0] -= 1
    return stack[stack[0] + 1]  # type: ignore[no-any-return]


@compiled
def heap_set(heap: Heap, item: int, key: float) -> None:
    """Insert `item`, or move it to where its new key belongs."""
    items, place, keys = heap
    hole = place[item]
    if hole == 0:
        items[0] += 1
        hole = items[0]
    keys[item] = key
    while hole > 1 and key < keys[items[hole >> 1]]:
        items[hole] = items[hole >> 1]
        place[items[hole]] = hole
        hole >>= 1
    size = items[0]
    while True:
        child = 2 * hole
        if child < size and keys[items[child + 1]] < keys[items[child]]:
            child += 1
        if child > size or keys[items[child]] >= key:
            break
        items[hole] = items[child]
        place[items[hole]] = hole
        hole = child
    items[hole] = item
    place[item] = hole


@compiled
def heap_remove(heap: Heap, item: int) -> None:
    """Take `item` out; silent when it is not in."""
    items, place, keys = heap
    hole = place[item]
    if hole == 0:
        return
    last = items[items[0]]
    items[0] -= 1
    place[item] = 0
    if last != item:
        items[hole] = last
        place[last] = hole
        heap_set(heap, last, keys[last])


@compiled
def heap_first(heap: Heap) -> float:
    """Return the smallest key, or infinity."""
    return heap.key[heap.items[1]] if heap.items[0] else np.inf


@compiled
def before(tasks: Any, a: int, b: int) -> bool:
    if tasks[a].rank != tasks[b].rank:
        return tasks[a].rank < tasks[b].rank  # type: ignore[no-any-return]
    if tasks[a].ready != tasks[b].ready:
        return tasks[a].ready < tasks[b].ready  # type: ignore[no-any-return]
    return a < b


@compiled
def merge(tasks: Any, a: int, b: int) -> int:
    """Merge two skew heaps of tasks, given by their roots (-1 is empty), and return the root."""
    if a < 0 or b < 0:
        return max(a, b)
    if before(tasks, b, a):
        a, b = b, a
    root = a
    while True:
        right = tasks[a].right
        tasks[a].right = tasks[a].left
        if right < 0:
            tasks[a].left = b
            return root
        if before(tasks, b, right):
            right, b = b, right
        tasks[a].left = right
        a = right


@compiled
def insert(tasks: Any, root: int, task: int, rank: float) -> int:
    tasks[task].rank, tasks[task].left, tasks[task].right = rank, -1, -1
    return merge(tasks, root, task)


# --- (A) retire ------------------------------------------------------------------------------------------------


@compiled
def become_ready(w: World, task: int, now: float) -> None:
    t = w.tasks[task]
    t.ready = now
    if t.queue >= 0:
        w.queues[t.queue].root = insert(w.tasks, w.queues[t.queue].root, task, t.priority)
        ask(w, t.queue)
    elif t.work > 0 or t.latency > 0 or t.delay > 0:
        push(w.unqueued, task)
    else:  # a join
        t.start, t.release, t.stage = now, now, DELAYED
        push(w.due, task)


@compiled
def ask(w: World, queue: int) -> None:
    """Have the next (B) look at this queue: a slot or a task has come."""
    if w.queues[queue].asked == 0:
        w.queues[queue].asked = 1
        push(w.asked, queue)


@compiled
def retire(w: World, now: float, limit: float) -> None:
    """(A) Let every task that is due take its next step, and what follows at once from that."""
    while w.due[0]:
        task = pop(w.due)
        t = w.tasks[task]
        if t.stage == STARTED:
            if t.work > 0:
                join_route(w, task, now)
                continue
            t.stage = FLOWED
        if t.stage == FLOWED:
            t.release = now
            if t.queue >= 0:
                w.queues[t.queue].free += 1
                ask(w, t.queue)
            if now + t.delay > limit:
                t.stage = DELAYED
                heap_set(w.timers, task, now + t.delay)
                continue
        t.end = now
        for index in range(t.first_dependent, t.last_dependent):
            dependent = w.dependents[index]
            w.tasks[dependent].needed -= 1
            if w.tasks[dependent].needed == 0:
                become_ready(w, dependent, now)


# --- (B) grant -------------------------------------------------------------------------------------------------


@compiled
def grant(w: World, now: float, limit: float) -> None:
    """(B) Start ready tasks without a queue; hand free slots to the first in line."""
    while w.unqueued[0]:
        begin(w, pop(w.unqueued), now, limit)
    while w.asked[0]:
        q = w.queues[pop(w.asked)]
        q.asked = 0
        while q.free > 0 and q.root >= 0:
            task = q.root
            q.root = merge(w.tasks, w.tasks[task].left, w.tasks[task].right)
            q.free -= 1
            begin(w, task, now, limit)


@compiled
def begin(w: World, task: int, now: float, limit: float) -> None:
    t = w.tasks[task]
    t.start, t.stage = now, STARTED
    if now + t.latency > limit:
        heap_set(w.timers, task, now + t.latency)
    else:
        push(w.due, task)


# --- (C) share -------------------------------------------------------------------------------------------------


@compiled
def join_route(w: World, task: int, now: float) -> None:
    """Begin the fluid phase."""
    t = w.tasks[task]
    t.stage, t.flow = FLOWED, now
    r = w.routes[t.route]
    if r.members == 0:
        r.served, r.since, r.rate = 0.0, now, 0.0
        for use in range(r.first_use, r.last_use):
            k = w.links[w.uses[use].link]
            w.uses[use].place = k.first_place + k.members
            w.on_link[w.uses[use].place] = use
            k.members += 1
    else:
        r.served += r.rate * (now - r.since)
        r.since = now
    r.root = insert(w.tasks, r.root, task, r.served + t.work)
    r.members += 1
    mark(w, t.route)


@compiled
def mark(w: World, route: int) -> None:
    """Have the next (C) share anew around this route."""
    if w.routes[route].changed == 0:
        w.routes[route].changed = 1
        push(w.changed, route)


@compiled
def finish(w: World, route: int, limit: float) -> None:
    """Make the members of a route due whose fluid phase ends by `limit`."""
    r = w.routes[route]
    while r.root >= 0 and r.since + (w.tasks[r.root].rank - r.served) / r.rate <= limit:
        push(w.due, r.root)
        r.root = merge(w.tasks, w.tasks[r.root].left, w.tasks[r.root].right)
        r.members -= 1
    mark(w, route)
    if r.members:
        heap_set(w.finishes, route, r.since + (w.tasks[r.root].rank - r.served) / r.rate)
        return
    heap_remove(w.finishes, route)
    for use in range(r.first_use, r.last_use):
        k = w.links[w.uses[use].link]
        k.members -= 1
        moved = w.on_link[k.first_place + k.members]
        w.on_link[w.uses[use].place] = moved
        w.uses[moved].place = w.uses[use].place


@compiled
def connect(w: World, route: int, this_round: int) -> None:
    """Gather the part of the network connected with `route` that this round has not seen yet."""
    w.part_routes[0] = w.part_links[0] = 0
    push(w.part_routes, route)
    w.routes[route].seen = this_round
    next_route = 1
    while next_route <= w.part_routes[0]:
        r = w.routes[w.part_routes[next_route]]
        next_route += 1
        for use in range(r.first_use, r.last_use):
            k = w.links[w.uses[use].link]
            if k.seen == this_round:
                continue
            k.seen = this_round
            push(w.part_links, w.uses[use].link)
            for place in range(k.first_place, k.first_place + k.members):
                other = w.uses[w.on_link[place]].route
                if w.routes[other].seen != this_round:
                    w.routes[other].seen = this_round
                    push(w.part_routes, other)


@compiled
def link_capacity(w: World, link: int, flows: float) -> float:
    first, last = w.links[link].first_point, w.links[link].last_point
    if first == last:
        return w.links[link].capacity  # type: ignore[no-any-return]
    x, y = w.points[:, 0], w.points[:, 1]
    if flows <= x[first]:
        return y[first]  # type: ignore[no-any-return]
    for i in range(first + 1, last):
        if flows == x[i]:
            return y[i]  # type: ignore[no-any-return]
        if flows < x[i]:
            if np.isinf(y[i - 1]) or np.isinf(y[i]):
                return np.inf
            return y[i - 1] + (y[i] - y[i - 1]) * ((flows - x[i - 1]) / (x[i] - x[i - 1]))  # type: ignore[no-any-return]
    return y[last - 1]  # type: ignore[no-any-return]


@compiled
def fill(w: World) -> None:
    """Progressive filling of the gathered part: sets `next_rate` of its routes."""
    num_links = len(w.links)
    for index in range(1, w.part_routes[0] + 1):
        r = w.routes[w.part_routes[index]]
        r.next_rate = -1.0
        if r.cap < np.inf and r.members:
            heap_set(w.levels, num_links + w.part_routes[index], r.cap / r.weight)
    for index in range(1, w.part_links[0] + 1):
        link = w.part_links[index]
        k = w.links[link]
        k.pull, k.unfrozen, flows = 0.0, k.members, 0.0
        for place in range(k.first_place, k.first_place + k.members):
            u = w.uses[w.on_link[place]]
            flows += u.coefficient * w.routes[u.route].members
            k.pull += u.coefficient * w.routes[u.route].members * w.routes[u.route].weight
        if k.members:
            k.spare = link_capacity(w, link, flows)
            heap_set(w.levels, link, k.spare / k.pull)
    while w.levels.items[0]:
        item, level = w.levels.items[1], heap_first(w.levels)
        heap_remove(w.levels, item)
        if level == np.inf:
            continue
        if item >= num_links:
            freeze(w, item - num_links, level, w.routes[item - num_links].cap)
            continue
        k = w.links[item]
        for place in range(k.first_place, k.first_place + k.members):
            route = w.uses[w.on_link[place]].route
            freeze(w, route, level, level * w.routes[route].weight)


@compiled
def freeze(w: World, route: int, level: float, rate: float) -> None:
    """Fix the rate of a route at this level and take its share from its links."""
    r = w.routes[route]
    if r.next_rate >= 0:
        return
    r.next_rate = rate
    for use in range(r.first_use, r.last_use):
        link = w.uses[use].link
        k = w.links[link]
        k.unfrozen -= 1
        k.spare -= w.uses[use].coefficient * r.members * rate
        k.pull -= w.uses[use].coefficient * r.members * r.weight
        if k.unfrozen == 0:
            heap_remove(w.levels, link)
        elif w.levels.place[link]:  # rounding may not push a link's level below the one already reached
            heap_set(w.levels, link, max(level, k.spare / k.pull))


@compiled
def share(w: World, now: float) -> None:
    """(C) Share anew every part of the network in which a route won or lost members."""
    this_round = w.rounds[0] + 1
    w.rounds[0] = this_round
    while w.changed[0]:
        route = pop(w.changed)
        w.routes[route].changed = 0
        if w.routes[route].seen == this_round:
            continue
        connect(w, route, this_round)
        fill(w)
        for index in range(1, w.part_routes[0] + 1):
            set_rate(w, w.part_routes[index], now)


@compiled
def set_rate(w: World, route: int, now: float) -> None:
    r = w.routes[route]
    if r.members == 0:
        return
    rate = r.next_rate if r.next_rate >= 0 else np.inf
    if rate != r.rate:
        r.served += r.rate * (now - r.since)
        r.since, r.rate = now, rate
        log_entry(w.log, now, route, rate)
    heap_set(w.finishes, route, r.since + max(0.0, w.tasks[r.root].rank - r.served) / rate)


@compiled
def log_entry(log: Any, now: float, route: int, rate: float) -> None:
    """Count every entry; keep those that fit."""
    log[0, 0] += 1
    entry = int(log[0, 0])
    if entry < len(log):
        log[entry, 0], log[entry, 1], log[entry, 2] = now, route, rate


@compiled
def execute(w: World, tolerance: float) -> int:
    """Run to the end and return the number of instants."""
    now = limit = 0.0
    num_instants = min(1, len(w.tasks))
    for task in range(len(w.tasks)):
        if w.tasks[task].needed == 0:
            become_ready(w, task, now)
    while True:
        retire(w, now, limit)
        grant(w, now, limit)
        if w.due[0]:
            continue
        share(w, now)
        time = min(heap_first(w.timers), heap_first(w.finishes))
        if time == np.inf:
            return num_instants
        if time > limit:
            now, limit = time, time * (1.0 + tolerance)
            num_instants += 1
        while heap_first(w.timers) <= limit:
            task = w.timers.items[1]
            heap_remove(w.timers, task)
            push(w.due, task)
        while heap_first(w.finishes) <= limit:
            finish(w, w.finishes.items[1], limit)


# --- from arrays to records and back ---------------------------------------------------------------------------


@compiled
def find_routes(busy: Any, pointers: Any, links: Any, numbers: Any, pairs: Any) -> tuple[Any, Any]:
    """Give equal demands one route: return the route of every task (-1 without work) and a task of every route.

    `numbers` (the coefficients) and `pairs` (weight, cap of every task) hold the bits of floats as integers.
    """
    table_size = 4
    while table_size < 2 * len(busy):
        table_size *= 2
    table = np.full(table_size, -1, np.int64)
    route = np.full(len(busy), -1, np.int64)
    example = np.empty(len(busy), np.int64)
    num_routes = 0
    for task in range(len(busy)):
        if not busy[task]:
            continue
        first, size = pointers[task], pointers[task + 1] - pointers[task]
        code = pairs[task, 0] * 31 + pairs[task, 1]
        for use in range(first, first + size):
            code = (code ^ (code >> 31)) * 1099511628211 + links[use] * 668265263 + numbers[use]
        slot = (code ^ (code >> 17) ^ (code >> 37)) & (table_size - 1)
        while table[slot] >= 0:
            other = example[table[slot]]
            start = pointers[other]
            if (
                pointers[other + 1] - start == size
                and pairs[other, 0] == pairs[task, 0]
                and pairs[other, 1] == pairs[task, 1]
                and np.array_equal(links[start : start + size], links[first : first + size])
                and np.array_equal(numbers[start : start + size], numbers[first : first + size])
            ):
                break
            slot = (slot + 1) & (table_size - 1)
        if table[slot] < 0:
            table[slot] = num_routes
            example[num_routes] = task
            num_routes += 1
        route[task] = table[slot]
    return route, example[:num_routes]


def limiting_uses(p: Program) -> tuple[Any, Any, Any]:
    """Return the CSR demands without the links that limit nothing (infinite capacity and no curve)."""
    limits = np.isfinite(p.capacity) | (np.diff(p.curve_ptr) > 0)
    kept = limits[p.use_link]
    pointers = np.concatenate([[0], np.cumsum(kept)])[p.use_ptr]
    return pointers, p.use_link[kept], p.use_coefficient[kept]


def records(dtype: np.dtype[Any], size: int, **columns: Any) -> Any:
    table = np.zeros(size, dtype)
    for name, values in columns.items():
        table[name] = values
    return table


def heap(size: int) -> Heap:
    return Heap(np.zeros(size + 1, np.int64), np.zeros(size, np.int64), np.zeros(size))


def stack(size: int) -> Any:
    return np.zeros(size + 1, np.int64)


def make_world(p: Program, log_size: int) -> World:
    """Lay a program out as records."""
    n = p.num_tasks
    pointers, use_link, coefficient = limiting_uses(p)
    pairs = np.stack([p.weight, p.rate_cap], axis=1).view(np.int64)
    route, example = find_routes(p.work > 0, pointers, use_link, coefficient.view(np.int64), pairs)
    sizes = np.diff(pointers)[example]
    last_use = np.cumsum(sizes)
    taken = np.repeat(pointers[example] - (last_use - sizes), sizes) + np.arange(sizes.sum())
    last_place = np.cumsum(np.bincount(use_link[taken], minlength=p.num_links))
    last_dependent = np.cumsum(np.bincount(p.dep, minlength=n))
    waits_for = np.repeat(np.arange(n), np.diff(p.dep_ptr))
    return World(
        tasks=records(
            TASK, n, work=p.work, latency=p.latency, delay=p.delay, priority=p.priority, queue=p.queue,
            needed=p.needed, route=route, left=-1, right=-1, ready=np.nan, start=np.nan, release=np.nan, end=np.nan,
            first_dependent=np.concatenate([[0], last_dependent])[:-1], last_dependent=last_dependent,
        ),
        dependents=waits_for[np.argsort(p.dep, kind="stable")],
        queues=records(QUEUE, p.num_queues, free=p.queue_slots, root=-1),
        routes=records(
            ROUTE, len(example), weight=p.weight[example], cap=p.rate_cap[example], root=-1,
            first_use=last_use - sizes, last_use=last_use,
        ),
        uses=records(
            USE, len(taken), coefficient=coefficient[taken], link=use_link[taken],
            route=np.repeat(np.arange(len(example)), sizes),
        ),
        links=records(
            LINK, p.num_links, capacity=p.capacity, first_point=p.curve_ptr[:-1], last_point=p.curve_ptr[1:],
            first_place=np.concatenate([[0], last_place])[:-1],
        ),
        points=np.stack([p.curve_flows, p.curve_capacity], axis=1),
        on_link=np.zeros(len(taken), np.int64),
        timers=heap(n), finishes=heap(len(example)), levels=heap(p.num_links + len(example)),
        due=stack(n), unqueued=stack(n), asked=stack(p.num_queues), changed=stack(len(example)),
        part_routes=stack(len(example)), part_links=stack(p.num_links),
        log=np.zeros((log_size + 1, 3)), rounds=np.zeros(1, np.int64),
    )


def run_fast(program: Program) -> Times:
    """Execute `program` and return its times, in seconds.

    >>> from poseidon_sim.engine.program import make_program
    >>> times = run_fast(make_program([10.0, 20.0], uses=[{0: 1.0}, {0: 1.0}], capacity=[2.0]))
    >>> times.end.tolist()
    [10.0, 15.0]
    """
    world = make_world(program, log_size=0)
    num_instants = execute(world, TOLERANCE)
    unfinished = np.isnan(world.tasks["end"])
    if unfinished.any():
        raise deadlock(np.flatnonzero(unfinished))
    ready, start, release, end = (world.tasks[name].copy() for name in ("ready", "start", "release", "end"))
    return Times(ready, start, release, end, num_instants)
