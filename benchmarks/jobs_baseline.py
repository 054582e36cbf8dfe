"""Tasks per second of both engines on two real jobs, the baseline for later work.

    python benchmarks/jobs_baseline.py

Both jobs are recorded with a class for every node (detail 'nodes'); record, engine and the folded run are timed apart, best of
three in one process.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import poseidon_sim as ps
from poseidon_sim.engine import run as run_engine


def best_of(times: int, work: Callable[[], object]) -> float:
    """Return the shortest of several runs, in seconds."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return min(found)


def measure(name: str, model: str, nodes: int, strategy: ps.Strategy, batch_size: int) -> None:
    """Print one job's tasks, seconds and tasks per second."""
    cluster = ps.Cluster(nodes=nodes, gpu=ps.gpu("titan-x-maxwell"), network=ps.Network(1.25e9, latency=5e-5, efficiency=0.94))
    run = ps.simulate(model, cluster, strategy, batch_size=batch_size, detail="nodes")
    program = run.trace.program
    folded = best_of(3, lambda: ps.simulate(model, cluster, strategy, batch_size=batch_size))
    print(f"{name}: {program.num_tasks} tasks; folded run, all in: {folded * 1e3:.1f} ms")
    for engine in ("reference", "fast"):
        seconds = best_of(3 if engine == "fast" else 1, lambda engine=engine: run_engine(program, engine=engine))
        print(f"  {engine:<10} {seconds:8.3f} s  {program.num_tasks / seconds:12.0f} tasks/s")


if __name__ == "__main__":
    measure("ResNet-50, ring per tensor (161), 64 nodes", "resnet50", 64, ps.AllReduce(), 32)
    measure("VGG19, Poseidon's hybrid, 16 nodes", "vgg19", 16, ps.Poseidon(), 32)
