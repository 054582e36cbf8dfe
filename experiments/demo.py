"""`make demo`: which strategy wins for VGG19-22K on 1 to 32 Titan X machines with 10 and 40 Gbit/s Ethernet, and why.

Predictions use the host software of the Poseidon authors (poseidon_systems.py); the table that holds them against what
the authors measured is `poseidon-sim reproduce poseidon`.
"""

from __future__ import annotations

import time
from pathlib import Path

import pandas as pd
from poseidon import print_table, rows
from poseidon_systems import NODES, cluster, workload

import poseidon_sim as ps
from poseidon_sim.report import plots, tables, winner_map

STRATEGIES: dict[str, ps.Strategy] = {
    "parameter-server": ps.ParameterServer(pair_size=2e6),
    "sufficient-factor-broadcast": ps.SufficientFactorBroadcast(),
    "poseidon": ps.Poseidon(),
    "all-reduce": ps.AllReduce(),
}
OUT = Path("out/demo")


def predict(nodes: int, gbits: float) -> list[ps.Run]:
    """Return the runs of all four strategies, shortest step first."""
    model, machines = workload("vgg19-22k"), cluster(nodes, gbits=gbits)
    runs = [ps.simulate(model, machines, strategy, batch_size=32) for strategy in STRATEGIES.values()]
    return sorted(runs, key=lambda run: run.step_time)


def table(sizes: tuple[int, ...], rates: tuple[float, ...]) -> pd.DataFrame:
    """Return one row per size, bandwidth and strategy."""
    found = []
    for gbits in rates:
        for nodes in sizes:
            for run in predict(nodes, gbits):
                found.append({**run.summary(), "cluster.network.bandwidth": f"{gbits:g} Gbit/s"})
    return pd.DataFrame(found).drop(columns=["warnings", "bytes_sent_busiest_node", "cost_per_million_samples"])


def show() -> None:
    """Print rankings and the comparison with the authors' measurements; write the pictures."""
    start = time.perf_counter()
    OUT.mkdir(parents=True, exist_ok=True)
    for gbits in (10.0, 40.0):
        for nodes in (8, 32):
            print(f"== {gbits:g} Gbit/s Ethernet ==")
            print(tables.compare_text(predict(nodes, gbits)), end="\n\n")
    print("== Against what the Poseidon authors measured (VGG19-22K) ==")
    print_table([row for row in rows() if "VGG19-22K" in row.what and row.predicted is not None])
    results = table(NODES, (10.0, 40.0))
    grid = table((2, 4, 8, 16, 32), (1.0, 2.0, 5.0, 10.0, 20.0, 40.0))
    note = "predicted; host software as in Zhang et al. ATC'17"
    pictures = [
        plots.scaling(results, None, OUT / "scaling.png", "VGG19-22K on Titan X machines", note),
        winner_map.winner(grid, OUT / "winner-map.png", "VGG19-22K: which strategy wins"),
        plots.breakdown(results[results["nodes"] == 32], OUT / "breakdown.png", "VGG19-22K on 32 nodes: where a step goes", note),
        plots.traffic(results[results["nodes"] > 1], OUT / "traffic.png", "VGG19-22K: bytes a node sends per step"),
    ]
    print("\nPictures (with .svg and .csv beside each):")
    for path in pictures:
        print(f"  {path}")
    print(f"Done in {time.perf_counter() - start:.0f} s. More: poseidon-sim reproduce poseidon; poseidon-sim --help")


if __name__ == "__main__":
    show()
