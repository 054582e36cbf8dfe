"""The little that profiling needs of torch: its import, clocks that are honest on each device, walks over tensors."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from poseidon_sim.errors import InputError


def import_torch() -> Any:
    """Return the torch module, or say how to get it."""
    try:
        import torch
    except ImportError as error:
        text = f"profile needs PyTorch, which cannot be imported here ({error})"
        raise InputError(f"{text}; install it with `pip install torch`, or run where your training runs") from None
    return torch


class Clock(Protocol):
    """Moments of a device, and the seconds between two of them once it has settled."""

    def stamp(self) -> Any:
        """Return the present moment, without making the device wait."""

    def between(self, start: Any, stop: Any) -> float:
        """Return seconds from one moment to another."""

    def settle(self) -> None:
        """Wait until all that was asked of the device is done."""


class CpuClock:
    """The processor's own clock: operators have ended when they return.

    >>> clock = CpuClock()
    >>> clock.between(clock.stamp(), clock.stamp()) >= 0
    True
    """

    def stamp(self) -> float:
        """Return seconds since some fixed moment."""
        return time.perf_counter()

    def between(self, start: float, stop: float) -> float:
        """Return the difference."""
        return stop - start

    def settle(self) -> None:
        """Nothing is ever under way."""


class CudaClock:
    """Events on the GPU's stream: what lies between two is what the GPU did, gaps of waiting for launches included."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def stamp(self) -> Any:
        """Return an event in the current stream."""
        event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, start: Any, stop: Any) -> float:
        """Return seconds between two events that have passed."""
        return float(start.elapsed_time(stop)) * 1e-3

    def settle(self) -> None:
        """Wait for the GPU."""
        self.torch.cuda.synchronize()


def clock_of(torch: Any, device: Any) -> Clock:
    """Return the clock of a device."""
    return CudaClock(torch) if device.type == "cuda" else CpuClock()


def tensors_in(value: Any) -> Iterator[Any]:
    """Yield the tensors of what a model takes or gives: tensors, sequences, mappings, output objects that are mappings.

    >>> list(tensors_in([1, {"a": "text"}, None]))
    []
    """
    if hasattr(value, "grad_fn") and hasattr(value, "shape"):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from tensors_in(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from tensors_in(each)


def gradients_for(torch: Any, output: Any) -> list[Any]:
    """Return a gradient for every output that needs one: 1 for a loss, drawn at random otherwise."""
    found = [t for t in tensors_in(output) if t.requires_grad]
    return [torch.ones_like(t) if t.numel() == 1 else torch.randn_like(t) for t in found]
