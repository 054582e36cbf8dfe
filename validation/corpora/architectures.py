"""Published hyper-parameters of language models (architectures.csv) as inline models, and the FLOP that papers count for them.

A FLOP formula here is the source's own, since it turns the source's TFLOP/s back into seconds; what the simulator counts is
another matter. All are FLOP per sequence of s tokens, l layers, width h, vocabulary V, and a multiply-add is 2 FLOP.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from typing import Any

import poseidon_sim as ps

from .constants import HERE


@dataclass(frozen=True)
class Architecture:
    """A transformer as published. `positions` are rows of the learned table; 0 for none, None for the sequence length."""

    name: str
    layers: int
    hidden: int
    heads: int
    vocabulary: int
    key_value_heads: int | None = None
    feed_forward: int | None = None
    gated: bool = False
    positions: int | None = None
    norm: str = "layer"
    bias: bool = True
    head: str = "tied"
    source: str = ""

    def model(self, sequence: int, precision: str) -> dict[str, Any]:
        """Return the scenario's model; trained with Adam."""
        shape: dict[str, Any] = {
            "layers": self.layers, "hidden": self.hidden, "heads": self.heads, "vocabulary": self.vocabulary,
            "key_value_heads": self.key_value_heads, "feed_forward": self.feed_forward, "gated": self.gated or None,
            "positions": sequence if self.positions is None else self.positions or None, "norm": self.norm, "head": self.head,
            "bias": None if self.bias else False,
        }  # fmt: skip
        shape = {key: value for key, value in shape.items() if value is not None}
        return {"name": self.name, "transformer": shape, "sequence_length": sequence, "precision": precision, "optimizer": "adam"}


@cache
def architectures() -> dict[str, Architecture]:
    """Return the architectures of the file by name; parameter counts that it states are checked by the tests."""
    with open(HERE / "architectures.csv", newline="", encoding="utf-8") as lines:
        return {row["name"]: _architecture(row) for row in csv.DictReader(lines)}


def _architecture(row: dict[str, str]) -> Architecture:
    def whole(key: str) -> int | None:
        return int(row[key]) if row[key] else None

    try:
        return Architecture(
            row["name"], int(row["layers"]), int(row["hidden"]), int(row["heads"]), int(row["vocabulary"]), whole("key_value_heads"),
            whole("feed_forward"), row["gated"] == "yes", None if row["positions"] == "sequence" else whole("positions") or 0,
            row["norm"], row["bias"] == "yes", row["head"], row["source"],
        )  # fmt: skip
    except (KeyError, ValueError) as error:
        raise ps.InputError(f"architectures.csv: row {row.get('name')!r} cannot be read ({error}); correct it") from None


def gpt(name: str, layers: int, hidden: int, heads: int, vocabulary: int) -> Architecture:
    """Return a GPT-2 or GPT-3 of these sizes: 4h wide feed-forward, learned positions, tied output layer."""
    return Architecture(name, layers, hidden, heads, vocabulary)


def narayanan(a: Architecture, s: int) -> float:
    """FLOP per sequence with everything recomputed: 96 s l h^2 (1 + s/6h + V/16lh).

    Source: Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters, SC'21, equation 3.

    >>> round(narayanan(gpt("1T", 128, 25600, 160, 51200), 2048) / 1e15, 2)
    16.71
    """
    return 96.0 * s * a.layers * a.hidden**2 * (1 + s / (6 * a.hidden) + a.vocabulary / (16 * a.layers * a.hidden))


def layers_only(a: Architecture, s: int) -> float:
    """FLOP per sequence of the matrix products of the layers, recomputed: 96 s l h^2 (BigScience's first calculator)."""
    return 96.0 * s * a.layers * a.hidden**2


def mosaic(a: Architecture, s: int) -> float:
    """FLOP per sequence of a forward and a backward pass: 6 N s + 12 l h s^2.

    Source: MosaicML llm-foundry, scripts/train/benchmarking/README.md at 8c8dd48 (MFU).
    """
    blocks = a.layers * (12 * a.hidden**2 + 13 * a.hidden) + 2 * a.hidden
    parameters = blocks + (a.vocabulary + (s if a.positions is None else a.positions)) * a.hidden
    return 6.0 * parameters * s + 12.0 * a.layers * a.hidden * s**2


def bridge(a: Architecture, s: int) -> float:
    """FLOP per sequence of a forward and a backward pass, causal attention counted half, output layer included.

    Source: NVIDIA Megatron-Bridge, model FLOP of its performance pages: 6 s (l (h^2 (2 + 2 k) + 3 f h) + V h) + 6 l h s^2,
    k the share of key-value heads, f the width of a gated feed-forward layer.
    """
    share = (a.key_value_heads or a.heads) / a.heads
    inner = (3 if a.gated else 2) * (a.feed_forward or 4 * a.hidden)
    matrices = a.layers * (a.hidden**2 * (2 + 2 * share) + inner * a.hidden) + a.vocabulary * a.hidden
    return 6.0 * s * matrices + 6.0 * a.layers * a.hidden * s**2
