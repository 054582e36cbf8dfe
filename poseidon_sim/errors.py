"""The error tree: every mistake a person can make has a class, a message with a next move, and an exit code."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PoseidonSimError(Exception):
    """Base of every error raised on purpose. ``exit_code`` is what the command line returns."""

    exit_code = 1


class InputError(PoseidonSimError, ValueError):
    """Something given by the user is wrong: the message names it, states the rule and the next move."""

    exit_code = 2


class UnitError(InputError):
    """A quantity without a unit, with the wrong unit, or one that cannot be read."""


class UnknownNameError(InputError):
    """A name that is not in the catalog, the registry or the schema."""


class UnreadableFileError(PoseidonSimError, OSError):
    """A file that is missing or cannot be parsed at all."""

    exit_code = 3


class InfeasibleError(PoseidonSimError):
    """The question has no answer on this hardware, for example the model does not fit in memory."""

    exit_code = 4


class CheckError(PoseidonSimError):
    """An invariant of the engine or a law of a strategy does not hold."""

    exit_code = 1


def nearest(given: str, known: Iterable[str]) -> str | None:
    """Return the known name closest to ``given``, or None when nothing is close.

    >>> nearest("posiedon", ["poseidon", "adam"])
    'poseidon'
    """
    match = difflib.get_close_matches(str(given).lower(), sorted(known), n=1, cutoff=0.5)
    return match[0] if match else None


def unknown_name(what: str, given: object, known: Iterable[str]) -> UnknownNameError:
    """Build the error for an unknown name: what was given, the nearest known one, and where to look.

    >>> print(unknown_name("strategy", "posiedon", ["poseidon", "adam"]))
    unknown strategy 'posiedon'; did you mean 'poseidon'? Known: adam, poseidon
    """
    names = sorted(known)
    close = nearest(str(given), names)
    hint = f"; did you mean {close!r}?" if close else "."
    shown = ", ".join(names[:12]) + (f", ... ({len(names)} in all)" if len(names) > 12 else "")
    return UnknownNameError(f"unknown {what} {given!r}{hint} Known: {shown}")
