"""Hand-computed puzzles of queues, joins and simultaneous events."""

from __future__ import annotations

import numpy as np
import pytest
from engine_puzzles import play

from poseidon_sim.engine import make_program, run
from poseidon_sim.errors import CheckError


# One queue, three tasks of 1 s ready at 0, priorities 2, 0, 1: served 1, 2, 0.
def test_a_queue_serves_the_smallest_priority_first():
    times = play([0.0] * 3, latency=1.0, queue=0, queue_slots=[1], priority=[2.0, 0.0, 1.0])
    assert times.start.tolist() == [2.0, 0.0, 1.0]


# Task 0 holds the queue until 10; task 2 is ready at 3, task 1 at 5; equal priorities: 2 goes first.
def test_at_equal_priority_the_one_ready_first_is_served_first():
    times = play(
        [0.0] * 5,
        latency=[10.0, 1.0, 1.0, 5.0, 3.0],
        queue=[0, 0, 0, -1, -1],
        queue_slots=[1],
        dependencies=[[], [3], [4], [], []],
    )
    assert times.start.tolist()[:3] == [0.0, 11.0, 10.0]


# All equal: the order of the ids.
def test_at_equal_priority_and_ready_time_the_smaller_id_is_served_first():
    times = play([0.0] * 4, latency=1.0, queue=0, queue_slots=[1])
    assert times.start.tolist() == [0.0, 1.0, 2.0, 3.0]


# A running task is not interrupted: task 1 (more urgent) is ready at 1, the slot is free at 5.
def test_a_more_urgent_task_waits_for_the_running_one():
    times = play(
        [0.0] * 3,
        latency=[5.0, 1.0, 1.0],
        queue=[0, 0, -1],
        queue_slots=[1],
        priority=[9.0, 0.0, 0.0],
        dependencies=[[], [2], []],
    )
    assert times.start.tolist()[1] == 5.0


# Two slots, durations 3, 1, 1, 1: task 0 holds one slot until 3, the others follow each other on the second.
def test_a_queue_with_two_slots_serves_two_at_once():
    times = play([0.0] * 4, latency=[3.0, 1.0, 1.0, 1.0], queue=0, queue_slots=[2])
    assert times.start.tolist() == [0.0, 0.0, 1.0, 2.0]


# Ends at 1, 5 and 3; two of the three are needed: ready at 3; the third end at 5 changes nothing.
def test_a_join_of_two_of_three_is_ready_at_the_second_end():
    times = play(
        [0.0] * 4, latency=[1.0, 5.0, 3.0, 1.0], dependencies=[[], [], [], [0, 1, 2]], needed=[0, 0, 0, 2]
    )
    assert (times.ready[3], times.end[3]) == (3.0, 4.0)


def test_a_task_that_needs_none_of_its_dependencies_is_ready_at_zero():
    times = play([0.0, 0.0], latency=[4.0, 1.0], dependencies=[[], [0]], needed=[0, 0])
    assert times.end.tolist() == [4.0, 1.0]


# Latency 2, then 3 of work, then delay 4: released at 5, ended at 9; the next starts at 5.
def test_latency_holds_the_queue_and_delay_does_not():
    times = play([3.0, 3.0], latency=2.0, delay=4.0, rate_cap=1.0, queue=0, queue_slots=[1])
    assert times.start.tolist() == [0.0, 5.0]
    assert times.release.tolist() == [5.0, 10.0]
    assert times.end.tolist() == [9.0, 14.0]


# Link of 2. Task 1 has latency 2 and is not yet flowing: task 0 has the whole link until 2, then half.
def test_a_task_in_its_latency_takes_nothing_from_its_links():
    times = play([6.0, 6.0], uses=[{0: 1.0}] * 2, capacity=[2.0], latency=[0.0, 2.0])
    assert times.end.tolist() == [4.0, 6.0]


# A hundred joins in a row behind a task of 1 s: all end at 1, in one instant after the one at 0.
def test_a_chain_of_joins_takes_no_time():
    times = play([0.0] * 101, latency=[1.0] + [0.0] * 100, dependencies=[[]] + [[i] for i in range(100)])
    assert times.end.tolist() == [1.0] * 101
    assert times.num_instants == 2


