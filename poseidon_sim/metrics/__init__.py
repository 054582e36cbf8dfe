"""What a trace means: times, links, critical path, memory."""

from poseidon_sim.metrics.critical_path import Span, blame_shares, bottleneck, critical_path
from poseidon_sim.metrics.links import LinkUse, bytes_sent, link_uses
from poseidon_sim.metrics.memory import Memory, largest_batch, memory_per_gpu
from poseidon_sim.metrics.step import StepMetrics, step_metrics

__all__ = [
    "LinkUse", "Memory", "Span", "StepMetrics", "blame_shares", "bottleneck", "bytes_sent", "critical_path",
    "largest_batch", "link_uses", "memory_per_gpu", "step_metrics",
]  # fmt: skip
