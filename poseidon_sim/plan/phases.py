"""The phases of collectives for one byte: worked out once per plan, from its links."""

from __future__ import annotations

from typing import Protocol

from poseidon_sim.plan.plan import Phase, Plan


class Phased(Protocol):
    """What knows its phases for one byte on the links of a plan, and can be a key of `Plan.known`."""

    def of(self, plan: Plan) -> list[Phase]:
        """Return the phases, each loading the links of all worker classes alike."""


def phases_of(plan: Plan, key: Phased) -> list[Phase]:
    """Return the phases of `key` on a plan's links."""
    if key not in plan.known:
        plan.known[key] = key.of(plan)
    found: list[Phase] = plan.known[key]
    return found


def phases_for(plan: Plan, key: Phased, num_bytes: float) -> list[Phase]:
    """Return the phases of `key` for `num_bytes`."""
    return [unit._replace(work=unit.work * num_bytes) for unit in phases_of(plan, key)]
