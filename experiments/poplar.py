"""Poplar on its three mixed clusters: the range of its gain over DeepSpeed and Whale, and ours.

    poseidon-sim reproduce poplar      # prints the table; rows go to out/poplar/rows.csv

Known: the kinds of GPU, the global batch of 2 million tokens, ZeRO stages 0 to 3, the range of the gain. Assumed: four GPUs of each kind,
one node each, PCIe inside, 100 Gbit/s between; a LLaMA-like model of half a billion parameters, 1024 tokens a sequence, 16
bits; a V100S is a V100 PCIe with 32 GB, an A800 an A100 (its slower NVLink is not used). Stage 3 is run on a quarter of the batch: its
micro-batches are one like another. Nothing is fitted.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

from published import Row, flag_of, show, targets

import poseidon_sim as ps

TOKENS, LENGTH, GPUS = 2_000_000, 1024, 4
SHAPE = {"layers": 24, "hidden": 1280, "heads": 20, "vocabulary": 32_000, "feed_forward": 3456, "gated": True, "norm": "rms", "bias": False}
V100S = replace(ps.gpu("v100-pcie"), name="v100s-32gb", memory=32 * 2.0**30)
CLUSTERS = {
    "S10-c1": (ps.gpu("a100-sxm-80gb"), ps.gpu("a100-sxm-40gb")),
    "S10-c2": (ps.gpu("v100-sxm2-16gb"), ps.gpu("t4")),
    "S10-c3": (ps.gpu("a100-sxm-80gb"), V100S),
}


@cache
def workload() -> ps.Workload:
    return ps.load_model({"name": "llama-0.5b", "transformer": SHAPE, "precision": "fp16", "optimizer": "adam"}, sequence_length=LENGTH)


def mixed(cluster: str) -> ps.Cluster:
    fast, slow = CLUSTERS[cluster]
    return ps.Cluster(
        nodes=2, gpus_per_node=GPUS, gpu=fast, node="pcie", pcie=12e9, groups=(ps.NodeGroup(1, gpu=fast), ps.NodeGroup(1, gpu=slow)),
        network=ps.Network(12.5e9, latency=2e-6, efficiency=0.93, collective_overhead=50e-6),
    )  # fmt: skip


@cache
def step_time(cluster: str, zero: int, split: str) -> float:
    """Seconds of a step."""
    samples = TOKENS // LENGTH // (2 * GPUS) // (4 if zero == 3 else 1)
    return ps.simulate(workload(), mixed(cluster), ps.Poplar(zero=zero, split=split), batch_size=samples).step_time


@cache
def gains() -> dict[tuple[str, int, str], float]:
    """Return the gain over DeepSpeed ('equal') and Whale ('peak') on every cluster, in every stage."""
    return {
        (cluster, zero, split): step_time(cluster, zero, split) / step_time(cluster, zero, "measured")
        for cluster in CLUSTERS for zero in range(4) for split in ("equal", "peak")
    }  # fmt: skip


def rows() -> list[Row]:
    """Return every published row with our figure."""
    found = gains()
    least, most = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
    words = {"equal": "DeepSpeed", "peak": "Whale"}
    cluster_words = {c: f"{fast.name} and {slow.name}" for c, (fast, slow) in CLUSTERS.items()}
    ours: dict[str, tuple[float, str, str]] = {
        name: (float(len({gpu.name for gpu in pair})), "given", "A100 and A100 differ in memory only" if name == "S10-c1" else "")
        for name, pair in CLUSTERS.items()
    }
    ours["S10-01"] = (found[least], "predicted", f"over {words[least[2]]}, ZeRO-{least[1]}, {cluster_words[least[0]]}")
    ours["S10-02"] = (
        found[most], "predicted",
        f"over {words[most[2]]}, ZeRO-{most[1]}, {cluster_words[most[0]]}; numbers of GPUs, links and models are unknown: the ratio of the "
        "cards' rates bounds an equal deal's loss, and slower links or smaller micro-batches of the baseline would add to it",
    )  # fmt: skip
    return [
        Row(line["id"], f"{line['system']}, {line['metric']}", float(line["value"]), *ours[line["id"]][:2], flag_of(line["confidence"]), ours[line["id"]][2])
        for line in targets("S10-")
    ]


def main(out_dir: Path = Path("out/poplar")) -> int:
    """Print the table and write it."""
    show(rows(), Path(out_dir))
    for (cluster, zero, split), gain in gains().items():
        print(f"{cluster} ZeRO-{zero}: {gain:.2f} times the speed of a split by {split}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
