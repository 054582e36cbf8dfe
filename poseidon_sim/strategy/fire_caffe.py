"""FireCaffe: after the whole backward pass one sum of all gradients, by a reduction tree or at a parameter server.

Paper: Iandola et al., FireCaffe, CVPR'16, section 4: a parameter server's time grows with p, a binary tree's with log2(p);
gradients go through the host, nothing overlaps.
Simplified: the optimizer step costs nothing; the tree is a binary tree of whole messages, up and down.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from poseidon_sim.cluster import Layout
from poseidon_sim.plan.plan import Plan
from poseidon_sim.plan.record import Handles
from poseidon_sim.strategy.all_reduce import AllReduce
from poseidon_sim.strategy.base import Job, Strategy, require_choices
from poseidon_sim.strategy.parameter_server import ParameterServer


@dataclass(frozen=True)
class FireCaffe(Strategy):
    """Sum all gradients at once after backward.

    Parameters
    ----------
    aggregation : 'tree' (reduce up a binary tree, broadcast down) or 'parameter-server' (one extra node serves all).
    """

    name: ClassVar[str] = "fire-caffe"
    summary: ClassVar[str] = "one sum of all gradients after backward through the hosts, by a reduction tree or one server"
    source: ClassVar[str] = "Iandola et al., FireCaffe, CVPR'16"

    aggregation: str = "tree"

    @property
    def _inner(self) -> AllReduce | ParameterServer:
        if self.aggregation == "tree":
            return AllReduce(algorithm="tree", fusion="all", overlap=False, staging="host")
        return ParameterServer(servers=1, overlap=False, copies="blocking")

    def layout(self, job: Job) -> Layout:
        return self._inner.layout(job)

    def validate(self, job: Job) -> Iterator[str]:
        require_choices(self, aggregation=("tree", "parameter-server"))
        yield from self._inner.validate(job)

    def iteration(self, plan: Plan, start: Handles) -> Handles:
        return self._inner.iteration(plan, start)

    def network_bytes(self, job: Job) -> float:
        """2 (p - 1) W up and down the tree; 2 p W to and from the server."""
        return self._inner.network_bytes(job)
