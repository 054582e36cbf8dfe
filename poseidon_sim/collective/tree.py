"""Binary tree all-reduce: reduce the whole buffer up a binomial tree, broadcast it down again.

Source: the reduction tree of FireCaffe (Iandola et al., CVPR'16) with 2 log2(n) hops of the whole buffer.
"""

from __future__ import annotations

from typing import ClassVar

from poseidon_sim.collective.base import Collective, Message, Schedule


def levels(num_ranks: int) -> int:
    """Return ceil(log2 n).

    >>> [levels(n) for n in (1, 2, 3, 4, 5, 8)]
    [0, 1, 2, 2, 3, 3]
    """
    return (num_ranks - 1).bit_length()


class Tree(Collective):
    """Rank r sends to r - 2^k in round k; not pipelined, so every hop moves the whole buffer."""

    name: ClassVar[str] = "tree"
    summary: ClassVar[str] = "2 log2(n) hops of the whole buffer up and down a binary tree; few latencies, much time per byte"

    def critical_share(self, num_ranks: int) -> float:
        return 2.0 * levels(num_ranks)

    def num_hops(self, num_ranks: int) -> int:
        return 2 * levels(num_ranks)

    def schedule(self, num_ranks: int, ranks_per_node: int = 1) -> Schedule:
        up = []
        for k in range(levels(num_ranks)):
            senders = range(2**k, num_ranks, 2 ** (k + 1))
            up.append([Message(r, r - 2**k, 0.0, 1.0, True) for r in senders])
        down = [[Message(m.target, m.source, 0.0, 1.0, False) for m in each] for each in reversed(up)]
        return up + down

    def time(self, num_bytes: float, num_ranks: int, bandwidth: float, latency: float) -> float:
        hops = 0
        while 2**hops < num_ranks:
            hops += 1
        return 2 * hops * (latency + num_bytes / bandwidth)
