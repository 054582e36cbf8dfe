"""Microbenchmarks of one all-reduce (mlen, nct): bus bandwidth or time against size. The quickest message of a series is given.

It gives the start-up: a ring of n GPUs makes 2 (n - 1) hops one after the other (the wires' own time taken off). The catalog's
rates of NVLink 4 and 5 and of EFA are the middle of what these very pages measured, so the set counts as fitted.
"""

from __future__ import annotations

import re
from typing import Any

from ..cases import Case, Entry, simulated
from ..constants import use_of
from ..records import Record

NAMES = {"mlen": "ml-engineering", "nct": "nccl-tests"}
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
GPUS = {"H200": "h200-sxm", "B200": "b200-sxm", "A100-SXM4-80GB": "a100-sxm-80gb", "GH200-120GB": "gh200"}
NETWORKS: dict[str, dict[str, Any]] = {
    "EFA v3 16x200G": {"link": "aws-efa-v3-16x200g"}, "EFA v4 8x400G": {"link": "aws-efa-v3-16x200g"},
    "HPE Slingshot 200G": {"link": "slingshot-200g"},
}  # fmt: skip
#: bytes up to which a message shows the start-up
SMALL = 2**20
#: words of a strategy or metric that say why a row is no such all-reduce
OTHERS = (
    ("NVLS", "waiting", "reduction in the switch (NVLS)"), ("nvlstree", "waiting", "reduction in the switch (NVLS)"),
    ("tree", "unknown", "number and kind of GPUs inferred by the collector"),
)  # fmt: skip


def claims(record: Record) -> bool:
    return record.set in NAMES


def entries(records: list[Record]) -> list[Entry]:
    """Return one entry a row."""
    series: dict[tuple[object, ...], list[Record]] = {}
    found = []
    for record in records:
        state, reason = obstacle(record)
        if state:
            found.append(Entry(record, NAMES[record.set], state, reason))
        else:
            series.setdefault(series_of(record), []).append(record)
    for rows in series.values():
        found += of_series(rows)
    return found


def obstacle(record: Record) -> tuple[str, str]:
    """Return (state, reason) of a row that is no all-reduce of known size on known GPUs, or ('', '')."""
    if "allreduce" not in record.metric and "all_reduce" not in record.metric:
        return "other", "microbenchmark of a wire or another collective"
    if record.set == "nct" and "time" not in record.metric:
        return "elsewhere", "the run of another row, in another unit"
    for word, state, reason in OTHERS:
        if word in record.strategy.replace("NVLS disabled", ""):
            return state, reason
    if "B200" in record.gpu and (record.gpus or 0) > 5 and "disabled" not in record.strategy and size_of(record) >= 2**27:
        return "waiting", "reduction in the switch (NVLS)"
    if not size_of(record) or record.gpu not in GPUS:
        return "unknown", "size of the message or kind of GPU not stated"
    return "", ""


def series_of(record: Record) -> tuple[object, ...]:
    """Rows of one program on one machine, whatever the size of the message."""
    program = re.sub(r"payload [\d.]+ ?\w+|[\d.]+ \w+ payload", "", record.system)
    return (program, record.nodes, record.gpus, record.gpu, record.network)


def size_of(record: Record) -> int:
    """Return the bytes of a message, 0 where not stated.

    >>> import dataclasses
    >>> from validation.corpora.records import read_all
    >>> size_of(next(r for r in read_all() if r.id == "mlen-0021"))
    32768
    """
    found = re.search(r"payload (\d+) ?(B|KiB|MiB|GiB)\b|(\d+) (GiB) payload", record.system)
    return int(found[1] or found[3]) * UNITS[found[2] or found[4]] if found else 0


def seconds(record: Record) -> float:
    """Return the seconds of one all-reduce; bus bandwidth is 2 (n - 1) / n of the bytes over the time."""
    value = record.value or float("nan")
    if record.metric == "allreduce_time_us":
        return value / 1e6
    n = (record.nodes or 1) * (record.gpus or 1)
    return size_of(record) * 2 * (n - 1) / n / (value * 1e9)


def of_series(rows: list[Record]) -> list[Entry]:
    """Return the entries of the messages of one series: the quickest is given, if it is small enough to show the start-up."""
    family = NAMES[rows[0].set]
    first = min(rows, key=lambda r: (seconds(r), r.id))
    hop = hop_time(first) if size_of(first) <= SMALL else None
    found = []
    for record in rows:
        if hop is not None and record.id == first.id:
            found.append(Entry(record, family, "given", "the start-up: the quickest message of its series"))
            continue
        given = f"the start-up ({first.id})" if hop is not None else "nothing measured"
        case = Case(
            "one all-reduce (microbenchmark)", scenario(record, hop or 0.0), given, seconds(record), use_of("collectives"),
            quantity="exposed",
        )  # fmt: skip
        found.append(Entry(record, family, "modelled", "", case))
    return found


def hop_time(record: Record) -> float:
    """Return the seconds of one hop of those that follow each other, from a small message and what the wires take for it."""
    hops = 2 * ((record.nodes or 1) - 1) + 2 * ((record.gpus or 1) - 1)
    wires = simulated(Case("", scenario(record, 0.0), "", seconds(record), quantity="exposed"))
    return max(0.0, seconds(record) - wires) / hops


def scenario(record: Record, hop: float) -> dict[str, Any]:
    """Return a job that computes nothing worth mentioning and sums one tensor of the message's size; `hop` in seconds.

    Between nodes of several GPUs NCCL runs a ring through every port: per GPU one, as in the two-dimensional all-reduce.
    """
    nodes, gpus = record.nodes or 1, record.gpus or 1
    cluster: dict[str, Any] = {"nodes": nodes, "gpus_per_node": gpus, "gpu": GPUS[record.gpu], "node": "nvswitch"}
    if gpus > 1:
        cluster["peer_latency"] = f"{hop * 1e6:.6f} us"
    if nodes > 1:
        link = next(value for key, value in NETWORKS.items() if record.network.startswith(key))
        cluster["network"] = {**link, "latency": f"{hop * 1e6:.6f} us"}
    layer = {"name": "message", "kind": "linear", "shape": [1024, size_of(record) // 4096]}
    model = {"name": "message", "layers": [layer], "single_gpu_throughput": 1e9}
    algorithm = "two-dimensional" if nodes > 1 and gpus > 1 else "ring"
    strategy = {"name": "all-reduce", "fusion": "all", "overlap": False, "algorithm": algorithm}
    return {"model": model, "batch_size": 1, "cluster": cluster, "strategy": strategy}
