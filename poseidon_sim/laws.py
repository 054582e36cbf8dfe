"""The laws every strategy must obey, a stranger's plug-in too: `check_strategy`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np

from poseidon_sim.analytic.bounds import step_bound
from poseidon_sim.cluster import Cluster, Network, NodeGroup
from poseidon_sim.errors import CheckError
from poseidon_sim.plan.record import KIND
from poseidon_sim.simulation import Run, record, simulate
from poseidon_sim.strategy.base import Job, Strategy
from poseidon_sim.workload.layer import Layer, Workload

CLOSE = 1e-9


def small_workload(num_linear: int = 2) -> Workload:
    """Return a three-layer network with measured times, so that laws can be checked on any machine."""
    conv = Layer("conv", "conv", (9000, 30), forward_time=2e-3, backward_time=5e-3)
    linears = tuple(
        Layer(f"fc{i}", "linear", (300 * 200, 200), factor_shape=(300, 200), forward_time=1e-3, backward_time=2e-3)
        for i in range(num_linear)
    )
    return Workload("laws", (conv, *linears), source="made up for the laws", batch_size=4)


def check_strategy(strategy: Strategy, nodes: Sequence[int] = (1, 2, 3, 5, 8), workload: Workload | None = None) -> None:
    """Raise CheckError naming the first law that `strategy` breaks; silent when it obeys all.

    The laws: the plan is acyclic; every worker's step ends after every worker's backward of every layer (BSP); one
    worker moves nothing over the network; total bytes equal the strategy's formula; the step is never under the
    analytic bound; swapping a straggler's place changes nothing (strategies without roles); doubling all rates
    halves a zero-latency step; folded = unfolded; the same input gives the same bits. Where workers hold parts of the
    model, somebody runs the backward of every layer and no place is like another.

    >>> from poseidon_sim import Poseidon
    >>> check_strategy(Poseidon(), nodes=(1, 3))
    """
    model = workload or small_workload()
    for count in nodes:
        cluster = Cluster(nodes=count, network=Network(bandwidth=50e6, latency=2e-5), pcie=5e8)
        run = simulate(model, cluster, strategy, batch_size=4, check=True)
        _complete(strategy, Job(model, cluster, 4))
        _traffic(run)
        _bound(run)
        _same("the same input twice", run.step_time, simulate(model, cluster, strategy, batch_size=4, engine=run.engine).step_time, 0.0)
        _same("folded and unfolded", run.step_time, simulate(model, cluster, strategy, batch_size=4, detail="nodes").step_time)
        _rates(strategy, model, cluster)
        if not strategy.model_parallel:
            _relabel(strategy, model, cluster)


def _law(condition: bool, message: str) -> None:
    if not condition:
        raise CheckError(f"law broken: {message}")


def _same(what: str, a: float, b: float, tolerance: float = CLOSE) -> None:
    _law(abs(a - b) <= tolerance * max(abs(a), abs(b)), f"{what} differ: {a!r} s and {b!r} s")


def _complete(strategy: Strategy, job: Job) -> None:
    """Every worker's first iteration ends after every layer's backward on every worker; of a split model, all backwards run."""
    if strategy.iteration_staleness > 0:
        return
    plan = record(job, strategy, "nodes")
    ends = plan.iteration_ends[0]
    program, table = plan.lower()
    seen = [0] * program.num_tasks
    wanted = 0
    for task in range(program.num_tasks):
        bits = 0
        for other in program.dep[program.dep_ptr[task] : program.dep_ptr[task + 1]]:
            _law(other < task, f"task {task} depends on a later task {other}: the plan has a cycle or is out of order")
            bits |= seen[other]
        if table.iteration[task] == 0 and table.kind[task] == KIND["backward"]:
            bits |= 1 << (int(table.node[task]) * (1 + len(plan.layers)) + 1 + int(table.layer[task]))
            wanted |= bits
        seen[task] = bits
    carried = [seen[int(h)] for row in plan.carried.values() for h in np.ravel(row) if h >= 0]
    later = 0
    for bits in carried:  # strategies that hand layers to the next iteration (fetched there before use)
        later |= bits
    if strategy.model_parallel:
        backward = (table.iteration == 0) & (table.kind == KIND["backward"])
        every_layer = set(table.layer[backward]) == set(range(len(plan.layers)))
        every_worker = set(table.node[backward]) == set(plan.workers.tolist())  # stages run many layers at once
        _law(every_layer or every_worker, f"{job.cluster.nodes} nodes: a layer, or a worker, has no backward pass")
        return
    for worker, end in enumerate(ends):
        _law((seen[int(end)] | later) == wanted, f"{job.cluster.nodes} nodes: worker {worker} ends without every layer's update")


def _traffic(run: Run) -> None:
    fabric, amounts = run.trace.fabric, run.trace.link_amounts()
    sent = sum(amounts[fabric.link("nic_out", c.index)] * c.count for c in fabric.whole_nodes if fabric.link("nic_out", c.index) >= 0)
    stated = run.strategy.network_bytes(run.job)
    if run.job.cluster.nodes == 1 and not run.strategy.layout(run.job).extra_nodes:
        _law(sent == 0, f"one worker sends {sent} bytes over the network")
    _law(abs(sent - stated) <= CLOSE * max(stated, 1.0), f"{run.job.cluster.nodes} nodes send {sent} bytes; the formula says {stated}")


def _bound(run: Run) -> None:
    extra = run.strategy.layout(run.job).extra_nodes
    bound = step_bound(run.single_gpu_time, run.strategy.network_bytes(run.job), run.job.cluster, extra)
    _law(run.step_time >= bound * (1 - CLOSE), f"step {run.step_time} s is under the bound {bound} s")


def _rates(strategy: Strategy, model: Workload, cluster: Cluster) -> None:
    assert cluster.network is not None and cluster.pcie is not None
    network = replace(cluster.network, latency=0.0)
    still = replace(cluster, network=network)
    twice = replace(cluster, network=replace(network, bandwidth=2 * network.bandwidth), pcie=2 * cluster.pcie)
    halved = model.with_changes(layers=tuple(
        replace(x, forward_time=(x.forward_time or 0) / 2, backward_time=(x.backward_time or 0) / 2) for x in model.layers
    ))  # fmt: skip
    slow = simulate(model, still, strategy, batch_size=4).step_time
    own = {f.name: getattr(strategy, f.name) / 2 for f in fields(strategy) if f.name.endswith("_time") and getattr(strategy, f.name)}
    fast = simulate(halved, twice, replace(strategy, **own), batch_size=4).step_time  # its own seconds halved too
    _same("half the step and the step at doubled rates", slow / 2, fast)


def _relabel(strategy: Strategy, model: Workload, cluster: Cluster) -> None:
    if cluster.nodes == 1 or strategy.layout(Job(model, cluster, 4)).roles:
        return
    first = replace(cluster, groups=(NodeGroup(1, slowdown=1.5),))
    last = replace(cluster, groups=(NodeGroup(cluster.nodes - 1), NodeGroup(1, slowdown=1.5)))
    a, b = (simulate(model, each, strategy, batch_size=4).step_time for each in (first, last))
    _same("a straggler in the first and in the last place", a, b)
