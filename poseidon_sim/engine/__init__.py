"""The engine: executes a :class:`~poseidon_sim.engine.program.Program` of tasks, queues and links.

It has never heard of a GPU; it knows tasks that wait for tasks, queue for servers and share links.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import sys
import warnings

import numpy as np

from poseidon_sim.engine.program import Program, Times, make_program, validate_program
from poseidon_sim.errors import InputError, unknown_name

__all__ = ["ENGINES", "Program", "Times", "choose_engine", "make_program", "run", "validate_program"]

ENGINES = ("auto", "reference", "fast")

SMALL = 3000
"""Programs below this many tasks cost the reference less than loading the compiled engine would, ..."""

SMALL_SHARING = 250_000
"""... unless flows times flows that may be active at once comes to more: every end shares the links anew."""

PATIENCE = 20
"""So many small programs run on the reference; who asks more often is better served by the compiled engine."""

_small_runs = itertools.count(1)


def run(program: Program, engine: str = "auto", check: bool = False, sound: bool = False) -> Times:
    """Execute `program` and return when each task was ready, started, left its queue and ended.

    Parameters
    ----------
    engine : "reference" (SimPy, plain), "fast" (compiled with numba), or "auto": the fast one, but for small
        programs while it is not loaded, because loading it takes longer than they do. The two agree to 1e-9; name one
        where bits matter.
    sound : the program is known to be meaningful (it passed before with other numbers); not looked at again.
    check : watch the run and raise CheckError if an invariant does not hold (see :mod:`.check`); slower.

    Raises
    ------
    CheckError
        The program is meaningless or has a cycle, or an invariant does not hold.
    UnknownNameError, InputError
        There is no such engine, or it is not installed.

    Examples
    --------
    Two transfers of 6 units share a link of 2 units/s; the second waits for its own latency first:

    >>> program = make_program([6.0, 6.0], uses=[{0: 1.0}, {0: 1.0}], capacity=[2.0], latency=[0.0, 2.0])
    >>> run(program, check=True).end.tolist()
    [4.0, 6.0]
    """
    chosen = choose_engine(program, engine)
    if not sound:
        validate_program(program)
    if chosen == "fast":
        from poseidon_sim.engine.fast import run_fast as execute
    else:
        from poseidon_sim.engine.reference import run_reference as execute
    if not check:
        return execute(program)
    from poseidon_sim.engine.check import Checker

    checker = Checker(program)
    times = execute(program, checker.observe)
    checker.finish(times)
    return times


def choose_engine(program: Program, engine: str = "auto") -> str:
    """Return which engine :func:`run` will use, "reference" or "fast" (for the provenance of a result).

    >>> choose_engine(make_program([1.0], rate_cap=1.0))
    'reference'
    """
    if engine not in ENGINES:
        raise unknown_name("engine", engine, ENGINES)
    if engine == "reference":
        return "reference"
    if engine == "auto" and not is_loaded() and is_small(program) and next(_small_runs) <= PATIENCE:
        return "reference"
    if importlib.util.find_spec("numba") is not None:
        return "fast"
    if engine == "fast":
        raise InputError(
            'engine="fast" needs numba, which is not installed; write `pip install "poseidon-sim[fast]"`, '
            'or take engine="reference", which gives the same times'
        )
    if not is_small(program):
        warn_once()
    return "reference"


def is_loaded() -> bool:
    """Whether this process has the compiled engine in memory."""
    return "poseidon_sim.engine.fast" in sys.modules


def is_small(program: Program) -> bool:
    flows = (program.work > 0) & (np.diff(program.use_ptr) > 0)
    num_flows = np.count_nonzero(flows)
    at_once = np.count_nonzero(flows & (program.queue < 0)) + program.queue_slots.sum()
    return bool(program.num_tasks < SMALL and num_flows * min(num_flows, at_once) < SMALL_SHARING)


@functools.cache
def warn_once() -> None:
    warnings.warn(
        "numba is not installed: large programs run on the reference engine, slowly, with the same times; "
        'install it with `pip install "poseidon-sim[fast]"`',
        RuntimeWarning,
        stacklevel=4,
    )
