"""What a run warns of when the model of compute, and no measurement, decides its time."""

from __future__ import annotations

from poseidon_sim.plan.compute import waits_for_host
from poseidon_sim.plan.transformer import issue_seconds
from poseidon_sim.strategy.base import Job, Strategy


def host_bound(job: Job, strategy: Strategy) -> list[str]:
    """Say where the host, and not the GPU, sets the compute time of a modelled transformer."""
    samples = strategy.passes(job)[0] / getattr(strategy, "tensor", 1)  # a GPU's share of a pass, when several split every layer
    if not waits_for_host(job.workload, job.cluster.gpu, samples):
        return []
    whose = " (fitted on Megatron of 2022)" if job.workload.issue_time is None else ""
    needed = f"{issue_seconds(job.workload) * 1e6:.0f} us{whose}"
    return [
        f"compute waits for the host, which takes {needed} to issue a pass of a layer; larger "
        "batches cost nothing up to there. Set model.issue_time to yours, 0 us with CUDA graphs"
    ]


def slow_precision(job: Job) -> list[str]:
    """Name the default precision where it, and no measurement, decides the compute time on a card with much faster modes."""
    workload, gpu = job.workload, job.cluster.gpu
    if gpu is None or workload.is_measured or workload.precision != "fp32":
        return []
    half = max(gpu.flops.get("fp16", 0.0), gpu.flops.get("bf16", 0.0))
    if half < 4 * gpu.flops.get("fp32", half):
        return []
    return [
        f"compute is modelled in fp32; {gpu.name} is much faster in 16 bits: set model.precision=fp16 (or bf16) if you train so"
    ]
