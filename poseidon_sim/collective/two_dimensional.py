"""Two-dimensional all-reduce: reduce-scatter inside nodes, a ring across per local rank, all-gather inside.

Source: ChainerMN's `two_dimensional` communicator (Akiba et al. 2017); BlueConnect (Cho et al., MLSys 2019);
the 2D torus of Mikami et al. 2018. Each GPU carries 1/g of the buffer across nodes, g rings at once through
each port. With one GPU per node it is the flat ring.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from poseidon_sim.collective.base import Collective
from poseidon_sim.collective.messages import Leg, Schedule, make_round
from poseidon_sim.collective.ring import ring_steps


class TwoDimensional(Collective):
    """Three phases: ring reduce-scatter inside, g rings between, ring all-gather inside.

    >>> TwoDimensional().time(8.0, 8, bandwidth=1.0, latency=0.0, ranks_per_node=4, peer_bandwidth=8.0)
    9.5
    """

    name: ClassVar[str] = "two-dimensional"
    summary: ClassVar[str] = (
        "reduce-scatter inside each node, one ring across nodes per local GPU, all-gather inside"
    )

    def legs(self, num_ranks: int, ranks_per_node: int = 1) -> list[Leg]:
        g, nodes = ranks_per_node, num_ranks // ranks_per_node
        rank = np.arange(num_ranks, dtype=np.int64)
        inner = make_round(rank, rank // g * g + (rank + 1) % g, 0, 1, reduce=True, num_chunks=g)
        outer = make_round(rank, (rank + g) % num_ranks, 0, 1, reduce=True, num_chunks=num_ranks)
        inside = [Leg((inner,), g - 1, name) for name in ("reduce-scatter", "all-gather")] if g > 1 else []
        between = [Leg((outer,), 2 * (nodes - 1), "rings")] if nodes > 1 else []
        return [*inside[:1], *between, *inside[1:]]

    def schedule(self, num_ranks: int, ranks_per_node: int = 1) -> Schedule:
        g, nodes = ranks_per_node, num_ranks // ranks_per_node
        rank = np.arange(num_ranks, dtype=np.int64)
        node, local = rank // g, rank % g

        def inside(reduce: bool) -> Schedule:
            right = node * g + (local + 1) % g
            parts = [chunk[local] for chunk in ring_steps(g, reduce)]
            return tuple(
                make_round(rank, right, part * nodes, (part + 1) * nodes, reduce=reduce, num_chunks=num_ranks)
                for part in parts
            )

        def across(reduce: bool) -> Schedule:
            chunks = [local * nodes + chunk[node] for chunk in ring_steps(nodes, reduce)]
            return tuple(
                make_round(rank, (rank + g) % num_ranks, at, at + 1, reduce=reduce, num_chunks=num_ranks)
                for at in chunks
            )

        return (*inside(True), *across(True), *across(False), *inside(False))

    def time(
        self, num_bytes: float, num_ranks: int, bandwidth: float, latency: float, ranks_per_node: int = 1,
        peer_bandwidth: float = float("inf"), peer_latency: float = 0.0,
    ) -> float:  # fmt: skip
        g, nodes = ranks_per_node, num_ranks // ranks_per_node
        inside = 2 * (g - 1) * (peer_latency + num_bytes / g / peer_bandwidth)
        return inside + 2 * (nodes - 1) * (latency + num_bytes / nodes / bandwidth)
