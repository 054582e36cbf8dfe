"""What the oracles of strategies share: a network of made-up layers, an empty flat cluster, the ring's textbook time.

Nothing here is used by the strategies; times in seconds, sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import poseidon_sim as ps

BANDWIDTH, LATENCY = 1e8, 2e-4


def network(sizes: Sequence[float], forward: Sequence[float], backward: Sequence[float]) -> ps.Workload:
    """Return layers of one fp32 tensor each."""
    layers = tuple(
        ps.Layer(f"layer{i}", "conv", (round(size / 4),), forward_time=f, backward_time=b)
        for i, (size, f, b) in enumerate(zip(sizes, forward, backward, strict=True))
    )
    return ps.Workload("oracle", layers, source="made up", batch_size=1)


def cluster(nodes: int, **more: object) -> ps.Cluster:
    """Return single-GPU nodes under one switch whose copies cost nothing."""
    return ps.Cluster(nodes=nodes, network=ps.Network(BANDWIDTH, latency=LATENCY), **more)  # type: ignore[arg-type]


def ring(num_bytes: float, nodes: int) -> float:
    """Patarasuk and Yuan 2009: 2 (n - 1) rounds of latency and 1/n of the buffer."""
    return 2 * (nodes - 1) * (LATENCY + num_bytes / nodes / BANDWIDTH)


def tree(num_bytes: float, nodes: int) -> float:
    """Reduction and broadcast along a binary tree: 2 ceil(log2 n) hops of the whole buffer."""
    return 2 * (nodes - 1).bit_length() * (LATENCY + num_bytes / BANDWIDTH)


def step(workload: ps.Workload, where: ps.Cluster, strategy: ps.Strategy, **options: object) -> float:
    """Return the simulated step time, invariants checked; both engines must agree on it."""
    run = ps.simulate(workload, where, strategy, batch_size=1, check=True, engine="fast", **options)  # type: ignore[arg-type]
    other = ps.simulate(workload, where, strategy, batch_size=1, engine="reference", **options)  # type: ignore[arg-type]
    assert abs(run.step_time - other.step_time) <= 1e-9 * run.step_time
    return run.step_time
