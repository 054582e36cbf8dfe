"""All-reduce: gradients are summed by a collective among the workers, in one message or several.

Paper: ring, Patarasuk and Yuan 2009; fusion buckets as in Horovod and PyTorch DDP; per-tensor is WFBP.
Simplified: collectives of one job run one at a time in the order their gradients become ready (one communicator); the kernels of
a collective take no part of the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from poseidon_sim.collective import collective_algorithm, list_collectives
from poseidon_sim.errors import unknown_name
from poseidon_sim.plan.plan import Plan, PlanLayer
from poseidon_sim.plan.record import Handles
from poseidon_sim.strategy.base import Job, Strategy, backward_pass, require
from poseidon_sim.units import parse_size

#: records the all-reduce of so many bytes that are ready; the layer is the last of them
Reduce = Callable[[Plan, float, Handles, PlanLayer], Handles]


def fill_buckets(sizes: Sequence[float], bucket_size: float, first_bucket_size: float | None = None) -> list[int]:
    """Return how many gradients each bucket holds, in the order in which they come: a bucket closes when it is full.

    >>> fill_buckets([1.0, 5.0, 2.0, 9.0, 1.0], bucket_size=6.0, first_bucket_size=1.0)
    [1, 2, 1, 1]
    """
    buckets: list[int] = []
    count, filled, limit = 0, 0.0, bucket_size if first_bucket_size is None else first_bucket_size
    for size in sizes:
        count, filled = count + 1, filled + size
        if filled >= limit:
            buckets.append(count)
            count, filled, limit = 0, 0.0, bucket_size
    return [*buckets, count] if count else buckets


def through_bucket(reduce: Reduce, plan: Plan, sizes: Sequence[float], ready: Handles, layer: PlanLayer) -> Handles:
    """Record `reduce` of tensors of so many bytes; several are copied into a bucket before it and out of it afterwards.

    A copy reads and writes them once in GPU memory, on the compute stream, before the backward pass goes on. It costs nothing
    where the GPU's memory bandwidth is not known. One GPU has nothing to sum and copies nothing.
    """
    num_bytes = sum(sizes)
    gpus = [plan.classes[int(c)].gpu for c in plan.workers]
    if len(sizes) == 1 or plan.num_gpus == 1 or not all(gpu is not None and gpu.memory_bandwidth for gpu in gpus):
        return reduce(plan, num_bytes, ready, layer)

    def copied(way: str, after: Handles) -> Handles:
        seconds = plan.gemm_seconds(0.0, 2.0 * num_bytes)
        with plan.at_priority(-1.0):
            return plan.on_gpu("update", seconds, after=after, layer=layer, label=f"copy {way} bucket")

    return copied("out of", reduce(plan, num_bytes, copied("into", ready), layer))


@dataclass(frozen=True)
class AllReduce(Strategy):
    """Sum gradients with a collective.

    Parameters
    ----------
    algorithm : ring, tree, double-tree, halving-doubling, hierarchical, two-dimensional (see `list collectives`).
    fusion : 'none' (one collective per tensor), 'all' (one for the whole model) or a bucket size such as '25 MB'.
    overlap : start a collective as soon as its gradients are ready, beside the rest of backward.
    staging : 'direct' (the NIC or NVLink reads GPU memory) or 'host' (copy out, host collective, copy in).
    """

    name: ClassVar[str] = "all-reduce"
    summary: ClassVar[str] = "workers sum gradients with a ring, tree or hierarchical collective"
    source: ClassVar[str] = "Patarasuk & Yuan 2009; Horovod 2018; PyTorch DDP, VLDB'20"

    algorithm: str = "ring"
    fusion: str = "none"
    overlap: bool = True
    staging: str = "direct"

    def validate(self, job: Job) -> Iterator[str]:
        if self.algorithm not in list_collectives():
            raise unknown_name("all-reduce algorithm", self.algorithm, list_collectives())
        require(self.staging in ("direct", "host"), f"staging={self.staging!r} is not one of direct, host")
        self.bucket_bytes()
        if job.cluster.num_gpus == 1:
            yield "one GPU: all-reduce has nothing to do"

    def bucket_bytes(self) -> float:
        """Return the bytes at which a bucket is sent: 0 for every tensor by itself, inf for all at once."""
        if self.fusion == "all":
            return float("inf")
        return 0.0 if self.fusion == "none" else parse_size(self.fusion, "fusion")

    def iteration(self, plan: Plan, start: Handles) -> Handles:
        gradients, ready = backward_pass(plan, start, self.overlap)
        limit = self.bucket_bytes()
        if limit == 0.0:
            return plan.all_of(ready, *(self.sync(plan, layer, gradient) for layer, gradient in gradients))
        counts = fill_buckets([layer.gradient_bytes for layer, _ in gradients], limit)
        return plan.all_of(ready, *self.reduce_buckets(plan, gradients, counts, "all-reduce bucket"))

    def reduce_buckets(
        self, plan: Plan, gradients: Sequence[tuple[PlanLayer, Handles]], counts: Sequence[int], label: str
    ) -> list[Handles]:
        """Record one all-reduce for each bucket of so many gradients, when the last of them is ready."""
        done, first = [], 0
        for count in counts:
            last, gradient = gradients[first + count - 1]
            sizes = [size for layer, _ in gradients[first : first + count] for size in layer.tensor_bytes]
            done.append(through_bucket(partial(self.reduce, label=label), plan, sizes, gradient, last))
            first += count
        return done

    def sync(self, plan: Plan, layer: PlanLayer, ready: Handles) -> Handles:
        """Record one collective per tensor of a layer."""
        done = [self.reduce(plan, size, ready, layer, "all-reduce") for size in reversed(layer.tensor_bytes)]
        return plan.all_of(*done)

    def reduce(self, plan: Plan, num_bytes: float, ready: Handles, layer: PlanLayer, label: str) -> Handles:
        """Record one all-reduce of `num_bytes` over all GPUs, with the copies of host staging if asked."""
        if plan.num_gpus == 1:
            return ready
        if self.staging == "host":
            ready = plan.copy_to_host(num_bytes, after=ready, layer=layer)
        chosen = collective_algorithm(self.algorithm)
        done = chosen.record(plan, num_bytes, ready, label=label, layer=layer, staged=self.staging == "host")
        return plan.copy_to_gpu(num_bytes, after=done, layer=layer) if self.staging == "host" else done

    def network_bytes(self, job: Job) -> float:
        """What the algorithm's schedule sends between nodes for the whole model."""
        return collective_algorithm(self.algorithm).network_bytes(job.workload.gradient_bytes, job.cluster)
