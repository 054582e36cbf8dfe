"""Binary tree all-reduce: reduce the whole buffer up a binomial tree, broadcast it down again.

Source: the reduction tree of FireCaffe (Iandola et al., CVPR'16) with 2 log2(n) hops of the whole buffer.
With several GPUs per node there is a tree inside each node and one among the first GPUs of the nodes.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from poseidon_sim.collective.base import Collective
from poseidon_sim.collective.messages import Leg, Schedule, make_round, mirrored


class Tree(Collective):
    """Rank r sends to r - 2^k in round k; not pipelined, so every hop moves the whole buffer.

    >>> Tree().time(1e6, num_ranks=4, bandwidth=1e9, latency=0.0)
    0.004
    """

    name: ClassVar[str] = "tree"
    summary: ClassVar[str] = (
        "2 log2(n) hops of the whole buffer up and down a binary tree; few latencies, much time per byte"
    )

    def legs(self, num_ranks: int, ranks_per_node: int = 1) -> list[Leg]:
        return [Leg(self.schedule(num_ranks, ranks_per_node))]

    def schedule(self, num_ranks: int, ranks_per_node: int = 1) -> Schedule:
        up = reduction_tree(num_ranks, ranks_per_node)
        return (*up, *mirrored(up))

    def time(
        self, num_bytes: float, num_ranks: int, bandwidth: float, latency: float, ranks_per_node: int = 1,
        peer_bandwidth: float = float("inf"), peer_latency: float = 0.0,
    ) -> float:  # fmt: skip
        between = int(np.ceil(np.log2(num_ranks // ranks_per_node)))
        inside = int(np.ceil(np.log2(ranks_per_node)))
        return 2 * between * (latency + num_bytes / bandwidth) + 2 * inside * (
            peer_latency + num_bytes / peer_bandwidth
        )


def levels(num_ranks: int) -> int:
    """Return ceil(log2 n).

    >>> [levels(n) for n in (1, 2, 3, 4, 5, 8)]
    [0, 1, 2, 2, 3, 3]
    """
    return (num_ranks - 1).bit_length()


def reduction_tree(num_ranks: int, ranks_per_node: int) -> Schedule:
    """Return the rounds that sum the whole buffer on rank 0: inside every node first, then among nodes."""
    nodes = num_ranks // ranks_per_node
    rounds = []
    for k in range(levels(ranks_per_node)):
        senders = np.arange(2**k, ranks_per_node, 2 ** (k + 1), dtype=np.int64)
        everywhere = (np.arange(nodes, dtype=np.int64)[:, None] * ranks_per_node + senders).ravel()
        rounds.append(make_round(everywhere, everywhere - 2**k, 0, 1, reduce=True, num_chunks=1))
    for k in range(levels(nodes)):
        senders = np.arange(2**k, nodes, 2 ** (k + 1), dtype=np.int64)
        rounds.append(
            make_round(
                senders * ranks_per_node, (senders - 2**k) * ranks_per_node, 0, 1, reduce=True, num_chunks=1
            )
        )
    return tuple(rounds)
