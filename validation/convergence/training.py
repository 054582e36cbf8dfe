"""Ways to train, each for many runs (seeds and learning rates) at once: simulated workers in one process.

An iteration is one gradient of every worker on its share of the global batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.func import grad, vmap

from validation.convergence.nets import Digits, Net

#: of elastic averaging: what a worker and the centre move towards each other, times the number of workers (Zhang et al. 2015)
ELASTICITY = 0.9


@dataclass(frozen=True)
class Way:
    """How to train.

    Parameters
    ----------
    kind : 'sync', 'stale', 'local', 'elastic' or 'sparse'.
    batch : global batch. workers : it is cut into as many shares.
    amount : delay of gradients in iterations (stale), iterations between averages (local, elastic), share of gradients sent (sparse).
    """

    kind: str
    batch: int
    workers: int = 8
    amount: float = 0.0


def batches(num_train: int, batch: int, seeds: tuple[int, ...]) -> Iterator[torch.Tensor]:
    """Yield indices (seeds, batch): every seed goes through orders of its own, one after the other without a gap."""
    generators = [torch.Generator().manual_seed(1000 + seed) for seed in seeds]
    left = [torch.empty(0, dtype=torch.int64) for _ in seeds]
    while True:
        for i, generator in enumerate(generators):
            while len(left[i]) < batch:
                left[i] = torch.cat([left[i], torch.randperm(num_train, generator=generator)])
        yield torch.stack([each[:batch] for each in left])
        left = [each[batch:] for each in left]


class Gradients:
    """Gradients of every worker: parameters (runs, workers or 1, P), indices (runs, batch) -> (runs, workers, P)."""

    def __init__(self, net: Net, data: Digits, workers: int) -> None:
        self.data, self.workers = data, workers
        self.of_one = vmap(grad(net.loss))

    def __call__(self, parameters: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        runs, workers = len(parameters), self.workers
        shares = indices.reshape(runs * workers, -1)
        flat = parameters.expand(runs, workers, -1).reshape(runs * workers, -1)
        found = self.of_one(flat, self.data.train_images[shares], self.data.train_digits[shares])
        return found.reshape(runs, workers, -1)


def train(
    way: Way, gradients: Gradients, start: torch.Tensor, rates: torch.Tensor, indices: Iterator[torch.Tensor]
) -> Iterator[torch.Tensor | None]:
    """Yield, after every iteration, the parameters (runs, P) one would use then; None where there are none (between averages).

    `start` is (runs, P), `rates` (runs,). The batches of iteration t are the same whatever the way.
    """
    kinds = {"sync": _synchronous, "stale": _stale, "local": _local, "elastic": _elastic, "sparse": _sparse}
    return kinds[way.kind](way, gradients, start.unsqueeze(1), rates.view(-1, 1, 1), indices)


Steps = Iterator["torch.Tensor | None"]


def _synchronous(way: Way, gradients: Gradients, at: torch.Tensor, rates: torch.Tensor, indices: Iterator[torch.Tensor]) -> Steps:
    for each in indices:
        at = at - rates * gradients(at, each).mean(1, keepdim=True)
        yield at[:, 0]


def _stale(way: Way, gradients: Gradients, at: torch.Tensor, rates: torch.Tensor, indices: Iterator[torch.Tensor]) -> Steps:
    """Gradients are those of the parameters `amount` iterations ago."""
    past = deque([at], maxlen=int(way.amount) + 1)
    for each in indices:
        at = at - rates * gradients(past[0], each).mean(1, keepdim=True)
        past.append(at)
        yield at[:, 0]


def _local(way: Way, gradients: Gradients, at: torch.Tensor, rates: torch.Tensor, indices: Iterator[torch.Tensor]) -> Steps:
    """Every worker goes its own way and all average their parameters after `amount` iterations."""
    for number, each in enumerate(indices, 1):
        at = at - rates * gradients(at, each)
        due = number % int(way.amount) == 0
        if due:
            at = at.mean(1, keepdim=True)
        yield at[:, 0] if due else None


def _elastic(way: Way, gradients: Gradients, at: torch.Tensor, rates: torch.Tensor, indices: Iterator[torch.Tensor]) -> Steps:
    """Every worker goes its own way; after `amount` iterations it and the centre pull each other. The centre is what one uses."""
    centre, pull = at, ELASTICITY / way.workers
    for number, each in enumerate(indices, 1):
        at = at - rates * gradients(at, each)
        if number % int(way.amount) == 0:
            apart = pull * (at - centre)
            at, centre = at - apart, centre + apart.sum(1, keepdim=True)
        yield centre[:, 0]


def _sparse(way: Way, gradients: Gradients, at: torch.Tensor, rates: torch.Tensor, indices: Iterator[torch.Tensor]) -> Steps:
    """Every worker sends the largest `amount` (a share) of what it has to say and keeps the rest for later (error feedback)."""
    kept = torch.zeros(())
    for each in indices:
        unsent = kept + rates * gradients(at, each)
        count = max(1, round(way.amount * unsent.shape[-1]))
        bar = unsent.abs().topk(count, dim=-1).values[..., -1:]
        sent = torch.where(unsent.abs() >= bar, unsent, 0.0)
        kept = unsent - sent
        at = at - sent.mean(1, keepdim=True)
        yield at[:, 0]
