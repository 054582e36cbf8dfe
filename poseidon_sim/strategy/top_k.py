"""Top-k sparsified all-reduce: only the largest gradient values travel, with their places; the rest is kept for later.

Paper: Lin et al., Deep Gradient Compression, ICLR'18 (all-gather of every worker's k); Shi et al., gTop-k S-SGD, ICDCS'19
(arXiv 1901.04359): a tree in which every hop keeps the k largest of two sets. Selecting takes s x log2(x) seconds of x values.
Simplified: one selection over the whole model after backward, nothing overlaps; picking k of 2 k at each hop costs nothing; the
all-gather is a ring, which pays P - 1 latencies (recursive doubling: log2(P)).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from poseidon_sim.collective import AllGather, Collective, Tree
from poseidon_sim.plan.plan import Plan
from poseidon_sim.plan.record import Handles
from poseidon_sim.plan.sparse import selection_seconds, sparse_bytes
from poseidon_sim.strategy.base import Job, Strategy, backward_pass, require, require_choices
from poseidon_sim.workload.layer import Workload


@dataclass(frozen=True)
class TopK(Strategy):
    """Select the k largest values after backward, exchange values and places.

    Parameters
    ----------
    density : k over the number of parameters.
    aggregation : 'all-gather' (everybody gets everybody's k) or 'tree' (gTop-k: k values on every hop, up and down).
    selection_time : s of the selection's s x log2(x) seconds on the GPU (2.19e-10 on a P102-100, 5e-10 on a V100), 0 for none.
    staging : 'direct', or 'host': the dense gradient is copied out and in, and the host unpacks the sparse sum into it.
    """

    name: ClassVar[str] = "top-k"
    summary: ClassVar[str] = "only the largest gradient values and their places travel, by all-gather or gTop-k's tree"
    source: ClassVar[str] = "Lin et al. ICLR'18; Shi et al. gTop-k, ICDCS'19"

    density: float = 0.001
    aggregation: str = "all-gather"
    selection_time: float = 2.19e-10
    staging: str = "direct"

    def validate(self, job: Job) -> Iterator[str]:
        require(0 < self.density <= 1, f"density={self.density} must be above 0 and at most 1")
        require_choices(self, aggregation=("all-gather", "tree"), staging=("direct", "host"))
        require(self.selection_time >= 0, f"selection_time={self.selection_time} must be 0 or more seconds")
        if job.cluster.num_gpus == 1:
            yield "one GPU: top-k selects and sends nothing"
        elif self.wire_bytes(job.workload) >= job.workload.gradient_bytes:
            yield f"density={self.density} sends more bytes of values and places than the dense gradient has"

    def wire_bytes(self, workload: Workload) -> float:
        """Bytes of one worker's k values and their places."""
        return float(sparse_bytes(workload.gradient_bytes / workload.element_bytes, self.density, workload.element_bytes))

    def _exchange(self, workload: Workload, num_gpus: int) -> tuple[Collective, float]:
        """Return the collective and its buffer's bytes."""
        wire = self.wire_bytes(workload)
        return (Tree(), wire) if self.aggregation == "tree" else (AllGather(), wire * num_gpus)

    def iteration(self, plan: Plan, start: Handles) -> Handles:
        _, ready = backward_pass(plan, start, overlap=False)
        if plan.num_gpus == 1:
            return ready
        dense = plan.workload.gradient_bytes
        count = dense / plan.workload.element_bytes
        ready = plan.on_gpu("update", float(selection_seconds(self.selection_time, count)), after=ready, label="select")
        if self.staging == "host":
            ready = plan.copy_to_host(dense, after=ready)
        chosen, num_bytes = self._exchange(plan.workload, plan.num_gpus)
        ready = chosen.record(plan, num_bytes, ready, label="sparse exchange", staged=self.staging == "host")
        if self.staging == "host":
            unpacked = plan.host_sum(plan.workers, dense * plan.gpus_per_node, after=ready)
            ready = plan.copy_to_gpu(dense, after=unpacked)
        return ready

    def network_bytes(self, job: Job) -> float:
        """What the all-gather or the tree sends of values and places."""
        chosen, num_bytes = self._exchange(job.workload, job.cluster.num_gpus)
        return chosen.network_bytes(num_bytes, job.cluster)
