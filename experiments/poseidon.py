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

from poseidon_systems import GIVEN_RATES, PUBLISHED, cluster, simulate, workload

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
KNOWN_MISSES = {
    "P41": "the single-GPU rate given for TensorFlow's Inception-V3 (43.2 images/s) is recalled with low confidence, and the "
    "prediction hangs on it: 25.2x at 38, 22.4x at 43.2, 20.3x at 48 images/s",
}
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
    def gates(self) -> bool:
        """Whether a miss counts: exact and derived rows do, recalled and secondary ones do not."""
        return self.predicted is not None and self.confidence in ("exact", "derived") and self.use != "given"

    @property
    def holds(self) -> bool:
        if self.error is None:
            return True
        if self.what.endswith("upper bound"):
            return self.predicted is not None and self.predicted < self.published
        return abs(self.error) <= TOLERANCE


def published() -> list[dict[str, str]]:
    """Return the published rows."""
    with open(PUBLISHED, newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def rows() -> Iterator[Row]:
    """Predict every published row, or say why not."""
    for line in published():
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


def _run(system: str, model: str, line: dict[str, str]) -> ps.Run:
    gbits = float(line["bandwidth_gbps"] or 40)
    return simulate(system, model, int(line["nodes"]), gbits=gbits, batch=int(line["batch_per_gpu"]))


def _traffic(system: str, model: str, line: dict[str, str]) -> float:
    """Gbit in plus out of one node per iteration."""
    return 2 * _run(system, model, line).summary()["bytes_sent_per_node"] / GBIT


def _busiest(system: str, model: str, line: dict[str, str]) -> float:
    """Gbit of Adam's server of fc6 if it were no worker: P factors in, P matrices out."""
    run = _run(system, model, line)
    fc6 = next(layer for layer in run.job.workload.layers if layer.name == "fc6")
    workers = run.job.cluster.nodes
    weights = fc6.tensors[0] * 4
    return workers * (weights + fc6.factor_bytes(run.job.batch_size)) / GBIT


def _scheme(system: str, model: str, line: dict[str, str]) -> float:
    """1 when every layer of the model goes by parameter server."""
    job = _run(system, model, line).job
    return float(set(ps.Poseidon().schemes(job).values()) == {"parameter-server"})


METRICS: dict[str, Callable[[str, str, dict[str, str]], float]] = {
    "iteration_time_s": lambda s, m, line: _run(s, m, line).step_time,
    "images_per_s": lambda s, m, line: _run(s, m, line).throughput,
    "speedup": lambda s, m, line: _run(s, m, line).speedup,
    "speedup_upper_bound": lambda s, m, line: _run(s, m, line).speedup,
    "comm_Gb_per_node_per_iter_in_plus_out": _traffic,
    "comm_Gb_busiest_server_per_iter": _busiest,
    "scheme_is_PS": _scheme,
}


def print_table(table: list[Row]) -> None:
    """Print published, predicted, error and use, and the summary per use."""
    print(f"{'id':<5} {'what':<86} {'published':>10} {'predicted':>10} {'error':>7}  {'use':<10} confidence")
    for row in table:
        predicted = "-" if row.predicted is None else f"{row.predicted:.4g}"
        error = "-" if row.error is None else f"{row.error:+.1%}"
        mark = "" if row.holds else ("  MISS" if row.gates else "  (miss, does not gate)")
        print(f"{row.id:<5} {row.what:<86.86} {row.published:>10.4g} {predicted:>10} {error:>7}  {row.use:<10} {row.confidence}{mark}{row.reason and '  ' + row.reason}")
    for use in ("fitted", "predicted", "exact"):
        errors = sorted(abs(r.error) for r in table if r.use == use and r.error is not None and r.gates)
        if errors:
            print(f"{use}: {len(errors)} rows that gate, median error {errors[len(errors) // 2]:.1%}, worst {errors[-1]:.1%}")


def orderings() -> list[tuple[str, bool]]:
    """Check what must hold whatever the numbers: who is faster, and where schemes flip."""
    def time(system: str, nodes: int) -> float:
        return simulate(system, "vgg19-22k", nodes).step_time

    ordered = all(time("Poseidon", n) <= time("Caffe+WFBP", n) <= time("Caffe+PS", n) for n in (1, 2, 4, 8, 16, 32))

    def scheme(nodes: int) -> str:
        job = simulate("Poseidon", "googlenet", nodes, batch=128).job
        return ps.Poseidon().schemes(job)["classifier"]

    return [
        ("Poseidon is at least as fast as WFBP and WFBP as PS at every size", ordered),
        ("GoogLeNet at batch 128 sends its classifier by factors at 4 nodes", scheme(4) == "sufficient-factors"),
        ("GoogLeNet at batch 128 falls back to the parameter server at 8 nodes", scheme(8) == "parameter-server"),
        ("native TensorFlow on VGG19-22K is slower than one node at 32 nodes", simulate("TensorFlow", "vgg19-22k", 32).speedup < 1),
    ]


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


__all__ = ["cluster", "main", "orderings", "rows", "workload"]

if __name__ == "__main__":
    raise SystemExit(main(Path("out/poseidon")))
