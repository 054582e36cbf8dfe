"""`key=value` changes to a scenario: dotted paths, values typed as YAML would, and grids for sweeps."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from poseidon_sim.cluster.catalog import list_links
from poseidon_sim.errors import InputError

#: keys that may stand alone
SHORT = {"nodes": "cluster.nodes", "gpus_per_node": "cluster.gpus_per_node", "network": "cluster.network", "gpu": "cluster.gpu"}
#: what a plain string stands for when a path goes below it
_TEXT_KEY = {"strategy": "name", "cluster.network": "bandwidth", "cluster.gpu": None, "model": "name"}


def whole_path(key: str) -> str:
    """Return the dotted path that a key stands for.

    >>> whole_path("nodes"), whole_path("strategy.overlap")
    ('cluster.nodes', 'strategy.overlap')
    """
    return SHORT.get(key, key)


def apply(raw: Mapping[str, Any], changes: Mapping[str, object]) -> dict[str, Any]:
    """Return a copy of a raw scenario with dotted paths set.

    >>> apply({"strategy": "poseidon", "cluster": {"nodes": 2}}, {"nodes": 4, "strategy.overlap": False})
    {'strategy': {'name': 'poseidon', 'overlap': False}, 'cluster': {'nodes': 4}}
    """
    result = copy.deepcopy(dict(raw))
    for key, value in changes.items():
        path = whole_path(key).split(".")
        if not all(path):
            raise InputError(f"{key}={value}: a dotted path has an empty part; write for example cluster.network.bandwidth")
        where: Any = result
        for depth, part in enumerate(path[:-1]):
            inner = where.get(part)
            if not isinstance(inner, dict):
                inner = _opened(".".join(path[: depth + 1]), inner, key)
                where[part] = inner
            where = inner
        if len(path) == 1 and path[0] == "strategy" and isinstance(value, Mapping):
            value = dict(value)
        where[path[-1]] = value
    return result


def _opened(path: str, inner: object, key: str) -> dict[str, Any]:
    """Turn a shorthand string into the mapping it stands for, so that a key below it can be set."""
    if inner is None:
        return {}
    name = _TEXT_KEY.get(path)
    if isinstance(inner, str) and name is not None:
        if path == "cluster.network" and (inner in list_links() or not inner[:1].isdigit()):
            name = "link"
        return {name: inner}
    raise InputError(f"{key}: {path} is {inner!r}, which has no keys of its own; write {path} out as a mapping first")


def parse_value(text: str) -> object:
    """Read a value as YAML would: numbers, booleans, lists and mappings; anything else is text.

    >>> parse_value("16"), parse_value("40 Gbit/s"), parse_value("1e9"), parse_value("{name: adam}")
    (16, '40 Gbit/s', 1000000000.0, {'name': 'adam'})
    """
    if re.fullmatch(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+", text.strip()):
        return float(text)
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return text


def split_pair(text: str) -> tuple[str, str]:
    """Cut 'key=value' at the first '='; anything else is an InputError that says what to write."""
    key, sign, value = text.partition("=")
    if not sign or not key.strip() or not value.strip():
        raise InputError(f"{text!r} is not a change; write key=value, for example nodes=16 or cluster.network.bandwidth=40Gbit/s")
    return key.strip(), value.strip()


def parse_changes(pairs: Sequence[str]) -> dict[str, object]:
    """Read the command line's key=value arguments."""
    changes: dict[str, object] = {}
    for key, value in map(split_pair, pairs):
        same = next((each for each in changes if whole_path(each) == whole_path(key)), None)
        if same is not None:
            raise InputError(f"{key} is given twice ({changes[same]} and {value}); keep one")
        changes[key] = parse_value(value)
    return changes


def parse_grid(pairs: Sequence[str]) -> dict[str, list[object]]:
    """Read comma lists for a sweep; a unit at the last element serves the bare numbers before it.

    >>> parse_grid(["nodes=1,2", "cluster.network.bandwidth=5,10Gbit/s"])
    {'nodes': [1, 2], 'cluster.network.bandwidth': ['5Gbit/s', '10Gbit/s']}
    """
    grid: dict[str, list[object]] = {}
    for key, text in map(split_pair, pairs):
        parts = _split_commas(text)
        if not all(parts):
            raise InputError(f"{key}={text} has an empty value; write for example nodes=2,4,8")
        unit = re.fullmatch(r"[\d.eE+-]+\s*([A-Za-z%].*)", parts[-1])
        if unit:
            parts = [p + unit.group(1) if re.fullmatch(r"[\d.]+", p) else p for p in parts]
        values = [parse_value(part) for part in parts]
        twice = [part for part, value in zip(parts, values, strict=True) if values.count(value) > 1]
        if twice or whole_path(key) in map(whole_path, grid):
            raise InputError(f"{key}={twice[0]} is given twice; keep one" if twice else f"{key} is given twice; keep one")
        grid[key] = values
    return grid


def _split_commas(text: str) -> list[str]:
    """Split at commas outside brackets and braces."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "[{(") - (letter in "]})")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]
