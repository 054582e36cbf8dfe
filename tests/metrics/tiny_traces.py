"""Traces of a few tasks on two folded nodes, so that every expected value can be computed by hand."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from poseidon_sim.cluster import Cluster, Fabric, Network
from poseidon_sim.engine import make_program, run
from poseidon_sim.plan.record import KIND, TaskTable
from poseidon_sim.trace import Trace

#: two equal nodes, ports of 10 bytes/s each way: links gpu (1 s/s), nic_out, nic_in
FABRIC = Fabric(Cluster(nodes=2, network=Network(bandwidth=10.0)))
GPU, OUT, IN = (FABRIC.link(kind, 0) for kind in ("gpu", "nic_out", "nic_in"))


@dataclass
class Tiny:
    """One task: what it does, how much (seconds on the GPU, bytes on the port), and what it waits for."""

    kind: str
    work: float
    after: list[int] = field(default_factory=list)
    queue: int = -1
    latency: float = 0.0
    delay: float = 0.0
    label: int = 0
    iteration: int = 0
    needed: int | None = None
    rate_cap: float = np.inf


def tiny_trace(tasks: list[Tiny], warm_up: int = 0, ends: list[float] | None = None) -> Trace:
    """Run the tasks; the iterations end at `ends` (by default one iteration that ends with the last task)."""
    links = {"send": {OUT: 1.0, IN: 1.0}, "collective": {OUT: 1.0, IN: 1.0}, "join": {}}
    program = make_program(
        [t.work for t in tasks],
        dependencies=[t.after for t in tasks],
        uses=[links.get(t.kind, {GPU: 1.0}) for t in tasks],
        capacity=FABRIC.capacities,
        queue_slots=[1] * (max(t.queue for t in tasks) + 1),
        latency=[t.latency for t in tasks],
        delay=[t.delay for t in tasks],
        queue=[t.queue for t in tasks],
        needed=[len(t.after) if t.needed is None else t.needed for t in tasks],
        rate_cap=[t.rate_cap for t in tasks],
    )
    times = run(program, engine="reference", check=True)
    n = len(tasks)
    table = TaskTable(
        kind=np.array([KIND[t.kind] for t in tasks], dtype=np.int8),
        label=np.array([t.label for t in tasks], dtype=np.int32),
        layer=np.full(n, -1, dtype=np.int32),
        node=np.zeros(n, dtype=np.int32),
        peer=np.full(n, -1, dtype=np.int32),
        iteration=np.array([t.iteration for t in tasks], dtype=np.int32),
        labels=tuple(f"label{i}" for i in range(1 + max(t.label for t in tasks))),
        layer_names=(),
    )
    return Trace(program, times, table, FABRIC, np.array(ends or [times.makespan])[:, None], warm_up)
