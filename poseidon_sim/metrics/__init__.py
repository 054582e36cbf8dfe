"""What a trace means: times, links, critical path, memory, cost."""

from poseidon_sim.metrics.cost import Cost, cost, job_price_per_hour
from poseidon_sim.metrics.critical_path import Span, blame_shares, bottleneck, critical_path
from poseidon_sim.metrics.links import (
    LinkUse,
    NodeTraffic,
    bytes_received,
    bytes_sent,
    link_uses,
    node_traffic,
)
from poseidon_sim.metrics.step import StepMetrics, step_metrics
from poseidon_sim.metrics.trust import Trust, goodput_of, trust_in
from poseidon_sim.plan.memory import Memory, largest_batch, memory_per_gpu

__all__ = [
    "Cost", "LinkUse", "Memory", "NodeTraffic", "Span", "StepMetrics", "Trust", "blame_shares", "bottleneck",
    "bytes_received", "bytes_sent", "cost", "critical_path", "goodput_of", "job_price_per_hour", "largest_batch",
    "link_uses", "memory_per_gpu", "node_traffic", "step_metrics", "trust_in",
]  # fmt: skip
