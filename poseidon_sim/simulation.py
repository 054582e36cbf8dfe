"""From a model, a cluster and a strategy to a run: the one module that sees all."""

from __future__ import annotations

import importlib.util
import math
import warnings
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from poseidon_sim.cautions import host_bound, slow_precision
from poseidon_sim.cluster import Cluster
from poseidon_sim.engine import choose_engine, make_program
from poseidon_sim.engine import run as run_engine
from poseidon_sim.errors import InfeasibleError, InputError, unknown_name
from poseidon_sim.metrics import (
    Memory,
    StepMetrics,
    Trust,
    blame_shares,
    bottleneck,
    bytes_sent,
    goodput_of,
    link_uses,
    step_metrics,
    trust_in,
)
from poseidon_sim.metrics.convergence import Convergence, TimeToAccuracy, time_to_accuracy
from poseidon_sim.metrics.critical_path import path_tasks
from poseidon_sim.plan.plan import Plan, UnfoldableError
from poseidon_sim.plan.recording import Recordings, shape_of
from poseidon_sim.provenance import provenance
from poseidon_sim.scenario import Scenario
from poseidon_sim.strategy.base import Job, Strategy
from poseidon_sim.strategy.feasible import check_shares, checked_memory
from poseidon_sim.strategy.registry import strategy_class
from poseidon_sim.trace import Trace, save_timeline
from poseidon_sim.workload.layer import Workload
from poseidon_sim.workload.load import load_model

DETAILS = ("folded", "nodes", "rounds")
#: iterations whose tasks all shift by the same time, within this share of it, repeat each other
STEADY = 1e-10
#: with more different workers than this, two iterations are hardly ever enough, and cost much
FEW = 8
#: from so many different workers on a run is announced before it begins
MANY = 64


