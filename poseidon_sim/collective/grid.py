"""All-reduce on a grid of ranks, dimension by dimension: reduce-scatter on ever smaller shards, all-gather back.

Source: PowerAI DDL (Cho et al. 2017, arXiv 1708.02188) and BlueConnect (Cho et al., MLSys 2019). On a grid x, y, z a GPU sends
2 N (x-1)/x along X, 2 N/x (y-1)/y along Y, 2 N/(xy) (z-1)/z along Z, in 2 (x-1) + 2 (y-1) + 2 (z-1) ring rounds instead of
2 (xyz - 1). Every dimension goes around a ring or halves and doubles (powers of two: log2 rounds for the same bytes).
Rank = (z Y + y) X + x, so that X is the GPUs of a node when it has as many.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar

import numpy as np

from poseidon_sim.collective.base import Collective
from poseidon_sim.collective.messages import Leg, Schedule, make_round, mirrored
from poseidon_sim.collective.ring import ring_steps

DIMENSION_ALGORITHMS = ("ring", "halving")


class Grid(Collective):
    """Reduce-scatter along every dimension of `extents`, all-gather along them in reverse.

    `algorithms` has the algorithm of each dimension, 'ring' or 'halving' (recursive halving, then doubling).

    >>> Grid((4, 2)).time(8.0, 8, bandwidth=1.0, latency=0.0, ranks_per_node=4, peer_bandwidth=8.0)
    9.5
    """

    name: ClassVar[str] = "grid"
    summary: ClassVar[str] = "reduce-scatter along each dimension of a grid of GPUs on smaller and smaller shards, all-gather back"

    def __init__(self, extents: Sequence[int], algorithms: Sequence[str] | None = None) -> None:
        self.extents = tuple(extents)
        self.algorithms = tuple(algorithms or ("ring",) * len(self.extents))

    def legs(self, num_ranks: int, ranks_per_node: int = 1) -> list[Leg]:
        down = []
        for axis, algorithm in enumerate(self.algorithms):
            rounds = self._reduce_scatter(axis)
            if rounds:
                alike = algorithm == "ring"  # every round moves as much between the same ranks
                down.append(Leg(rounds[:1] if alike else rounds, len(rounds) if alike else 1, f"dimension {axis + 1}"))
        return [*down, *reversed(down)]

    def schedule(self, num_ranks: int, ranks_per_node: int = 1) -> Schedule:
        axes = range(len(self.extents))
        down = [each for axis in axes for each in self._reduce_scatter(axis)]
        up = [each for axis in reversed(axes) for each in self._all_gather(axis)]
        return (*down, *up)

    def time(
        self, num_bytes: float, num_ranks: int, bandwidth: float, latency: float, ranks_per_node: int = 1,
        peer_bandwidth: float = float("inf"), peer_latency: float = 0.0,
    ) -> float:  # fmt: skip
        """As in the base class; every dimension must lie inside the nodes or between them."""
        g, held, total = ranks_per_node, 1, 0.0
        for extent, algorithm in zip(self.extents, self.algorithms, strict=True):
            rounds = extent - 1 if algorithm == "ring" else (extent - 1).bit_length()
            inside = held * extent <= g
            rate = peer_bandwidth if inside else bandwidth / g  # the GPUs of a node share its port
            moved = (extent - 1) / extent * num_bytes / held
            total += 2 * (rounds * (peer_latency if inside else latency) + moved / rate)
            held *= extent
        return total

    def _place(self, axis: int) -> tuple[np.ndarray, np.ndarray, int, np.ndarray, int]:
        """Return ranks, their place along an axis, its stride, where each rank's shard begins and a block of it, in chunks."""
        num_ranks = prod(self.extents)
        rank = np.arange(num_ranks, dtype=np.int64)
        stride, block, begins = 1, num_ranks, np.zeros(num_ranks, dtype=np.int64)
        for each in self.extents[:axis]:
            block //= each
            begins += rank // stride % each * block
            stride *= each
        extent = self.extents[axis]
        return rank, rank // stride % extent, stride, begins, block // extent

    def _reduce_scatter(self, axis: int) -> Schedule:
        extent = self.extents[axis]
        if self.algorithms[axis] == "ring":
            return self._ring(axis, reduce=True)
        rank, place, stride, begins, block = self._place(axis)
        rounds, apart = [], extent // 2
        while apart:
            partner = place ^ apart
            at = begins + partner // apart * apart * block  # the half that the partner goes on with
            rounds.append(
                make_round(rank, rank + (partner - place) * stride, at, at + apart * block, reduce=True, num_chunks=len(rank))
            )
            apart //= 2
        return tuple(rounds)

    def _all_gather(self, axis: int) -> Schedule:
        return self._ring(axis, reduce=False) if self.algorithms[axis] == "ring" else mirrored(self._reduce_scatter(axis))

    def _ring(self, axis: int, reduce: bool) -> Schedule:
        rank, place, stride, begins, block = self._place(axis)
        extent = self.extents[axis]
        right = rank + ((place + 1) % extent - place) * stride
        starts = [begins + step[place] * block for step in ring_steps(extent, reduce)]
        return tuple(make_round(rank, right, at, at + block, reduce=reduce, num_chunks=len(rank)) for at in starts)
