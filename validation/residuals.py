"""What every measured case that nothing was fitted on says of the simulator's errors: the file behind the intervals.

    python validation/residuals.py        # writes poseidon_sim/metrics/residuals.csv and prints how the intervals hold

Three kinds of cases: published one-GPU rates whose source was not fitted (compute modelled), published runs on several GPUs
whose set was not fitted (one GPU's speed given, or modelled where the model itself is split), and our own runs on an emulated network (everything given). Figures known at second
hand or recalled are left out, and noisy runs of ours. The last lines leave out one source after the other, make the intervals of its
cases from the rest, and count how many hold.
"""

from __future__ import annotations

import csv
import importlib
import math
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import poseidon_sim as ps
from poseidon_sim.metrics import trust

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))


def part(name: str) -> Any:
    return importlib.import_module(f"{HERE.name}.{name}")


#: sources whose network was measured or fitted apart from the cases; the others' is taken from a line rate or a catalog
MEASURED_NETWORKS = ("ddl-benchmarks", "emulated network")


def of_run(source: str, run: ps.Run, measured: float) -> trust.Residual:
    cluster = run.job.cluster
    place = trust.place_of(cluster.nodes, cluster.num_gpus)
    goodput = trust.goodput_of(cluster.network) if source in MEASURED_NETWORKS else "assumed"
    return trust.Residual(source, place, trust.bound_of(run.blame), goodput, run.strategy.name, cluster.num_gpus, math.log(measured / run.step_time))


def of_trace(entry: Any) -> trust.Residual:
    """A run replayed with measured layer times and a measured all-reduce."""
    step, alone = entry.case.predict(), part("corpora.families.shi").ONE_NODE
    bound = trust.bound_of({"compute": alone, "transfer: all-reduce": step - alone})
    strategy = "mg-wfbp" if "merged" in entry.case.label else "all-reduce"
    nodes = int(entry.record.nodes)
    return trust.Residual(entry.family, "several nodes", bound, "stated", strategy, nodes, math.log(entry.case.measured / step))


def compute() -> Iterator[trust.Residual]:
    model = part("compute_model")
    for row in map(model.predict, model.rows()):
        if row.use == "predicted":
            yield trust.Residual(row.published["set"], "one GPU", "compute-bound", "assumed", "", 1, math.log(row.rate / float(row.published["samples_per_s"])))


def corpora() -> Iterator[trust.Residual]:
    cases, families, records, tables = (part(f"corpora.{name}") for name in ("cases", "families", "records", "tables"))
    for entry in families.entries(records.read_all()):
        case = entry.case
        if case is None or tables.use_of(entry) != "predicted" or case.quantity != "step":
            continue
        if case.predict is not None:
            if "trace" in case.scenario:
                yield of_trace(entry)
            continue
        try:
            run = cases.run_of(case)
        except ps.InfeasibleError:  # refused though it ran: in the report, but no step time
            continue
        yield of_run(entry.family, run, case.measured)


def emulated() -> Iterator[trust.Residual]:
    compare = part("campaign.compare")
    rates = compare.read_calibration(HERE / "measured" / "emulated_network.csv")
    for each in compare.compare(HERE / "measured" / "emulated.csv", rates):
        if each.trusted:
            yield of_run("emulated network", compare.run_of(each.case, rates), each.measured)


def held(rows: list[trust.Residual], span: float) -> float:
    """Return the mean share, over sources left out in turn, of their cases inside intervals made without them."""
    shares = []
    for source in {r.source for r in rows}:
        rest, mine = [r for r in rows if r.source != source], [r for r in rows if r.source == source]
        inside = 0
        for row in mine:
            alike, _ = trust.like(rest, row.place, row.bound, row.goodput)
            low, high = trust.spread(*trust.weighted(alike), span)
            inside += low <= row.log_error <= high
        shares.append(inside / len(mine))
    return sum(shares) / len(shares)


def main() -> int:
    rows = [*compute(), *corpora(), *emulated()]
    with open(trust.RESIDUALS, "w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(trust.Residual._fields)
        writer.writerows([*r[:-1], round(r.log_error, 5)] for r in sorted(rows))
    kinds: dict[tuple[str, ...], list[trust.Residual]] = defaultdict(list)
    for row in rows:
        kinds[row.place, row.bound, row.goodput].append(row)
    for (place, bound, goodput), mine in sorted(kinds.items()):
        low, high = trust.spread(*trust.weighted(mine), 0.9)
        print(f"{place:<14} {bound:<16} {goodput:<8} {len(mine):4} cases {len({r.source for r in mine}):3} sources   middle 90 %: {math.expm1(low):+7.1%} to {math.expm1(high):+7.1%}")
    steps, single = [r for r in rows if r.place != "one GPU"], [r for r in rows if r.place == "one GPU"]
    for name, mine in (("several GPUs", steps), ("one GPU", single)):
        print(f"{name}: share of a left-out source's cases inside, by span of the residuals:")
        print("  " + "  ".join(f"{span:.2f}: {held(mine, span):.0%}" for span in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 1.0)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
