"""How the fast engine lays out a program: records, stacks and heaps, and the way from arrays to them.

One record a task, queue, route, use or link keeps what is read together side by side in memory, and lets
compiled code say `task.latency`. A *route* stands for all tasks whose demand, weight and cap are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import numba
import numpy as np
from numba.core.cpu import CPUTargetOptions

from poseidon_sim.engine.program import Program

Function = TypeVar("Function", bound=Callable[..., Any])

NO_COUNTS = {"_nrt": False} if hasattr(CPUTargetOptions, "_nrt") else {}


def compiled(function: Function) -> Function:
    """Compile with numba and keep the machine code on disk for the next process.

    The function may not allocate: it is compiled without reference counts, whose upkeep for the many arrays
    of a world would take half of the time. (A numba without this option gives the same answers, slower.)
    """
    njit: Any = numba.njit
    return cast(Function, njit(cache=True, error_model="numpy", **NO_COUNTS)(function))


def _record(floats: str, integers: str) -> np.dtype[Any]:
    return np.dtype([(name, "f8") for name in floats.split()] + [(name, "i8") for name in integers.split()])


TASK = _record(
    "work latency delay priority rank ready start flow release end",
    "queue needed route stage left right mate first_dependent last_dependent",
)
QUEUE = _record("", "slots free root last asked")
ROUTE = _record("weight cap served since rate next_rate", "first_use last_use members before root changed seen")
USE = _record("coefficient", "link route place")
LINK = _record(
    "capacity room used kept spare pull flows level",
    "first_point last_point first_place members unfrozen opened touched disturbed full unfair moved",
)


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
    part_links: Any  # stack of links that are shared anew
    touched: Any  # stack of links that some of part_routes use
    log: Any  # (N, 3) time, route, rate: a record of every change of rate; log[0, 0] counts
    rounds: Any  # (2,) number of times that something was shared anew so far, and of attempts


# --- stacks and heaps ---------------------------------------------------------------------------------------


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
    sink(heap, hole, item)


@compiled
def sink(heap: Heap, hole: int, item: int) -> None:
    """Put `item` at `hole` or as far below as its key belongs."""
    items, place, keys = heap
    key, size = keys[item], items[0]
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
def heap_append(heap: Heap, item: int, key: float) -> None:
    """Insert `item` or change its key, out of order: :func:`heap_order` must follow."""
    items, place, keys = heap
    if place[item] == 0:
        items[0] += 1
        items[items[0]] = item
        place[item] = items[0]
    keys[item] = key


@compiled
def heap_order(heap: Heap) -> None:
    """Restore the order of the whole heap, in linear time."""
    for hole in range(heap.items[0] >> 1, 0, -1):
        sink(heap, hole, heap.items[hole])


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


# --- from arrays to records ---------------------------------------------------------------------------------


@compiled
def same_demand(pointers: Any, links: Any, numbers: Any, pairs: Any, a: int, b: int) -> bool:
    size = pointers[a + 1] - pointers[a]
    if pointers[b + 1] - pointers[b] != size or pairs[a, 0] != pairs[b, 0] or pairs[a, 1] != pairs[b, 1]:
        return False
    for i in range(size):
        x, y = pointers[a] + i, pointers[b] + i
        if links[x] != links[y] or numbers[x] != numbers[y]:
            return False
    return True


@compiled
def fill_routes(
    busy: Any, pointers: Any, links: Any, numbers: Any, pairs: Any, table: Any, route: Any, example: Any
) -> int:
    """Number the different demands through the hash table `table` (all -1, its size a power of two)."""
    num_routes, mask = 0, len(table) - 1
    for task in range(len(busy)):
        if not busy[task]:
            continue
        code = pairs[task, 0] * 31 + pairs[task, 1]
        for use in range(pointers[task], pointers[task + 1]):
            code = (code ^ (code >> 31)) * 1099511628211 + links[use] * 668265263 + numbers[use]
        slot = (code ^ (code >> 17) ^ (code >> 37)) & mask
        while table[slot] >= 0 and not same_demand(
            pointers, links, numbers, pairs, example[table[slot]], task
        ):
            slot = (slot + 1) & mask
        if table[slot] < 0:
            table[slot] = num_routes
            example[num_routes] = task
            num_routes += 1
        route[task] = table[slot]
    return num_routes


def find_routes(p: Program, pointers: Any, use_link: Any, coefficient: Any) -> tuple[Any, Any]:
    """Give equal demands one route: return every task's route (-1 without work) and a task of every route."""
    n = p.num_tasks
    table, route = np.full(1 << (2 * n + 2).bit_length(), -1, np.int64), np.full(n, -1, np.int64)
    example = np.empty(n, np.int64)
    pairs: Any = np.stack([p.weight, p.rate_cap], axis=1)
    numbers, pairs = coefficient.view(np.int64), pairs.view(np.int64)  # floats are compared to the bit
    num_routes = fill_routes(p.work > 0, pointers, use_link, numbers, pairs, table, route, example)
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
    route, example = find_routes(p, pointers, use_link, coefficient)
    sizes = np.diff(pointers)[example]
    last_use = np.cumsum(sizes)
    taken = np.repeat(pointers[example] - (last_use - sizes), sizes) + np.arange(sizes.sum())
    last_place = np.cumsum(np.bincount(use_link[taken], minlength=p.num_links))
    first_dependent, dependents = p.dependents
    return World(
        tasks=records(
            TASK,
            n,
            work=p.work,
            latency=p.latency,
            delay=p.delay,
            priority=p.priority,
            queue=p.queue,
            needed=p.needed,
            route=route,
            left=-1,
            right=-1,
            mate=-1,
            ready=np.nan,
            start=np.nan,
            release=np.nan,
            end=np.nan,
            first_dependent=first_dependent[:-1],
            last_dependent=first_dependent[1:],
        ),
        dependents=dependents,
        queues=records(QUEUE, p.num_queues, slots=p.queue_slots, free=p.queue_slots, root=-1, last=-1),
        routes=records(
            ROUTE,
            len(example),
            weight=p.weight[example],
            cap=p.rate_cap[example],
            root=-1,
            first_use=last_use - sizes,
            last_use=last_use,
        ),
        uses=records(
            USE,
            len(taken),
            coefficient=coefficient[taken],
            link=use_link[taken],
            route=np.repeat(np.arange(len(example)), sizes),
        ),
        links=records(
            LINK,
            p.num_links,
            capacity=p.capacity,
            room=p.capacity,
            first_point=p.curve_ptr[:-1],
            last_point=p.curve_ptr[1:],
            first_place=np.concatenate([[0], last_place])[:-1],
        ),
        points=np.stack([p.curve_flows, p.curve_capacity], axis=1),
        on_link=np.zeros(len(taken), np.int64),
        timers=heap(n),
        finishes=heap(len(example)),
        levels=heap(p.num_links + len(example)),
        due=stack(n),
        unqueued=stack(n),
        asked=stack(p.num_queues),
        changed=stack(len(example)),
        part_routes=stack(len(example)),
        part_links=stack(p.num_links),
        touched=stack(p.num_links),
        log=np.zeros((log_size + 1, 3)),
        rounds=np.zeros(2, np.int64),
    )
