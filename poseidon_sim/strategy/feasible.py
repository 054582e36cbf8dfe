"""Whether a job can run under a strategy: what contradicts itself, what does not fit in memory and what would."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from poseidon_sim.errors import InfeasibleError, InputError
from poseidon_sim.plan.memory import Memory, largest_batch, memory_per_gpu
from poseidon_sim.strategy.base import Job, Strategy, require
from poseidon_sim.strategy.registry import strategy_class

#: the memory model is held to be right within this factor: above it a job is refused, between 1 and it a warning
MEMORY_MARGIN = 1.25


def whole_batch(job: Job) -> int:
    """Return the samples of the whole job, which all GPUs work on together; raise InputError unless they are whole."""
    batch = job.global_batch_size
    require(batch == int(batch), f"batch_size={job.batch_size} x {job.cluster.num_gpus} GPUs is {batch:g} samples; make it whole")
    return int(batch)


def check_shares(job: Job, strategy: Strategy) -> None:
    """Refuse what is said of a GPU's own samples where GPUs share them, or where they run in parts."""
    own = next((f"groups: batch_size={g.batch_size}" for g in job.cluster.groups if g.batch_size), None)
    if own and strategy.passes(job)[1] > 1:
        raise InputError(f"cluster.{own} and micro_batch_size={job.micro_batch_size} are both given; keep one")
    if strategy.model_parallel and (own or job.cluster.host.input):
        what = f"{own}: use global_batch_size" if own else "host.input: drop it (not modelled there)"
        raise InputError(f"cluster.{what}; under {strategy.name} GPUs share the samples")


def checked_memory(job: Job, strategy: Strategy) -> tuple[Memory, list[str]]:
    """Return the memory per GPU; refuse a job that certainly does not fit, warn where it is close."""
    samples, _ = strategy.passes(job)
    memory = memory_per_gpu(job.workload, job.cluster.gpu, samples, strategy.memory_shares(job))
    if memory.fits or memory.capacity is None or job.cluster.gpu is None:
        return memory, []
    most = largest_batch(memory, samples)
    advice = f"the largest batch that fits is {most}" if most else "not even one sample fits"
    text = (
        f"{job.workload.name} at batch {samples} needs {memory.total / 1e9:.1f} GB per GPU and {job.cluster.gpu.name} "
        f"has {memory.capacity / 1e9:.1f} GB ({(memory.total - memory.capacity) / 1e9:.1f} GB short); {advice}"
    )
    if memory.total > MEMORY_MARGIN * memory.capacity:
        raise InfeasibleError(text + (_smaller_passes(job, strategy, samples, most) or _what_fits(job)))
    return memory, [text + " (by an estimate; it may fit with less kept for backward)"]


def _fits(job: Job, strategy: Strategy) -> bool:
    """Whether a job makes sense under a strategy and has the memory."""
    try:
        samples, _ = strategy.passes(job)
        return memory_per_gpu(job.workload, job.cluster.gpu, samples, strategy.memory_shares(job)).fits
    except InputError:
        return False


def _smaller_passes(job: Job, strategy: Strategy, samples: int, most: int) -> str:
    """Name the largest micro-batch of at most `most` samples that fits, '' where there is none or one was given."""
    parts = (part for part in range(most, 0, -1) if samples % part == 0) if job.micro_batch_size is None else ()
    return next((f"; micro_batch_size: {part} fits" for part in parts if _fits(replace(job, micro_batch_size=part), strategy)), "")


#: what needs less memory than plain data parallelism, the nearest to it first
_LESS_MEMORY: tuple[dict[str, Any], ...] = (
    {"name": "fsdp", "shard": "optimizer"}, {"name": "fsdp", "shard": "gradients"}, {"name": "fsdp"},
    {"name": "fsdp", "recompute": "full"}, {"name": "megatron", "tensor": 8, "recompute": "full"},
    {"name": "megatron", "tensor": 8, "pipeline": 8, "recompute": "full"},
)  # fmt: skip


def _what_fits(job: Job) -> str:
    """Name the nearest strategy under which the job fits, or say that none of the known ones helps."""
    for settings in _LESS_MEMORY:
        other = strategy_class(settings["name"])(**{key: value for key, value in settings.items() if key != "name"})
        if _fits(job, other):
            words = ", ".join(f"{key}: {value}" for key, value in settings.items())
            return f"; strategy {{{words}}} fits"
    return "; no strategy of the toolkit makes it fit on these GPUs, give it more of them"
