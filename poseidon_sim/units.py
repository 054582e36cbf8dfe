"""Quantities with units at the border; inside the package everything is a plain float in SI.

Seconds, bytes, bytes/s and FLOP/s. ``b`` is a bit and ``B`` a byte; ``G`` is 10^9 and ``Gi`` is 2^30. A bare
number for a quantity that has a dimension is an error: 40 could be Gbit/s or GB/s, an eightfold difference.
"""

from __future__ import annotations

import difflib
import math
import re

from poseidon_sim.errors import UnitError

_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
_PREFIXES = {**_DECIMAL, **_BINARY}

_SIZES = {
    prefix + symbol: scale * size
    for symbol, size in (("B", 1.0), ("bit", 0.125), ("b", 0.125))
    for prefix, scale in _PREFIXES.items()
}
_RATES = {unit + per: scale for unit, scale in _SIZES.items() for per in ("/s", "ps")}
_TIMES = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
}
_FLOPS = {prefix + unit: scale for unit in ("FLOP/s", "FLOPS") for prefix, scale in _DECIMAL.items()}
_MONEY = {currency + per: 1.0 for currency in ("USD", "EUR", "GBP", "CNY", "JPY") for per in ("/h", "/hour")}

_UNITS = {"rate": _RATES, "size": _SIZES, "time": _TIMES, "compute rate": _FLOPS, "price per hour": _MONEY}
_EXAMPLES = {
    "rate": '"40 Gbit/s" or "12 GB/s"',
    "size": '"64 MiB" or "25 MB"',
    "time": '"5 us" or "3 ms"',
    "compute rate": '"6.14 TFLOP/s"',
    "price per hour": '"3.06 USD/h"',
}
_USUAL_UNITS = {
    "rate": ("Gbit/s", "GB/s"),
    "size": ("MB", "MiB"),
    "time": ("us", "ms"),
    "compute rate": ("TFLOP/s",),
    "price per hour": ("USD/h",),
}
#: what any cluster stays within, in SI; beyond it sums overflow or vanish, and the figure is a slip of the pen
_RANGES = {
    "rate": (1e-3, 1e18), "size": (1e-3, 1e18), "time": (1e-15, 1e9), "compute rate": (1e-3, 1e24), "price per hour": (1e-9, 1e12),
}  # fmt: skip
_QUANTITY = re.compile(r"\s*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*(.*?)\s*", re.DOTALL)


def parse_rate(value: object, name: str) -> float:
    """Read a data rate into bytes/s; it must be above zero.

    Parameters
    ----------
    value : what the user gave, e.g. "40 Gbit/s", "12 GB/s", "3 GiB/s".
    name : the user's key, for messages.

    Examples
    --------
    >>> parse_rate("40 Gbit/s", "network")
    5000000000.0
    >>> parse_rate("40 GB", "network")
    Traceback (most recent call last):
    ...
    poseidon_sim.errors.UnitError: network="40 GB" is a size, not a rate; write "40 GB/s" or, for a network \
link, "40 Gbit/s" (= 5 GB/s)
    """
    return _parse(value, name, "rate", allow_zero=False)


def parse_size(value: object, name: str, *, allow_zero: bool = False) -> float:
    """Read an amount of bytes.

    Examples
    --------
    >>> parse_size("64 MiB", "bucket")
    67108864.0
    """
    return _parse(value, name, "size", allow_zero)


def parse_time(value: object, name: str, *, allow_zero: bool = False) -> float:
    """Read a duration into seconds; ``allow_zero`` suits latencies, where 0 s means "not modelled".

    Examples
    --------
    >>> parse_time("1.5 min", "restart")
    90.0
    >>> parse_time("0 s", "latency", allow_zero=True)
    0.0
    """
    return _parse(value, name, "time", allow_zero)


def parse_flops(value: object, name: str) -> float:
    """Read a compute rate into FLOP/s; a multiply-add is 2 FLOP.

    Examples
    --------
    >>> parse_flops("6.14 TFLOPS", "gpu.flops")
    6140000000000.0
    """
    return _parse(value, name, "compute rate", allow_zero=False)


def parse_money(value: object, name: str) -> float:
    """Read a price per hour; the currency is the user's affair and is not converted.

    Examples
    --------
    >>> parse_money("3.06 USD/h", "price")
    3.06
    """
    return _parse(value, name, "price per hour", allow_zero=True)


def parse_share(value: object, name: str, *, allow_zero: bool = False) -> float:
    """Read a share of a whole, a number from 0 to 1 or a percentage.

    Examples
    --------
    >>> parse_share("94 %", "efficiency")
    0.94
    >>> parse_share(0.94, "efficiency")
    0.94
    """
    advice = 'write a number from 0 to 1 or a percentage, for example 0.94 or "94 %"'
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise UnitError(f"{name}={_shown(value)} is not a share; {advice}")
    scale, text = 1.0, value
    if isinstance(text, str):
        match = _QUANTITY.fullmatch(text)
        if match is None or match[2] not in ("", "%"):
            raise UnitError(f"{name}={_shown(value)} cannot be read as a share; {advice}")
        text, scale = match[1], 0.01 if match[2] else 1.0
    try:
        share = float(text) if scale == 1.0 else float(text) / 100.0
    except OverflowError:
        share = math.inf
    if not 0.0 <= share <= 1.0 or (share == 0.0 and not allow_zero):
        above = "at least 0" if allow_zero else "above 0"
        raise UnitError(f"{name}={_shown(value)} must be {above} and at most 1; {advice}")
    return share


