"""How a global batch is dealt out to GPUs that differ, so that those that wait for each other end together.

Source: Zhang et al., Poplar, AAAI'25: a curve of time against batch for every kind of GPU, then a search. A table holds the seconds
of 0, 1, 2, ... samples on one GPU of a kind; `counts` says how many GPUs of the kind there are. GPUs of a kind get the same batch;
where that makes more samples than there are, some GPU has one less and waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil

import numpy as np
import numpy.typing as npt

Table = npt.NDArray[np.float64]


def curve(seconds: Callable[[int], float], most: int) -> Table:
    """Return the table of 0 to `most` samples: measured at powers of two and at `most`, straight lines between.

    >>> curve(lambda batch: 1.0 + batch, 5).tolist()
    [0.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    """
    points = sorted({most, *(2**k for k in range(most.bit_length()))})
    found = np.interp(np.arange(most + 1), points, [seconds(b) for b in points])
    found[0] = 0.0
    return np.maximum.accumulate(found)


def deal(total: int, counts: Sequence[int], tables: Sequence[Table]) -> list[int]:
    """Return the batch of one GPU of each kind that makes `total` samples or barely more in the least time of the slowest GPU.

    The time is the smallest one in the tables within which all GPUs together get through; they must hold so many.

    >>> deal(9, [1, 1], [np.arange(10.0), 2 * np.arange(10.0)])
    [6, 3]
    """
    times = np.unique(np.concatenate(tables))

    def within(seconds: float) -> list[int]:
        return [int(np.searchsorted(table, seconds, side="right")) - 1 for table in tables]

    def enough(batches: Sequence[int]) -> bool:
        return sum(n * b for n, b in zip(counts, batches, strict=True)) >= total

    low, high = 0, len(times) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(within(times[middle])) else (middle + 1, high)
    batches = within(times[low])
    for kind in sorted(range(len(counts)), key=lambda i: -float(tables[i][batches[i]])):
        surplus = sum(n * b for n, b in zip(counts, batches, strict=True)) - total
        batches[kind] -= min(batches[kind], surplus // counts[kind])
    return batches


def accumulated(table: Table, most: int) -> Table:
    """Return the table of up to `most` samples in as few micro-batches as `table` allows, as equal as can be.

    >>> accumulated(np.array([0.0, 2.0, 3.0]), 5).tolist()
    [0.0, 2.0, 3.0, 5.0, 6.0, 8.0]
    """
    largest = len(table) - 1
    samples = np.arange(most + 1)
    steps = np.maximum(1, -(-samples // largest))
    size, more = samples // steps, samples % steps
    found: Table = np.maximum.accumulate(more * table[np.minimum(size + 1, largest)] + (steps - more) * table[size])
    return found


def micro_batches(samples: int, largest: int) -> list[int]:
    """Return `samples` in as few micro-batches of at most `largest` as can be, the larger ones first."""
    steps = max(1, ceil(samples / largest))
    return [samples // steps + (i < samples % steps) for i in range(steps)]


def alone(total: int, counts: Sequence[int], tables: Sequence[Table]) -> list[list[int]]:
    """Return every kind's micro-batches where all wait for each other once a step (ZeRO stages 0 and 1)."""
    whole = [accumulated(table, ceil(total / n)) for n, table in zip(counts, tables, strict=True)]
    return [micro_batches(b, len(table) - 1) for b, table in zip(deal(total, counts, whole), tables, strict=True)]


def together(total: int, counts: Sequence[int], tables: Sequence[Table], sync: float) -> list[list[int]]:
    """Return every kind's micro-batches where all wait for each other in each of them, `sync` seconds more (stages 2 and 3)."""
    fewest = ceil(total / sum(n * (len(table) - 1) for n, table in zip(counts, tables, strict=True)))
    best, found = np.inf, []
    for steps in range(fewest, min(total, 4 * fewest + 16) + 1):
        rows = {size: deal(size, counts, tables) for size in {total // steps, ceil(total / steps)}}
        seconds = {size: sync + max(float(t[b]) for t, b in zip(tables, row, strict=True)) for size, row in rows.items()}
        dealt = [total // steps + (i < total % steps) for i in range(steps)]
        if sum(seconds[size] for size in dealt) < best * (1 - 1e-12):
            best, found = sum(seconds[size] for size in dealt), [rows[size] for size in dealt]
    return [list(each) for each in zip(*found, strict=True)]
