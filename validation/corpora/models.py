"""Models of the corpora that do not come with the toolkit: files beside this one, and transformers that stand for near kin."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from .architectures import architectures

FOLDER = Path(__file__).resolve().parent / "models"
#: tokens of one sample of Transformer-XL: the target length of NVIDIA's scripts
TARGET = {"base": 192, "large": 384}


@cache
def _file(name: str) -> dict[str, Any]:
    return {"name": name, **yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))}


def described(name: str) -> dict[str, Any]:
    """Return the model of a file in models/ beside this module."""
    return dict(_file(name))


def transformer_xl(size: str) -> dict[str, Any]:
    """Return Transformer-XL 'base' or 'large'; a sample is a segment of its target length."""
    return architectures()[f"Transformer-XL {size}"].model(TARGET[size], "fp32")


def bart(sequence: int) -> dict[str, Any]:
    """Return BART-large (406 million parameters): 12 + 12 layers of 1024; the 12 attentions to the encoder count as 4 layers."""
    shape = {"layers": 28, "hidden": 1024, "heads": 16, "vocabulary": 50265, "positions": 2052, "norm_first": False, "head": "tied"}
    return {"name": "bart-large", "transformer": shape, "sequence_length": sequence, "optimizer": "adam"}


def transformer_big() -> dict[str, Any]:
    """Return the big Transformer of translation (213 million parameters): 6 + 6 layers of 1024, the attentions to the encoder as 2.

    A sample is one token, since batches are counted in tokens.
    """
    shape = {"layers": 14, "hidden": 1024, "heads": 16, "vocabulary": 33708, "norm_first": False, "head": "tied"}
    return {"name": "transformer-big", "transformer": shape, "sequence_length": 1, "optimizer": "adam"}


def electra(sequence: int, generator: bool) -> dict[str, Any]:
    """Return ELECTRA-base: BERT-base's layers; in pre-training its generator (12 layers of 256) counts as a thirteenth layer."""
    shape = {"layers": 13 if generator else 12, "hidden": 768, "heads": 12, "vocabulary": 30522, "positions": 512, "token_types": 2}
    return {
        "name": "electra-base", "transformer": {**shape, "norm_first": False, "head": "none"}, "sequence_length": sequence,
        "optimizer": "adam",
    }  # fmt: skip
