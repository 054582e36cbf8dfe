"""Decentralized diffusion models (McAllister et al., 2025): one published figure, and the law that the strategy stands for.

    poseidon-sim reproduce decentralized-diffusion

The paper's only figure is a bound on days of training, without the number of samples or the rate of a node. What can be said: the step of an
expert is the same on every link between the nodes.
"""

from __future__ import annotations

from pathlib import Path

from published import Row, flag_of, show, targets

import poseidon_sim as ps

REASON = "an upper bound in days; samples seen and the GPUs of a node are not stated"


def steps() -> dict[str, float]:
    """Return the step time of an expert (BERT-large stands for it) on 8 nodes by the link between them."""
    found = {}
    for link in ("1gbe-tcp", "10gbe-tcp", "infiniband-edr"):
        cluster = {"nodes": 8, "gpus_per_node": 8, "gpu": "a100-sxm4-80gb", "pcie": "nvswitch", "network": link}
        scenario = {"model": "bert-large", "batch_size": 8, "cluster": cluster, "strategy": "decentralized-diffusion"}
        found[link] = ps.simulate(ps.load_scenario(scenario)).step_time
    return found


def rows() -> list[Row]:
    """Return the published row."""
    return [
        Row(line["id"], f"{line['model']}, {line['metric']}", float(line["value"]), None, "not modelled", flag_of(line["confidence"]), REASON)
        for line in targets("B-DDM")
    ]


def main(out_dir: Path) -> int:
    show(rows(), out_dir)
    for link, seconds in steps().items():
        print(f"step of an expert with {link} between nodes: {seconds * 1e3:.2f} ms")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path("out/decentralized-diffusion")))
