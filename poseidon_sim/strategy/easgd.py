"""EASGD: every worker keeps weights of its own and a master, who serves one at a time, draws them towards a centre.

Paper: Zhang, Choromanska, LeCun, NIPS'15; the original round robin, asynchronous and Hogwild EASGD are You, Buluc, Demmel, SC17
(arXiv 1708.02983). Theano-MPI's worker asks first come, first served, after `exchange_steps` steps.
Simplified: the elastic update is four passes over the weights in GPU memory, the centre's one sum on the host; several GPUs of a
node have one port; what staleness does to convergence is not modelled.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from poseidon_sim.cluster import Layout
from poseidon_sim.plan.plan import Plan
from poseidon_sim.plan.record import Handles
from poseidon_sim.plan.service import serve
from poseidon_sim.strategy.base import Job, Strategy, backward_pass, require, require_choices


def messages(plan: Plan, message: str) -> list[float]:
    """Return the bytes of each message that carries the weights: all layers packed into one, or one per layer."""
    return [plan.workload.gradient_bytes] if message == "single" else [layer.gradient_bytes for layer in plan.layers]


def elastic_update(plan: Plan, ready: Handles) -> Handles:
    """Record the update of every worker's weights: reads weights, gradient and centre, writes weights."""
    seconds = plan.gemm_seconds(0.0, 4.0 * plan.workload.gradient_bytes)
    return plan.on_gpu("update", seconds, after=ready, label="elastic update")


@dataclass(frozen=True)
class Easgd(Strategy):
    """Exchange weights with the centre, worker by worker (every GPU is one).

    The master is the host when there is one node, else an extra node.

    Parameters
    ----------
    order : 'round-robin' (the original: one worker after the other, by number), 'first-come' (who asks first) or 'hogwild' (no
        lock: nobody waits for the master, transfers share its port).
    message : 'single' (all layers packed into one) or 'per-layer'.
    exchange_steps : steps between two exchanges.
    overlap : a worker asks when its step begins and computes meanwhile; else when its gradients are there.
    """

    name: ClassVar[str] = "easgd"
    summary: ClassVar[str] = "workers exchange weights with a master's centre, served one at a time"
    source: ClassVar[str] = "Zhang et al. NIPS'15; You, Buluc, Demmel, SC17"

    order: str = "round-robin"
    message: str = "single"
    exchange_steps: int = 1
    overlap: bool = False

    @property
    def iteration_staleness(self) -> float:
        return math.inf

    def num_iterations(self) -> tuple[int, int]:
        return 4 * self.exchange_steps, 4 * self.exchange_steps

    def layout(self, job: Job) -> Layout:
        nodes = job.cluster.nodes
        roles = {node: node for node in range(nodes)}  # whose turn it is tells workers apart
        return Layout(extra_nodes=int(nodes > 1), roles=roles, slots=job.cluster.gpus_per_node)

    def validate(self, job: Job) -> Iterator[str]:
        require_choices(self, order=("round-robin", "first-come", "hogwild"), message=("single", "per-layer"))
        require(self.exchange_steps >= 1, f"exchange_steps={self.exchange_steps} must be at least 1")
        if job.cluster.num_gpus == 1:
            yield "one GPU: easgd has one worker"

    def iteration(self, plan: Plan, start: Handles) -> Handles:
        _, computed = backward_pass(plan, start, overlap=False)
        if (plan.iteration + 1) % self.exchange_steps:
            return computed
        master = int(plan.servers[0]) if plan.num_nodes > 1 else None
        asked = start if self.overlap else computed
        answered = serve(plan, plan.workers, master, messages(plan, self.message), asked, order=self.order)
        return elastic_update(plan, plan.all_of(computed, answered))

    def network_bytes(self, job: Job) -> float:
        """Weights up and centre down for every worker, when the master is a node of its own."""
        sent = 2.0 * job.cluster.num_gpus if job.cluster.nodes > 1 else 0.0
        return sent * job.workload.gradient_bytes / self.exchange_steps
