"""Poseidon (USENIX ATC'17): the published rows beside the predictions, with the pictures.

    poseidon-sim reproduce poseidon

Fitted rows are Caffe+PS (P27..P32) and Caffe+WFBP (P15..P20); every other row is predicted with the same numbers.
Recalled and secondary rows are shown and never gate.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from poseidon_systems import GIVEN_RATES, NODES, PUBLISHED, figures, simulate

import poseidon_sim as ps

#: rows of the published file -> our model names and systems
MODELS = {
    "VGG19-22K": "vgg19-22k", "VGG19": "vgg19", "GoogLeNet": "googlenet", "Inception-V3": "inception-v3",
    "ResNet-152": "resnet152",
}  # fmt: skip
SYSTEM_OF = {
    "Poseidon-Caffe": "Poseidon", "Poseidon (Caffe and TF)": "Poseidon", "Poseidon-TF": "Poseidon", "Poseidon": "Poseidon",
    "Caffe+WFBP": "Caffe+WFBP", "Caffe+PS": "Caffe+PS", "TensorFlow r0.10": "TensorFlow", "Adam strategy": "Adam",
    "1-bit in Poseidon/CNTK style": "1-bit", "PS even shards": "Caffe+WFBP", "Adam": "Adam",
}  # fmt: skip
FITTED_ROWS = {f"P{i}" for i in (*range(15, 21), *range(27, 33))}
TOLERANCE = 0.05
#: misses that stand, with what is suspected; a new one fails the run, and so does one that has gone
KNOWN_MISSES: dict[str, str] = {}
GBIT = 1e9 / 8


@dataclass(frozen=True)
class Row:
    """One published figure and ours: `use` is fitted, predicted, given (an input) or exact (counted, not timed)."""

    id: str
    what: str
    published: float
    predicted: float | None
    use: str
    confidence: str
    reason: str = ""

    @property
    def error(self) -> float | None:
        return None if self.predicted is None else self.predicted / self.published - 1.0

    @property
    def bound(self) -> bool:
        """Whether the published figure is an upper bound."""
        return self.what.endswith("upper bound")

    @property
    def gates(self) -> bool:
        """Whether a miss counts: exact and derived rows do, recalled and secondary ones do not."""
        return self.predicted is not None and self.confidence in ("exact", "derived") and self.use != "given"

    @property
    def holds(self) -> bool:
        if self.error is None:
            return True
        if self.bound:
            return self.predicted is not None and self.predicted < self.published
        return abs(self.error) <= TOLERANCE


def published() -> list[dict[str, str]]:
    """Return the published rows."""
    with open(PUBLISHED, newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def rows(keep: Callable[[dict[str, str]], bool] = lambda line: True) -> Iterator[Row]:
    """Predict every published row (that `keep` wants), or say why not."""
    for line in filter(keep, published()):
        model, system = MODELS.get(line["model"]), SYSTEM_OF.get(line["system"])
        what = f"{line['system']}, {line['model']}, {line['nodes']} x {line['gpus_per_node']} GPU: {line['metric'].replace('_', ' ')}"
        value, metric = float(line["value"]), line["metric"]
        predict = METRICS.get(metric)
        reason = ""
        if line["system"] == "Caffe vanilla" and metric in ("iteration_time_s", "images_per_s") and model:
            yield Row(line["id"], what, value, _vanilla(model, metric), "given", line["confidence"])
            continue
        if line["gpus_per_node"] not in ("1", ""):
            reason = "several GPUs in a node under the authors' software: not described"
        elif predict is None:
            reason = "time to accuracy: needs a model of convergence"
        elif model is None or system is None:
            reason = "conditions of the run are not known well enough"
        if reason or predict is None or model is None or system is None:
            yield Row(line["id"], what, value, None, "not modelled", line["confidence"], reason)
            continue
        use = "fitted" if line["id"] in FITTED_ROWS or _derived_from_fitted(line) else "predicted"
        use = "exact" if metric.startswith("comm") or metric == "scheme_is_PS" else use
        yield Row(line["id"], what, value, predict(system, model, line), use, line["confidence"])


def _derived_from_fitted(line: dict[str, str]) -> bool:
    return line["system"] in ("Caffe+PS", "Caffe+WFBP") and line["model"] == "VGG19-22K"


def _vanilla(model: str, metric: str) -> float | None:
    if model not in GIVEN_RATES:
        return None
    return GIVEN_RATES[model] if metric == "images_per_s" else 32 / GIVEN_RATES[model]


def _figures(system: str, model: str, line: dict[str, str]) -> dict[str, Any]:
    return figures(system, model, int(line["nodes"]), float(line["bandwidth_gbps"] or 40), int(line["batch_per_gpu"]))


def _traffic(system: str, model: str, line: dict[str, str]) -> float:
    """Gbit in plus out of one node per iteration."""
    return float(2 * _figures(system, model, line)["bytes_sent_per_node"] / GBIT)


def _busiest(system: str, model: str, line: dict[str, str]) -> float:
    """Gbit of Adam's server of fc6 in one step if it were no worker: counted on a worker, for P instead of P - 1 peers."""
    nodes = int(line["nodes"])
    run = simulate(system, model, nodes, batch=int(line["batch_per_gpu"]))
    tasks, classes = run.trace.table, run.trace.fabric.classes
    counts = np.array([each.count for each in classes])
    names = np.array(tasks.labels)[tasks.label]
    fc6 = (tasks.layer == tasks.layer_names.index("fc6")) & np.isin(names, ("factors", "pull"))
    fc6 &= tasks.iteration == tasks.iteration.max()
    moved = run.trace.program.work[fc6] * counts[tasks.node[fc6]] * counts[tasks.peer[fc6]]
    return float(moved.sum() * nodes / (nodes - 1) / GBIT)


