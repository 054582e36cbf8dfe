"""Pipeline schedules: in which order every device runs the forward and backward passes of its micro-batches.

Sources: GPipe, Huang et al., NeurIPS'19 (all forward, then all backward); PipeDream-flush or 1F1B, Narayanan et al., ICML'21;
interleaved 1F1B with v chunks of layers per device, Narayanan et al., SC'21; message-driven, Singh and Bhatele, AxoNN, IPDPS'22
(whichever message is there runs; the first device lets at most p micro-batches in).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Step = tuple[bool, int, int]  # (backward, chunk, micro-batch)

SCHEDULES = ("1f1b", "gpipe", "message-driven")


@dataclass(frozen=True, eq=False)
class Schedule:
    """Every pass of a pipeline in an order in which each comes after what it waits for; (R,) arrays.

    A row is one pass of one chunk on one device; the last backward pass of a chunk is cut into pieces (layers whose gradients
    are ready one after the other). `before` is the row that the device ran last (-1: none, or it takes what is there), `source`
    the row whose message the pass needs (-1: none), `first` and `last` piece of their pass.
    """

    device: Ints
    chunk: Ints
    micro: Ints
    backward: npt.NDArray[np.bool_]
    piece: Ints
    before: Ints
    source: Ints
    ends: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.device)


def bubble_words(stages: int, num_micro: int) -> list[str]:
    """Return a warning where micro-batches are too few to fill a pipeline.

    >>> bubble_words(4, 1), bubble_words(1, 1)
    (['1 micro-batches cannot fill a pipeline of 4: bubbles take 75% or more'], [])
    """
    idle = (stages - 1) / (num_micro + stages - 1)
    text = f"{num_micro} micro-batches cannot fill a pipeline of {stages}: bubbles take {idle:.0%} or more"
    return [text] if 1 < stages > num_micro else []


def device_order(name: str, device: int, num_devices: int, num_micro: int, chunks: int = 1) -> list[Step]:
    """Return the passes of one device in order.

    >>> [("B" if back else "F") + str(micro) for back, _, micro in device_order("1f1b", 0, 2, 3)]
    ['F0', 'F1', 'B0', 'F2', 'B1', 'B2']
    """
    total, p = num_micro * chunks, num_devices

    def forward(k: int) -> Step:
        return False, k % (p * chunks) // p if chunks > 1 else 0, k // (p * chunks) * p + k % p if chunks > 1 else k

    def backward(k: int) -> Step:
        _, chunk, micro = forward(k)
        return True, chunks - 1 - chunk, micro

    if name == "gpipe":
        return [forward(k) for k in range(total)] + [backward(k) for k in reversed(range(total))]
    ahead = p - device - 1 if chunks == 1 else 2 * (p - device - 1) + (chunks - 1) * p
    ahead = min(ahead, total)
    steps = [forward(k) for k in range(ahead)]
    for k in range(total - ahead):
        steps += [forward(k + ahead), backward(k)]
    return steps + [backward(k) for k in range(total - ahead, total)]


@lru_cache(maxsize=64)
def pipeline_schedule(name: str, num_devices: int, num_micro: int, chunks: int = 1, pieces: int = 1) -> Schedule:
    """Return all passes of all devices; `pieces` is into how many the last backward pass of every chunk is cut."""
    orders = [device_order(name, d, num_devices, num_micro, chunks) for d in range(num_devices)]
    made: dict[tuple[bool, int, int], tuple[int, int]] = {}  # (backward, virtual stage, micro) -> first and last row
    rows: list[tuple[int, int, int, bool, int, int, int, bool]] = []
    stages, latest, position = num_devices * chunks, [-1] * num_devices, [0] * num_devices
    last_backward = [{step[1]: i for i, step in enumerate(order) if step[0]} for order in orders]
    driven = name == "message-driven"
    moved = True
    while moved:
        moved = False
        for d, order in enumerate(orders):
            while position[d] < len(order):
                back, chunk, micro = order[position[d]]
                stage = chunk * num_devices + d
                needs = _needs(back, stage, micro, stages)
                if needs is not None and needs not in made:
                    break
                source = made[needs][1] if needs is not None else -1
                count = pieces if back and last_backward[d][chunk] == position[d] else 1
                first = len(rows)
                for piece in range(count):
                    before = latest[d]
                    if driven and piece == 0:
                        let_in = (True, stage, micro - num_devices)
                        before = made[let_in][1] if stage == 0 and not back and let_in in made else -1
                    rows.append((d, chunk, micro, back, piece, before, source if piece == 0 else -1, piece == count - 1))
                    latest[d] = len(rows) - 1
                made[(back, stage, micro)] = (first, len(rows) - 1)
                position[d] += 1
                moved = True
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    return Schedule(*columns)


def _needs(back: bool, stage: int, micro: int, stages: int) -> tuple[bool, int, int] | None:
    """Return the pass whose message (or result) a pass needs."""
    if not back:
        return (False, stage - 1, micro) if stage > 0 else None
    return (True, stage + 1, micro) if stage < stages - 1 else (False, stage, micro)
