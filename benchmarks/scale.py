"""How the cost of a question grows: folded runs, jitter, rounds and sweeps; one command, one table, one picture.

    python benchmarks/scale.py [--quick] [-o benchmarks/scale.csv]

`first` is a run whose shape was not recorded before (the model loaded, the engine warm), `again` the best of several with the
recording kept, as in a sweep over rates; with jitter, the time of one iteration of a run of several. Wall seconds. Memory is the most that the process ever held. Exponents are fitted to the
last sizes of a row.
"""

from __future__ import annotations

import argparse
import csv
import math
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import poseidon_sim as ps

HERE = Path(__file__).parent
JOBS = (("ResNet-50, ring per tensor", "resnet50", "all-reduce"), ("ResNet-50, parameter server", "resnet50", "parameter-server"), ("VGG19, Poseidon", "vgg19", "poseidon"))
SIZES = (8, 512, 4096, 131072)
Row = dict[str, object]


def cluster(nodes: int, jitter: float = 0.0) -> ps.Cluster:
    return ps.Cluster(nodes=nodes, gpu=ps.gpu("v100-sxm2-16gb"), network=ps.Network(25e9 / 8, latency=5e-6), pcie=12e9, jitter=jitter)


def seconds(what: object) -> float:
    begin = time.perf_counter()
    what()  # type: ignore[operator]
    return time.perf_counter() - begin


def memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def folded() -> list[Row]:
    rows = []
    for label, model, strategy in JOBS:
        workload = ps.load_model(model)
        ps.simulate(workload, cluster(4), strategy, engine="fast")
        for nodes in SIZES:
            run = lambda: ps.simulate(workload, cluster(nodes), strategy)  # noqa: B023, E731
            first = seconds(run)
            again = min(seconds(run) for _ in range(15))
            rows.append({"what": f"folded: {label}", "size": nodes, "first_s": first, "again_s": again, "memory_mb": memory()})
            show(rows[-1])
    return rows


def jitter(sizes: tuple[int, ...]) -> list[Row]:
    """Whole runs: warm-up and measured iterations, recording and metrics included; `again_s` is a run divided by its iterations."""
    rows = []
    model = ps.load_model("vgg19")
    for nodes in sizes:
        begin = time.perf_counter()
        run = ps.simulate(model, cluster(nodes, jitter=0.05), "poseidon", engine="fast")
        whole = time.perf_counter() - begin
        iterations, tasks = len(run.trace.iteration_ends), run.trace.program.num_tasks
        rows.append({"what": "VGG19 Poseidon, 5 % jitter", "size": nodes, "first_s": whole, "again_s": whole / iterations, "memory_mb": memory(), "tasks": tasks // iterations, "iterations": iterations})
        show(rows[-1])
    return rows


def rounds(sizes: tuple[int, ...]) -> list[Row]:
    rows = []
    model = ps.load_model("resnet50")
    for nodes in sizes:
        run = lambda: ps.simulate(model, cluster(nodes), "all-reduce", detail="rounds", engine="fast")  # noqa: B023, E731
        first = seconds(run)
        again = min(seconds(run) for _ in range(5))
        messages = 161 * 2 * (nodes - 1) * nodes
        rows.append({"what": "rounds: ResNet-50, ring per tensor", "size": nodes, "first_s": first, "again_s": again, "memory_mb": memory(), "messages_per_s": messages / first})
        show(rows[-1])
    return rows


def sweeps(quick: bool) -> list[Row]:
    base = {"model": "resnet50", "cluster": {"nodes": 8, "gpu": "v100-sxm2-16gb", "network": {"bandwidth": "25 Gbit/s", "latency": "5 us"}}, "strategy": "all-reduce"}
    rates = [f"{rate} Gbit/s" for rate in range(1, 11 if quick else 51)]
    grid = {
        "nodes": [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024], "cluster.network.bandwidth": rates, "batch_size": [8, 16, 32, 64],
        "strategy": ["parameter-server", "all-reduce", "poseidon", "sufficient-factor-broadcast", "one-bit"],
    }  # fmt: skip
    count, rows = len(rates) * 200, []
    for model in ("resnet50", "vgg19"):
        for jobs in (1, 2):
            with tempfile.TemporaryDirectory() as folder:
                took = seconds(lambda: ps.sweep({**base, "model": model}, grid, folder, jobs=jobs))  # noqa: B023
            rows.append({"what": f"sweep: {model}, {count} scenarios, jobs={jobs}", "size": count, "first_s": took, "scenarios_per_s": count / took})
            show(rows[-1])
    file = Path(tempfile.mkdtemp()) / "one.json"
    import json

    file.write_text(json.dumps(base))
    one = seconds(lambda: subprocess.run([sys.executable, "-m", "poseidon_sim.cli", "simulate", str(file)], capture_output=True, check=True))
    shutil.rmtree(file.parent)
    rows.append({"what": "one by one: a command line run each", "size": 1, "first_s": one, "scenarios_per_s": 1 / one})
    show(rows[-1])
    return rows


def show(row: Row) -> None:
    shown = "  ".join(f"{name} {value:,.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in row.items() if name != "what")
    print(f"{row['what']:<48} {shown}", flush=True)


def exponent(rows: list[Row]) -> float:
    """Slope of log(time) against log(size) over the last three sizes."""
    last = rows[-3:]
    x, y = ([math.log(float(r[name])) for r in last] for name in ("size", "first_s"))  # type: ignore[arg-type]
    mx, my = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True)) / sum((a - mx) ** 2 for a in x)


def draw(rows: list[Row], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.5, 4.8))
    kinds = list(dict.fromkeys(str(r["what"]) for r in rows if not str(r["what"]).startswith(("sweep", "one"))))
    for kind, mark, colour in zip(kinds, "osD^v<", ("#0072B2", "#56B4E9", "#009E73", "#D55E00", "#CC79A7", "#E69F00"), strict=False):
        mine = [r for r in rows if r["what"] == kind]
        axes.loglog([r["size"] for r in mine], [r["first_s"] for r in mine], marker=mark, color=colour, label=kind)
        if kind.startswith("folded"):
            axes.loglog([r["size"] for r in mine], [r["again_s"] for r in mine], marker=mark, color=colour, linestyle=":", fillstyle="none")
    axes.axhline(0.01, color="grey", linewidth=0.8)
    axes.text(60, 0.0105, "10 ms", color="grey", va="bottom")
    axes.set_xlabel("nodes (one GPU each)")
    axes.set_ylabel("wall time of a run, s\n(solid: first of its shape; dotted: recording kept)")
    axes.set_title("More equal nodes cost nothing; nodes that all differ about their square", fontsize=11)
    axes.legend(fontsize=8, frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller sizes, a minute in all")
    parser.add_argument("-o", "--out", type=Path, default=HERE / "scale.csv")
    args = parser.parse_args()
    rows = folded() + rounds((16, 64) if args.quick else (16, 64, 256)) + sweeps(args.quick)
    spread = jitter((16, 32, 64) if args.quick else (16, 32, 64, 128, 256))
    print(f"jitter: time grows as nodes to the power {exponent(spread):.1f}")
    rows += spread
    names = list(dict.fromkeys(name for r in rows for name in r))
    with open(args.out, "w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, names, restval="")
        writer.writeheader()
        writer.writerows(rows)
    draw(rows, args.out.with_suffix(".png"))
    print(args.out, args.out.with_suffix(".png"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
