"""All-reduce algorithms, one a file."""

from poseidon_sim.collective.base import Collective, Message
from poseidon_sim.collective.ring import Ring
from poseidon_sim.errors import unknown_name

_ALGORITHMS: dict[str, Collective] = {each.name: each() for each in (Ring,)}


def list_algorithms() -> tuple[str, ...]:
    """Return the names of all all-reduce algorithms."""
    return tuple(sorted(_ALGORITHMS))


def algorithm(name: str) -> Collective:
    """Return the all-reduce algorithm called `name`."""
    if name not in _ALGORITHMS:
        raise unknown_name("all-reduce algorithm", name, _ALGORITHMS)
    return _ALGORITHMS[name]


collective_algorithm, list_collectives = algorithm, list_algorithms

__all__ = ["Collective", "Message", "Ring", "algorithm", "collective_algorithm", "list_algorithms", "list_collectives"]
