"""Flows between groups of node classes: which links each of them takes, with which coefficients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poseidon_sim.cluster import Fabric
from poseidon_sim.plan.record import NONE


@dataclass(frozen=True, eq=False)
class Flows:
    """All flows between two groups of node classes: (F,) arrays and the (S, R, K) map to them (-1: none)."""

    sender: np.ndarray
    receiver: np.ndarray
    relation: np.ndarray
    links: np.ndarray
    coefficients: np.ndarray
    rate_cap: np.ndarray
    fan: np.ndarray
    index: np.ndarray


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
    found: list[tuple[int, int, int]] = []
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
                found.append((int(s), int(r), k))
                rows.append(fabric.flow_uses(a, b, pair))
                fans.append(float(pair.receivers))
                caps.append(matrix[a.first_node][b.first_node] if matrix else np.inf)
    links, coefficients = padded(rows)
    table = np.array(found, dtype=np.int64).reshape(-1, 3)
    sender, receiver, relation = table.T
    return Flows(sender, receiver, relation, links, coefficients, np.array(caps), np.array(fans), index)
