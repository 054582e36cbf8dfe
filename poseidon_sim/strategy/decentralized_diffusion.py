"""Decentralized diffusion models: every node trains an expert of its own on its share of the data; nothing crosses between nodes.

Paper: McAllister, Tancik, Song, Kanazawa, 2025 (arXiv 2501.05450): K experts on K clusters of the data, in full isolation, and a
small router trained apart; experts and router meet at inference only.
Simplified: an expert is a node (its GPUs sum gradients layer by layer beside backward); the router is a job of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from poseidon_sim.collective import NodeAllGather, NodeReduceScatter
from poseidon_sim.collective.base import UnitPhases
from poseidon_sim.plan.islands import collective_in_each_node
from poseidon_sim.plan.plan import Plan
from poseidon_sim.plan.record import Handles
from poseidon_sim.strategy.base import Job, Strategy, backward_pass

_HALVES = (UnitPhases(NodeReduceScatter(), False), UnitPhases(NodeAllGather(), False))


@dataclass(frozen=True)
class DecentralizedDiffusion(Strategy):
    """Train one expert per node; a node waits for no other.

    Parameters
    ----------
    overlap : sum a layer's gradients among a node's GPUs as soon as its backward ends.
    """

    name: ClassVar[str] = "decentralized-diffusion"
    summary: ClassVar[str] = "an expert per node, trained in isolation: no bytes between nodes"
    source: ClassVar[str] = "McAllister et al. 2025, arXiv 2501.05450"

    overlap: bool = True

    @property
    def iteration_staleness(self) -> float:
        return math.inf

    def num_iterations(self) -> tuple[int, int]:
        return 1, 2

    def validate(self, job: Job) -> Iterator[str]:
        if job.cluster.nodes == 1:
            yield "one node: decentralized-diffusion trains one expert"

    def iteration(self, plan: Plan, start: Handles) -> Handles:
        gradients, ready = backward_pass(plan, start, self.overlap)
        if plan.gpus_per_node == 1:
            return ready
        summed = [
            collective_in_each_node(plan, _HALVES, layer.gradient_bytes, gradient, label="sum in node", layer=layer)
            for layer, gradient in gradients
        ]
        return plan.all_of(ready, *summed)

    def network_bytes(self, job: Job) -> float:
        """Nothing leaves a node."""
        return 0.0