# Tasks of no length through one slot: they pass one after the other, all at 0.
def test_tasks_of_no_length_pass_through_a_queue_in_no_time():
    times = play([0.0] * 5, queue=0, queue_slots=[1], dependencies=[[], [], [], [], [3]])
    assert times.end.tolist() == [0.0] * 5


# Tasks 0 (queue 0) and 1 (elsewhere) both end at 1. Task 1 frees task 2, of high priority; task 3, of low
# priority, has waited for queue 0 since 0. Everything that completes at 1 is retired before the slot is given
# away, so task 2 is served at 1.
def test_a_task_freed_at_the_instant_is_served_before_one_that_has_waited_at_lower_priority():
    times = play(
        [0.0] * 4,
        latency=1.0,
        queue=[0, -1, 0, 0],
        queue_slots=[1],
        priority=[0.0, 0.0, 1.0, 2.0],
        dependencies=[[], [], [1], []],
    )
    assert times.start.tolist() == [0.0, 0.0, 1.0, 2.0]


# The same through two joins: they end inside the cascade, before any slot is given.
def test_the_dependent_of_a_join_that_ends_at_the_instant_is_served_first_if_it_is_more_urgent():
    times = play(
        [0.0] * 6,
        latency=[1.0, 1.0, 0.0, 0.0, 1.0, 1.0],
        queue=[0, -1, -1, -1, 0, 0],
        queue_slots=[1],
        priority=[0.0, 9.0, 9.0, 9.0, 1.0, 2.0],
        dependencies=[[], [], [1], [2], [3], []],
    )
    assert times.start[4:].tolist() == [1.0, 2.0]


# Not a join: task 2 needs a queue of its own for no time. It is started in (B), when the slot of queue 0 is
# given to task 4 as well; its dependent, task 3, comes too late.
def test_a_task_of_no_length_in_a_queue_is_not_part_of_the_cascade():
    times = play(
        [0.0] * 5,
        latency=[1.0, 1.0, 0.0, 1.0, 1.0],
        queue=[0, -1, 1, 0, 0],
        queue_slots=[1, 1],
        priority=[0.0, 0.0, 0.0, 1.0, 2.0],
        dependencies=[[], [], [1], [2], []],
    )
    assert times.start[3:].tolist() == [2.0, 1.0]


# 0.1 + 0.2 and 0.3 differ in the last bit, yet they are one instant: the more urgent task 3 is served.
def test_completions_that_differ_by_rounding_are_one_instant():
    times = play(
        [0.0] * 5,
        latency=[0.3, 0.1, 0.2, 1.0, 1.0],
        queue=[0, -1, -1, 0, 0],
        queue_slots=[1],
        priority=[0.0, 0.0, 0.0, 1.0, 2.0],
        dependencies=[[], [], [1], [2], []],
    )
    assert times.start[3:].tolist() == pytest.approx([0.3, 1.3], rel=1e-12)
    assert times.start[3] == times.release[0]


# The rule of one instant is relative: a program in which all times are tiny keeps its order.
def test_the_unit_of_time_does_not_matter():
    given = {
        "queue": [0, 0, -1, 0],
        "queue_slots": [1],
        "dependencies": [[], [2], [], []],
        "priority": [0.0, 0.0, 0.0, 1.0],
        "rate_cap": 1.0,
    }
    coarse = play([3.0, 1.0, 2.0, 1.0], **given)
    tiny = play([3.0 * 2.0**-100, 2.0**-100, 2.0 * 2.0**-100, 2.0**-100], **given)
    assert np.array_equal(tiny.end, coarse.end * 2.0**-100)


def test_an_empty_program_has_no_instants():
    times = play([])
    assert (times.makespan, times.num_instants) == (0.0, 0)


@pytest.mark.parametrize("engine", ["reference", "fast"])
def test_a_cycle_is_refused_and_some_of_its_tasks_are_named(engine):
    program = make_program([0.0] * 4, dependencies=[[], [2], [1], [2]])
    with pytest.raises(CheckError, match=r"3 of its tasks never become ready \(tasks 1, 2, 3\).*cycle"):
        run(program, engine=engine)
