"""Invariants of any run, asserted without a look at the solver: what `check=True` does.

An engine tells what flowed between two instants, as ``observe(begin, finish, tasks, rates)``; everything else
is read off the times it answers. This file knows the semantics and neither engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from poseidon_sim.engine.program import Floats, Ints, Program, Times
from poseidon_sim.errors import CheckError

Observer = Callable[[float, float, Sequence[int] | Ints, Sequence[float] | Floats], None]

TOLERANCE = 1e-9
"""Relative slack of every comparison."""

INSTANT = 1e-11
"""Relative slack of a moment: an engine may let completions this close happen together."""


class Checker:
    """Watches one run: pass :meth:`observe` to the engine, then call :meth:`finish` with its times.

    Raises
    ------
    CheckError
        As soon as an invariant does not hold, naming the task, link or queue and the moment.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.delivered = np.zeros(program.num_tasks)
        self.clock = 0.0

    def observe(
        self, begin: float, finish: float, tasks: Sequence[int] | Ints, rates: Sequence[float] | Floats
    ) -> None:
        """Check the sharing between two instants and count the work that it delivers."""
        if not self.clock <= begin <= finish:
            raise CheckError(
                f"check: {begin} s to {finish} s follows an interval that ended at {self.clock} s"
            )
        self.clock = finish
        active, rate = np.asarray(tasks, dtype=np.int64), np.asarray(rates, dtype=np.float64)
        if not (rate > 0).all():
            raise CheckError(f"check: task {active[rate <= 0][0]} does not move at {begin} s")
        self.check_sharing(begin, active, rate)
        self.delivered[active] += rate * (finish - begin)

    def check_sharing(self, now: float, active: Ints, rate: Floats) -> None:
        """No link above its capacity; every flow at its cap, or among the fastest on a link that is full."""
        p = self.program
        use, owner = gather(p.use_ptr, active)
        link, coefficient = p.use_link[use], p.use_coefficient[use]
        load = np.bincount(link, weights=coefficient * rate[owner], minlength=p.num_links)
        capacity = capacities(
            p, np.bincount(link, weights=coefficient, minlength=p.num_links).astype(np.float64)
        )
        over = load > capacity * (1 + TOLERANCE)
        if over.any():
            worst = int(np.argmax(over))
            raise CheckError(
                f"check: link {worst} carries {load[worst]} of {capacity[worst]} units/s at {now} s"
            )
        pace = rate / p.weight[active]
        fastest = np.zeros(p.num_links)
        np.maximum.at(fastest, link, pace[owner])
        bound = (load >= capacity * (1 - TOLERANCE))[link] & (pace[owner] >= fastest[link] * (1 - TOLERANCE))
        held = rate >= p.rate_cap[active] * (1 - TOLERANCE)
        held[owner[bound]] = True
        if (rate > p.rate_cap[active] * (1 + TOLERANCE)).any():
            raise CheckError(
                f"check: task {active[rate > p.rate_cap[active]][0]} is above its rate cap at {now} s"
            )
        if not held.all():
            raise CheckError(
                f"check: task {active[~held][0]} could go faster at {now} s: it is below its cap and on none "
                "of its links both full and among the fastest"
            )

    def finish(self, times: Times) -> None:
        """Check the times and that every task got the work it asked for."""
        check_life(self.program, times)
        check_dependencies(self.program, times)
        check_queues(self.program, times)
        p = self.program
        fastest = fastest_possible(p)  # infinite for a task whose fluid phase may take no time
        finite = np.isfinite(fastest)
        slack = TOLERANCE * p.work + np.where(finite, fastest, 0.0) * INSTANT * times.release
        met = np.abs(self.delivered - p.work) <= slack
        rule(met | ~finite | (p.work == 0), "gets exactly the work it asks for")


def rule(holds: Any, text: str) -> None:
    if not holds.all():
        raise CheckError(f"check: task {int(np.argmin(holds))} breaks the rule that a task {text}")


