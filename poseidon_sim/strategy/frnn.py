"""FRNN's runner: weights cross PCIe four times a step, and the hosts sum the changes tensor by tensor with MPI.

Paper: Svyatkovskiy, Kates-Harbeck, Tang, MLHPC'17 (arXiv 1912.00286) and its code: a replica reads its weights to the host, trains
on a batch, reads them again, takes the difference and restores the old ones; one all-reduce per tensor; the host's optimizer steps
and the weights are written back. Nothing overlaps.
Simplified: the difference and the optimizer's step are each one pass of the host's sum over the weights; turning fp32 into fp16
and back is another; the scalar all-reduces of loss and sample count are two messages of 8 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from poseidon_sim.collective import collective_algorithm
from poseidon_sim.plan.plan import Plan
from poseidon_sim.plan.record import Handles
from poseidon_sim.strategy.all_reduce import AllReduce
from poseidon_sim.strategy.base import Job, Strategy, backward_pass
from poseidon_sim.workload.layer import Workload

NUM_SCALARS, SCALAR_BYTES = 2, 8.0


@dataclass(frozen=True)
class Frnn(Strategy):
    """All-reduce of weight changes from host to host after the step.

    Parameters
    ----------
    algorithm : of the all-reduce, as in `AllReduce`; MPI takes halving and doubling for tensors of this size.
    half : fp16 on the wire, summed by an operator of its own.
    """

    name: ClassVar[str] = "frnn"
    summary: ClassVar[str] = "host all-reduce per tensor after the step, weights cross PCIe four times"
    source: ClassVar[str] = "Svyatkovskiy et al., MLHPC'17, arXiv 1912.00286"

    algorithm: str = "halving-doubling"
    half: bool = False

    def validate(self, job: Job) -> Iterator[str]:
        yield from AllReduce(algorithm=self.algorithm).validate(job)

    def iteration(self, plan: Plan, start: Handles) -> Handles:
        weights = plan.workload.gradient_bytes
        kept = plan.copy_to_host(weights, after=start)
        _, computed = backward_pass(plan, kept, overlap=False)
        ready = plan.copy_to_host(weights, after=computed)
        ready = self._on_host(plan, ready, passes=2 if self.half else 1)
        ready = plan.copy_to_gpu(weights, after=ready)
        for layer in plan.layers:
            for size in layer.tensor_bytes:
                ready = self._sum(plan, size * self._share(plan.workload), ready, f"all-reduce {layer.name}")
        for _ in range(NUM_SCALARS):
            ready = self._sum(plan, SCALAR_BYTES, ready, "all-reduce loss")
        ready = self._on_host(plan, ready, passes=2 if self.half else 1)
        return plan.copy_to_gpu(weights, after=ready)

    def _share(self, workload: Workload) -> float:
        return workload.wire_share("fp16") if self.half else 1.0

    def _sum(self, plan: Plan, num_bytes: float, ready: Handles, label: str) -> Handles:
        """Record one all-reduce from host to host."""
        return collective_algorithm(self.algorithm).record(plan, num_bytes, ready, label=label, staged=True)

    def _on_host(self, plan: Plan, ready: Handles, passes: int) -> Handles:
        """Record passes over the weights of all replicas of a node."""
        return plan.host_sum(plan.workers, passes * plan.gpus_per_node * plan.workload.gradient_bytes, after=ready)

    def network_bytes(self, job: Job) -> float:
        """What the algorithm's schedule sends for the weights, in fp16 half of it, and for the scalars."""
        per_byte = collective_algorithm(self.algorithm).network_bytes(1.0, job.cluster)
        return per_byte * (self._share(job.workload) * job.workload.gradient_bytes + NUM_SCALARS * SCALAR_BYTES)
