"""Where a result comes from: inputs, versions, engine, seed. Every result carries it."""

from __future__ import annotations

import hashlib
import json
import platform

import numpy as np

SCHEMA_VERSION = 1


def provenance(inputs: object, *, engine: str, detail: str, seed: int) -> dict[str, object]:
    """Return the record that makes a result repeatable.

    Parameters
    ----------
    inputs : JSON-like description of model, cluster, strategy and batch; its SHA-256 is the result's key.
    """
    from poseidon_sim import __version__

    return {
        "schema_version": SCHEMA_VERSION,
        "poseidon_sim": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "engine": engine,
        "detail": detail,
        "seed": seed,
        "inputs": inputs,
        "inputs_sha256": digest(inputs),
    }


def digest(inputs: object) -> str:
    """Return the SHA-256 of a JSON-like value, independent of the order of keys.

    >>> digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    True
    """
    text = json.dumps(inputs, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
