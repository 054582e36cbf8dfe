"""Cut a graph of operators over devices with limited memory: along critical paths, then by memory (as ParDNN does).

Source: Qararyah, Wahib, Dikbayir, Belviranli, Unat, A computational-graph partitioning method for training memory-constrained
DNNs, Parallel Computing 2021. Operators are numbered in an order in which they can run.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from poseidon_sim.errors import InfeasibleError, InputError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_BINS = 256  # pieces of the critical path by which load is compared


@dataclass(frozen=True, eq=False)
class OperatorGraph:
    """V operators and E edges: (V,) seconds and bytes of memory; (E,) from, to (a later operator), seconds between devices."""

    seconds: Floats
    memory: Floats
    source: Ints
    target: Ints
    edge_seconds: Floats

    def __post_init__(self) -> None:
        if (self.source >= self.target).any():
            raise InputError("an operator reads from one that is not before it")

    def __len__(self) -> int:
        return len(self.seconds)

    @cached_property
    def outgoing(self) -> list[list[tuple[int, float]]]:
        """For every operator, (reader, seconds of the edge)."""
        return self._rows(self.source, self.target)

    @cached_property
    def incoming(self) -> list[list[tuple[int, float]]]:
        """For every operator, (what it reads, seconds of the edge)."""
        return self._rows(self.target, self.source)

    def _rows(self, where: Ints, other: Ints) -> list[list[tuple[int, float]]]:
        rows: list[list[tuple[int, float]]] = [[] for _ in range(len(self))]
        for i, j, seconds in zip(where.tolist(), other.tolist(), self.edge_seconds.tolist(), strict=True):
            rows[i].append((j, seconds))
        return rows

    @cached_property
    def top_levels(self) -> list[float]:
        """Earliest start of every operator where edges cost nothing."""
        start, seconds = [0.0] * len(self), self.seconds.tolist()
        for i, row in enumerate(self.outgoing):
            end = start[i] + seconds[i]
            for j, _ in row:
                if end > start[j]:
                    start[j] = end
        return start


def partition(graph: OperatorGraph, num_devices: int, memory: float = np.inf) -> Ints:
    """Return (V,) the device of every operator: the best, by `makespan`, of critical paths, runs in order and one device.

    Raises
    ------
    InfeasibleError : no way was found to fit the operators in `memory` bytes per device.
    """
    found = [_fitted(graph, _mapped(graph, _paths(graph, num_devices), num_devices), num_devices, memory)]
    found += [_filled(graph, num_devices, memory), np.zeros(len(graph), dtype=np.int64)]
    fitting = [x for x in found if x is not None and _held(graph, x, num_devices).max() <= memory]
    if not fitting:
        text = f"{graph.memory.sum() / 1e9:.1f} GB of operators do not fit on {num_devices} devices of {memory / 1e9:.1f} GB"
        raise InfeasibleError(f"{text}; use more devices or a smaller batch")
    return min(fitting, key=lambda device: makespan(graph, device))


def makespan(graph: OperatorGraph, device: Ints) -> float:
    """Return seconds until all operators are done: a device runs what is ready in the order it became so, edges delay it."""
    where, seconds = device.tolist(), graph.seconds.tolist()
    left, ready = [len(row) for row in graph.incoming], [0.0] * len(graph)
    events = [(0.0, i) for i, count in enumerate(left) if count == 0]
    free = [0.0] * (max(where) + 1)
    while events:
        time, i = heapq.heappop(events)
        d = where[i]
        end = free[d] = max(time, free[d]) + seconds[i]
        for j, cost in graph.outgoing[i]:
            arrival = end + cost if where[j] != d else end
            if arrival > ready[j]:
                ready[j] = arrival
            left[j] -= 1
            if not left[j]:
                heapq.heappush(events, (ready[j], j))
    return max(free)


def _held(graph: OperatorGraph, device: Ints, num_devices: int) -> Floats:
    held: Floats = np.bincount(device, weights=graph.memory, minlength=num_devices).astype(np.float64)
    return held


def _paths(graph: OperatorGraph, num_devices: int) -> Ints:
    """Return (V,) clusters: the first `num_devices` are critical paths, each of what those before it left; then heavy paths."""
    cluster, count = [-1] * len(graph), 0
    levels: list[float] = []
    for count in range(num_devices):
        levels = _bottom_levels(graph, cluster)
        first = max(range(len(graph)), key=lambda i: levels[i] if cluster[i] < 0 else -1.0)
        if cluster[first] >= 0:
            break
        for i in _heavy_path(graph, levels, cluster, first):
            cluster[i] = count
    for first in range(len(graph)):
        if cluster[first] < 0:
            count += 1
            for i in _heavy_path(graph, levels, cluster, first):
                cluster[i] = count
    return np.array(cluster, dtype=np.int64)


def _bottom_levels(graph: OperatorGraph, cluster: list[int]) -> list[float]:
    """Return the longest way from every free operator to an end, edges counted, over free operators only."""
    level, seconds = [0.0] * len(graph), graph.seconds.tolist()
    for i in range(len(graph) - 1, -1, -1):
        if cluster[i] < 0:
            longest = 0.0
            for j, cost in graph.outgoing[i]:
                if cluster[j] < 0 and cost + level[j] > longest:
                    longest = cost + level[j]
            level[i] = seconds[i] + longest
    return level


def _heavy_path(graph: OperatorGraph, level: list[float], cluster: list[int], first: int) -> Iterator[int]:
    """Walk from `first` along free operators, each time over the edge with the longest way to the end."""
    at = first
    while at >= 0:
        yield at
        free = [(cost + level[j], -j) for j, cost in graph.outgoing[at] if cluster[j] < 0]
        at = -max(free)[1] if free else -1


def _mapped(graph: OperatorGraph, cluster: Ints, num_devices: int) -> Ints:
    """Put the critical paths on devices of their own, and every other cluster where least runs meanwhile and least is sent."""
    device = np.where(cluster < num_devices, cluster, -1).tolist()
    top, seconds = graph.top_levels, graph.seconds
    span = max(float(t + s) for t, s in zip(top, seconds.tolist(), strict=True)) or 1.0
    bins = np.minimum((np.array(top) / span * _BINS).astype(np.int64), _BINS - 1)
    load = np.zeros((num_devices, _BINS))
    placed = cluster < num_devices
    np.add.at(load, (cluster[placed], bins[placed]), seconds[placed])
    order = np.argsort(cluster, kind="stable")
    ends = np.flatnonzero(np.diff(cluster[order], append=-1)) + 1
    for members in np.split(order, ends[:-1]):
        if cluster[members[0]] < num_devices:
            continue
        cost = load[:, bins[members[0]] : bins[members].max() + 1].sum(axis=1)
        for i in members.tolist():
            for j, sent in (*graph.outgoing[i], *graph.incoming[i]):
                if device[j] >= 0:
                    cost += sent
                    cost[device[j]] -= sent
        best = int(cost.argmin())
        np.add.at(load[best], bins[members], seconds[members])
        for i in members.tolist():
            device[i] = best
    return np.array(device, dtype=np.int64)


def _fitted(graph: OperatorGraph, device: Ints, num_devices: int, memory: float) -> Ints | None:
    """Move operators off devices that hold too much, least added sending for each byte first; None where that fails."""
    held = _held(graph, device, num_devices)
    if held.max() <= memory:
        return device
    near = np.zeros((len(graph), num_devices))  # seconds of edges between an operator and each device
    np.add.at(near, (graph.source, device[graph.target]), graph.edge_seconds)
    np.add.at(near, (graph.target, device[graph.source]), graph.edge_seconds)
    device, every = device.copy(), np.arange(len(graph))
    stay = near[every, device].copy()
    near[every, device] = -np.inf
    for i in np.argsort((stay - near.max(axis=1)) / np.maximum(graph.memory, 1.0), kind="stable").tolist():
        size, here = graph.memory[i], device[i]
        if held[here] > memory and size > 0:
            best = int(np.where(held + size <= memory, near[i], -np.inf).argmax())
            if best != here and held[best] + size <= memory:
                held[here], held[best], device[i] = held[here] - size, held[best] + size, best
    return device if held.max() <= memory else None


def _filled(graph: OperatorGraph, num_devices: int, memory: float) -> Ints | None:
    """Fill one device after the other in order of operators; where that fails, largest first on the emptiest device."""
    device, at, held = np.zeros(len(graph), dtype=np.int64), 0, 0.0
    for i, size in enumerate(graph.memory.tolist()):
        if held + size > memory:
            at, held = at + 1, 0.0
        held += size
        device[i] = at
    if at < num_devices and graph.memory.max() <= memory:
        return device
    space = [(0.0, d) for d in range(num_devices)]
    for i in np.argsort(-graph.memory, kind="stable").tolist():
        taken, d = heapq.heappop(space)
        device[i] = d
        heapq.heappush(space, (taken + graph.memory[i], d))
    return device if max(space)[0] <= memory else None
