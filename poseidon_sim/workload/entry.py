"""One entry of a model description, read strictly: every value is checked, every message names the layer."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from numbers import Real

from poseidon_sim.errors import InputError, nearest
from poseidon_sim.units import parse_size, parse_time

Shape = tuple[int, ...]
_MOST = 10**15
_MOST_NUMBER = 1e21
_MOST_AXES = 4


class Entry:
    """Checked access to the keys of one layer (or of the model itself).

    Parameters
    ----------
    values : the mapping as it was written.
    label : how messages call it, e.g. "layer 'conv1'".

    Examples
    --------
    >>> Entry({"channels": "1e3"}, "layer 'conv1'").count("channels")
    1000
    """

    __slots__ = ("label", "values")

    def __init__(self, values: Mapping[str, object], label: str) -> None:
        self.values = values
        self.label = label

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def error(self, message: str) -> InputError:
        """Build an error that names this entry."""
        return InputError(f"{self.label}: {message}")

    def check_keys(self, allowed: Collection[str]) -> None:
        """Refuse keys that are not known, naming the nearest one that is."""
        for key in self.values:
            if key not in allowed:
                close = nearest(str(key), allowed)
                hint = f"did you mean {close!r}? " if close else ""
                raise self.error(f"unknown key {key!r}; {hint}Known: {', '.join(sorted(allowed))}")

    def text(self, key: str, default: str | None = None) -> str:
        """Return a non-empty piece of text."""
        value = self.values.get(key, default)
        if isinstance(value, bool):
            raise self.error(f'{key}={value} was read as a truth value; put the text in quotes: {key}: "no"')
        if value is None:
            raise self.error(f"{key} is missing; write {key}: ...")
        if not isinstance(value, str) or not value.strip():
            raise self.error(f'{key}={value!r} must be text; write it in quotes: {key}: "{value}"')
        return value

    def choice(self, key: str, allowed: Collection[str], default: str) -> str:
        """Return one of a few words."""
        value = self.text(key, default)
        if value not in allowed:
            raise self.error(f"{key}={value!r} must be one of {', '.join(allowed)}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """Return a truth value."""
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise self.error(f"{key}={value!r} must be true or false, without quotes")
        return value

    def number(self, key: str, *, allow_zero: bool = False) -> float:
        """Return a plain number above zero; text that is a number counts, as YAML reads 1e9 as text."""
        value = self.values.get(key)
        number = _number(value)
        if number > _MOST_NUMBER and math.isfinite(number):
            raise self.error(f"{key}={_shown(value)} is too large; it must be at most {_MOST_NUMBER:g}")
        if math.isfinite(number) and (number > 0 or (allow_zero and number == 0)):
            return number
        raise self.error(
            f"{key}={_shown(value)} must be a number {'of at least' if allow_zero else 'above'} 0"
        )

    def count(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """Return a whole number that is at least `least`."""
        value = self.values.get(key, default)
        if type(value) is int and least <= value <= _MOST:
            return value
        if default is None and key not in self.values:
            raise self.error(f"{key} is missing; write {key}: followed by a whole number")
        number = _number(value)
        if number.is_integer() and least <= number <= _MOST:
            return int(number)
        raise self.error(f"{key}={_shown(value)} must be a whole number from {least} to 10^15")

    def pair(self, key: str, default: int | None = None, *, least: int = 1) -> tuple[int, int]:
        """Return (height, width) from one whole number or a list of two."""
        value = self.values.get(key, default)
        if isinstance(value, list | tuple):
            if len(value) != 2:
                raise self.error(f"{key}={value!r} must be one number or [height, width]")
            height, width = self.shape(key, least=least)
            return height, width
        side = self.count(key, default, least=least)
        return side, side

    def shape(self, key: str, *, least: int = 1) -> Shape:
        """Return a list of whole numbers as a tuple."""
        value = self.values.get(key)
        if not isinstance(value, list | tuple) or not 1 <= len(value) <= _MOST_AXES:
            raise self.error(f"{key}={_shown(value)} must be a list of one to four whole numbers")
        sizes = Entry({f"{key}[{index}]": size for index, size in enumerate(value)}, self.label)
        return tuple(sizes.count(each, least=least) for each in sizes.values)

    def time(self, key: str) -> float | None:
        """Return a time in seconds, or None when the key is absent."""
        if key not in self.values:
            return None
        return parse_time(self.values[key], f"{self.label}: {key}", allow_zero=True)

    def size(self, key: str) -> float | None:
        """Return a size in bytes, or None when the key is absent."""
        if key not in self.values:
            return None
        return parse_size(self.values[key], f"{self.label}: {key}", allow_zero=True)


def _number(value: object) -> float:
    """Return the number a value is or spells, or nan."""
    if isinstance(value, bool) or not isinstance(value, Real | str):
        return math.nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.nan


def _shown(value: object) -> str:
    """Show a value, cut where it is very long."""
    text = "(missing)" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
