"""One module per family of measurements; each says which rows are its own and what becomes of them."""

from __future__ import annotations

from ..cases import Entry
from ..records import Record
from . import (
    big_science,
    chainermn,
    collectives,
    ddl_benchmarks,
    deep_learning_examples,
    dlperf,
    dlperf_gpt,
    horovod,
    lambda_labs,
    listed,
    llm_foundry,
    megatron_bridge,
    megatron_lm,
    mlperf,
    shi,
    tensorflow,
    tensorpack,
    theano_mpi,
    torchgpipe,
    vtrain,
)

#: in this order; `listed` takes what no other claims
FAMILIES = (
    ddl_benchmarks, tensorflow, deep_learning_examples, lambda_labs, dlperf, horovod, tensorpack, theano_mpi, shi, chainermn,
    vtrain, llm_foundry, big_science, megatron_bridge, megatron_lm, dlperf_gpt,
    mlperf, collectives, torchgpipe, listed,
)  # fmt: skip


def entries(records: list[Record]) -> list[Entry]:
    """Return one entry for every record, in the order of the records."""
    found: dict[tuple[str, str], Entry] = {}
    left = list(records)
    for family in FAMILIES:
        own = [record for record in left if family.claims(record)]
        left = [record for record in left if not family.claims(record)]
        for entry in family.entries(own):
            found[(entry.record.corpus, entry.record.id)] = entry
    return [found[(record.corpus, record.id)] for record in records if (record.corpus, record.id) in found]
