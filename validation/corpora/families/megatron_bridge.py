"""NVIDIA's Megatron-Bridge performance pages (mbr): dense Llama 3 on H100, B200 and GB200; mixtures of experts wait for a model.

What the rows do not say is the recipes' own (NVIDIA-NeMo/Megatron-Bridge, scripts/performance/configs): no recomputation,
sequence parallelism beside tensor parallelism, distributed optimizer, gradients reduced beside backward. 64 of the 72 GPUs of
an NVLink domain count as one node, 400 Gbit/s per GPU leave it. FP8 halves what is sent too, which the software does only in part.
"""

from __future__ import annotations

import re

from ..architectures import architectures, bridge
from ..cases import Entry
from ..constants import use_of
from ..parallel import NotRead, Reading, Setting, numbers
from ..parallel import entries as of_rows
from ..records import Record

FAMILY = "Megatron-Bridge"
MODEL = re.compile(r"(.+?) seq (\d+)")
KEYS = ("FSDP", "TP", "PP", "CP", "VP", "EP", "GA")
PRECISIONS = {"BF16": "bf16", "FP8": "fp8", "FP8-CS": "fp8", "FP8-MX": "fp8", "MXFP8": "fp8"}
GPUS = {"H100": "h100-sxm", "B200": "b200-sxm", "GB200": "gb200"}
#: models that are no dense transformer
OTHERS = (
    ("DeepSeek", "mixture of experts with latent attention"), ("Qwen3_", "mixture of experts"), ("GPT OSS", "mixture of experts"),
    ("Nemotron_3", "Mamba layers and mixture of experts"),
)  # fmt: skip
DOMAIN = 64


def claims(record: Record) -> bool:
    return record.set == "mbr"


def entries(records: list[Record]) -> list[Entry]:
    return of_rows(records, FAMILY, read, lambda r: use_of("megatron-bridge"))


def read(record: Record) -> Reading:
    """Return what a row says."""
    model = MODEL.fullmatch(record.model)
    if model is None:
        raise NotRead(f"model not understood: {record.model[:40]}")
    for start, what in OTHERS:
        if model[1].startswith(start):
            raise NotRead(f"model: {what}", "waiting")
    if model[1] not in architectures():
        raise NotRead(f"model: {model[1]}", "waiting")
    if record.strategy.startswith("LoRA"):
        raise NotRead("low-rank fine-tuning: backward leaves out the gradients of most weights", "waiting")
    if record.precision == "NVFP4":
        raise NotRead("gpu: no FP4 rate in the catalog", "waiting")
    if record.precision not in PRECISIONS:
        raise NotRead("the row does not state the precision")
    setting = _setting(record)
    nodes, gpus, network = place(record)
    return Reading(
        architectures()[model[1]], int(model[2]), PRECISIONS[record.precision], setting, nodes, gpus,
        {"gpu": GPUS[record.gpu], "node": "nvswitch", "network": network}, bridge,
        "sharded parameters (FSDP)" if setting.shard else "tensor, pipeline and data parallel",
    )  # fmt: skip


def _setting(record: Record) -> Setting:
    split = numbers(record.strategy.removeprefix("SFT "), KEYS, {r"global batch (\d+)": "global"})
    if not record.batch.isdigit():
        raise NotRead("the row does not state the micro-batch")
    micro, total = int(record.batch), (record.nodes or 0) * (record.gpus or 0)
    if split.get("FSDP"):
        return Setting(split["global"], micro, shard="full")
    setting = Setting(
        split["global"], micro, tensor=split["TP"], pipeline=split["PP"], context=split["CP"],
        interleave=split.get("VP", 1), zero=1, overlap=True, sequence_parallel=split["TP"] > 1,
    )  # fmt: skip
    passes = split["global"] // (setting.replicas(total) * micro)
    if "GA" in split and split["GA"] not in (passes, passes * 2, passes // 2):
        raise NotRead(f"GA={split['GA']} where the batch leaves {passes}")
    return setting


def place(record: Record) -> tuple[int, int, dict[str, object]]:
    """Return nodes, GPUs per node and network: an NVLink domain of GB200 boards is one node."""
    nodes, gpus = record.nodes or 0, record.gpus or 0
    if record.gpu == "GB200":
        total = nodes * gpus
        gpus = min(total, DOMAIN)
        if total % gpus:
            raise NotRead(f"{total} GPUs are no multiple of {DOMAIN}")
        nodes = total // gpus
    return nodes, gpus, {"bandwidth": f"{400 * gpus} Gbit/s", "efficiency": 0.94, "latency": "0.9 us"}
