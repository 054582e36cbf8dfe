"""MLPerf training logs (mlp): throughput of ResNet-50 in MXNet; times to accuracy are no step times, other models wait."""

from __future__ import annotations

import re
from dataclasses import replace

from ..cases import Entry
from ..data_parallel import Table, Way, whole_batch
from ..data_parallel import entries as of_table
from ..records import Record

WAYS = (("vendor-tuned", Way("all-reduce in buckets, overlapped", {"name": "all-reduce", "fusion": "25 MB"})),)
MODELS = (("MLPerf resnet", {"name": "resnet50"}), ("MLPerf ssd v2", None), ("MLPerf ssd", None))
GPUS = (("A100-SXM4-80GB", "a100-sxm-80gb"), ("A100-PCIE-80GB", "a100-pcie-80gb"), ("H100-SXM5-80GB", "h100-sxm"))
#: a rate 17 times that of one node, GPU for GPU
IMPOSSIBLE = "mlp-0123"


def cluster(record: Record) -> dict[str, object]:
    """DGX A100 and Azure's like: 8 HDR ports; DGX H100: 8 NDR ports (the rows' own figure)."""
    if "PCIE" in record.gpu:
        return {"node": "pcie"}
    rate = f"{record.bandwidth_gbps or 1600:g} Gbit/s"
    return {"node": "nvswitch", "network": {"bandwidth": rate, "efficiency": 0.93, "latency": "0.9 us"}}


def same(record: Record) -> tuple[object, ...]:
    """Runs of one submitter and round; their batch per GPU differs, the one-node run's rate serves all."""
    return (record.system.split()[0], record.model, record.gpu)


TABLE = Table(
    "MLPerf", WAYS, tuple(MODELS), GPUS, cluster, same,  # type: ignore[arg-type]
    batch=lambda record: whole_batch(replace(record, batch=re.sub(r"\.0$", "", record.batch))), precision={"mixed": "fp16"},
)  # fmt: skip


def claims(record: Record) -> bool:
    return record.set == "mlp"


def entries(records: list[Record]) -> list[Entry]:
    """Return one entry a row."""
    found = []
    for record in records:
        if record.metric == "time_to_train_min":
            found.append(Entry(record, "MLPerf", "other", "time to accuracy (MLPerf)"))
        elif record.id == IMPOSSIBLE:
            found.append(Entry(record, "MLPerf", "unknown", "the log's rate is 17 times that of one node, GPU for GPU"))
    done = {entry.record.id for entry in found}
    return [*found, *of_table(TABLE, [record for record in records if record.id not in done])]
