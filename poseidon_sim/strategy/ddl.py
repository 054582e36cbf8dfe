"""PowerAI DDL: after backward one all-reduce of all gradients on a grid of GPUs, dimension by dimension.

Paper: Cho et al., PowerAI DDL, 2017 (arXiv 1708.02188); its manual for the grid and the algorithm of each dimension.
Simplified: GPUs run their rings at the same time, so all rails of a node are used: `Network.bandwidth` is that of all rails
together. 'explore' compares what the algorithms take alone by their fluid model; the real one measures at start-up. Nothing
overlaps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import ClassVar

from poseidon_sim.cluster import Cluster
from poseidon_sim.collective import Grid
from poseidon_sim.collective.grid import DIMENSION_ALGORITHMS
from poseidon_sim.plan.plan import Plan
from poseidon_sim.plan.record import Handles
from poseidon_sim.strategy.base import Job, Strategy, backward_pass, require


@dataclass(frozen=True)
class Ddl(Strategy):
    """All-reduce on a grid after backward.

    Parameters
    ----------
    grid : GPUs along each dimension, such as '4x8x8' (GPUs of a host, hosts of a rack, racks), or 'auto' (GPUs of a node x nodes).
    algorithms : 'explore' (the cheapest of each dimension), 'ring' or 'halving' for all, or one each: 'ring,halving,ring'.
    """

    name: ClassVar[str] = "ddl"
    summary: ClassVar[str] = "PowerAI DDL: one all-reduce after backward, dimension by dimension on a grid of GPUs"
    source: ClassVar[str] = "Cho et al. 2017, arXiv 1708.02188"

    grid: str = "auto"
    algorithms: str = "explore"

    def extents(self, cluster: Cluster) -> tuple[int, ...]:
        """Return the GPUs along each dimension."""
        if self.grid == "auto":
            return cluster.gpus_per_node, cluster.nodes
        sizes = self.grid.lower().split("x")
        require(all(each.isdecimal() and int(each) > 0 for each in sizes), f"grid={self.grid!r} is not a grid; write '4x8x8'")
        return tuple(int(each) for each in sizes)

    def validate(self, job: Job) -> Iterator[str]:
        extents, gpus = self.extents(job.cluster), job.cluster.num_gpus
        require(prod(extents) == gpus, f"grid={self.grid!r} has {prod(extents)} places for {gpus} GPUs")
        named = self.algorithms.split(",")
        if self.algorithms != "explore":
            known = all(each in DIMENSION_ALGORITHMS for each in named)
            require(known, f"algorithms={self.algorithms!r} names none of explore, {', '.join(DIMENSION_ALGORITHMS)}")
            counts = f"algorithms={self.algorithms!r} names {len(named)} for {len(extents)} dimensions"
            require(len(named) in (1, len(extents)), counts)
            bad = [each for each, how in zip(extents, self._named(len(extents)), strict=True) if how not in _possible(each)]
            require(not bad, f"algorithms={self.algorithms!r}: a dimension of {bad} GPUs cannot be halved; use ring for it")
        if gpus == 1:
            yield "one GPU: ddl has nothing to sum"

    def iteration(self, plan: Plan, start: Handles) -> Handles:
        _, ready = backward_pass(plan, start, overlap=False)
        if plan.num_gpus == 1:
            return ready
        num_bytes = sum(layer.gradient_bytes for layer in plan.layers)
        return self.all_reduce(plan, num_bytes).record(plan, num_bytes, ready, label="all-reduce")

    def all_reduce(self, plan: Plan, num_bytes: float) -> Grid:
        """Return the all-reduce that is used; 'explore' tries every choice of algorithms."""
        extents = self.extents(plan.hardware)
        if self.algorithms != "explore":
            return Grid(extents, self._named(len(extents)))
        choices = [Grid(extents, each) for each in product(*(_possible(extent) for extent in extents))]
        return min(choices, key=lambda each: each.seconds_alone(plan, num_bytes))

    def _named(self, num_dimensions: int) -> tuple[str, ...]:
        named = self.algorithms.split(",")
        return tuple(named) if len(named) > 1 else (named[0],) * num_dimensions

    def network_bytes(self, job: Job) -> float:
        """What crosses between nodes: on a grid g x N 2 (N - 1) W; no algorithm of a dimension changes it by itself."""
        extents = self.extents(job.cluster)
        algorithms = None if self.algorithms == "explore" else self._named(len(extents))
        return Grid(extents, algorithms).network_bytes(job.workload.gradient_bytes, job.cluster)


def _possible(extent: int) -> tuple[str, ...]:
    """Return the algorithms for a dimension, the ring first."""
    return DIMENSION_ALGORITHMS if extent > 1 and extent & (extent - 1) == 0 else DIMENSION_ALGORITHMS[:1]
