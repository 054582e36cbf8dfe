"""TPA-SCD (Parnell et al., 2017): published figures, and what a round on their data set must move.

    poseidon-sim reproduce tpa-scd

All published figures are of time to an accuracy (rounds are not modelled) or of one GPU against CPUs, which are not modelled. What can be
worked out: a round's traffic of 75 million features x 4 bytes, and its time on 4 hosts.
"""

from __future__ import annotations

from pathlib import Path

from published import Row, flag_of, show, targets

import poseidon_sim as ps

FEATURES = 75_000_000
REASONS = {
    "B-TPA-gpu": "one GPU against one CPU thread: CPUs are not modelled",
    "B-TPA-dist": "seconds to an accuracy: the number of rounds is not stated",
    "B-TPA-dist-speed": "GPUs against CPUs: CPUs are not modelled",
    "B-TPA-workers": "loss of training time comes from more rounds, which a model of time does not have",
}


def aggregation(nodes: int, link: str = "10gbe-tcp") -> float:
    """Return the seconds of one aggregation of the shared vector on machines of one GPU."""
    layer = ps.Layer("shared vector", "linear", (FEATURES,), forward_time=0.0, backward_time=1e-9)
    network = ps.link(link)
    cluster = ps.Cluster(
        nodes=nodes, gpu=ps.gpu("titan-x-maxwell"), host=ps.Host(reduce_bandwidth=20e9),
        network=ps.Network(network.bandwidth, latency=network.latency, efficiency=network.efficiency),
    )  # fmt: skip
    return ps.simulate(ps.Workload("SCD", (layer,), batch_size=1), cluster, ps.TpaScd()).step_time


def rows() -> list[Row]:
    """Return the published rows."""
    return [
        Row(line["id"], f"{line['system']}, {line['metric']}", float(line["value"]), None, "not modelled", flag_of(line["confidence"]), REASONS[line["id"]])
        for line in targets("B-TPA")
    ]


def main(out_dir: Path) -> int:
    show(rows(), out_dir)
    print(f"one aggregation of {4 * FEATURES / 1e6:.0f} MB on 4 nodes with 10 GbE: {aggregation(4):.2f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path("out/tpa-scd")))
