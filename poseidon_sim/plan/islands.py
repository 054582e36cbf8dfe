"""Collectives inside every node by itself: no node waits for another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from poseidon_sim.plan.flows import Uses
from poseidon_sim.plan.phases import Phased, phases_of
from poseidon_sim.plan.plan import Phase, Plan, PlanLayer
from poseidon_sim.plan.record import Handles


@dataclass(frozen=True)
class _OnOneClass:
    """The phases of a collective, but for the links of other classes."""

    whole: Phased
    node_class: int

    def of(self, plan: Plan) -> list[Phase]:
        own = {link for (_, index), link in plan.links.of.items() if index == self.node_class}
        return [p._replace(uses=tuple(use for use in p.uses if use[0] in own)) for p in self.whole.of(plan)]


def collective_in_each_node(
    plan: Plan, halves: Sequence[Phased], num_bytes: float, after: Handles, *, label: str, layer: PlanLayer | None = None
) -> Handles:
    """Run collectives that stay inside a node, one after another, on every worker class by itself: (W,) handles.

    Simplified: their rate is that of the slowest class's links.
    """
    done = []
    for row, node_class in enumerate(plan.workers.tolist()):
        ready, queue = after[row : row + 1], plan.recorder.queue(("in node", node_class))
        for half in halves:
            key = _OnOneClass(half, node_class)
            for index, phase in enumerate(phases_of(plan, key)):
                plan.phased.append((plan.recorder.num_tasks, key, index))
                uses = Uses.of([list(phase.uses)])
                ready = plan._record(
                    "collective", label, 1, ready, layer, phase.work * num_bytes, latency=phase.latency, rate_cap=phase.rate_cap,
                    queue=queue, links=uses.links, coefficients=uses.coefficients, node=node_class,
                )  # fmt: skip
        done.append(ready)
    return np.concatenate(done)
