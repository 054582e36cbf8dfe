"""Recursive halving and doubling: exchange halves with a partner at half the distance each round, then back.

Source: Rabenseifner 2004; Thakur, Rabenseifner and Gropp 2005. n that is no power of two: the r ranks beyond the power
p hand their buffer to a partner first and get the result last, two more rounds of the whole buffer.
"""

from __future__ import annotations

from typing import ClassVar

from poseidon_sim.collective.base import Collective, Message, Schedule


class HalvingDoubling(Collective):
    """log2(p) rounds of halving (reduce-scatter) and log2(p) of doubling (all-gather)."""

    name: ClassVar[str] = "halving-doubling"
    summary: ClassVar[str] = "2 log2(n) rounds of 1/2, 1/4, ... of the buffer; ring's bandwidth for powers of two"

    def critical_share(self, num_ranks: int) -> float:
        power = int(2 ** (num_ranks.bit_length() - 1))
        return 2.0 * (power - 1) / power + (2.0 if power < num_ranks else 0.0)

    def num_hops(self, num_ranks: int) -> int:
        power = int(2 ** (num_ranks.bit_length() - 1))
        return 2 * (power.bit_length() - 1) + (2 if power < num_ranks else 0)

    def schedule(self, num_ranks: int, ranks_per_node: int = 1) -> Schedule:
        power = 2 ** (num_ranks.bit_length() - 1)
        extra = range(power, num_ranks)
        before = [[Message(r, r - power, 0.0, 1.0, True) for r in extra]] if extra else []
        after = [[Message(r - power, r, 0.0, 1.0, False) for r in extra]] if extra else []
        parts = [(0.0, 1.0)] * power
        halving: Schedule = []
        distance = power // 2
        while distance:
            each = []
            kept = list(parts)
            for r in range(power):
                start, stop = parts[r]
                middle = (start + stop) / 2
                low = r & distance == 0
                each.append(Message(r, r ^ distance, *((middle, stop) if low else (start, middle)), True))
                kept[r] = (start, middle) if low else (middle, stop)
            halving.append(each)
            parts, distance = kept, distance // 2
        doubling = [[Message(m.target, m.source, m.start, m.stop, False) for m in each] for each in reversed(halving)]
        return before + halving + doubling + after

    def time(self, num_bytes: float, num_ranks: int, bandwidth: float, latency: float) -> float:
        power, rounds = 1, 0
        while 2 * power <= num_ranks:
            power, rounds = 2 * power, rounds + 1
        total = 2 * rounds * latency + 2.0 * (1.0 - 1.0 / power) * num_bytes / bandwidth
        return total if power == num_ranks else total + 2 * (latency + num_bytes / bandwidth)
