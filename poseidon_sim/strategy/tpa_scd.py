"""TPA-SCD: every worker runs one epoch of coordinate descent on its part of the data, then the changes of one vector are summed.

Paper: Parnell, Duenner, Atasu, Sifalakis, Pozidis, IPDPSW'17 (arXiv 1702.07005): traffic of a round is the shared vector each way,
with copies between GPU and host; the master takes the step that is best for the sum.
Simplified: a local epoch is the model's forward and backward pass and the shared vector its gradient, both given in the model file;
the best step is one pass over the vector on a host; rounds to an accuracy are not modelled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from poseidon_sim.collective import Broadcast, Reduce
from poseidon_sim.plan.plan import Plan
from poseidon_sim.plan.record import Handles
from poseidon_sim.strategy.base import Job, Strategy, backward_pass, require


@dataclass(frozen=True)
class TpaScd(Strategy):
    """Aggregate the shared vector once after so many local epochs.

    Parameters
    ----------
    local_epochs : passes over a worker's own data before each aggregation.
    """

    name: ClassVar[str] = "tpa-scd"
    summary: ClassVar[str] = "coordinate descent on every worker's own data, one aggregation of the shared vector a round"
    source: ClassVar[str] = "Parnell et al., IPDPSW'17, arXiv 1702.07005"

    local_epochs: int = 1

    def validate(self, job: Job) -> Iterator[str]:
        require(self.local_epochs >= 1, f"local_epochs={self.local_epochs} must be at least 1")
        if job.cluster.num_gpus == 1:
            yield "one GPU: tpa-scd has nothing to aggregate"

    def iteration(self, plan: Plan, start: Handles) -> Handles:
        ready = start
        for _ in range(self.local_epochs):
            _, ready = backward_pass(plan, ready, overlap=False)
        if plan.num_gpus == 1:
            return ready
        vector = plan.workload.gradient_bytes
        changes = plan.copy_to_host(vector, after=ready)
        summed = Reduce().record(plan, vector, changes, label="tree sum", staged=True)
        stepped = plan.host_sum(plan.workers, vector, after=summed)
        fresh = Broadcast().record(plan, vector, stepped, label="broadcast", staged=True)
        return plan.copy_to_gpu(vector, after=fresh)

    def network_bytes(self, job: Job) -> float:
        """The vector up the tree and down it, over nodes - 1 edges."""
        return 2.0 * (job.cluster.nodes - 1) * job.workload.gradient_bytes
