"""Ring all-reduce: n - 1 rounds of reduce-scatter and n - 1 of all-gather, each moving 1/n of the buffer.

Source: Patarasuk and Yuan, JPDC 2009. Bandwidth-optimal: 2 (n - 1) / n of the buffer crosses every link of the ring.
"""

from __future__ import annotations

from typing import ClassVar

from poseidon_sim.collective.base import Collective, Message, call_overhead, hop_latency, node_uses
from poseidon_sim.plan.plan import Phase, Plan


class Ring(Collective):
    """All ranks in one ring, node after node, so every node's port carries one flow each way."""

    name: ClassVar[str] = "ring"
    summary: ClassVar[str] = "2(n-1) rounds of 1/n of the buffer; bandwidth-optimal, latency grows with n"

    def phases(self, plan: Plan, num_bytes: float, staged: bool) -> list[Phase]:
        n = plan.num_gpus
        across = 1.0 if plan.num_nodes > 1 else 0.0
        uses = node_uses(plan, across, across, staged)
        latency = call_overhead(plan) + 2 * (n - 1) * hop_latency(plan)
        return [Phase(2.0 * (n - 1) / n * num_bytes, latency, tuple(uses))]

    def schedule(self, num_ranks: int, ranks_per_node: int = 1) -> list[list[Message]]:
        one = [Message(r, (r + 1) % num_ranks, 1.0 / num_ranks) for r in range(num_ranks)]
        return [one] * (2 * (num_ranks - 1)) if num_ranks > 1 else []

    def time(self, num_bytes: float, num_ranks: int, bandwidth: float, latency: float) -> float:
        n = num_ranks
        return 2 * (n - 1) * latency + 2.0 * (n - 1) / n * num_bytes / bandwidth
