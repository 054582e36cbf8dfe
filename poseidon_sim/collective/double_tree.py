"""Double binary tree all-reduce: two trees each carry half of the buffer, pipelined in small chunks.

Source: Sanders, Speck and Traeff, Parallel Computing 2009; shape and cost as in NCCL (trees.cc, tuning.cc):
trees over nodes, a chain through the GPUs of a node; 2 (g - 1) latencies inside and 2 log2 n between nodes
(NCCL rounds the logarithm down, here it is rounded up), twice the buffer at the port's rate (NCCL takes 0.9
of that rate).

The fluid model is the limit of many small chunks: a port carries 2 (n - 1) / n of the buffer on average, as
in a ring, and the busiest one (half up to a parent, half down to each of two children, half up in the other
tree) all of it twice, so the time is 2 S / B for n >= 4 nodes, 3/2 S / B for three and S / B for two, and 2
(log2 n + g - 1) hop latencies.
Simplified: message by message, 16 chunks fill the pipeline and meet at shared ports: 8 to 19 % above
the limit for n >= 4, a third for n = 3.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from poseidon_sim.collective.base import Collective
from poseidon_sim.collective.messages import Ints, Leg, Round, Schedule, join_rounds, make_round
from poseidon_sim.collective.tree import levels

CHUNKS = 16


class DoubleTree(Collective):
    """Two binary trees, half of the buffer each.

    >>> DoubleTree().time(1e6, num_ranks=8, bandwidth=1e9, latency=0.0)
    0.002
    """

    name: ClassVar[str] = "double-tree"
    summary: ClassVar[str] = (
        "two pipelined binary trees with half of the buffer each; about ring's bandwidth, 2 log2(n) latencies"
    )
    in_order: ClassVar[bool] = False

    def legs(self, num_ranks: int, ranks_per_node: int = 1) -> list[Leg]:
        both = []
        for tree in (0, 1):
            parent, _ = _tree(num_ranks, ranks_per_node, tree)
            child = np.flatnonzero(parent >= 0)
            both.append(make_round(child, parent[child], tree, tree + 1, reduce=True, num_chunks=2))
            both.append(make_round(parent[child], child, tree, tree + 1, reduce=False, num_chunks=2))
        hops = (2 * levels(num_ranks // ranks_per_node), 2 * (ranks_per_node - 1))
        return [Leg((join_rounds(both),), pipelined=True, hops=hops)]

    def schedule(self, num_ranks: int, ranks_per_node: int = 1) -> Schedule:
        if num_ranks == 1:
            return ()
        trees = [_tree(num_ranks, ranks_per_node, tree) for tree in (0, 1)]
        top = max(int(depth.max()) for _, depth in trees)
        rounds: list[list[Round]] = [[] for _ in range(2 * top - 1 + CHUNKS)]
        for tree, (parent, depth) in enumerate(trees):
            for chunk in range(CHUNKS):
                at = tree * CHUNKS + chunk
                for level in range(1, top + 1):
                    child = np.flatnonzero(depth == level)
                    up = make_round(child, parent[child], at, at + 1, reduce=True, num_chunks=2 * CHUNKS)
                    down = make_round(parent[child], child, at, at + 1, reduce=False, num_chunks=2 * CHUNKS)
                    rounds[top - level + chunk].append(up)
                    rounds[top + level - 1 + chunk].append(down)
        return tuple(join_rounds(each) for each in rounds)

    def time(
        self, num_bytes: float, num_ranks: int, bandwidth: float, latency: float, ranks_per_node: int = 1,
        peer_bandwidth: float = float("inf"), peer_latency: float = 0.0,
    ) -> float:  # fmt: skip
        nodes, g = num_ranks // ranks_per_node, ranks_per_node
        port = {1: 0.0, 2: 1.0, 3: 1.5}.get(nodes, 2.0)
        lane = {1: 0.0, 2: 1.0}.get(g, 2.0)
        hops = 2 * int(np.ceil(np.log2(nodes))) * latency + 2 * (g - 1) * peer_latency
        return hops + max(port * num_bytes / bandwidth, lane * num_bytes / peer_bandwidth)


def _node_parents(num_nodes: int) -> Ints:
    """Return the parent of each node in an in-order binary tree, -1 for the root 0.

    A node whose lowest set bit is b hangs below the neighbour b away that is an odd multiple of 2b, or below
    the other one where that lies beyond the last node.
    """
    node = np.arange(1, num_nodes, dtype=np.int64)
    reach = node & -node
    above = np.where(node // reach % 4 == 3, node - reach, node + reach)
    return np.concatenate([[-1], np.where(above < num_nodes, above, node - reach)]).astype(np.int64)


def _tree(num_ranks: int, ranks_per_node: int, tree: int) -> tuple[Ints, Ints]:
    """Return (n,) parents and depths of the ranks in tree 0, or in its mirror (odd n: shift), tree 1."""
    g, nodes = ranks_per_node, num_ranks // ranks_per_node
    above = _node_parents(nodes)
    if tree:
        rename = (np.arange(nodes) + 1) % nodes if nodes % 2 else nodes - 1 - np.arange(nodes)
        moved = np.full(nodes, -1, dtype=np.int64)
        moved[rename] = np.where(above >= 0, rename[above], -1)
        above = moved
    head, step = (g - 1, 1) if tree else (0, -1)
    rank = np.arange(num_ranks, dtype=np.int64)
    node, local = rank // g, rank % g
    parent = np.where(local != head, rank + step, np.where(above[node] >= 0, above[node] * g + head, -1))
    depth = np.zeros(num_ranks, dtype=np.int64)
    at = parent
    while (at >= 0).any():
        depth += at >= 0
        at = np.where(at >= 0, parent[at], -1)
    return parent, depth
