"""The verbs strategies speak. A handle array says, per node class, which task makes something true."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np

from poseidon_sim.cluster import Cluster, Fabric, Layout, Network, NodeClass
from poseidon_sim.cluster.build import merge_uses
from poseidon_sim.engine.program import Program
from poseidon_sim.plan.flows import Flows, Station, Uses, flow_table
from poseidon_sim.plan.kernels import gemm_time
from poseidon_sim.plan.layers import PlanLayer, pass_times, plan_layers, times_at
from poseidon_sim.plan.record import KIND, NONE, Block, Handles, Phase, Recorder, TaskTable, lower
from poseidon_sim.workload.layer import Workload

__all__ = ["Phase", "Plan", "PlanLayer", "UnfoldableError"]


class UnfoldableError(Exception):
    """Messages cannot be folded: the nodes, or what they do in a collective, are not all alike."""


class Plan:
    """Records one job: what every node class does, when it may start, and what it loads.

    Parameters
    ----------
    workload, cluster : what to train and on what.
    batch_size : samples per GPU and pass.
    layout : extra server nodes and nodes with roles.
    folded : fold equal nodes into classes (exact) or give every node a class of its own.
    rounds : record collectives message by message; folded, one message stands for those that all nodes send alike.
    num_passes : forward and backward passes per iteration (micro-batches).

    Raises
    ------
    UnfoldableError : messages shall be folded and nodes (here) or what they send (while recording) are not all alike.
    """

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        batch_size: int,
        layout: Layout | None = None,
        folded: bool = True,
        rounds: bool = False,
        num_passes: int = 1,
    ) -> None:
        self.workload, self.hardware, self.own_batch_size, self.num_passes = workload, cluster, batch_size, num_passes
        self.links = Fabric(cluster, layout, folded)
        if rounds and folded and not self._alike(cluster):
            raise UnfoldableError("nodes that differ")
        self.rounds = rounds
        self.folded_rounds = rounds and folded
        self.reads: set[str] = set()
        self.classes = self.links.classes
        self.workers = self.links.workers
        extra = [c.index for c in self.classes if not c.is_worker]
        self.servers = np.array(extra, dtype=np.int64) if extra else self.workers
        self.num_nodes = cluster.nodes
        self.num_servers = sum(self.classes[i].count for i in self.servers)
        self.gpus_per_node = cluster.gpus_per_node
        self.num_gpus = cluster.num_gpus
        self.recorder = Recorder()
        self.iteration = 0
        self.priority = 0.0  # of what is recorded now: smaller is served first where it has to queue
        self.collectives_at_once = 1
        self.iteration_ends: list[Handles] = []
        self.warnings: list[str] = []
        self.carried: dict[object, Handles] = {}
        self.known: dict[object, Any] = {}  # what collectives work out once per plan
        self.layers = plan_layers(workload)
        times = pass_times(workload, [self.classes[c] for c in self.workers], batch_size)  # (1 + 2 layers, W)
        self.times = np.vstack([times, (num_passes - 1) * times[1:].sum(axis=0)])
        self.timed: list[tuple[int, int]] = []  # (first task, row of `times`) of what the layers' times decide
        self.slowdown = np.array([self.classes[c].slowdown for c in self.workers])
        self.slowed: list[tuple[int, np.ndarray]] = []  # (first task, seconds without slowdown) of other work on GPUs
        self.phased: list[tuple[int, object, int]] = []  # (task, collective, phase) of what the links' rates decide
        self._flows: dict[tuple[bytes, bytes], Flows] = {}
        self._stations: dict[tuple[str, bytes], Station] = {}
        self._queue_rows: dict[tuple[str, bytes], Any] = {}
        self._uses: dict[tuple[tuple[int, float], ...], Uses] = {}
        self._all_workers = self.workers.tobytes()

    def _alike(self, cluster: Cluster) -> bool:
        """Whether every node is like every other, seen from the network too."""
        network = cluster.network
        return len(self.links.classes) == 1 and self.links.num_leaves == 1 and not (network and network.pair_bandwidth)

    # -- what a recording may depend on ------------------------------------------------------------------------
    # A recording serves all jobs that differ only in what was not read while it was made: see plan/recording.py.

    @property
    def cluster(self) -> Cluster:
        """The cluster with its rates; a strategy that reads it is recorded anew for every rate."""
        self.reads.add("rates")
        return self.hardware

    @property
    def fabric(self) -> Fabric:
        """Links with their capacities; a strategy that reads it is recorded anew for every rate."""
        self.reads.add("rates")
        return self.links

    @property
    def batch_size(self) -> int:
        """Samples per GPU and iteration; a strategy that reads it is recorded anew for every batch."""
        self.reads.add("batch")
        return self.own_batch_size * self.num_passes

    def forward_time(self, layer: PlanLayer) -> np.ndarray:
        """(W,) seconds of a layer's forward pass on each worker class (read: recorded anew for every batch and draw)."""
        self.reads |= {"batch", "rates"}
        return np.asarray(self.times[1 + 2 * layer.index])

    def backward_time(self, layer: PlanLayer) -> np.ndarray:
        """(W,) seconds of a layer's backward pass on each worker class (read: recorded anew for every batch and draw)."""
        self.reads |= {"batch", "rates"}
        return np.asarray(self.times[2 + 2 * layer.index])

    # -- figures -----------------------------------------------------------------------------------------------

    def batch_of(self, node_class: NodeClass) -> int:
        """Samples per GPU and iteration on nodes of this class."""
        return (node_class.batch_size or self.own_batch_size) * self.num_passes

    def class_of_node(self, node: int) -> int:
        """Return the index of the class that holds just this node (nodes with a role have one of their own)."""
        return self.links.class_of_node(node)

    @property
    def start(self) -> Handles:
        """The handle that is true from the beginning."""
        return np.full(len(self.workers), NONE)

    @contextmanager
    def at_priority(self, priority: float) -> Iterator[None]:
        """Record what is inside with a priority: of tasks that wait for one queue, the smallest goes first."""
        before, self.priority = self.priority, priority
        try:
            yield
        finally:
            self.priority = before

    @contextmanager
    def at_batches(self, samples: Sequence[int]) -> Iterator[None]:
        """Record what is inside at so many samples per GPU of each worker class, 0 for none, whatever the job's batch is."""
        self.reads |= {"batch", "rates"}
        before = self.times, self.timed
        times = times_at(self.workload, [self.classes[c] for c in self.workers], samples, self.own_batch_size)
        self.times, self.timed = np.vstack([times, np.zeros(len(samples))]), []
        try:
            yield
        finally:
            self.times, self.timed = before

    def warn(self, text: str) -> None:
        """Add a warning for the reader of the result, once."""
        if text not in self.warnings:
            self.warnings.append(text)

    # -- compute -----------------------------------------------------------------------------------------------

    def forward(self, after: Handles, layer: PlanLayer | None = None) -> Handles:
        """Run the forward pass of one layer, or of the whole network as one task per GPU."""
        return self._pass("forward", 0 if layer is None else 1 + 2 * layer.index, after, layer)

    def accumulate(self, after: Handles) -> Handles:
        """Run forward and backward of all micro-batches but the last, whose gradients stay on the GPU (one task per GPU).

        It begins when everything is there that the last iteration handed on.
        """
        if self.num_passes == 1:
            return after
        ready = self.all_of(after, *self.carried.values())
        return self._pass("forward", len(self.times) - 1, ready, None, "earlier micro-batches")

    def backward(self, layer: PlanLayer, after: Handles) -> Handles:
        """Run the backward pass of one layer: its gradient is ready when this ends."""
        return self._pass("backward", 2 + 2 * layer.index, after, layer)

    @cached_property
    def _busy(self) -> list[bool]:
        """Which rows of `times` are not all zero."""
        busy: np.ndarray = np.any(self.times != 0, axis=1)
        return [bool(each) for each in busy]

    def _pass(self, kind: str, row: int, after: Handles, layer: PlanLayer | None, label: str | None = None) -> Handles:
        if not self._busy[row]:
            return self.all_of(after)
        self.timed.append((self.recorder.num_tasks, row))
        return self._compute(kind, label or kind, self.times[row], after, layer, "compute")

    def on_gpu(
        self, kind: str, seconds: np.ndarray | float, after: Handles, *, layer: PlanLayer | None = None,
        label: str | None = None, stream: str = "compute",
    ) -> Handles:  # fmt: skip
        """Run `seconds` of work on every worker's GPU (longer on slowed nodes), in order on one stream; streams share it."""
        if not np.any(seconds):
            return self.all_of(after)
        whole = np.broadcast_to(np.asarray(seconds, dtype=np.float64), self.slowdown.shape)
        self.slowed.append((self.recorder.num_tasks, whole))
        return self._compute(kind, label or kind, whole * self.slowdown, after, layer, stream)

    def _compute(
        self, kind: str, label: str, seconds: np.ndarray | float, after: Handles, layer: PlanLayer | None, stream: str
    ) -> Handles:
        station = self._station("gpu " + stream, self.workers, ("gpu", 1.0))
        return self._record(kind, label, len(self.workers), after, layer, seconds, rate_cap=1.0, **station.columns)

    def gemm_seconds(self, flops: float, moved_bytes: float = 0.0) -> np.ndarray:
        """Return (W,) seconds of a dense matrix product on each worker's GPU, for `on_gpu`; 0 with a warning if it is unknown."""
        seconds = []
        for c in self.workers:
            gpu = self.classes[c].gpu
            one = gemm_time(gpu, self.workload.precision, flops, moved_bytes) if gpu is not None else None
            if one is None:
                self.warn("no GPU rates given: extra GPU work of the strategy (rebuild, quantise) costs nothing")
            seconds.append(one or 0.0)
        return np.array(seconds)

    # -- moving bytes inside a node ----------------------------------------------------------------------------

    def copy_to_host(self, num_bytes: float | np.ndarray, after: Handles, layer: PlanLayer | None = None) -> Handles:
        """Copy `num_bytes` from each GPU to its host; free when the cluster states no PCIe rate."""
        return self._copy("copy_out", "pcie_to_host", "switch_to_host", num_bytes, after, layer)

    def copy_to_gpu(self, num_bytes: float | np.ndarray, after: Handles, layer: PlanLayer | None = None) -> Handles:
        """Copy `num_bytes` from the host to each of its GPUs."""
        return self._copy("copy_in", "pcie_to_gpu", "switch_to_gpu", num_bytes, after, layer)

    def _copy(
        self, kind: str, lane: str, switch: str, num_bytes: float | np.ndarray, after: Handles, layer: PlanLayer | None
    ) -> Handles:
        gpus = self.classes[int(self.workers[0])].gpus
        all_gpus = (switch, float(-(-gpus // 2))), ("host_copy", float(gpus)), ("host_memory", float(gpus))
        station = self._station(kind, self.workers, (lane, 1.0), *all_gpus)
        if not np.any(num_bytes) or not station.limited:
            return self.all_of(after)
        label = "copy to host" if kind == "copy_out" else "copy to GPU"
        return self._record(kind, label, len(self.workers), after, layer, num_bytes, **station.columns)

    def host_sum(self, nodes: np.ndarray, num_bytes: float | np.ndarray, after: Handles, layer: PlanLayer | None = None) -> Handles:
        """Sum `num_bytes` of gradients on the CPU of each of `nodes` (class indices); free when no rate is stated."""
        station = self._station("host", nodes, ("host_sum", 1.0))
        if not station.limited or not np.any(num_bytes):
            return self.all_of(after)
        return self._record("host", "sum", len(nodes), after, layer, num_bytes, **station.columns)

    # -- the network -------------------------------------------------------------------------------------------

    def send(
        self, senders: np.ndarray, receivers: np.ndarray, num_bytes: float | np.ndarray, after: Handles, *,
        label: str = "send", layer: PlanLayer | None = None, turns: str = "at-once",
    ) -> Handles:  # fmt: skip
        """Send `num_bytes` from every node of `senders` to every other node of `receivers`.

        Parameters
        ----------
        senders, receivers : (S,), (R,) node-class indices.
        num_bytes : bytes of one message, a number or an (S, R) array.
        after : (S,) when each sender has the data, or (S, R) when it differs by receiver.
        turns : 'at-once' (one connection per peer, all used at the same time), or one peer after another on the
            sender's single communication thread: 'staggered' (each begins with its right-hand neighbour, so no two
            hit one receiver) or 'same-order' (all begin with the first receiver; needs nodes of their own class).

        Returns
        -------
        (S, R, K) handles; entry [s, r, 0] is what a node "receives" from itself. Pass it to `arrived`.
        """
        flows = self._flow_table(senders, receivers)
        sizes = num_bytes + flows.nothing
        ready = after if after.ndim == 2 else after[:, None] + flows.no_task
        out: Handles = flows.unsent.copy()
        out[:, :, 0] = np.where(flows.own, ready, NONE)
        chosen = flows.choose(sizes, staggered=turns == "staggered")
        if not len(chosen):
            return out
        place, columns = flows.place, flows.columns
        if chosen is not flows.everything:
            place = tuple(each[chosen] for each in place)
            columns = flows.columns_of(chosen)
        if "queue" not in columns:
            columns["queue"] = self._connections(flows, chosen)
        moved, since = sizes[place[:2]], ready[place[:2]]
        if turns == "at-once":
            out[place] = self._send_at_once(columns, moved, since, label, layer)
        else:
            out[place] = self._send_in_turn(columns, flows.fan[chosen], moved, since, label, layer)
        return out

    def _send_at_once(
        self, columns: dict[str, Any], sizes: np.ndarray, ready: np.ndarray, label: str, layer: PlanLayer | None
    ) -> Handles:
        network, channels = self._network, self.hardware.host.channels
        if channels is not None:
            nodes = np.atleast_1d(columns["node"])
            columns = {**columns, "queue": self._queues("channel", nodes, channels)}
        return self._record(
            "send", label, len(sizes), ready, layer, sizes, latency=network.message_overhead,
            delay=network.latency, **columns,
        )  # fmt: skip

    def _send_in_turn(
        self, columns: dict[str, Any], fan: np.ndarray, sizes: np.ndarray, ready: np.ndarray, label: str,
        layer: PlanLayer | None,
    ) -> Handles:  # fmt: skip
        """A folded row stands for `fan` receivers served one after the other; the send buffer drains by itself."""
        network = self._network
        coefficients = columns["coefficients"] / fan[:, None]
        buffered = np.minimum(sizes, self.hardware.host.send_buffer or 0.0)
        thread = self._queues("thread", np.atleast_1d(columns["node"]))
        common = {**columns, "coefficients": coefficients}
        in_thread = self._record(
            "send", label, len(sizes), ready, layer, (sizes - buffered) * fan, latency=_scalar(network.message_overhead * fan),
            delay=0.0 if buffered.any() else network.latency, **{**common, "queue": thread},
        )  # fmt: skip
        if not buffered.any():
            return in_thread
        return self._record("send", label, len(sizes), in_thread, layer, buffered * fan, delay=network.latency, **common)

    @property
    def _network(self) -> Network:
        assert self.hardware.network is not None  # a Cluster of several nodes always has one
        return self.hardware.network

    def _connections(self, flows: Flows, rows: np.ndarray) -> Any:
        """Return the queues of flows: every ordered pair of nodes has a connection, which sends in order."""
        keys = zip(*(each[rows].tolist() for each in (flows.sender, flows.receiver, flows.relation)), strict=True)
        return _scalar(np.array([self.recorder.queue(("connection", *key)) for key in keys]))

    def pause(self, seconds: float, after: Handles, label: str) -> Handles:
        """Let `seconds` pass on every worker node (the overhead of a collective call)."""
        return self._record("collective", label, len(self.workers), after, latency=seconds, node=_scalar(self.workers))

    def arrived(self, sent: Handles) -> Handles:
        """Join an (S, R, K) result of `send` over its senders: (R,) handles, true when a receiver has all of it."""
        return self.all_of(sent.transpose(1, 0, 2).reshape(sent.shape[1], -1))

    def collective(
        self, phases: Sequence[Phase], after: Handles, *, label: str, layer: PlanLayer | None = None,
        channel: object = "collective", kind: str = "collective", key: object = None,
    ) -> Handles:  # fmt: skip
        """Run a collective over all workers, one fluid task per phase, `collectives_at_once` at a time on a channel.

        `key` is under which `known` keeps the phases for one byte, so that their rates can be worked out anew.
        """
        ready = self.everyone(after)[:1]
        queue = self.recorder.queue(("channel", channel), self.collectives_at_once)
        for index, phase in enumerate(phases):
            self.phased.append((self.recorder.num_tasks, key, index))
            if phase.uses not in self._uses:
                self._uses[phase.uses] = Uses.of([merge_uses(list(phase.uses))])
            links, coefficients, _ = self._uses[phase.uses]
            ready = self._record(
                kind, f"{label} {phase.name}" if phase.name else label, 1, ready, layer, phase.work,
                latency=phase.latency, rate_cap=phase.rate_cap, queue=queue, links=links, coefficients=coefficients,
            )  # fmt: skip
        return np.repeat(ready, len(self.workers))

    # -- joins -------------------------------------------------------------------------------------------------

    def all_of(self, *handles: Handles, needed: int | None = None) -> Handles:
        """Join handles row by row; `needed` = k makes it true after the first k of them."""
        if len(handles) == 1 and handles[0].ndim == 1:
            return handles[0]
        rows = len(handles[0])
        if rows == 1:
            return self._all_of_one(handles, needed)
        after = np.concatenate([h.reshape(rows, -1) for h in handles], axis=1)
        after = np.sort(after, axis=1)
        after[:, 1:][after[:, 1:] == after[:, :-1]] = NONE
        real = (after >= 0).sum(axis=1)
        if needed is None and (real <= 1).all():
            alone: Handles = after.max(axis=1)
            return alone
        return self._record("join", "join", rows, after, needed=needed)

    def _all_of_one(self, handles: tuple[Handles, ...], needed: int | None) -> Handles:
        """Join handles of one row: what `all_of` does, at the price of a small set."""
        found = {handle for each in handles for handle in each.ravel().tolist()}
        found.discard(-1)
        if needed is None and len(found) <= 1:
            return np.array(list(found) or [-1])
        return self._record("join", "join", 1, np.array([sorted(found)]), needed=needed)

    def everyone(self, handles: Handles) -> Handles:
        """Join over all rows: true for each worker when it is true for every worker."""
        if len(handles) == 1 and handles.ndim == 1:
            return handles
        return np.repeat(self.all_of(handles.reshape(1, -1)), len(self.workers))

    # -- the end -----------------------------------------------------------------------------------------------

    def lower(self) -> tuple[Program, TaskTable]:
        """Turn what was recorded into the engine's arrays."""
        names = tuple(each.name for each in self.layers)
        return lower(self.recorder, self.links.capacities, self.links.curves, names)

    def _record(
        self, kind: str, label: str, size: int, after: Handles, layer: PlanLayer | None = None, work: Any = 0.0, *,
        latency: Any = 0.0, delay: float = 0.0, rate_cap: Any = np.inf, queue: Any = -1,
        needed: int | None = None, links: np.ndarray | None = None, coefficients: np.ndarray | None = None, node: Any = -1,
        peer: Any = -1,
    ) -> Handles:  # fmt: skip
        """Append a block; its columns in the order of `Block`, numbers in place of arrays of one."""
        if size == 1 and type(work) is np.ndarray:
            work = work.item()
        index = layer.index if layer is not None else -1
        return self.recorder.add(Block(
            size, KIND[kind], self.recorder.label(label), after, work, latency, delay, rate_cap, 1.0, self.priority, queue, needed,
            links, coefficients, index, node, peer, self.iteration,
        ))  # fmt: skip

    def _station(self, kind: str, nodes: np.ndarray, *demands: tuple[str, float]) -> Station:
        """Return where tasks of a kind run on each of `nodes`: their queue, and their demands (kind of link, coefficient)."""
        key = (kind, self._all_workers if nodes is self.workers else nodes.tobytes())
        if key not in self._stations:
            uses = Uses.of([merge_uses([(self.links.link(name, int(c)), x) for name, x in demands]) for c in nodes])
            self._stations[key] = Station(
                {"node": _scalar(nodes), "queue": self._queues(kind, nodes), "links": uses.links,
                 "coefficients": uses.coefficients}, uses.limited,
            )  # fmt: skip
        return self._stations[key]

    def _queues(self, kind: str, nodes: np.ndarray, slots: int = 1) -> Any:
        key = (kind, nodes.tobytes())
        if key not in self._queue_rows:
            self._queue_rows[key] = _scalar(np.array([self.recorder.queue((kind, int(c)), slots) for c in nodes]))
        return self._queue_rows[key]

    def _flow_table(self, senders: np.ndarray, receivers: np.ndarray) -> Flows:
        key = (senders.tobytes(), receivers.tobytes())
        if key not in self._flows:
            self._flows[key] = flow_table(self.links, senders, receivers)
        return self._flows[key]


def _scalar(values: np.ndarray) -> Any:
    """Return a number in place of an array of one."""
    return values.item() if values.size == 1 else values
