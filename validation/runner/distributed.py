"""All-reduce by torch.distributed itself: gloo over the CPU's memory, NCCL over that of CUDA devices."""

from __future__ import annotations

import queue
import threading
from typing import Any

import torch
import torch.distributed as dist

from .job import Job
from .ring import BucketSync
from .sync import Send
from .torch_model import TorchModel
from .wire import Header


class DistributedSync(BucketSync):
    """One asynchronous all-reduce per bucket, in the order gradients become ready; a thread sees them end.

    How the bytes travel is the library's business: none are counted.
    """

    def __init__(self, job: Job, rank: int, model: TorchModel, send: Send, meeting: str) -> None:
        super().__init__(job, rank, model, send)
        dist.init_process_group(
            job.transport, init_method=f"file://{meeting}", rank=rank, world_size=job.workers
        )
        self.torch_model = model
        self.beside = torch.cuda.Stream() if job.device == "cuda" else None
        self.sums = [torch.from_numpy(flat) for flat in model.flat]  # on a CUDA device: device memory
        if job.device == "cuda":
            self.sums = [flat.cuda() for flat in self.sums]
        self.under_way: queue.SimpleQueue[tuple[int, int, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._see_end, daemon=True).start()

    def gradient_ready(self, layer: int, iteration: int) -> None:
        model, parity = self.torch_model, iteration % 2
        if self.beside is not None:  # straight from the device's gradients
            lo, hi = int(model.first[layer]), int(model.first[layer + 1])
            parts = [p.grad.reshape(-1) for p in model.modules[layer].parameters(recurse=False) if p.grad is not None]
            torch.cat(parts, out=self.sums[parity][lo:hi])
        for bucket in self.of_layer[layer]:
            first, last = self.buckets[bucket]
            work = dist.all_reduce(self.sums[parity][first:last], async_op=True)
            self.under_way.put((bucket, iteration, work))

    def buffer_for(self, peer: int, header: Header) -> memoryview:
        raise ConnectionError(f"process {peer} sent a message of its own beside {self.job.transport}")

    def deliver(self, peer: int, header: Header, payload: memoryview) -> None:
        raise ConnectionError(f"process {peer} sent a message of its own beside {self.job.transport}")

    def close(self) -> None:
        dist.destroy_process_group()

    def _see_end(self) -> None:
        while True:
            bucket, iteration, work = self.under_way.get()
            lo, hi = self.buckets[bucket]
            with torch.cuda.stream(self.beside):  # so that the computing stream does not wait; None: nothing happens
                work.wait()
                self.torch_model.apply_on_device(self.sums[iteration % 2][lo:hi], lo)
            if self.beside is not None:
                self.beside.synchronize()
            self.finish(bucket, iteration)
