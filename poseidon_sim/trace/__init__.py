"""The record of a run and its export."""

from poseidon_sim.trace.trace import Trace

__all__ = ["Trace"]
