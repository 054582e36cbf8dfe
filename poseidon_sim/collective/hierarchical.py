"""Two-level all-reduces for nodes of several GPUs: by one leader per node, or by all GPUs of a node at once.

Source: ChainerMN's `hierarchical` and `two_dimensional` communicators (Akiba et al. 2017); NCCL's hierarchical rings.
With one GPU per node both are the flat ring.
Simplified: inside a node, reduce and broadcast run as pipelined chains of small chunks.
"""

from __future__ import annotations

from typing import ClassVar

from poseidon_sim.collective.base import (
    Collective,
    Message,
    Schedule,
    call_overhead,
    flow_cap,
    hop_latency,
    node_only_phase,
    node_uses,
)
from poseidon_sim.collective.ring import Ring
from poseidon_sim.plan.plan import Phase, Plan


def _between(schedule: Schedule, per_node: int, local: int, low: float, high: float) -> Schedule:
    """Move a schedule over nodes to the `local`-th GPU of each node and to a part of the buffer."""
    width = high - low
    return [
        [Message(m.source * per_node + local, m.target * per_node + local, low + m.start * width, low + m.stop * width, m.reduce)
         for m in each]
        for each in schedule
    ]  # fmt: skip


class Hierarchical(Collective):
    """Reduce to one leader per node, ring among the leaders, broadcast inside the nodes."""

    name: ClassVar[str] = "hierarchical"
    summary: ClassVar[str] = "reduce inside each node, ring among one leader per node, broadcast inside"

    def phases(self, plan: Plan, num_bytes: float, staged: bool) -> list[Phase]:
        nodes, gpus = plan.num_nodes, plan.gpus_per_node
        inside = [node_only_phase(plan, num_bytes, gpus - 1, name) for name in ("reduce", "broadcast")] if gpus > 1 else []
        across = 1.0 if nodes > 1 else 0.0
        uses = [u for u in node_uses(plan, across, across, staged, peers=0.0) if u[1] > 0]
        hops = 2 * (nodes - 1) * hop_latency(plan)
        ring = Phase(2.0 * (nodes - 1) / nodes * num_bytes, call_overhead(plan) + hops, tuple(uses), flow_cap(plan, staged), "ring")
        between = [ring] if nodes > 1 else []
        return [*inside[:1], *between, *inside[1:]]

    def schedule(self, num_ranks: int, ranks_per_node: int = 1) -> Schedule:
        nodes = num_ranks // ranks_per_node
        up = [
            [Message(n * ranks_per_node + i, n * ranks_per_node + i - 1, 0.0, 1.0, True) for n in range(nodes)]
            for i in range(ranks_per_node - 1, 0, -1)
        ]
        down = [[Message(m.target, m.source, 0.0, 1.0, False) for m in each] for each in reversed(up)]
        return up + _between(Ring().schedule(nodes), ranks_per_node, 0, 0.0, 1.0) + down

    def crossing_share(self, num_ranks: int, ranks_per_node: int) -> float:
        return Ring().crossing_share(num_ranks // ranks_per_node, 1)

    def time(self, num_bytes: float, num_ranks: int, bandwidth: float, latency: float) -> float:
        return Ring().time(num_bytes, num_ranks, bandwidth, latency)


class TwoDimensional(Hierarchical):
    """Reduce-scatter inside each node, rings across nodes for every local rank at once, all-gather inside."""

    name: ClassVar[str] = "two-dimensional"
    summary: ClassVar[str] = "reduce-scatter inside each node, one ring across nodes per local GPU, all-gather inside"

    def phases(self, plan: Plan, num_bytes: float, staged: bool) -> list[Phase]:
        nodes, gpus = plan.num_nodes, plan.gpus_per_node
        part = (gpus - 1) / gpus * num_bytes
        inside = [node_only_phase(plan, part, gpus - 1, name) for name in ("reduce-scatter", "all-gather")] if gpus > 1 else []
        uses = [u for u in node_uses(plan, float(gpus), float(gpus), staged, peers=0.0) if u[1] > 0]
        hops = 2 * (nodes - 1) * hop_latency(plan)
        work = 2.0 * (nodes - 1) / nodes * num_bytes / gpus
        between = [Phase(work, call_overhead(plan) + hops, tuple(uses), flow_cap(plan, staged), "rings")] if nodes > 1 else []
        return [*inside[:1], *between, *inside[1:]]

    def schedule(self, num_ranks: int, ranks_per_node: int = 1) -> Schedule:
        g, nodes = ranks_per_node, num_ranks // ranks_per_node
        inside = Ring().schedule(g)
        spread = [[Message(n * g + m.source, n * g + m.target, m.start, m.stop, m.reduce) for n in range(nodes) for m in each]
                  for each in inside]  # fmt: skip
        owners = {m.target: (m.start, m.stop) for m in inside[g - 2]} if g > 1 else {0: (0.0, 1.0)}
        rings = [_between(Ring().schedule(nodes), g, local, *owners[local]) for local in range(g)]
        across = [[m for ring in rings for m in ring[step]] for step in range(2 * (nodes - 1))]
        return spread[: g - 1] + across + spread[g - 1 :]
