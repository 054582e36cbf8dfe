"""Rows that no family predicts yet, each with the reason. A strategy that gets built moves its line to a family of its own."""

from __future__ import annotations

from ..cases import Entry
from ..records import Record

ATC17 = "held by `poseidon-sim reproduce poseidon`"
#: (prefixes of the id, text in the strategy, state, reason); the first that fits counts
REASONS: tuple[tuple[tuple[str, ...], str, str, str], ...] = (
    (("P", "psd-"), "", "elsewhere", ATC17),
    (("B-FLLM",), "", "elsewhere", "conditions not stated: reproduce fusionllm"),
    (("S3-",), "", "elsewhere", "pipeline with data parallelism and offload: reproduce axonn"),
    (("S10-",), "", "elsewhere", "uneven micro-batches on unlike GPUs: reproduce poplar"),
    (("S6-",), "", "elsewhere", "sharded state and asynchronous parameter server, sizes not stated: reproduce ovi"),
    (("psg-",), "PowerSGD", "waiting", "low-rank compression (PowerSGD)"),
    (("psg-",), "", "waiting", "model: ResNet-18 and LSTM of PowerSGD"),
    (("S8-",), "", "elsewhere", "lazy all-reduce and coarse-grained sparsification: reproduce gradientflow"),
    (("S7-",), "", "elsewhere", "multi-rail multi-ring all-reduce, times to accuracy: reproduce ddl"),
    (("B-YOU",), "", "elsewhere", "elastic averaging: reproduce easgd"),
    (("B-FC",), "", "elsewhere", "times to accuracy: reproduce fire-caffe"),
    (("B-FRNN",), "", "elsewhere", "times of an epoch: reproduce frnn"),
    (("B-PDNN",), "", "elsewhere", "placement of an operator graph: reproduce par-dnn"),
    (("S4-",), "", "elsewhere", "FPGA pipeline: reproduce fpdeep"),
    (("S9-",), "", "elsewhere", "parameter counts, held by the tests of the models"),
    (("B-DDM", "B-TPA"), "", "other", "no training step is stated"),
    (("mamf-",), "", "other", "matrix products of one GPU"),
)
NAMES = {
    "P": "ATC'17", "psd": "ATC'17", "vtr": "vTrain", "vtrs": "vTrain", "bsc": "BigScience", "meg": "Megatron-LM", "mbr": "Megatron-Bridge",
    "msc": "Megatron-Core", "tgp": "torchgpipe", "llmf": "llm-foundry", "dsz": "DeepSpeed", "psg": "PowerSGD", "mlp": "MLPerf",
    "mamf": "ml-engineering", "mlen": "ml-engineering", "nct": "nccl-tests", "S3": "AxoNN", "S4": "FPDeep", "S6": "Ovi", "S7": "PowerAI DDL",
    "S8": "GradientFlow", "S9": "Poseidon-PDE", "S10": "Poplar",
    "B-YOU": "You et al.", "B-FC": "FireCaffe", "B-FRNN": "FRNN", "B-PDNN": "ParDNN", "B-FLLM": "FusionLLM", "B-DDM": "DDM", "B-TPA": "TPA-SCD",
}  # fmt: skip


def claims(record: Record) -> bool:
    return any(fits(record, prefixes, text) for prefixes, text, _, _ in REASONS)


def entries(records: list[Record]) -> list[Entry]:
    return [entry_of(record) for record in records]


def entry_of(record: Record) -> Entry:
    """Return the entry of one row."""
    state, reason = next((s, why) for prefixes, text, s, why in REASONS if fits(record, prefixes, text))
    return Entry(record, family_of(record), state, reason)


def fits(record: Record, prefixes: tuple[str, ...], text: str) -> bool:
    if prefixes[0] == "P" and record.id[:1] == "P" and record.id[1:2].isdigit():
        return True
    return record.id.startswith(tuple(p for p in prefixes if p != "P")) and text in record.strategy


def family_of(record: Record) -> str:
    """Return the name of a row's source."""
    if record.id[:1] == "P" and record.id[1:2].isdigit():
        return NAMES["P"]
    parts = record.id.split("-")
    key = "-".join(parts[:2]) if parts[0] == "B" else parts[0]
    return next((name for prefix, name in NAMES.items() if key == prefix or (key.startswith("B-") and key.startswith(prefix) and prefix != "P")), key)
