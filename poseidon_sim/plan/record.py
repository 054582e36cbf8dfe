"""The recorder: verbs append blocks of tasks as arrays; `Plan` speaks to it, `lower` turns it into a Program."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

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


class Block(NamedTuple):
    """Some tasks recorded at once; every column is a number or an array over the block's `size` tasks.

    `after`, `links` and `coefficients` are arrays of `size` rows (padded with -1), or None.
    """

    size: int
    kind: int
    label: int
    after: Handles | None = None
    work: Any = 0.0
    latency: Any = 0.0
    delay: Any = 0.0
    rate_cap: Any = np.inf
    weight: Any = 1.0
    priority: Any = 0.0
    queue: Any = -1
    needed: int | None = None
    links: npt.NDArray[np.int64] | None = None
    coefficients: npt.NDArray[np.float64] | None = None
    layer: int = -1
    node: Any = -1
    peer: Any = -1
    iteration: int = 0


class Phase(NamedTuple):
    """One leg of a collective: `hops` messages after one another, `work` bytes each busiest rank moves, what it loads.

    `uses` are (link, coefficient) for each byte of work; `latency` is the seconds of all hops together.
    """

    work: float
    latency: float
    uses: tuple[tuple[int, float], ...]
    rate_cap: float = np.inf
    name: str = ""


@dataclass
class Recorder:
    """Collects blocks and queues; `lower` concatenates them."""

    blocks: list[Block] = field(default_factory=list)
    num_tasks: int = 0
    slots: list[int] = field(default_factory=list)
    queues: dict[object, int] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)

    def label(self, text: str) -> int:
        return self.labels.setdefault(text, len(self.labels))

    def queue(self, key: object, slots: int = 1) -> int:
        """Return the id of the queue called `key`, made on first use."""
        if key not in self.queues:
            self.queues[key] = len(self.slots)
            self.slots.append(slots)
        return self.queues[key]

    def add(self, block: Block) -> Handles:
        """Append a block and return the handles (task ids) of its tasks, in order."""
        first = self.num_tasks
        self.blocks.append(block)
        self.num_tasks = first + block.size
        return np.arange(first, self.num_tasks)


def lower(
    recorder: Recorder,
    capacities: list[float],
    curves: dict[int, tuple[tuple[float, float], ...]],
    layer_names: tuple[str, ...],
) -> tuple[Program, TaskTable]:
    """Turn recorded blocks into the engine's arrays and the table that says what each task means."""
    columns = dict(zip(Block._fields, zip(*recorder.blocks, strict=True), strict=True))
    if not recorder.blocks:
        columns = dict.fromkeys(Block._fields, ())
    sizes = np.array(columns["size"], dtype=np.int64)
    total = recorder.num_tasks

    def column(name: str, dtype: type) -> npt.NDArray[Any]:
        return _column(columns[name], sizes, total, dtype)

    dep, dep_count = _ragged(columns["after"], columns["after"], sizes, total)
    use_link, use_count = _ragged(columns["links"], columns["links"], sizes, total)
    coefficient, _ = _ragged(columns["coefficients"], columns["links"], sizes, total)
    needed = dep_count
    if any(each is not None for each in columns["needed"]):
        most = np.repeat([total if each is None else each for each in columns["needed"]], sizes)
        needed = np.minimum(dep_count, most)
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
        dep=dep.astype(np.int64, copy=False),
        use_ptr=_pointers(use_count),
        use_link=use_link.astype(np.int64, copy=False),
        use_coefficient=coefficient.astype(np.float64, copy=False),
        queue_slots=np.array(recorder.slots, dtype=np.int64),
        **link_arrays(capacities, curves),
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


def link_arrays(
    capacities: list[float], curves: dict[int, tuple[tuple[float, float], ...]]
) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of a Program that tell its links."""
    points = [curves.get(link, ()) for link in range(len(capacities))] if curves else [()] * len(capacities)
    flat = [point for row in points for point in row]
    return {
        "capacity": np.array(capacities, dtype=np.float64),
        "curve_ptr": _pointers(np.array([len(row) for row in points], dtype=np.int64)),
        "curve_flows": np.array([p[0] for p in flat], dtype=np.float64),
        "curve_capacity": np.array([p[1] for p in flat], dtype=np.float64),
    }


def _pointers(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    out = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=out[1:])
    return out


def _column(values: tuple[Any, ...], sizes: npt.NDArray[np.int64], total: int, dtype: type) -> npt.NDArray[Any]:
    """Spread one column of all blocks over their tasks; a block's entry is a number or an array."""
    arrays = [i for i, each in enumerate(values) if type(each) is np.ndarray]
    if not arrays:
        return np.repeat(np.array(values, dtype=dtype), sizes)
    plain: list[Any] = list(values)
    for i in arrays:
        plain[i] = 0
    out: npt.NDArray[Any] = np.repeat(np.array(plain, dtype=dtype), sizes)
    ends = np.cumsum(sizes)
    for i, first, last in zip(arrays, (ends - sizes)[arrays].tolist(), ends[arrays].tolist(), strict=True):
        out[first:last] = values[i]
    return out


def _ragged(
    rows: tuple[npt.NDArray[Any] | None, ...],
    masks: tuple[npt.NDArray[np.int64] | None, ...],
    sizes: npt.NDArray[np.int64],
    total: int,
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Flatten padded rows of all blocks, leaving out entries whose mask is -1; and count what each task keeps."""
    here = [i for i, each in enumerate(masks) if each is not None and each.size]
    if not here:
        return np.zeros(0), np.zeros(total, dtype=np.int64)
    mask = np.concatenate([masks[i].ravel() for i in here])  # type: ignore[union-attr]
    widths = np.zeros(len(sizes), dtype=np.int64)
    widths[here] = [masks[i].size for i in here]  # type: ignore[union-attr]
    widths //= np.maximum(sizes, 1)
    flat = mask
    if rows is not masks:
        flat = np.concatenate([_spread(rows[i], masks[i].shape) for i in here])  # type: ignore[union-attr]
    keep = mask >= 0
    owner = np.repeat(np.arange(total), np.repeat(widths, sizes))
    if keep.all():
        return flat, np.bincount(owner, minlength=total)
    return flat[keep], np.bincount(owner[keep], minlength=total)


def _spread(row: npt.NDArray[Any] | None, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    assert row is not None  # links never come without coefficients
    return row.ravel() if row.shape == shape else np.broadcast_to(row, shape).ravel()