def _scheme(system: str, model: str, line: dict[str, str]) -> float:
    """1 when every layer of the model goes by parameter server."""
    job = simulate(system, model, int(line["nodes"]), batch=int(line["batch_per_gpu"])).job
    return float(set(ps.Poseidon().schemes(job).values()) == {"parameter-server"})


METRICS: dict[str, Callable[[str, str, dict[str, str]], float]] = {
    "iteration_time_s": lambda s, m, line: _figures(s, m, line)["step_time_s"],
    "images_per_s": lambda s, m, line: _figures(s, m, line)["throughput_samples_per_s"],
    "speedup": lambda s, m, line: _figures(s, m, line)["speedup"],
    "speedup_upper_bound": lambda s, m, line: _figures(s, m, line)["speedup"],
    "comm_Gb_per_node_per_iter_in_plus_out": _traffic,
    "comm_Gb_busiest_server_per_iter": _busiest,
    "scheme_is_PS": _scheme,
}


def print_table(table: list[Row]) -> None:
    """Print published, predicted, error and use, and the summary per use."""
    print(f"{'id':<5} {'what':<86} {'published':>10} {'predicted':>10} {'error':>7}  {'use':<10} confidence")
    for row in table:
        predicted = "-" if row.predicted is None else f"{row.predicted:.4g}"
        error = "-" if row.error is None else "below" if row.bound and row.holds else f"{row.error:+.1%}"
        mark = "" if row.holds else ("  MISS" if row.gates else "  (miss, does not gate)")
        print(f"{row.id:<5} {row.what:<86.86} {row.published:>10.4g} {predicted:>10} {error:>7}  {row.use:<10} {row.confidence}{mark}{row.reason and '  ' + row.reason}")
    for use in ("fitted", "predicted", "exact"):
        errors = sorted(abs(r.error) for r in table if r.use == use and r.error is not None and r.gates)
        if errors:
            print(f"{use}: {len(errors)} rows that gate, median error {errors[len(errors) // 2]:.1%}, worst {errors[-1]:.1%}")


def orderings() -> list[tuple[str, bool]]:
    """Check what must hold whatever the numbers: who is faster, and where schemes flip."""
    def time(system: str, nodes: int) -> float:
        return float(figures(system, "vgg19-22k", nodes)["step_time_s"])

    def scheme(nodes: int) -> str:
        job = simulate("Poseidon", "googlenet", nodes, batch=128).job
        return ps.Poseidon().schemes(job)["classifier"]

    ordered = all(time("Poseidon", n) <= time("Caffe+WFBP", n) <= time("Caffe+PS", n) for n in NODES)
    adam, even = (figures(system, "vgg19", 8) for system in ("Adam", "Caffe+WFBP"))
    return [
        ("Poseidon is at least as fast as WFBP and WFBP as PS at every size", ordered),
        ("GoogLeNet at batch 128 sends its classifier by factors at 4 nodes", scheme(4) == "sufficient-factors"),
        ("GoogLeNet at batch 128 falls back to the parameter server at 8 nodes", scheme(8) == "parameter-server"),
        ("native TensorFlow on VGG19-22K is slower than one node at 32 nodes", figures("TensorFlow", "vgg19-22k", 32)["speedup"] < 1),
        ("Adam's busiest server sends more than an even parameter server's node at 8 nodes",
         adam["bytes_sent_busiest_node"] > even["bytes_sent_busiest_node"]),
    ]  # fmt: skip


def main(out_dir: Path) -> int:
    """Print the table, write CSV and pictures to `out_dir`; 1 when a row that gates misses."""
    from poseidon_figures import draw_all

    out_dir.mkdir(parents=True, exist_ok=True)
    table = list(rows())
    print_table(table)
    with open(out_dir / "table.csv", "w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(["id", "what", "published", "predicted", "error", "use", "confidence", "gates", "holds", "reason"])
        for r in table:
            writer.writerow([r.id, r.what, r.published, r.predicted, r.error, r.use, r.confidence, r.gates, r.holds, r.reason])
    checks = orderings()
    for text, holds in checks:
        print(f"{'holds' if holds else 'BROKEN'}: {text}")
    for path in draw_all(out_dir):
        print(f"picture: {path}")
    missed = {row.id for row in table if row.gates and not row.holds}
    for name in sorted(missed):
        print(f"misses {TOLERANCE:.0%}: {name}: {KNOWN_MISSES.get(name, 'a new miss, not explained yet')}")
    return 0 if missed == set(KNOWN_MISSES) and all(holds for _, holds in checks) else 1


if __name__ == "__main__":
    raise SystemExit(main(Path("out/poseidon")))
