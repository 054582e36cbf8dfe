"""Oneflow's DLPerf (dlp): nine frameworks on one host of 8 V100; its GPT rows are `dlperf_gpt`."""

from __future__ import annotations

from ..cases import Entry
from ..data_parallel import Table, Way
from ..data_parallel import entries as of_table
from ..records import Record

WAYS = (
    ("data-parallel all-reduce", Way("all-reduce in buckets, overlapped", {"name": "all-reduce", "fusion": "25 MB"})),
)
MODELS = (("ResNet50", {"name": "resnet50"}), ("BERT-Base", {"name": "bert-base-pretraining", "sequence_length": 128}))
TABLE = Table(
    "DLPerf", WAYS, MODELS, (("V100", "v100-sxm2-16gb"),), lambda record: {"node": "nvlink-ring"},
    lambda record: (record.system, record.model, record.batch, record.precision),
)  # fmt: skip


def claims(record: Record) -> bool:
    return record.set == "dlp"


def entries(records: list[Record]) -> list[Entry]:
    return of_table(TABLE, records)
