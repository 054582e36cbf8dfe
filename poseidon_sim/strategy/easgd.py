"""EASGD: every worker keeps weights of its own and is drawn, now and then, towards a centre that a master keeps.

Paper: Zhang, Choromanska, LeCun, NIPS'15; round robin, asynchronous, Hogwild and Sync EASGD 1, 2, 3 with one packed message are
You, Buluc, Demmel, SC17 (arXiv 1708.02983). Theano-MPI's worker asks first come, first served, after `exchange_steps` steps.
Simplified: the elastic update is four passes over the weights in GPU memory, the centre's three (one sum on a host); copies of the
batch are the input's; several GPUs of a node have one port; what staleness does to convergence is not modelled.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from poseidon_sim.cluster import Layout
from poseidon_sim.collective import Broadcast, Collective, Reduce
from poseidon_sim.plan.plan import Plan
from poseidon_sim.plan.record import Handles
from poseidon_sim.plan.service import copy_of_one, serve
from poseidon_sim.strategy.base import Job, Strategy, backward_pass, require, require_choices

_SERVED = {"round-robin": "round-robin", "first-come": "first-come", "hogwild": "at-once"}
_TOGETHER = ("sync-1", "sync-2", "sync-3")


@dataclass(frozen=True)
class Easgd(Strategy):
    """Exchange weights with a centre: worker by worker, or all together along a tree.

    Parameters
    ----------
    method : 'round-robin' (the original: the master serves one worker after the other, in order), 'first-come' (who asks first),
        'hogwild' (all at once, no lock), or together: 'sync-1' (centre on a host; broadcast beside compute, then a tree sum),
        'sync-2' (centre on a GPU), 'sync-3' (the tree sum is of the old weights, so both run beside compute). One worker after
        the other, the master is the host when there is one node, else an extra node.
    message : 'single' (all layers packed into one) or 'per-layer'.
    exchange_steps : steps between two exchanges.
    overlap : a worker that is served alone asks when its step begins and computes meanwhile.
    """

    name: ClassVar[str] = "easgd"
    summary: ClassVar[str] = "workers exchange weights with a master's centre, one by one or together along a tree"
    source: ClassVar[str] = "Zhang et al. NIPS'15; You, Buluc, Demmel, SC17"

    method: str = "sync-3"
    message: str = "single"
    exchange_steps: int = 1
    overlap: bool = False

    @property
    def iteration_staleness(self) -> float:
        return 0.0 if self.method in ("sync-1", "sync-2") and self.exchange_steps == 1 else math.inf

    def num_iterations(self) -> tuple[int, int]:
        every = self.exchange_steps
        return super().num_iterations() if self.iteration_staleness == 0 else (4 * every, 4 * every)

    def layout(self, job: Job) -> Layout:
        if self.method in _TOGETHER:
            return Layout()
        nodes = job.cluster.nodes
        roles = {node: node for node in range(nodes)}  # whose turn it is tells workers apart
        return Layout(extra_nodes=int(nodes > 1), roles=roles, slots=job.cluster.gpus_per_node)

    def validate(self, job: Job) -> Iterator[str]:
        require_choices(self, method=(*_SERVED, *_TOGETHER), message=("single", "per-layer"))
        require(self.exchange_steps >= 1, f"exchange_steps={self.exchange_steps} must be at least 1")
        alone = self.method in _SERVED
        require(alone or not self.overlap, f"overlap=True: method={self.method} has a rule of its own for that; leave it out")
        if job.cluster.num_gpus == 1:
            yield "one GPU: easgd has one worker"

    def iteration(self, plan: Plan, start: Handles) -> Handles:
        exchanges = (plan.iteration + 1) % self.exchange_steps == 0
        if exchanges and self.method in _TOGETHER:
            return self._together(plan, start)
        _, computed = backward_pass(plan, start, overlap=False)
        if exchanges:
            asked = start if self.overlap else computed
            master = int(plan.servers[0]) if plan.num_nodes > 1 else None
            answered = serve(plan, plan.workers, master, self._sizes(plan), asked, order=_SERVED[self.method])
            computed = plan.all_of(computed, answered)
        return self._update(plan, computed)

    def _together(self, plan: Plan, start: Handles) -> Handles:
        """Record a step of Sync EASGD: 1 compute, 2 broadcast of the centre, 3 tree sum of weights, 4 and 5 updates."""
        sizes, hosted = self._sizes(plan), self.method == "sync-1"
        whole = sum(sizes)
        fresh = copy_of_one(plan, "copy_in", whole, start) if hosted else start
        spread = self._along_tree(plan, Broadcast(), sizes, fresh, "broadcast")
        _, computed = backward_pass(plan, start, overlap=False)
        both = plan.all_of(computed, spread)
        summed = self._along_tree(plan, Reduce(), sizes, spread if self.method == "sync-3" else both, "tree sum")
        ready = plan.all_of(both, summed)
        if hosted:
            on_host = copy_of_one(plan, "copy_out", whole, summed)
            centre = plan.host_sum(plan.workers, whole, after=on_host)
        else:
            seconds = plan.gemm_seconds(0.0, 3.0 * whole)
            centre = plan.on_gpu("update", seconds, after=ready, label="update centre", stream="centre")
        return plan.all_of(self._update(plan, ready), centre)

    def _along_tree(self, plan: Plan, tree: Collective, sizes: Sequence[float], ready: Handles, label: str) -> Handles:
        for size in sizes:
            ready = tree.record(plan, size, ready, label=label)
        return ready

    def _update(self, plan: Plan, ready: Handles) -> Handles:
        """Record the elastic update of every worker's weights."""
        seconds = plan.gemm_seconds(0.0, 4.0 * plan.workload.gradient_bytes)
        return plan.on_gpu("update", seconds, after=ready, label="elastic update")

    def _sizes(self, plan: Plan) -> list[float]:
        """Return the bytes of each message that carries the weights."""
        if self.message == "single":
            return [plan.workload.gradient_bytes]
        return [layer.gradient_bytes for layer in plan.layers]

    def network_bytes(self, job: Job) -> float:
        """Weights up and down: 2 W for every worker of a master on a node of its own, 2 (nodes - 1) W along trees."""
        cluster, weights = job.cluster, job.workload.gradient_bytes
        if self.method in _TOGETHER:
            sent = 2.0 * (cluster.nodes - 1)
        else:
            sent = 2.0 * cluster.num_gpus if cluster.nodes > 1 else 0.0
        return sent * weights / self.exchange_steps
