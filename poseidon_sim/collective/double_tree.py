"""Double binary tree all-reduce: two trees each carry half of the buffer, pipelined in small chunks.

Source: Sanders, Speck and Traeff, Parallel Computing 2009; NCCL 2.4. Every rank is inside one tree and a leaf of the
other, so all ports are busy both ways and the bandwidth is the ring's, with 2 log2(n) latencies.
Simplified: the time to fill the pipeline counts as latency only (many small chunks).
"""

from __future__ import annotations

from typing import ClassVar

from poseidon_sim.collective.base import Collective, Message, Schedule
from poseidon_sim.collective.tree import Tree, levels


class DoubleTree(Collective):
    """Two mirrored binary trees, half of the buffer each."""

    name: ClassVar[str] = "double-tree"
    summary: ClassVar[str] = "two pipelined binary trees with half of the buffer each; ring's bandwidth, 2 log2(n) latencies"

    def critical_share(self, num_ranks: int) -> float:
        return 2.0 * (num_ranks - 1) / num_ranks

    def num_hops(self, num_ranks: int) -> int:
        return 2 * levels(num_ranks)

    def schedule(self, num_ranks: int, ranks_per_node: int = 1) -> Schedule:
        last = num_ranks - 1
        rounds = []
        for each in Tree().schedule(num_ranks):
            first = [Message(m.source, m.target, 0.0, 0.5, m.reduce) for m in each]
            mirrored = [Message(last - m.source, last - m.target, 0.5, 1.0, m.reduce) for m in each]
            rounds.append(first + mirrored)
        return rounds

    def time(self, num_bytes: float, num_ranks: int, bandwidth: float, latency: float) -> float:
        hops = 0
        while 2**hops < num_ranks:
            hops += 1
        return 2 * hops * latency + (2.0 - 2.0 / num_ranks) * num_bytes / bandwidth
