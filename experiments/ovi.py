"""DDP, FSDP and parameter servers side by side (Ovi, 2025): directions, under conditions that we had to assume.

    poseidon-sim reproduce ovi         # prints the table; rows go to out/ovi/rows.csv

Published are ends of ranges over five networks, without numbers of GPUs, batches, links or what a ratio is taken over; the two versions of
the paper disagree on memory. Assumed: four machines of one A10 (the nearest to an A10G) at 25 Gbit/s, 32 images of 224 or 32 pixels a GPU,
Adam; VGG16 and ResNet-50, the two of the five networks among our models; throughput over one GPU; peak memory without the framework's
share; GPUs that differ by up to 20 %, without which an asynchronous server has nothing to gain. The number of machines, one GPU in each, and
224 pixels for throughput were picked among five shapes, two batches and two sizes in sight of the two rows on DDP, which so count as fitted.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

from published import Row, flag_of, show, targets

import poseidon_sim as ps

NODES, BATCH, SPREAD = 4, 32, 0.2
MODELS, PIXELS = ("vgg16", "resnet50"), (224, 32)
CONDITIONS = f"{NODES} A10 at 25 Gbit/s, batch {BATCH}"


@cache
def workload(name: str, pixels: int) -> ps.Workload:
    """A network on images of so many pixels: what is not a matrix product on a vector shrinks with their area; Adam."""
    area = (pixels / 224) ** 2
    layers = tuple(
        layer if layer.kind == "linear" else replace(
            layer, forward_flops=area * layer.forward_flops, backward_flops=area * layer.backward_flops,
            input_elements=area * layer.input_elements, output_elements=area * layer.output_elements,
        )
        for layer in ps.load_model(name).layers
    )  # fmt: skip
    return ps.load_model(name).with_changes(layers=layers, optimizer_bytes=8.0)


@cache
def run(name: str, pixels: int, strategy: ps.Strategy, spread: float = 0.0) -> ps.Run:
    nic = ps.link("25gbe-tcp")
    network = ps.Network(nic.bandwidth, latency=nic.latency, efficiency=nic.efficiency)
    where = ps.Cluster(nodes=NODES, gpu=ps.gpu("a10"), network=network, jitter=spread, host=ps.Host(reduce_bandwidth=20e9))
    return ps.simulate(workload(name, pixels), where, strategy, batch_size=BATCH)


def memory(found: ps.Run) -> float:
    return found.memory.total - found.memory.framework


@cache
def ratios(staleness: float = math.inf) -> dict[str, list[float]]:
    """Return every ratio over networks and image sizes."""
    jobs = [(name, pixels) for name in MODELS for pixels in PIXELS]
    ddp, fsdp = ({job: run(*job, strategy) for job in jobs} for strategy in (ps.Ddp(), ps.Fsdp()))
    server, stale = ({job: run(*job, ps.ParameterServer(staleness=s), SPREAD) for job in jobs} for s in (0.0, staleness))
    return {
        "speedup": [ddp[job].speedup for job in jobs if job[1] == 224],
        "memory": [memory(ddp[job]) / memory(fsdp[job]) for job in jobs],
        "time": [fsdp[job].step_time / ddp[job].step_time for job in jobs],
        "saved": [1 - stale[job].step_time / server[job].step_time for job in jobs],
    }


def rows() -> list[Row]:
    """Return every published row with our figure."""
    of = ratios()
    shared = f"of what {NODES} GPUs shard at most {NODES} times, and activations are not sharded; more GPUs and less to keep are needed for more"
    ours: dict[str, tuple[float | None, str, str]] = {
        "S6-01": (min(of["speedup"]), "fitted", f"over one GPU (assumed), {CONDITIONS}, 224 pixels: picked in sight of this row"),
        "S6-01b": (max(of["speedup"]), "fitted", "the same; what the ratio is taken over is not stated"),
        "S6-02": (min(of["memory"]), "predicted", shared),
        "S6-02b": (max(of["memory"]), "predicted", shared),
        "S6-03": (max(of["time"]), "predicted", "three halves of an all-reduce bound a network-bound ratio near 1.5, waiting for units adds; 6 needs costs per call we do not have"),
        "S6-04": (1 - 1 / max(of["memory"]), "predicted", "the largest of ours; " + shared),
        "S6-05": (max(of["saved"]), "predicted", f"GPUs that differ by up to {SPREAD:.0%} (assumed); with staleness 3 it is {max(ratios(3.0)['saved']):.0%}: a limit takes the gain away, as published"),
        "S6-06": (None, "not modelled", "accuracy is not a figure of a simulator of time"),
        "S6-06b": (None, "not modelled", "accuracy is not a figure of a simulator of time"),
    }  # fmt: skip
    return [
        Row(line["id"], f"{line['strategy']}, {line['metric']}", float(line["value"]), *ours[line["id"]][:2], flag_of(line["confidence"]), ours[line["id"]][2])
        for line in targets("S6-")
    ]


def main(out_dir: Path = Path("out/ovi")) -> int:
    """Print the table and write it."""
    show(rows(), Path(out_dir))
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
