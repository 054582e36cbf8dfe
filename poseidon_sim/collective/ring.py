"""Ring all-reduce: n - 1 rounds of reduce-scatter and n - 1 of all-gather, each moving 1/n of the buffer.

Source: Patarasuk and Yuan, JPDC 2009. Bandwidth-optimal: 2 (n - 1) / n of the buffer crosses every link of
the ring. With g GPUs per node a chunk passes hops inside and between nodes in turn; latencies are counted on
the longest chain of 2 (n - 1) hops, which holds 2 m of the m nodes' links (2 m - 1 for g = 2,
2 m - 2 for g = 1). NCCL's tuning.cc counts 2 (m - 1).
Simplified: every round takes the bytes of the slowest hop. Message by message the quicker hops inside nodes
make it faster when latency rules.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from poseidon_sim.collective.base import Collective
from poseidon_sim.collective.messages import Ints, Leg, Round, Schedule, make_round


class Ring(Collective):
    """All ranks in one ring, node after node, so every node's port carries one flow each way.

    >>> Ring().time(8e6, num_ranks=4, bandwidth=1e9, latency=1e-5)
    0.01206
    """

    name: ClassVar[str] = "ring"
    summary: ClassVar[str] = "2(n-1) rounds of 1/n of the buffer; bandwidth-optimal, latency grows with n"

    def legs(self, num_ranks: int, ranks_per_node: int = 1) -> list[Leg]:
        return [ring_leg(num_ranks, ranks_per_node, 2 * (num_ranks - 1))]

    def schedule(self, num_ranks: int, ranks_per_node: int = 1) -> Schedule:
        return (*ring_rounds(num_ranks, reduce=True), *ring_rounds(num_ranks, reduce=False))

    def time(
        self, num_bytes: float, num_ranks: int, bandwidth: float, latency: float, ranks_per_node: int = 1,
        peer_bandwidth: float = float("inf"), peer_latency: float = 0.0,
    ) -> float:  # fmt: skip
        n, g = num_ranks, ranks_per_node
        nodes = n // g
        slowest = min(bandwidth if nodes > 1 else peer_bandwidth, peer_bandwidth if g > 1 else bandwidth)
        between = 2 * nodes - max(0, 3 - g) if nodes > 1 else 0  # of any 2(n - 1) hops in a row
        hops = between * latency + (2 * (n - 1) - between) * peer_latency
        return hops + 2.0 * (n - 1) / n * num_bytes / slowest


def ring_steps(num_ranks: int, reduce: bool) -> list[Ints]:
    """Return, per round, the chunk each rank passes on; rank r ends reducing, begins gathering, with r."""
    first = -1 if reduce else 0
    return [
        (np.arange(num_ranks, dtype=np.int64) + first - step) % num_ranks for step in range(num_ranks - 1)
    ]


def ring_rounds(num_ranks: int, reduce: bool) -> Schedule:
    """Return the reduce-scatter or all-gather half of a ring over all ranks."""
    rank = np.arange(num_ranks, dtype=np.int64)
    right = (rank + 1) % num_ranks
    steps = ring_steps(num_ranks, reduce)
    return tuple(
        make_round(rank, right, chunk, chunk + 1, reduce=reduce, num_chunks=num_ranks) for chunk in steps
    )


def ring_leg(num_ranks: int, ranks_per_node: int, num_rounds: int) -> Leg:
    """Return so many equal rounds of a ring over all ranks, with the most hops between nodes in a row."""
    rank = np.arange(num_ranks, dtype=np.int64)
    one: Round = make_round(rank, (rank + 1) % num_ranks, 0, 1, reduce=True, num_chunks=num_ranks)
    starts = range(ranks_per_node)
    between = max((start + num_rounds) // ranks_per_node - start // ranks_per_node for start in starts)
    if num_ranks == ranks_per_node:
        between = 0
    return Leg((one,), num_rounds, hops=(between, num_rounds - between))
