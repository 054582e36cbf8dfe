"""Rows of split models: what is read is read whole, units convert by the source's own formula, nothing is guessed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

import poseidon_sim as ps
from validation.corpora import architectures, cases, constants, models, parallel, records
from validation.corpora.architectures import bridge, gpt, layers_only, mosaic, narayanan
from validation.corpora.families import (
    big_science,
    collectives,
    deep_learning_examples,
    dlperf_gpt,
    entries,
    llm_foundry,
    megatron_bridge,
    megatron_lm,
    mlperf,
    torchgpipe,
    vtrain,
)
from validation.corpora.parallel import NotRead, Setting, numbers
from validation.corpora.records import Record


@cache
def by_id() -> dict[str, Record]:
    return {r.id: r for r in records.read_all()}


@cache
def of_family(module: object) -> tuple[cases.Entry, ...]:
    own = [r for r in by_id().values() if module.claims(r)]  # type: ignore[attr-defined]
    return tuple(module.entries(own))  # type: ignore[attr-defined]


# -- texts are read whole or refused -------------------------------------------------------------------------------


def test_pairs_and_phrases_are_read() -> None:
    found = numbers('DP=8 TP=4 PP=12; global batch 512; section "Re-do"', ("DP", "TP", "PP"), {r"global batch (\d+)": "global", r'section "[^"]*"': ""})
    assert found == {"DP": 8, "TP": 4, "PP": 12, "global": 512}


@pytest.mark.parametrize("text", ["TP=8 XP=2", "TP=8 fast", "TP=x", "TP=8 TP=4", "TP=8; global batch many"])
def test_what_is_not_known_is_refused_with_its_words(text: str) -> None:
    with pytest.raises(NotRead, match="TP"):
        numbers(text, ("TP", "PP"), {r"global batch (\d+)": "global"})


def test_every_row_of_vtrain_says_again_what_was_read() -> None:
    """TP, DP, PP, micro and global batch written back from the setting give the row's text, all 1,127 times."""
    for entry in of_family(vtrain):
        record = entry.record
        setting = vtrain.read(record).setting
        gpus = (record.nodes or 0) * (record.gpus or 0)
        data = setting.replicas(gpus)
        if record.set == "vtrs":
            text = f"TP={setting.tensor} DP={data} PP={setting.pipeline}; micro batch {setting.micro_batch}, global batch {setting.global_batch}"
        else:
            text = f"Megatron-DeepSpeed DP={data} TP={setting.tensor} PP={setting.pipeline}; global batch {setting.global_batch}"
            assert int(record.batch) == setting.micro_batch
        assert text == record.strategy


def test_a_row_whose_figures_contradict_each_other_is_unknown() -> None:
    row = by_id()["vtrs-0002"]
    (entry,) = vtrain.entries([replace(row, gpus=6)])
    assert entry.state == "unknown" and "does not divide the 6 GPUs" in entry.reason
    (entry,) = vtrain.entries([replace(row, strategy=row.strategy.replace("DP=2", "DP=4"))])
    assert entry.state == "unknown" and "DP=4" in entry.reason
    (entry,) = llm_foundry.entries([replace(by_id()["llmf-0111"], strategy="FSDP FULL_SHARD; act ckpt True; offload False; grad accum 3; global batch 2048")])
    assert entry.state == "unknown" and "3 passes of 8 on 64 GPUs make 1536" in entry.reason
    (entry,) = llm_foundry.entries([replace(by_id()["llmf-0111"], strategy="FSDP HYBRID_SHARD")])
    assert entry.state == "unknown" and "HYBRID_SHARD" in entry.reason


def test_a_batch_that_does_not_divide_is_refused() -> None:
    with pytest.raises(NotRead, match="no multiple of 4 replicas x micro-batch 2"):
        Setting(12, 2, tensor=2).replicas(8)


def test_states_of_the_families_are_counted() -> None:
    """Who reads fewer or more rows than these has changed a reader: look at the reasons before changing a number here."""
    expected = {
        vtrain: {"modelled": 1127},
        llm_foundry: {"modelled": 139, "elsewhere": 34},
        big_science: {"modelled": 71, "elsewhere": 66, "unknown": 2},
        megatron_bridge: {"modelled": 33, "elsewhere": 33, "waiting": 217, "unknown": 6},
        megatron_lm: {"modelled": 5, "elsewhere": 5, "unknown": 31},
        dlperf_gpt: {"modelled": 12, "given": 2, "elsewhere": 16, "other": 2},
        mlperf: {"modelled": 8, "given": 5, "other": 128, "waiting": 65, "unknown": 2},
        collectives: {"modelled": 48, "given": 3, "waiting": 25, "elsewhere": 15, "unknown": 4, "other": 4},
        torchgpipe: {"modelled": 4, "given": 1, "waiting": 14},
        deep_learning_examples: {"modelled": 333, "given": 169, "unknown": 33, "waiting": 18, "other": 8},
    }
    for module, states in expected.items():
        assert Counter(e.state for e in of_family(module)) == states, module.__name__  # type: ignore[attr-defined]


