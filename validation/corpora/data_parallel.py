"""Rows of data-parallel runs become cases by one table per family; the one-GPU (or one-node) row of a set is given."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import poseidon_sim as ps

from .cases import Case, Entry
from .records import Record

#: metrics that are the speed of the whole job, and those per worker
TOTAL = frozenset({"images_per_s", "sentences_per_s", "sequences_per_s", "samples_per_s", "throughput_images_per_s"})
PER_WORKER = frozenset({"throughput_per_worker_samples_per_s", "images_per_s_per_gpu"})


@dataclass(frozen=True)
class Way:
    """A published strategy: its name in the tables and its strategy in a scenario."""

    label: str
    strategy: dict[str, Any]


@dataclass(frozen=True)
class Table:
    """How the rows of one family become scenarios. Texts are looked for in the published ones; the first that fits counts.

    Parameters
    ----------
    ways : (text, Way or the reason why such rows wait).
    models : (text, scenario model as a mapping).
    gpus : (text, catalog name).
    cluster : the scenario's cluster beyond nodes, GPUs and gpu.
    batch : samples per GPU, or None when the row does not say.
    same : what rows of one set share; the one with fewest GPUs is given.
    use : 'fitted' when a number was chosen on this row's set.
    micro_batch : samples per GPU of one forward and backward pass when gradients are accumulated; `batch` is that of a whole step.
    tokens : tokens of one sample, where a row's figure counts tokens.
    model_text : the text in which a model is looked for.
    """

    family: str
    ways: tuple[tuple[str, Way | str], ...]
    models: tuple[tuple[str, dict[str, Any]], ...]
    gpus: tuple[tuple[str, str], ...]
    cluster: Callable[[Record], dict[str, Any]]
    same: Callable[[Record], tuple[object, ...]]
    batch: Callable[[Record], int | None] = field(default=lambda record: whole_batch(record))
    precision: dict[str, str] = field(default_factory=lambda: {"amp-fp16": "fp16", "": "fp32"})
    use: Callable[[Record], str] = field(default=lambda record: "predicted")
    metrics: frozenset[str] = TOTAL | PER_WORKER
    micro_batch: Callable[[Record], int | None] = field(default=lambda record: None)
    tokens: Callable[[Record], int | None] = field(default=lambda record: None)
    model_text: Callable[[Record], str] = field(default=lambda record: record.model)


def whole_batch(record: Record) -> int | None:
    """Return the batch of a row that states one number.

    A cell such as '128 (FP32) / 256 (AMP)' is read by the row's precision.
    """
    halves = re.fullmatch(r"(\d+) \((?:FP32|TF)\) / (\d+) \(AMP\)", record.batch)
    if halves:
        return int(halves[2 if record.precision == "amp-fp16" else 1])
    found = re.match(r"(\d+)(\.0)?( \(label says \d+\))?$", record.batch)
    return int(found[1]) if found else None


def look(table: Iterable[tuple[str, Any]], text: str) -> Any:
    """Return the value of the first key that `text` contains, or None."""
    return next((value for key, value in table if key in text), None)


def entries(table: Table, records: list[Record]) -> list[Entry]:
    """Return what becomes of the rows of one family."""
    found: list[Entry] = []
    sets: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        state, reason = obstacle(table, record)
        if state:
            found.append(Entry(record, table.family, state, reason))
        else:
            sets.setdefault(table.same(record), []).append(record)
    for rows in sets.values():
        found += of_set(table, rows)
    return found


def obstacle(table: Table, record: Record) -> tuple[str, str]:
    """Return (state, reason) of a row that cannot become a case, or ('', '')."""
    way = look(table.ways, record.strategy)
    if isinstance(way, str):
        return "waiting", way
    if record.metric not in table.metrics and not (record.metric == "tokens_per_s" and table.tokens(record)):
        return "other", f"not a step time: {record.metric}"
    if way is None:
        return "unknown", f"strategy not understood: {record.strategy[:60]}"
    if look(table.models, table.model_text(record)) is None:
        return "waiting", "model: " + re.sub(r" \[.*?\]", "", record.model)
    if look(table.gpus, record.gpu or record.system) is None:
        return "waiting", f"gpu: {record.gpu or record.system[:40]}"
    if table.batch(record) is None:
        return "unknown", "the row does not state the batch"
    if record.nodes is None or record.gpus is None:
        return "unknown", "the row does not state nodes and GPUs per node"
    return "", ""


def of_set(table: Table, rows: list[Record]) -> list[Entry]:
    """Return the entries of one set: the smallest run is given, the others predicted from it."""
    base = min(rows, key=lambda r: (num_gpus(r), r.nodes or 0, r.id))
    smallest = [r for r in rows if num_gpus(r) == num_gpus(base)]
    if len(smallest) == len(rows):
        if num_gpus(base) == 1:
            return [Entry(r, table.family, "other", "one-GPU rate, no larger run in its set: compute only") for r in rows]
        return [Entry(r, table.family, "unknown", "no one-GPU or one-node run in its set to take the compute time from") for r in rows]
    if base.nodes != 1:
        return [Entry(r, table.family, "unknown", "no one-GPU or one-node run in its set to take the compute time from") for r in rows]
    rate = one_gpu_rate(table, base)
    what = "the one-GPU rate" if num_gpus(base) == 1 else f"the rate of one node of {base.gpus} GPUs"
    found = []
    for record in rows:
        if record.id == base.id:
            found.append(Entry(record, table.family, "given", what))
        elif num_gpus(record) == num_gpus(base):
            found.append(Entry(record, table.family, "other", f"a second run of {what[4:]} in its set"))
        else:
            found.append(Entry(record, table.family, "modelled", "", case_of(table, record, base, rate, f"{what} ({base.id})")))
    return found


def num_gpus(record: Record) -> int:
    """GPUs of the whole run."""
    return (record.nodes or 1) * (record.gpus or 1)


def step_time(table: Table, record: Record) -> float:
    """Seconds per step of a row."""
    batch, value = table.batch(record) or 1, record.value or float("nan")
    if record.metric == "tokens_per_s":
        value /= table.tokens(record) or 1
    return batch / value if record.metric in PER_WORKER else batch * num_gpus(record) / value


def scenario(table: Table, record: Record, rate: float) -> dict[str, Any]:
    """Return the scenario of a row, given the rate of one GPU."""
    model = {**look(table.models, table.model_text(record)), "single_gpu_throughput": rate}
    precision = table.precision.get(record.precision, record.precision)
    if precision != "fp32":
        model["precision"] = precision
    gpu = look(table.gpus, record.gpu or record.system)
    cluster = {"nodes": record.nodes, "gpus_per_node": record.gpus, "gpu": gpu, **table.cluster(record)}
    if record.nodes == 1:
        cluster.pop("network", None)
    way = look(table.ways, record.strategy)
    found = {"model": model, "batch_size": table.batch(record), "cluster": cluster, "strategy": way.strategy}
    micro_batch = table.micro_batch(record)
    return found if micro_batch in (None, found["batch_size"]) else {**found, "micro_batch_size": micro_batch}


def case_of(table: Table, record: Record, base: Record, rate: float, given: str) -> Case:
    """Return the case of a row; `rate` was measured with the batch of `base`."""
    way = look(table.ways, record.strategy)
    group = (table.family, record.system, record.model, record.network, record.nodes, record.gpus, record.batch, record.precision)
    return Case(way.label, measured_at(scenario(table, record, rate), samples_a_pass(table, base)), given, step_time(table, record), table.use(record), group)


def samples_a_pass(table: Table, record: Record) -> int | None:
    """Return the samples of one forward and backward pass of a GPU."""
    return table.micro_batch(record) or table.batch(record)


def measured_at(given: dict[str, Any], samples: int | None) -> dict[str, Any]:
    """Return a scenario that says at which batch its throughput was measured, where that is not its own."""
    if samples in (None, given.get("micro_batch_size", given["batch_size"])):
        return given
    return {**given, "model": {**given["model"], "single_gpu_batch_size": samples}}


def one_gpu_rate(table: Table, base: Record) -> float:
    """Return the samples/s of one GPU with which the base row's run takes as long as measured."""
    return rate_for(scenario(table, base, 1.0), step_time(table, base), num_gpus(base))


def rate_for(given: dict[str, Any], seconds: float, gpus: int) -> float:
    """Return the one-GPU rate with which a scenario takes `seconds` per step; its communication is taken off."""
    batch = int(given["batch_size"])
    rate = batch / seconds
    for _ in range(6 if gpus > 1 else 0):
        run = ps.simulate(ps.load_scenario({**given, "model": {**given["model"], "single_gpu_throughput": rate}}))
        rate = batch / max(seconds - (run.step_time - run.single_gpu_time), seconds / 10)
    return rate
