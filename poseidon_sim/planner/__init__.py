"""Questions about many runs: compare strategies, sweep a grid, advise on a cluster."""

from poseidon_sim.planner.advice import Advice, advise, compare, ranking
from poseidon_sim.planner.draws import Draws, monte_carlo
from poseidon_sim.planner.grid import sweep

__all__ = ["Advice", "Draws", "advise", "compare", "monte_carlo", "ranking", "sweep"]
