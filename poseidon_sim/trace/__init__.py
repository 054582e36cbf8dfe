"""The record of a run and its export."""

from poseidon_sim.trace.export import save_timeline, timeline_events
from poseidon_sim.trace.trace import Trace

__all__ = ["Trace", "save_timeline", "timeline_events"]
