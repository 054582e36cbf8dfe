"""From a model, a cluster and a strategy to a run: the one module that sees all."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from poseidon_sim.cluster import Cluster
from poseidon_sim.engine import run as run_engine
from poseidon_sim.errors import InputError, unknown_name
from poseidon_sim.metrics import StepMetrics, step_metrics
from poseidon_sim.plan.plan import Plan
from poseidon_sim.strategy.base import Job, Strategy
from poseidon_sim.strategy.registry import strategy_class
from poseidon_sim.trace import Trace
from poseidon_sim.workload.layer import Workload
from poseidon_sim.workload.load import load_model

DETAILS = ("folded", "nodes", "rounds")


@dataclass(frozen=True, eq=False)
class Run:
    """A simulated job and what was measured of it."""

    job: Job
    strategy: Strategy
    trace: Trace
    metrics: StepMetrics
    single_gpu_time: float
    warnings: tuple[str, ...]
    settings: dict[str, object] = field(default_factory=dict)

    @property
    def step_time(self) -> float:
        """Seconds per iteration in steady state."""
        return self.metrics.step_time

    @property
    def throughput(self) -> float:
        """Samples/s of the whole job."""
        return self.metrics.throughput

    @property
    def speedup(self) -> float:
        """Throughput over that of one GPU without communication."""
        return self.throughput / (self.job.batch_size / self.single_gpu_time)

    @property
    def scaling_efficiency(self) -> float:
        """Speedup / number of GPUs (weak scaling: the batch per GPU is kept)."""
        return self.speedup / self.job.cluster.num_gpus


def record(job: Job, strategy: Strategy, detail: str = "folded", num_iterations: int | None = None) -> Plan:
    """Record a job's plan: what `simulate` hands to the engine. By default warm-up and measured iterations."""
    if detail not in DETAILS:
        raise unknown_name("detail", detail, DETAILS)
    plan = Plan(
        job.workload, job.cluster, job.batch_size, strategy.layout(job), folded=detail == "folded", rounds=detail == "rounds"
    )
    strategy.record(plan, num_iterations or sum(strategy.num_iterations()))
    return plan


def _run_trace(job: Job, strategy: Strategy, detail: str, engine: str, check: bool) -> tuple[Plan, Trace]:
    """Record and run as many iterations as the steady state needs.

    A synchronous iteration that leaves nothing behind (nothing handed on, no task after its end) repeats itself
    exactly, so one is enough; otherwise warm-up iterations come first.
    """
    if strategy.iteration_staleness == 0:
        plan = record(job, strategy, detail, num_iterations=1)
        if not plan.carried:
            trace = _trace(plan, 0, engine, check)
            if trace.times.makespan <= trace.iteration_ends[-1].max():
                return plan, trace
    plan = record(job, strategy, detail)
    return plan, _trace(plan, strategy.num_iterations()[0], engine, check)


def _trace(plan: Plan, warm_up: int, engine: str, check: bool) -> Trace:
    program, table = plan.lower()
    times = run_engine(program, engine=engine, check=check)
    ends = np.array([[times.end[h] if h >= 0 else 0.0 for h in row] for row in plan.iteration_ends])
    return Trace(program, times, table, plan.fabric, ends, warm_up)


def simulate(
    model: Workload | str,
    cluster: Cluster,
    strategy: Strategy | str,
    *,
    batch_size: int | None = None,
    engine: str = "auto",
    detail: str = "folded",
    check: bool = False,
) -> Run:
    """Simulate training `model` on `cluster` with `strategy` and return the run.

    Parameters
    ----------
    model : a workload or the name of one.
    batch_size : samples per GPU; the model's usual batch if not given.
    engine : 'auto', 'reference' or 'fast'.
    detail : 'folded' (equal nodes as one), 'nodes' (every node) or 'rounds' (every message of every round).
    check : assert the engine's invariants; raises CheckError.
    """
    workload = load_model(model) if isinstance(model, str) else model
    chosen = strategy_class(strategy)() if isinstance(strategy, str) else strategy
    batch = batch_size or workload.batch_size
    if batch is None:
        raise InputError(f"model {workload.name!r} has no usual batch; give batch_size=32, say")
    job = Job(workload, cluster, batch)
    warnings = list(chosen.validate(job))
    plan, trace = _run_trace(job, chosen, detail, engine, check)
    per_node = np.array([plan.batch_of(plan.classes[c]) * plan.gpus_per_node for c in plan.workers], dtype=np.float64)
    return Run(
        job, chosen, trace, step_metrics(trace, per_node), _single_gpu_time(plan), (*warnings, *plan.warnings),
        {"engine": engine, "detail": detail},
    )  # fmt: skip


def _single_gpu_time(plan: Plan) -> float:
    """Seconds of one iteration on one GPU of the first worker class, without any communication."""
    slowdown = plan.classes[plan.workers[0]].slowdown
    total = sum(layer.forward_time[0] + layer.backward_time[0] for layer in plan.layers) + plan.stem_forward[0]
    return float(total / slowdown)
