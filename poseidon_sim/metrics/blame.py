"""What a task spent its time on: latency, its own work on its tightest link, and what sharing added."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from poseidon_sim.metrics.links import link_words
from poseidon_sim.plan.record import KINDS
from poseidon_sim.trace import Trace

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
WAITING = "waiting"
_COMPUTE = {
    "forward": "compute",
    "backward": "compute",
    "rebuild": "rebuilding from factors",
    "update": "quantise, pack and update",
}
_LATENCY = {"send": "message latency", "collective": "collective latency"}
_NETWORK = ("node port", "leaf", "rate of a connection")


Words = tuple[str, str, str, str]


def pieces(trace: Trace, tasks: Ints) -> tuple[Floats, Ints, list[Words]]:
    """Cut each of `tasks` into four pieces and say what each was spent on.

    Returns
    -------
    (n, 5) moments in seconds: start, fluid phase begins, own work done, fluid phase over, end; (n,) which of the rows
    of four words in the list says what the pieces between them were.

    "Own work" is the time that the task and its equals (same label, layer and iteration,
    at the same time) need on their tightest link with that link to themselves; the rest of the fluid
    phase is contention.
    """
    program, times = trace.program, trace.times
    start, release, end = times.start[tasks], times.release[tasks], times.end[tasks]
    fluid = np.minimum(start + program.latency[tasks], release)
    owner, use = _rows(program.use_ptr, tasks)
    load, capacity = _own_load(trace, tasks[owner], use)
    own = load / capacity
    capped = np.where(
        np.isfinite(program.rate_cap[tasks]), program.work[tasks] / program.rate_cap[tasks], 0.0
    )
    alone = np.maximum(_row_max(own, owner, len(tasks)), capped)
    span = release - fluid
    alone = np.where(alone >= span * (1 - 1e-9), span, alone)
    contended = alone < span
    busy = own.copy()
    ask = np.flatnonzero(contended[owner])
    busy[ask] = (
        _carried(trace, program.use_link[use[ask]], fluid[owner[ask]], release[owner[ask]]) / capacity[ask]
    )
    tightest = _first_max(busy, owner, len(tasks))
    links = np.where(tightest >= 0, program.use_link[use[np.maximum(tightest, 0)]] if len(use) else -1, -1)
    by_cap = ~contended & (capped > _row_max(own, owner, len(tasks)))
    codes = (trace.table.kind[tasks].astype(np.int64) * (program.num_links + 1) + links + 1) * 2 + by_cap
    different, row = np.unique(codes, return_inverse=True)
    words = _Words(trace)
    names = []
    for code in different.tolist():
        kind, link = divmod(code // 2, program.num_links + 1)
        names.append(words.name(KINDS[kind], link - 1, bool(code % 2)))
    return np.stack([start, fluid, fluid + alone, release, end], axis=1), row, names


def subject_of(blame: str) -> str:
    """Return what a blame is about: a link for its transfers and for contention on it.

    >>> subject_of("contention: PCIe to host"), subject_of("contention: GPU")
    ('PCIe to host', 'compute')
    """
    subject = blame.removeprefix("transfer: ").removeprefix("contention: ")
    return "compute" if subject == "GPU" else subject


def subject_words(subject: str, collective_calls: int | None = None) -> str:
    """Return how a sentence names a subject.

    >>> subject_words("leaf uplink"), subject_words("collective latency", 322)
    ('network: leaf uplink', 'latency of 322 collective calls')
    """
    if subject == "collective latency":
        if collective_calls is None:
            return "latency of collectives"
        return f"latency of {collective_calls} collective call{'' if collective_calls == 1 else 's'}"
    if subject == "message latency":
        return "latency of messages"
    return f"network: {subject}" if subject.startswith(_NETWORK) else subject


class _Words:
    """Names for what a task of a kind spends its time on when a link limits it."""

    def __init__(self, trace: Trace) -> None:
        self.link = {link: link_words(kind) for (kind, _), link in trace.fabric.of.items()}

    def name(self, kind: str, link: int, by_cap: bool) -> Words:
        latency = _LATENCY.get(kind, "latency")
        where = self.link.get(link, "a link without a limit")
        if kind in _COMPUTE:
            return (latency, _COMPUTE[kind], "contention: GPU", latency)
        if kind == "join":
            return (WAITING, WAITING, WAITING, WAITING)
        if kind == "load":
            return (latency, "input", f"contention: {where}", latency)
        own = "transfer: rate of a connection" if by_cap else f"transfer: {where}"
        if kind == "host":
            own = where
        return (latency, own, f"contention: {where}", latency)


def _rows(pointers: Ints, tasks: Ints) -> tuple[Ints, Ints]:
    """Return (position in `tasks`, index into the CSR arrays) of every entry of the tasks' rows."""
    counts = pointers[tasks + 1] - pointers[tasks]
    owner = np.repeat(np.arange(len(tasks)), counts)
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    return owner, pointers[tasks][owner] + within


