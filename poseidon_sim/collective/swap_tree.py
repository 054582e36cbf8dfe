"""All-reduce by two trees whose roots swap sums: the exchange written out for the PCIe layout of one node.

Source: `copper` in Theano-MPI's exchanger_strategy.py (Ma et al. 2016), written out there for 2, 4, 8 and 16 GPUs. For eight:
1 -> 0, 3 -> 2, 5 -> 4, 7 -> 6; 0 -> 2, 4 -> 6; 2 and 6 swap and both add; then back down. The whole buffer in each of
2 log2(n) - 1 steps that follow one another, and only the swap crosses between the halves.
Simplified: the root of a half is its first rank (there the third of four), which changes no time on the layout it is made for.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from poseidon_sim.collective.base import Collective
from poseidon_sim.collective.messages import Leg, Schedule, make_round, mirrored


class SwapTree(Collective):
    """Reduce each half of the ranks (a power of two of them) to its first rank, swap between the two, broadcast.

    >>> SwapTree().time(1e6, num_ranks=8, bandwidth=1e9, latency=0.0)
    0.005
    """

    name: ClassVar[str] = "swap-tree"
    summary: ClassVar[str] = "two halves reduce up a tree, their roots swap the whole buffer, both broadcast down"

    def legs(self, num_ranks: int, ranks_per_node: int = 1) -> list[Leg]:
        return [Leg(self.schedule(num_ranks, ranks_per_node))]

    def schedule(self, num_ranks: int, ranks_per_node: int = 1) -> Schedule:
        half, up, apart = num_ranks // 2, [], 1
        while apart < half:
            senders = np.arange(apart, num_ranks, 2 * apart, dtype=np.int64)
            up.append(make_round(senders, senders - apart, 0, 1, reduce=True, num_chunks=1))
            apart *= 2
        return (*up, make_round([0, half], [half, 0], 0, 1, reduce=True, num_chunks=1), *mirrored(up))

    def time(
        self, num_bytes: float, num_ranks: int, bandwidth: float, latency: float, ranks_per_node: int = 1,
        peer_bandwidth: float = float("inf"), peer_latency: float = 0.0,
    ) -> float:  # fmt: skip
        steps = (num_ranks - 1).bit_length()
        inside = min((ranks_per_node - 1).bit_length(), steps)
        down = 2 * (steps - inside) - (inside < steps)  # the swap is one step, between nodes when there are several
        return down * (latency + num_bytes / bandwidth) + (2 * steps - 1 - down) * (peer_latency + num_bytes / peer_bandwidth)
