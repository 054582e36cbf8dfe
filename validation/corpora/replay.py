"""Replay of the GoogLeNet trace (K80, 10 GbE, host MPI): measured times of every layer, three ways to send its gradients.

`per layer`: each all-reduce takes what was measured for its layer. `fused` and `merged` send sizes that were not measured:
start-up and byte time come from a median-slope fit of the same trace. At 8 nodes the repository also holds the log of the
merging run itself; it says which layers went together, and `merged` sends those. At 2 and 4 nodes it merges by the paper's rule.
Sources: shyhuai/B-Caffe@1e8a70d, logdata/tmp8comm.log and tmp8ocomm.log (BSD 2-clause).
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

import poseidon_sim as ps

DATA = Path(__file__).resolve().parent / "data"
#: start-up and byte time of one all-reduce of OSU's benchmark on the same network (dl_scheduling, network_contention/fit.py)
OSU = {2: (2.534641666666668e-4, 1.0586445305937077e-9), 4: (4.3822e-4, 2.40787629158266e-9), 8: (8.454662500000003e-4, 3.4648519946682828e-9)}
BANDWIDTH = 1e9
#: those that the authors' own simulator assumes (B-Caffe, scripts/gmwfbp.py) at 8 nodes
ASSUMED_8 = (7.24e-4, 3.9259688059488926e-9)


@dataclass(frozen=True)
class LayerTrace:
    """One learnable layer in forward order; times in seconds, `comm` by number of nodes."""

    parameters: int
    backward: float
    comm: dict[int, float]


@cache
def trace() -> tuple[LayerTrace, ...]:
    """Return the layers in forward order."""
    with open(DATA / "googlenet_k80_10gbe_trace.csv", newline="", encoding="utf-8") as lines:
        return tuple(
            LayerTrace(int(r["params"]), int(r["bwd_us"]) * 1e-6, {n: int(r[f"comm{n}_us"]) * 1e-6 for n in (2, 4, 8)})
            for r in csv.DictReader(lines)
        )


@cache
def merged_run() -> tuple[tuple[float, float, float], ...]:
    """Return (backward, all-reduce alone, all-reduce of the group that ends here or 0) of the merging run at 8 nodes, forward order."""
    with open(DATA / "googlenet_k80_10gbe_merged.csv", newline="", encoding="utf-8") as lines:
        rows = csv.DictReader(lines)
        return tuple((float(r["bwd_us"]) * 1e-6, float(r["comm8_us"]) * 1e-6, float(r["merged8_us"]) * 1e-6) for r in rows)


def cost_fit(nodes: int) -> tuple[float, float]:
    """Return (start-up, byte time): median slope over all pairs of layers, then the median of what is left."""
    points = [(4.0 * layer.parameters, layer.comm[nodes]) for layer in trace()]
    slope = median((y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2) if x1 != x2)
    return median(y - slope * x for x, y in points), slope


def groups_of_run() -> list[int]:
    """Return how many layers each all-reduce of the merging run carried, last layer first."""
    groups, count = [], 0
    for _, _, merged in reversed(merged_run()):
        count += 1
        if merged > 0:
            groups.append(count)
            count = 0
    return groups


@dataclass(frozen=True)
class Replayed(ps.MergedGradient):
    """All-reduces of stated duration on one channel: `sends` are (layers, seconds), last layer first."""

    sends: tuple[tuple[int, float], ...] = ()
    turn: dict[str, int] = field(default_factory=dict, compare=False, repr=False)

    def merged(self, plan: Any) -> list[int]:
        self.turn["next"] = 0
        return [layers for layers, _ in self.sends]

    def reduce(self, plan: Any, num_bytes: float, ready: Any, layer: Any) -> Any:
        seconds = self.sends[self.turn["next"]][1]
        self.turn["next"] += 1
        return super().reduce(plan, seconds * BANDWIDTH, ready, layer)  # between two nodes M bytes take M / bandwidth


def exposed(nodes: int, method: str, costs: tuple[float, float] | None = None) -> float:
    """Return the seconds an iteration exceeds its compute time by, with measured times or with `costs` (start-up, byte time)."""
    layers = trace()[::-1]
    costs_used = costs or cost_fit(nodes)
    if method == "per layer":
        sends = [(1, layer.comm[nodes] if costs is None else costs[0] + costs[1] * 4 * layer.parameters) for layer in layers]
    else:
        groups = [len(layers)] if method == "fused" else planned(nodes, costs_used)
        sends = [(count, seconds) for count, seconds in zip(groups, group_times(layers, groups, costs_used), strict=True)]
    return run(layers, sends)


def planned(nodes: int, costs: tuple[float, float]) -> list[int]:
    """Return the groups: of the recorded run at 8 nodes, by the paper's rule at others."""
    if nodes == 8:
        return groups_of_run()
    layers = trace()[::-1]
    return ps.merge_plan([x.backward for x in layers], [4.0 * x.parameters for x in layers], *costs)


def group_times(layers: tuple[LayerTrace, ...], groups: list[int], costs: tuple[float, float]) -> list[float]:
    """Return the seconds of each group's all-reduce."""
    times, first = [], 0
    for count in groups:
        size = 4.0 * sum(layer.parameters for layer in layers[first : first + count])
        times.append(costs[0] + costs[1] * size)
        first += count
    return times


def run(layers: tuple[LayerTrace, ...], sends: list[tuple[int, float]]) -> float:
    """Simulate: layers (last first) with measured backward times, sends on one channel; return the exposed seconds."""
    net = tuple(
        ps.Layer(f"layer {len(layers) - i}", "conv", (x.parameters,), forward_time=0.0, backward_time=x.backward)
        for i, x in enumerate(layers)
    )[::-1]
    cluster = ps.Cluster(nodes=2, network=ps.Network(BANDWIDTH))
    found = ps.simulate(ps.Workload("googlenet trace", net), cluster, Replayed(sends=tuple(sends)), batch_size=64)
    return found.step_time - found.single_gpu_time
