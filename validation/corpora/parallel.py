"""Rows of runs that split the model itself (tensor, pipeline, sharded state) become scenarios; units become seconds in one place.

A text is read whole or refused: what a family does not list as a known phrase makes the row 'unknown', with the phrase.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .architectures import Architecture
from .cases import Case, Entry
from .records import Record


class NotRead(Exception):
    """A text that is not of a known form, or figures that contradict each other; says which."""

    def __init__(self, reason: str, state: str = "unknown") -> None:
        super().__init__(reason)
        self.state = state


def numbers(text: str, known: Iterable[str], phrases: Mapping[str, str] | None = None) -> dict[str, int]:
    """Read 'TP=8 PP=4; global batch 2048' whole: KEY=number pairs of known keys, and phrases.

    Parameters
    ----------
    known : keys that may stand as KEY=number.
    phrases : (regular expression of a whole part, name); its first group is a number, or the phrase says nothing more.

    >>> numbers("TP=8 PP=4; global batch 2048", ("TP", "PP"), {r"global batch (\\d+)": "global"})
    {'TP': 8, 'PP': 4, 'global': 2048}
    """
    found: dict[str, int] = {}
    for part in (part.strip() for part in text.split(";")):
        match = next((m for pattern in phrases or () if (m := re.fullmatch(pattern, part))), None)
        if match:
            name = (phrases or {})[match.re.pattern]
            pairs = [(name, match[1])] if match.groups() else []
        else:
            pairs = [_pair(word, known, text) for word in part.split()]
        for key, value in pairs:
            if key in found:
                raise NotRead(f"{key} stands twice in {text!r}")
            found[key] = int(value)
    return found


def _pair(word: str, known: Iterable[str], text: str) -> tuple[str, str]:
    match = re.fullmatch(r"([A-Za-z]+)=(\d+)", word)
    if match is None or match[1] not in known:
        raise NotRead(f"strategy not understood: {word!r} in {text[:60]!r}")
    return match[1], match[2]


@dataclass(frozen=True)
class Setting:
    """How one run was split. Sizes of groups; `global_batch` and `micro_batch` in sequences.

    Parameters
    ----------
    interleave : virtual stages per GPU.
    recompute : none, selective or full.
    zero : what the data-parallel ranks share: 0 nothing, 1 the optimizer's state.
    overlap : whether gradients are reduced beside the last backward passes.
    shard : None, or the `fsdp` strategy's kind of sharding: then tensor, pipeline and context are 1.
    """

    global_batch: int
    micro_batch: int
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    interleave: int = 1
    recompute: str = "none"
    zero: int = 0
    overlap: bool = False
    sequence_parallel: bool = False
    shard: str | None = None

    def strategy(self) -> dict[str, Any]:
        """Return the scenario's strategy."""
        if self.shard is not None:
            return {"name": "fsdp", "shard": self.shard, "unit": "block", "recompute": self.recompute}
        return {
            "name": "megatron", "tensor": self.tensor, "pipeline": self.pipeline, "context": self.context,
            "interleave": self.interleave, "recompute": self.recompute, "sequence_parallel": self.sequence_parallel,
            "zero": self.zero, "overlap": self.overlap,
        }  # fmt: skip

    def choice(self) -> str:
        """Return how the model was split, in a word: 't8 p2 m4'."""
        split = f"t{self.tensor} p{self.pipeline} c{self.context} v{self.interleave} m{self.micro_batch} {self.recompute}"
        return f"{self.shard} m{self.micro_batch} {self.recompute}" if self.shard else split

    def replicas(self, gpus: int) -> int:
        """Return the number of data-parallel replicas on `gpus` GPUs; refuse what does not divide."""
        whole = self.tensor * self.pipeline * self.context
        if gpus % whole:
            raise NotRead(f"TP x PP x CP = {whole} does not divide the {gpus} GPUs stated")
        if self.global_batch % (gpus // whole * self.micro_batch):
            found = f"{gpus // whole} replicas x micro-batch {self.micro_batch}"
            raise NotRead(f"global batch {self.global_batch} is no multiple of {found}")
        return gpus // whole


@dataclass(frozen=True)
class Reading:
    """One row, understood: everything a case is made of.

    Parameters
    ----------
    cluster : the scenario's cluster, beyond nodes, GPUs per node.
    nodes, gpus : nodes of the scenario and GPUs per node (an NVLink domain of several boards is one node).
    flops : the source's own formula: FLOP per sequence, for TFLOP/s and utilisation.
    label : the strategy in the tables.
    """

    architecture: Architecture
    sequence: int
    precision: str
    setting: Setting
    nodes: int
    gpus: int
    cluster: dict[str, Any]
    flops: Callable[[Architecture, int], float] | None
    label: str
    peak: float | None = None
    given: str = "nothing measured: rates of the GPU and the wires from the catalog"
    extra: dict[str, Any] = field(default_factory=dict)

    def seconds(self, metric: str, value: float) -> float:
        """Return the seconds per iteration that a figure stands for."""
        gpus, batch = self.nodes * self.gpus, self.setting.global_batch
        if metric == "step_time_s":
            return value
        if metric == "step_time_ms":
            return value / 1e3
        if metric in ("sequences_per_s", "samples_per_s"):
            return batch / value
        if metric in ("tokens_per_s", "tokens_per_s_per_gpu"):
            return batch * self.sequence / (value * (gpus if metric.endswith("gpu") else 1))
        if self.flops is None:
            raise NotRead(f"the formula behind {metric} is not stated")
        work = self.flops(self.architecture, self.sequence) * batch
        if metric in ("tflops_per_gpu", "model_tflops_per_gpu"):
            return work / (gpus * value * 1e12)
        if metric == "aggregate_pflops":
            return work / (value * 1e15)
        if metric == "mfu_percent" and self.peak:
            return work / (gpus * self.peak * value / 100)
        raise NotRead(f"not a step time: {metric}", "other")

    def scenario(self) -> dict[str, Any]:
        """Return the mapping for `load_scenario`."""
        self.setting.replicas(self.nodes * self.gpus)
        cluster = {"nodes": self.nodes, "gpus_per_node": self.gpus, **self.cluster}
        if self.nodes == 1:
            cluster.pop("network", None)
        return {
            "model": {**self.architecture.model(self.sequence, self.precision), **self.extra},
            "global_batch_size": self.setting.global_batch, "micro_batch_size": self.setting.micro_batch,
            "cluster": cluster, "strategy": self.setting.strategy(),
        }  # fmt: skip


#: figures of which one is kept when a source states several for one run: the nearest to a time first
ORDER = (
    "step_time_s", "step_time_ms", "tokens_per_s_per_gpu", "tokens_per_s", "sequences_per_s", "samples_per_s", "tflops_per_gpu",
    "model_tflops_per_gpu", "mfu_percent", "aggregate_pflops", "weak_scaling_percent",
)  # fmt: skip
#: figures that an architecture and a batch turn into seconds
METRICS = frozenset(ORDER) - {"weak_scaling_percent"}


def entries(
    records: list[Record], family: str, read: Callable[[Record], Reading], use: Callable[[Record], str],
    run_of: Callable[[Record], tuple[object, ...]] | None = None,
) -> list[Entry]:
    """Return one entry a row; of the figures of one run (`run_of`; `setting_of` by default) the nearest to a time becomes a case."""
    runs: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        runs.setdefault((run_of or setting_of)(record), []).append(record)
    found = []
    for rows in runs.values():
        rows.sort(key=lambda r: (ORDER.index(r.metric) if r.metric in ORDER else len(ORDER), r.id))
        first = entry_of(rows[0], family, read, use)
        found.append(first)
        for row in rows[1:]:
            if first.state in ("modelled", "given"):
                found.append(Entry(row, family, "elsewhere", "the run of another row, in another unit"))
            else:
                found.append(replace(first, record=row))
    return found


def setting_of(record: Record) -> tuple[object, ...]:
    """Return what two figures of one run have in common: all but the figure and its unit."""
    return (record.system, record.model, record.strategy, record.nodes, record.gpus, record.batch, record.precision)


def entry_of(record: Record, family: str, read: Callable[[Record], Reading], use: Callable[[Record], str]) -> Entry:
    """Return what becomes of one row."""
    try:
        reading = read(record)
        if record.metric not in METRICS:
            raise NotRead(f"not a step time: {record.metric}", "other")
        seconds = reading.seconds(record.metric, record.value or float("nan"))
        case = Case(
            reading.label, reading.scenario(), reading.given, seconds, use(record), group_of(family, reading),
            choice=reading.setting.choice(),
        )  # fmt: skip
    except NotRead as error:
        return Entry(record, family, error.state, str(error))
    return Entry(record, family, "modelled", "", case)


def group_of(family: str, reading: Reading) -> tuple[object, ...]:
    """Cases of one group differ in how the model is split only."""
    a = reading.architecture
    job = (a.name, a.layers, a.hidden, reading.sequence, reading.precision, reading.setting.global_batch)
    return (family, *job, reading.nodes, reading.gpus)


def consecutive(record: Record) -> int:
    """Return the number in a row's id."""
    return int(record.id.rsplit("-", 1)[1])
