"""How many iterations a way of training needs to a test accuracy, at the best learning rate of a grid."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.func import vmap

from validation.convergence.nets import NETS, Net, digits
from validation.convergence.training import Gradients, Way, batches, train

#: learning rates tried, a factor of two apart
RATES = tuple(2.0**power for power in range(-5, 3))
#: accuracy is looked at after every iteration at first, later whenever a 25th more are done
RESOLUTION = 25
MOST_ITERATIONS = 4000


@dataclass(frozen=True)
class Found:
    """Iterations of every seed to the target, at the learning rate whose middle seed was there first."""

    rate: float
    iterations: tuple[int, ...]

    @property
    def mean(self) -> float:
        """The geometric mean over the seeds."""
        return math.exp(math.fsum(map(math.log, self.iterations)) / len(self.iterations))


class Accuracy:
    """The share of test images that many runs get right, given their parameters (runs, P)."""

    def __init__(self, net: Net) -> None:
        self.data = digits()
        self.scores = vmap(net.logits, in_dims=(0, None))

    def __call__(self, parameters: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            scores = self.scores(parameters, self.data.test_images)
        return (scores.argmax(-1) == self.data.test_digits).double().mean(-1)


def measure(net: str, way: Way, target: float, seeds: tuple[int, ...], rates: tuple[float, ...] = RATES) -> Found | None:
    """Train all seeds at all rates side by side until one rate has the middle seed there, then the seeds of that rate to the end.

    A rate at which some seed is not there within `MOST_ITERATIONS` is none, and the rest are tried again; None when none is left.
    """
    while rates:
        counts = (_iterations(net, way, target, seeds, rates, len(seeds) // 2 + 1) > 0).sum(1)
        best = rates[int(counts.argmax())]
        found = _iterations(net, way, target, seeds, (best,), len(seeds))[0]
        if bool((found > 0).all()):
            return Found(best, tuple(found.tolist()))
        rates = tuple(rate for rate in rates if rate != best)
    return None


def _iterations(net_name: str, way: Way, target: float, seeds: tuple[int, ...], rates: tuple[float, ...], enough: int) -> torch.Tensor:
    """Return iterations to the target (rates, seeds), 0 where not there yet when `enough` seeds of some rate are."""
    net = NETS[net_name]
    accuracy, gradients = Accuracy(net), Gradients(net, digits(), way.workers)
    start = torch.stack([net.initial(seed) for _ in rates for seed in seeds])
    per_run = torch.tensor([rate for rate in rates for _ in seeds])
    order = (each.repeat(len(rates), 1) for each in batches(len(digits().train_digits), way.batch, seeds))
    reached = torch.zeros(len(rates), len(seeds), dtype=torch.int64)
    looked = 0
    for number, at in enumerate(train(way, gradients, start, per_run, order), 1):
        if at is not None and number >= looked + max(1, number // RESOLUTION):
            looked = number
            there = accuracy(at).view(len(rates), len(seeds)) >= target
            reached[there & (reached == 0)] = number
        if number >= MOST_ITERATIONS or int((reached > 0).sum(1).max()) >= enough:
            break
    return reached
