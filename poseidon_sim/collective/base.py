"""What every collective shares: legs for the fluid model, a schedule of every message, a closed form.

A collective is recorded as one fluid task per leg whose latency carries the rounds and whose uses load every
link by what it carries. `schedule` spells out every message; with detail 'rounds' the messages themselves are
simulated.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from poseidon_sim.cluster import Cluster
from poseidon_sim.collective.loads import call_overhead, unit_phases
from poseidon_sim.collective.messages import Expansion, Leg, Schedule, expand
from poseidon_sim.collective.symmetry import Folded, fold_messages
from poseidon_sim.plan.phases import phases_for
from poseidon_sim.plan.plan import Phase, Plan, PlanLayer, UnfoldableError
from poseidon_sim.plan.record import NONE, Handles
from poseidon_sim.plan.rounds import message_routes, send_messages


@dataclass(frozen=True)
class UnitPhases:
    """Under which a plan keeps the phases of an algorithm for one byte, and how it works them out."""

    algorithm: Collective
    staged: bool

    def of(self, plan: Plan) -> list[Phase]:
        """Return the phases on the links of a plan."""
        return unit_phases(plan, self.algorithm, self.staged)


class Collective:
    """Base of collectives over n ranks, the GPUs of all nodes in node order, with buffers of equal size.

    Attributes
    ----------
    in_order : a rank posts its receives round by round (blocking); pipelined algorithms keep several open.
    """

    name: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    in_order: ClassVar[bool] = True

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), tuple(sorted(vars(self).items()))))

    def legs(self, num_ranks: int, ranks_per_node: int = 1) -> list[Leg]:
        """Return what the fluid model needs: which links carry how much, in which order."""
        raise NotImplementedError

    def schedule(self, num_ranks: int, ranks_per_node: int = 1) -> Schedule:
        """Return the rounds: messages of a round run at once, rounds follow one another."""
        raise NotImplementedError

    def time(
        self, num_bytes: float, num_ranks: int, bandwidth: float, latency: float, ranks_per_node: int = 1,
        peer_bandwidth: float = float("inf"), peer_latency: float = 0.0,
    ) -> float:  # fmt: skip
        """Return the closed-form seconds on an empty cluster under one switch, as the literature states it.

        Parameters
        ----------
        bandwidth, latency : bytes/s of a node's port, seconds per message between nodes.
        peer_bandwidth, peer_latency : the same for each GPU towards the other GPUs of its node.
        """
        raise NotImplementedError

    def phases(self, plan: Plan, num_bytes: float, staged: bool = False) -> list[Phase]:
        """Return the fluid phases of one call with `num_bytes` per rank; `staged`: they lie on the hosts."""
        return phases_for(plan, UnitPhases(self, staged), num_bytes)

    def seconds_alone(self, plan: Plan, num_bytes: float) -> float:
        """Return what one call takes while nothing else runs, by its fluid phases (read: recorded anew for every rate)."""
        capacity = plan.fabric.capacities
        return sum(
            each.latency + each.work / min([each.rate_cap, *(capacity[link] / share for link, share in each.uses)])
            for each in self.phases(plan, num_bytes)
        )

    def network_bytes(self, num_bytes: float, cluster: Cluster) -> float:
        """Return the bytes that cross between nodes in one call, all nodes together."""
        if cluster.nodes == 1:
            return 0.0
        per_node, total = cluster.gpus_per_node, 0.0
        for leg in self.legs(cluster.num_gpus, per_node):
            for each in leg.rounds:
                total += leg.repeat * float(
                    each.share[each.source // per_node != each.target // per_node].sum()
                )
        return num_bytes * total

    def record(
        self,
        plan: Plan,
        num_bytes: float,
        ready: Handles,
        *,
        label: str,
        layer: PlanLayer | None = None,
        staged: bool = False,
    ) -> Handles:
        """Record one call on the plan: fluid phases, or every message with detail 'rounds'.

        Fluid phases begin when all workers are ready and end for all at once. With 'rounds' every rank begins
        when it is ready itself and done with its last call, and ends when it has its own result.
        """
        if plan.num_gpus == 1:
            return ready
        if plan.rounds:
            return _record_rounds(self, plan, num_bytes, ready, label, layer, staged)
        phases = self.phases(plan, num_bytes, staged)
        return plan.collective(phases, ready, label=label, layer=layer, key=UnitPhases(self, staged))


@lru_cache(maxsize=16)
def _expanded(algorithm: Collective, num_ranks: int, ranks_per_node: int) -> tuple[Expansion, Folded | None]:
    """Return all messages of an algorithm, and those of node 0 when they tell all."""
    schedule = algorithm.schedule(num_ranks, ranks_per_node)
    whole = expand(schedule, num_ranks, algorithm.in_order)
    rounds = np.repeat(np.arange(len(schedule), dtype=np.int64), [len(each) for each in schedule])
    return whole, fold_messages(whole, rounds, num_ranks, ranks_per_node)


def _record_rounds(
    algorithm: Collective,
    plan: Plan,
    num_bytes: float,
    ready: Handles,
    label: str,
    layer: PlanLayer | None,
    staged: bool,
) -> Handles:
    """Record every message of one call as one block; each waits for those whose data it passes on."""
    key = (algorithm, staged, "messages")
    if key not in plan.known:
        whole, folded = _expanded(algorithm, plan.num_gpus, plan.gpus_per_node)
        sent = None
        if plan.folded_rounds:
            if folded is None:
                raise UnfoldableError(algorithm.name)
            sent = folded.sent
        routes = message_routes(
            plan, whole.source, whole.target, staged=staged, one_at_a_time=algorithm.in_order, sent=sent
        )
        plan.known[key] = (folded.expansion if folded is not None and sent is not None else whole), routes
    expansion: Expansion
    expansion, routes = plan.known[key]
    called = plan.all_of(ready, plan.known[_BEFORE]) if _BEFORE in plan.known else ready
    if call_overhead(plan) > 0:
        called = plan.pause(call_overhead(plan), called, f"{label} call")
    first = plan.recorder.num_tasks
    nodes = (expansion.source // plan.gpus_per_node, expansion.target // plan.gpus_per_node)
    source_node, target_node = (np.zeros_like(node) if plan.folded_rounds else node for node in nodes)
    own = np.where(expansion.own, called[source_node], NONE)
    open_ = np.where(expansion.opens & (called[target_node] != own), called[target_node], NONE)
    earlier = np.where(expansion.before >= 0, expansion.before + first, NONE)
    after = np.concatenate([own[:, None], open_[:, None], earlier], axis=1)
    send_messages(plan, routes, expansion.share * num_bytes, after, label=label, layer=layer)
    results = np.where(expansion.last >= 0, expansion.last + first, NONE).reshape(len(plan.workers), -1)
    done = plan.all_of(np.concatenate([called[:, None], results], axis=1))
    plan.known[_BEFORE] = done
    return done


_BEFORE = "what every node's last collective waits for"
