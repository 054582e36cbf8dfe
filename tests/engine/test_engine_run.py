"""The one public function: which engine runs, what is refused, and what the checks catch."""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
import subprocess
import sys
import warnings

import numpy as np
import pytest

import poseidon_sim.engine as engine
from poseidon_sim.engine import SMALL, choose_engine, make_program, run, warn_once
from poseidon_sim.engine.check import Checker
from poseidon_sim.errors import CheckError, InputError, UnknownNameError

SHARED = make_program([10.0, 20.0], uses=[{0: 1.0}, {0: 1.0}], capacity=[2.0])
LARGE = make_program(np.zeros(SMALL), latency=1.0)


@pytest.fixture
def without_numba(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    warn_once.cache_clear()


def test_an_unknown_engine_is_refused_and_the_nearest_is_named():
    with pytest.raises(UnknownNameError, match="did you mean 'reference'"):
        run(SHARED, engine="referense")


@pytest.fixture
def fresh(monkeypatch):
    """A process that has not loaded the compiled engine, nor run anything."""
    monkeypatch.setattr(engine, "is_loaded", lambda: False)
    monkeypatch.setattr(engine, "_small_runs", itertools.count(1))


def test_auto_takes_the_reference_for_small_programs_and_the_fast_engine_for_large_ones(fresh):
    assert choose_engine(SHARED) == "reference"
    assert choose_engine(LARGE) == "fast"


def test_auto_takes_the_fast_engine_for_small_programs_too_once_it_is_loaded(monkeypatch):
    monkeypatch.setattr(engine, "is_loaded", lambda: True)
    assert choose_engine(SHARED) == "fast"


def test_auto_loads_the_fast_engine_for_who_runs_many_small_programs(fresh):
    chosen = [choose_engine(SHARED) for _ in range(engine.PATIENCE + 1)]
    assert chosen == ["reference"] * engine.PATIENCE + ["fast"]


def test_auto_takes_the_fast_engine_for_a_crowd_of_flows_unless_they_queue(fresh):
    crowd = {"uses": [{0: 1.0}] * 600, "capacity": [1.0]}
    assert choose_engine(make_program(np.ones(600), **crowd)) == "fast"
    assert choose_engine(make_program(np.ones(600), **crowd, queue=0, queue_slots=[4])) == "reference"


def test_the_fast_engine_without_numba_is_refused_with_the_way_out(without_numba):
    with pytest.raises(InputError, match=r"numba, which is not installed.*reference"):
        run(SHARED, engine="fast")


def test_auto_without_numba_falls_back_with_one_warning(without_numba):
    with pytest.warns(RuntimeWarning, match="numba is not installed"):
        run(LARGE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(LARGE)


def test_importing_the_engine_loads_neither_simpy_nor_numba():
    code = "import sys, poseidon_sim.engine; print([m for m in ('simpy', 'numba') if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_a_meaningless_program_is_refused():
    with pytest.raises(CheckError, match="task 0 breaks the rule that work has a link or a rate cap"):
        run(make_program([1.0]))


def watched(program, intervals):
    checker = Checker(program)
    for interval in intervals:
        checker.observe(*interval)
    checker.finish(run(program))


# The right answer for two transfers of 10 and 20 over a link of 2: 1 each until 10, then 2 for the second.
RIGHT = [(0.0, 10.0, [0, 1], [1.0, 1.0]), (10.0, 15.0, [1], [2.0])]


def test_the_check_accepts_the_right_rates():
    watched(SHARED, RIGHT)


@pytest.mark.parametrize(
    ("intervals", "message"),
    [
        ([(0.0, 10.0, [0, 1], [1.5, 1.0])], "link 0 carries 2.5 of 2.0"),
        ([(0.0, 10.0, [0, 1], [0.5, 0.5])], "task 0 could go faster"),
        ([(0.0, 10.0, [0, 1], [0.5, 1.5])], "task 0 could go faster"),
        ([(0.0, 10.0, [0, 1], [0.0, 2.0])], "task 0 does not move"),
        (RIGHT[:1], "task 1 breaks the rule that a task gets exactly the work"),
        (RIGHT[::-1], "follows an interval that ended at 15"),
    ],
)
def test_the_check_catches_wrong_rates(intervals, message):
    with pytest.raises(CheckError, match=message):
        watched(SHARED, intervals)


def test_the_check_catches_a_rate_above_the_cap():
    program = make_program([4.0, 4.0], uses=[{0: 1.0}, {0: 1.0}], capacity=[4.0], rate_cap=[1.0, np.inf])
    with pytest.raises(CheckError, match="task 0 is above its rate cap"):
        Checker(program).observe(0.0, 1.0, [0, 1], [2.0, 2.0])


# Three tasks of 1 s through one queue, task 2 after task 0: every moment shifted in turn.
QUEUED = make_program([0.0] * 3, latency=1.0, delay=0.5, queue=0, queue_slots=[1], dependencies=[[], [], [0]])


@pytest.mark.parametrize(
    ("moments", "task", "shift", "message"),
    [
        (("end",), 1, np.nan, "runs once"),
        (("ready", "start", "release", "end"), 2, 0.1, "ready at the end of the last dependency"),
        (("start", "release", "end"), 2, -1.0, "starts when it is ready or later"),
        (("release", "end"), 1, -0.5, "holds its queue for its latency"),
        (("release", "end"), 1, 0.5, "without work is released after its latency"),
        (("end",), 2, 0.1, "ends its delay after its release"),
        (("start", "release", "end"), 1, -0.5, "queue 0 serves more tasks than it has slots"),
    ],
)
def test_the_check_catches_wrong_times(moments, task, shift, message):
    times = run(QUEUED)
    Checker(QUEUED).finish(times)
    changed = {moment: getattr(times, moment).copy() for moment in moments}
    for column in changed.values():
        column[task] += shift
    with pytest.raises(CheckError, match=message):
        Checker(QUEUED).finish(dataclasses.replace(times, **changed))
