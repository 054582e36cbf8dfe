"""PowerAI DDL (Cho et al., 2017): ResNet-50 and ResNet-101 on 256 P100, 64 nodes of four with NVLink and 100 Gb/s InfiniBand.

    poseidon-sim reproduce ddl

Nothing is given: one GPU's time is modelled. The published minutes hold validation, input and saving; the iteration time derived
from them does too. Times are compared against a node of four GPUs where the source does.
"""

from __future__ import annotations

from pathlib import Path

from published import Row, flag_of, show, targets

import poseidon_sim as ps

IMAGES, EPOCHS, BATCH = 1_281_167, 90, 32


def run(model: str, nodes: int) -> ps.Run:
    """Return a model on so many nodes."""
    wire = ps.link("infiniband-edr")
    network = ps.Network(wire.bandwidth, efficiency=wire.efficiency, latency=wire.latency)
    cluster = ps.Cluster(nodes=nodes, gpus_per_node=4, gpu=ps.gpu("p100-sxm2"), node="nvlink-ring", network=network)
    return ps.simulate(model, cluster, ps.Ddl(grid="4x8x8" if nodes == 64 else "auto"), batch_size=BATCH)


def rows() -> list[Row]:
    """Return every published row with ours."""
    one, many, large, small = run("resnet50", 1), run("resnet50", 64), run("resnet101", 64), run("resnet101", 1)
    ours = {
        "S7-01": EPOCHS * IMAGES / many.throughput / 60, "S7-02": many.throughput, "S7-03": many.step_time,
        "S7-04": many.throughput / (64 * one.throughput), "S7-08": large.throughput / small.throughput,
    }  # fmt: skip
    reasons = {
        "S7-01": "the published minutes hold all that is not training", "S7-02": "the same", "S7-03": "the same",
        "S7-05": "another system, at second hand", "S7-06": "epochs not stated", "S7-07": "epochs not stated",
        "S7-08": "of rounded values; batch 32 assumed; no jitter, no input here", "S7-09": "the baseline is not described",
    }  # fmt: skip
    return [
        Row(
            line["id"], f"{line['model'] or '-'}, {line['nodes'] or '-'} nodes: {line['metric']}", float(line["value"]), ours.get(line["id"]),
            "predicted" if line["id"] in ours else "not modelled", flag_of(line["confidence"]), reasons.get(line["id"], ""),
        )
        for line in targets("S7-")
    ]  # fmt: skip


def main(out_dir: Path) -> int:
    """Print the rows and write them."""
    show(rows(), out_dir)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path("out/ddl")))
