"""Recurrent networks for fusion at Princeton (Svyatkovskiy et al., 2017): epoch seconds from 4 to 180 GPUs beside the predictions.

    poseidon-sim reproduce frnn

Nodes of 4 P100 on a 100 Gbit/s fabric (inferred in the facts, not stated), an LSTM of 2 x 200. What grows with the nodes is the wait for
the slowest: a replica's step takes as long as its shots and its host let it. Nodes stand at the mean order statistics of an even
spread of 1 +- SPREAD (of n nodes the slowest is 1 + SPREAD (n - 1) / (n + 1)), so one run gives the mean of many draws.
Given: the epoch on 4 GPUs of each data set. Fitted: SPREAD on B-FRNN-sync-160, COMPUTE_TIME on B-FRNN-sync-4 (it fixes what a step's
messages weigh), EPOCH_OVERHEAD on B-FRNN-small-32.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from published import Row, flag_of, show, targets

import poseidon_sim as ps

GPUS_PER_NODE = 4
#: fitted on B-FRNN-sync-160: half the width of the spread of compute times from node to node
SPREAD = 0.366
#: fitted on B-FRNN-sync-4: seconds a replica computes on a batch
COMPUTE_TIME = 0.0588
#: fitted on B-FRNN-small-32: seconds of an epoch that no GPU shortens (shuffling, reading, the last partial batch)
EPOCH_OVERHEAD = 4.34
FITTED = ("B-FRNN-sync-160", "B-FRNN-sync-4", "B-FRNN-small-32")
#: elements of each tensor: 14 signals, 2 LSTM layers of 200, one output (the count of signals is today's configuration)
TENSORS = {"lstm1": (14 * 800, 200 * 800, 800), "lstm2": (200 * 800, 200 * 800, 800), "out": (200, 1)}
NOISE = "one run: the published wait falls from 12 to 16 and from 20 to 32 GPUs, which no mean of draws does"
REASONS = {
    **{f"B-FRNN-{name}": NOISE for name in ("full-32", "full-eff-32", "large-32", "small-12", "small-16", "sync-8", "sync-16", "sync-32")},
    "B-FRNN18-epoch-20": "read off a plot; exactly a fifth of 4 GPUs, although the same plot's wait has more than doubled",
    "B-FRNN18-epoch-100": "read off a plot; less than a 20th of 4 GPUs, although the same plot's wait has tripled",
    "B-FRNN18-sync-4": "another version of the code, whose wait on one node is four times that of 2016",
}


@dataclass(frozen=True)
class Step:
    """Seconds of one step: in all, and the mean a replica computes."""

    seconds: float
    compute: float

    @property
    def sync_ratio(self) -> float:
        return self.seconds / self.compute - 1.0


@cache
def step(nodes: int) -> Step:
    """Simulate one step."""
    whole = sum(sum(sizes) for sizes in TENSORS.values())
    layers = tuple(
        ps.Layer(name, "lstm", sizes, forward_time=COMPUTE_TIME / 3 * sum(sizes) / whole, backward_time=COMPUTE_TIME * 2 / 3 * sum(sizes) / whole)
        for name, sizes in TENSORS.items()
    )
    groups = tuple(ps.NodeGroup(1, slowdown=1 + SPREAD * (2 * i / (nodes + 1) - 1)) for i in range(1, nodes + 1))
    fabric = ps.link("infiniband-edr")
    machines = ps.Cluster(
        nodes=nodes, gpus_per_node=GPUS_PER_NODE, gpu=ps.gpu("p100-pcie"), groups=groups, peer_latency=1e-6,
        network=ps.Network(fabric.bandwidth, latency=fabric.latency, efficiency=fabric.efficiency),
        host=ps.Host(reduce_bandwidth=20e9, memory_bandwidth=80e9),
    )  # fmt: skip
    run = ps.simulate(ps.Workload("LSTM 2 x 200", layers, batch_size=128), machines, ps.Frnn())
    return Step(run.step_time, run.metrics.compute_time)


def epoch(on_four: float, gpus: int) -> float:
    """Return the seconds of an epoch of a data set from its epoch on 4 GPUs: the steps are divided, the overhead is not."""
    work = on_four - EPOCH_OVERHEAD
    return EPOCH_OVERHEAD + work * GPUS_PER_NODE / gpus * step(gpus // GPUS_PER_NODE).seconds / step(1).seconds


def rows() -> list[Row]:
    """Return every published row with ours beside it."""
    lines = targets("B-FRNN")
    value = {line["id"]: float(line["value"]) for line in lines}
    return [row_of(line, value) for line in lines]


def row_of(line: dict[str, str], value: dict[str, float]) -> Row:
    name, gpus = line["id"], int(line["id"].rsplit("-", 1)[1])
    what = f"{line['model']}, {gpus} GPUs, {line['metric']}"
    if line["metric"] == "t_sync_over_t_compute":
        ours = step(gpus // GPUS_PER_NODE).sync_ratio
    else:
        base = value[f"{name.removesuffix(f'-{gpus}').removesuffix('-eff')}-{GPUS_PER_NODE}"]
        ours = epoch(base, gpus)
        if line["metric"] != "epoch_s":
            ours = base * GPUS_PER_NODE / gpus / ours
    use = "fitted" if name in FITTED else "given" if line["metric"] == "epoch_s" and gpus == GPUS_PER_NODE else "predicted"
    return Row(name, what, value[name], ours, use, flag_of(line["confidence"]), REASONS.get(name, ""))


def main(out_dir: Path) -> int:
    show(rows(), out_dir)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path("out/frnn")))
