"""Published systems that are no strategy of the toolkit: a strategy with the system's own way of doing one thing."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

import poseidon_sim as ps

#: bytes/s at which a host sums when its sums shall cost nothing; `key_time` is counted in its bytes
FREE_SUM = 1e12


@dataclass(frozen=True)
class BytePS(ps.ParameterServer):
    """Parameter server with the keys of BytePS: each partition lives whole on one server, picked by a hash of its name.

    Source: bytedance/byteps v0.2: BYTEPS_PARTITION_BYTES = 4,096,000, keys to servers by hash, gradients of a node summed
    by its GPUs, one thread that passes keys on. Needs a workload cut into partitions and `reduce_bandwidth` FREE_SUM.
    Simplified: the hash is not BytePS's own, so the load of each server is only alike in kind.

    Parameters
    ----------
    key_time : seconds for which a worker's thread is busy with one key.
    """

    key_time: float = 0.0

    def layout(self, job: Any) -> Any:
        base = super().layout(job)
        if self.servers == "colocated":
            return base
        return type(base)(extra_nodes=base.extra_nodes, roles={job.cluster.nodes + i: f"server {i}" for i in range(base.extra_nodes)})

    def push(self, plan: Any, layer: Any, ready: Any, num_bytes: float | None = None) -> Any:
        size = layer.gradient_bytes if num_bytes is None else num_bytes
        on_host = plan.copy_to_host(size, after=ready, layer=layer)
        passed = plan.host_sum(plan.workers, self.key_time * FREE_SUM, after=on_host, layer=layer)
        return self.gather(plan, layer, passed, size)

    def shares(self, plan: Any, layer: Any, size: float) -> np.ndarray:
        if self.servers == "colocated":
            return super().shares(plan, layer, size)
        chosen = plan.num_nodes + zlib.crc32(layer.name.encode()) % plan.num_servers
        row = [size * (plan.classes[int(c)].first_node == chosen) for c in plan.servers]
        return np.tile(row, (len(plan.workers), 1))
