"""torchgpipe's benchmarks (tgp): ResNet-101 in 1 to 8 partitions on P40 cards. U-Net and AmoebaNet-D wait for a model.

Batch and micro-batches: kakaobrain/torchgpipe, benchmarks/resnet101-speed/main.py. The run without a pipeline is given; the
partitions are balanced by FLOP here and were balanced by hand there. All micro-batches are computed again before backward here, all
but the last there.
"""

from __future__ import annotations

import re
from typing import Any

from ..cases import Case, Entry
from ..constants import use_of
from ..records import Record

FAMILY = "torchgpipe"
#: partitions -> (samples of a step, of a micro-batch); 25,000 in 1,667 parts is 15 each but for the last
CHUNKS = {1: (220, 110), 2: (25_005, 15), 4: (5632, 22), 8: (5400, 36)}
WAY = re.compile(r"GPipe pipeline (\d+) partitions")


def claims(record: Record) -> bool:
    return record.set == "tgp"


def entries(records: list[Record]) -> list[Entry]:
    """Return one entry a row."""
    base = next((r for r in records if r.model == "ResNet-101" and r.strategy == "no pipeline"), None)
    return [entry_of(record, base) for record in records]


def entry_of(record: Record, base: Record | None) -> Entry:
    """Return what becomes of one row."""
    if record.model != "ResNet-101":
        return Entry(record, FAMILY, "waiting", f"model: {record.model.split(' (')[0]}")
    if base is None or base.value is None:
        return Entry(record, FAMILY, "unknown", "no one-GPU or one-node run in its set to take the compute time from")
    if record is base:
        return Entry(record, FAMILY, "given", "the one-GPU rate")
    way = WAY.fullmatch(record.strategy)
    if way is None or int(way[1]) not in CHUNKS or record.value is None:
        return Entry(record, FAMILY, "unknown", f"strategy not understood: {record.strategy[:60]}")
    samples, _ = CHUNKS[int(way[1])]
    case = Case(
        "pipeline (GPipe)", scenario(int(way[1]), base.value), f"the one-GPU rate ({base.id})", samples / record.value,
        use_of("torchgpipe"),
    )  # fmt: skip
    return Entry(record, FAMILY, "modelled", "", case)


def scenario(partitions: int, rate: float) -> dict[str, Any]:
    """Return the scenario of a pipeline of so many partitions."""
    samples, micro = CHUNKS[partitions]
    return {
        "model": {"name": "resnet101", "single_gpu_throughput": rate}, "global_batch_size": samples, "micro_batch_size": micro,
        "cluster": {"nodes": 1, "gpus_per_node": partitions, "gpu": "p40", "node": "pcie"},
        "strategy": {"name": "megatron", "pipeline": partitions, "schedule": "gpipe", "recompute": "full"},
    }  # fmt: skip
