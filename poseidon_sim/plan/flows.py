"""Flows between groups of node classes: which links each of them takes, with which coefficients."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from poseidon_sim.cluster import Fabric
from poseidon_sim.plan.record import NONE


class Station(NamedTuple):
    """Where tasks of one kind run on some nodes: the columns of their blocks; `limited`: every node has a link for them."""

    columns: dict[str, Any]
    limited: bool


class Uses(NamedTuple):
    """(rows, widest) links (-1: none) and coefficients of some demands; `limited`: every row has a link."""

    links: np.ndarray
    coefficients: np.ndarray
    limited: bool

    @classmethod
    def of(cls, rows: list[list[tuple[int, float]]]) -> Uses:
        """Pad lists of (link, coefficient)."""
        return cls(*padded(rows), all(rows))


@dataclass(frozen=True, eq=False)
class Flows:
    """All flows between two groups of node classes, sender by sender: (F,) arrays.

    `row`, `column` are places in the two groups, `sender`, `receiver` the classes there, `relation` 0 or 1 (of one
    pair of classes); `index` is the (S, R, 2) map to the flows (-1: none); `own` is (S, R): whether both are one class.
    """

    sender: np.ndarray
    receiver: np.ndarray
    relation: np.ndarray
    links: np.ndarray
    coefficients: np.ndarray
    rate_cap: np.ndarray
    fan: np.ndarray
    index: np.ndarray
    row: np.ndarray
    column: np.ndarray
    own: np.ndarray

    def choose(self, sizes: np.ndarray, staggered: bool) -> np.ndarray:
        """Return the flows that carry something (`sizes` is (S, R) bytes), in the order in which they are sent."""
        order = self.staggered if staggered else self.everything
        moving = sizes[self.place[:2]] > 0
        return order if moving.all() else order[moving[order]]

    @cached_property
    def everything(self) -> np.ndarray:
        """(F,) all flows, sender by sender."""
        return np.arange(len(self.row))

    @cached_property
    def staggered(self) -> np.ndarray:
        """(F,) all flows; every sender begins with its right-hand neighbour."""
        return np.lexsort((self.relation, (self.column - self.row) % self.index.shape[1], self.row))

    @cached_property
    def place(self) -> tuple[np.ndarray, ...]:
        """Where the flows stand in an (S, R, 3) array of what was sent."""
        return self.row, self.column, self.relation + 1

    @cached_property
    def columns(self) -> dict[str, Any]:
        """The columns of a block of all flows."""
        return self.columns_of(self.everything)

    def columns_of(self, chosen: np.ndarray) -> dict[str, Any]:
        """Return the columns of a block of some flows; numbers in place of arrays of one."""
        found = {"node": self.sender[chosen], "peer": self.receiver[chosen], "rate_cap": self.rate_cap[chosen]}
        if len(chosen) == 1:
            found = {name: values.item() for name, values in found.items()}
        return {**found, "links": self.links[chosen], "coefficients": self.coefficients[chosen]}

    @cached_property
    def nothing(self) -> np.ndarray:
        """(S, R) zeros, to spread a number over all pairs."""
        return np.zeros(self.own.shape)

    @cached_property
    def no_task(self) -> np.ndarray:
        """(S, R) zeros, to spread task ids over all receivers."""
        return np.zeros(self.own.shape, dtype=np.int64)

    @cached_property
    def unsent(self) -> np.ndarray:
        """(S, R, 3) of no task."""
        return np.full((*self.own.shape, 1 + self.index.shape[2]), NONE)


def padded(rows: list[list[tuple[int, float]]]) -> tuple[np.ndarray, np.ndarray]:
    """Turn lists of (link, coefficient) into two padded arrays (rows, widest); -1 and 1.0 for none."""
    width = max((len(row) for row in rows), default=0)
    links = np.full((len(rows), width), NONE)
    coefficients = np.ones((len(rows), width))
    for i, row in enumerate(rows):
        for j, (link, coefficient) in enumerate(row):
            links[i, j], coefficients[i, j] = link, coefficient
    return links, coefficients


def flow_table(fabric: Fabric, senders: np.ndarray, receivers: np.ndarray) -> Flows:
    """Return all flows from each of `senders` to each of `receivers`, (S,) and (R,) node-class indices."""
    found: list[tuple[int, int, int, int, int]] = []
    rows: list[list[tuple[int, float]]] = []
    index = np.full((len(senders), len(receivers), 2), NONE)
    caps: list[float] = []
    fans: list[float] = []
    matrix = fabric.cluster.network.pair_bandwidth if fabric.cluster.network else None
    for i, s in enumerate(senders):
        for j, r in enumerate(receivers):
            a, b = fabric.classes[s], fabric.classes[r]
            for k, pair in enumerate(fabric.pairs(a, b)):
                index[i, j, k] = len(rows)
                found.append((int(s), int(r), k, i, j))
                rows.append(fabric.flow_uses(a, b, pair))
                fans.append(float(pair.receivers))
                caps.append(matrix[a.first_node][b.first_node] if matrix else np.inf)
    links, coefficients = padded(rows)
    sender, receiver, relation, row, column = np.array(found, dtype=np.int64).reshape(-1, 5).T
    own = senders[:, None] == receivers[None, :]
    return Flows(sender, receiver, relation, links, coefficients, np.array(caps), np.array(fans), index, row, column, own)
