"""Reduce-scatter, all-gather, all-to-all, broadcast and reduce over all ranks, for strategies that shard or have a root.

Source: Thakur, Rabenseifner and Gropp, IJHPCA 2005 (ring halves, pairwise exchange, binomial broadcast).
`num_bytes` is the whole buffer of a rank: what is scattered, what is gathered, what is dealt out to all
ranks.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from poseidon_sim.collective.base import Collective
from poseidon_sim.collective.messages import Leg, Schedule, make_round, mirrored
from poseidon_sim.collective.ring import ring_leg, ring_rounds
from poseidon_sim.collective.tree import reduction_tree


class _RingHalf(Collective):
    """n - 1 rounds of 1/n of the buffer around a ring in node order."""

    reduces: ClassVar[bool]

    def legs(self, num_ranks: int, ranks_per_node: int = 1) -> list[Leg]:
        return [ring_leg(num_ranks, ranks_per_node, num_ranks - 1)]

    def schedule(self, num_ranks: int, ranks_per_node: int = 1) -> Schedule:
        return ring_rounds(num_ranks, self.reduces)

    def time(
        self, num_bytes: float, num_ranks: int, bandwidth: float, latency: float, ranks_per_node: int = 1,
        peer_bandwidth: float = float("inf"), peer_latency: float = 0.0,
    ) -> float:  # fmt: skip
        n, g = num_ranks, ranks_per_node
        nodes = n // g
        slowest = min(bandwidth if nodes > 1 else peer_bandwidth, peer_bandwidth if g > 1 else bandwidth)
        between = 0 if nodes == 1 else nodes - 1 if g == 1 else nodes
        return between * latency + (n - 1 - between) * peer_latency + (n - 1) / n * num_bytes / slowest


class ReduceScatter(_RingHalf):
    """Rank r ends with the sum of chunk r.

    >>> ReduceScatter().time(8e6, num_ranks=4, bandwidth=1e9, latency=0.0)
    0.006
    """

    name: ClassVar[str] = "reduce-scatter"
    summary: ClassVar[str] = (
        "every rank ends with its 1/n of the sum; (n-1)/n of the buffer through every port"
    )
    reduces: ClassVar[bool] = True


class AllGather(_RingHalf):
    """Every rank ends with the chunks of all; rank r begins with chunk r."""

    name: ClassVar[str] = "all-gather"
    summary: ClassVar[str] = "every rank ends with all chunks; (n-1)/n of the buffer through every port"
    reduces: ClassVar[bool] = False


class AllToAll(Collective):
    """Every rank sends 1/n of its buffer to every other, in n - 1 pairwise exchanges.

    The schedule's buffer is an outbox (chunk j is for rank j) followed by an inbox (chunk n + i came from
    rank i).
    """

    name: ClassVar[str] = "all-to-all"
    summary: ClassVar[str] = "n-1 pairwise exchanges of 1/n of the buffer"

    def legs(self, num_ranks: int, ranks_per_node: int = 1) -> list[Leg]:
        return [Leg(self.schedule(num_ranks, ranks_per_node))]

    def schedule(self, num_ranks: int, ranks_per_node: int = 1) -> Schedule:
        n = num_ranks
        rank = np.arange(n, dtype=np.int64)
        targets = [(rank + shift) % n for shift in range(1, n)]
        return tuple(
            make_round(rank, to, to, to + 1, reduce=False, num_chunks=n, place=n + rank) for to in targets
        )  # fmt: skip

    def time(
        self, num_bytes: float, num_ranks: int, bandwidth: float, latency: float, ranks_per_node: int = 1,
        peer_bandwidth: float = float("inf"), peer_latency: float = 0.0,
    ) -> float:  # fmt: skip
        n, g = num_ranks, ranks_per_node
        chunk, total = num_bytes / n, 0.0
        for shift in range(1, n):  # in a round min(shift, n - shift, g) GPUs of a node reach beyond it
            leaving = min(shift, n - shift, g) if n > g else 0
            staying = chunk / peer_bandwidth if leaving < g else 0.0
            total += max(leaving * chunk / bandwidth, staying) + (latency if leaving else peer_latency)
        return total


class Broadcast(Collective):
    """Rank 0 sends its buffer to all others down a binomial tree (inside each node a tree of its own)."""

    name: ClassVar[str] = "broadcast"
    summary: ClassVar[str] = "log2(n) hops of the whole buffer down a binomial tree"

    def legs(self, num_ranks: int, ranks_per_node: int = 1) -> list[Leg]:
        return [Leg(self.schedule(num_ranks, ranks_per_node))]

    def schedule(self, num_ranks: int, ranks_per_node: int = 1) -> Schedule:
        return mirrored(reduction_tree(num_ranks, ranks_per_node))

    def time(
        self, num_bytes: float, num_ranks: int, bandwidth: float, latency: float, ranks_per_node: int = 1,
        peer_bandwidth: float = float("inf"), peer_latency: float = 0.0,
    ) -> float:  # fmt: skip
        between = int(np.ceil(np.log2(num_ranks // ranks_per_node)))
        inside = int(np.ceil(np.log2(ranks_per_node)))
        return between * (latency + num_bytes / bandwidth) + inside * (
            peer_latency + num_bytes / peer_bandwidth
        )


class Reduce(Broadcast):
    """Rank 0 ends with the sum of all buffers, along the same tree upwards: broadcast's time and bytes."""

    name: ClassVar[str] = "reduce"
    summary: ClassVar[str] = "log2(n) hops of the whole buffer up a binomial tree"

    def schedule(self, num_ranks: int, ranks_per_node: int = 1) -> Schedule:
        return reduction_tree(num_ranks, ranks_per_node)