def format_rate(bytes_per_second: float, *, bits: bool = False) -> str:
    """Write a rate with four significant figures, in bytes or, as network links are sold, in bits.

    Examples
    --------
    >>> format_rate(5e9), format_rate(5e9, bits=True)
    ('5 GB/s', '40 Gbit/s')
    """
    if bits:
        return _decimal(bytes_per_second * 8.0, "bit/s")
    return _decimal(bytes_per_second, "B/s")


def format_size(num_bytes: float) -> str:
    """Write a size with four significant figures and a decimal prefix.

    Examples
    --------
    >>> format_size(574_668_960)
    '574.7 MB'
    """
    return _decimal(num_bytes, "B")


def format_time(seconds: float) -> str:
    """Write a duration with four significant figures.

    Examples
    --------
    >>> format_time(0.00314159), format_time(5400)
    ('3.142 ms', '1.5 h')
    """
    size = abs(seconds)
    if size == 0.0:
        return "0 s"
    for unit in ("h", "min", "s", "ms", "us"):
        if size >= _TIMES[unit]:
            return f"{seconds / _TIMES[unit]:.4g} {unit}"
    return f"{seconds / 1e-9:.4g} ns"


def _decimal(value: float, unit: str) -> str:
    """Write a value with the largest decimal prefix that keeps the figure at or above one."""
    for prefix in ("P", "T", "G", "M", "k"):
        if abs(value) >= _DECIMAL[prefix]:
            return f"{value / _DECIMAL[prefix]:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}"


def _parse(value: object, name: str, dimension: str, allow_zero: bool) -> float:
    """Read one quantity of the given dimension, or say what is wrong with it and what to write."""
    text = _text_of_quantity(value, name, dimension)
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise UnitError(
            f"{name}={_shown(value)} cannot be read as a {dimension}; "
            f"write a number and a unit, for example {_EXAMPLES[dimension]}"
        )
    number, unit = float(match[1]), match[2]
    if not unit:
        raise _no_unit(name, value, match[1], dimension)
    scale = _UNITS[dimension].get(unit)
    if scale is None:
        raise _wrong_unit(name, value, match[1], unit, dimension)
    quantity = number * scale if scale >= 1.0 else number / (1.0 / scale)
    low, high = _RANGES[dimension]
    if quantity > high or 0.0 < quantity < low:
        how = "large" if quantity > high else "small"
        raise UnitError(f"{name}={_shown(value)} is too {how} to be a {dimension}; write for example {_EXAMPLES[dimension]}")
    if quantity < 0.0 or (quantity == 0.0 and not allow_zero):
        rule = "must not be negative" if allow_zero else "must be above zero"
        raise UnitError(f"{name}={_shown(value)} {rule}; write for example {_EXAMPLES[dimension]}")
    return quantity + 0.0


def _text_of_quantity(value: object, name: str, dimension: str) -> str:
    """Return the text to read; a bare number, a truth value, nothing at all and containers are errors."""
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise _no_unit(name, value, _shown(value), dimension)
    what = "is empty" if value is None or isinstance(value, str) else f"is not a {dimension}"
    raise UnitError(f"{name}={_shown(value)} {what}; write for example {_EXAMPLES[dimension]}")


def _no_unit(name: str, value: object, number: str, dimension: str) -> UnitError:
    """Build the error for a bare number: repeat the number with the usual units."""
    choices = " or ".join(f'"{number} {unit}"' for unit in _USUAL_UNITS[dimension])
    return UnitError(f"{name}={_shown(value)} has no unit; write for example {choices}")


def _wrong_unit(name: str, value: object, number: str, unit: str, dimension: str) -> UnitError:
    """Build the error for a unit that is unknown or belongs to another dimension."""
    shown = _shown(value)
    for other, units in _UNITS.items():
        if unit in units:
            advice = _advice(number, unit, other, dimension)
            return UnitError(f"{name}={shown} is a {other}, not a {dimension}; write {advice}")
    known = _UNITS[dimension]
    close = [each for each in known if each.lower() == unit.lower()]
    close = close or difflib.get_close_matches(unit, known, n=1, cutoff=0.6)
    close.sort(key=lambda each: "B" in each)  # where both fit, bits are what people mean of a rate
    guesses = " or ".join(f'"{number} {each}"' for each in close)
    advice = f"did you mean {guesses}?" if close else f"write for example {_EXAMPLES[dimension]}"
    return UnitError(f"{name}={shown}: {_shown(unit)} is not a unit of a {dimension}; {advice}")


def _advice(number: str, unit: str, found: str, wanted: str) -> str:
    """Say what to write instead, keeping the user's figure where the two dimensions are close."""
    if (found, wanted) == ("size", "rate") and unit.endswith("B"):
        bits = unit.removesuffix("B") + "bit/s"
        rate = format_rate(float(number) * _RATES[bits])
        return f'"{number} {unit}/s" or, for a network link, "{number} {bits}" (= {rate})'
    if (found, wanted) == ("size", "rate"):
        return f'"{number} {unit}/s" (= {format_rate(float(number) * _RATES[unit + "/s"])})'
    if (found, wanted) == ("rate", "size"):
        return f'"{number} {unit.removesuffix("/s").removesuffix("ps")}"'
    return f"for example {_EXAMPLES[wanted]}"


def _shown(value: object) -> str:
    """Show a value as the user would have written it: text in double quotes, cut where it is very long."""
    try:
        text = f'"{value}"' if isinstance(value, str) else repr(value)
    except Exception:  # a stranger's repr may fail, and a huge int refuses to print
        return f"<{type(value).__name__}>"
    return text if len(text) <= 80 else text[:76] + "..."
