"""ASC-WFBP: merged gradients whose all-reduces run several at a time, since one alone does not fill the link.

Paper: Shi, Chu, Li, Exploiting Simultaneous Communications (INFOCOM'21); their code: alone a message of M bytes takes a + b M, two
at a time take a + 1.5 b M each, so one stream reaches 3/4 of the link.
Simplified: merging is planned by MG-WFBP's rule with the link's whole rate; streams share the link evenly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from poseidon_sim.collective import Collective, collective_algorithm
from poseidon_sim.collective.base import UnitPhases
from poseidon_sim.plan.phases import phases_for
from poseidon_sim.plan.plan import Phase, Plan, PlanLayer
from poseidon_sim.plan.record import Handles
from poseidon_sim.strategy.base import Job, require
from poseidon_sim.strategy.merged_gradient import MergedGradient


@dataclass(frozen=True)
class _StreamPhases:
    """Under which a plan keeps the phases of an algorithm for one byte, when one stream reaches a share of the rate."""

    algorithm: Collective
    share: float

    def of(self, plan: Plan) -> list[Phase]:
        """Return the phases on the links of a plan."""
        return [self._capped(plan, phase) for phase in UnitPhases(self.algorithm, False).of(plan)]

    def _capped(self, plan: Plan, phase: Phase) -> Phase:
        alone = min((plan.links.capacities[link] / use for link, use in phase.uses), default=float("inf"))
        return phase._replace(rate_cap=self.share * min(phase.rate_cap, alone))


@dataclass(frozen=True)
class AscWfbp(MergedGradient):
    """MG-WFBP with several all-reduces under way.

    Parameters
    ----------
    at_once : all-reduces under way at the same time.
    stream_share : share of the link's rate that one of them reaches alone.
    algorithm, startup_time, byte_time, least_size : as in `MergedGradient` (staging is direct).
    """

    name: ClassVar[str] = "asc-wfbp"
    summary: ClassVar[str] = "merged all-reduces beside backward, several at a time"
    source: ClassVar[str] = "Shi, Chu, Li, ASC-WFBP, INFOCOM'21"

    at_once: int = 2
    stream_share: float = 0.75

    def validate(self, job: Job) -> Iterator[str]:
        require(self.at_once >= 1, f"at_once={self.at_once} must be at least 1")
        require(0 < self.stream_share <= 1, f"stream_share={self.stream_share} must be above 0 and at most 1")
        require(self.staging == "direct", f"staging={self.staging!r}: asc-wfbp is defined for staging=direct only")
        yield from super().validate(job)

    def iteration(self, plan: Plan, start: Handles) -> Handles:
        plan.collectives_at_once = self.at_once
        return super().iteration(plan, start)

    def reduce(self, plan: Plan, num_bytes: float, ready: Handles, layer: PlanLayer) -> Handles:
        """Record the all-reduce of one group as a stream that cannot fill the link."""
        chosen = collective_algorithm(self.algorithm)
        if plan.rounds:
            return chosen.record(plan, num_bytes, ready, label="merged all-reduce", layer=layer)
        key = _StreamPhases(chosen, self.stream_share)
        return plan.collective(phases_for(plan, key, num_bytes), ready, label="merged all-reduce", layer=layer, key=key)