def test_three_rows_in_five_are_predicted_or_given() -> None:
    found = Counter(e.state for e in entries(list(by_id().values())))
    assert (found["modelled"] + found["given"]) / found.total() >= 0.60


# -- units ---------------------------------------------------------------------------------------------------------


def reading(record: Record) -> parallel.Reading:
    rates = {(r.system, r.model): r for r in by_id().values() if r.set == "dlpgpt" and dlperf_gpt.is_base(r)}
    readers = {"llmf": llm_foundry.read, "bsc": big_science.read, "mbr": megatron_bridge.read, "dlpgpt": lambda r: dlperf_gpt.read(r, rates)}
    return readers[record.set](record)


@pytest.mark.parametrize(
    ("name", "worst", "runs"), [("llmf", 0.003, 34), ("dlpgpt", 0.005, 16), ("bsc", 0.012, 66), ("mbr", 0.03, 33)], ids=lambda x: str(x)
)
def test_two_units_of_one_run_agree_by_the_source_s_own_formula(name: str, worst: float, runs: int) -> None:
    """A run whose source states both a time (or tokens/s) and TFLOP/s (or MFU) gives the same seconds from either."""
    module = {"llmf": llm_foundry, "dlpgpt": dlperf_gpt, "bsc": big_science, "mbr": megatron_bridge}[name]
    pairs: dict[object, list[Record]] = {}
    for entry in of_family(module):
        if entry.state != "waiting" and "exchanged" not in entry.reason and "stated" not in entry.reason and "precision" not in entry.reason:
            pairs.setdefault(getattr(module, "run_of", parallel.setting_of)(entry.record), []).append(entry.record)
    twice = [rows for rows in pairs.values() if len(rows) == 2]
    assert len(twice) == runs
    for rows in twice:
        first, second = (reading(r).seconds(r.metric, r.value or 0.0) for r in rows)
        assert second == pytest.approx(first, rel=worst), [r.id for r in rows]


def test_flop_formulas_agree_with_hand_counts() -> None:
    """One layer of width 1, one token, vocabulary 16: 96 (1 + 1/6 + 1) recomputed; 6 N + 12 without."""
    tiny = gpt("tiny", 1, 1, 1, 16)
    assert narayanan(tiny, 1) == pytest.approx(96 * (1 + 1 / 6 + 1))
    assert layers_only(tiny, 1) == 96.0
    assert mosaic(tiny, 1) == 6 * (12 + 13 + 2 + 17) + 12
    gated = replace(tiny, gated=True, feed_forward=2)
    assert bridge(gated, 1) == 6 * (4 + 6 + 16) + 6


def test_a_figure_of_a_known_kind_becomes_seconds() -> None:
    """4 GPUs, 8 sequences of 10 tokens in 2 s: 4 sequences/s, 40 tokens/s, 10 per GPU."""
    setting = Setting(8, 1)
    read = parallel.Reading(gpt("g", 1, 8, 1, 16), 10, "fp16", setting, 1, 4, {}, lambda a, s: 1e12, "x", peak=1e12)
    figures = {
        "step_time_s": 2.0, "step_time_ms": 2000.0, "sequences_per_s": 4.0, "tokens_per_s": 40.0, "tokens_per_s_per_gpu": 10.0,
        "tflops_per_gpu": 1.0, "aggregate_pflops": 0.004, "mfu_percent": 100.0,
    }  # fmt: skip
    assert {metric: read.seconds(metric, value) for metric, value in figures.items()} == pytest.approx(dict.fromkeys(figures, 2.0))
    with pytest.raises(NotRead, match="not a step time: hours"):
        read.seconds("hours", 1.0)


def test_bus_bandwidth_becomes_seconds() -> None:
    """8 GPUs, 16 GiB at 367.2 GB/s of bus: 2 x 7/8 x 17.18 GB / 367.2 GB/s = 81.9 ms."""
    assert collectives.seconds(by_id()["mlen-0062"]) == pytest.approx(0.08188, rel=1e-3)
    assert collectives.size_of(by_id()["nct-0001"]) == 2**20


