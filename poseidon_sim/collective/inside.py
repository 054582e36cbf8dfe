"""Reduce-scatter and all-gather among the GPUs of each node, all nodes at the same time; nothing crosses between nodes.

Source: the local halves of BytePS (Jiang et al., OSDI'20) and of hierarchical all-reduces: ring rounds as in Patarasuk and
Yuan, JPDC 2009, over the g GPUs of a node.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from poseidon_sim.collective.base import Collective
from poseidon_sim.collective.messages import Leg, Schedule, make_round
from poseidon_sim.collective.ring import ring_steps


class _InsideHalf(Collective):
    """g - 1 rounds of 1/g of the buffer around a ring through the GPUs of every node."""

    reduces: ClassVar[bool]

    def legs(self, num_ranks: int, ranks_per_node: int = 1) -> list[Leg]:
        rounds = self.schedule(num_ranks, ranks_per_node)
        return [Leg(rounds[:1], len(rounds))] if rounds else []

    def schedule(self, num_ranks: int, ranks_per_node: int = 1) -> Schedule:
        g = ranks_per_node
        rank = np.arange(num_ranks, dtype=np.int64)
        right = rank // g * g + (rank + 1) % g
        chunks = [step[rank % g] for step in ring_steps(g, self.reduces)]
        return tuple(make_round(rank, right, at, at + 1, reduce=self.reduces, num_chunks=g) for at in chunks)

    def time(
        self, num_bytes: float, num_ranks: int, bandwidth: float, latency: float, ranks_per_node: int = 1,
        peer_bandwidth: float = float("inf"), peer_latency: float = 0.0,
    ) -> float:  # fmt: skip
        return (ranks_per_node - 1) * (peer_latency + num_bytes / ranks_per_node / peer_bandwidth)


class NodeReduceScatter(_InsideHalf):
    """GPU i of every node ends with the node's sum of chunk i.

    >>> NodeReduceScatter().time(8e6, 8, bandwidth=1e9, latency=0.0, ranks_per_node=4, peer_bandwidth=1e9)
    0.006
    """

    name: ClassVar[str] = "node-reduce-scatter"
    summary: ClassVar[str] = "every GPU ends with its 1/g of its node's sum"
    reduces: ClassVar[bool] = True


class NodeAllGather(_InsideHalf):
    """Every GPU ends with the chunks of all GPUs of its node."""

    name: ClassVar[str] = "node-all-gather"
    summary: ClassVar[str] = "every GPU ends with the chunks of all GPUs of its node"
    reduces: ClassVar[bool] = False
