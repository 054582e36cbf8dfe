"""Whatever the strategy, real processes end with the parameters of one process on the joint batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from validation.runner import Job, RunLayer, run_job
from validation.runner.model import single_process

#: Sizes that no number of shards divides evenly; one layer with a bias, one without factors.
LAYERS = (
    RunLayer("conv", (3001,)),
    RunLayer("wide", (60 * 50, 60), (60, 50)),
    RunLayer("last", (20 * 60,), (20, 60)),
)
TOLERANCE = 5e-6  # of parameters of size 1, after three steps of float32 sums in another order


def trained(job: Job) -> list[list[np.ndarray]]:
    """Train in real processes over loopback; the parameters of every worker."""
    found = run_job(job, timeout=60).processes[: job.workers]
    return [[np.frombuffer(bytes.fromhex(x), np.float32) for x in one["parameters"]] for one in found]


SETTINGS: list[dict[str, Any]] = [
    {"strategy": "parameter-server"},
    {"strategy": "parameter-server", "overlap": False},
    {"strategy": "parameter-server", "servers": 1},
    {"strategy": "parameter-server", "servers": 2},
    {"strategy": "sufficient-factor-broadcast"},
    {"strategy": "poseidon", "batch_size": 12},
    {"strategy": "all-reduce"},
    {"strategy": "all-reduce", "fusion": "all"},
    {"strategy": "all-reduce", "message_delay": 0.002},
    {"strategy": "parameter-server", "pacing": ((5e6, 5e6),) * 3},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: " ".join(map(str, s.values())))
def test_every_worker_ends_with_the_parameters_of_a_single_process(settings: dict[str, Any]) -> None:
    job = Job(
        LAYERS, **{"workers": 3, "batch_size": 4, "iterations": 2, "warm_up": 1, "numeric": True, **settings}
    )
    wanted = single_process(job)
    for parameters in trained(job):
        for got, want in zip(parameters, wanted, strict=True):
            np.testing.assert_allclose(got, want, atol=TOLERANCE)


def test_poseidon_sends_some_layers_by_factors_and_others_by_the_server_in_the_equality_test() -> None:
    job = Job(LAYERS, "poseidon", workers=3, batch_size=12)
    assert [job.by_factors(layer) for layer in LAYERS] == [False, True, False]


def test_bounded_staleness_applies_every_gradient_once() -> None:
    # gradients that do not depend on the parameters: the order of updates does not matter, their sum does
    job = Job(
        LAYERS, "parameter-server", 3, 4, staleness=2, iterations=3, warm_up=1, numeric=True, coupling=0.0
    )
    found, wanted = trained(job), single_process(job)
    for layer, want in enumerate(wanted):
        edges = np.linspace(0, want.size, 4).astype(int)
        shards = [
            found[rank][layer][edges[rank] : edges[rank + 1]] for rank in range(3)
        ]  # a server's own shard is final
        np.testing.assert_allclose(np.concatenate(shards), want, atol=TOLERANCE)


def test_two_workers_send_the_bytes_that_the_strategies_state() -> None:
    total = 4 * sum(layer.elements for layer in LAYERS)
    job = Job(LAYERS, "parameter-server", 2, iterations=1, warm_up=1)
    assert run_job(job).sent_bytes == pytest.approx(2 * total)
    factors = Job(LAYERS, "sufficient-factor-broadcast", 2, batch_size=3, iterations=1, warm_up=1)
    by_factors = 4 * 3 * (60 + 50 + 20 + 60) * 2
    assert run_job(factors).sent_bytes == pytest.approx(by_factors + 2 * 4 * 3001)


def test_a_process_that_fails_is_reported_with_its_error_output() -> None:
    job = Job(LAYERS, "parameter-server", 2, numeric=True, batch_size=1, extra={"probe": "stream"})
    with pytest.raises(RuntimeError, match="KeyError"):
        run_job(job, timeout=20)


def test_settings_that_a_strategy_does_not_know_are_refused() -> None:
    with pytest.raises(ValueError, match="staleness"):
        Job(LAYERS, "all-reduce", 2, staleness=1)
    with pytest.raises(ValueError, match="is not one of"):
        Job(LAYERS, "gossip", 2)
