"""The engine: executes a :class:`~poseidon_sim.engine.program.Program` of tasks, queues and links."""

from __future__ import annotations

from poseidon_sim.engine.program import Program, Times, make_program, validate_program
from poseidon_sim.errors import unknown_name

__all__ = ["Program", "Times", "make_program", "run", "validate_program"]

ENGINES = ("auto", "reference", "fast")


def run(program: Program, engine: str = "auto", check: bool = False) -> Times:
    """Execute `program` and return when each task was ready, started, left its queue and ended.

    >>> run(make_program([6.0], uses=[{0: 1.0}], capacity=[2.0])).end.tolist()
    [3.0]
    """
    if engine not in ENGINES:
        raise unknown_name("engine", engine, ENGINES)
    validate_program(program)
    from poseidon_sim.engine.reference import run_reference

    return run_reference(program)
