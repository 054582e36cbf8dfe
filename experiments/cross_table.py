"""Every data-parallel system on the same jobs: three networks, three fabrics, 32 and 256 GPUs. A table nobody has published.

    poseidon-sim reproduce cross-table

All systems run on the same machines (nodes of 8 V100 with NVLink) with the same compute model, each with its own defaults: what
differs is who sends what when. Everything is predicted. Assumed, and the same for all: a collective's call takes 50 us (published:
30 to 110 us), a host sums 20 GB/s and its memory moves 80 GB/s. Systems that change what is computed (stale, sparse, quantised or local
updates, steps without the slowest) need other numbers of steps to the same accuracy: they stand in the table with a mark, and are
no winners of the map.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import poseidon_sim as ps

JOBS = {"resnet50": 64, "vgg19": 64, "bert-large": 8}
FABRICS = {"10 GbE": "10gbe-tcp", "25 GbE": "25gbe-tcp", "100 Gb IB": "infiniband-edr"}
NODES = (4, 32)
GPUS_PER_NODE = 8
#: what changes the update, and how
CHANGED = {
    "one-bit": "quantised gradients", "backup-workers": "the slowest are left out", "local-sgd": "averages every few steps",
    "easgd": "elastic averaging", "sync-easgd": "elastic averaging", "top-k": "sparse gradients", "decentralized-diffusion": "no exchange",
    "tpa-scd": "another optimizer",
}  # fmt: skip
TIE = 0.01
HOST = {"reduce_bandwidth": "20 GB/s", "memory_bandwidth": "80 GB/s"}
CALLS = {"collective_overhead": "50 us"}


@dataclass(frozen=True)
class Cell:
    """One system on one job, fabric and size; `refused` says why it has no step time."""

    job: str
    fabric: str
    gpus: int
    strategy: str
    step_time: float | None
    efficiency: float | None
    refused: str = ""

    @property
    def exact(self) -> bool:
        return not CHANGED.get(self.strategy)


def systems() -> list[str]:
    """Return the strategies under which every GPU trains the whole model."""
    return [name for name in ps.list_strategies() if not ps.strategy_class(name).model_parallel]


def cells() -> Iterator[Cell]:
    """Simulate every system everywhere."""
    for job, batch in JOBS.items():
        for fabric, link in FABRICS.items():
            for nodes in NODES:
                for name in systems():
                    yield _cell(job, batch, fabric, link, nodes, name)


def _cell(job: str, batch: int, fabric: str, link: str, nodes: int, name: str) -> Cell:
    cluster = {
        "nodes": nodes, "gpus_per_node": GPUS_PER_NODE, "gpu": "v100-sxm2-32gb", "node": "nvlink-ring", "host": HOST,
        "network": {"link": link, **CALLS},
    }  # fmt: skip
    scenario = {"model": {"name": job, "precision": "fp16"}, "batch_size": batch, "cluster": cluster, "strategy": name}
    gpus = nodes * GPUS_PER_NODE
    try:
        run = ps.simulate(ps.load_scenario(scenario), engine="fast")
    except ps.PoseidonSimError as error:
        return Cell(job, fabric, gpus, name, None, None, str(error))
    return Cell(job, fabric, gpus, name, run.step_time, run.scaling_efficiency)


def winners(table: list[Cell]) -> dict[tuple[str, str, int], list[Cell]]:
    """Return, for each job, fabric and size, the exact systems within TIE of the fastest, and the next one last."""
    found = {}
    for key in dict.fromkeys((c.job, c.fabric, c.gpus) for c in table):
        ranked = sorted((c for c in table if (c.job, c.fabric, c.gpus) == key and c.exact and c.step_time), key=lambda c: (c.step_time, c.strategy))
        best = ranked[0].step_time or 0.0
        tied = [c for c in ranked if (c.step_time or 0.0) <= best * (1 + TIE)]
        found[key] = [*tied, *ranked[len(tied) : len(tied) + 1]]
    return found


def draw(table: list[Cell], path: Path) -> Path:
    """Draw efficiency, systems x places, one panel a job; the winner of each column is framed."""
    import matplotlib.pyplot as plt
    import numpy as np

    names, best = systems(), winners(table)
    columns = [(fabric, nodes * GPUS_PER_NODE) for fabric in FABRICS for nodes in NODES]
    figure, axes = plt.subplots(1, len(JOBS), figsize=(15, 0.3 * len(names) + 2.2), sharey=True)
    for axis, job in zip(axes, JOBS, strict=True):
        value = {(c.strategy, c.fabric, c.gpus): c.efficiency for c in table if c.job == job}
        grid = np.array([[value.get((name, *column)) or np.nan for column in columns] for name in names], dtype=float)
        axis.imshow(grid, cmap="cividis", vmin=0, vmax=1, aspect="auto")
        for (y, x), share in np.ndenumerate(grid):
            text = "refused" if np.isnan(share) else f"{share:.0%}"
            axis.text(x, y, text, ha="center", va="center", fontsize=7, color="white" if np.isnan(share) or share < 0.55 else "black")
            first = best[(job, *columns[x])][0].strategy
            if names[y] == first:
                axis.add_patch(plt.Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, edgecolor="#D55E00", linewidth=2.2))
        axis.set_xticks(range(len(columns)), [f"{fabric}\n{gpus} GPUs" for fabric, gpus in columns], fontsize=7)
        axis.set_yticks(range(len(names)), [name + (" *" if CHANGED.get(name) else "") for name in names], fontsize=8)
        axis.set_title(f"{job}, batch {JOBS[job]} per GPU", fontsize=10)
    figure.suptitle(
        "Scaling efficiency of every data-parallel system on the same machines (8 V100 a node, fp16; predicted). "
        "Frame: fastest of the exact ones; *: changes the update", fontsize=10,
    )  # fmt: skip
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path


def main(out_dir: Path) -> int:
    """Print the winners, write the whole table and its picture."""
    out_dir.mkdir(parents=True, exist_ok=True)
    table = list(cells())
    with open(out_dir / "cross_table.csv", "w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(["job", "fabric", "gpus", "strategy", "step_time_s", "scaling_efficiency", "changes_update", "refused"])
        for c in table:
            writer.writerow([c.job, c.fabric, c.gpus, c.strategy, c.step_time, c.efficiency, CHANGED.get(c.strategy, ""), c.refused])
    print(f"{len(systems())} systems, predicted; fastest of those that compute the exact update, = within {TIE:.0%}")
    for (job, fabric, gpus), ranked in winners(table).items():
        *tied, following = ranked
        shown = " = ".join(c.strategy for c in tied) or following.strategy
        print(f"  {job:<11} {fabric:<18} {gpus:>4} GPUs  {shown}  ({(tied or ranked)[0].efficiency:.0%}); next {following.strategy} {following.efficiency:.0%}")
    print(f"table: {out_dir / 'cross_table.csv'}\npicture: {draw(table, out_dir / 'cross_table.png')}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path("out/cross-table")))
