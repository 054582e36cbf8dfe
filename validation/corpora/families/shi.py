"""Shi, Chu and others (S11*): the GoogLeNet trace on K80 and 10 GbE, dense and sparse all-reduce on 1 GbE, microbenchmarks."""

from __future__ import annotations

from dataclasses import replace

from ..cases import Case, Entry
from ..data_parallel import PER_WORKER, Table, Way
from ..data_parallel import entries as of_table
from ..records import Record
from ..replay import exposed

FAMILY = "Shi et al."
#: seconds of an iteration on one node: 64 images at the rate of row S11B-1-GoogLeNet
ONE_NODE = 64 / 163.36
METHODS = (("SyncEASGD", "fused"), ("MG-WFBP", "merged"), ("WFBP", "per layer"))
LABELS = {"per layer": "trace replay, per layer", "fused": "trace replay, one all-reduce", "merged": "trace replay, merged"}
REASONS = (
    ("S11M-cont", "elsewhere", "jobs that share a port: reproduce shi"),
    ("S11M-prof", "other", "one-GPU profile of a simulator"),
    ("S11M", "other", "microbenchmark of an all-reduce (an input: start-up and byte time)"),
    ("S11A", "unknown", "number of GPUs not stated"),
    ("S11G-brk", "elsewhere", "sparse sums: reproduce shi"),
    ("S11G-p2p", "other", "microbenchmark of the wire (an input)"),
)
DENSE = Table(
    FAMILY,
    (
        ("dense ring", Way("all-reduce per tensor, overlapped", {"name": "all-reduce"})),
        ("single GPU", Way("one GPU", {"name": "all-reduce"})),
    ),
    (("CIFAR", None), ("AlexNet", {"name": "alexnet"}), ("ResNet-50", {"name": "resnet50"})),  # type: ignore[arg-type]
    (("P102-100", "p40"),),  # the catalog has no P102-100; the rate of one GPU is given, the card only splits it over layers
    lambda record: {"network": "1gbe-tcp"}, lambda record: (record.model, record.batch), metrics=PER_WORKER,
)  # fmt: skip


def claims(record: Record) -> bool:
    return record.id.startswith("S11")


def entries(records: list[Record]) -> list[Entry]:
    """Return one entry a row."""
    runs = [r for r in records if r.id.startswith("S11G") and not r.id.startswith(("S11G-brk", "S11G-p2p"))]
    sparse = [r for r in runs if "op-k" in r.strategy]
    dense = [r for r in runs if r not in sparse]
    traced = [r for r in records if r.id.startswith(("S11B", "S11T"))]
    rest = [r for r in records if r not in runs and r not in traced]
    held = [Entry(r, FAMILY, "elsewhere", "sparse sums: reproduce shi") for r in sparse]
    return [*of_table(DENSE, dense), *held, *map(of_trace, traced), *map(listed, rest)]


def listed(record: Record) -> Entry:
    """Return the entry of a row that is no training run of ours."""
    state, reason = next((s, why) for prefix, s, why in REASONS if record.id.startswith(prefix))
    return Entry(record, FAMILY, state, reason)


def of_trace(record: Record) -> Entry:
    """Return the entry of a row of the GoogLeNet trace."""
    if record.id == "S11B-1-GoogLeNet":
        return Entry(record, FAMILY, "given", "images/s of one node")
    if record.id.endswith("s") or record.metric == "speedup_vs_1node":
        return Entry(record, FAMILY, "other", "the throughput row as a speedup")
    if record.id.startswith("S11T"):
        return Entry(record, FAMILY, "other", "sum, earlier replay or difference of the trace's own rows")
    if record.model != "GoogLeNet" or not record.nodes or not record.value:
        return Entry(record, FAMILY, "unknown", "no trace of its network")
    method = next(name for text, name in METHODS if text in record.strategy)
    nodes = record.nodes
    case = Case(
        LABELS[method], {"trace": "googlenet_k80_10gbe", "nodes": nodes, "method": method}, "iteration time of one node, layer trace",
        64 * nodes / record.value, "predicted", ("S11B", nodes), predict=lambda: ONE_NODE + exposed(nodes, method),
    )  # fmt: skip
    return Entry(replace(record), FAMILY, "modelled", "", case)
