"""Sets of time intervals as (n, 2) arrays: union, length, and what two sets share."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Intervals = npt.NDArray[np.float64]


def union(starts: npt.NDArray[np.float64], ends: npt.NDArray[np.float64]) -> Intervals:
    """Merge intervals into disjoint ones in order.

    >>> union(np.array([0.0, 1.0, 5.0]), np.array([2.0, 3.0, 6.0])).tolist()
    [[0.0, 3.0], [5.0, 6.0]]
    """
    keep = ends > starts
    starts, ends = starts[keep], ends[keep]
    if not len(starts):
        return np.zeros((0, 2))
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    begins = np.concatenate([[True], starts[1:] > reach[:-1]])
    first = np.flatnonzero(begins)
    last = np.concatenate([first[1:] - 1, [len(starts) - 1]])
    return np.stack([starts[first], reach[last]], axis=1)


def clip(intervals: Intervals, start: float, end: float) -> Intervals:
    """Cut intervals to a window."""
    cut = np.clip(intervals, start, end)
    return cut[cut[:, 1] > cut[:, 0]]


def length(intervals: Intervals) -> float:
    """Return the total length of disjoint intervals.

    >>> length(np.array([[0.0, 3.0], [5.0, 6.0]]))
    4.0
    """
    return float((intervals[:, 1] - intervals[:, 0]).sum())


def shared(a: Intervals, b: Intervals) -> float:
    """Return the length of what two sets of disjoint intervals have in common.

    >>> shared(np.array([[0.0, 3.0]]), np.array([[2.0, 5.0]]))
    1.0
    """
    both = union(np.concatenate([a[:, 0], b[:, 0]]), np.concatenate([a[:, 1], b[:, 1]]))
    return max(0.0, length(a) + length(b) - length(both))
