"""Verbs for work that is not alike on all GPUs: operators on one GPU, messages between two, kernels that share a GPU."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from poseidon_sim.plan.compute import layer_times
from poseidon_sim.plan.layers import PlanLayer, layer_owners
from poseidon_sim.plan.plan import Plan
from poseidon_sim.plan.record import Handles


class Device(NamedTuple):
    """One GPU: the class of its node (which holds that node alone) and its place there."""

    node: int
    gpu: int


def devices(plan: Plan) -> list[Device]:
    """Return all GPUs, node by node; every node must have a role of its own."""
    return [Device(plan.class_of_node(node), gpu) for node in range(plan.num_nodes) for gpu in range(plan.gpus_per_node)]


def operator_times(plan: Plan) -> np.ndarray:
    """Return (L, 2, W) seconds of the forward and backward pass of every layer, parameters or not, on each worker class."""
    plan.reads |= {"batch", "rates"}
    classes = [plan.classes[c] for c in plan.workers]
    return np.stack(
        [layer_times(plan.workload, c.gpu, c.batch_size or plan.own_batch_size) * c.slowdown for c in classes], axis=2
    )


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
    plan: Plan, device: Device, kind: str, seconds: float, after: Handles, *, layer: PlanLayer, label: str | None = None
) -> Handles:
    """Run `seconds` of work on one GPU, in order; (1,) handles. The GPUs of a node make up its link together."""
    if seconds <= 0:
        return plan.all_of(after)
    queue = plan.recorder.queue(("gpu", device))
    return plan._record(
        kind, label or kind, 1, after, layer, seconds, rate_cap=1.0, queue=queue, node=device.node,
        **_uses(plan, device.node, ("gpu", 1.0 / plan.gpus_per_node)),
    )  # fmt: skip


def move(
    plan: Plan, sender: Device, receiver: Device, num_bytes: float, after: Handles, *, label: str, layer: PlanLayer | None = None
) -> Handles:
    """Send `num_bytes` from one GPU to another, over the network or inside the node; (1,) handles, true on arrival.

    Inside a node a GPU sends one message at a time; free when the cluster states no rate there.
    """
    if sender == receiver or num_bytes <= 0:
        return after
    if sender.node != receiver.node:
        ends = np.array([sender.node]), np.array([receiver.node])
        return plan.arrived(plan.send(*ends, num_bytes, after, label=label, layer=layer))
    uses = _uses(plan, sender.node, ("peer", 1.0 / plan.gpus_per_node))
    if not uses["links"].size:
        return after
    rate = plan.hardware.peer_bandwidth(plan.classes[sender.node].gpu)
    queue = plan.recorder.queue(("peer", sender))
    plan.reads.add("rates")
    return plan._record(
        "send", label, 1, after, layer, num_bytes, rate_cap=rate, delay=plan.hardware.peer_latency, queue=queue,
        node=sender.node, **uses,
    )  # fmt: skip


def _uses(plan: Plan, node: int, *demands: tuple[str, float]) -> dict[str, Any]:
    found = [(plan.links.link(name, node), x) for name, x in demands if plan.links.link(name, node) >= 0]
    return {"links": np.array([[x for x, _ in found]], dtype=np.int64), "coefficients": np.array([[x for _, x in found]])}
