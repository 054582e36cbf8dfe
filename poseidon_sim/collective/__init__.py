"""Collectives: all-reduce algorithms by name, one a file, and primitives for sharded strategies."""

from poseidon_sim.collective.base import Collective
from poseidon_sim.collective.double_tree import DoubleTree
from poseidon_sim.collective.grid import Grid
from poseidon_sim.collective.halving_doubling import HalvingDoubling
from poseidon_sim.collective.hierarchical import Hierarchical
from poseidon_sim.collective.inside import NodeAllGather, NodeReduceScatter
from poseidon_sim.collective.messages import Message, Round
from poseidon_sim.collective.pairwise import LeaderExchange, LocalExchange
from poseidon_sim.collective.primitives import AllGather, AllToAll, Broadcast, Reduce, ReduceScatter
from poseidon_sim.collective.ring import Ring
from poseidon_sim.collective.swap_tree import SwapTree
from poseidon_sim.collective.tree import Tree
from poseidon_sim.collective.two_dimensional import TwoDimensional
from poseidon_sim.errors import unknown_name

_ALGORITHMS: dict[str, Collective] = {
    each.name: each() for each in (Ring, Tree, DoubleTree, HalvingDoubling, Hierarchical, TwoDimensional)
}


def list_collectives() -> tuple[str, ...]:
    """Return the names of all all-reduce algorithms."""
    return tuple(sorted(_ALGORITHMS))


def collective_algorithm(name: str) -> Collective:
    """Return the all-reduce algorithm called `name`; raise UnknownNameError with the nearest known name."""
    if name not in _ALGORITHMS:
        raise unknown_name("all-reduce algorithm", name, _ALGORITHMS)
    return _ALGORITHMS[name]


__all__ = [
    "AllGather",
    "AllToAll",
    "Broadcast",
    "Collective",
    "Grid",
    "LeaderExchange",
    "LocalExchange",
    "Message",
    "NodeAllGather",
    "NodeReduceScatter",
    "Reduce",
    "ReduceScatter",
    "Round",
    "SwapTree",
    "Tree",
    "collective_algorithm",
    "list_collectives",
]
