"""Lambda's GPU benchmark (lam): one host of 1 to 8 GPUs. The batch column is the whole host's (320, 640, 1280 for 1, 2, 4)."""

from __future__ import annotations

import re

from ..cases import Entry
from ..data_parallel import Table, Way, whole_batch
from ..data_parallel import entries as of_table
from ..models import TARGET, described, transformer_xl
from ..records import Record

WAYS = (("data-parallel NCCL", Way("all-reduce in buckets, overlapped", {"name": "all-reduce", "fusion": "25 MB"})),)
MODELS = (
    ("ResNet-50", {"name": "resnet50"}), ("BERT-base SQuAD", {"name": "bert-base", "sequence_length": 384}),
    ("BERT-large SQuAD", {"name": "bert-large", "sequence_length": 384}),
    ("Transformer-XL base", transformer_xl("base")), ("Transformer-XL large", transformer_xl("large")), ("SSD300", described("ssd300-resnet50")),
)  # fmt: skip
GPUS = (
    ("A100 80GB PCIe", "a100-pcie-80gb"), ("A100 40GB PCIe", "a100-pcie-40gb"), ("A100 80GB SXM4", "a100-sxm-80gb"),
    ("H100 80GB PCIe", "h100-pcie"), ("H100 80GB SXM5", "h100-sxm"), ("RTX 6000 Ada", "rtx-6000-ada"), ("RTX A6000", "rtx-a6000"),
    ("RTX 3090", "rtx-3090"), ("RTX 4090", "rtx-4090"), ("V100 16GB", "v100-sxm2-16gb"), ("Quadro RTX 8000", "quadro-rtx-8000"),
    ("A10", "a10"),
)  # fmt: skip


def cluster(record: Record) -> dict[str, object]:
    """SXM cards: NVLink (switched from A100 on). Others talk over PCIe; RTX A6000 and 3090 bridges are not stated, so not assumed."""
    if "V100" in record.gpu:
        return {"node": "nvlink-ring"}
    return {"node": "nvswitch"} if "SXM" in record.gpu else {"node": "pcie"}


def same(record: Record) -> tuple[object, ...]:
    """Rows of one GPU, model and precision, whoever rented it out."""
    return (record.gpu, record.model, record.precision, re.sub(r"\d+", "", record.metric))


def batch(record: Record) -> int | None:
    whole = whole_batch(record)
    return None if whole is None or whole % (record.gpus or 1) else whole // (record.gpus or 1)


def tokens(record: Record) -> int | None:
    return TARGET[record.model.split()[-1]] if record.model.startswith("Transformer-XL") else None


TABLE = Table("Lambda", WAYS, MODELS, GPUS, cluster, same, batch, tokens=tokens)


def claims(record: Record) -> bool:
    return record.set == "lam"


def entries(records: list[Record]) -> list[Entry]:
    return of_table(TABLE, records)