# -- models --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [a for a in architectures.architectures() if not a.startswith(("Transformer-XL", "GPT"))])
def test_published_parameter_counts_come_out(name: str) -> None:
    import csv

    with open(constants.HERE / "architectures.csv", newline="", encoding="utf-8") as lines:
        stated = {row["name"]: int(row["parameters"]) for row in csv.DictReader(lines) if row["parameters"]}
    assert ps.load_model(architectures.architectures()[name].model(2048, "bf16")).parameters == stated[name]


def test_sizes_named_in_rows_come_out() -> None:
    """MPT's count in every row (positions grow with the sequence), BigScience's 181B within 1 %, Megatron-LM v1 within 1 %."""
    for entry in of_family(llm_foundry):
        read = llm_foundry.read(entry.record)
        assert f"({ps.load_model(read.architecture.model(read.sequence, 'bf16')).parameters} params)" in entry.record.model
    for name, billions in (("bsc-0105", 181), ("bsc-0091", 177), ("bsc-0219", 195)):
        read = big_science.read(by_id()[name])
        parameters = ps.load_model(read.architecture.model(2048, "bf16")).parameters
        assert parameters / 1e9 == pytest.approx(billions, rel=0.01)


def test_models_beside_the_corpora_have_their_published_sizes() -> None:
    for name, millions in (("resnext101-32x4d", 44.18), ("se-resnext101-32x4d", 48.96), ("ssd300-resnet50", 22.89)):
        assert ps.load_model(models.described(name)).parameters / 1e6 == pytest.approx(millions, rel=1e-3)
    assert ps.load_model(models.bart(128)).parameters / 1e6 == pytest.approx(406, rel=0.01)
    assert ps.load_model(models.transformer_big()).parameters / 1e6 == pytest.approx(213, rel=0.02)
    assert ps.load_model(models.transformer_xl("base")).parameters / 1e6 == pytest.approx(192, rel=0.03)


# -- accumulated gradients -----------------------------------------------------------------------------------------


def test_accumulated_batches_come_out_at_the_stated_ones() -> None:
    """Micro-batch x passes x GPUs of BERT's pre-training is of the order that the pages state: 2^15 or 2^16, less where memory lacks.

    Pages that state a GPU's share of a step (8192 and 4096, 2048 on the DGX-1) mean 8 GPUs.
    """
    steps = []
    for entry in of_family(deep_learning_examples):
        record = entry.record
        if "accumulation" in record.strategy and "BERT" in record.model and entry.state in ("modelled", "given"):
            batch, gpus = deep_learning_examples.batch(record) or 0, (record.nodes or 1) * (record.gpus or 1)
            steps.append(batch * 8 if batch in (2048, 4096, 8192) and gpus == 1 else batch * gpus)
    assert len(steps) > 190
    assert sum(2**15 * 0.9 <= step <= 2**16 * 1.4 for step in steps) > 0.85 * len(steps)
    assert min(steps) >= 2**13 and max(steps) <= 2**18


def test_a_pair_of_passes_is_read_by_the_order_of_its_page() -> None:
    tensorflow, pytorch = by_id()["dle-0322"], by_id()["dle-0158"]
    assert deep_learning_examples.passes(tensorflow) == 4096
    assert deep_learning_examples.passes(replace(tensorflow, precision="fp32")) == 8192
    assert deep_learning_examples.passes(pytorch) == 18 and deep_learning_examples.passes(replace(pytorch, precision="tf32")) == 16
    assert deep_learning_examples.passes(replace(pytorch, strategy="x; grad accumulation some")) is None
    single_node = by_id()["dle-0030"]
    assert (single_node.batch, deep_learning_examples.micro_batch(single_node), deep_learning_examples.batch(single_node)) == ("8192", 256, 8192)


# -- what is refused stays visible ---------------------------------------------------------------------------------


def test_a_case_that_the_simulator_refuses_keeps_its_reason() -> None:
    entry = next(e for e in of_family(vtrain) if e.record.set == "vtrs")
    assert entry.case is not None
    huge = replace(entry, case=replace(entry.case, scenario={**entry.case.scenario, "global_batch_size": 7}))
    known: dict[str, float | str] = {}
    found = cases.predicted(huge, known)
    assert found.predicted is None and found.error is None and found.refused
    assert cases.predicted(huge, known).refused == found.refused


def test_every_named_set_is_in_the_split() -> None:
    named = {"vtrain one node", "vtrain several nodes", "llm-foundry", "bigscience", "megatron-bridge", "megatron-lm", "collectives", "dlperf gpt"}
    assert named <= set(constants.split())
    assert {name for name in named if constants.use_of(name) == "fitted"} == {"vtrain one node", "llm-foundry", "bigscience", "collectives"}
