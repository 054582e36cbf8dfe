"""NVIDIA DeepLearningExamples (dle): one-GPU and multi-GPU rows of DGX machines."""

from __future__ import annotations

import re

from ..cases import Entry
from ..data_parallel import Table, Way
from ..data_parallel import entries as of_table
from ..records import Record

WAYS = (
    ("grad accumulation", "gradient accumulation"),
    ("data-parallel NCCL", Way("all-reduce in buckets, overlapped", {"name": "all-reduce", "fusion": "25 MB"})),
)
MODELS = (
    ("SE-ResNeXt", None), ("ResNeXt", None), ("SSD", None), ("ResNet50", {"name": "resnet50"}),
    ("seq ", None), ("BERT-Large", {"name": "bert-large", "sequence_length": 384}),
)  # fmt: skip
GPUS = (
    ("V100-16GB", "v100-sxm2-16gb"), ("V100-32GB", "v100-sxm2-32gb"), ("V100-SXM3", "v100-sxm2-32gb"),
    ("A100-80GB", "a100-sxm-80gb"), ("A100-40GB", "a100-sxm-40gb"),
)  # fmt: skip


def cluster(record: Record) -> dict[str, object]:
    """DGX-1: NVLink rings; DGX-2 and DGX A100: NVSwitch; several nodes: one HDR port per GPU (platform specification)."""
    node = {"node": "nvlink-ring" if "DGX-1" in record.system else "nvswitch"}
    if (record.nodes or 1) > 1:
        return {**node, "network": {"bandwidth": "1600 Gbit/s", "efficiency": 0.93, "latency": "5 us"}}
    return node


def section(record: Record) -> tuple[object, ...]:
    """Rows of one README table: machine, container, section, model, precision, batch and GPU."""
    return (record.system, record.source, record.model, record.precision, record.batch, record.gpu)


TABLE = Table("DeepLearningExamples", WAYS, tuple((k, v) for k, v in MODELS), GPUS, cluster, section)  # type: ignore[misc]


def claims(record: Record) -> bool:
    return record.set == "dle"


def entries(records: list[Record]) -> list[Entry]:
    return of_table(TABLE, records)


def plain(model: str) -> str:
    """Return a model's name without the README section in brackets."""
    return re.sub(r" \[.*?\]", "", model)
