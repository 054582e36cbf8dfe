"""Counts, errors by family and strategy, the ranking of strategies, and the worst misses."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable
from typing import Any

from .cases import STATES, Entry

#: flags whose figures never gate a test and stand in rows of their own
SOFT = ("secondary", "recalled")
#: (family, text in the strategy's label, text in the row, suspected mechanism); the first that fits counts
MECHANISMS = (
    ("Shi et al.", "per tensor", "AlexNet", "1 GbE with 16 and 32 workers collapsed (congested or several switches); source says so of this set"),
    ("Horovod", "parameter server", "VGG", "13 s per step for 553 MB: TensorFlow's gRPC of 2017 serialises and copies large tensors, which is not modelled"),
    ("Horovod", "parameter server", "", "TensorFlow's gRPC of 2017: serialisation and one server per variable are not modelled"),
    ("Horovod", "on the hosts", "", "MPI over TCP reaches a part of the wire, its sums run on one core; neither rate is published"),
    ("Horovod", "in buckets", "p3.16xlarge", "a user's report; input pipeline at 5,000 images/s per host"),
    ("Horovod", "in buckets", "VGG", "NCCL over TCP: one stream reached 13.7 Gbit/s on a like network (bps-0014), the catalog says 21"),
    ("Lambda", "", "BERT", "fine-tuning script: gradients are summed after backward and clipped by a global norm; the input is tokenised by one process"),
    ("Lambda", "", "", "input pipeline and GPU slots that share one PCIe switch"),
    ("DLPerf", "", "MXNet", "8 GPUs reach 3.5 times one GPU in AMP: input pipeline"),
    ("DLPerf", "", "PaddlePaddle", "8 GPUs reach 4.5 to 6.3 times one GPU: not the wires, other frameworks on the same machine reach 7"),
    ("DLPerf", "", "", "one all-reduce after backward, clipping by a global norm; jitter of eight processes"),
    ("ChainerMN", "parameter server", "", "lost already on 4 GPUs of one node: summing on the host's CPU, whose rate is not published"),
    ("ChainerMN", "ring", "", "NCCL over 10 GbE reached 2 Gbit/s on this cluster (the transport's efficiency is not in the scenario)"),
    ("ChainerMN", "hierarchical", "", "waiting for the slowest of up to 128 processes"),
    ("TensorFlow", "per tensor", "real", "reading ImageNet: VGG16 and AlexNet in these sections wait for input"),
    ("TensorFlow", "per tensor", "", "NCCL 1 of 2017 on the hybrid mesh and a call per tensor; the catalog's rate is of NCCL 2"),
    ("TensorFlow", "whole variables", "", "distributed_replicated adds a copy per GPU and a barrier of variables; gRPC"),
    ("TensorFlow", "host's CPU", "", "8 GPUs share the host's memory and sums; its rate is not published"),
    ("vTrain", "one node", "", "compute: many small kernels (narrow shares, small micro-batches) take their launch, not their FLOP; within one width, TP and micro-batch all splits err alike"),
    ("vTrain", "64 nodes", "", "compute of wide layers: large matrix products reach more of the peak than the catalog's share"),
    ("llm-foundry", "", "seq 65536", "compute of attention: fused kernels of very long sequences"),
    ("llm-foundry", "", "", "a fitted set: what one share of products and one of attention cannot follow"),
    ("BigScience", "", "", "still too fast: steps of hundreds of seconds hold logging, input and stragglers that are not modelled; width 14400 / 8 fits tiles badly"),
    ("Megatron-Bridge", "", "", "compute of FP8 and FP4 recipes on later GPUs; messages of tensor parallelism are hidden beside matrix products there"),
    ("Megatron-LM", "", "", "V100 of 450 W in a DGX-2H; large matrix products reach more of the peak than the catalog's share"),
    ("DeepSpeed", "sharded", "", "second-hand figure; offloading and overlap of this version are not described"),
    ("DLPerf", "data and tensor", "", "the ring of 8 NVLink V100 for every all-reduce of a layer; narrow shares keep less of the one-GPU rate"),
    ("torchgpipe", "", "", "partitions balanced by FLOP here and by measured time there; a whole partition is one checkpoint there, a block here"),
    ("ml-engineering", "", "4x8", "the first sizes of the series hold the set-up of connections (6 and 3 ms, then 0.4); large ones: phases inside and between nodes overlap"),
    ("ml-engineering", "", "", "cost of a small message grows with its size (protocols), here it is constant"),
    ("nccl-tests", "", "1x2", "a pair of A100 reached 157 to 192 GB/s where the catalog has 245, the middle for eight"),
    ("nccl-tests", "", "", "the wire carried 22.9 GB/s of its 25 where the catalog has 21.5; messages of some MB were quicker still"),
    ("MLPerf", "", "", "51 images per GPU compute less efficiently than the 408 of the one-node run whose rate is given"),
    ("DeepLearningExamples", "accumulated", "single-node on DGX-2 32GB] seq 128", "the one-GPU row it is given (dle-0359, 35.32) repeats a figure of another table"),
    ("DeepLearningExamples", "accumulated", "", "scaling over 128 and more GPUs loses 5 to 25 % beyond the wires (jitter, Horovod's cycle)"),
    ("DeepLearningExamples", "", "BERT", "fine-tuning script: one all-reduce after backward, clipping by a global norm"),
    ("DeepLearningExamples", "", "", "jitter and input pipeline of eight processes"),
    ("Tensorpack", "", "", "jitter and input pipeline; NCCL 1"),
    ("ddl-benchmarks", "ByteScheduler", "", "the scheduler's Python hooks hold every layer's forward back: 0.14 s on ResNet-50 already on one node, where nothing else is slow"),
    ("ddl-benchmarks", "merged", "", "the software merges by figures of its own, see below; here by the true cost"),
    ("ddl-benchmarks", "BytePS", "", "our hash loads the servers unlike BytePS's own"),
    ("ddl-benchmarks", "per tensor", "", "cost of a small message grows with its size (protocols), here it is constant"),
    ("Theano-MPI", "", "", "the logged time holds the wait for the slowest rank"),
)  # fmt: skip


def use_of(entry: Entry) -> str:
    """Return fitted, predicted, or predicted (soft) for figures known at second hand."""
    assert entry.case is not None
    return entry.case.use if entry.record.flag not in SOFT else f"{entry.case.use}, {entry.record.flag}"


def counts(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """Return rows by family and state."""
    by_family: dict[str, Counter[str]] = {}
    for entry in entries:
        by_family.setdefault(entry.family, Counter())[entry.state] += 1
    return [
        {"family": family, "rows": count.total(), **{state: count[state] for state in STATES}}
        for family, count in sorted(by_family.items(), key=lambda item: (-item[1]["modelled"], item[0]))
    ]


def summary(errors: list[float]) -> dict[str, float]:
    """Return count, median, p90 and worst of the absolute errors, and the bias (median of the signed ones)."""
    ordered = sorted(abs(e) for e in errors)
    return {
        "modelled": len(ordered), "median": statistics.median(ordered), "p90": ordered[min(len(ordered) - 1, round(0.9 * (len(ordered) - 1)))],
        "worst": ordered[-1], "bias": statistics.median(errors),
    }  # fmt: skip


def by_strategy(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """Return errors by family, strategy and use."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for entry in entries:
        if entry.case is not None and entry.error is not None:
            found.setdefault((entry.family, entry.case.label, use_of(entry)), []).append(entry.error)
    return [{"family": f, "strategy": s, "use": u, **summary(errors)} for (f, s, u), errors in sorted(found.items())]


