"""All-reduce by pairwise exchange between nodes: every part goes straight to its owner, and back to all once it is summed.

Source: ChainerMN's `hierarchical` and `two_dimensional` communicators (Akiba et al. 2017, release 1.3): NCCL inside the node,
two MPI_Alltoall between nodes, the second of which carries copies of the summed part. Each port carries what it does in a ring,
but a part makes one hop and not n - 1, and every node talks to every other: most of it crosses between leaf switches.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from poseidon_sim.collective.hierarchical import PIECES, Hierarchical
from poseidon_sim.collective.messages import Leg, Schedule, make_round, mirrored
from poseidon_sim.collective.two_dimensional import TwoDimensional


class LeaderExchange(Hierarchical):
    """Reduce inside each node, two all-to-alls among one leader per node, broadcast inside.

    >>> LeaderExchange().time(8.0, 8, bandwidth=1.0, latency=0.0, ranks_per_node=4, peer_bandwidth=8.0)
    10.0
    """

    name: ClassVar[str] = "leader-exchange"
    summary: ClassVar[str] = "reduce inside each node, two all-to-alls among one leader per node, broadcast inside"

    def legs(self, num_ranks: int, ranks_per_node: int = 1) -> list[Leg]:
        legs = super().legs(num_ranks, ranks_per_node)
        nodes = num_ranks // ranks_per_node
        rounds = exchange(nodes, ranks_per_node, 1, 1)
        return [Leg(rounds, 2, "all-to-alls") if each.name == "ring" else each for each in legs] if nodes > 1 else legs

    def schedule(self, num_ranks: int, ranks_per_node: int = 1) -> Schedule:
        whole, nodes = super().schedule(num_ranks, ranks_per_node), num_ranks // ranks_per_node
        chain = (len(whole) - 2 * (nodes - 1)) // 2
        there = exchange(nodes, ranks_per_node, 1, PIECES)
        return (*whole[:chain], *there, *mirrored(there), *whole[len(whole) - chain :])


class LocalExchange(TwoDimensional):
    """Reduce-scatter inside each node, two all-to-alls per local GPU between nodes, all-gather inside.

    >>> LocalExchange().time(8.0, 8, bandwidth=1.0, latency=0.0, ranks_per_node=4, peer_bandwidth=8.0)
    9.5
    """

    name: ClassVar[str] = "local-exchange"
    summary: ClassVar[str] = "reduce-scatter inside each node, two all-to-alls between nodes per local GPU, all-gather inside"

    def legs(self, num_ranks: int, ranks_per_node: int = 1) -> list[Leg]:
        rounds = exchange(num_ranks // ranks_per_node, ranks_per_node, ranks_per_node, 1)
        return [Leg(rounds, 2, "all-to-alls") if e.name == "rings" else e for e in super().legs(num_ranks, ranks_per_node)]

    def schedule(self, num_ranks: int, ranks_per_node: int = 1) -> Schedule:
        whole, inside = super().schedule(num_ranks, ranks_per_node), ranks_per_node - 1
        there = exchange(num_ranks // ranks_per_node, ranks_per_node, ranks_per_node, 1)
        return (*whole[:inside], *there, *mirrored(there), *whole[len(whole) - inside :])


def exchange(nodes: int, gpus: int, parts: int, pieces: int) -> Schedule:
    """Return the rounds in which the first `parts` GPUs of every node send each other node its share to sum.

    GPU i of a node has part i of the buffer, cut into a share per node, each of `pieces` chunks.
    """
    node = np.arange(nodes, dtype=np.int64)[:, None]
    local = np.arange(parts, dtype=np.int64)[None, :]
    rounds = []
    for shift in range(1, nodes):
        to = (node + shift) % nodes
        at = (local * nodes + to) * pieces
        rounds.append(
            make_round(
                (node * gpus + local).ravel(), (to * gpus + local).ravel(), at.ravel(), at.ravel() + pieces, reduce=True,
                num_chunks=parts * nodes * pieces,
            )
        )  # fmt: skip
    return tuple(rounds)
