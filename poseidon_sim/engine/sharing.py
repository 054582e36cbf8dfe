"""Weighted max-min sharing of links by progressive filling: the plain solver, written to be read.

All rates rise together, each in proportion to its flow's weight; the common factor is the *level*. A flow
stops rising (is *frozen*) when it reaches its own cap or when a link it uses is full. The rest rises on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import inf
from typing import NamedTuple


class Flow(NamedTuple):
    """What sharing needs to know of one flow: `demand` is a tuple of (link, coefficient), each link once."""

    demand: tuple[tuple[int, float], ...]
    weight: float = 1.0
    cap: float = inf


def interpolate(x: float, points: Sequence[tuple[float, float]]) -> float:
    """Read a piecewise linear curve at `x`; it is constant beyond both ends.

    >>> interpolate(3.0, [(1.0, 10.0), (5.0, 6.0)]), interpolate(9.0, [(1.0, 10.0), (5.0, 6.0)])
    (8.0, 6.0)
    """
    if x <= points[0][0]:
        return points[0][1]
    for (x0, y0), (x1, y1) in pairwise(points):
        if x == x1:
            return y1
        if x < x1:
            return inf if inf in (y0, y1) else y0 + (y1 - y0) * ((x - x0) / (x1 - x0))
    return points[-1][1]


def max_min_rates(flows: Sequence[Flow], capacity: Callable[[int, float], float]) -> list[float]:
    """Return the max-min fair rate of every flow, in units of its work per second.

    Parameters
    ----------
    flows : the flows that share; order matters to no more than the last bit.
    capacity : capacity(link, number of flows) in units per second; the number of flows is the sum of the
        coefficients of the flows on that link.

    Returns
    -------
    One rate a flow; inf for a flow that nothing holds back.

    Examples
    --------
    A parking lot: a long flow over both links, a short one on each; the tighter link decides for the long.

    >>> long, first, second = Flow(((0, 1.0), (1, 1.0))), Flow(((0, 1.0),)), Flow(((1, 1.0),))
    >>> max_min_rates([long, first, second], lambda link, flows: [2.0, 10.0][link])
    [1.0, 1.0, 9.0]
    """
    members: dict[int, list[int]] = {}  # the flows on each link
    count: dict[int, float] = {}  # sum of the coefficients on each link
    pull: dict[int, float] = {}  # units/s that unfrozen flows take for each unit of level
    for index, flow in enumerate(flows):
        for link, coefficient in flow.demand:
            members.setdefault(link, []).append(index)
            count[link] = count.get(link, 0.0) + coefficient
            pull[link] = pull.get(link, 0.0) + flow.weight * coefficient
    spare = {link: capacity(link, count[link]) for link in members}  # capacity not taken by frozen flows
    unfrozen = {link: len(rows) for link, rows in members.items()}
    full_at = {link: spare[link] / pull[link] for link in members}  # the level at which each link fills
    capped_at = [flow.cap / flow.weight for flow in flows]
    by_cap = sorted(range(len(flows)), key=capped_at.__getitem__, reverse=True)  # the lowest cap is last
    rates = [-1.0] * len(flows)

    while by_cap:
        level = min(min(full_at.values(), default=inf), capped_at[by_cap[-1]])
        if level == inf:  # nothing holds the rest back
            return [inf if rate < 0 else rate for rate in rates]
        full = [link for link, fills_at in full_at.items() if fills_at == level]
        frozen = {index for link in full for index in members[link] if rates[index] < 0}
        while by_cap and (capped_at[by_cap[-1]] <= level or rates[by_cap[-1]] >= 0):
            index = by_cap.pop()
            if rates[index] < 0:
                frozen.add(index)
        touched = set()
        for index in sorted(frozen):
            demand, weight, cap = flows[index]
            rates[index] = cap if capped_at[index] <= level else weight * level
            for link, coefficient in demand:
                spare[link] -= coefficient * rates[index]
                pull[link] -= coefficient * weight
                unfrozen[link] -= 1
                touched.add(link)
        for link in touched:
            if unfrozen[link]:  # rounding may not push a link's level below the one already reached
                full_at[link] = max(level, spare[link] / pull[link])
            else:
                del full_at[link]
        while by_cap and rates[by_cap[-1]] >= 0:
            by_cap.pop()
    return rates
