"""Scenario files: the edge where a person's words become the simulation's values."""

from poseidon_sim.scenario.load import Scenario, load_scenario
from poseidon_sim.scenario.overrides import parse_changes, parse_grid

__all__ = ["Scenario", "load_scenario", "parse_changes", "parse_grid"]
