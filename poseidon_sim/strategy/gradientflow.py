"""GradientFlow: half-precision gradients in one pool, all-reduced span by span, or only the chunks that matter.

Paper: Sun et al., GradientFlow, IEEE Trans. Big Data 8(2) (arXiv 1902.06855): lazy all-reduce and coarse-grained sparse
communication (CSC).
Simplified: the update and the warm-up that sends everything are not modelled; a share of chunks is chosen, not certain chunks;
norms, selection and the sum of the chosen chunks follow the whole backward pass one after another.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

from poseidon_sim.plan.plan import Plan, PlanLayer
from poseidon_sim.plan.record import Handles
from poseidon_sim.strategy.all_reduce import AllReduce, fill_buckets
from poseidon_sim.strategy.base import Job, Strategy, backward_pass, require, require_choices
from poseidon_sim.workload.layer import Workload

PRECISIONS = ("fp32", "fp16")


@dataclass(frozen=True)
class GradientFlow(Strategy):
    """All-reduce spans of the gradient pool beside backward, or after it the chosen chunks.

    Parameters
    ----------
    lazy_size : bytes of finished gradients at which a span of the pool is all-reduced (0: every layer by itself).
    sparsity : share of the chunks that is not sent; 0 sends everything, above 0 is CSC.
    chunk_elements : gradients in a chunk.
    gradients : precision on the wire, 'fp16' or 'fp32'.
    algorithm : of the all-reduces, as in `AllReduce`.
    """

    name: ClassVar[str] = "gradientflow"
    summary: ClassVar[str] = "fp16 gradients in one pool, lazy all-reduce of spans, or of the chunks with the largest norms"
    source: ClassVar[str] = "Sun et al. 2019, arXiv 1902.06855"

    lazy_size: float = 16 * 2.0**20
    sparsity: float = 0.0
    chunk_elements: int = 32768
    gradients: str = "fp16"
    algorithm: str = "ring"

    @property
    def _all_reduce(self) -> AllReduce:
        return AllReduce(algorithm=self.algorithm)

    def validate(self, job: Job) -> Iterator[str]:
        require_choices(self, gradients=PRECISIONS)
        require(self.lazy_size >= 0, f"lazy_size={self.lazy_size} must be 0 or more bytes")
        require(0 <= self.sparsity < 1, f"sparsity={self.sparsity} must be at least 0 and below 1 (a share of the chunks)")
        require(self.chunk_elements >= 1, f"chunk_elements={self.chunk_elements} must be at least 1")
        if self.sparsity > 0:
            yield "sparse communication delays gradients; what that does to convergence is not modelled"
        yield from self._all_reduce.validate(job)

    def iteration(self, plan: Plan, start: Handles) -> Handles:
        gradients, ready = backward_pass(plan, start, overlap=True)
        if plan.num_gpus == 1:
            return ready
        if self.sparsity > 0:
            return self._sum_chosen(plan, ready, gradients[-1][0])
        shrink = plan.workload.wire_share(self.gradients)
        sizes = [layer.gradient_bytes * shrink for layer, _ in gradients]
        done, first = [], 0
        for last in accumulate(fill_buckets(sizes, self.lazy_size)):
            layer, finished = gradients[last - 1]
            done.append(self._all_reduce.reduce(plan, sum(sizes[first:last]), finished, layer, "all-reduce span"))
            first = last
        return plan.all_of(ready, *done)

    def _sum_chosen(self, plan: Plan, ready: Handles, layer: PlanLayer) -> Handles:
        """Record CSC: norms of all chunks, their sum over all GPUs, then the dense sum of the chosen chunks."""
        norm_bytes, chosen_bytes = self.sparse_bytes(plan.workload)
        pool = plan.gemm_seconds(0.0, plan.workload.gradient_bytes * plan.workload.wire_share(self.gradients))
        normed = plan.on_gpu("update", pool, after=ready, label="norms of chunks")
        agreed = self._all_reduce.reduce(plan, norm_bytes, normed, layer, "all-reduce norms")
        copy = plan.gemm_seconds(0.0, 2.0 * chosen_bytes)
        gathered = plan.on_gpu("update", copy, after=agreed, label="gather chosen chunks")
        summed = self._all_reduce.reduce(plan, chosen_bytes, gathered, layer, "all-reduce chosen chunks")
        return plan.on_gpu("update", copy, after=summed, label="scatter chosen chunks")

    def sparse_bytes(self, workload: Workload) -> tuple[float, float]:
        """Return the bytes of all norms (fp32) and of the chosen chunks."""
        chunks = math.ceil(workload.parameters / self.chunk_elements)
        chosen = max(1, round((1.0 - self.sparsity) * chunks))
        return 4.0 * chunks, chosen / chunks * workload.gradient_bytes * workload.wire_share(self.gradients)

    def network_bytes(self, job: Job) -> float:
        """What the all-reduce sends for the pool, or for the norms and the chosen chunks."""
        model = job.workload
        sent = sum(self.sparse_bytes(model)) if self.sparsity > 0 else model.gradient_bytes * model.wire_share(self.gradients)
        return self._all_reduce.network_bytes(job) * sent / job.workload.gradient_bytes
