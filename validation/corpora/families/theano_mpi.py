"""Theano-MPI (tmpi, B-TMPI): seconds of compute and of communication, logged apart; one all-reduce per tensor after backward.

`comm` on these logs holds the wait for the slowest rank where it was not logged apart, so it can only be too long.
"""

from __future__ import annotations

from typing import Any

from ..cases import Case, Entry
from ..constants import text, use_of
from ..data_parallel import look
from ..records import Record

FAMILY = "Theano-MPI"
MODELS = (("AlexNet", {"name": "alexnet"}), ("VGG16", {"name": "vgg16"}), ("GoogLeNet", {"name": "googlenet"}), ("ResNet-50", {"name": "resnet50"}))
IMAGES = 5120
LOGGED = ("train_s_per_5120_images", "comm_s_per_5120_images")
LABEL = "all-reduce per tensor after backward (communication only)"


def claims(record: Record) -> bool:
    return record.set == "tmpi" or record.id.startswith("B-TMPI")


def entries(records: list[Record]) -> list[Entry]:
    """Communication rows are predicted, compute rows of the same run are given."""
    compute = {key_of(r): r for r in records if r.metric in ("compute_s_per_5120_images", "train_s_per_5120_images") and nccl(r)}
    return [entry_of(record, compute) for record in records]


def nccl(record: Record) -> bool:
    return record.set == "tmpi" or record.id.startswith("B-TMPI-nccl32")


def key_of(record: Record) -> tuple[object, ...]:
    return (record.corpus, record.model, record.batch, record.gpus)


def entry_of(record: Record, compute: dict[tuple[object, ...], Record]) -> Entry:
    """Return what becomes of one row."""
    if record.id.startswith(("B-TMPI-nccl32-AlexNet-128b", "B-TMPI-nccl32-VGG16-32b")) and record.metric in LOGGED:
        return Entry(record, FAMILY, "elsewhere", "the same figure as in measurements.csv (tmpi)")
    if record.id.startswith("B-TMPI-asa"):
        return Entry(record, FAMILY, "waiting", "all-to-all and all-gather exchange (ASA)")
    if "easgd" in record.id:
        return Entry(record, FAMILY, "waiting", "elastic averaging (EASGD)")
    if not nccl(record):
        return Entry(record, FAMILY, "unknown", "cluster or exchange strategy not stated, or cores not bound")
    if record.metric in ("compute_s_per_5120_images", "train_s_per_5120_images"):
        return Entry(record, FAMILY, "given", "compute seconds of its run")
    if record.metric != "comm_s_per_5120_images":
        return Entry(record, FAMILY, "other", f"not a time of its own: {record.metric}")
    base = compute.get(key_of(record))
    if base is None or not base.value or not record.value:
        return Entry(record, FAMILY, "unknown", "no compute seconds of its run, or no communication")
    gpus, batch = record.gpus or 1, int(record.batch)
    iterations = IMAGES / (gpus * batch)
    scenario = scenario_of(record, batch, IMAGES / gpus / base.value)
    name = f"tmpi {record.model}"
    given = f"compute seconds of the run ({base.id})"
    case = Case(LABEL, scenario, given, record.value / iterations, use_of(name), quantity="exposed")
    return Entry(record, FAMILY, "modelled", "", case)


def scenario_of(record: Record, batch: int, rate: float) -> dict[str, Any]:
    """One node of K80 boards: four GPUs to a socket, so a ring of eight crosses between sockets.

    Compute is that of the run itself, so no GPU is slower than what is given.
    """
    gpus = record.gpus or 1
    cluster: dict[str, Any] = {"nodes": 1, "gpus_per_node": gpus, "gpu": "k80", "gpu_spread": 0, "pcie": text("tmpi.pcie")}
    if gpus > 4:
        cluster |= {"node": "pcie-tree", "socket_bandwidth": text("tmpi.socket")}
    model = {**look(MODELS, record.model), "single_gpu_throughput": rate}
    return {"model": model, "batch_size": batch, "cluster": cluster, "strategy": {"name": "all-reduce", "overlap": False}}
