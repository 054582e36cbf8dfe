"""Oneflow's DLPerf, GPT (dlpgpt): OneFlow and Megatron-LM on one host of 8 V100, split over data and tensors.

16 heads and recomputed activations: DLPerf, Megatron-LM/scripts (80718877). The one-GPU run of a system and model is given, so
the forward passes that are repeated are in its rate already.
"""

from __future__ import annotations

import re
from dataclasses import replace

from ..architectures import gpt, narayanan
from ..cases import Entry
from ..constants import use_of
from ..parallel import NotRead, Reading, Setting, numbers
from ..parallel import entries as of_rows
from ..records import Record

FAMILY = "DLPerf"
MODEL = re.compile(r"GPT \d+M \(hidden (\d+), layers (\d+), seq (\d+), vocab (\d+)\)")
HEADS = {1536: 16, 768: 12}
PHRASES = {r"global batch (\d+)": "global", "batch_per_gpu column is per DP rank": ""}


def claims(record: Record) -> bool:
    return record.set == "dlpgpt"


def entries(records: list[Record]) -> list[Entry]:
    """Return one entry a row; a run on one GPU is given, or a rate of its own where no larger run shares its model."""
    rates = {(r.system, r.model): r for r in records if is_base(r)}
    larger = {(r.system, r.model) for r in records if r.gpus != 1}
    found = []
    for entry in of_rows(records, FAMILY, lambda r: read(r, rates), lambda r: use_of("dlperf gpt"), run_of):
        alone = (entry.record.system, entry.record.model) not in larger
        if entry.record.gpus != 1 or entry.state != "modelled":
            found.append(entry)
        elif alone:
            found.append(Entry(entry.record, FAMILY, "other", "one-GPU rate, no larger run in its set: compute only"))
        else:
            found.append(replace(entry, state="given", reason="the one-GPU rate", case=None))
    return found


def is_base(record: Record) -> bool:
    return record.gpus == 1 and record.metric == "sequences_per_s"


def run_of(record: Record) -> tuple[object, ...]:
    """Sequences/s and TFLOP/s of one run follow each other: an odd and the next even number."""
    return ((int(record.id.rsplit("-", 1)[1]) + 1) // 2,)


def read(record: Record, rates: dict[tuple[str, str], Record]) -> Reading:
    """Return what a row says, with the measured rate of one GPU of its system."""
    model = MODEL.fullmatch(record.model)
    if model is None or int(model[1]) not in HEADS:
        raise NotRead(f"model not understood: {record.model[:60]}")
    split = numbers(record.strategy, ("DP", "TP", "PP"), PHRASES)
    base = rates.get((record.system, record.model))
    if base is None or base.value is None:
        raise NotRead("no one-GPU run in its set to take the compute time from")
    hidden, layers, sequence, vocabulary = (int(model[i]) for i in (1, 2, 3, 4))
    setting = Setting(split["global"], split["global"] // split["DP"], tensor=split["TP"], pipeline=split["PP"])
    return Reading(
        gpt(record.model, layers, hidden, HEADS[hidden], vocabulary), sequence, "fp16", setting, record.nodes or 0, record.gpus or 0,
        {"gpu": "v100-sxm2-16gb", "node": "nvlink-ring"}, narayanan, "data and tensor parallel, one node",
        given=f"the one-GPU rate ({base.id})", extra={"single_gpu_throughput": base.value},
    )  # fmt: skip
