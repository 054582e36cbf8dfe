"""Messages and rounds: the exact words of a collective. A round is arrays inside and messages outside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Message:
    """One message of one round: the buffer from `start` to `stop` (shares of 1), added or stored on arrival.

    `place` is where the part begins at the target; it is `start` but for all-to-all, which has an outbox and
    an inbox.
    """

    source: int
    target: int
    start: float
    stop: float
    reduce: bool
    place: float

    @property
    def share(self) -> float:
        """Part of the buffer that moves."""
        return self.stop - self.start


@dataclass(frozen=True, eq=False)
class Round:
    """Messages that run at once: (m,) arrays of ranks and chunks of a buffer of `num_chunks` equal chunks.

    Iterating gives `Message` objects.

    >>> [(m.source, m.target, m.share) for m in make_round([0, 1], [1, 0], 0, 1, reduce=True, num_chunks=2)]
    [(0, 1, 0.5), (1, 0, 0.5)]
    """

    source: Ints
    target: Ints
    start: Ints
    stop: Ints
    place: Ints
    reduce: npt.NDArray[np.bool_]
    num_chunks: int

    @property
    def share(self) -> Floats:
        """(m,) part of the buffer that each message moves."""
        return (self.stop - self.start) / float(self.num_chunks)

    def __len__(self) -> int:
        return len(self.source)

    def __iter__(self) -> Iterator[Message]:
        chunks = float(self.num_chunks)
        for i in range(len(self)):
            yield Message(
                int(self.source[i]),
                int(self.target[i]),
                int(self.start[i]) / chunks,
                int(self.stop[i]) / chunks,
                bool(self.reduce[i]),
                int(self.place[i]) / chunks,
            )


Schedule = tuple[Round, ...]
Numbers = Ints | Sequence[int] | int


def make_round(
    source: Numbers,
    target: Numbers,
    start: Numbers,
    stop: Numbers,
    *,
    reduce: object,
    num_chunks: int,
    place: Numbers | None = None,
) -> Round:
    """Build a round; scalars stand for all its messages."""
    columns = [
        np.asarray(each, dtype=np.int64)
        for each in (source, target, start, stop, start if place is None else place)
    ]
    *wide, flag = np.broadcast_arrays(*columns, np.asarray(reduce, dtype=bool))
    return Round(wide[0], wide[1], wide[2], wide[3], wide[4], flag, num_chunks)


def join_rounds(rounds: Sequence[Round]) -> Round:
    """Let the messages of several rounds run at once; all cut the buffer alike."""

    def column(name: str) -> npt.NDArray[np.int64]:
        return np.concatenate([getattr(each, name) for each in rounds])

    flags = np.concatenate([each.reduce for each in rounds])
    chunks = rounds[0].num_chunks
    return Round(
        column("source"), column("target"), column("start"), column("stop"), column("place"), flags, chunks
    )


def mirrored(schedule: Sequence[Round]) -> Schedule:
    """Turn a reduction into the broadcast that mirrors it: last round first, messages back, stored."""
    return tuple(
        Round(e.target, e.source, e.start, e.stop, e.place, np.zeros(len(e), dtype=bool), e.num_chunks)
        for e in reversed(schedule)
    )


@dataclass(frozen=True, eq=False)
class Leg:
    """A part of a collective as the fluid model sees it: repeated rounds, of which only shares matter.

    Parameters
    ----------
    rounds, repeat : what runs one after another, and how often all of it.
    pipelined : the rounds overlap chunk by chunk, so the leg takes what its busiest link takes, not round
        after round.
    hops : message latencies on the longest chain (between nodes, inside nodes); counted round by round if not
        given.
    """

    rounds: Schedule
    repeat: int = 1
    name: str = ""
    pipelined: bool = False
    hops: tuple[int, int] | None = None


@dataclass(frozen=True, eq=False)
class Expansion:
    """All messages of a schedule in order, with what each one waits for; M messages, n ranks.

    Parameters
    ----------
    source, target, share : (M,) ranks and parts of the buffer.
    before : (M, K) earlier messages that each one waits for, -1 where there is none.
    own : (M,) the message holds data that its source had from the beginning.
    opens : (M,) first message between its two ranks, so its target must have called the collective too.
    last : (n, F) the messages that a rank's result waits for.
    """

    source: Ints
    target: Ints
    share: Floats
    before: Ints
    own: npt.NDArray[np.bool_]
    opens: npt.NDArray[np.bool_]
    last: Ints


def expand(schedule: Schedule, num_ranks: int, in_order: bool) -> Expansion:
    """Work out who waits for whom: a message waits for every message whose chunks it passes on.

    `in_order` adds blocking receives: a rank takes messages of a round from a new peer only when those of
    earlier rounds are in, so that no early sender halves the port of a late one.
    """
    size = max(int(max(e.stop.max(), (e.place + e.stop - e.start).max())) for e in schedule)
    held: list[list[tuple[int, ...]]] = [[(-1,)] * size for _ in range(num_ranks)]
    received: list[tuple[int, tuple[int, ...], frozenset[int]]] = [(-1, (), frozenset())] * num_ranks
    waits: list[set[int]] = []
    for step, each in enumerate(schedule):
        columns = (each.source, each.target, each.start, each.stop, each.place, each.reduce)
        rows = list(zip(*(column.tolist() for column in columns), strict=True))
        first = len(waits)
        for source, target, start, stop, _, _ in rows:
            need = {writer for chunk in held[source][start:stop] for writer in chunk}
            if in_order and source not in received[target][2]:
                need |= set(received[target][1])
            waits.append(need)
        for message, (source, target, start, stop, place, reduce) in enumerate(rows, first):
            for chunk in range(place, place + stop - start):
                held[target][chunk] = (*held[target][chunk], message) if reduce else (message,)
            same = received[target] if received[target][0] == step else (step, (), frozenset[int]())
            received[target] = (step, (*same[1], message), same[2] | {source})
    source, target, share = (
        np.concatenate([getattr(e, name) for e in schedule]) for name in ("source", "target", "share")
    )
    pair = source * num_ranks + target
    opens = np.zeros(len(pair), dtype=bool)
    opens[np.unique(pair, return_index=True)[1]] = True
    own = np.array([-1 in need for need in waits])
    last = [{writer for chunk in row for writer in chunk} for row in held]
    return Expansion(source, target, share, _padded(waits), own, opens, _padded(last))


def _padded(rows: Sequence[set[int]]) -> Ints:
    """Turn sets of message indices into a padded array; -1 (own data) is left out."""
    lists = [sorted(row - {-1}) for row in rows]
    out = np.full((len(lists), max(1, max(len(row) for row in lists))), -1, dtype=np.int64)
    for i, row in enumerate(lists):
        out[i, : len(row)] = row
    return out
