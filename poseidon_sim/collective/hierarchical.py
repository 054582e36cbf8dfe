"""Hierarchical all-reduce: reduce to one leader per node, ring among the leaders, broadcast inside the nodes.

Source: Jia et al. 2018 (arXiv 1807.11205); ChainerMN's `hierarchical` communicator (Akiba et al. 2017).
Inside a node reduce and broadcast are NCCL's: a chain through the GPUs, pipelined in small chunks. With one
GPU per node it is the flat ring.
Simplified: the fluid phases take the limit of many small chunks and follow one another, as three calls do.
Message by message the chain moves 8 pieces and a phase begins as soon as its data is there: a few per cent
slower with several nodes, up to 44 % faster on a single node of two GPUs, where reduce and broadcast overlap.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from poseidon_sim.collective.base import Collective
from poseidon_sim.collective.messages import Ints, Leg, Schedule, join_rounds, make_round, mirrored
from poseidon_sim.collective.ring import ring_steps

PIECES = 8


class Hierarchical(Collective):
    """Three phases: reduce inside, ring between, broadcast inside.

    >>> Hierarchical().time(8.0, 8, bandwidth=1.0, latency=0.0, ranks_per_node=4, peer_bandwidth=8.0)
    10.0
    """

    name: ClassVar[str] = "hierarchical"
    summary: ClassVar[str] = "reduce inside each node, ring among one leader per node, broadcast inside"

    def legs(self, num_ranks: int, ranks_per_node: int = 1) -> list[Leg]:
        g, nodes = ranks_per_node, num_ranks // ranks_per_node
        leader = g * np.arange(nodes, dtype=np.int64)
        legs = []
        if g > 1:
            child = (leader[:, None] + np.arange(1, g)).ravel()
            up = make_round(child, child - 1, 0, 1, reduce=True, num_chunks=1)
            legs = [
                Leg(rounds, name=name, pipelined=True, hops=(0, g - 1))
                for name, rounds in (("reduce", (up,)), ("broadcast", mirrored((up,))))
            ]
        if nodes > 1:
            one = make_round(leader, np.roll(leader, -1), 0, 1, reduce=True, num_chunks=nodes)
            legs.insert(1 if g > 1 else 0, Leg((one,), 2 * (nodes - 1), "ring"))
        return legs

    def schedule(self, num_ranks: int, ranks_per_node: int = 1) -> Schedule:
        nodes = num_ranks // ranks_per_node
        leader = ranks_per_node * np.arange(nodes, dtype=np.int64)
        up = _chain(leader, ranks_per_node)
        ring = [
            make_round(
                leader,
                np.roll(leader, -1),
                chunk * PIECES,
                (chunk + 1) * PIECES,
                reduce=reduce,
                num_chunks=nodes * PIECES,
            )
            for reduce in (True, False)
            for chunk in ring_steps(nodes, reduce)
        ]
        return (*up, *ring, *mirrored(up))

    def time(
        self, num_bytes: float, num_ranks: int, bandwidth: float, latency: float, ranks_per_node: int = 1,
        peer_bandwidth: float = float("inf"), peer_latency: float = 0.0,
    ) -> float:  # fmt: skip
        nodes = num_ranks // ranks_per_node
        inside = (ranks_per_node - 1) * peer_latency + (
            num_bytes / peer_bandwidth if ranks_per_node > 1 else 0.0
        )
        return 2 * inside + 2 * (nodes - 1) * latency + 2.0 * (1.0 - 1.0 / nodes) * num_bytes / bandwidth


def _chain(leader: Ints, gpus: int) -> Schedule:
    """Return the reduction along every node's chain, last GPU first, one piece behind the other."""
    nodes = len(leader)
    rounds = []
    for step in range(gpus - 2 + PIECES if gpus > 1 else 0):
        moving = [(local, step - (gpus - 1 - local)) for local in range(1, gpus)]
        parts = [
            make_round(
                leader + local, leader + local - 1, piece * nodes, (piece + 1) * nodes, reduce=True,
                num_chunks=nodes * PIECES,
            )
            for local, piece in moving
            if 0 <= piece < PIECES
        ]  # fmt: skip
        rounds.append(join_rounds(parts))
    return tuple(rounds)
