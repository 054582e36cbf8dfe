"""TensorFlow's benchmark page of May 2017 (tfb) and an issue with a two-node run (tfi): one host, variables on its CPU or NCCL."""

from __future__ import annotations

from ..cases import Entry
from ..data_parallel import Table, Way
from ..data_parallel import entries as of_table
from ..records import Record

PS = {"name": "parameter-server", "pull": "next-iteration"}
WAYS = (
    ("parameter_server variables on CPU", Way("parameter server on the host's CPU", PS)),
    ("variables on GPU", "variables on the GPUs of a host"),
    ("replicated (no NCCL) on GPU", "copies to one GPU of a host"),
    ("replicated + NCCL", Way("all-reduce per tensor, overlapped", {"name": "all-reduce"})),
    ("tf replicated", Way("all-reduce per tensor, overlapped", {"name": "all-reduce"})),
    ("distributed_replicated sync PS", Way("parameter server, whole variables", {**PS, "placement": "whole"})),
    ("tf parameter_server", Way("parameter server on the host's CPU", PS)),
)
MODELS = (
    ("InceptionV3", {"name": "inception-v3"}), ("ResNet-50", {"name": "resnet50"}), ("ResNet-152", {"name": "resnet152"}),
    ("VGG16", {"name": "vgg16"}), ("AlexNet", {"name": "alexnet"}),
)  # fmt: skip
GPUS = (("P100-SXM2", "p100-sxm2"), ("P100", "p100-pcie"), ("K80", "k80"), ("M40", "m40"), ("V100", "v100-sxm2-16gb"))


def cluster(record: Record) -> dict[str, object]:
    """DGX-1: NVLink rings. K80 hosts: two sockets of PCIe. tfi: TCP at the 9.3 Gbit/s that iperf showed, 0.07 ms there and back."""
    if "DGX-1" in record.system:
        return {"node": "nvlink-ring"}
    if record.set == "tfi":
        return {"network": {"bandwidth": "10 Gbit/s", "efficiency": 0.93, "latency": "35 us"}}
    return {"node": "pcie-tree"}


def same(record: Record) -> tuple[object, ...]:
    """Rows of one page section, model and batch; the kind of variables does not matter to one GPU."""
    own = record.strategy if record.set == "tfb" else ""
    return (record.system.split("; iperf")[0], record.model, record.batch, record.gpu, own)


TABLE = Table("TensorFlow 2017", WAYS, MODELS, GPUS, cluster, same)


def claims(record: Record) -> bool:
    return record.set in ("tfb", "tfi")


def entries(records: list[Record]) -> list[Entry]:
    return of_table(TABLE, records)
