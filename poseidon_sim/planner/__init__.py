"""Questions about many runs: compare strategies, sweep a grid, advise on a cluster."""

from poseidon_sim.planner.advice import CANDIDATES, Advice, advise, compare
from poseidon_sim.planner.grid import sweep

__all__ = ["CANDIDATES", "Advice", "advise", "compare", "sweep"]
