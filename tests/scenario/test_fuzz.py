"""Nothing a person can write in a scenario brings a traceback: thousands of mutated scenarios at the loader."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import poseidon_sim as ps
from poseidon_sim.scenario import parse_changes, parse_grid

BASE: dict[str, Any] = {
    "model": {
        "name": "mlp3",
        "layers": [
            {"name": "fc1", "kind": "linear", "shape": [64, 32], "forward_time": "3 ms", "backward_time": "6 ms"},
            {"name": "conv1", "kind": "conv", "parameters": 5900, "forward_time": "2 ms", "backward_time": "4 ms"},
        ],
    },
    "batch_size": 32,
    "scaling": "weak",
    "cluster": {
        "nodes": 4, "gpus_per_node": 2, "gpu": {"name": "mine", "flops": "6 TFLOP/s", "memory": "12 GiB"}, "pcie": "12 GB/s",
        "network": {"bandwidth": "10 Gbit/s", "latency": "50 us", "efficiency": 0.94, "oversubscription": 2, "incast": [[1, 1], [4, 0.5]]},
        "host": {"reduce_bandwidth": "2 GB/s", "channels": 4}, "groups": [{"nodes": 1, "slowdown": 1.5}], "jitter": "5 %",
    },
    "strategy": {"name": "parameter-server", "servers": 2, "placement": "even", "overlap": False},
    "price_per_gpu_hour": "2 USD/h",
    "micro_batch_size": 8,
    "convergence": {"min_steps": 2000, "critical_batch": 512, "staleness_penalty": 0.1, "source": "assumed"},
}  # fmt: skip

JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.integers(), st.floats(allow_nan=True, allow_infinity=True),
    st.text(max_size=12), st.sampled_from(["40 GB", "10 Gbit/s", "1e9", "no", "-3 us", "0 GB/s", "nan", "inf", "∞ Gbit/s", "5 kg", ""]),
    st.lists(st.integers(), max_size=3), st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [p for key, each in inner for p in ((*path, key), *places(each, (*path, key)))]


PLACES = places(BASE)


def mutate(raw: dict[str, Any], path: tuple[Any, ...], how: str, junk: Any) -> None:
    where: Any = raw
    for key in path[:-1]:
        if not isinstance(where, (dict, list)):
            return
        try:
            where = where[key]
        except (KeyError, IndexError, TypeError):
            return
    try:
        if how == "drop":
            del where[path[-1]]
        elif how == "rename" and isinstance(where, dict):
            where[str(junk)[:8]] = where.pop(path[-1])
        elif how == "nest":
            where[path[-1]] = {"inner": [where[path[-1]], junk]}
        else:
            where[path[-1]] = junk
    except (KeyError, IndexError, TypeError):
        return


MUTATION = st.tuples(st.sampled_from(PLACES), st.sampled_from(["drop", "rename", "replace", "replace", "nest"]), JUNK)


@settings(max_examples=2500, deadline=None, suppress_health_check=list(HealthCheck))
@given(mutations=st.lists(MUTATION, min_size=1, max_size=3))
def test_a_mutated_scenario_loads_or_says_what_is_wrong(mutations: list[tuple[tuple[Any, ...], str, Any]]) -> None:
    raw = copy.deepcopy(BASE)
    for path, how, junk in mutations:
        mutate(raw, path, how, junk)
    try:
        scenario = ps.load_scenario(raw)
    except ps.PoseidonSimError as error:
        assert len(str(error)) > 10 and "Traceback" not in str(error)
        return
    assert scenario.batch_size >= 1


@settings(max_examples=500, deadline=None)
@given(key=st.sampled_from([".".join(map(str, p)) for p in PLACES]) | st.text(max_size=20), text=st.text(max_size=20))
def test_any_change_on_the_command_line_is_read_or_refused(key: str, text: str) -> None:
    try:
        ps.load_scenario(copy.deepcopy(BASE), **parse_changes([f"{key}={text}"]))
    except ps.PoseidonSimError as error:
        assert str(error)
    try:
        parse_grid([f"{key}={text}"])
    except ps.PoseidonSimError as error:
        assert str(error)


@settings(max_examples=300, deadline=None)
@given(text=st.text(max_size=200) | st.binary(max_size=200).map(lambda b: b.decode("latin-1")))
def test_any_file_is_read_or_refused(text: str, tmp_path_factory: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(text, encoding="utf-8")
    try:
        ps.load_scenario(path)
    except ps.PoseidonSimError as error:
        assert error.exit_code in (2, 3)


def test_the_scenario_that_is_mutated_is_itself_right() -> None:
    assert ps.load_scenario(copy.deepcopy(BASE)).batch_size == 32
