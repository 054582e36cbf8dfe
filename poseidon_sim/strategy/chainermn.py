"""ChainerMN: after backward all gradients in one packed buffer, summed by one of three communicators.

Paper: Akiba, Fukuda and Suzuki, ChainerMN, NIPS'17 workshop (arXiv 1710.11351); communicators and the double-buffering optimizer
of release 1.3.
Simplified: the update costs nothing; tensors are copied into the buffer by one kernel each; NCCL's kernels take nothing from the
computation beside them; with double buffering and micro-batches the all-reduce ends before the next iteration begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from poseidon_sim.collective import Collective, LeaderExchange, LocalExchange, collective_algorithm
from poseidon_sim.plan.plan import Plan
from poseidon_sim.plan.record import Handles
from poseidon_sim.strategy.base import Job, Strategy, backward_pass, require_choices

COMMUNICATORS: dict[str, Collective] = {
    "hierarchical": LeaderExchange(),
    "two-dimensional": LocalExchange(),
    "pure-nccl": collective_algorithm("ring"),
}
PRECISIONS = ("fp32", "fp16")


@dataclass(frozen=True)
class ChainerMn(Strategy):
    """Pack, all-reduce, unpack.

    Parameters
    ----------
    communicator : 'hierarchical' (NCCL reduce to a leader per node, two all-to-alls among the leaders, NCCL broadcast),
        'two-dimensional' (every GPU exchanges its part between nodes) or 'pure-nccl' (one ring over all GPUs).
    gradients : precision on the wire, 'fp32' or 'fp16' (converted while packing).
    double_buffering : all-reduce the gradients of an iteration beside the computation of the next and use them one iteration late.
    """

    name: ClassVar[str] = "chainermn"
    summary: ClassVar[str] = "ChainerMN: one packed buffer after backward, summed hierarchically, in two dimensions or by NCCL"
    source: ClassVar[str] = "Akiba et al. 2017, arXiv 1710.11351"

    communicator: str = "hierarchical"
    gradients: str = "fp32"
    double_buffering: bool = False

    def validate(self, job: Job) -> Iterator[str]:
        require_choices(self, communicator=tuple(COMMUNICATORS), gradients=PRECISIONS)
        if job.cluster.num_gpus == 1:
            yield "one GPU: chainermn has nothing to sum"
        if self.double_buffering:
            yield "double buffering uses gradients one iteration late; what that does to convergence is not modelled"

    def iteration(self, plan: Plan, start: Handles) -> Handles:
        _, ready = backward_pass(plan, start, overlap=False)
        if plan.num_gpus == 1:
            return ready
        if not self.double_buffering:
            return self._copied(plan, self._summed(plan, self._copied(plan, ready, "pack")), "unpack")
        if self.name in plan.carried:  # the sum of the last iteration
            ready = self._copied(plan, plan.all_of(ready, plan.carried[self.name]), "unpack")
        packed = self._copied(plan, ready, "pack")
        plan.carried[self.name] = self._summed(plan, packed)
        return packed

    def _summed(self, plan: Plan, packed: Handles) -> Handles:
        wire = sum(layer.gradient_bytes for layer in plan.layers) * plan.workload.wire_share(self.gradients)
        return COMMUNICATORS[self.communicator].record(plan, wire, packed, label="all-reduce")

    def _copied(self, plan: Plan, ready: Handles, label: str) -> Handles:
        """Copy every tensor into or out of the buffer: a pass over GPU memory each."""
        share = plan.workload.wire_share(self.gradients)
        moved = [size * (1.0 + share) for layer in plan.layers for size in layer.tensor_bytes]
        return plan.on_gpu("update", sum(plan.gemm_seconds(0.0, each) for each in moved), after=ready, label=label)

    def network_bytes(self, job: Job) -> float:
        """2 (N - 1) W over N nodes: hierarchical and two-dimensional; a flat ring sends a little less, 2 (P - 1) N / P W."""
        wire = job.workload.gradient_bytes * job.workload.wire_share(self.gradients)
        return COMMUNICATORS[self.communicator].network_bytes(wire, job.cluster)
