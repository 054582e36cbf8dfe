"""What every strategy shares: a frozen configuration, one recorded iteration, and the staleness between iterations."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import ClassVar

from poseidon_sim.cluster import Cluster, Layout
from poseidon_sim.errors import InputError
from poseidon_sim.plan.loading import with_batch
from poseidon_sim.plan.plan import Plan, PlanLayer
from poseidon_sim.plan.record import Handles
from poseidon_sim.workload.layer import Workload


@dataclass(frozen=True)
class Job:
    """What a strategy may look at before recording.

    `batch_size` : samples per GPU and iteration, global batch / GPUs (below 1 where several GPUs share a sample).
    `micro_batch_size` : samples of one forward and backward pass, None for all at once.
    """

    workload: Workload
    cluster: Cluster
    batch_size: float
    micro_batch_size: int | None = None

    @property
    def global_batch_size(self) -> float:
        """Samples of all GPUs in one iteration, whole where rounding alone keeps it from being so."""
        samples = self.batch_size * self.cluster.num_gpus
        return round(samples) if abs(samples - round(samples)) <= 1e-9 * samples else samples


@dataclass(frozen=True)
class Strategy:
    """Base of all strategies: who sends what when. Subclasses are frozen dataclasses; fields are all their settings.

    A subclass sets `name` and `summary`, and defines `iteration`. It may define `layout` (extra server nodes, nodes
    with roles), `network_bytes` (the stated formula of its traffic) and `validate`.
    """

    name: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    source: ClassVar[str] = ""
    #: whether GPUs hold different layers (or parts of them), so that not every worker ends with every layer's update
    model_parallel: ClassVar[bool] = False
    #: whether `iteration` records every micro-batch itself; else all but the last are computed before it, unsynchronised
    every_micro_batch: ClassVar[bool] = False

    def iteration(self, plan: Plan, start: Handles) -> Handles:
        """Record one iteration from `start` and return, per worker, what must be true for the next one to begin."""
        raise NotImplementedError

    def layout(self, job: Job) -> Layout:
        """Return the extra nodes and roles this strategy needs; none by default."""
        return Layout()

    def network_bytes(self, job: Job) -> float:
        """Return the stated total of bytes that all nodes send over the network in one iteration."""
        raise NotImplementedError

    def passes(self, job: Job) -> tuple[int, int]:
        """Return (samples of one pass, passes per iteration) of one GPU; raise InputError where they are not whole."""
        batch, micro = job.batch_size, job.micro_batch_size
        if batch != int(batch) or batch < 1:
            raise InputError(
                f"global_batch_size={job.global_batch_size:g} on {job.cluster.num_gpus} GPUs is {batch:g} samples per GPU, which "
                f"{self.name} cannot divide; use a multiple of {job.cluster.num_gpus}"
            )
        if micro is None:
            return int(batch), 1
        require(int(batch) % micro == 0, f"micro_batch_size={micro} does not divide batch_size={batch:g} (samples per GPU)")
        return micro, int(batch) // micro

    def memory_shares(self, job: Job) -> dict[str, float]:
        """Return the share of parameters, gradients, optimizer and activations (of a pass) that a GPU holds; 1 if not named."""
        return {}

    def validate(self, job: Job) -> Iterator[str]:
        """Yield warnings about this job; raise InputError where it makes no sense."""
        return iter(())

    @property
    def iteration_staleness(self) -> float:
        """How many iterations a worker may run ahead of the slowest: 0 is BSP, inf is ASP."""
        return float(getattr(self, "staleness", 0.0))

    def num_iterations(self) -> tuple[int, int]:
        """Return (warm-up, measured) iterations that reach and then average the steady state."""
        staleness = self.iteration_staleness
        if staleness == 0:
            return 3, 2
        if math.isinf(staleness):
            return 6, 10
        return 5 * (int(staleness) + 1), 2 * int(staleness) + 2  # fast workers first use up what they may run ahead

    def record(self, plan: Plan, num_iterations: int) -> None:
        """Record iterations; between them stands the staleness rule.

        Iteration t of a worker starts after its own t-1 and after everyone's t-1-s. For s = 0 the second part needs no
        barrier: a worker's own t-1 ends when it has everyone's contribution to every layer (`check_strategy` asserts
        it), and it goes on while its own last messages are still on their way to others, as real systems do.
        """
        staleness = self.iteration_staleness
        ends = plan.iteration_ends
        for t in range(num_iterations):
            plan.iteration = t
            start = ends[t - 1] if t > 0 else plan.start
            behind = t - 1 - staleness
            if staleness > 0 and behind >= 0:
                start = plan.all_of(start, plan.everyone(ends[int(behind)]))
            start = with_batch(plan, start)
            ends.append(self.iteration(plan, start if self.every_micro_batch else plan.accumulate(start)))

    def describe(self) -> dict[str, object]:
        """Return the name and all settings, as they stand in a scenario file."""
        return {"name": self.name, **{f.name: getattr(self, f.name) for f in fields(self)}}


def backward_pass(plan: Plan, start: Handles, overlap: bool) -> tuple[list[tuple[PlanLayer, Handles]], Handles]:
    """Record forward and backward; return [(layer, gradient ready)] in backward order and the end of backward.

    With `overlap` (wait-free backpropagation) a gradient is ready when its layer's backward ends; without, when the
    whole backward pass does.
    """
    ready = plan.forward(after=start)
    gradients = []
    for layer in reversed(plan.layers):
        ready = plan.backward(layer, after=ready)
        gradients.append((layer, ready))
    if not overlap:
        gradients = [(layer, ready) for layer, _ in gradients]
    return gradients, ready


def require(condition: bool, message: str) -> None:
    """Raise InputError with `message` unless `condition` holds."""
    if not condition:
        raise InputError(message)


def require_choices(strategy: Strategy, **choices: tuple[str, ...]) -> None:
    """Raise InputError unless each named setting has one of the values given for it."""
    for field, known in choices.items():
        given = getattr(strategy, field)
        require(given in known, f"{field}={given!r} is not one of {', '.join(known)}")
