"""Strategies by name: ours, and a stranger's through the entry-point group `poseidon_sim.strategies`.

Ours are found by reading this folder: a class with a line ``name: ClassVar[str] = "..."`` is a strategy of that name. Nothing is
imported before it is asked for, and a new file needs no entry anywhere.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

from poseidon_sim.errors import unknown_name
from poseidon_sim.strategy.base import Strategy

_CLASS = re.compile(r'^class (\w+)\(|^    name: ClassVar\[str\] = "([^"]+)"', re.MULTILINE)


@cache
def _ours() -> dict[str, tuple[str, str]]:
    """Return (module, class) of every strategy of this folder by name."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        current = ""
        for match in _CLASS.finditer(path.read_text(encoding="utf-8")):
            current = match[1] or current
            if match[2]:
                found[match[2]] = (path.stem, current)
    return found


@cache
def _plugins() -> dict[str, type[Strategy]]:
    return {point.name: point.load() for point in entry_points(group="poseidon_sim.strategies")}


def list_strategies() -> tuple[str, ...]:
    """Return the names of all registered strategies, plug-ins included."""
    return tuple(sorted({*_ours(), *_plugins()}))


def strategy_class(name: str) -> type[Strategy]:
    """Return the class of the strategy called `name`; raise UnknownNameError with the nearest known name."""
    if name in _ours():
        module, attribute = _ours()[name]
        found: type[Strategy] = getattr(import_module(f"poseidon_sim.strategy.{module}"), attribute)
        return found
    if name in _plugins():
        return _plugins()[name]
    raise unknown_name("strategy", name, list_strategies())


def class_called(attribute: str) -> type[Strategy] | None:
    """Return the strategy whose class is called `attribute`, or None."""
    return next((strategy_class(name) for name, (_, called) in _ours().items() if called == attribute), None)


def class_names() -> tuple[str, ...]:
    """Return the names of our strategies' classes."""
    return tuple(sorted(called for _, called in _ours().values()))
