"""ChainerMN (B-CMN*): 32 nodes of 4 Titan X on InfiniBand FDR against other frameworks; MN-1 nodes of 8 P100 on FDR or 10 GbE."""

from __future__ import annotations

from dataclasses import replace

from ..cases import Entry
from ..data_parallel import Table, Way
from ..data_parallel import entries as of_table
from ..records import Record

PACKED = {"name": "all-reduce", "algorithm": "hierarchical", "fusion": "all", "overlap": False}
WAYS = (
    ("ChainerMN", Way("one all-reduce after backward, hierarchical", PACKED)),
    ("NCCL2 fp32", Way("one all-reduce after backward, ring", {**PACKED, "algorithm": "ring"})),
    ("MXNet dist_sync", Way("parameter server, overlapped", {"name": "parameter-server"})),
    ("CNTK", "what CNTK exchanged is not stated (32 or 1 bit)"),
    ("TensorFlow", "where 31 parameter servers ran is not stated"),
)
TABLE = Table(
    "ChainerMN", WAYS, (("ResNet-50", {"name": "resnet50"}),), (("TITAN X", "titan-x-maxwell"), ("P100", "p100-pcie")),
    lambda record: {"node": "pcie-tree", "network": "10gbe-tcp" if "10 GbE" in record.strategy else "infiniband-fdr"},
    lambda record: (record.source, record.system, record.strategy),
)  # fmt: skip


def claims(record: Record) -> bool:
    return record.id.startswith("B-CMN")


def entries(records: list[Record]) -> list[Entry]:
    own = [replace(record, network=record.strategy.rpartition(", ")[2]) for record in records]
    found = of_table(TABLE, own)
    back = {record.id: record for record in records}
    return [replace(entry, record=back[entry.record.id]) for entry in found]
