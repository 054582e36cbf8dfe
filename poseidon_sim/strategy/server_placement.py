"""Where a parameter server's values live: split evenly, dealt as key-value pairs, or variable by variable.

Source: even shards and 2 MB pairs, Zhang et al. ATC'17 section 4; whole variables in turn, TensorFlow's device setter.
Simplified: the pairs of one layer on one server travel as one message.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from poseidon_sim.plan.plan import Plan, PlanLayer
from poseidon_sim.workload.layer import Workload

DEFAULT_PAIR = 2e6
MAX_PIECES = 32


@dataclass(frozen=True)
class Placement:
    """`kind` is even, round-robin or whole; server 0 is node `first_node`; `pair_size` in bytes, 2 MB if None."""

    kind: str
    num_servers: int
    first_node: int
    pair_size: float | None
    workload: Workload

    def roles(self) -> dict[int, str]:
        """Return the nodes that hold something of their own (none when all hold alike)."""
        owners = set() if self.kind == "even" else {server for row in self._dealt().values() for server in row}
        return {self.first_node + server: f"server {server}" for server in owners}

    def pieces(self, size: float) -> list[float]:
        """Return the bytes of each part of a tensor that follows its own way to the servers and back."""
        count = 1
        if self.kind == "even" and self.pair_size is not None:
            count = min(MAX_PIECES, math.ceil(size / self.num_servers / self.pair_size))
        return [size / count] * count

    def row(self, plan: Plan, layer: PlanLayer, size: float) -> np.ndarray:
        """Return (S,) bytes of a layer's `size` on each server class's node."""
        if self.kind == "even":
            return np.full(len(plan.servers), size / plan.num_servers)
        row = np.zeros(len(plan.servers))
        position = {int(c): i for i, c in enumerate(plan.servers)}
        for server, share in self._dealt()[layer.name].items():
            row[position[plan.class_of_node(self.first_node + server)]] += share * size
        return row

    def _dealt(self) -> dict[str, dict[int, float]]:
        """Return, per layer, the share of its bytes on each server that holds some of it."""
        turn = 0
        placed: dict[str, dict[int, float]] = {}
        for layer in self.workload.layers:
            sizes = layer.tensor_bytes(self.workload.element_bytes)
            row: dict[int, float] = {}
            for size in sizes:
                pair = size if self.kind == "whole" else self.pair_size or DEFAULT_PAIR
                for piece in range(max(1, math.ceil(size / pair))):
                    server = turn % self.num_servers
                    row[server] = row.get(server, 0.0) + min(pair, size - piece * pair) / sum(sizes)
                    turn += 1
            placed[layer.name] = row
        return placed
