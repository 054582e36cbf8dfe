"""Cost of single GPU kernels that strategies add to a job (rebuild, quantise, convert)."""

from __future__ import annotations

from poseidon_sim.cluster.parts import Gpu
from poseidon_sim.plan.rates import achievable_share


def gemm_time(gpu: Gpu, precision: str, flops: float, moved_bytes: float) -> float | None:
    """Return seconds of one dense matrix product (or, with 0 FLOP, one memory pass) by the roofline.

    The longer of FLOP against the achievable rate and bytes against the achievable memory bandwidth, plus one launch.
    None when the GPU states neither rate that is needed.

    >>> gemm_time(Gpu("x", flops={"fp32": 1e12}, efficiency={"linear": 0.5}), "fp32", 1e9, 0.0)
    0.002
    """
    peak = gpu.flops.get(precision) or gpu.flops.get("fp32")
    if (flops > 0 and not peak) or (moved_bytes > 0 and not gpu.memory_bandwidth and not peak):
        return None
    share = achievable_share(gpu, "linear", precision)
    compute = flops / (share * peak) if flops > 0 and peak else 0.0
    memory = moved_bytes / (gpu.memory_efficiency * gpu.memory_bandwidth) if gpu.memory_bandwidth else 0.0
    return max(compute, memory) + gpu.launch_overhead
