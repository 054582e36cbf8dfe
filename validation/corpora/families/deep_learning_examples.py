"""NVIDIA DeepLearningExamples (dle): one-GPU and multi-GPU rows of DGX machines, with and without gradient accumulation.

A pair of accumulation counts is (mixed precision, other) with a comma, in TensorFlow's pages, and (other, mixed precision) with
'and', in PyTorch's and PaddlePaddle's; batch x passes x GPUs comes out at about the 32 or 64 thousand sequences that the pages state.
PyTorch's convolutional networks state their batch in configs.yml beside the README.
"""

from __future__ import annotations

import re

from ..cases import Entry
from ..data_parallel import Table, Way, whole_batch
from ..data_parallel import entries as of_table
from ..models import TARGET, bart, described, electra, transformer_big, transformer_xl
from ..records import Record

WAYS = (
    ("; grad accumulation", Way("all-reduce in buckets, gradients accumulated", {"name": "all-reduce", "fusion": "25 MB"})),
    ("data-parallel NCCL", Way("all-reduce in buckets, overlapped", {"name": "all-reduce", "fusion": "25 MB"})),
)
#: texts of a row's model and its sequence length in one: '<model> <sequence>'
MODELS = (
    ("SE-ResNeXt101-32x4d", described("se-resnext101-32x4d")), ("ResNeXt101-32x4d", described("resnext101-32x4d")),
    ("SSD300-ResNet50", described("ssd300-resnet50")), ("ResNet50", {"name": "resnet50"}),
    ("Transformer-XL [Base", transformer_xl("base")), ("Transformer-XL [Large", transformer_xl("large")),
    ("Transformer-big", transformer_big()),
    ("BERT-Large pre-training seq 128", {"name": "bert-large-pretraining", "sequence_length": 128}),
    ("BERT-Large pre-training seq 512", {"name": "bert-large-pretraining", "sequence_length": 512}),
    ("ELECTRA-base pre-training seq 128", electra(128, generator=True)),
    ("ELECTRA-base pre-training seq 512", electra(512, generator=True)),
    ("ELECTRA-base fine-tuning seq 384", electra(384, generator=False)),
    ("BART pre-training seq 128", bart(128)), ("BART pre-training seq 512", bart(512)),
    ("seq ", None), ("BART", None), ("BERT-Large", {"name": "bert-large", "sequence_length": 384}),
)  # fmt: skip
GPUS = (
    ("V100-16GB", "v100-sxm2-16gb"), ("V100-32GB", "v100-sxm2-32gb"), ("V100-SXM3", "v100-sxm2-32gb"),
    ("A100-80GB", "a100-sxm-80gb"), ("A100-40GB", "a100-sxm-40gb"),
)  # fmt: skip
#: samples per GPU of PyTorch/Classification/ConvNets/configs.yml: (model, machine, mixed precision)
CONFIGURED = {
    ("ResNet50-v1.5", "DGX A100", True): 256, ("ResNet50-v1.5", "DGX A100", False): 256,
    ("ResNet50-v1.5", "DGX-1", True): 256, ("ResNet50-v1.5", "DGX-1", False): 112,
    ("ResNeXt101-32x4d", "DGX A100", True): 128, ("ResNeXt101-32x4d", "DGX A100", False): 128,
    ("ResNeXt101-32x4d", "DGX-1", True): 128, ("ResNeXt101-32x4d", "DGX-1", False): 64,
    ("SE-ResNeXt101-32x4d", "DGX A100", True): 128, ("SE-ResNeXt101-32x4d", "DGX A100", False): 128,
    ("SE-ResNeXt101-32x4d", "DGX-1", True): 112, ("SE-ResNeXt101-32x4d", "DGX-1", False): 64,
}  # fmt: skip
PASSES = re.compile(r"; grad accumulation (\d+) ?(,|and) (\d+)$")


def cluster(record: Record) -> dict[str, object]:
    """DGX-1: NVLink rings; DGX-2 and DGX A100: NVSwitch; several nodes: one HDR port per GPU (platform specification)."""
    node: dict[str, object] = {"node": "nvlink-ring" if "DGX-1" in record.system else "nvswitch"}
    if (record.nodes or 1) > 1:
        rate = "800 Gbit/s" if "DGX-2" in record.system else "1600 Gbit/s"
        return {**node, "network": {"bandwidth": rate, "efficiency": 0.93, "latency": "5 us"}}
    return node


def mixed(record: Record) -> bool:
    return record.precision == "amp-fp16"


def passes(record: Record) -> int | None:
    """Return how many forward and backward passes make a step; None for a strategy that is no pair of counts.

    >>> from dataclasses import replace
    >>> from validation.corpora.records import read_all
    >>> row = next(r for r in read_all() if r.id == "dle-0322")
    >>> row.strategy, row.precision, passes(row)
    ('data-parallel NCCL all-reduce; grad accumulation 4096, 8192', 'amp-fp16', 4096)
    """
    if "grad accumulation" not in record.strategy:
        return 1
    found = PASSES.search(record.strategy)
    if found is None:
        return None
    first = mixed(record) == (found[2] == ",")
    return int(found[1] if first else found[3])


def micro_batch(record: Record) -> int | None:
    """Return the samples of one pass on a GPU. Single-node pages of PyTorch and PaddlePaddle state those of a whole step."""
    stated, times = whole_batch(record), passes(record)
    if stated is None or times is None or times == 1:
        return stated if times else None
    whole_step = stated >= 2048
    return stated // times if whole_step and stated % times == 0 else None if whole_step else stated


def batch(record: Record) -> int | None:
    """Return the samples per GPU of a whole step."""
    if record.batch == "see README" and "PyTorch/Classification" in record.source:
        return CONFIGURED.get((record.model, record.system.split(";")[0], mixed(record)))
    either = re.fullmatch(r"(\d+)/(\d+)", record.batch)
    if either and record.model == "Transformer-big":
        return int(either[1 if mixed(record) else 2])
    one, times = micro_batch(record), passes(record)
    return one * times if one and times else None


def section(record: Record) -> tuple[object, ...]:
    """Rows of one README table: machine, container, section, model, precision, batch and GPU."""
    return (record.system, record.source, record.model, record.precision, record.batch, record.gpu)


def tokens(record: Record) -> int | None:
    """Return the tokens of one sample where a row counts tokens."""
    if record.model.startswith("Transformer-XL"):
        return TARGET["base" if "[Base" in record.model else "large"]
    return 1 if record.model == "Transformer-big" else None


TABLE = Table(
    "DeepLearningExamples", WAYS, tuple((k, v) for k, v in MODELS), GPUS, cluster, section, batch,  # type: ignore[misc]
    micro_batch=lambda record: micro_batch(record) if passes(record) != 1 else None, tokens=tokens,
    model_text=lambda record: plain(record.model),
)  # fmt: skip


def claims(record: Record) -> bool:
    return record.set == "dle"


def entries(records: list[Record]) -> list[Entry]:
    return of_table(TABLE, records)


def plain(model: str) -> str:
    """Return a model's name with the kind of its training, without the README's section.

    >>> plain("BERT-Large [Pre-training NVIDIA DGX-1 With 32G] seq 128")
    'BERT-Large pre-training seq 128'
    """
    found = re.fullmatch(r"(\S+) \[(Pre-training|Fine-tuning) [^\]]*\](.*)", model)
    return f"{found[1]} {found[2].lower()}{found[3]}" if found else model
