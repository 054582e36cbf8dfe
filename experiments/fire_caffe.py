"""FireCaffe (Iandola et al., CVPR'16): speedup of the time to the same accuracy on 32 and 128 GPUs of Titan.

    poseidon-sim reproduce fire-caffe

Given: the days on one GPU (epochs and batch of the paper). Fitted: HOP, the rate of one hop of the reduction tree, which the
recalled hours of NiN fix at 2.8 to 3.0 GB/s (Gemini's injection, throttled, with the copies to and from the host in it); rows of
these hours are marked fitted. The two exact rows are predicted. Assumed: a K20X computes as the K20 of the baseline does, at any
batch.
"""

from __future__ import annotations

from pathlib import Path

from published import Row, flag_of, show, targets

import poseidon_sim as ps

HOP = 3e9
IMAGES = 1_281_167
DAY = 86_400.0
#: model -> (ours, days on one GPU, epochs on one GPU, epochs of the run on many)
RUNS = {"NiN": ("nin", 5.8, 47, 47), "GoogLeNet": ("googlenet", 21.0, 64, 72)}


def hours(model: str, gpus: int, batch: int) -> float:
    """Return the hours that the epochs of a run take at `batch` images per GPU."""
    name, days, alone, epochs = RUNS[model]
    workload = ps.load_model(name, single_gpu_throughput=alone * IMAGES / (days * DAY))
    gpu = ps.gpu("k20x")
    cluster = ps.Cluster(nodes=gpus, gpu=gpu, network=ps.Network(HOP), pcie=1e15)  # the hop's rate holds the copies
    run = ps.simulate(workload, cluster, ps.FireCaffe(), batch_size=batch)
    return epochs * IMAGES / run.throughput / 3600


def rows() -> list[Row]:
    """Return every published row with ours."""
    return [_row(line) for line in targets("B-FC")]


def _row(line: dict[str, str]) -> Row:
    name, metric, flag = line["id"], line["metric"], flag_of(line["confidence"])
    what = f"{line['model']}, {line['nodes'] or '-'} GPUs, batch {line['batch_per_gpu'] or '-'} per GPU: {metric}"
    if metric.startswith("gradient_MB"):
        return Row(name, what, float(line["value"]), ps.load_model("nin").gradient_bytes / 1e6, "counted", flag)
    if metric == "train_days":
        return Row(name, what, float(line["value"]), float(line["value"]), "given", flag)
    if "-vol-" in name or "ppp" in name:
        return Row(name, what, float("nan"), None, "not modelled", flag, f"several figures in one: {line['value']}")
    if "-bw-" in name:
        return Row(name, what, float(line["value"]), HOP / 1e9, "fitted", flag, "HOP")
    gpus, batch = int(line["nodes"]), int(line["batch_per_gpu"])
    took, alone = hours(line["model"], gpus, batch), RUNS[line["model"]][1] * 24
    value = {"train_hours": took, "train_days_about": took / 24}.get(metric, alone / took)
    use = "fitted" if "rec" in name and line["model"] == "NiN" else "predicted"
    return Row(name, what, float(line["value"]), value, use, flag)


def main(out_dir: Path) -> int:
    """Print the rows and write them."""
    show(rows(), out_dir)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path("out/fire-caffe")))
