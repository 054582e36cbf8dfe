"""The critical path and its blame, on puzzles of a few tasks and on whole runs."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from tiny_traces import Tiny, tiny_trace

import poseidon_sim as ps
from poseidon_sim.metrics import blame_shares, bottleneck, critical_path
from poseidon_sim.metrics.critical_path import path_tasks

TITAN = ps.gpu("titan-x-maxwell")
ETHERNET = ps.Network(1.25e9, latency=50e-6, efficiency=0.94, message_overhead=1e-5, collective_overhead=1e-4)


def test_a_chain_of_compute_and_a_message_is_cut_into_compute_overhead_transfer_and_propagation() -> None:
    # 3 s of compute, then a message: 0.5 s overhead, 20 bytes at 10 bytes/s = 2 s, 0.25 s on the wire: 5.75 s
    trace = tiny_trace([Tiny("backward", 3.0), Tiny("send", 20.0, after=[0], latency=0.5, delay=0.25)])
    assert [(s.start, s.end, s.blame) for s in critical_path(trace)] == [
        (0.0, 3.0, "compute"),
        (3.0, 3.5, "message latency"),
        (3.5, 5.5, "transfer: node port out"),
        (5.5, 5.75, "message latency"),
    ]
    assert blame_shares(trace) == {"compute": 3.0, "transfer: node port out": 2.0, "message latency": 0.75}


def test_the_slower_of_two_branches_is_on_the_path() -> None:
    # after 1 s of compute: 2 s more compute, or 50 bytes at 10 bytes/s = 5 s; the join waits for the message
    tasks = [
        Tiny("forward", 1.0),
        Tiny("backward", 2.0, after=[0]),
        Tiny("send", 50.0, after=[0]),
        Tiny("join", 0.0, after=[1, 2]),
    ]
    trace = tiny_trace(tasks)
    assert path_tasks(trace).tolist() == [0, 2]
    assert blame_shares(trace) == {"transfer: node port out": 5.0, "compute": 1.0}


def test_a_task_that_waited_for_its_queue_blames_the_task_that_held_it() -> None:
    # both messages are ready at 0 and share one queue: 30 bytes (3 s), then 20 bytes (2 s); no
    # dependency joins them
    trace = tiny_trace([Tiny("send", 30.0, queue=0), Tiny("send", 20.0, queue=0, label=1)])
    assert path_tasks(trace).tolist() == [0, 1]
    assert blame_shares(trace) == {"transfer: node port out": 5.0}


def test_a_message_still_on_the_wire_is_cut_where_its_channel_was_let_go() -> None:
    # the first message leaves the queue at 3 s and arrives at 4 s; the second starts at 3 s, so the
    # path is 3 + 2 + 1 s
    trace = tiny_trace(
        [Tiny("send", 30.0, queue=0, delay=1.0), Tiny("send", 20.0, queue=0, delay=1.0, label=1)]
    )
    assert blame_shares(trace) == {"transfer: node port out": 5.0, "message latency": 1.0}


def test_tasks_of_no_duration_in_one_queue_do_not_send_the_walk_in_circles() -> None:
    # a holds the queue for 2 s; b, c and d then pass through it at the same instant; e takes 1 s
    tasks = [
        Tiny("send", 20.0, queue=0),
        *(Tiny("send", 0.0, queue=0) for _ in range(3)),
        Tiny("send", 10.0, queue=0, label=1),
    ]
    trace = tiny_trace(tasks)
    assert path_tasks(trace).tolist() == [0, 1, 2, 3, 4]
    assert blame_shares(trace) == {"transfer: node port out": 3.0}


def test_other_work_on_the_same_link_is_contention() -> None:
    # a and b, of different labels, move 20 bytes each at 5 bytes/s: 4 s, of which 2 s would do alone
    trace = tiny_trace([Tiny("send", 20.0), Tiny("send", 20.0, label=1)])
    assert blame_shares(trace) == {"transfer: node port out": 2.0, "contention: node port out": 2.0}


def test_messages_of_one_label_are_one_transfer_and_no_contention() -> None:
    # the same two messages, one to each of two peers for the same layer: together they need 4 s of the port
    trace = tiny_trace([Tiny("send", 20.0), Tiny("send", 20.0)])
    assert blame_shares(trace) == {"transfer: node port out": 4.0}


def test_rebuilding_beside_backward_shows_as_contention_on_the_gpu() -> None:
    # backward 3 s and rebuild 1 s start together and share the GPU: rebuild ends at 2 s, backward at 4 s
    trace = tiny_trace([Tiny("backward", 3.0, rate_cap=1.0), Tiny("rebuild", 1.0, rate_cap=1.0, label=1)])
    assert blame_shares(trace) == {"compute": 3.0, "contention: GPU": 1.0}


def test_a_cap_below_every_link_is_named() -> None:
    # 20 bytes capped at 4 bytes/s take 5 s on a port of 10 bytes/s
    assert blame_shares(tiny_trace([Tiny("send", 20.0, rate_cap=4.0)])) == {
        "transfer: rate of a connection": 5.0
    }


def test_a_join_of_one_out_of_two_waits_for_the_first() -> None:
    # one of {1 s, 5 s} of compute is enough; 20 bytes follow at 1 s and end at 3 s, where the iteration ends
    tasks = [
        Tiny("forward", 1.0), Tiny("update", 5.0), Tiny("join", 0.0, after=[0, 1], needed=1),
        Tiny("send", 20.0, after=[2]),
    ]  # fmt: skip
    tasks[0].rate_cap = tasks[1].rate_cap = 0.5  # half of the GPU each: 2 s and 10 s
    trace = tiny_trace(tasks, ends=[4.0])
    assert path_tasks(trace).tolist() == [0, 2, 3]
    assert sum(blame_shares(trace).values()) == pytest.approx(4.0)


def test_only_measured_iterations_count_and_shares_are_per_iteration() -> None:
    # three iterations of 2 s compute + 1 s message; the first is warm-up
    tasks = []
    for i in range(3):
        tasks += [
            Tiny("forward", 2.0, after=[2 * i - 1] if i else [], iteration=i),
            Tiny("send", 10.0, after=[2 * i], iteration=i),
        ]
    trace = tiny_trace(tasks, warm_up=1, ends=[3.0, 6.0, 9.0])
    assert blame_shares(trace) == {"compute": 2.0, "transfer: node port out": 1.0}


@pytest.mark.parametrize(
    "strategy",
    [
        ps.ParameterServer(), ps.ParameterServer(servers=2), ps.ParameterServer(placement="whole"),
        ps.Poseidon(),
        ps.SufficientFactorBroadcast(), ps.SufficientFactorBroadcast(in_turn=True), ps.Adam(),
        ps.OneBit(), ps.AllReduce(),
        ps.ParameterServer(staleness=2),
    ],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("gbit", [1, 40])
def test_the_shares_add_up_to_the_step_time_and_folding_does_not_change_them(
    strategy: ps.Strategy, gbit: int
) -> None:
    cluster = ps.Cluster(nodes=6, gpu=TITAN, network=replace(ETHERNET, bandwidth=gbit * 1.25e8), pcie=12e9)
    run = ps.simulate("alexnet", cluster, strategy, batch_size=64)
    shares = blame_shares(run.trace)
    assert sum(shares.values()) == pytest.approx(run.step_time, rel=1e-6)
    nodes = ps.simulate("alexnet", cluster, strategy, batch_size=64, detail="nodes")
    unfolded = blame_shares(nodes.trace)
    assert sum(unfolded.values()) == pytest.approx(nodes.step_time, rel=1e-6)
    assert unfolded.get("compute", 0.0) == pytest.approx(shares.get("compute", 0.0), rel=1e-6)


def test_a_slow_network_is_named_as_the_bottleneck_and_a_fast_one_is_not() -> None:
    slow = ps.Cluster(nodes=8, gpu=TITAN, network=ps.Network(1.25e8), pcie=12e9)
    fast = ps.Cluster(nodes=8, gpu=TITAN, network=ps.Network(1.25e10), pcie=12e9)
    assert "network: node port" in ps.simulate("vgg19", slow, "parameter-server", batch_size=32).bottleneck
    assert ps.simulate("vgg19", fast, "poseidon", batch_size=32).bottleneck.startswith("compute (")


def test_the_sentence_names_the_second_cause_only_when_it_matters() -> None:
    assert bottleneck({"compute": 0.95, "message latency": 0.05}) == "compute (95% of the step)"
    assert (
        bottleneck({"compute": 0.6, "message latency": 0.4})
        == "compute (60% of the step), then latency of messages (40%)"
    )
    assert bottleneck({}) == "nothing: the step takes no time"


def test_the_sentence_counts_the_calls_of_a_collective() -> None:
    # two calls of 2 s latency and 10 bytes (1 s) each
    trace = tiny_trace(
        [Tiny("collective", 10.0, latency=2.0), Tiny("collective", 10.0, after=[0], latency=2.0)]
    )
    assert bottleneck(blame_shares(trace), trace).startswith(
        "latency of 2 collective calls (67% of the step)"
    )


def test_the_sentence_names_a_node_whose_port_carries_much_more_than_the_others() -> None:
    # one server apart sends to and receives from four workers: its port carries four times theirs
    cluster = ps.Cluster(nodes=4, gpu=TITAN, network=ps.Network(1.25e8), pcie=12e9)
    trace = ps.simulate("vgg19", cluster, ps.ParameterServer(servers=1), batch_size=32).trace
    assert "of server 4 (" in bottleneck(blame_shares(trace), trace)
    assert "of server" not in bottleneck(blame_shares(trace))


def test_a_hundred_thousand_tasks_take_less_than_a_second() -> None:
    cluster = ps.Cluster(nodes=48, gpu=TITAN, network=ETHERNET, pcie=12e9)
    trace = ps.simulate("vgg19", cluster, "parameter-server", batch_size=32, detail="nodes").trace
    assert trace.program.num_tasks > 90_000
    began = time.perf_counter()
    blame_shares(trace)
    assert time.perf_counter() - began < 1.0
