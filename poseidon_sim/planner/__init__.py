"""Questions about many runs: compare strategies, sweep a grid, advise on a cluster."""

from poseidon_sim.planner.advise import CANDIDATES, Advice, advise, compare
from poseidon_sim.planner.sweep import sweep

__all__ = ["CANDIDATES", "Advice", "advise", "compare", "sweep"]
