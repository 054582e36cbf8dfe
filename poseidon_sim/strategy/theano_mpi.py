"""Theano-MPI: after the whole backward pass one exchange per tensor, one after another, by the exchanger that is chosen.

Paper: Ma, Mao and Taylor, Theano-MPI, Euro-Par UCHPC 2016 (arXiv 1605.08325), section 3; exchanger_strategy.py of its repository.
Simplified: the update, the prefetched input and padding of tensors to a multiple of the workers cost nothing. Waiting for the
slowest worker is waiting, not transfer: the first exchange begins when all are ready.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from poseidon_sim.collective import AllGather, AllToAll, Collective, SwapTree, collective_algorithm
from poseidon_sim.collective.base import UnitPhases
from poseidon_sim.plan.phases import phases_for
from poseidon_sim.plan.plan import Phase, Plan, PlanLayer
from poseidon_sim.plan.record import Handles
from poseidon_sim.strategy.all_reduce import AllReduce
from poseidon_sim.strategy.base import Job, Strategy, backward_pass, require, require_choices
from poseidon_sim.workload.layer import Workload

EXCHANGES = ("ar", "asa32", "asa16", "copper", "nccl32", "nccl16")
COPPER_WORKERS = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class _MpiPhases:
    """Under which a plan keeps the phases of an algorithm for one byte, when MPI passes so many bytes/s of a message."""

    algorithm: Collective
    rate: float

    def of(self, plan: Plan) -> list[Phase]:
        """Return the phases on the links of a plan."""
        return [unit._replace(rate_cap=min(unit.rate_cap, self.rate)) for unit in UnitPhases(self.algorithm, False).of(plan)]


@dataclass(frozen=True)
class TheanoMpi(Strategy):
    """Exchange tensor by tensor after backward.

    Parameters
    ----------
    exchange : 'ar' (copy to the host, MPI all-reduce there, copy back), 'asa32' (all-to-all, the GPU sums, all-gather), 'asa16'
        (the same in half precision, converted before and after), 'copper' (trees written out for 2, 4, 8 and 16 GPUs), 'nccl32'
        and 'nccl16' (NCCL 1's ring).
    call_time : seconds that every call for a tensor costs.
    copy_time : seconds per byte for which NCCL 1's thread block copies its last part (1/k) out of its buffer.
    message_bandwidth : bytes/s at which CUDA-aware MPI passes a message between GPUs (asa32, asa16), copied piece by piece through
        buffers of the host; the links' rate if not given. Messages spelled out (detail 'rounds') know the links' rate only.
    """

    name: ClassVar[str] = "theano-mpi"
    summary: ClassVar[str] = "Theano-MPI: one exchange per tensor after backward, by the chosen exchanger"
    source: ClassVar[str] = "Ma, Mao & Taylor 2016, arXiv 1605.08325"

    exchange: str = "nccl32"
    call_time: float = 0.0
    copy_time: float = 0.0
    message_bandwidth: float | None = None

    def validate(self, job: Job) -> Iterator[str]:
        require_choices(self, exchange=EXCHANGES)
        for key in ("call_time", "copy_time"):
            require(getattr(self, key) >= 0, f"{key}={getattr(self, key)} must be 0 or more")
        rate = self.message_bandwidth
        require(rate is None or rate > 0, f"message_bandwidth={rate} must be above 0 bytes/s, or left out")
        if self.exchange == "copper":
            gpus = job.cluster.num_gpus
            require(gpus in COPPER_WORKERS, f"exchange='copper' is written out for 2, 4, 8 and 16 GPUs, not {gpus}; use nccl32")
        if job.cluster.num_gpus == 1:
            yield "one GPU: theano-mpi has nothing to exchange"

    def iteration(self, plan: Plan, start: Handles) -> Handles:
        gradients, done = backward_pass(plan, start, overlap=False)
        if plan.num_gpus == 1:
            return done
        for layer, _ in gradients:
            for size in reversed(layer.tensor_bytes):
                done = self.exchanged(plan, size, done, layer)
        return done

    def exchanged(self, plan: Plan, num_bytes: float, ready: Handles, layer: PlanLayer) -> Handles:
        """Record the exchange of one tensor, with the conversions of the half-precision exchangers."""
        if self.call_time > 0:
            ready = plan.pause(self.call_time, plan.everyone(ready), "exchange call")
        wire = num_bytes * self._share(plan.workload)
        if wire == num_bytes:
            return self._summed(plan, num_bytes, ready, layer)
        halved = self._kernel(plan, num_bytes + wire, ready, layer, "convert to fp16")
        summed = self._summed(plan, wire, halved, layer)
        return self._kernel(plan, num_bytes + wire, summed, layer, "convert from fp16")

    def _summed(self, plan: Plan, num_bytes: float, ready: Handles, layer: PlanLayer) -> Handles:
        if self.exchange == "ar":
            return AllReduce(staging="host").reduce(plan, num_bytes, ready, layer, "MPI all-reduce")
        if self.exchange.startswith("asa"):
            parts = self._passed(AllToAll(), plan, num_bytes, ready, layer)
            own = self._kernel(plan, num_bytes * (1.0 + 1.0 / plan.num_gpus), parts, layer, "sum of parts")
            return self._passed(AllGather(), plan, num_bytes, own, layer)
        done = self._collectives()[0].record(plan, num_bytes, ready, label=self.exchange, layer=layer)
        if self.exchange == "copper" or not self.copy_time:
            return done
        seconds = self.copy_time * num_bytes / plan.num_gpus
        return plan.on_gpu("update", seconds, after=done, layer=layer, label="copy out of the buffer", stream="exchange")

    def _passed(self, chosen: Collective, plan: Plan, num_bytes: float, ready: Handles, layer: PlanLayer) -> Handles:
        """Record one call of CUDA-aware MPI."""
        if self.message_bandwidth is None or plan.rounds:
            return chosen.record(plan, num_bytes, ready, label=chosen.name, layer=layer)
        key = _MpiPhases(chosen, self.message_bandwidth)
        return plan.collective(phases_for(plan, key, num_bytes), ready, label=chosen.name, layer=layer, key=key)

    def _kernel(self, plan: Plan, moved_bytes: float, ready: Handles, layer: PlanLayer, label: str) -> Handles:
        """Run one pass over GPU memory."""
        return plan.on_gpu("update", plan.gemm_seconds(0.0, moved_bytes), after=ready, layer=layer, label=label, stream="exchange")

    def _collectives(self) -> tuple[Collective, ...]:
        if self.exchange.startswith("asa"):
            return AllToAll(), AllGather()
        return (SwapTree() if self.exchange == "copper" else collective_algorithm("ring"),)

    def _share(self, workload: Workload) -> float:
        """Return the share of the bytes that travels: the half-precision exchangers convert."""
        return workload.wire_share("fp16") if self.exchange.endswith("16") else 1.0

    def network_bytes(self, job: Job) -> float:
        """What the collectives send between nodes: 2 (k-1) W for ring and all-to-all with all-gather, half of it in fp16."""
        wire = job.workload.gradient_bytes * self._share(job.workload)
        return sum(each.network_bytes(wire, job.cluster) for each in self._collectives())
