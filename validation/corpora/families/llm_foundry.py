"""MosaicML's llm-foundry (llmf): MPT of 125 million to 70 billion parameters, FSDP with full sharding, 8 to 128 A100."""

from __future__ import annotations

import re

from ..architectures import architectures, mosaic
from ..cases import Entry
from ..constants import use_of
from ..parallel import NotRead, Reading, Setting
from ..parallel import entries as of_rows
from ..records import Record

FAMILY = "llm-foundry"
WAY = re.compile(r"FSDP FULL_SHARD; act ckpt (True|False); offload False; grad accum (\d+); global batch (\d+)")
MODEL = re.compile(r"(MPT-\w+) \((\d+) params\) seq (\d+)")
GPUS = {"A100-80GB": "a100-sxm-80gb", "A100-40GB": "a100-sxm-40gb"}
PRECISIONS = {"bf16": "bf16", "amp_bf16": "bf16"}
#: 8 ports of 200 Gbit/s RoCEv2; share and latency from the catalog
ROCE = {"bandwidth": "1600 Gbit/s", "efficiency": 0.93, "latency": "2.5 us"}


def claims(record: Record) -> bool:
    return record.set == "llmf"


def entries(records: list[Record]) -> list[Entry]:
    return of_rows(records, FAMILY, read, lambda r: use_of("llm-foundry"))


def read(record: Record) -> Reading:
    """Return what a row says."""
    way, model = WAY.fullmatch(record.strategy), MODEL.fullmatch(record.model)
    if way is None:
        raise NotRead(f"strategy not understood: {record.strategy[:60]}")
    if model is None or model[1] not in architectures():
        raise NotRead(f"model: {record.model[:40]}", "waiting")
    if record.gpu not in GPUS or record.precision not in PRECISIONS:
        raise NotRead(f"gpu or precision: {record.gpu}, {record.precision}", "waiting")
    micro, passes, batch = int(record.batch), int(way[2]), int(way[3])
    nodes, gpus = record.nodes or 0, record.gpus or 0
    if micro * passes * nodes * gpus != batch:
        raise NotRead(f"global batch {batch} where {passes} passes of {micro} on {nodes * gpus} GPUs make {micro * passes * nodes * gpus}")
    setting = Setting(batch, micro, recompute="full" if way[1] == "True" else "none", shard="full")
    return Reading(
        architectures()[model[1]], int(model[3]), PRECISIONS[record.precision], setting, nodes, gpus,
        {"gpu": GPUS[record.gpu], "node": "nvswitch", "network": ROCE}, mosaic,
        f"sharded parameters (FSDP), {'one node' if nodes == 1 else 'several nodes'}", peak=312e12,
    )  # fmt: skip
