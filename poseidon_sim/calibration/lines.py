"""Lines through times by size: one over all sizes, or a few where the data show that the protocol changes with size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
#: relative errors above this many times their median are held for outliers
FAR = 4.0
#: a piece has at least so many sizes, so that its two numbers are not read off two points
FEWEST = 4
#: numbers a further piece adds (alpha, slope, where it begins), and by how much it must better the Bayesian information
#: criterion: 2 is "positive" evidence (Kass and Raftery 1995). Relative errors below FINE are never split
ADDED, EVIDENCE, FINE = 3, 2.0, 0.02
MOST_PIECES = 3
#: the search grows with the square of the points; beyond so many it is left
MANY = 60


@dataclass(frozen=True)
class Line:
    """time = alpha + size x slope, and how far the points are from it: median and worst relative error."""

    alpha: float
    slope: float
    median: float
    worst: float


def fit_line(sizes: Sequence[float], times: Sequence[float]) -> Line:
    """Fit time = alpha + slope x size to relative errors, alpha and slope at least 0; outliers count less.

    >>> line = fit_line([1e3, 1e5, 1e7], [1.1e-5, 1.1e-4, 1.001e-2])
    >>> f"{line.alpha:.1e} {line.slope:.2e}"
    '1.0e-05 1.00e-09'
    """
    x, y = np.asarray(sizes, dtype=np.float64), np.asarray(times, dtype=np.float64)
    weights = np.ones(len(x))
    alpha = slope = 0.0
    for _ in range(30):
        scale = np.sqrt(weights) / y
        matrix = np.stack([scale, x * scale], axis=1)
        unit = np.maximum(np.linalg.norm(matrix, axis=0), 1e-300)
        solved = np.linalg.lstsq(matrix / unit, np.sqrt(weights), rcond=None)[0] / unit
        alpha, slope = float(solved[0]), float(solved[1])
        if alpha < 0 or slope < 0:
            alpha, slope = _one_sided(x, y, weights, keep_slope=alpha < 0)
        errors = np.abs((alpha + slope * x) / y - 1.0)
        width = FAR * max(float(np.median(errors)), 1e-9)
        renewed = np.where(errors <= width, 1.0, width / np.maximum(errors, 1e-300))
        if np.allclose(renewed, weights, rtol=1e-6):
            break
        weights = renewed
    errors = np.abs((alpha + slope * x) / y - 1.0)
    return Line(alpha, slope, float(np.median(errors)), float(errors.max()))


def _one_sided(x: Floats, y: Floats, weights: Floats, keep_slope: bool) -> tuple[float, float]:
    basis = x / y if keep_slope else 1.0 / y
    value = float((weights * basis).sum() / max(float((weights * basis * basis).sum()), 1e-300))
    return (0.0, value) if keep_slope else (value, 0.0)


@dataclass(frozen=True)
class Piece:
    """A line that holds from one measured size to another, both included; bytes."""

    smallest: float
    largest: float
    line: Line


def fit_pieces(sizes: Sequence[float], times: Sequence[float]) -> tuple[Piece, ...]:
    """Fit as few lines over neighbouring sizes as describe the data: a further one must be worth its numbers.

    The error is the root mean square of relative errors, without the worst tenth of the points.

    >>> eager = [(s, 1e-6 + s / 2e9) for s in (1, 64, 512, 4096)]
    >>> rendezvous = [(s, 9e-6 + s / 1e10) for s in (2**14, 2**16, 2**18, 2**20)]
    >>> [piece.largest for piece in fit_pieces(*zip(*eager, *rendezvous))]
    [4096.0, 1048576.0]
    """
    order = np.argsort(np.asarray(sizes, dtype=np.float64), kind="stable")
    x, y = np.asarray(sizes, dtype=np.float64)[order], np.asarray(times, dtype=np.float64)[order]
    if len(x) > MANY:
        return (_piece(x, y),)
    cache: dict[tuple[int, int], Piece] = {}

    def pieces_of(cuts: tuple[int, ...]) -> tuple[Piece, ...]:
        spans = list(zip((0, *cuts), (*cuts, len(x)), strict=True))
        for span in spans:
            if span not in cache:
                cache[span] = _piece(x[slice(*span)], y[slice(*span)])
        return tuple(cache[span] for span in spans)

    best = pieces_of(())
    for count in range(1, MOST_PIECES):
        if _error(best, x, y) < FINE:
            break
        steps = [i for i in range(FEWEST, len(x) - FEWEST + 1) if x[i] > x[i - 1]]
        ways = [c for c in combinations(steps, count) if all(b - a >= FEWEST for a, b in pairwise(c))]
        tried = [pieces_of(cuts) for cuts in ways]
        if not tried:
            break
        finer = min(tried, key=lambda pieces: _error(pieces, x, y))
        gained = 2 * len(x) * float(np.log(_error(best, x, y) / max(_error(finer, x, y), 1e-12)))
        if gained - ADDED * float(np.log(len(x))) < EVIDENCE:
            break
        best = finer
    return best


def _piece(x: Floats, y: Floats) -> Piece:
    return Piece(float(x[0]), float(x[-1]), fit_line(x.tolist(), y.tolist()))


def _error(pieces: tuple[Piece, ...], x: Floats, y: Floats) -> float:
    found = []
    for piece in pieces:
        inside = (x >= piece.smallest) & (x <= piece.largest)
        found.append(np.abs((piece.line.alpha + piece.line.slope * x[inside]) / y[inside] - 1.0))
    errors = np.sort(np.concatenate(found))[: max(1, int(np.ceil(0.9 * len(x))))]
    return float(np.sqrt(np.mean(errors**2)))
