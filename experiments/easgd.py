"""EASGD on GPUs and KNL (You, Buluc, Demmel, SC17): the published ratios beside the predictions.

    poseidon-sim reproduce easgd

One machine with 8 GPUs of K80 boards; AlexNet's 249 MB of weights. GPUs reach each other at the rate of PCIe 3.0 x16. Two numbers are
fitted, each on one row: the seconds of a batch on the share of communication of Sync EASGD 3 (B-YOU-s3-comm), the rate of copies
between GPU and host (pageable memory) on its speedup over the original (B-YOU-s3-speed). A host sums 20 GB/s
(assumed, as in the cross table). The paper's absolute times were not found: only ratios can be compared.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

from published import Row, flag_of, show, targets

import poseidon_sim as ps

GPUS, WEIGHTS, BATCH, CIFAR_IMAGE = 8, 249e6, 64, 32 * 32 * 3
#: fitted on B-YOU-s3-comm: seconds of forward and backward of one batch
COMPUTE_TIME = 0.1028
#: fitted on B-YOU-s3-speed: bytes/s of copies between a GPU and the host
HOST_RATE = 6.76e9
FITTED = ("B-YOU-s3-comm", "B-YOU-s3-speed")
ORIGINAL = ps.Easgd(order="round-robin")
ACCURACY = "seconds to an accuracy: needs the number of steps of each partition, which a model of time does not have"
REASONS = {
    "B-YOU-orig-data": "share printed as a whole per cent; which network the table is of was not found (768 KB a batch would be 0.2 %)",
    "B-YOU-s1-speed": "host copies of version 1 may be pinned, where the original's are not",
    "B-YOU-s3s2-speed": "second-hand; here version 2 hides its broadcast alone, half of the traffic, so more is left for version 3",
    "B-YOU-weak": "seconds of a step on one node were not found; the tree's 12 hops of 53.5 MB alone are far below the 8.5 % lost",
}


@cache
def run(strategy: ps.Strategy) -> ps.Run:
    """Simulate one machine; the network is one tensor, since only its size counts."""
    layer = ps.Layer("weights", "linear", (round(WEIGHTS / 4),), forward_time=COMPUTE_TIME / 3, backward_time=COMPUTE_TIME * 2 / 3)
    k80 = replace(ps.gpu("k80"), pcie_bandwidth=None)
    lanes = ps.link("pcie-3.0-x16")
    machine = ps.Cluster(
        nodes=1, gpus_per_node=GPUS, gpu=k80, pcie=lanes.bandwidth * lanes.efficiency,
        host=ps.Host(copy_bandwidth=HOST_RATE, reduce_bandwidth=20e9),
    )  # fmt: skip
    return ps.simulate(ps.Workload("AlexNet", (layer,), batch_size=BATCH), machine, strategy)


def communication_share(strategy: ps.Strategy) -> float:
    """Return the share of a step in which a GPU does not compute."""
    return 1.0 - run(strategy).metrics.compute_time / run(strategy).step_time


def speedup(over: ps.Strategy, strategy: ps.Strategy) -> float:
    return run(over).step_time / run(strategy).step_time


def predicted() -> dict[str, float]:
    """Return our figure of every row that is modelled."""
    first, second, third = (ps.SyncEasgd(version=version) for version in (1, 2, 3))
    return {
        "B-YOU-orig-comm": communication_share(ORIGINAL), "B-YOU-s3-comm": communication_share(third),
        "B-YOU-s3-speed": speedup(ORIGINAL, third), "B-YOU-s1-speed": speedup(ORIGINAL, first),
        "B-YOU-s2-speed": speedup(first, second), "B-YOU-s3s2-speed": speedup(second, third),
        "B-YOU-orig-param": communication_share(ORIGINAL),
        "B-YOU-alexw": ps.load_model("alexnet").gradient_bytes / 1e6, "B-YOU-cifarbatch": 4.0 * BATCH * CIFAR_IMAGE / 1024,
    }  # fmt: skip


def rows() -> list[Row]:
    """Return every published row with ours beside it."""
    ours, found = predicted(), []
    for line in targets("B-YOU"):
        name, value = line["id"], float(line["value"].split("/")[0])
        use, reason = "predicted", REASONS.get(name, "")
        if name in FITTED:
            use = "fitted"
        elif name in ("B-YOU-alexw", "B-YOU-cifarbatch"):
            use = "counted"
        elif "-ab-" in name:
            use, reason, ours[name] = "given", "alpha in us (beta beside it): an input of a network", value
        elif name not in ours:
            use, reason = "not modelled", REASONS.get(name, ACCURACY)
        what = f"{line['system']}, {line['strategy']}, {line['metric']}"
        found.append(Row(name, what, value, ours.get(name), use, flag_of(line["confidence"]), reason))
    return found


def main(out_dir: Path) -> int:
    show(rows(), out_dir)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path("out/easgd")))
