"""BigScience's dry runs for BLOOM (bsc): GPT of about 200 billion parameters on 8 to 384 A100, 4 Omni-Path links per node.

The rows name a size only; layers, width and heads are those of the section of the source that the row stands in
(big_science.csv: bigscience-workshop/bigscience, train/tr11-176B-ml/chronicles-prequel.md), and TFLOP/s confirm them.
Stated there too: activations recomputed, ZeRO 1 unless the row says otherwise, vocabulary 250k (padded: 250880).
"""

from __future__ import annotations

import csv
from functools import cache

import poseidon_sim as ps

from ..architectures import gpt, layers_only, narayanan
from ..cases import Entry
from ..constants import HERE, use_of
from ..parallel import NotRead, Reading, Setting, consecutive, numbers
from ..parallel import entries as of_rows
from ..records import Record

FAMILY = "BigScience"
VOCABULARY = 250_880
SEQUENCE = 2048
#: rows up to this one, and those without ZeRO (from another branch), used the calculator without attention and output layer
FIRST_CALCULATOR = 56
#: seconds and TFLOP/s of this run stand exchanged in the source (it is the run of 134.02 s of the table before)
EXCHANGED = frozenset({87, 88})
OMNI_PATH = {"bandwidth": "400 Gbit/s", "efficiency": 0.93, "latency": "1.5 us"}


def claims(record: Record) -> bool:
    return record.set == "bsc"


def entries(records: list[Record]) -> list[Entry]:
    return of_rows(records, FAMILY, read, lambda r: use_of("bigscience"), run_of)


def run_of(record: Record) -> tuple[object, ...]:
    """TFLOP/s and seconds of one run follow each other: an odd and the next even number; the first five state TFLOP/s only."""
    number = consecutive(record)
    return (number,) if number <= 5 else (number + 1) // 2 * 2,


@cache
def sections() -> dict[int, dict[str, str]]:
    """Return the line of big_science.csv by row number."""
    found: dict[int, dict[str, str]] = {}
    with open(HERE / "big_science.csv", newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            for number in range(int(row["first"]), int(row["last"]) + 1):
                if number in found:
                    raise ps.InputError(f"big_science.csv: row {number} stands in two sections; keep one")
                found[number] = row
    return found


def read(record: Record) -> Reading:
    """Return what a row and its section say."""
    number = consecutive(record)
    if number in EXCHANGED:
        raise NotRead("seconds and TFLOP/s stand exchanged in the source")
    if number not in sections():
        raise NotRead("its section in the source was not looked up")
    section = sections()[number]
    text = record.strategy.removeprefix("Megatron-DeepSpeed ")
    split = numbers(text, ("DP", "TP", "PP", "ZS"), {r"global batch (\d+)": "global", r'section "[^"]*"': ""})
    batch = int(section["global_batch"] or split["global"])
    architecture = gpt(record.model, int(section["layers"]), int(section["hidden"]), int(section["heads"]), VOCABULARY)
    nodes, gpus = record.nodes or 0, record.gpus or 0
    setting = Setting(
        batch, int(record.batch), tensor=split["TP"], pipeline=split["PP"], recompute="full", zero=split.get("ZS", 1),
    )  # fmt: skip
    stated = int(section["replicas"] or split["DP"])
    if setting.replicas(nodes * gpus) != stated:
        raise NotRead(f"DP={stated} where the GPUs leave {setting.replicas(nodes * gpus)}")
    return Reading(
        architecture, SEQUENCE, "bf16", setting, nodes, gpus, {"gpu": "a100-sxm-80gb", "node": "nvswitch", "network": OMNI_PATH},
        layers_only if number <= FIRST_CALCULATOR or setting.zero == 0 else narayanan, "tensor, pipeline and data parallel",
    )  # fmt: skip
