"""The verbs strategies speak. A handle array says, per node class, which task makes something true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from poseidon_sim.cluster import Cluster, Fabric, Layout, Network, NodeClass
from poseidon_sim.cluster.build import merge_uses
from poseidon_sim.engine.program import Program
from poseidon_sim.errors import InputError
from poseidon_sim.plan.compute import layer_times
from poseidon_sim.plan.flows import Flows, flow_table, padded
from poseidon_sim.plan.kernels import gemm_time
from poseidon_sim.plan.record import KIND, NONE, Block, Handles, Recorder, TaskTable, lower
from poseidon_sim.workload.layer import Layer, Workload


@dataclass(frozen=True)
class PlanLayer:
    """A layer with parameters as strategies see it; times of parameter-free layers after it are counted in.

    `forward_time`, `backward_time` are (W,) seconds per worker node class. Bytes are what travels: gradients in
    the precision on the wire.
    """

    index: int
    name: str
    layer: Layer
    gradient_bytes: float
    tensor_bytes: tuple[float, ...]
    forward_time: tuple[float, ...]
    backward_time: tuple[float, ...]

    @property
    def has_factors(self) -> bool:
        """Whether the gradient is a sum of outer products (sufficient factors exist)."""
        return self.layer.factor_shape is not None


@dataclass(frozen=True)
class Phase:
    """One leg of a collective: `hops` messages after one another, `work` bytes each busiest rank moves, what it loads.

    `uses` are (link, coefficient) for each byte of work; `latency` is the seconds of all hops together.
    """

    work: float
    latency: float
    uses: tuple[tuple[int, float], ...]
    rate_cap: float = np.inf
    name: str = ""


class Plan:
    """Records one job: what every node class does, when it may start, and what it loads.

    Parameters
    ----------
    workload, cluster : what to train and on what.
    batch_size : samples per GPU and iteration.
    layout : extra server nodes and nodes with roles.
    folded : fold equal nodes into classes (exact) or give every node a class of its own.
    """

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        batch_size: int,
        layout: Layout | None = None,
        folded: bool = True,
        rounds: bool = False,
    ) -> None:
        self.workload, self.cluster, self.batch_size = workload, cluster, batch_size
        self.fabric = Fabric(cluster, layout, folded)
        self.rounds = rounds
        self.classes = self.fabric.classes
        self.workers = self.fabric.workers
        extra = [c.index for c in self.classes if not c.is_worker]
        self.servers = np.array(extra, dtype=np.int64) if extra else self.workers
        self.num_nodes = cluster.nodes
        self.num_servers = sum(self.classes[i].count for i in self.servers)
        self.gpus_per_node = cluster.gpus_per_node
        self.num_gpus = cluster.num_gpus
        self.recorder = Recorder()
        self.iteration = 0
        self.iteration_ends: list[Handles] = []
        self.warnings: list[str] = []
        self.carried: dict[object, Handles] = {}
        self.known: dict[object, Any] = {}  # what collectives work out once per plan
        self.layers, self.stem_forward = _plan_layers(self)
        self._flows: dict[tuple[bytes, bytes], Flows] = {}
        self._queue_rows: dict[tuple[str, bytes], np.ndarray] = {}
        self._use_rows: dict[tuple[object, bytes], tuple[np.ndarray, np.ndarray]] = {}

    # -- figures -----------------------------------------------------------------------------------------------

    def batch_of(self, node_class: NodeClass) -> int:
        """Samples per GPU and iteration on nodes of this class."""
        return node_class.batch_size or self.batch_size

    @property
    def start(self) -> Handles:
        """The handle that is true from the beginning."""
        return np.full(len(self.workers), NONE)

    def warn(self, text: str) -> None:
        """Add a warning for the reader of the result, once."""
        if text not in self.warnings:
            self.warnings.append(text)

    # -- compute -----------------------------------------------------------------------------------------------

    def forward(self, after: Handles, layer: PlanLayer | None = None) -> Handles:
        """Run the forward pass of one layer, or of the whole network as one task per GPU."""
        if layer is not None:
            seconds = np.array(layer.forward_time) + (np.array(self.stem_forward) if layer.index == 0 else 0.0)
            return self.on_gpu("forward", seconds, after, layer=layer)
        total = np.array(self.stem_forward) + np.sum([each.forward_time for each in self.layers], axis=0)
        return self.on_gpu("forward", total, after)

    def backward(self, layer: PlanLayer, after: Handles) -> Handles:
        """Run the backward pass of one layer: its gradient is ready when this ends."""
        return self.on_gpu("backward", np.array(layer.backward_time), after, layer=layer)

    def on_gpu(
        self, kind: str, seconds: np.ndarray | float, after: Handles, *, layer: PlanLayer | None = None,
        label: str | None = None, stream: str = "compute", slowed: bool = False,
    ) -> Handles:  # fmt: skip
        """Run `seconds` of work on every worker's GPU, in order on one stream; streams share the GPU fairly."""
        per_class = np.broadcast_to(np.asarray(seconds, dtype=np.float64), (len(self.workers),))
        if not per_class.any():
            return self.all_of(after)
        links, coefficients = self._uses(("gpu", 1.0))
        return self._record(
            kind, label or kind, len(self.workers), after, layer=layer, node=self.workers, work=per_class, rate_cap=1.0,
            queue=self._queues("gpu " + stream, self.workers), links=links, coefficients=coefficients,
        )  # fmt: skip

    def gemm_seconds(self, flops: float, moved_bytes: float = 0.0) -> np.ndarray:
        """Return (W,) seconds of a dense matrix product on each worker's GPU; 0 with a warning if the GPU is unknown."""
        seconds = []
        for c in self.workers:
            gpu = self.classes[c].gpu
            one = gemm_time(gpu, self.workload.precision, flops, moved_bytes) if gpu is not None else None
            if one is None:
                self.warn("no GPU rates given: extra GPU work of the strategy (rebuild, quantise) costs nothing")
            seconds.append((one or 0.0) * self.classes[c].slowdown)
        return np.array(seconds)

    # -- moving bytes inside a node ----------------------------------------------------------------------------

    def copy_to_host(self, num_bytes: float, after: Handles, layer: PlanLayer | None = None) -> Handles:
        """Copy `num_bytes` from each GPU to its host; free when the cluster states no PCIe rate."""
        return self._copy("copy_out", "pcie_to_host", "switch_to_host", num_bytes, after, layer)

    def copy_to_gpu(self, num_bytes: float, after: Handles, layer: PlanLayer | None = None) -> Handles:
        """Copy `num_bytes` from the host to each of its GPUs."""
        return self._copy("copy_in", "pcie_to_gpu", "switch_to_gpu", num_bytes, after, layer)

    def _copy(
        self, kind: str, lane: str, switch: str, num_bytes: float, after: Handles, layer: PlanLayer | None
    ) -> Handles:
        gpus = self.gpus_per_node
        links, coefficients = self._uses(
            (lane, 1.0), (switch, float(-(-gpus // 2))), ("host_copy", float(gpus)), ("host_memory", float(gpus))
        )
        if num_bytes <= 0 or not (links >= 0).any(axis=1).all():
            return self.all_of(after)
        label = "copy to host" if kind == "copy_out" else "copy to GPU"
        return self._record(
            kind, label, len(self.workers), after, layer=layer, node=self.workers, work=num_bytes,
            queue=self._queues(kind, self.workers), links=links, coefficients=coefficients,
        )  # fmt: skip

    def host_sum(self, nodes: np.ndarray, num_bytes: float | np.ndarray, after: Handles, layer: PlanLayer | None = None) -> Handles:
        """Sum `num_bytes` of gradients on the CPU of each of `nodes` (class indices); free when no rate is stated."""
        links, coefficients = self._uses(("host_sum", 1.0), nodes=nodes)
        if not np.any(num_bytes) or not (links >= 0).any(axis=1).all():
            return self.all_of(after)
        return self._record(
            "host", "sum", len(nodes), after, layer=layer, node=nodes, work=num_bytes,
            queue=self._queues("host", nodes), links=links, coefficients=coefficients,
        )  # fmt: skip

    # -- the network -------------------------------------------------------------------------------------------

    def send(
        self, senders: np.ndarray, receivers: np.ndarray, num_bytes: float | np.ndarray, after: Handles, *,
        label: str = "send", layer: PlanLayer | None = None, priority: float = 0.0, turns: str = "at-once",
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
        sizes = np.broadcast_to(np.asarray(num_bytes, dtype=np.float64), (len(senders), len(receivers)))
        ready = np.broadcast_to(after if after.ndim == 2 else after[:, None], sizes.shape)
        out = np.full((*sizes.shape, 1 + flows.index.shape[2]), NONE)
        out[:, :, 0] = np.where(senders[:, None] == receivers[None, :], ready, NONE)
        s, r, k = np.nonzero((sizes > 0)[:, :, None] & (flows.index >= 0))
        if not len(s):
            return out
        if turns == "staggered":
            order = np.lexsort((k, (r - s) % len(receivers), s))
            s, r, k = s[order], r[order], k[order]
        rows, amounts, after_each = flows.index[s, r, k], sizes[s, r], ready[s, r]
        send = self._send_at_once if turns == "at-once" else self._send_in_turn
        out[s, r, k + 1] = send(flows, rows, amounts, after_each, label, layer, priority)
        return out

    def _send_at_once(
        self, flows: Flows, rows: np.ndarray, sizes: np.ndarray, ready: np.ndarray, label: str,
        layer: PlanLayer | None, priority: float,
    ) -> Handles:  # fmt: skip
        network, channels = self._network, self.cluster.host.channels
        if channels is not None:
            queue = self._queues("channel", flows.sender[rows], channels)
        else:
            queue = self._connections(flows, rows)
        return self._record(
            "send", label, len(rows), ready, layer=layer, node=flows.sender[rows], peer=flows.receiver[rows],
            work=sizes, latency=network.message_overhead, delay=network.latency, rate_cap=flows.rate_cap[rows],
            queue=queue, links=flows.links[rows], coefficients=flows.coefficients[rows], priority=priority,
        )  # fmt: skip

    def _send_in_turn(
        self, flows: Flows, rows: np.ndarray, sizes: np.ndarray, ready: np.ndarray, label: str,
        layer: PlanLayer | None, priority: float,
    ) -> Handles:  # fmt: skip
        """A folded row stands for `fan` receivers served one after the other; the send buffer drains by itself."""
        network = self._network
        fan = flows.fan[rows]
        coefficients = flows.coefficients[rows] / fan[:, None]
        buffered = np.minimum(sizes, self.cluster.host.send_buffer or 0.0)
        common: dict[str, Any] = {
            "layer": layer, "node": flows.sender[rows], "peer": flows.receiver[rows], "rate_cap": flows.rate_cap[rows],
            "links": flows.links[rows], "coefficients": coefficients, "priority": priority,
        }  # fmt: skip
        in_thread = self._record(
            "send", label, len(rows), ready, work=(sizes - buffered) * fan, latency=network.message_overhead * fan,
            delay=0.0 if buffered.any() else network.latency, queue=self._queues("thread", flows.sender[rows]), **common,
        )  # fmt: skip
        if not buffered.any():
            return in_thread
        return self._record(
            "send", label, len(rows), in_thread, work=buffered * fan, delay=network.latency,
            queue=self._connections(flows, rows), **common,
        )  # fmt: skip

    @property
    def _network(self) -> Network:
        assert self.cluster.network is not None  # a Cluster of several nodes always has one
        return self.cluster.network

    def _connections(self, flows: Flows, rows: np.ndarray) -> np.ndarray:
        keys = zip(flows.sender[rows], flows.receiver[rows], flows.relation[rows], strict=True)
        return np.array([self.recorder.queue(("connection", int(s), int(r), int(k))) for s, r, k in keys])

    def pause(self, seconds: float, after: Handles, label: str) -> Handles:
        """Let `seconds` pass on every worker node (the overhead of a collective call)."""
        return self._record("collective", label, len(self.workers), after, latency=seconds, node=self.workers)

    def arrived(self, sent: Handles) -> Handles:
        """Join an (S, R, K) result of `send` over its senders: (R,) handles, true when a receiver has all of it."""
        return self.all_of(np.moveaxis(sent, 1, 0).reshape(sent.shape[1], -1))

    def collective(
        self, phases: Sequence[Phase], after: Handles, *, label: str, layer: PlanLayer | None = None,
        channel: object = "collective", priority: float = 0.0, kind: str = "collective",
    ) -> Handles:  # fmt: skip
        """Run a collective over all workers, one fluid task per phase, one collective at a time on its channel."""
        ready = self.everyone(after)[:1]
        for phase in phases:
            links, coefficients = padded([merge_uses(list(phase.uses))])
            ready = self._record(
                kind, f"{label} {phase.name}".strip(), 1, ready, layer=layer, work=phase.work, latency=phase.latency,
                rate_cap=phase.rate_cap, queue=self.recorder.queue(("channel", channel)), links=links,
                coefficients=coefficients, priority=priority,
            )  # fmt: skip
        return np.repeat(ready, len(self.workers))

    # -- joins -------------------------------------------------------------------------------------------------

    def all_of(self, *handles: Handles, needed: int | None = None) -> Handles:
        """Join handles row by row; `needed` = k makes it true after the first k of them."""
        if len(handles) == 1 and handles[0].ndim == 1:
            return handles[0]
        rows = len(handles[0])
        after = np.concatenate([h.reshape(rows, -1) for h in handles], axis=1)
        after = np.sort(after, axis=1)
        after[:, 1:][after[:, 1:] == after[:, :-1]] = NONE
        real = (after >= 0).sum(axis=1)
        if needed is None and (real <= 1).all():
            alone: Handles = after.max(axis=1)
            return alone
        return self._record("join", "join", rows, after, needed=needed)

    def everyone(self, handles: Handles) -> Handles:
        """Join over all rows: true for each worker when it is true for every worker."""
        if len(handles) == 1 and handles.ndim == 1:
            return handles
        return np.repeat(self.all_of(handles.reshape(1, -1)), len(self.workers))

    # -- the end -----------------------------------------------------------------------------------------------

    def lower(self) -> tuple[Program, TaskTable]:
        """Turn what was recorded into the engine's arrays."""
        names = tuple(each.name for each in self.layers)
        return lower(self.recorder, self.fabric.capacities, self.fabric.curves, names)

    def _record(
        self, kind: str, label: str, size: int, after: Handles, *, layer: PlanLayer | None = None, **columns: object
    ) -> Handles:
        code, text = KIND[kind], self.recorder.label(label)
        index = layer.index if layer is not None else -1
        block = Block(size, code, text, after=after, layer=index, iteration=self.iteration, **columns)  # type: ignore[arg-type]
        return self.recorder.add(block)

    def _queues(self, kind: str, nodes: np.ndarray, slots: int = 1) -> np.ndarray:
        key = (kind, nodes.tobytes())
        if key not in self._queue_rows:
            self._queue_rows[key] = np.array([self.recorder.queue((kind, int(c)), slots) for c in nodes], dtype=np.int64)
        return self._queue_rows[key]

    def _uses(self, *demands: tuple[str, float], nodes: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return padded (links, coefficients) of per-node demands (kind of link, coefficient); the workers' by default."""
        where = self.workers if nodes is None else nodes
        key = (demands, where.tobytes())
        if key not in self._use_rows:
            rows = [merge_uses([(self.fabric.link(kind, int(c)), x) for kind, x in demands]) for c in where]
            self._use_rows[key] = padded(rows)
        return self._use_rows[key]

    def _flow_table(self, senders: np.ndarray, receivers: np.ndarray) -> Flows:
        key = (senders.tobytes(), receivers.tobytes())
        if key not in self._flows:
            self._flows[key] = flow_table(self.fabric, senders, receivers)
        return self._flows[key]


def _plan_layers(plan: Plan) -> tuple[tuple[PlanLayer, ...], tuple[float, ...]]:
    """Layers with parameters, with the times of parameter-free ones counted to the layer before them."""
    workload = plan.workload
    cached: dict[tuple[object, int], np.ndarray] = {}
    times = []
    for c in plan.workers:
        node_class = plan.classes[c]
        key = (id(node_class.gpu), plan.batch_of(node_class))
        if key not in cached:
            cached[key] = layer_times(workload, node_class.gpu, plan.batch_of(node_class))
        times.append(cached[key] * node_class.slowdown)
    stacked = np.stack(times)  # (W, L, 2)
    owners = [i for i, each in enumerate(workload.layers) if each.gradient_bytes(workload.element_bytes) > 0]
    if not owners:
        raise InputError(f"model {workload.name!r} has no layer with parameters, so there is nothing to synchronise")
    ends = [*owners[1:], len(workload.layers)]
    layers = []
    for index, (first, last) in enumerate(zip(owners, ends, strict=True)):
        layer = workload.layers[first]
        both = stacked[:, first:last, :].sum(axis=1)
        if index == 0:
            both[:, 1] += stacked[:, :first, 1].sum(axis=1)
        layers.append(PlanLayer(
            index=index, name=layer.name, layer=layer, gradient_bytes=layer.gradient_bytes(workload.element_bytes),
            tensor_bytes=layer.tensor_bytes(workload.element_bytes), forward_time=tuple(both[:, 0].tolist()),
            backward_time=tuple(both[:, 1].tolist()),
        ))  # fmt: skip
    stem = stacked[:, : owners[0], 0].sum(axis=1)
    return tuple(layers), tuple(stem.tolist())
