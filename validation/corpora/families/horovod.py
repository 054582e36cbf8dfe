"""Horovod's documentation (hvd), runs on AWS (aws), BytePS's and ByteScheduler's claims (bps, bsd)."""

from __future__ import annotations

from ..cases import Entry
from ..data_parallel import TOTAL, Table, Way
from ..data_parallel import entries as of_table
from ..records import Record

RING = {"name": "all-reduce", "fusion": "64 MiB"}
PS = {"name": "parameter-server", "placement": "whole", "pull": "next-iteration", "aggregate": False}
WAYS = (
    ("vs Horovod", "a ratio of two systems at an unstated size"),
    ("single GPU", Way("one GPU", RING)),
    ("PS (variables on GPU)", "variables on the GPUs of other hosts"),
    ("PS (variables on CPU)", Way("parameter server, whole variables", PS)),
    ("on CPU, TCP", Way("all-reduce on the hosts, in buckets, overlapped", {**RING, "staging": "host"})),
    ("Horovod", Way("all-reduce in buckets, overlapped", RING)),
    ("BytePS", "GPU, links or one-GPU rate assumed by the collector"),
    ("tensor partition + priority", "priority scheduling (ByteScheduler)"),
)
MODELS = (
    ("Inception V3", {"name": "inception-v3"}), ("ResNet-101", {"name": "resnet101"}), ("VGG-16", {"name": "vgg16"}),
    ("ResNet-50", {"name": "resnet50"}), ("BERT-Large", {"name": "bert-large-pretraining"}),
)  # fmt: skip
GPUS = (("P100-class", "p100-pcie"), ("V100-SXM2", "v100-sxm2-16gb"), ("V100", "v100-sxm2-16gb"))


def cluster(record: Record) -> dict[str, object]:
    """AWS p3.16xlarge: NVLink, 25 Gbit/s TCP. Uber's servers: 4 P100 on PCIe, 25 Gbit/s TCP."""
    node = {"node": "nvlink-ring"} if record.set == "aws" else {"node": "pcie"}
    return {**node, "network": "25gbe-tcp"}


def same(record: Record) -> tuple[object, ...]:
    """Rows of one model and batch; systems of one table (the one-GPU baseline serves all)."""
    table = "aws" if record.set == "aws" else ("hvd" if record.set == "hvd" and "16 GPUs" in record.system + "16 GPUs" else record.system)
    return (table, record.gpu, record.model, record.batch)


TABLE = Table("Horovod and BytePS", WAYS, MODELS, GPUS, cluster, same, metrics=TOTAL)


def claims(record: Record) -> bool:
    return record.set in ("hvd", "aws", "bps", "bsd")


def entries(records: list[Record]) -> list[Entry]:
    return of_table(TABLE, records)
