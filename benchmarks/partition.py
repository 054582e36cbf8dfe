"""How long cutting an operator graph takes: random layered graphs of up to 100,000 operators on 16 devices.

Prints operators, edges, seconds, the makespan over the best that any cut can do (critical path, work / devices).
ParDNN's authors report seconds to minutes for such graphs.
"""

from __future__ import annotations

import time

import numpy as np

import poseidon_sim as ps


def layered(num: int, width: int, seed: int = 0) -> ps.OperatorGraph:
    """Return operators in rows of `width`, each reading from three of the rows before, on links of 45 us and 140 GiB/s."""
    draw = np.random.default_rng(seed)
    target = np.repeat(np.arange(width, num), 3)
    source = target - target % width - draw.integers(1, width + 1, len(target))
    edges = np.unique(np.stack([source, target]), axis=1)
    return ps.OperatorGraph(
        seconds=draw.lognormal(-8.0, 1.0, num), memory=draw.lognormal(14.0, 1.0, num), source=edges[0], target=edges[1],
        edge_seconds=45e-6 + draw.lognormal(14.0, 1.0, edges.shape[1]) / (140 * 2**30),
    )  # fmt: skip


def main() -> None:
    for num in (1_000, 10_000, 100_000):
        graph = layered(num, width=64)
        limit = 1.3 * graph.memory.sum() / 16
        begin = time.perf_counter()
        device = ps.partition(graph, 16, limit)
        took = time.perf_counter() - begin
        longest = max(t + s for t, s in zip(graph.top_levels, graph.seconds, strict=True))
        bound = max(longest, graph.seconds.sum() / 16)
        print(f"{num:>7} operators {len(graph.source):>7} edges {took:6.2f} s  makespan / bound {ps.makespan(graph, device) / bound:.2f}")


if __name__ == "__main__":
    main()
