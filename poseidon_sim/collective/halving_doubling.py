"""Recursive halving and doubling: swap halves, quarters, ... with partners ever further away, then back.

Source: Rabenseifner 2004; Thakur, Rabenseifner and Gropp, IJHPCA 2005 (MPICH): vector halving with distance
doubling, so that the largest parts stay between near ranks. n that is no power of two: of the first 2r ranks
(r = n - p, p the power below n) every even one hands its whole buffer to its neighbour first and gets the
result last: two more rounds.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from poseidon_sim.collective.base import Collective
from poseidon_sim.collective.messages import Leg, Schedule, make_round, mirrored
from poseidon_sim.errors import InputError


class HalvingDoubling(Collective):
    """log2(p) rounds of halving (reduce-scatter) and log2(p) of doubling (all-gather).

    >>> HalvingDoubling().time(1e6, num_ranks=4, bandwidth=1e9, latency=0.0)
    0.0015
    """

    name: ClassVar[str] = "halving-doubling"
    summary: ClassVar[str] = (
        "2 log2(n) rounds of 1/2, 1/4, ... of the buffer; ring's bandwidth for powers of two"
    )

    def legs(self, num_ranks: int, ranks_per_node: int = 1) -> list[Leg]:
        return [Leg(self.schedule(num_ranks, ranks_per_node))]

    def schedule(self, num_ranks: int, ranks_per_node: int = 1) -> Schedule:
        power = 1 << (num_ranks.bit_length() - 1)
        extra = num_ranks - power
        member = np.arange(power, dtype=np.int64)
        rank = np.where(member < extra, 2 * member + 1, member + extra)
        even = 2 * np.arange(extra, dtype=np.int64)
        fold = (make_round(even, even + 1, 0, power, reduce=True, num_chunks=power),) if extra else ()
        start, size = np.zeros(power, dtype=np.int64), power
        halving = []
        while size > 1:
            size //= 2
            distance = power // (2 * size)
            upper = (member & distance) != 0
            sent = np.where(upper, start, start + size)
            halving.append(
                make_round(rank, rank[member ^ distance], sent, sent + size, reduce=True, num_chunks=power)
            )
            start = np.where(upper, start + size, start)
        return (*fold, *halving, *mirrored(halving), *mirrored(fold))

    def time(
        self, num_bytes: float, num_ranks: int, bandwidth: float, latency: float, ranks_per_node: int = 1,
        peer_bandwidth: float = float("inf"), peer_latency: float = 0.0,
    ) -> float:  # fmt: skip
        power, rounds = 1, 0
        while 2 * power <= num_ranks:
            power, rounds = 2 * power, rounds + 1
        if ranks_per_node == 1:
            total = 2 * rounds * latency + 2.0 * (1.0 - 1.0 / power) * num_bytes / bandwidth
            return total if power == num_ranks else total + 2 * (latency + num_bytes / bandwidth)
        inside = ranks_per_node.bit_length() - 1
        if power != num_ranks or 1 << inside != ranks_per_node:
            raise InputError(
                f"halving-doubling has no closed form for {num_ranks} ranks, {ranks_per_node} per node: "
                "give powers of two, or one rank per node"
            )
        near = 2 * inside * peer_latency + 2.0 * (1.0 - 1.0 / ranks_per_node) * num_bytes / peer_bandwidth
        far = (
            2.0 * (1.0 - ranks_per_node / num_ranks) * num_bytes / bandwidth
        )  # g ranks share the port, each with S/g left
        return near + far + 2 * (rounds - inside) * latency