@dataclass(frozen=True, eq=False)
class Run:
    """A simulated job and what was measured of it. Times in seconds per iteration, sizes in bytes."""

    job: Job
    strategy: Strategy
    trace: Trace
    metrics: StepMetrics
    single_gpu_time: float
    memory: Memory
    warnings: tuple[str, ...]
    engine: str
    detail: str
    price_per_hour: float | None = None
    inputs: dict[str, Any] = field(default_factory=dict)
    currency: str = ""
    convergence: Convergence | None = None

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
        """Throughput over that of one GPU at the same batch per GPU without communication."""
        return self.throughput / (self.job.batch_size / self.single_gpu_time)

    @property
    def scaling_efficiency(self) -> float:
        """Speedup / number of GPUs."""
        return self.speedup / self.job.cluster.num_gpus

    @property
    def global_batch(self) -> float:
        """Samples of all GPUs per iteration."""
        return self.throughput * self.step_time

    @cached_property
    def to_accuracy(self) -> TimeToAccuracy | None:
        """Training to the target of the scenario's convergence, or None where it has none."""
        return None if self.convergence is None else time_to_accuracy(self, self.convergence)

    @property
    def decisive_time(self) -> float:
        """Seconds that decide between runs of one job: to accuracy where the scenario has a convergence, else of a step."""
        return self.to_accuracy.seconds if self.to_accuracy else self.step_time

    @cached_property
    def blame(self) -> dict[str, float]:
        """Seconds of one iteration by what is to blame on the critical path, largest first."""
        return blame_shares(self.trace)

    @cached_property
    def trust(self) -> Trust:
        """Intervals around the step time, earned from the misses on measured cases like this one."""
        cluster, modelled = self.job.cluster, not self.job.workload.is_measured
        goodput = goodput_of(cluster.network)
        return trust_in(self.step_time, cluster.nodes, cluster.num_gpus, self.blame, self.strategy.name, modelled, goodput)

    @property
    def bottleneck(self) -> str:
        """What limits the step, in words."""
        return bottleneck(self.blame, self.trace)

    @property
    def cost_per_million_samples(self) -> float | None:
        """Price of a million samples in the currency of the scenario, or None without a price."""
        return None if self.price_per_hour is None else self.price_per_hour / 3600.0 / self.throughput * 1e6

    @cached_property
    def folding(self) -> str | None:
        """How far nodes that differ could not be folded and what that cost, in words; None where equal nodes are one."""
        nodes, classes = self.job.cluster.nodes, len(self.trace.fabric.classes)
        workers = len(self.trace.fabric.workers)
        if workers == 1 or self.detail == "nodes":
            return None
        tasks = self.trace.program.num_tasks // len(self.trace.iteration_ends)
        if self.detail == "rounds":
            return f"messages cannot be folded here: {tasks:,} tasks an iteration on {nodes} nodes"
        alike = replace(self.job, cluster=replace(self.job.cluster, groups=(), jitter=0.0))
        equal = record(alike, self.strategy, num_iterations=1).recorder.num_tasks
        if equal >= tasks:
            return None
        return f"{nodes} nodes differ: {classes} classes, {tasks:,} tasks an iteration ({equal:,} if they were alike)"

    @property
    def slowest_words(self) -> str:
        """By how much compute is longer for the spread of GPUs, in words; '' without one."""
        cluster = self.job.cluster
        longer = cluster.slowest(cluster.gpu) - 1.0
        if not longer:
            return ""
        spread = cluster.spread_of(cluster.gpu)
        return f"of {cluster.num_gpus}, {longer:.1%} slower than the mean, sets the pace (cluster.gpu_spread {spread:.1%})"

    @property
    def price_words(self) -> str:
        """The price of a million samples in words, '' without a price."""
        price = self.cost_per_million_samples
        return "" if price is None else f"{price:.2f} {self.currency} per million samples".replace("  ", " ")

    def summary(self) -> dict[str, Any]:
        """Return the headline figures as plain values."""
        m, (sent, busiest) = self.metrics, bytes_sent(self.trace)
        return {
            "model": self.job.workload.name,
            "strategy": self.strategy.name,
            "nodes": self.job.cluster.nodes,
            "num_gpus": self.job.cluster.num_gpus,
            "batch_size": self.job.batch_size,
            "step_time_s": m.step_time,
            "throughput_samples_per_s": m.throughput,
            "speedup": self.speedup,
            "scaling_efficiency": self.scaling_efficiency,
            "compute_time_s": m.compute_time,
            "communication_time_s": m.communication_time,
            "exposed_communication_s": m.exposed_communication,
            "wait_time_s": m.wait_time,
            "overlap": m.overlap,
            "bytes_sent_per_node": sent,
            "bytes_sent_busiest_node": busiest,
            "bottleneck": self.bottleneck,
            "cost_per_million_samples": self.cost_per_million_samples,
            "currency": self.currency,
            **(self.to_accuracy.to_dict() if self.to_accuracy else {}),
            "warnings": list(self.warnings),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return everything that was measured, and the provenance, as plain values ready for JSON."""
        return {
            **self.summary(),
            "strategy_settings": _plain(self.strategy.describe()),
            "single_gpu_time_s": self.single_gpu_time,
            "slowest_gpu_slowdown": self.job.cluster.slowest(self.job.cluster.gpu),
            "critical_path_s": self.blame,
            "trust": self.trust.to_dict(),
            "links": [asdict(use) for use in link_uses(self.trace, self.step_time)[:12]],
            "memory_bytes": {**asdict(self.memory), "total": self.memory.total},
            "num_tasks": self.trace.program.num_tasks,
            "node_classes": len(self.trace.fabric.classes),
            "folding": self.folding,
            "provenance": provenance(
                _plain(self.inputs), engine=self.engine, detail=self.detail, seed=self.job.cluster.seed
            ),
        }

    def save_timeline(self, path: str | Path) -> Path:
        """Write the timeline as Chrome trace JSON, which the Perfetto UI opens."""
        return save_timeline(self.trace, path, arrows=path_tasks(self.trace).tolist())

    def __str__(self) -> str:
        m, cluster = self.metrics, self.job.cluster
        lines = [
            f"{self.job.workload.name} on {cluster.nodes} nodes x {cluster.gpus_per_node} GPU, {self.strategy.name}, "
            f"batch {self.job.batch_size} per GPU (predicted)",
            f"  step time    {m.step_time * 1e3:.2f} ms = compute {m.compute_time * 1e3:.2f} + exposed communication "
            f"{m.exposed_communication * 1e3:.2f} + waiting {m.wait_time * 1e3:.2f}",
            f"  throughput   {m.throughput:.1f} samples/s; speedup {self.speedup:.2f} on {cluster.num_gpus} GPUs "
            f"(efficiency {self.scaling_efficiency:.1%})",
            f"  overlap      {m.overlap:.1%} of {m.communication_time * 1e3:.2f} ms communication is hidden",
            f"  traffic      {bytes_sent(self.trace)[0] / 1e6:.1f} MB sent per node and step",
            f"  limited by   {self.bottleneck}",
        ]
        lines += [f"  slowest GPU  {self.slowest_words}"] if self.slowest_words else []
        lines += [f"  folding      {self.folding}"] if self.folding else []
        lines += [f"  to accuracy  {self.to_accuracy}"] if self.to_accuracy else []
        lines.append(f"  trust        {self.trust}")
        lines += [f"  warning      {text}" for text in (*self.warnings, *self.trust.warnings)]
        return "\n".join(lines)


def record(job: Job, strategy: Strategy, detail: str = "folded", num_iterations: int | None = None) -> Plan:
    """Record a job's plan: what `simulate` hands to the engine. By default warm-up and measured iterations."""
    plan = _empty_plan(job, strategy, "unfolded rounds" if detail == "rounds" else detail)
    strategy.record(plan, num_iterations or sum(strategy.num_iterations()))
    return plan


def _empty_plan(job: Job, strategy: Strategy, detail: str) -> Plan:
    if detail not in (*DETAILS, "unfolded rounds"):
        raise unknown_name("detail", detail, DETAILS)
    folded, rounds = detail in ("folded", "rounds"), detail.endswith("rounds")
    samples, passes = strategy.passes(job)
    return Plan(job.workload, job.cluster, samples, strategy.layout(job), folded=folded, rounds=rounds, num_passes=passes)


def settled_engine() -> str:
    """Load the engine that many runs in a row should share and return its name: the compiled one where there is one.

    Rows of a sweep then have the same bits whoever ran them, and worker processes that fork begin with it loaded.
    """
    if importlib.util.find_spec("numba") is None:
        return "reference"
    run_engine(make_program([1.0], rate_cap=1.0), engine="fast")
    return "fast"


_RECORDINGS = Recordings()


@dataclass(frozen=True, eq=False)
class _Ran:
    """A job that ran: its plan (empty), what happened, the engine, and the warnings of recording."""

    plan: Plan
    trace: Trace
    engine: str
    warnings: tuple[str, ...]
    carried: bool


def _run_job(job: Job, strategy: Strategy, detail: str, engine: str, check: bool) -> _Ran:
    """Record and run as many iterations as the steady state needs.

    A synchronous iteration that leaves nothing behind (nothing handed on, no task after the end of any worker's)
    repeats itself exactly, so one is enough. Of two iterations the second is steady when each of its tasks ends one
    and the same time after that of the first. Otherwise more warm-up iterations come first.
    """
    if detail == "rounds":
        try:
            return _run_folded_or_not(job, strategy, "rounds", engine, check)
        except UnfoldableError:
            return _run_folded_or_not(job, strategy, "unfolded rounds", engine, check)
    return _run_folded_or_not(job, strategy, detail, engine, check)


def _run_folded_or_not(job: Job, strategy: Strategy, detail: str, engine: str, check: bool) -> _Ran:
    warm_up, measured = strategy.num_iterations()
    plan = _empty_plan(job, strategy, detail)
    if len(plan.workers) >= MANY:
        text = f"{job.cluster.nodes} nodes cannot be folded ({len(plan.workers)} classes that differ, by jitter, groups or detail)"
        warnings.warn(f"{text}: time and memory grow with the square of their number", RuntimeWarning, stacklevel=4)
    key = (job.workload, shape_of(job.cluster), strategy, detail, plan.num_passes)

    def run(warm_up: int, measured: int) -> _Ran:
        num = warm_up + measured
        recording, program = _RECORDINGS.get((*key, num), plan, lambda empty: strategy.record(empty, num))
        chosen = choose_engine(program, engine)
        times = run_engine(program, engine=chosen, check=check, sound=program is not recording.program)
        ends = np.append(times.end, 0.0)[recording.iteration_ends]
        trace = Trace(program, times, recording.table, plan.links, ends, warm_up)
        return _Ran(plan, trace, chosen, recording.warnings, recording.carried)

    if strategy.iteration_staleness == 0:
        if len(plan.workers) == 1:  # workers that differ hardly ever end all at once
            ran = run(0, 1)
            if not ran.carried and ran.trace.times.makespan <= ran.trace.iteration_ends[-1].min():
                return ran
            plan = _empty_plan(job, strategy, detail)
        if len(plan.workers) <= FEW:
            ran = run(1, 1)
            if not ran.carried and _is_steady(ran.trace):
                return ran
            plan = _empty_plan(job, strategy, detail)
    return run(warm_up, measured)


def _is_steady(trace: Trace) -> bool:
    """Whether the last iteration repeats the one before it, task by task."""
    last = len(trace.iteration_ends) - 1
    before, after = (trace.times.end[trace.table.iteration == i] for i in (last - 1, last))
    if len(before) != len(after):
        return False
    shift = after - before
    return bool(shift.max() - shift.min() <= STEADY * shift.mean())


def simulate(
    model: Scenario | Workload | str,
    cluster: Cluster | None = None,
    strategy: Strategy | str | None = None,
    *,
    batch_size: float | None = None,
    micro_batch_size: int | None = None,
    engine: str = "auto",
    detail: str = "folded",
    check: bool = False,
) -> Run:
    """Simulate a scenario, or training `model` on `cluster` with `strategy`, and return the run.

    Parameters
    ----------
    model : a scenario (nothing else is needed then), a workload, or the name of one.
    batch_size : samples per GPU; the model's usual batch if not given.
    micro_batch_size : samples of one forward and backward pass; all at once if not given.
    engine : 'auto', 'reference' or 'fast'.
    detail : 'folded' (equal nodes as one), 'nodes' (every node) or 'rounds' (every message of every round).
    check : assert the engine's invariants; raises CheckError.

    Raises
    ------
    InputError : the job makes no sense. InfeasibleError : it does not fit in the GPU's memory.

    Examples
    --------
    >>> from poseidon_sim import Cluster, Network, gpu
    >>> run = simulate("vgg19", Cluster(nodes=8, gpu=gpu("titan-x-maxwell"), network=Network(5e9)), "poseidon")
    >>> 6 < run.speedup <= 8
    True
    """
    try:
        return _simulated(model, cluster, strategy, batch_size, micro_batch_size, engine, detail, check)
    except (InputError, InfeasibleError) as error:
        if not isinstance(model, Scenario) or not model.source:
            raise
        raise type(error)(f"{model.source}: {error}") from None


def _simulated(
    model: Scenario | Workload | str, cluster: Cluster | None, strategy: Strategy | str | None,
    batch_size: float | None, micro_batch_size: int | None, engine: str, detail: str, check: bool,
) -> Run:  # fmt: skip
    if isinstance(model, Scenario):
        given = model
        job, chosen = Job(given.workload, given.cluster, given.batch_size, given.micro_batch_size), given.strategy
        price, inputs, warnings, currency = given.price_per_hour, given.raw, list(given.warnings), given.currency
        convergence = given.convergence
    else:
        job, chosen = _job(model, cluster, strategy, batch_size, micro_batch_size)
        price, warnings, currency, convergence = None, [], "", None
        inputs = {"model": job.workload.name, "batch_size": job.batch_size, "cluster": repr(cluster), "strategy": chosen.describe()}
    job = replace(job, workload=job.workload.timed_at(job.batch_size), cluster=_paced(job, chosen))
    warnings += chosen.validate(job)
    check_shares(job, chosen)
    memory, caution = checked_memory(job, chosen)
    warnings += [*caution, *slow_precision(job), *host_bound(job, chosen)]
    ran = _run_job(job, chosen, detail, engine, check)
    plan, trace = ran.plan, ran.trace
    workers = [plan.classes[c] for c in plan.workers]
    per_node = np.array([(plan.batch_of(c) if c.batch_size else job.batch_size) * c.gpus for c in workers], dtype=np.float64)
    run = Run(
        job, chosen, trace, step_metrics(trace, per_node), _single_gpu_time(job, plan), memory, (*warnings, *ran.warnings),
        ran.engine, detail, price, inputs, currency, convergence,
    )  # fmt: skip
    return replace(run, warnings=(*run.warnings, *run.to_accuracy.warnings)) if run.to_accuracy else run


def _job(
    model: Workload | str, cluster: Cluster | None, strategy: Strategy | str | None, batch_size: float | None, micro: int | None
) -> tuple[Job, Strategy]:
    if cluster is None or strategy is None:
        raise InputError("simulate needs a scenario, or a model with a cluster and a strategy")
    workload = load_model(model) if isinstance(model, str) else model
    chosen = strategy_class(strategy)() if isinstance(strategy, str) else strategy
    batch = workload.batch_size if batch_size is None else batch_size
    if batch is None:
        raise InputError(f"model {workload.name!r} has no usual batch; give batch_size=32, say")
    return Job(workload, cluster, batch, micro), chosen


def _paced(job: Job, strategy: Strategy) -> Cluster:
    """Return the cluster, without the catalog's spread where all layers' times are measured or nobody waits for the slowest."""
    cluster = job.cluster
    if cluster.gpu_spread is None and (job.workload.has_all_times or math.isinf(strategy.iteration_staleness)):
        return replace(cluster, gpu_spread=0.0)
    return cluster


def _single_gpu_time(job: Job, plan: Plan) -> float:
    """Seconds of `batch_size` samples on one GPU of the first worker class, whole model, without any communication."""
    first = plan.classes[int(plan.workers[0])]
    one_pass = float(plan.times[1 : 1 + 2 * len(plan.layers), 0].sum()) / first.slowdown
    if not one_pass > 0:
        raise InputError(f"model {job.workload.name!r} takes no time to compute; give the layers' times above 0 s")
    return one_pass * job.batch_size / (first.batch_size or plan.own_batch_size)


def _plain(value: Any) -> Any:
    """Turn mappings and tuples into plain JSON values; infinity becomes the word."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value
