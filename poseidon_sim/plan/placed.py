"""Verbs for work that is not alike on all GPUs: operators on one GPU, messages between two, kernels that share a GPU."""

from __future__ import annotations

import numpy as np

from poseidon_sim.cluster import Cluster, Layout
from poseidon_sim.cluster.build import merge_uses
from poseidon_sim.plan.compute import layer_times
from poseidon_sim.plan.layers import PlanLayer, layer_owners
from poseidon_sim.plan.plan import Plan
from poseidon_sim.plan.record import Handles


def one_class_per_gpu(cluster: Cluster) -> Layout:
    """Return the layout in which every GPU is a class of its own: a *device*, node by node a row of `plan.workers`."""
    return Layout(roles={node: node for node in range(cluster.nodes)}, slots=cluster.gpus_per_node)


def operator_times(plan: Plan) -> np.ndarray:
    """Return (L, 2, W) seconds of the forward and backward pass of every layer, parameters or not, on each worker class."""
    plan.reads |= {"batch", "rates"}
    classes = [plan.classes[c] for c in plan.workers]
    rows = [layer_times(plan.workload, c.gpu, c.batch_size or plan.own_batch_size) * c.slowdown for c in classes]
    return np.stack(rows, axis=2)


def operator_layers(plan: Plan) -> list[PlanLayer]:
    """Return, for every layer of the workload, the layer with parameters that it runs with (for names in the trace)."""
    owners = np.array(layer_owners(plan.workload))
    rows = np.maximum(np.searchsorted(owners, np.arange(len(plan.workload.layers)), side="right") - 1, 0)
    return [plan.layers[row] for row in rows]


def kernel(
    plan: Plan, kind: str, seconds: np.ndarray, after: Handles, *, layer: PlanLayer, label: str, streams: int = 1,
    share: float = 1.0,
) -> Handles:  # fmt: skip
    """Run a kernel on every worker's GPU: up to `streams` of them at once, each on `share` of the GPU at most."""
    queue = plan._queues("gpu streams", plan.workers, streams)
    station = plan._station("gpu kernels", plan.workers, ("gpu", 1.0)).columns
    return plan._record(
        kind, label, len(plan.workers), after, layer, seconds * share, rate_cap=share, **{**station, "queue": queue}
    )


def compute_on(
    plan: Plan, device: int, kind: str, seconds: float, after: Handles, *, layer: PlanLayer, label: str | None = None
) -> Handles:
    """Run `seconds` of work on one device's GPU, in order; (1,) handles."""
    if seconds <= 0:
        return plan.all_of(after)
    station = plan._station("gpu compute", plan.workers[device : device + 1], ("gpu", 1.0))
    return plan._record(kind, label or kind, 1, after, layer, seconds, rate_cap=1.0, **station.columns)


def move(
    plan: Plan, sender: int, receiver: int, num_bytes: float, after: Handles, *, label: str, layer: PlanLayer | None = None
) -> Handles:
    """Send `num_bytes` from one device to another, over the network or inside the node; (1,) handles, true on arrival.

    A pair sends in order. Inside a node it is free when the cluster states no rate there.
    """
    a, b = (plan.classes[plan.workers[d]] for d in (sender, receiver))
    if sender == receiver or num_bytes <= 0:
        return after
    if a.first_node != b.first_node:
        one, other = np.array([a.index]), np.array([b.index])
        return plan.arrived(plan.send(one, other, num_bytes, after, label=label, layer=layer))
    lanes = [("pcie_to_host", a.index), ("host_memory", a.index), ("pcie_to_gpu", b.index)]
    if plan.hardware.node.startswith("nv"):
        lanes = [("peer", a.index)]
    uses = merge_uses([(plan.links.link(*lane), 1.0) for lane in lanes])
    if not uses:
        return after
    links, coefficients = (np.array([row]) for row in zip(*uses, strict=True))
    return plan._record(
        "send", label, 1, after, layer, num_bytes, delay=plan.hardware.peer_latency, links=links, coefficients=coefficients,
        queue=plan.recorder.queue(("peer", a.index, b.index)), node=a.index, peer=b.index,
    )  # fmt: skip
