"""Weighted max-min sharing for the fast engine: only what a change disturbs is shared anew.

Changed routes, and those on the full links of changed routes, are filled progressively beside all others, who keep
their rates. Where that would not be max-min fair (a full link gains room, or holds someone back who is slower than its
others), that link is reopened too, and so on. The answer is the one that sharing everything anew gives: an allocation is
max-min fair when every route has a full link on which nobody is faster, or runs at its cap, and there is only one such.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from poseidon_sim.engine.records import (
    World,
    compiled,
    heap_append,
    heap_first,
    heap_order,
    heap_remove,
    heap_set,
    pop,
    push,
)

SAME = 1e-11  # rates closer than this share of each other are one rate: sums over hundreds of flows round by 1e-12
FULL = 1e-9  # a link with less than this share of its room left counts as full: too many may, none too few


@compiled
def next_end(tasks: Any, routes: Any, route: int) -> float:
    """Return when the first member of a busy route ends if its rate stays."""
    r = routes[route]
    return r.since + max(0.0, tasks[r.root].rank - r.served) / r.rate  # type: ignore[no-any-return]


@compiled
def interpolate(points: Any, first: int, last: int, flows: float) -> float:
    """Read a piecewise linear curve, constant beyond its ends."""
    if flows <= points[first, 0]:
        return points[first, 1]  # type: ignore[no-any-return]
    for i in range(first + 1, last):
        x, x0, y, y0 = points[i, 0], points[i - 1, 0], points[i, 1], points[i - 1, 1]
        if flows == x:
            return y  # type: ignore[no-any-return]
        if flows < x:
            return np.inf if max(y, y0) == np.inf else y0 + (y - y0) * ((flows - x0) / (x - x0))
    return points[last - 1, 1]  # type: ignore[no-any-return]


@compiled
def carry(uses: Any, links: Any, first_use: int, last_use: int, rate: float) -> None:
    """Add (or take away) what one member of a route moves over its links."""
    for use in range(first_use, last_use):
        links[uses[use].link].used += uses[use].coefficient * rate


@compiled
def reopen(w: World, link: int, this_round: int) -> None:
    """Take a link into what is shared anew: all its members may change."""
    links, uses, routes, on_link = w.links, w.uses, w.routes, w.on_link
    k = links[link]
    if k.opened == this_round:
        return
    k.opened = this_round
    push(w.part_links, link)
    for place in range(k.first_place, k.first_place + k.members):
        route = uses[on_link[place]].route
        if routes[route].seen != this_round:
            routes[route].seen = this_round
            push(w.part_routes, route)


@compiled
def gather(w: World, this_round: int) -> None:
    """Begin with the changed routes, and with the links that they disturb where somebody's rate hangs on that.

    A route that lost members and won as many at this instant goes on as before.
    """
    routes, uses, links, part_routes = w.routes, w.uses, w.links, w.part_routes
    part_routes[0] = w.part_links[0] = w.touched[0] = 0
    while w.changed[0]:
        route = pop(w.changed)
        r = routes[route]
        r.changed = 0
        if r.members and r.seen != this_round:
            r.seen = this_round
            push(part_routes, route)
        if r.members == r.before:
            continue
        for use in range(r.first_use, r.last_use):
            k = links[uses[use].link]
            if k.disturbed != this_round:
                k.disturbed = this_round
                push(w.touched, uses[use].link)
            if r.members > r.before and k.full:
                reopen(w, uses[use].link, this_round)
        r.before = r.members
        if r.members == 0:
            r.rate = 0.0
    for index in range(1, w.touched[0] + 1):
        link = w.touched[index]
        k = links[link]
        if k.first_point < k.last_point or (k.full and not all_held(w, link, this_round)):
            reopen(w, link, this_round)
        elif k.used < (1.0 - FULL) * k.room:
            k.full = 0


@compiled
def all_held(w: World, link: int, this_round: int) -> bool:
    """Whether every member of a link would keep its rate if the link were wider: its cap or another full link holds it."""
    routes, uses, links, on_link = w.routes, w.uses, w.links, w.on_link
    k = links[link]
    for place in range(k.first_place, k.first_place + k.members):
        r = routes[uses[on_link[place]].route]
        held = r.rate >= r.cap * (1.0 - SAME)
        for use in range(r.first_use, r.last_use):
            other = links[uses[use].link]
            if other.full and other.disturbed != this_round and r.rate >= r.weight * other.level * (1.0 - SAME):
                held = True
        if not held:
            return False
    return True


@compiled
def prepare(w: World, this_round: int, attempt: int) -> None:
    """Work out what the gathered routes find on each of their links, beside those who keep their rates."""
    routes, uses, links, levels = w.routes, w.uses, w.links, w.levels
    part_routes, touched, points = w.part_routes, w.touched, w.points
    touched[0] = 0
    for index in range(1, part_routes[0] + 1):
        r = routes[part_routes[index]]
        r.next_rate = -1.0
        if r.members == 0:
            continue
        if r.cap < np.inf:
            heap_append(levels, len(links) + part_routes[index], r.cap / r.weight)
        for use in range(r.first_use, r.last_use):
            k = links[uses[use].link]
            if k.touched != attempt:
                k.touched, k.unfair, k.moved = attempt, 0, 0
                k.pull, k.unfrozen, k.flows, k.kept = 0.0, 0, 0.0, k.used
                push(touched, uses[use].link)
            units = uses[use].coefficient * r.members
            k.pull += units * r.weight
            k.flows += units
            k.unfrozen += 1
            k.kept -= units * r.rate
    for index in range(1, touched[0] + 1):
        k = links[touched[index]]
        if k.opened == this_round:
            k.kept, k.level, k.room = 0.0, 0.0, k.capacity
            if k.first_point < k.last_point:
                k.room = interpolate(points, k.first_point, k.last_point, k.flows)
        k.spare = max(0.0, k.room - k.kept)
        heap_append(levels, touched[index], k.spare / k.pull)
    heap_order(levels)


@compiled
def fill(w: World, this_round: int) -> None:
    """Progressive filling by the gathered routes: sets their `next_rate`; -1 where nothing limits it.

    A link's level only rises while others freeze: its key in the heap may be too low, never too high.
    """
    routes, uses, links, on_link, levels = w.routes, w.uses, w.links, w.on_link, w.levels
    level = 0.0
    while levels.items[0]:
        item, key = levels.items[1], heap_first(levels)
        if item >= len(links):
            route = item - len(links)
            heap_remove(levels, item)
            level = max(level, key)
            freeze(routes, uses, links, route, routes[route].cap)
            continue
        k = links[item]
        full_at = k.spare / k.pull
        if full_at <= level * (1.0 + SAME):  # rounding may not push it below the level already reached, nor just above
            full_at = level
        if k.unfrozen and key < full_at:
            heap_set(levels, item, full_at)
            continue
        heap_remove(levels, item)
        if k.unfrozen and full_at < np.inf:
            level = full_at
            if k.opened != this_round and (k.full == 0 or level < k.level * (1.0 - SAME)):
                k.unfair = 1  # it holds someone back here who is slower than those who keep their rates
            for place in range(k.first_place, k.first_place + k.members):
                route = uses[on_link[place]].route
                if routes[route].seen == this_round:
                    freeze(routes, uses, links, route, level * routes[route].weight)


@compiled
def freeze(routes: Any, uses: Any, links: Any, route: int, rate: float) -> None:
    """Fix the rate of a route and take its share from its links."""
    r = routes[route]
    if r.next_rate >= 0:
        return
    moved = abs(rate - r.rate) > SAME * rate
    if not moved:
        rate = r.rate
    r.next_rate = rate
    for use in range(r.first_use, r.last_use):
        k = links[uses[use].link]
        units = uses[use].coefficient * r.members
        k.unfrozen -= 1
        k.spare -= units * rate
        k.pull -= units * r.weight
        k.level = max(k.level, rate / r.weight)
        if moved:
            k.moved = 1


@compiled
def spread(w: World, this_round: int) -> bool:
    """Reopen the links where those who kept their rates could or must change now; return whether there were any."""
    links, touched = w.links, w.touched
    before = w.part_links[0]
    for index in range(1, touched[0] + 1):
        k = links[touched[index]]
        if k.opened == this_round:
            continue
        full = k.spare <= FULL * k.room
        if k.unfair or (k.moved and (k.full or full)):
            reopen(w, touched[index], this_round)
    return w.part_links[0] > before  # type: ignore[no-any-return]


@compiled
def share(w: World, now: float) -> None:
    """(C) Share anew around every route that won or lost members, as far as rates change.

    Changed routes, and those on the full links of changed routes, are shared anew beside all others, who keep their
    rates. Where that would not be max-min fair (a full link gains room, or holds someone back who is slower than its
    others), that link is reopened too, and so on.
    """
    routes, uses, part_routes = w.routes, w.uses, w.part_routes
    this_round = w.rounds[0] + 1
    w.rounds[0] = this_round
    gather(w, this_round)
    while True:
        w.rounds[1] += 1
        prepare(w, this_round, w.rounds[1])
        fill(w, this_round)
        if not spread(w, this_round):
            break
        if 4 * part_routes[0] > w.finishes.items[0]:  # much of it changes: do the rest at once
            for index in range(1, part_routes[0] + 1):
                r = routes[part_routes[index]]
                for use in range(r.first_use, r.last_use):
                    reopen(w, uses[use].link, this_round)
    settle(w, now)


@compiled
def settle(w: World, now: float) -> None:
    """Give the gathered routes their new rates, and their links what they now carry."""
    tasks, routes, links, finishes, part_routes, log = w.tasks, w.routes, w.links, w.finishes, w.part_routes, w.log
    for index in range(1, w.part_links[0] + 1):
        k = links[w.part_links[index]]
        if k.members == 0:
            k.used, k.full = 0.0, 0
    for index in range(1, w.touched[0] + 1):
        k = links[w.touched[index]]
        k.used = k.room - k.spare if k.room < np.inf else 0.0
        k.full = 1 if k.spare <= FULL * k.room and k.room < np.inf else 0
    rebuild = 4 * part_routes[0] > finishes.items[0]  # most of it changes
    for index in range(1, part_routes[0] + 1):
        route = part_routes[index]
        r = routes[route]
        if r.members == 0:
            continue
        rate = r.next_rate if r.next_rate >= 0 else np.inf
        if rate != r.rate:
            r.served += r.rate * (now - r.since)
            r.since, r.rate = now, rate
            log_entry(log, now, route, rate)
        if rebuild:
            heap_append(finishes, route, next_end(tasks, routes, route))
        else:
            heap_set(finishes, route, next_end(tasks, routes, route))
    if rebuild:
        heap_order(finishes)


@compiled
def log_entry(log: Any, now: float, route: int, rate: float) -> None:
    """Count every entry; keep those that fit."""
    log[0, 0] += 1
    entry = int(log[0, 0])
    if entry < len(log):
        log[entry, 0], log[entry, 1], log[entry, 2] = now, route, rate
