"""All-reduce bucket by bucket, and a ring over the runner's own messages: reduce-scatter, then all-gather, one collective at a time.

A step's chunk is summed by the thread that received it, which then passes the next chunk on: no hand-over
between threads inside a ring. Collectives run in the order in which their gradients become ready, the same on
every process.
"""

from __future__ import annotations

import threading
from collections import deque
from itertools import pairwise

import numpy as np

from .job import Job
from .model import Array, Model
from .sync import Send, Sync, as_bytes
from .wire import RING, Header


class BucketSync(Sync):
    """All-reduce per tensor, or one for the whole model (`fusion='all'`)."""

    def __init__(self, job: Job, rank: int, model: Model, send: Send) -> None:
        super().__init__(job, rank, model, send)
        self.buckets, self.of_layer = buckets_of(job, model)
        self.units = len(self.buckets)
        self.layer_of_bucket = {b: layer for layer, own in enumerate(self.of_layer) for b in own}

    def layer_of(self, unit: int) -> int | None:
        return None if self.job.fusion == "all" else self.layer_of_bucket[unit]

    def complete(self, bucket: int, iteration: int) -> None:
        """Take the step that the sum of a bucket allows, and count it as fresh."""
        if self.job.true_gradients:
            lo, hi = self.buckets[bucket]
            total = self.model.flat[iteration % 2]
            for layer, first in enumerate(self.model.first[:-1]):
                a, b = max(lo, int(first)), min(hi, int(self.model.first[layer + 1]))
                if a < b:
                    self.model.apply(layer, total[a:b], a - int(first), b - int(first))
        self.finish(bucket, iteration)


class RingSync(BucketSync):
    """Reduce-scatter, then all-gather, around a ring of the runner's own messages."""

    def __init__(self, job: Job, rank: int, model: Model, send: Send) -> None:
        super().__init__(job, rank, model, send)
        self.lock = threading.RLock()
        self.waiting: deque[tuple[int, int]] = deque()
        self.current: tuple[int, int] | None = None
        self.step = 0
        self.arrived: dict[tuple[int, int, int], memoryview] = {}
        self.scratch: dict[tuple[int, int, int], Array] = {}

    def gradient_ready(self, layer: int, iteration: int) -> None:
        if self.job.workers == 1:
            self._alone(layer, iteration)
            return
        with self.lock:
            self.waiting.extend((bucket, iteration) for bucket in self.of_layer[layer])
            self._advance()

    def buffer_for(self, peer: int, header: Header) -> memoryview:
        if header.step >= self.job.workers - 1:  # all-gather: the sum goes where it belongs
            return as_bytes(self._chunk(header.layer, header.iteration, self.rank - header.step - 1))
        key = (header.layer, header.iteration % 2, header.step)
        if key not in self.scratch:
            self.scratch[key] = np.zeros(header.num_bytes // 4, np.float32)
        return as_bytes(self.scratch[key])

    def deliver(self, peer: int, header: Header, payload: memoryview) -> None:
        with self.lock:
            self.arrived[(header.layer, header.iteration, header.step)] = payload
            self._advance()

    def _chunk(self, bucket: int, iteration: int, index: int) -> Array:
        lo, hi = self.buckets[bucket]
        n = self.job.workers
        index %= n
        edges = [lo + (hi - lo) * i // n for i in (index, index + 1)]
        return self.model.flat[iteration % 2][edges[0] : edges[1]]

    def _advance(self) -> None:
        """Take every step that can be taken now (the caller holds the lock)."""
        while True:
            if self.current is None:
                if not self.waiting:
                    return
                self.current, self.step = self.waiting.popleft(), 0
                self._pass_on()
            bucket, iteration = self.current
            payload = self.arrived.pop((bucket, iteration, self.step), None)
            if payload is None:
                return
            if self.step < self.job.workers - 1:
                chunk = self._chunk(bucket, iteration, self.rank - self.step - 1)
                chunk += np.frombuffer(payload, np.float32)
            self.step += 1
            if self.step < 2 * (self.job.workers - 1):
                self._pass_on()
                continue
            self.current = None
            self.complete(bucket, iteration)

    def _pass_on(self) -> None:
        assert self.current is not None
        bucket, iteration = self.current
        chunk = self._chunk(bucket, iteration, self.rank - self.step)
        header = Header(RING, bucket, iteration, self.step, chunk.nbytes)
        self.send((self.rank + 1) % self.job.workers, header, as_bytes(chunk))

    def _alone(self, layer: int, iteration: int) -> None:
        for bucket in self.of_layer[layer]:
            self.complete(bucket, iteration)


def buckets_of(job: Job, model: Model) -> tuple[list[tuple[int, int]], list[list[int]]]:
    """Return the (first, last) elements of every bucket, and the buckets that each layer's gradient
    completes.
    """
    if job.fusion == "all":
        return [(0, int(model.first[-1]))], [[0]] + [[] for _ in job.layers[1:]]
    buckets: list[tuple[int, int]] = []
    of_layer: list[list[int]] = []
    for layer, spec in enumerate(job.layers):
        edges = int(model.first[layer]) + np.concatenate([[0], np.cumsum(spec.tensors)])
        own = list(range(len(buckets), len(buckets) + len(spec.tensors)))
        buckets += [(int(a), int(b)) for a, b in pairwise(edges)]
        of_layer.append(own[::-1])
    return buckets, of_layer
