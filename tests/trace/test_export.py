"""The timeline is a sound Chrome trace: named lanes, spans that fit, counters, arrows; always the same."""

from __future__ import annotations

import gzip
import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import poseidon_sim as ps
from poseidon_sim.metrics.critical_path import path_tasks
from poseidon_sim.trace import save_timeline, timeline_events

STRATEGIES = [
    *(ps.Poseidon(), ps.ParameterServer(), ps.ParameterServer(servers=2), ps.AllReduce(), ps.OneBit()),
    *(ps.SufficientFactorBroadcast(in_turn=True), ps.ParameterServer(staleness=2)),
]


def run(strategy: ps.Strategy | None = None, detail: str = "folded") -> ps.Run:
    network = ps.Network(1.25e9, latency=5e-5, message_overhead=1e-5)
    cluster = ps.Cluster(nodes=4, gpu=ps.gpu("titan-x-maxwell"), network=network, pcie=12e9)
    return ps.simulate("alexnet", cluster, strategy or ps.Poseidon(), batch_size=64, detail=detail)


def of_phase(events: list[dict[str, Any]], phase: str) -> list[dict[str, Any]]:
    return [event for event in events if event["ph"] == phase]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
@pytest.mark.parametrize("detail", ["folded", "nodes"])
def test_every_time_is_finite_and_not_negative_and_every_lane_has_a_name(
    strategy: ps.Strategy, detail: str
) -> None:
    trace = run(strategy, detail).trace
    events = json.loads(json.dumps(timeline_events(trace, path_tasks(trace)), allow_nan=False))
    spans = of_phase(events, "X")
    assert spans
    for event in [*spans, *of_phase(events, "C"), *of_phase(events, "s"), *of_phase(events, "f")]:
        assert math.isfinite(event["ts"]) and event["ts"] >= 0
        assert event.get("dur", 0.0) >= 0
    processes = {e["pid"] for e in events if e["name"] == "process_name"}
    threads = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert {e["pid"] for e in events} == processes
    assert {(e["pid"], e["tid"]) for e in spans} == threads
    assert {e["pid"] for e in events if e["name"] == "process_sort_index"} == processes


@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
def test_spans_of_one_lane_do_not_overlap(strategy: ps.Strategy) -> None:
    lanes: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in of_phase(timeline_events(run(strategy, "nodes").trace), "X"):
        lanes.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for spans in lanes.values():
        for (_, end), (start, _) in pairwise(sorted(spans)):
            assert start >= end - 1e-6  # a picosecond


def test_processes_are_named_for_people() -> None:
    folded = {e["args"]["name"] for e in timeline_events(run().trace) if e["name"] == "process_name"}
    assert folded == {"nodes 0.. (4 alike) GPU", "nodes 0.. (4 alike) NIC", "nodes 0.. (4 alike) host"}
    nodes = {
        e["args"]["name"] for e in timeline_events(run(detail="nodes").trace) if e["name"] == "process_name"
    }
    assert {"node 0 GPU", "node 3 NIC"} <= nodes


def test_a_message_shows_where_it_is_sent_and_where_it_is_received() -> None:
    events = timeline_events(run(ps.ParameterServer(), "nodes").trace)
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    sends = [e for e in of_phase(events, "X") if e["cat"] == "send"]
    sent = [e for e in sends if names[e["pid"], e["tid"]].startswith("sending")]
    received = [e for e in sends if names[e["pid"], e["tid"]].startswith("receiving")]
    assert len(sent) == len(received) == len(sends) / 2
    assert all("to" in e["args"] and e["args"]["bytes_per_flow"] > 0 for e in sent)
    assert all("from" in e["args"] for e in received)


def test_spans_carry_layer_iteration_and_wait() -> None:
    spans = of_phase(timeline_events(run().trace), "X")
    backward = next(e for e in spans if e["cat"] == "backward")
    assert backward["name"] == f"backward {backward['args']['layer']}"
    assert {"iteration", "waited_for_queue_us", "task"} <= set(backward["args"])


def test_counters_stay_between_idle_and_full_and_end_idle() -> None:
    counters = of_phase(timeline_events(run(ps.ParameterServer(), "nodes").trace), "C")
    last: dict[tuple[int, str], float] = {}
    for event in counters:
        assert 0.0 <= event["args"]["share"] <= 1.0 + 1e-6
        last[event["pid"], event["name"]] = event["args"]["share"]
    assert set(last.values()) == {0.0}


def test_arrows_follow_the_critical_path_forward_in_time() -> None:
    trace = run(ps.ParameterServer()).trace
    events = timeline_events(trace, path_tasks(trace))
    tails, heads = of_phase(events, "s"), of_phase(events, "f")
    assert len(tails) == len(heads) > 5
    for tail, head in zip(tails, heads, strict=True):
        assert tail["id"] == head["id"] and tail["ts"] <= head["ts"]


def test_the_file_is_the_same_each_time_and_gzip_goes_by_the_name(tmp_path: Path) -> None:
    plain = save_timeline(run().trace, tmp_path / "a.json")
    again = save_timeline(run().trace, tmp_path / "b.json")
    packed = save_timeline(run().trace, str(tmp_path / "c.json.gz"))
    assert plain.read_bytes() == again.read_bytes() == gzip.decompress(packed.read_bytes())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.json", "b.json", "c.json.gz"]
    assert json.loads(plain.read_text())["traceEvents"]


def test_too_many_events_are_cut_at_the_end_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="shows the first 20 of"):
        events = timeline_events(run(ps.ParameterServer(), "nodes").trace, max_events=20)
    assert 20 <= len(of_phase(events, "X")) <= 40
