"""What training costs, from the price of a GPU hour or a node hour."""

from __future__ import annotations

from dataclasses import dataclass

from poseidon_sim.cluster import Cluster
from poseidon_sim.errors import InputError

HOUR = 3600.0


@dataclass(frozen=True)
class Cost:
    """Prices in one currency, that of the price per hour."""

    per_hour: float
    per_step: float
    per_million_samples: float


def cost(price_per_hour: float, step_time: float, throughput: float) -> Cost:
    """Return what a step and a million samples cost.

    Parameters
    ----------
    price_per_hour : of the whole job. step_time : seconds. throughput : samples/s of the whole job.

    >>> cost(36.0, step_time=0.5, throughput=1000.0)
    Cost(per_hour=36.0, per_step=0.005, per_million_samples=10.0)
    """
    if price_per_hour < 0:
        raise InputError(f"price_per_hour={price_per_hour:g} must not be negative")
    if throughput <= 0:
        raise InputError(f"throughput={throughput:g} samples/s must be above 0 to price a sample")
    per_second = price_per_hour / HOUR
    return Cost(price_per_hour, per_second * step_time, per_second / throughput * 1e6)


def job_price_per_hour(
    cluster: Cluster,
    *,
    per_gpu_hour: float | None = None,
    per_node_hour: float | None = None,
    extra_nodes: int = 0,
) -> float | None:
    """Return the price per hour of the whole job, or None when no price is known.

    A price per node hour covers the node's GPUs, and servers apart (`extra_nodes`) cost as much as a
    worker node; a price per GPU hour charges GPUs only. A given price goes before the cluster's, the
    cluster's before its GPU's.

    >>> job_price_per_hour(Cluster(nodes=1, gpus_per_node=8), per_gpu_hour=2.0)
    16.0
    """
    if per_gpu_hour is not None and per_node_hour is not None:
        raise InputError("give per_gpu_hour or per_node_hour, not both: a node hour covers its GPUs")
    if per_node_hour is None and per_gpu_hour is None:
        per_node_hour = cluster.price_per_node_hour
        per_gpu_hour = cluster.gpu.price_per_hour if cluster.gpu is not None else None
    if per_node_hour is not None:
        return per_node_hour * (cluster.nodes + extra_nodes)
    return None if per_gpu_hour is None else per_gpu_hour * cluster.num_gpus