def gather(pointers: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Return the positions of the entries of these CSR rows, and for each the index of its row in `rows`.

    >>> gather(np.array([0, 2, 2, 5]), np.array([2, 0]))
    (array([2, 3, 4, 0, 1]), array([0, 0, 0, 1, 1]))
    """
    sizes = pointers[rows + 1] - pointers[rows]
    owner = np.repeat(np.arange(len(rows)), sizes)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return pointers[rows][owner] + within, owner


def capacities(p: Program, flows: Floats) -> Floats:
    """Return the capacity of every link at these numbers of flows, units/s."""
    capacity = p.capacity.copy()
    for link in np.flatnonzero(np.diff(p.curve_ptr)):
        points = slice(p.curve_ptr[link], p.curve_ptr[link + 1])
        value = np.interp(flows[link], p.curve_flows[points], p.curve_capacity[points])
        capacity[link] = np.inf if np.isnan(value) else value
    return capacity


def fastest_possible(p: Program) -> Floats:
    """Return a rate that no task can exceed: its cap, or the most any one of its links could ever give it."""
    capacity = p.capacity.copy()
    for link in np.flatnonzero(np.diff(p.curve_ptr)):
        capacity[link] = p.curve_capacity[p.curve_ptr[link] : p.curve_ptr[link + 1]].max()
    rate = p.rate_cap.copy()
    owner = np.repeat(np.arange(p.num_tasks), np.diff(p.use_ptr))
    np.minimum.at(rate, owner, capacity[p.use_link] / p.use_coefficient)
    return rate


def check_life(p: Program, t: Times) -> None:
    """Every task ran once, and its four moments are in order."""
    rule(
        np.isfinite(t.ready) & np.isfinite(t.start) & np.isfinite(t.release) & np.isfinite(t.end), "runs once"
    )
    slack = INSTANT * t.end
    rule((t.ready >= 0) & (t.start >= t.ready), "starts when it is ready or later")
    rule((p.queue >= 0) | (t.start == t.ready), "without a queue starts when it is ready")
    flow = t.release - t.start - p.latency
    rule(flow >= -slack, "holds its queue for its latency")
    rule((p.work > 0) | (np.abs(flow) <= slack), "without work is released after its latency")
    rule(np.abs(t.end - t.release - p.delay) <= slack, "ends its delay after its release")


def check_dependencies(p: Program, t: Times) -> None:
    """A task is ready when the last of the dependencies it needs has ended, neither sooner nor later."""
    ended = t.end[p.dep]
    row = np.repeat(np.arange(p.num_tasks), np.diff(p.dep_ptr))
    ended = ended[np.lexsort((ended, row))]
    expected = np.zeros(p.num_tasks)
    waits = p.needed > 0
    expected[waits] = ended[(p.dep_ptr[:-1] + p.needed - 1)[waits]]
    rule(t.ready == expected, "is ready at the end of the last dependency it needs")


def check_queues(p: Program, t: Times) -> None:
    """No queue serves more tasks at once than it has slots (tasks that hold one for no time are not seen)."""
    held = np.flatnonzero((p.queue >= 0) & (t.release > t.start))
    queue = np.tile(p.queue[held], 2)
    moment = np.concatenate([t.release[held], t.start[held]])
    change = np.repeat([-1, 1], len(held))
    order = np.lexsort((change, moment, queue))
    serving = np.cumsum(change[order])  # every queue comes back to zero, so one sum does for all
    over = serving > p.queue_slots[queue[order]]
    if over.any():
        at = order[int(np.argmax(over))]
        raise CheckError(f"check: queue {queue[at]} serves more tasks than it has slots at {moment[at]} s")


def replay(
    flow: Floats, release: Floats, route: Ints, log: Floats
) -> Iterator[tuple[float, float, Ints, Floats]]:
    """Turn a log of (time, route, rate) into what flowed between instants.

    `flow` and `release` bound the fluid phase of every task (nan and -1 in `route`: it has none).
    """
    lasting = np.flatnonzero((route >= 0) & (release > flow))
    entering = lasting[np.argsort(flow[lasting], kind="stable")]
    moments = np.unique(np.concatenate([flow[lasting], release[lasting], log[:, 0]]))
    entered = np.searchsorted(flow[entering], moments, side="right")
    logged = np.searchsorted(log[:, 0], moments, side="right")
    rate = np.zeros(int(route.max(initial=-1)) + 1)
    active = np.empty(0, dtype=np.int64)
    for index in range(len(moments) - 1):
        first = slice(entered[index - 1] if index else 0, entered[index])
        active = np.concatenate([active[release[active] > moments[index]], entering[first]])
        for row in range(logged[index - 1] if index else 0, logged[index]):
            rate[int(log[row, 1])] = log[row, 2]
        if len(active):
            yield float(moments[index]), float(moments[index + 1]), active, rate[route[active]]
