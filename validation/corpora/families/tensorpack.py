"""Tensorpack's benchmarks (tpk): ResNet-50 on one host of P100 or V100."""

from __future__ import annotations

from ..cases import Entry
from ..data_parallel import Table, Way
from ..data_parallel import entries as of_table
from ..records import Record
from .tensorflow import GPUS, MODELS, WAYS

OWN = (*WAYS, ("Horovod", Way("all-reduce in buckets, overlapped", {"name": "all-reduce", "fusion": "64 MiB"})))
TABLE = Table(
    "Tensorpack", OWN, MODELS, GPUS, lambda record: {"node": "nvlink-ring"} if "V100" in record.gpu else {"node": "pcie-tree"},
    lambda record: (record.system, record.model, record.batch, record.gpu, record.strategy),
)  # fmt: skip


def claims(record: Record) -> bool:
    return record.set == "tpk"


def entries(records: list[Record]) -> list[Entry]:
    return of_table(TABLE, records)