def rankings(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """Return, by family and use, groups measured under several strategies, how often the winner is right, and the regret if not.

    Regret: how much longer the predicted winner was measured to take than the measured one.
    """
    groups: dict[tuple[object, ...], list[Entry]] = {}
    for entry in entries:
        if entry.case is not None and entry.case.group and entry.predicted is not None:
            groups.setdefault(entry.case.group, []).append(entry)
    found: dict[tuple[str, str], list[float]] = {}
    for rows in groups.values():
        if len({e.case.choice or e.case.label for e in rows if e.case}) > 1:
            chosen = min(rows, key=lambda e: e.predicted or 0.0)
            best = min(rows, key=lambda e: e.case.measured if e.case else 0.0)
            assert chosen.case is not None and best.case is not None
            use = "fitted" if any(e.case and e.case.use == "fitted" for e in rows) else "predicted"
            found.setdefault((chosen.family, use), []).append(chosen.case.measured / best.case.measured - 1.0)
    return [
        {
            "family": family, "use": use, "groups": len(regrets), "winner right": sum(r == 0 for r in regrets),
            "regret under 2 %": sum(r < 0.02 for r in regrets), "mean regret": statistics.fmean(regrets), "worst regret": max(regrets),
        }
        for (family, use), regrets in sorted(found.items())
    ]  # fmt: skip


def worst(entries: Iterable[Entry], each: int = 2) -> list[dict[str, Any]]:
    """Return the worst misses of every family and strategy, with the suspected mechanism."""
    taken: Counter[tuple[str, str]] = Counter()
    rows = []
    for entry in sorted((e for e in entries if e.error is not None), key=lambda e: -abs(e.error or 0.0)):
        assert entry.case is not None and entry.error is not None
        key = (entry.family, entry.case.label)
        taken[key] += 1
        if taken[key] <= each and abs(entry.error) >= 0.1:
            rows.append({
                "id": entry.record.id, "family": entry.family, "strategy": entry.case.label, "measured": entry.case.measured,
                "predicted": entry.predicted, "error": entry.error, "flag": entry.record.flag, "use": entry.case.use,
                "mechanism": mechanism(entry),
            })  # fmt: skip
    return rows


def mechanism(entry: Entry) -> str:
    """Return what we suspect behind a miss."""
    assert entry.case is not None
    text = f"{entry.record.system} {entry.record.model} {entry.record.nodes}x{entry.record.gpus}"
    for family, label, words, why in MECHANISMS:
        if entry.family.startswith(family) and label in entry.case.label and words in text:
            return why
    return "not looked into"


def refused(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """Return the cases that the simulator refused to predict."""
    return [
        {"id": e.record.id, "family": e.family, "strategy": e.case.label, "reason": e.refused}
        for e in entries
        if e.refused and e.case is not None
    ]


def waiting(entries: Iterable[Entry]) -> list[tuple[str, str, int]]:
    """Return (state, reason, rows) of everything that is not predicted."""
    found = Counter((e.state, e.reason) for e in entries if e.state not in ("modelled", "given"))
    return [(state, reason, rows) for (state, reason), rows in sorted(found.items(), key=lambda item: (STATES.index(item[0][0]), -item[1]))]
