"""Megatron-LM's own pages (meg, msc) and DeepSpeed's (dsz): few rows say what a simulation needs.

Megatron-LM v1: batch 8 on 1 to 8 V100 of a DGX-2H (a faster make of the V100 of the catalog), activations recomputed.
"""

from __future__ import annotations

import re

from ..architectures import Architecture, architectures, narayanan
from ..cases import Entry
from ..constants import use_of
from ..parallel import NotRead, Reading, Setting, numbers
from ..parallel import entries as of_rows
from ..records import Record

NAMES = {"meg": "Megatron-LM", "msc": "Megatron-LM", "dsz": "DeepSpeed"}
HDR = {"bandwidth": "1600 Gbit/s", "efficiency": 0.93, "latency": "0.9 us"}


def claims(record: Record) -> bool:
    return record.set in NAMES


def entries(records: list[Record]) -> list[Entry]:
    found = []
    for name in ("meg", "msc", "dsz"):
        own = [r for r in records if r.set == name]
        found += of_rows(own, NAMES[name], {"meg": version_1, "msc": selene, "dsz": deepspeed}[name], lambda r: use_of("megatron-lm"), run_of)
    return found


def run_of(record: Record) -> tuple[object, ...]:
    return (record.model, record.strategy if record.set != "meg" else "", record.nodes, record.gpus, record.batch)


def version_1(record: Record) -> Reading:
    """Return what a row of Megatron-LM v1 says."""
    if not record.batch.isdigit():
        raise NotRead("the row does not state the batch")
    text = record.strategy.removeprefix("tensor parallel ")
    split = {"TP": 1} if text == "single GPU" else numbers(text, ("TP",), {r"global batch (\d+)": "global"})
    setting = Setting(int(record.batch), int(record.batch), tensor=split["TP"], recompute="full")
    return Reading(
        named(record.model), 1024, "fp16", setting, record.nodes or 0, record.gpus or 0,
        {"gpu": "v100-sxm2-32gb", "node": "nvswitch"}, narayanan, "tensor parallel, one node",
    )  # fmt: skip


def selene(record: Record) -> Reading:
    """Refuse: what the SC'21 paper's table leaves out decides the time."""
    raise NotRead("micro-batch and chunks per GPU are not stated" if "TP=" in record.strategy else "how the model was split is not stated")


def deepspeed(record: Record) -> Reading:
    """Return what a row of DeepSpeed on Azure says; only one states its batch and surely keeps its state on the GPUs."""
    model = re.fullmatch(r"(GPT 175B) seq (\d+)", record.model)
    if model is None or not record.batch.isdigit():
        raise NotRead("batch, or whether state lies in the host's memory, is not stated")
    gpus = (record.nodes or 0) * (record.gpus or 0)
    setting = Setting(int(record.batch) * gpus, int(record.batch), recompute="full", shard="full")
    return Reading(
        named(model[1]), int(model[2]), "fp16", setting, record.nodes or 0, record.gpus or 0,
        {"gpu": "a100-sxm-80gb", "node": "nvswitch", "network": HDR}, narayanan, "sharded parameters (ZeRO 3), several nodes",
    )  # fmt: skip


def named(name: str) -> Architecture:
    """Return a published architecture by name."""
    if name not in architectures():
        raise NotRead(f"model: {name}", "waiting")
    return architectures()[name]