def _row_max(values: Floats, owner: Ints, size: int) -> Floats:
    out = np.zeros(size)
    np.maximum.at(out, owner, values)
    return out


def _first_max(values: Floats, owner: Ints, size: int) -> Ints:
    """Return, per owner, the first position that holds its largest value (to 1e-6), or -1."""
    most = _row_max(values, owner, size)
    hits = np.flatnonzero(values >= most[owner] * (1 - 1e-6))[::-1]
    found = np.full(size, -1, dtype=np.int64)
    found[owner[hits]] = hits
    return found


def _own_load(trace: Trace, tasks: Ints, use: Ints) -> tuple[Floats, Floats]:
    """Return, for each use of a task, what its group puts on that link, and the link's capacity then.

    The group: tasks of the same label, layer and iteration whose fluid phases overlap this one's. Folded and
    unfolded runs so agree: one task with coefficient 15, or 15 tasks.
    """
    program, table, times = trace.program, trace.table, trace.times
    group = table.label.astype(np.int64) * (len(table.layer_names) + 1) + table.layer + 1
    group = group * (int(table.iteration.max(initial=0)) + 1) + table.iteration
    every = program.use_owner
    key = group[every] * program.num_links + program.use_link
    wanted = key[use]
    members = np.flatnonzero(np.isin(key, wanted))
    members = members[np.argsort(key[members], kind="stable")]
    sorted_keys = key[members]
    low, high = np.searchsorted(sorted_keys, wanted, "left"), np.searchsorted(sorted_keys, wanted, "right")
    row, at = _rows(np.stack([low, high], axis=1).ravel(), 2 * np.arange(len(wanted)))
    member = members[at]
    other, me = every[member], tasks[row]
    together = (times.start[other] < times.release[me]) & (times.release[other] > times.start[me])
    together |= other == me
    coefficient = np.where(together, program.use_coefficient[member], 0.0)
    load = np.bincount(row, coefficient * program.work[other], len(wanted)).astype(np.float64)
    flows = np.bincount(row, coefficient, len(wanted)).astype(np.float64)
    return load, _capacity(trace, program.use_link[use], flows)


def _capacity(trace: Trace, links: Ints, flows: Floats) -> Floats:
    """Return the capacity of each link when `flows` flows share it."""
    p = trace.program
    capacity = p.capacity[links].copy()
    for link in np.unique(links[np.diff(p.curve_ptr)[links] > 0]).tolist():
        row = slice(int(p.curve_ptr[link]), int(p.curve_ptr[link + 1]))
        mine = links == link
        capacity[mine] = np.interp(flows[mine], p.curve_flows[row], p.curve_capacity[row])
    return capacity


def _carried(trace: Trace, links: Ints, begin: Floats, end: Floats) -> Floats:
    """Return the units each link carried between two moments, work spread evenly over fluid phases."""
    program, times = trace.program, trace.times
    out = np.zeros(len(links))
    if not len(links):
        return out
    every = program.use_owner
    order = np.argsort(program.use_link, kind="stable")
    sorted_links = program.use_link[order]
    fluid = np.minimum(times.start + program.latency, times.release)
    for link in np.unique(links).tolist():
        uses = order[
            np.searchsorted(sorted_links, link, "left") : np.searchsorted(sorted_links, link, "right")
        ]
        tasks = every[uses]
        span = times.release[tasks] - fluid[tasks]
        uses, tasks, span = uses[span > 0], tasks[span > 0], span[span > 0]
        rate = program.work[tasks] * program.use_coefficient[uses] / span
        moments = np.concatenate([fluid[tasks], times.release[tasks]])
        sort = np.argsort(moments, kind="stable")
        level = np.cumsum(np.concatenate([rate, -rate])[sort])
        moments = moments[sort]
        total = np.concatenate([[0.0], np.cumsum(level[:-1] * np.diff(moments))])
        mine = links == link
        out[mine] = np.interp(end[mine], moments, total) - np.interp(begin[mine], moments, total)
    return out
