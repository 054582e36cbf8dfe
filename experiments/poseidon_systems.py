"""The systems of the Poseidon paper as scenarios: hardware, host software, strategies, and where each number is from.

Fitted on Caffe+WFBP (P15..P20) and the one-node row of Caffe+PS (P27): `sum_rate`, `pool_rate`. Fitted on Caffe+PS from
2 nodes (P28..P32): `thread_rate`, `sharing_slope`, `sharing_floor`; the last rests on P32 alone, no other row has so
many messages. Everything else is from the papers or the catalog. `fit_poseidon.py` repeats the fit and leaves every
row out in turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import poseidon_sim as ps

PUBLISHED = Path(__file__).with_name("poseidon_published.csv")
NODES = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class Fitted:
    """The five fitted numbers.

    sum_rate : bytes/s at which a node's key-value store processes gradients (one pass: add, apply, copy).
    pool_rate : bytes/s that a node's pool of communication threads passes, both directions together.
    thread_rate : the same for the single thread of plain Caffe+PS.
    sharing_slope : growth of a channel's cost per byte for each further message it serves at once.
    sharing_floor : share of the rate that is left however many messages there are.
    """

    sum_rate: float = 1.3e9
    pool_rate: float = 3.4e9
    thread_rate: float = 2.5e9
    sharing_slope: float = 0.07
    sharing_floor: float = 0.26


FITTED = Fitted()

#: single-GPU rates (samples/s) given to the simulator: P2 derived from the exact P1; the others recalled
GIVEN_RATES = {"vgg19-22k": 32 / 0.925, "vgg19": 35.5, "googlenet": 257.0, "inception-v3": 43.2}


def sharing(fitted: Fitted) -> tuple[tuple[float, float], ...]:
    """Return points (messages at once, share of the channel's rate left): 1 / (1 + slope (k - 2)), never under the floor."""
    counts = (2, 4, 6, 8, 10, 12, 14, 17, 20, 24, 28, 34, 40, 50, 60)
    return tuple((float(k), max(fitted.sharing_floor, 1.0 / (1.0 + fitted.sharing_slope * (k - 2)))) for k in counts)


def host(software: str, fitted: Fitted = FITTED) -> ps.Host:
    """Return the host side of one system: 'pool' (WFBP, Poseidon), 'thread' (Caffe+PS) or 'whole-tensors' (TensorFlow)."""
    if software == "pool":
        return ps.Host(reduce_bandwidth=fitted.sum_rate, channel_bandwidth=fitted.pool_rate)
    rate = fitted.thread_rate if software == "thread" else fitted.pool_rate
    return ps.Host(reduce_bandwidth=fitted.sum_rate, channel_bandwidth=rate, channel_sharing=sharing(fitted))


#: published system -> (host software, strategy)
SYSTEMS: dict[str, tuple[str, ps.Strategy]] = {
    "Caffe+PS": ("thread", ps.ParameterServer(overlap=False, copies="blocking", pair_size=2e6)),
    "Caffe+WFBP": ("pool", ps.ParameterServer(pair_size=2e6)),
    "Poseidon": ("pool", ps.Poseidon()),
    "TensorFlow": ("whole-tensors", ps.ParameterServer(placement="whole", pull="next-iteration")),
    "Adam": ("pool", ps.Adam()),
    "1-bit": ("pool", ps.OneBit()),
}


def workload(model: str) -> ps.Workload:
    """Return a model scaled to the single-GPU rate that the authors measured."""
    rate = GIVEN_RATES.get(model)
    return ps.load_model(model, single_gpu_throughput=rate) if rate else ps.load_model(model)


def cluster(nodes: int, software: str = "pool", gbits: float = 40.0, fitted: Fitted = FITTED) -> ps.Cluster:
    """Return the authors' machines: one Titan X (Maxwell) on PCIe 3.0 x16 and one Ethernet port each.

    Goodput 94 % of the line rate (headers of TCP over Ethernet at MTU 1500); 50 us per message.
    """
    network = ps.Network(bandwidth=gbits * 1e9 / 8, latency=50e-6, efficiency=0.94)
    return ps.Cluster(nodes=nodes, gpu=ps.gpu("titan-x-maxwell"), network=network, host=host(software, fitted))


def simulate(system: str, model: str, nodes: int, *, gbits: float = 40.0, batch: int = 32, fitted: Fitted = FITTED) -> ps.Run:
    """Simulate one published system."""
    software, strategy = SYSTEMS[system]
    return ps.simulate(workload(model), cluster(nodes, software, gbits, fitted), strategy, batch_size=batch)


@cache
def figures(system: str, model: str, nodes: int, gbits: float = 40.0, batch: int = 32) -> dict[str, Any]:
    """Return the summary of one published system's run; the same run is made once."""
    return simulate(system, model, nodes, gbits=gbits, batch=batch).summary()
