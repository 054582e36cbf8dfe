"""PyTorch DDP: gradients fill buckets in the order in which backward makes them; a full bucket is all-reduced at once.

Source: Li et al., PyTorch Distributed, VLDB'20; 25 MiB is `bucket_cap_mb`, the first bucket has 1 MiB.
Simplified: buckets hold whole layers (DDP's hold tensors); the all-reduce's kernels take no part of the GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from poseidon_sim.plan.plan import Plan
from poseidon_sim.plan.record import Handles
from poseidon_sim.strategy.all_reduce import AllReduce, fill_buckets
from poseidon_sim.strategy.base import Job, Strategy, backward_pass, require


@dataclass(frozen=True)
class Ddp(Strategy):
    """All-reduce buckets beside the rest of backward.

    Parameters
    ----------
    bucket_size, first_bucket_size : bytes at which a bucket closes (25 MiB and 1 MiB by default).
    algorithm : of the all-reduce (NCCL's ring).
    """

    name: ClassVar[str] = "ddp"
    summary: ClassVar[str] = "PyTorch DDP: gradient buckets of 25 MiB (the first of 1 MiB), all-reduced beside backward"
    source: ClassVar[str] = "Li et al., PyTorch Distributed, VLDB'20"

    bucket_size: float = 25 * 2.0**20
    first_bucket_size: float = 2.0**20
    algorithm: str = "ring"

    @property
    def _all_reduce(self) -> AllReduce:
        return AllReduce(algorithm=self.algorithm)

    def validate(self, job: Job) -> Iterator[str]:
        for key in ("bucket_size", "first_bucket_size"):
            require(getattr(self, key) > 0, f"{key}={getattr(self, key)} must be above 0 bytes")
        yield from self._all_reduce.validate(job)

    def iteration(self, plan: Plan, start: Handles) -> Handles:
        gradients, ready = backward_pass(plan, start, overlap=True)
        counts = fill_buckets([layer.gradient_bytes for layer, _ in gradients], self.bucket_size, self.first_bucket_size)
        return plan.all_of(ready, *self._all_reduce.reduce_buckets(plan, gradients, counts, "all-reduce bucket"))

    def network_bytes(self, job: Job) -> float:
        """What the algorithm's schedule sends between nodes for the whole model."""
        return self._all_reduce.network_bytes(job)
