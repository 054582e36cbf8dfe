"""Hand-computed puzzles of weighted max-min sharing: of the solver alone, and of both engines' times."""

from __future__ import annotations

from math import inf

import pytest
from engine_puzzles import play

from poseidon_sim.engine.sharing import Flow, interpolate, max_min_rates


def rates(capacity: list[float], *flows: Flow) -> list[float]:
    return max_min_rates(flows, lambda link, _: capacity[link])


def flow(*links: int, weight: float = 1.0, cap: float = inf, coefficient: float = 1.0) -> Flow:
    return Flow(tuple((link, coefficient) for link in links), weight, cap)


# One link of 6, two equal flows: 6 / 2 each.
def test_two_flows_on_one_link_get_half_each():
    assert rates([6.0], flow(0), flow(0)) == [3.0, 3.0]


# Links A = 2 and B = 10. A's two flows get 1 each; the long one is one of them and leaves 9 on B.
def test_in_a_parking_lot_the_tighter_link_decides_for_the_long_flow():
    assert rates([2.0, 10.0], flow(0, 1), flow(0), flow(1)) == [1.0, 1.0, 9.0]


# Three links of 1, 2 and 4 in a row, one long flow over all, one short flow on each. A fills at 1/2; the long
# flow stays at 1/2; the others take what is left: 2 - 1/2 and 4 - 1/2.
def test_in_a_three_link_parking_lot_each_short_flow_takes_what_the_long_one_leaves():
    assert rates([1.0, 2.0, 4.0], flow(0, 1, 2), flow(0), flow(1), flow(2)) == [0.5, 0.5, 1.5, 3.5]


# Links AB = BC = 1, flows A-B, B-C, A-C with A-C over both: every link is halved.
def test_over_two_equal_links_the_long_flow_gets_as_much_as_the_short_ones():
    assert rates([1.0, 1.0], flow(0), flow(1), flow(0, 1)) == [0.5, 0.5, 0.5]


# Weights 1 and 2 on a link of 6: level 2, so 2 and 4.
def test_rates_on_a_full_link_are_in_proportion_to_the_weights():
    assert rates([6.0], flow(0, weight=1.0), flow(0, weight=2.0)) == [2.0, 4.0]


# A link of 6, one of three flows capped at 1: the other two share the 5 that are left.
def test_a_capped_flow_leaves_its_bandwidth_to_the_others():
    assert rates([6.0], flow(0, cap=1.0), flow(0), flow(0)) == [1.0, 2.5, 2.5]


# Caps of 1 and 2 on a link of 100: both reach their caps, the link is not full.
def test_flows_below_the_capacity_run_at_their_caps():
    assert rates([100.0], flow(0, cap=1.0), flow(0, cap=2.0)) == [1.0, 2.0]


# A link of 6; one flow takes 2 units for each unit of work: both rise to r with 2 r + r = 6, so r = 2.
def test_a_coefficient_of_two_takes_twice_the_capacity_for_the_same_rate():
    assert rates([6.0], flow(0, coefficient=2.0), flow(0)) == [2.0, 2.0]


# A flow of coefficient n stands for n equal flows: 12 / (3 + 1) = 3 for each of them.
def test_a_flow_folded_three_times_gets_what_each_of_three_flows_gets():
    assert rates([12.0], flow(0, coefficient=3.0), flow(0)) == [3.0, 3.0]
    assert rates([12.0], flow(0), flow(0), flow(0), flow(0)) == [3.0] * 4


# An infinite link holds nobody back: the first flow is held by its finite link, the second by its cap, the
# third by nothing.
def test_an_infinite_link_never_fills():
    assert rates([inf, 2.0], flow(0, 1), flow(0, cap=5.0), flow(0)) == [2.0, 5.0, inf]


def test_no_flows_have_no_rates():
    assert rates([1.0]) == []


# Capacity 10 for one flow, 6 for five: two flows lie a quarter of the way down, 9, so 4.5 each.
def test_a_link_with_a_curve_has_the_capacity_of_its_number_of_flows():
    points = [(1.0, 10.0), (5.0, 6.0)]
    assert max_min_rates([flow(0), flow(0)], lambda link, flows: interpolate(flows, points)) == [4.5, 4.5]


@pytest.mark.parametrize(
    ("flows", "capacity"), [(0.5, 10.0), (1.0, 10.0), (3.0, 8.0), (5.0, 6.0), (9.0, 6.0)]
)
def test_a_curve_is_linear_between_its_points_and_constant_beyond(flows, capacity):
    assert interpolate(flows, [(1.0, 10.0), (5.0, 6.0)]) == capacity


# Two transfers of 10 and 20 on a link of 2: both at 1 until 10; then 10 left at 2: ends at 15.
def test_a_transfer_speeds_up_when_the_other_ends():
    assert play([10.0, 20.0], uses=[{0: 1.0}, {0: 1.0}], capacity=[2.0]).end.tolist() == [10.0, 15.0]


# Two transfers of 10 on a link that gives 4 to one flow and 2 to two: 10 s at 1 each, both end at 10. With 10
# and 5: the second ends at 5, the first has 5 left at 4: 6.25.
def test_a_transfer_feels_the_curve_change_when_the_other_ends():
    curve = {0: [(1.0, 4.0), (2.0, 2.0)]}
    both = {"uses": [{0: 1.0}, {0: 1.0}], "capacity": [9.0], "curves": curve}
    assert play([10.0, 10.0], **both).end.tolist() == [10.0, 10.0]
    assert play([10.0, 5.0], **both).end.tolist() == [6.25, 5.0]


# One task of coefficient 2 counts as two flows: the link gives 2, the task goes at 1.
def test_the_number_of_flows_on_a_curve_is_the_sum_of_coefficients():
    times = play([10.0], uses=[{0: 2.0}], capacity=[9.0], curves={0: [(1.0, 4.0), (2.0, 2.0)]})
    assert times.end.tolist() == [10.0]


# Compute is work on a device of 1 with cap 1: alone 10 s. A communication kernel needs 1/4 of the device for
# each unit it moves, and has right of way (weight 100); its own link holds it at 0.8: 5 s, taking 0.2 of the
# device. Compute: 5 s at 0.8, then the 6 that are left at 1.
def test_compute_slows_down_while_a_communication_kernel_takes_part_of_the_device():
    times = play(
        [10.0, 4.0],
        uses=[{0: 1.0}, {0: 0.25, 1: 1.0}],
        capacity=[1.0, 0.8],
        rate_cap=[1.0, inf],
        weight=[1.0, 100.0],
    )
    assert times.end.tolist() == pytest.approx([11.0, 5.0], rel=1e-12)


# Only infinite links: the rate is infinite and the transfer takes no time, after a latency of 2.
def test_work_that_nothing_holds_back_ends_at_once():
    times = play(
        [5.0, 5.0], uses=[{0: 1.0}, {0: 1.0}], capacity=[inf], latency=[2.0, 0.0], dependencies=[[], [0]]
    )
    assert times.end.tolist() == [2.0, 2.0]


# Link A serves tasks 0 and 1, link B task 2: what happens on A does not touch task 2.
def test_unconnected_links_do_not_touch_each_other():
    times = play([4.0, 8.0, 5.0], uses=[{0: 1.0}, {0: 1.0}, {1: 1.0}], capacity=[2.0, 1.0])
    assert times.end.tolist() == [4.0, 6.0, 5.0]
