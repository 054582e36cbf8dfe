"""MG-WFBP: wait-free backpropagation whose gradients are merged where one message saves more than waiting costs.

Paper: Shi, Chu, Li, MG-WFBP, INFOCOM'19: equations for the start of communication, Algorithm 1 (the merging rule).
The technique needs rates: with t = startup_time + byte_time x bytes for one all-reduce, and the layers' backward times, it
decides before training. So recording reads `plan.backward_time` and, unless both figures are given, the cluster.
Simplified: with nodes that differ, the plan is made for the slowest; the figures taken from the cluster are the collective's
closed form, which does not see the copies of host staging.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from poseidon_sim.cluster import Cluster
from poseidon_sim.collective import collective_algorithm
from poseidon_sim.plan.plan import Plan, PlanLayer
from poseidon_sim.plan.record import Handles
from poseidon_sim.strategy.all_reduce import AllReduce, through_bucket
from poseidon_sim.strategy.base import Job, Strategy, backward_pass, require


def communication_starts(backward: Sequence[float], comm: Sequence[float], forward: float = 0.0) -> list[float]:
    """Return when each layer's all-reduce begins, in backward order: when its gradient is ready and the channel is free.

    Parameters
    ----------
    backward, comm : (L,) seconds of each layer's backward pass and all-reduce, last layer first.
    forward : seconds before backward begins.

    >>> communication_starts([1.0, 1.0, 1.0], [3.0, 0.5, 0.5])
    [1.0, 4.0, 4.5]
    """
    starts: list[float] = []
    ready, free = forward, 0.0
    for compute, seconds in zip(backward, comm, strict=True):
        ready += compute
        starts.append(max(ready, free))
        free = starts[-1] + seconds
    return starts


def merge_plan(
    backward: Sequence[float], sizes: Sequence[float], startup_time: float, byte_time: float, least_size: float = 0.0
) -> list[int]:
    """Return how many layers each all-reduce carries, in backward order.

    A layer joins the next one when the next gradient is ready before its own all-reduce has begun, or so soon after that
    waiting costs less than the start-up time it saves; or when less than `least_size` bytes would be sent.

    Parameters
    ----------
    backward, sizes : (L,) seconds and gradient bytes, last layer first.
    startup_time, byte_time : an all-reduce of M bytes takes startup_time + byte_time x M seconds.

    >>> merge_plan([1.0, 1.0, 2.0], [1.0, 1.0, 1.0], startup_time=1.5, byte_time=0.1)
    [2, 1]
    """
    groups: list[int] = []
    held, count, ready, free = 0.0, 0, 0.0, 0.0
    for layer, (compute, size) in enumerate(zip(backward, sizes, strict=True)):
        ready += compute
        held, count = held + size, count + 1
        start = max(ready, free)
        end = start + startup_time + byte_time * held
        last = layer + 1 == len(sizes)
        following = float("inf") if last else ready + backward[layer + 1]
        if (following < end and following - start < startup_time) or (held < least_size and not last):
            continue  # it waits for the next gradient
        groups.append(count)
        held, count, free = 0.0, 0, end
    return groups


@dataclass(frozen=True)
class MergedGradient(Strategy):
    """All-reduce in backward order with the merging of MG-WFBP.

    Parameters
    ----------
    algorithm, staging : as in `AllReduce`.
    startup_time, byte_time : seconds per all-reduce and per byte that the merging assumes; the cluster's if not given.
    least_size : bytes below which a gradient always waits for the next (32 KiB in the authors' benchmark), or None.
    """

    name: ClassVar[str] = "mg-wfbp"
    summary: ClassVar[str] = "all-reduce beside backward, merging gradients where that saves more than waiting costs"
    source: ClassVar[str] = "Shi, Chu, Li, MG-WFBP, INFOCOM'19"

    algorithm: str = "ring"
    staging: str = "direct"
    startup_time: float | None = None
    byte_time: float | None = None
    least_size: float | None = None

    @property
    def _all_reduce(self) -> AllReduce:
        return AllReduce(algorithm=self.algorithm, staging=self.staging)

    def validate(self, job: Job) -> Iterator[str]:
        for key in ("startup_time", "byte_time", "least_size"):
            given = getattr(self, key)
            require(given is None or 0 <= given < float("inf"), f"{key}={given} must be at least 0, or left out")
        yield from self._all_reduce.validate(job)

    def assumed_times(self, cluster: Cluster) -> tuple[float, float]:
        """Return (startup_time, byte_time): as given, else the algorithm's closed form on the cluster."""
        network, lanes = cluster.network, cluster.peer_bandwidth(cluster.gpu) or float("inf")
        latency = network.latency + network.message_overhead if network else 0.0
        port = min(network.goodput, lanes) if network else lanes

        def seconds(num_bytes: float) -> float:
            chosen = collective_algorithm(self.algorithm)
            return chosen.time(num_bytes, cluster.num_gpus, port, latency, cluster.gpus_per_node, lanes, cluster.peer_latency)

        startup = seconds(0.0) + (network.collective_overhead if network else 0.0)
        return (
            startup if self.startup_time is None else self.startup_time,
            (seconds(1e6) - seconds(0.0)) / 1e6 if self.byte_time is None else self.byte_time,
        )

    def merged(self, plan: Plan) -> list[int]:
        """Return how many layers each all-reduce carries, last layer first."""
        layers = plan.layers[::-1]
        times = [float(plan.backward_time(layer).max()) for layer in layers]
        sizes = [layer.gradient_bytes for layer in layers]
        return merge_plan(times, sizes, *self.assumed_times(plan.cluster), self.least_size or 0.0)

    def iteration(self, plan: Plan, start: Handles) -> Handles:
        gradients, ready = backward_pass(plan, start, overlap=True)
        synced, first = [], 0
        for count in self.merged(plan) if plan.num_gpus > 1 else ():
            last, gradient = gradients[first + count - 1]
            sizes = [size for layer, _ in gradients[first : first + count] for size in layer.tensor_bytes]
            synced.append(through_bucket(self.reduce, plan, sizes, gradient, last))
            first += count
        return plan.all_of(ready, *synced)

    def reduce(self, plan: Plan, num_bytes: float, ready: Handles, layer: PlanLayer) -> Handles:
        """Record the all-reduce of one group; `layer` is the last of it to be ready."""
        return self._all_reduce.reduce(plan, num_bytes, ready, layer, "merged all-reduce")

    def network_bytes(self, job: Job) -> float:
        """What the algorithm's schedule sends between nodes for the whole model."""
        return self._all_reduce.network_bytes(job)
