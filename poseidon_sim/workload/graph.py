"""The graph of a workload's layers: which layers each one reads from."""

from __future__ import annotations

from collections.abc import Sequence

from poseidon_sim.errors import InputError
from poseidon_sim.workload.layer import Layer


def sources(layers: Sequence[Layer]) -> tuple[tuple[int, ...], ...]:
    """Return, for every layer, the indices of the layers it reads from; a chain where no layer names its inputs.

    >>> sources([Layer("a", "conv"), Layer("b", "conv", inputs=("a",)), Layer("c", "add", inputs=("a", "b"))])
    ((), (0,), (0, 1))
    >>> sources([Layer("a", "conv"), Layer("b", "conv")])
    ((), (0,))
    """
    if not any(layer.inputs for layer in layers):
        return tuple((i - 1,) if i else () for i in range(len(layers)))
    place = {layer.name: i for i, layer in enumerate(layers)}
    rows = []
    for i, layer in enumerate(layers):
        unknown = [name for name in layer.inputs if place.get(name, i) >= i]
        if unknown:
            raise InputError(f"layer {layer.name!r} reads from {unknown[0]!r}, which is not a layer before it")
        rows.append(tuple(sorted({place[name] for name in layer.inputs})))
    return tuple(rows)


def readers(before: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Turn `sources` round: for every layer, the indices of the layers that read from it.

    >>> readers(((), (0,), (0, 1)))
    ((1, 2), (2,), ())
    """
    rows: list[list[int]] = [[] for _ in before]
    for i, each in enumerate(before):
        for j in each:
            rows[j].append(i)
    return tuple(map(tuple, rows))
