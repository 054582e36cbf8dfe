"""Run a graph of operators along a chain of devices: fast links side by side, cuts that spare slow links, compression by link.

Source: Tang et al., FusionLLM, arXiv 2410.12707 (OP-Fence and AdaTopK), as far as known: devices of similar bandwidth are grouped,
the graph is cut so that few edges lie on slow links, messages are compressed most on the slowest; an edge costs a latency and its
bytes, the pipeline's time is set by the slowest stage or link. How devices are ordered and where the cuts lie is ours.
Simplified: what is read several stages later passes through the stages between; ports that several links share are not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, islice

import numpy as np

from poseidon_sim.cluster import Cluster
from poseidon_sim.plan.compute import layer_times
from poseidon_sim.plan.memory import FRAMEWORK_BYTES, operator_memory
from poseidon_sim.plan.sparse import Floats, selection_seconds, sparse_bytes
from poseidon_sim.workload.graph import readers, sources
from poseidon_sim.workload.layer import ELEMENT_BYTES, Workload

_TRIES = 100  # orders of devices, different in links or speeds, that are cut in search of the best
_CLOSE = 1e-12


@dataclass(frozen=True, eq=False)
class Operators:
    """V operators in an order in which they can run, for D devices and one micro-batch.

    Parameters
    ----------
    seconds : (D, V) of both passes of an operator. `elements`, `tensors` : (V - 1,) what crosses a cut after an operator one way.
    element_bytes : of an activation. `fixed`, `kept` : (V,) bytes of parameters with all that belongs to them, and of activations
        kept for backward. `memory` : (D,) bytes for the two.
    """

    seconds: Floats
    elements: Floats
    tensors: Floats
    element_bytes: int
    fixed: Floats
    kept: Floats
    memory: Floats

    @classmethod
    def of(cls, workload: Workload, cluster: Cluster, micro_batch: int) -> Operators:
        """Return a workload's layers on every GPU of a cluster; raise InputError where their times cannot be modelled."""
        runs = cluster.runs()
        seconds = [layer_times(workload, g.gpu, micro_batch).sum(axis=1) * g.slowdown for g in runs]
        free = [g.gpu.memory - FRAMEWORK_BYTES if g.gpu and g.gpu.memory else np.inf for g in runs]
        gpus = [g.nodes * cluster.gpus_per_node for g in runs]
        crossing = np.zeros((2, len(workload.layers)))
        for i, after in enumerate(readers(sources(workload.layers))):
            crossing[:, i : max(after, default=i)] += [[workload.layers[i].output_elements], [1.0]]
        return cls(
            np.repeat(seconds, gpus, axis=0), micro_batch * crossing[0, :-1], crossing[1, :-1], ELEMENT_BYTES[workload.precision],
            *operator_memory(workload, micro_batch), np.repeat(free, gpus),
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Links:
    """(D, D) bytes/s (inf: free) and seconds of a message between devices, row = sender."""

    rate: Floats
    latency: Floats

    @classmethod
    def of(cls, cluster: Cluster) -> Links:
        """Return what a message between two GPUs of a cluster meets: a port or the cap of its pair of nodes, or lanes inside.

        >>> from poseidon_sim.cluster import Network
        >>> Links.of(Cluster(nodes=2, network=Network(1e9, pair_bandwidth=((0, 1e6), (1e9, 0))))).rate[[0, 1], [1, 0]].tolist()
        [1000000.0, 1000000000.0]
        """
        network, per = cluster.network, cluster.gpus_per_node
        node = np.arange(cluster.num_gpus) // per
        inside = node[:, None] == node
        counts = [g.nodes * per for g in cluster.runs()]
        lanes = np.repeat([cluster.peer_bandwidth(g.gpu) or np.inf for g in cluster.runs()], counts)
        rate, latency = np.where(inside, lanes[:, None], np.inf), np.where(inside, cluster.peer_latency, 0.0)
        if cluster.nodes > 1 and network is not None:
            port = np.repeat([network.efficiency * (g.bandwidth or network.bandwidth) for g in cluster.runs()], counts)
            between = np.minimum(port[:, None], port)
            if network.pair_bandwidth is not None:
                between = np.minimum(between, np.array(network.pair_bandwidth)[np.ix_(node, node)])
            rate = np.where(inside, rate, between)
            latency = np.where(inside, latency, network.latency + network.message_overhead)
        return cls(rate, latency)

    @property
    def slower(self) -> Floats:
        """(D, D) bytes/s of the slower direction of every link."""
        return np.minimum(self.rate, self.rate.T)


@dataclass(frozen=True, eq=False)
class Chain:
    """A model along a chain of N devices.

    Parameters
    ----------
    order : device of every stage. `starts` : (N + 1,) first operator of every stage, and their number.
    message_bytes, selection : (N - 1,) of a message over each cut, one way, and seconds of choosing what it holds (0: it is whole).
    fixed, kept : (N,) bytes that every stage holds of parameters with all that belongs to them, and of micro-batches in flight.
    fits : whether every device has the memory. `bottleneck`, `total` : seconds of the slowest stage or link, and of one micro-batch
        through all of them.
    """

    order: tuple[int, ...]
    starts: tuple[int, ...]
    message_bytes: Floats
    selection: Floats
    fixed: Floats
    kept: Floats
    fits: bool
    bottleneck: float
    total: float

    def stage_of(self, operator: int) -> int:
        """Return the stage that holds an operator."""
        return int(np.searchsorted(self.starts, operator, side="right")) - 1


@dataclass(frozen=True, eq=False)
class Fence:
    """What a chain costs. `compression` : elements over elements sent, on the slowest link of a chain; 1 for whole messages.

    `selection_time` : seconds per value and doubling of choosing what is sent. `flying` : micro-batches in flight on each stage,
    for the memory they keep; the last number holds for all further stages.

    Devices 0 and 2 have the fast link, and least crosses a cut after the third operator:

    >>> none, much = np.zeros(4), np.full(3, np.inf)
    >>> ops = Operators(np.ones((3, 4)), np.array([9.0, 9.0, 1.0]), np.ones(3), 4, none, none, much)
    >>> links = Links(np.array([[0.0, 1.0, 90.0], [1.0, 0.0, 1.0], [90.0, 1.0, 0.0]]), np.zeros((3, 3)))
    >>> Fence(ops, links).even().bottleneck, Fence(ops, links).fenced().bottleneck
    (36.0, 4.0)
    >>> Fence(ops, links).fenced().order, Fence(ops, links).fenced().starts
    ((0, 2, 1), (0, 1, 3, 4))
    """

    operators: Operators
    links: Links
    compression: float = 1.0
    selection_time: float = 0.0
    flying: tuple[int, ...] = (1,)

    @property
    def stages(self) -> int:
        """Devices that get a stage: all of them, while there are operators."""
        devices, operators = self.operators.seconds.shape
        return int(min(devices, operators))

    def ratios(self, order: Sequence[int]) -> Floats:
        """Return (N - 1,) compression of each link of a chain: in proportion to slowness, down to 1."""
        slower = _along(self.links.slower, *_ways(order)[0])
        worst = slower.min(initial=np.inf)
        return np.maximum(1.0, self.compression * worst / slower) if np.isfinite(worst) else np.ones(len(slower))

    def chain(self, order: Sequence[int]) -> Chain:
        """Return the cut along devices in this order with the smallest bottleneck, and of those the smallest total.

        Memory is minded where some cut fits.
        """
        costs = _Costs(self, order)
        return costs.chain(*costs.cut(costs.stage, costs.link, costs.both_ways))

    def even(self) -> Chain:
        """Return the chain that sees no links: devices as numbered, the heaviest stage as light as can be on equal devices.

        It cuts where one tensor crosses if there are enough such places, and where least crosses if several cuts are as light.
        """
        costs, ops = _Costs(self, range(self.stages)), self.operators
        narrow = ops.tensors <= 1
        places = narrow if narrow.sum() >= self.stages - 1 else np.ones_like(narrow)
        work, whole = _spans(ops.seconds.mean(axis=0)), (self.stages - 1, 1)
        gate, toll = np.tile(np.where(places, 0.0, np.inf), whole), np.tile(ops.elements, whole)
        return costs.chain(*costs.cut(lambda d: work, gate, toll, stage_weight=0.0))

    def fenced(self) -> Chain:
        """Return the best chain found: groups of fast links kept together, turned round and swapped while that helps.

        Devices as numbered are tried too: the bottleneck is never above theirs.
        """
        known: dict[tuple[bytes, ...], Chain] = {}
        kinds = np.unique(self.operators.seconds, axis=0, return_inverse=True)[1].ravel()

        def tried(devices: list[int]) -> Chain:
            row = devices[: self.stages]
            rates = [_along(x, *way) for x in (self.links.rate, self.links.latency) for way in _ways(row)]
            key = (kinds[row].tobytes(), *(each.tobytes() for each in rates))
            if key not in known:
                known[key] = self.chain(row)
            return known[key]

        order, groups = grouped(self.links.slower)
        best, plain, before = tried(order), tried(list(range(len(order)))), None
        while best is not before:
            before = best
            for parts in reversed(groups):
                for other in islice(_turned(order, parts), _TRIES):
                    if len(known) < _TRIES and _better(tried(other), best):
                        best, order = tried(other), other
        return plain if not _better(best, plain) else best


class _Costs:
    """Seconds of stages and links along one order of devices, for every place of a cut."""

    def __init__(self, fence: Fence, order: Sequence[int]) -> None:
        ops, links = fence.operators, fence.links
        row = list(order)
        self.order, self.work, self.memory = tuple(row), ops.seconds[row], ops.memory[row]
        self.fixed, self.kept = _spans(ops.fixed), _spans(ops.kept)
        self.flying = [*fence.flying, *[fence.flying[-1]] * len(row)]
        whole = ops.elements * ops.element_bytes
        sparse = sparse_bytes(ops.elements, 1.0 / fence.ratios(row)[:, None], ops.element_bytes)
        self.message = np.minimum(whole, sparse)  # (N - 1, V - 1)
        self.select = np.where(sparse < whole, selection_seconds(fence.selection_time, ops.elements), 0.0)
        ways = [_along(links.latency, a, b)[:, None] + self.message / _along(links.rate, a, b)[:, None] for a, b in _ways(row)]
        self.link, self.both_ways = np.where(whole > 0, np.maximum(*ways), 0.0), np.where(whole > 0, ways[0] + ways[1], 0.0)

    def stage(self, d: int) -> Floats:
        """(V + 1, V + 1) seconds of device d with the operators from row to column, what it selects included."""
        found = _spans(self.work[d])
        if d < len(self.select):
            found[:, 1:-1] += self.select[d]
        if d > 0:
            found[1:-1] += self.select[d - 1][:, None]
        return found

    def cut(
        self, stage: Callable[[int], Floats], gate: Floats, toll: Floats, stage_weight: float = 1.0
    ) -> tuple[tuple[int, ...], bool]:
        """Return the best cut that fits in memory, else the best of all; and whether it fits."""

        def fitting(d: int) -> Floats:
            found: Floats = np.where(self.fixed + self.flying[d] * self.kept <= self.memory[d], stage(d), np.inf)
            return found

        starts = cut_chain(fitting, gate, toll, stage_weight)
        return (starts, True) if starts else (cut_chain(stage, gate, toll, stage_weight), False)

    def chain(self, starts: tuple[int, ...], fits: bool) -> Chain:
        """Return the chain that is cut there."""
        n, at = len(self.order), np.array(starts[1:-1], dtype=np.int64) - 1
        stages, fixed, kept = (np.array([of(d)[starts[d], starts[d + 1]] for d in range(n)]) for of in (
            self.stage, lambda d: self.fixed, lambda d: self.flying[d] * self.kept
        ))  # fmt: skip
        cuts = np.arange(n - 1), at
        slowest = max(stages.max(), self.link[cuts].max(initial=0.0))
        total = float(stages.sum() + self.both_ways[cuts].sum())
        return Chain(self.order, starts, self.message[cuts], self.select[cuts], fixed, kept, fits, float(slowest), total)


def cut_chain(stage: Callable[[int], Floats], gate: Floats, toll: Floats, stage_weight: float = 1.0) -> tuple[int, ...]:
    """Cut V operators into N runs: the largest of all stages and gates is as small as can be, then the sum of stages and tolls.

    Exact, by dynamic programming over the places of a cut; time N V^2.

    Parameters
    ----------
    stage : (V + 1, V + 1) seconds of stage d if it runs the operators from row to column (inf where there are none).
    gate, toll : (N - 1, V - 1) of a cut after an operator behind stage d. `stage_weight` : of stages in the sum.

    Returns
    -------
    (N + 1,) the first operator of every stage, and V; () where no cut is finite.

    >>> work = _spans(np.array([1.0, 1.0, 1.0, 3.0]))
    >>> cut_chain(lambda d: work, np.zeros((1, 3)), np.zeros((1, 3)))
    (0, 3, 4)
    """
    n, v = len(gate) + 1, gate.shape[1] + 1
    closed = np.full((n, v + 1), np.inf)
    closed[-1, v] = 0.0
    gates, tolls = closed, closed.copy()
    gates[:-1, 1:v], tolls[:-1, 1:v] = gate, toll
    least = np.where(np.arange(v + 1) == 0, 0.0, np.inf)
    for d in range(n):
        least = np.maximum(np.maximum(least[:, None], stage(d)).min(axis=0), gates[d])
    if not np.isfinite(least[v]):
        return ()
    limit = least[v] * (1 + _CLOSE)
    sums, choice = np.where(np.arange(v + 1) == 0, 0.0, np.inf), []
    for d in range(n):
        seconds = stage(d)
        ways = sums[:, None] + np.where(seconds <= limit, stage_weight * np.where(seconds < np.inf, seconds, 0.0), np.inf)
        choice.append(ways.argmin(axis=0))
        sums = ways.min(axis=0) + np.where(gates[d] <= limit, tolls[d], np.inf)
    starts = [v]
    for chosen in reversed(choice):
        starts.append(int(chosen[starts[-1]]))
    return tuple(reversed(starts))


def grouped(rate: Floats) -> tuple[list[int], list[list[frozenset[int]]]]:
    """Return devices in an order that keeps groups of fast links together, and the parts of every group, smallest first.

    The fastest link that joins two groups makes them one; the ends that meet are those with the fastest link between them. Groups
    that links of one rate join are parts of one group.

    Parameters
    ----------
    rate : (D, D) bytes/s, symmetric.

    >>> order, groups = grouped(np.array([[9.0, 1.0, 5.0], [1.0, 9.0, 1.0], [5.0, 1.0, 9.0]]))
    >>> order, [[sorted(part) for part in parts] for parts in groups]
    ([0, 2, 1], [[[0], [2]], [[0, 2], [1]]])
    """
    row = {i: [i] for i in range(len(rate))}
    groups: dict[frozenset[int], tuple[float, list[frozenset[int]]]] = {}
    one, other = np.triu_indices(len(rate), 1)
    for k in np.argsort(-rate[one, other], kind="stable").tolist():
        i, j = int(one[k]), int(other[k])
        a, b = row[i], row[j]
        if a is b:
            continue
        ways = [(x, y) for x in (a, a[::-1]) for y in (b, b[::-1])]
        ways += [(y, x) for x, y in ways]
        first, second = max(ways, key=lambda ends: rate[ends[0][-1], ends[1][0]])
        parts: list[frozenset[int]] = []
        for part in (frozenset(a), frozenset(b)):
            joined_at, inner = groups.get(part, (np.inf, []))
            parts += groups.pop(part)[1] if inner and joined_at == rate[i, j] else [part]
        groups[frozenset(a + b)] = float(rate[i, j]), parts
        whole = [*first, *second]
        row.update(dict.fromkeys(whole, whole))
    return row[0], [parts for _, parts in groups.values()]


def _turned(order: list[int], parts: list[frozenset[int]]) -> Iterator[list[int]]:
    """Yield the order with a group turned round, then with each two of its parts swapped; a group stands side by side."""
    members = frozenset().union(*parts)
    low = next(i for i, device in enumerate(order) if device in members)
    inside = order[low : low + len(members)]
    yield [*order[:low], *inside[::-1], *order[low + len(members) :]]
    blocks = sorted(([d for d in inside if d in part] for part in parts), key=lambda block: inside.index(block[0]))
    for i, j in combinations(range(len(blocks)), 2):
        swapped = list(blocks)
        swapped[i], swapped[j] = blocks[j], blocks[i]
        yield [*order[:low], *chain.from_iterable(swapped), *order[low + len(members) :]]


def _better(one: Chain, other: Chain) -> bool:
    if one.fits != other.fits:
        return one.fits
    if abs(one.bottleneck - other.bottleneck) > _CLOSE * other.bottleneck:
        return one.bottleneck < other.bottleneck
    return one.total < other.total * (1 - _CLOSE)


def _ways(order: Sequence[int]) -> tuple[tuple[list[int], list[int]], tuple[list[int], list[int]]]:
    """Return (senders, receivers) of the messages along a chain, forward and back."""
    first, second = list(order[:-1]), list(order[1:])
    return (first, second), (second, first)


def _along(pairs: Floats, senders: list[int], receivers: list[int]) -> Floats:
    found: Floats = pairs[np.array(senders, dtype=np.int64), np.array(receivers, dtype=np.int64)]
    return found


def _spans(seconds: Floats) -> Floats:
    """Return (V + 1, V + 1) sums of (V,) seconds from row to column, inf where column <= row."""
    sums = np.concatenate([[0.0], np.cumsum(seconds)])
    found: Floats = np.where(np.tri(len(sums), dtype=bool), np.inf, sums - sums[:, None])
    return found
