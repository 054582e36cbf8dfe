"""vTrain's ground truth (vtrs: one node of 8 A100; vtr: 64 nodes): Megatron-DeepSpeed, GPT of several widths, every split that ran.

What the rows do not say is the simulator's own default at the same commit (src/config.py): 1F1B, no bucketed gradients (so no
overlap), vocabulary 50257, here padded to a multiple of 128 x TP as Megatron pads it; 800 Gbit/s between nodes. Activations are
recomputed on 64 nodes (they would not fit otherwise) but not on one node: its largest batches would need 173 TFLOP/s of an
A100 at a width of 2048 (a choice made on the fitted set).
"""

from __future__ import annotations

import re

from ..architectures import Architecture, gpt
from ..cases import Entry
from ..constants import use_of
from ..parallel import NotRead, Reading, Setting, numbers
from ..parallel import entries as of_rows
from ..records import Record

FAMILY = "vTrain"
ONE_NODE = r"GPT hidden (?P<hidden>\d+), (?P<heads>\d+) heads, (?P<layers>\d+) layers, sequence (?P<sequence>\d+)"
SEVERAL = r"GPT hidden (?P<hidden>\d+) heads (?P<heads>\d+) layers (?P<layers>\d+) seq (?P<sequence>\d+) \([\d.]+B\)"
HDR = {"bandwidth": "800 Gbit/s", "efficiency": 0.93, "latency": "0.9 us"}


def claims(record: Record) -> bool:
    return record.set in ("vtr", "vtrs")


def entries(records: list[Record]) -> list[Entry]:
    return of_rows(records, FAMILY, read, use, lambda r: (r.id,))


def use(record: Record) -> str:
    return use_of("vtrain one node" if record.set == "vtrs" else "vtrain several nodes")


def read(record: Record) -> Reading:
    """Return what a row says."""
    split = _split(record)
    architecture, sequence = _model(record.model, split["TP"])
    nodes, gpus = record.nodes or 0, record.gpus or 0
    setting = Setting(
        split["global"], split["micro"], tensor=split["TP"], pipeline=split["PP"], recompute="none" if nodes == 1 else "full",
    )  # fmt: skip
    if setting.replicas(nodes * gpus) != split["DP"]:
        raise NotRead(f"DP={split['DP']} where the GPUs leave {setting.replicas(nodes * gpus)}")
    return Reading(
        architecture, sequence, "fp16", setting, nodes, gpus, {"gpu": "a100-sxm-80gb", "node": "nvswitch", "network": HDR}, None,
        f"tensor and pipeline parallel, {'one node' if nodes == 1 else f'{nodes} nodes'}",
    )  # fmt: skip


def _model(text: str, tensor: int) -> tuple[Architecture, int]:
    """Return the architecture and the sequence length."""
    found = re.fullmatch(ONE_NODE, text) or re.fullmatch(SEVERAL, text)
    if found is None:
        raise NotRead(f"model not understood: {text[:60]}")
    multiple = 128 * tensor
    vocabulary = -(-50257 // multiple) * multiple
    return gpt(text, int(found["layers"]), int(found["hidden"]), int(found["heads"]), vocabulary), int(found["sequence"])


def _split(record: Record) -> dict[str, int]:
    """Return TP, PP, DP, micro and global batch."""
    text = record.strategy.removeprefix("Megatron-DeepSpeed ")
    both = re.fullmatch(r"(TP=\d+ DP=\d+ PP=\d+); micro batch (\d+), global batch (\d+)", text)
    if both:
        return {**numbers(both[1], ("TP", "DP", "PP")), "micro": int(both[2]), "global": int(both[3])}
    found = numbers(text, ("TP", "DP", "PP"), {r"global batch (\d+)": "global"})
    if not record.batch.isdigit():
        raise NotRead("the row does not state the micro-batch")
    return {**found, "micro": int(record.batch)}
