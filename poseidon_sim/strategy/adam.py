"""Project Adam's strategy: linear layers push factors to one owning server and pull the whole matrix back.

Paper: Chilimbi et al., OSDI'14, as described in ATC'17 section 3.2 and Table 1.
Simplified: layers are owned in turn by the (colocated) servers; rebuilding costs one pass over the matrix on the host.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from poseidon_sim.cluster import Layout
from poseidon_sim.plan.plan import Plan, PlanLayer
from poseidon_sim.plan.record import Handles
from poseidon_sim.strategy.base import Job, Strategy, backward_pass
from poseidon_sim.strategy.parameter_server import ParameterServer
from poseidon_sim.workload.layer import Workload


@dataclass(frozen=True)
class Adam(Strategy):
    """Cheap push, expensive pull, and one hot server per linear layer; other layers go by an even parameter server.

    Parameters
    ----------
    overlap : start a layer as soon as its backward ends.
    """

    name: ClassVar[str] = "adam"
    summary: ClassVar[str] = "linear layers push sufficient factors to one owner and pull the full matrix back"
    source: ClassVar[str] = "Chilimbi et al. OSDI'14; Zhang et al. ATC'17 Table 1"

    overlap: bool = True

    def owners(self, workload: Workload, nodes: int) -> dict[str, int]:
        """Return the node that owns each layer with factors."""
        names = [layer.name for layer in workload.layers if layer.factor_shape is not None]
        return {name: index % nodes for index, name in enumerate(names)}

    def layout(self, job: Job) -> Layout:
        return Layout(roles={node: f"owner {node}" for node in self.owners(job.workload, job.cluster.nodes).values()})

    def validate(self, job: Job) -> Iterator[str]:
        if not self.owners(job.workload, job.cluster.nodes):
            yield f"model {job.workload.name!r} has no linear layer: adam is the same as parameter-server"
        if job.cluster.nodes == 1:
            yield "one node: adam moves nothing over the network"

    def iteration(self, plan: Plan, start: Handles) -> Handles:
        gradients, ready = backward_pass(plan, start, self.overlap)
        owners = self.owners(plan.workload, plan.num_nodes)
        synced = [self.sync(plan, layer, gradient, owners.get(layer.name)) for layer, gradient in gradients]
        return plan.all_of(ready, *synced)

    def sync(self, plan: Plan, layer: PlanLayer, ready: Handles, owner: int | None) -> Handles:
        """Record one layer: factors to its owner, the matrix back."""
        if owner is None:
            return ParameterServer().sync(plan, layer, ready)
        own = layer.layer.factor_bytes(plan.batch_size, plan.workload.element_bytes)
        at_owner = (plan.workers == plan.class_of_node(owner)).astype(float)
        on_host = plan.copy_to_host(own, after=ready, layer=layer)
        factors = np.tile(own * plan.gpus_per_node * at_owner, (len(plan.workers), 1))
        pushed = plan.send(plan.workers, plan.workers, factors, after=on_host, label="factors", layer=layer)
        rebuilt = plan.host_sum(plan.workers, layer.gradient_bytes * at_owner, after=plan.arrived(pushed), layer=layer)
        matrix = np.tile((layer.gradient_bytes * at_owner)[:, None], (1, len(plan.workers)))
        pulled = plan.send(plan.workers, plan.workers, matrix, after=rebuilt, label="pull", layer=layer)
        return plan.copy_to_gpu(layer.gradient_bytes, after=plan.arrived(pulled), layer=layer)

    def network_bytes(self, job: Job) -> float:
        """(P - 1) (K (M + N) + M N) for layers with factors, the parameter server's formula for the rest."""
        workload, cluster = job.workload, job.cluster
        samples = job.batch_size * cluster.gpus_per_node
        linear = [layer for layer in workload.layers if layer.factor_shape is not None]
        total = sum(
            layer.factor_bytes(samples, workload.element_bytes) + layer.gradient_bytes(workload.element_bytes)
            for layer in linear
        )
        rest = workload.with_changes(layers=tuple(x for x in workload.layers if x.factor_shape is None))
        other = ParameterServer().network_bytes(Job(rest, cluster, job.batch_size))
        return (cluster.nodes - 1) * total + other
