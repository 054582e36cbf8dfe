"""GradientFlow (Sun et al., 2019): AlexNet on 512 V100 at 56 Gb/s, against one GPU.

    poseidon-sim reproduce gradientflow

Given: images/s on one V100 (S8-05). Recalled: 64 nodes of 8, 128 images per GPU, 90 % of the chunks of 32 K gradients not sent.
Predicted: the speedup, its efficiency and the total rate.
"""

from __future__ import annotations

from pathlib import Path

from published import Row, flag_of, show, targets

import poseidon_sim as ps

IMAGES, EPOCHS, BATCH = 1_281_167, 95, 128
ONE_GPU = 3297.0


def run(nodes: int, strategy: ps.Strategy, link: str, precision: str) -> ps.Run:
    """Return AlexNet on nodes of eight V100 with one port of 56 Gb/s."""
    wire = ps.link(link)
    network = ps.Network(7e9, efficiency=wire.efficiency, latency=wire.latency, collective_overhead=50e-6)
    cluster = ps.Cluster(nodes=nodes, gpus_per_node=8, gpu=ps.gpu("v100-sxm2-16gb"), node="nvlink-ring", network=network)
    workload = ps.load_model("alexnet", precision=precision, single_gpu_throughput=ONE_GPU)
    return ps.simulate(workload, cluster, strategy, batch_size=BATCH)


def rows() -> list[Row]:
    """Return every published row with ours."""
    best = run(64, ps.GradientFlow(sparsity=0.9), "infiniband-fdr", "fp16")
    ours = {
        "S8-01": best.speedup, "S8-02": best.scaling_efficiency, "S8-03": EPOCHS * IMAGES / best.throughput / 60,
        "S8-04": best.throughput, "S8-05": ONE_GPU,
    }  # fmt: skip
    return [
        Row(
            line["id"], f"{line['model']}, {line['nodes']} x {line['gpus_per_node']} GPU: {line['metric']}", float(line["value"]), ours.get(line["id"]),
            {"S8-05": "given", "S8-06": "not modelled"}.get(line["id"], "predicted"), flag_of(line["confidence"]),
            "system, model and transport are not named" if line["id"] == "S8-06" else "stragglers, input and kernels of the selection beside its passes are not in ours",
        )
        for line in targets("S8-")
    ]  # fmt: skip


def main(out_dir: Path) -> int:
    """Print the rows, and what each of the paper's techniques is worth here."""
    show(rows(), out_dir)
    steps = {
        "fp16, a tensor at a time": ps.GradientFlow(lazy_size=0.0), "lazy all-reduce": ps.GradientFlow(),
        "and only a tenth of the chunks": ps.GradientFlow(sparsity=0.9),
    }  # fmt: skip
    for words, strategy in steps.items():
        print(f"  {words:<32} {run(64, strategy, 'infiniband-fdr', 'fp16').scaling_efficiency:6.1%} of 512 GPUs (predicted)")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path("out/gradientflow")))
