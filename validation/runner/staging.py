"""Between the device that computes and the memory that messages use: plain copies, or copy streams and pinned memory.

A device tells time in marks. On a CPU a mark is a reading of the clock; on a CUDA device it is an event that the
stream reaches later, so seconds are asked for when everything has ended.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .job import Job
from .model import Array

NO_CUDA = "not run: no CUDA device"


class NotRun(RuntimeError):
    """The job needs something that this machine does not have; the message says what."""


def why_not(job: Job) -> str:
    """What stands in the way of a job on this machine, or '' when nothing does."""
    if job.device == "cuda" and not torch.cuda.is_available():
        return NO_CUDA
    if job.transport == "gloo" and not torch.distributed.is_gloo_available():
        return "not run: this PyTorch has no gloo"
    return ""


Pairs = list[tuple[torch.Tensor, Array]]


class CpuStaging:
    """Device and host memory are one: gradients are copied into the buffer that is sent, parameters are shared."""

    def zeros(self, elements: int) -> Array:
        """Memory that messages use."""
        return np.zeros(elements, np.float32)

    def adopt(self, host: Array) -> torch.Tensor:
        """The device's tensor of parameters that stand in host memory."""
        return torch.from_numpy(host)

    def mark(self) -> Any:
        """Now, as the computation sees it."""
        return time.perf_counter()

    def resume(self, mark: Any) -> Any:
        """When the computation goes on after a copy was asked for at `mark`: it had to wait for it."""
        return time.perf_counter()

    def seconds(self, first: Any, last: Any) -> float:
        """Between two marks."""
        return float(last - first)

    def copy_out(self, pairs: Pairs, then: Callable[[Any, Any], None]) -> None:
        """Copy device tensors to host arrays, and then call `then` with the marks of begin and end."""
        began = self.mark()
        for source, target in pairs:
            torch.from_numpy(target).copy_(source.detach().reshape(-1))
        then(began, self.mark())

    def copy_in(self, host: Array, device: torch.Tensor) -> None:
        """Bring fresh parameters to the device: they are there already."""

    def admit(self) -> None:
        """Let the computation that follows see the fresh parameters."""

    def drain(self) -> None:
        """Wait until everything that was asked of the device has ended."""


class CudaStaging:
    """Two copy streams beside the computing one, pinned host memory, and a thread that sees copies end."""

    def __init__(self) -> None:
        if not torch.cuda.is_available():
            raise NotRun(NO_CUDA)
        self.out, self.inward = torch.cuda.Stream(), torch.cuda.Stream()
        self.copies: queue.Queue[tuple[Any, Any, Callable[[Any, Any], None]]] = queue.Queue()
        threading.Thread(target=self._watch, daemon=True).start()

    def zeros(self, elements: int) -> Array:
        """Pinned memory that messages use."""
        found: Array = torch.zeros(elements, dtype=torch.float32, pin_memory=True).numpy()
        return found

    def adopt(self, host: Array) -> torch.Tensor:
        """A copy of the parameters on the device."""
        return torch.from_numpy(host).cuda()

    def mark(self) -> Any:
        """A point of the computing stream."""
        return self._event(torch.cuda.current_stream())

    def resume(self, mark: Any) -> Any:
        """The computing stream does not wait for copies."""
        return mark

    def seconds(self, first: Any, last: Any) -> float:
        """Between two marks that were reached."""
        return float(first.elapsed_time(last)) * 1e-3

    def copy_out(self, pairs: Pairs, then: Callable[[Any, Any], None]) -> None:
        """Copy on a stream of its own once the gradient is there; `then` is called from another thread."""
        self.out.wait_stream(torch.cuda.current_stream())
        began = self._event(self.out)
        with torch.cuda.stream(self.out):
            for source, target in pairs:
                flat = source.detach().reshape(-1)
                flat.record_stream(self.out)  # its memory is not reused before the copy ends
                torch.from_numpy(target).copy_(flat, non_blocking=True)
        self.copies.put((began, self._event(self.out), then))

    def copy_in(self, host: Array, device: torch.Tensor) -> None:
        """Bring fresh parameters to the device on the other copy stream."""
        with torch.cuda.stream(self.inward):
            device.copy_(torch.from_numpy(host), non_blocking=True)

    def admit(self) -> None:
        """Let the computing stream wait for the parameters on their way in."""
        torch.cuda.current_stream().wait_stream(self.inward)

    def drain(self) -> None:
        """Wait until every copy has ended and `then` has been called for it."""
        self.copies.join()
        torch.cuda.synchronize()

    def _watch(self) -> None:
        while True:
            began, ended, then = self.copies.get()
            ended.synchronize()
            then(began, ended)
            self.copies.task_done()

    def _event(self, stream: Any) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record(stream)
        return event


class NoStaging(CudaStaging):
    """Gradients and parameters never leave the CUDA device."""

    def copy_out(self, pairs: Pairs, then: Callable[[Any, Any], None]) -> None:
        """Nothing is copied; what follows is queued behind the gradient."""
        now = self.mark()
        then(now, now)

    def copy_in(self, host: Array, device: torch.Tensor) -> None:
        """The parameters are there already."""


def staging_of(job: Job) -> CpuStaging | CudaStaging:
    """The staging of a job's device."""
    problem = why_not(job)
    if problem:
        raise NotRun(problem)
    if job.device == "cpu":
        return CpuStaging()
    return NoStaging() if job.transport == "nccl" else CudaStaging()
