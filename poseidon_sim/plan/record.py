"""The recorder: verbs append blocks of tasks as arrays; `Plan` speaks to it, `lower` turns it into a Program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from poseidon_sim.engine.program import Program

Handles = npt.NDArray[np.int64]
NONE = np.int64(-1)

#: What a task does; the index is the code stored in `TaskTable.kind`.
KINDS = ("join", "forward", "backward", "rebuild", "update", "copy_out", "copy_in", "host", "send", "collective", "load")
KIND = {name: code for code, name in enumerate(KINDS)}
COMPUTE_KINDS = frozenset(KIND[k] for k in ("forward", "backward", "rebuild", "update"))
TRANSFER_KINDS = frozenset(KIND[k] for k in ("copy_out", "copy_in", "host", "send", "collective"))


@dataclass(frozen=True, eq=False)
class TaskTable:
    """What each task means, row by row beside the Program: (T,) arrays and the names they point into.

    `node` and `peer` are node-class indices (-1: all of them, or none); `layer` indexes `layer_names`; `label`
    indexes `labels`.
    """

    kind: npt.NDArray[np.int8]
    label: npt.NDArray[np.int32]
    layer: npt.NDArray[np.int32]
    node: npt.NDArray[np.int32]
    peer: npt.NDArray[np.int32]
    iteration: npt.NDArray[np.int32]
    labels: tuple[str, ...]
    layer_names: tuple[str, ...]

    def name(self, task: int) -> str:
        """Name a task for people: 'backward conv5_1', 'push fc6'."""
        layer = int(self.layer[task])
        label = self.labels[int(self.label[task])]
        return f"{label} {self.layer_names[layer]}" if layer >= 0 else label


@dataclass
class Block:
    """Some tasks recorded at once; every field is a scalar or an array over the block's `size` tasks."""

    size: int
    kind: int
    label: int
    after: Handles | None = None
    work: object = 0.0
    latency: object = 0.0
    delay: object = 0.0
    rate_cap: object = np.inf
    weight: object = 1.0
    priority: object = 0.0
    queue: object = -1
    needed: object = None
    links: npt.NDArray[np.int64] | None = None
    coefficients: npt.NDArray[np.float64] | None = None
    layer: object = -1
    node: object = -1
    peer: object = -1
    iteration: int = 0


@dataclass
class Recorder:
    """Collects blocks and queues; `lower` concatenates them."""

    blocks: list[Block] = field(default_factory=list)
    num_tasks: int = 0
    slots: list[int] = field(default_factory=list)
    queue_names: list[str] = field(default_factory=list)
    queues: dict[object, int] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)

    def label(self, text: str) -> int:
        return self.labels.setdefault(text, len(self.labels))

    def queue(self, key: object, slots: int = 1) -> int:
        """Return the id of the queue called `key`, made on first use."""
        if key not in self.queues:
            self.queues[key] = len(self.slots)
            self.slots.append(slots)
            self.queue_names.append(str(key))
        return self.queues[key]

    def add(self, block: Block) -> Handles:
        """Append a block and return the handles (task ids) of its tasks, in order."""
        handles = np.arange(self.num_tasks, self.num_tasks + block.size, dtype=np.int64)
        self.blocks.append(block)
        self.num_tasks += block.size
        return handles


def lower(
    recorder: Recorder,
    capacities: list[float],
    curves: dict[int, tuple[tuple[float, float], ...]],
    layer_names: tuple[str, ...],
) -> tuple[Program, TaskTable]:
    """Turn recorded blocks into the engine's arrays and the table that says what each task means."""
    blocks = recorder.blocks

    def column(name: str, dtype: type) -> npt.NDArray[Any]:
        if not blocks:
            return np.zeros(0, dtype=dtype)
        out: npt.NDArray[Any] = np.empty(recorder.num_tasks, dtype=dtype)
        at = 0
        for block in blocks:
            out[at : at + block.size] = getattr(block, name)
            at += block.size
        return out

    after = [_two_dimensional(b.after, b.size) for b in blocks]
    dep, dep_count = _ragged(after, None)
    dep_sorted = dep.astype(np.int64)
    links = [_two_dimensional(b.links, b.size) for b in blocks]
    use_link, use_count = _ragged(links, None)
    coefficient, _ = _ragged([_coefficients(b) for b in blocks], links)
    needed = dep_count.copy()
    at = 0
    for block in blocks:
        if block.needed is not None:
            needed[at : at + block.size] = np.minimum(np.asarray(block.needed), dep_count[at : at + block.size])
        at += block.size
    points = [curves.get(link, ()) for link in range(len(capacities))]
    flat = [point for row in points for point in row]
    program = Program(
        work=column("work", np.float64),
        latency=column("latency", np.float64),
        delay=column("delay", np.float64),
        rate_cap=column("rate_cap", np.float64),
        weight=column("weight", np.float64),
        priority=column("priority", np.float64),
        queue=column("queue", np.int64),
        needed=needed,
        dep_ptr=_pointers(dep_count),
        dep=dep_sorted,
        use_ptr=_pointers(use_count),
        use_link=use_link.astype(np.int64),
        use_coefficient=coefficient.astype(np.float64),
        capacity=np.asarray(capacities, dtype=np.float64),
        curve_ptr=_pointers(np.array([len(row) for row in points], dtype=np.int64)),
        curve_flows=np.array([p[0] for p in flat], dtype=np.float64),
        curve_capacity=np.array([p[1] for p in flat], dtype=np.float64),
        queue_slots=np.asarray(recorder.slots, dtype=np.int64),
    )
    table = TaskTable(
        kind=column("kind", np.int8),
        label=column("label", np.int32),
        layer=column("layer", np.int32),
        node=column("node", np.int32),
        peer=column("peer", np.int32),
        iteration=column("iteration", np.int32),
        labels=tuple(recorder.labels),
        layer_names=layer_names,
    )
    return program, table


def _pointers(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts, dtype=np.int64)])


def _two_dimensional(rows: npt.NDArray[np.int64] | None, size: int) -> npt.NDArray[np.int64]:
    if rows is None:
        return np.full((size, 0), NONE)
    return rows.reshape(size, -1)


def _coefficients(block: Block) -> npt.NDArray[np.float64]:
    if block.links is None or block.coefficients is None:
        return np.zeros((block.size, 0))
    return np.broadcast_to(block.coefficients, block.links.shape).reshape(block.size, -1)


def _ragged(
    rows: Sequence[npt.NDArray[Any]],
    masks: list[npt.NDArray[np.int64]] | None,
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Flatten padded 2-D blocks, leaving out entries whose mask (by default the entry itself) is -1."""
    if not rows:
        return np.zeros(0), np.zeros(0, dtype=np.int64)
    kept = [(mask >= 0) for mask in (masks if masks is not None else rows)]
    flat = np.concatenate([row[keep] for row, keep in zip(rows, kept, strict=True)])
    counts = np.concatenate([keep.sum(axis=1) for keep in kept]).astype(np.int64)
    return flat, counts
