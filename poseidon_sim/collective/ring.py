"""Ring all-reduce: n - 1 rounds of reduce-scatter and n - 1 of all-gather, each moving 1/n of the buffer.

Source: Patarasuk and Yuan, JPDC 2009. Bandwidth-optimal: 2 (n - 1) / n of the buffer crosses every link of the ring.
"""

from __future__ import annotations

from typing import ClassVar

from poseidon_sim.collective.base import Collective, Message, Schedule


class Ring(Collective):
    """All ranks in one ring, node after node, so every node's port carries one flow each way."""

    name: ClassVar[str] = "ring"
    summary: ClassVar[str] = "2(n-1) rounds of 1/n of the buffer; bandwidth-optimal, latency grows with n"

    def critical_share(self, num_ranks: int) -> float:
        return 2.0 * (num_ranks - 1) / num_ranks

    def num_hops(self, num_ranks: int) -> int:
        return 2 * (num_ranks - 1)

    def crossing_share(self, num_ranks: int, ranks_per_node: int) -> float:
        nodes = num_ranks // ranks_per_node
        return nodes * self.critical_share(num_ranks) if nodes > 1 else 0.0

    def schedule(self, num_ranks: int, ranks_per_node: int = 1) -> Schedule:
        n = num_ranks
        rounds = []
        for step in range(2 * (n - 1)):
            reduce = step < n - 1
            shift = step if reduce else step - n
            chunk = [(r - shift) % n for r in range(n)]
            rounds.append([Message(r, (r + 1) % n, chunk[r] / n, (chunk[r] + 1) / n, reduce) for r in range(n)])
        return rounds

    def time(self, num_bytes: float, num_ranks: int, bandwidth: float, latency: float) -> float:
        n = num_ranks
        return 2 * (n - 1) * latency + 2.0 * (n - 1) / n * num_bytes / bandwidth
