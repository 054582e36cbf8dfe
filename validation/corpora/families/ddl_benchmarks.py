"""HKBU's ddl-benchmarks (hkbu): 1 to 8 nodes of 4 RTX 2080 Ti, three networks, all-reduce and BytePS with CPU hosts of their own.

The number of BytePS's servers is the number of worker nodes, on other hosts; one node alone uses none over the network.
The compute time of a run of several GPUs is taken from the one-node run of the all-reduce without overlap on 10 GbE (its
own communication taken off): BERT-Base computes 19 % longer there than on one GPU alone, whatever the strategy.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import poseidon_sim as ps

from ..cases import Case, Entry, simulated
from ..constants import text, use_of
from ..data_parallel import Way, look, rate_for
from ..records import Record
from ..systems import FREE_SUM, BytePS

PARTITION = 4_096_000.0
#: partition and credit of 4 and 16 million parameters: BYTESCHEDULER_PARTITION and _CREDIT in the benchmark's own script
SCHEDULED = {"partition_size": "16 MB", "credit": 4}
WAYS = (
    ("PS (BytePS) + ByteScheduler", "priority scheduling over BytePS's servers"),
    ("ring all-reduce + ByteScheduler", Way("ByteScheduler over all-reduce", {"name": "byte-scheduler", **SCHEDULED})),
    ("PS (BytePS) + wait-free", Way("BytePS, overlapped", {"name": "parameter-server"})),
    ("PS (BytePS), no overlap", Way("BytePS after backward", {"name": "parameter-server"})),
    ("NCCL) + wait-free", Way("all-reduce per tensor, overlapped", {"name": "all-reduce"})),
    ("NCCL), no overlap", Way("one all-reduce after backward, ring", {"name": "all-reduce", "fusion": "all", "overlap": False})),
    ("merged-gradient", Way("merged gradients (MG-WFBP)", {"name": "mg-wfbp"})),
)
MODELS = (
    ("ResNet-50", {"name": "resnet50"}), ("BERT-Base", {"name": "bert-base-pretraining", "sequence_length": 64}),
    ("BERT-Large", {"name": "bert-large-pretraining", "sequence_length": 64}),
)  # fmt: skip
FAMILY = "ddl-benchmarks"
#: start-up and byte time by which the benchmark's own software merges without RDMA, by GPUs, and its least message
#: (ddl-benchmarks@565964a, mgwfbp/hv_distributed_optimizer.py, p_alpha_beta_10Gbps; a message under 8192 elements always waits)
OWN_FIGURES = {8: (5.230272768511732e-4, 8.570746975492128e-10), 16: (9.080981007148093e-4, 7.395651186836712e-10), 32: (3 * 1.3476410788581382e-3, 8.643300782166769e-10)}
OWN_LEAST = 4.0 * 8192


def claims(record: Record) -> bool:
    return record.set == "hkbu"


def wire(record: Record) -> str:
    """Return the short name of a row's network."""
    return record.network.split(" (")[0].replace(" with TCP/IP", "" if record.network.startswith("10GbE") else " TCP").replace(" with", "")


def set_of(record: Record) -> str:
    """Return the set that is fitted or predicted as a whole: model and network."""
    return f"hkbu {look(MODELS, record.model)['name'].replace('-pretraining', '')} {wire(record)}"


def network(record: Record) -> dict[str, Any]:
    """Return the network: fitted for TCP, from the catalog for RDMA."""
    if "RDMA" in record.network:
        return {"link": "infiniband-edr"}
    name = "10gbe" if record.network.startswith("10GbE") else "100gbe"
    rate = "10 Gbit/s" if name == "10gbe" else "100 Gbit/s"
    return {"bandwidth": rate, "efficiency": text(f"hkbu.{name}.efficiency"), "latency": text(f"hkbu.{name}.latency")}


def scenario(record: Record, way: Way, rate: float) -> dict[str, Any]:
    """Return a row's scenario."""
    cluster: dict[str, Any] = {
        "nodes": record.nodes, "gpus_per_node": record.gpus, "gpu": "rtx-2080-ti", "pcie": text("hkbu.pcie"),
        "peer_latency": text("hkbu.peer_latency"), "network": {**network(record), "collective_overhead": text("hkbu.collective_overhead")},
    }  # fmt: skip
    if way.label.startswith("BytePS"):
        cluster["host"] = {"reduce_bandwidth": f"{FREE_SUM} B/s"}
        if "RDMA" not in record.network:
            cluster["host"]["channel_bandwidth"] = text("hkbu.tcp_channel")
    if record.nodes == 1:
        del cluster["network"]
    model = {**look(MODELS, record.model), "single_gpu_throughput": rate}
    return {"model": model, "batch_size": int(record.batch), "cluster": cluster, "strategy": way.strategy}


def entries(records: list[Record]) -> list[Entry]:
    """Return one entry a row."""
    bases = {look(MODELS, r.model)["name"]: r for r in records if is_base(r)}
    return [entry_of(record, bases) for record in records]


def is_base(record: Record) -> bool:
    """Whether a row is the one-node run that gives the compute time of its model."""
    return record.nodes == 1 and record.gpus == 4 and record.network.startswith("10GbE") and "NCCL), no overlap" in record.strategy


def entry_of(record: Record, bases: dict[str, Record]) -> Entry:
    """Return what becomes of one row."""
    way = look(WAYS, record.strategy)
    if record.strategy == "single GPU":
        return Entry(record, FAMILY, "other", "one-GPU rate; the one-node run gives the compute time of several GPUs")
    if isinstance(way, str):
        return Entry(record, FAMILY, "waiting", way)
    base = bases.get(look(MODELS, record.model)["name"])
    if base is None:
        return Entry(record, FAMILY, "unknown", "no one-node run of its model")
    if record.id == base.id:
        return Entry(record, FAMILY, "given", "the rate of one node of 4 GPUs")
    rate = compute_rate(base)
    strategy, partition = None, None
    if way.label.startswith("BytePS"):
        servers: int | str = "colocated" if record.nodes == 1 else int(record.nodes or 1)
        key_time = float(str(text("hkbu.key_time")).split()[0]) * 1e-3
        strategy, partition = BytePS(servers=servers, overlap=way.label.endswith("overlapped"), key_time=key_time), PARTITION
    measured = int(record.batch) * (record.nodes or 1) * (record.gpus or 1) / (record.value or 1.0)
    group = (FAMILY, record.model, wire(record), record.nodes)
    case = Case(
        way.label, scenario(record, way, rate), f"the rate of one node of 4 GPUs ({base.id})", measured, use_of(set_of(record)),
        group, strategy, partition,
    )  # fmt: skip
    return Entry(record, FAMILY, "modelled", "", case)


def with_own_figures(case: Case, gpus: int) -> float:
    """Return the predicted step time of a merging run that merges by the software's own figures instead of the true cost."""
    startup_time, byte_time = OWN_FIGURES[gpus]
    return simulated(replace(case, strategy=ps.MergedGradient(startup_time=startup_time, byte_time=byte_time, least_size=OWN_LEAST)))


@cache
def compute_rate(base: Record) -> float:
    """Return the samples/s at which one of several GPUs of a node computes."""
    way = look(WAYS, base.strategy)
    seconds = int(base.batch) * 4 / (base.value or 1.0)
    return rate_for(scenario(base, way, 1.0), seconds, 4)
