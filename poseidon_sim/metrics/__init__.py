"""What a trace means: times, links, critical path, memory, cost."""

from poseidon_sim.metrics.step import StepMetrics, step_metrics

__all__ = ["StepMetrics", "step_metrics"]
