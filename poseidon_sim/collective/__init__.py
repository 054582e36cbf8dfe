"""All-reduce algorithms, one a file."""

from poseidon_sim.collective.base import Collective, Message
from poseidon_sim.collective.double_tree import DoubleTree
from poseidon_sim.collective.halving_doubling import HalvingDoubling
from poseidon_sim.collective.hierarchical import Hierarchical, TwoDimensional
from poseidon_sim.collective.ring import Ring
from poseidon_sim.collective.tree import Tree
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


__all__ = ["Collective", "Message", "collective_algorithm", "list_collectives"]
