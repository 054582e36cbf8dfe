"""FusionLLM (Tang et al., 2024): a pipeline over three testbeds, against the same pipeline that sees no links.

    poseidon-sim reproduce fusionllm

Published are 1.45 to 9.39 times over baselines on 48 GPUs, links of 8 Mbit/s to 10 Gbit/s; neither the GPUs, nor which link is how fast, nor
batches, ratio or baselines were found. CONDITIONS ASSUMED, chosen before any of them was run and not changed after: 48 nodes of one RTX 2080 Ti,
three sites of 16 with 10, 1 and 0.1 Gbit/s inside and 8 Mbit/s between them, 10 ms everywhere; 64 micro-batches of 4 images or one sequence;
ratio 100 on the slowest link; GPT-2 XL with an output layer of its own, since the gradient of a token table on two sites would hide the
pipeline. So the figures say what the technique is worth there; they are no prediction of the paper's, and count as "not modelled".
"""

from __future__ import annotations

from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
from published import Row, flag_of, show, targets

import poseidon_sim as ps

INSIDE = (10e9 / 8, 1e9 / 8, 0.1e9 / 8)  # bytes/s in each site
BETWEEN, LATENCY, SITE_NODES = 8e6 / 8, 10e-3, 16
COMPRESSION, MICRO_BATCHES = 100.0, 64
MODELS = {"resnet101": 4, "gpt2-xl": 1}  # samples of a micro-batch
#: how nodes are numbered: site after site, or in turn over the sites as machines join
NUMBERED = {"by site": np.repeat(np.arange(3), SITE_NODES), "in turn": np.tile(np.arange(3), SITE_NODES)}
WAYS = {
    "even cut": {"fence": False}, "OP-Fence": {}, "AdaTopK": {"fence": False, "compression": COMPRESSION},
    "both": {"compression": COMPRESSION},
}  # fmt: skip
GPT2_XL = {"layers": 48, "hidden": 1600, "heads": 25, "vocabulary": 50257, "positions": 1024, "fused_qkv": True, "head": "own"}
REASON = "conditions assumed (GPUs, sites, links, batch and ratio are ours): what both techniques are worth there, no prediction of theirs"


def cluster(numbered: str) -> ps.Cluster:
    """Return the three sites."""
    site = NUMBERED[numbered]
    caps = np.where(site[:, None] == site, np.array(INSIDE)[site], BETWEEN)
    network = ps.Network(max(INSIDE), latency=LATENCY, pair_bandwidth=tuple(map(tuple, caps.tolist())))
    return ps.Cluster(nodes=len(site), gpu=ps.gpu("rtx-2080-ti"), network=network)


def workload(model: str) -> ps.Workload:
    """Return the model."""
    if model == "gpt2-xl":
        return ps.load_model({"name": "gpt2-xl, own output layer", "transformer": GPT2_XL}, sequence_length=1024, optimizer="adam")
    return ps.load_model(model)


@cache
def step(model: str, numbered: str, way: str) -> float:
    """Return the seconds of a step."""
    where, micro = cluster(numbered), MODELS[model]
    run = ps.simulate(
        workload(model), where, ps.FusionLlm(**WAYS[way]), batch_size=micro * MICRO_BATCHES / where.num_gpus, micro_batch_size=micro
    )
    return run.step_time


def speedups(way: str = "both") -> list[float]:
    """Return how much faster a way is than the even cut, by model and numbering."""
    return [step(m, n, "even cut") / step(m, n, way) for m, n in product(MODELS, NUMBERED)]


def rows() -> list[Row]:
    """Return the two published rows, the smallest and the largest of ours beside them."""
    found, fence = speedups(), speedups("OP-Fence")
    ours = {"B-FLLM-min": min(found), "B-FLLM-max": max(found)}
    reason = f"{REASON}; OP-Fence alone {min(fence):.2f} to {max(fence):.2f} times, the rest is the ratio of {COMPRESSION:g}"
    return [
        Row(line["id"], f"{line['model']}, {line['metric']}", float(line["value"]), ours[line["id"]], "not modelled", flag_of(line["confidence"]), reason)
        for line in targets("B-FLLM")
    ]


def main(out_dir: Path) -> int:
    """Print the rows, and what each technique brings alone."""
    show(rows(), out_dir)
    print("conditions assumed; seconds of a step, and times as fast as the even cut")
    for model, numbered in product(MODELS, NUMBERED):
        base = step(model, numbered, "even cut")
        shown = ", ".join(f"{way} {step(model, numbered, way):.1f} s ({base / step(model, numbered, way):.2f}x)" for way in WAYS)
        print(f"  {model}, numbered {numbered}: {shown}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path("out/fusionllm")))
