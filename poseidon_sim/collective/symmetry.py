"""Messages of equal nodes folded: one stands for those that every node sends alike.

A schedule that looks the same from every node (a ring, halving and doubling, pairwise exchange) has a symmetry that moves any
node to any other: node i becomes i + 1, or the bits of its number flip. When the symmetry keeps every message's round, size and
what it waits for, messages that it turns into each other begin and end together on equal nodes. So the messages of node 0 tell
all. Whether it does is checked message by message; what is not symmetric (trees, leaders) is not folded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from poseidon_sim.collective.messages import Expansion, Ints


@dataclass(frozen=True, eq=False)
class Folded:
    """The messages that the ranks of node 0 send: `sent` are their indices in the expansion, `expansion` tells them alone.

    In it, the indices that messages wait for are those of the folded messages, `last` has the ranks of node 0.
    """

    sent: Ints
    expansion: Expansion


def fold_messages(expansion: Expansion, rounds: Ints, num_ranks: int, ranks_per_node: int) -> Folded | None:
    """Return the messages of node 0 when those of all nodes follow from them by symmetry, else None.

    Parameters
    ----------
    rounds : (M,) the round of each message.
    """
    nodes = num_ranks // ranks_per_node
    place = _Places(rounds, expansion.source, expansion.target, num_ranks)
    if not place.unique:
        return None
    for to_node_0, generators in _groups(nodes):
        if all(_keeps(expansion, place, step, ranks_per_node) for step in generators):
            return _folded(expansion, place, to_node_0, ranks_per_node)
    return None


Move = Callable[[Ints], Ints]


def _groups(nodes: int) -> Iterator[tuple[Callable[[Ints, Ints], Ints], list[Move]]]:
    """Yield (how node `by` is taken to node 0, steps that together reach every node from every other)."""
    yield (lambda node, by: (node - by) % nodes), [lambda node: (node + 1) % nodes]
    if nodes & (nodes - 1) == 0:
        flips: list[Move] = [lambda node, bit=1 << b: node ^ bit for b in range(nodes.bit_length() - 1)]  # type: ignore[misc]
        yield (lambda node, by: node ^ by), flips


class _Places:
    """Finds a message by its round, source and target."""

    def __init__(self, rounds: Ints, source: Ints, target: Ints, num_ranks: int) -> None:
        self.rounds, self.source, self.target, self.num_ranks = rounds, source, target, num_ranks
        keys = self._key(source, target)
        self._order = np.argsort(keys, kind="stable")
        self._sorted = keys[self._order]
        self.unique = bool((np.diff(self._sorted) > 0).all())

    def of(self, source: Ints, target: Ints) -> Ints:
        """Return, for each message, the one of its round between these ranks; -1 for none."""
        keys = self._key(source, target)
        at = np.minimum(np.searchsorted(self._sorted, keys), len(keys) - 1)
        return np.where(self._sorted[at] == keys, self._order[at], -1)

    def _key(self, source: Ints, target: Ints) -> Ints:
        return (self.rounds * self.num_ranks + source) * self.num_ranks + target


def _keeps(expansion: Expansion, place: _Places, step: Move, per_node: int) -> bool:
    """Whether moving every node by `step` keeps the expansion as it is."""
    e = expansion
    moved = place.of(_moved(e.source, step, per_node), _moved(e.target, step, per_node))
    if (moved < 0).any():
        return False
    alike = (e.share[moved] == e.share) & (e.own[moved] == e.own) & (e.opens[moved] == e.opens)
    if not alike.all():
        return False
    ranks = _moved(np.arange(len(e.last), dtype=np.int64), step, per_node)
    return _same_sets(_renamed(e.before, moved), e.before[moved]) and _same_sets(_renamed(e.last, moved), e.last[ranks])


def _moved(rank: Ints, step: Move, per_node: int) -> Ints:
    return step(rank // per_node) * per_node + rank % per_node


def _renamed(rows: Ints, names: Ints) -> Ints:
    return np.where(rows >= 0, names[rows], -1)


def _same_sets(a: Ints, b: Ints) -> bool:
    return bool(np.array_equal(np.sort(a, axis=1), np.sort(b, axis=1)))


def _folded(expansion: Expansion, place: _Places, to_node_0: Callable[[Ints, Ints], Ints], per_node: int) -> Folded:
    e = expansion
    by = e.source // per_node
    alike = place.of(*(to_node_0(rank // per_node, by) * per_node + rank % per_node for rank in (e.source, e.target)))
    sent = np.flatnonzero(by == 0)
    name = np.full(len(by), -1, dtype=np.int64)
    name[sent] = np.arange(len(sent))
    stands_for = name[alike]
    return Folded(sent, Expansion(
        e.source[sent], e.target[sent], e.share[sent], _without_twins(_renamed(e.before[sent], stands_for)), e.own[sent],
        e.opens[sent], _without_twins(_renamed(e.last[:per_node], stands_for)),
    ))  # fmt: skip


def _without_twins(rows: Ints) -> Ints:
    rows = np.sort(rows, axis=1)
    rows[:, 1:][rows[:, 1:] == rows[:, :-1]] = -1
    return rows
