"""PyTorch DDP: gradients fill buckets in the order in which backward makes them; a full bucket is all-reduced at once.

Source: Li et al., PyTorch Distributed, VLDB'20; 25 MiB is `bucket_cap_mb`, the first bucket has 1 MiB.
Simplified: buckets hold whole layers (DDP's hold tensors); copies into and out of a bucket, and the share of the GPU that the
all-reduce's kernels take, cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from poseidon_sim.plan.plan import Plan
from poseidon_sim.plan.record import Handles
from poseidon_sim.strategy.all_reduce import AllReduce
from poseidon_sim.strategy.base import Job, Strategy, backward_pass, require


def fill_buckets(sizes: Sequence[float], bucket_size: float, first_bucket_size: float) -> list[int]:
    """Return how many gradients each bucket holds, in the order in which they come: a bucket closes when it is full.

    >>> fill_buckets([1.0, 5.0, 2.0, 9.0, 1.0], bucket_size=6.0, first_bucket_size=1.0)
    [1, 2, 1, 1]
    """
    buckets: list[int] = []
    count, filled, limit = 0, 0.0, first_bucket_size
    for size in sizes:
        count, filled = count + 1, filled + size
        if filled >= limit:
            buckets.append(count)
            count, filled, limit = 0, 0.0, bucket_size
    return [*buckets, count] if count else buckets


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
        sizes = [layer.gradient_bytes for layer, _ in gradients]
        synced, first = [], 0
        for count in fill_buckets(sizes, self.bucket_size, self.first_bucket_size):
            last, gradient = gradients[first + count - 1]
            num_bytes = sum(sizes[first : first + count])
            synced.append(self._all_reduce.reduce(plan, num_bytes, gradient, last, "all-reduce bucket"))
            first += count
        return plan.all_of(ready, *synced)

    def network_bytes(self, job: Job) -> float:
        """What the algorithm's schedule sends between nodes for the whole model."""
        return self._all_reduce.network_bytes(job)
