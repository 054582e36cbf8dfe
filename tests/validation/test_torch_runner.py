"""Real PyTorch nets trained by several real processes end where one process ends on the joint batch."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from validation.runner import Job, RunResult, run_jobs  # noqa: E402
from validation.runner import staging as staging_module  # noqa: E402
from validation.runner.staging import NO_CUDA, CudaStaging, NotRun, staging_of  # noqa: E402
from validation.runner.torch_nets import job_of, train_alone  # noqa: E402
from validation.runner.train import main, rows, write  # noqa: E402

#: Of parameters up to 0.4 after four steps; float32 sums in another order came to 3e-8.
TOLERANCE = 3e-7

SETTINGS: list[dict[str, Any]] = [
    {"net": "mlp", "strategy": "parameter-server", "workers": 3},
    {"net": "cnn", "strategy": "parameter-server", "workers": 2, "overlap": False},
    {"net": "cnn", "strategy": "parameter-server", "workers": 3, "servers": 1},
    {"net": "mlp", "strategy": "sufficient-factor-broadcast", "workers": 4},
    {"net": "cnn", "strategy": "sufficient-factor-broadcast", "workers": 3, "overlap": False},
    {"net": "mlp", "strategy": "poseidon", "workers": 3, "batch_size": 14},
    {"net": "cnn", "strategy": "poseidon", "workers": 4, "message_delay": 0.002},
    {"net": "cnn", "strategy": "all-reduce", "workers": 3},
    {"net": "mlp", "strategy": "all-reduce", "workers": 4, "fusion": "all"},
    {"net": "mlp", "strategy": "all-reduce", "workers": 2, "overlap": False},
    {"net": "cnn", "strategy": "all-reduce", "workers": 3, "transport": "gloo"},
    {"net": "mlp", "strategy": "all-reduce", "workers": 4, "transport": "gloo", "fusion": "all"},
    {"net": "mlp", "strategy": "parameter-server", "workers": 1},
]
STALE = {"net": "mlp", "strategy": "parameter-server", "workers": 3, "staleness": 2, "iterations": 40, "learning_rate": 0.5, "batch_size": 32}


def job_for(settings: dict[str, Any]) -> Job:
    common = {"batch_size": 6, "warm_up": 1, "iterations": 3, "real_time": False, "keep_parameters": True}
    return job_of(**{**common, **settings})


@pytest.fixture(scope="module")
def trained() -> list[RunResult]:
    """All jobs in one launch: loading PyTorch is what takes long."""
    return run_jobs([job_for(each) for each in [*SETTINGS, STALE]], timeout=180)


def words(settings: dict[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in settings.items())


@pytest.mark.parametrize("index", range(len(SETTINGS)), ids=[words(s) for s in SETTINGS])
def test_every_worker_ends_with_the_parameters_of_one_process_on_the_joint_batch(index: int, trained: list[RunResult]) -> None:
    result = trained[index]
    wanted, _ = train_alone(result.job)
    for one in result.processes[: result.job.workers]:
        for got, layer in zip(one["parameters"], wanted, strict=True):
            flat = torch.cat([p.reshape(-1) for p in layer]).numpy()
            np.testing.assert_allclose(np.frombuffer(bytes.fromhex(got), np.float32), flat, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("index", range(len(SETTINGS)), ids=[words(s) for s in SETTINGS])
def test_all_workers_hold_the_same_bits_and_their_mean_loss_is_that_of_one_process(index: int, trained: list[RunResult]) -> None:
    result = trained[index]
    workers = result.processes[: result.job.workers]
    assert all(one["digest"] == workers[0]["digest"] for one in workers)
    _, losses = train_alone(result.job)
    np.testing.assert_allclose(np.mean([one["losses"] for one in workers], axis=0), losses, rtol=1e-6)


def test_training_moves_parameters_by_far_more_than_the_tolerance() -> None:
    job = job_for(SETTINGS[0])
    before, after = train_alone(job_of("mlp", job.strategy, 3, warm_up=0, iterations=0))[0], train_alone(job)[0]
    assert max(float((a - b).abs().max()) for x, y in zip(before, after, strict=True) for a, b in zip(x, y, strict=True)) > 1000 * TOLERANCE


def test_poseidon_uses_both_schemes_in_the_equality_tests() -> None:
    job = job_for(SETTINGS[5])
    assert [job.by_factors(layer) for layer in job.layers] == [False, True, False]


def test_with_bounded_staleness_the_loss_falls_and_nobody_runs_further_ahead_than_allowed(trained: list[RunResult]) -> None:
    result, allowed = trained[-1], STALE["staleness"]
    workers = result.processes[:3]
    for one in workers:
        assert np.mean(one["losses"][-5:]) < 0.8 * one["losses"][0]
        for iteration in range(1 + allowed, len(one["starts"])):
            assert one["starts"][iteration] >= max(other["ends"][iteration - 1 - allowed] for other in workers)


def sent_by_layer(result: RunResult) -> dict[str, int]:
    """Payload bytes of all workers in the last iteration."""
    found: dict[str, int] = {}
    for row in rows(result.job, result):
        if row["phase"] == "communicate" and row["iteration"] == 3:
            found[str(row["layer"])] = found.get(str(row["layer"]), 0) + int(str(row["sent_bytes"]))
    return found


def test_each_layer_sends_the_bytes_that_its_scheme_states(trained: list[RunResult]) -> None:
    # 57 x 31 + 57, 43 x 57 and 10 x 43 + 10 elements; N = 3; batch 14 (poseidon), so that factors pay for the second only
    poseidon = sent_by_layer(trained[5])
    assert poseidon["linear2"] == 4 * 14 * (43 + 57) * 3 * 2  # to two peers each
    assert poseidon["linear1"] == 4 * (57 * 31 + 57) * 2 * 2  # everybody's push and pull, less the own shard
    ring = sent_by_layer(trained[8])  # one all-reduce of everything, four workers: 2 (N - 1) chunks of 1 / N each
    assert ring[""] == 4 * (57 * 31 + 57 + 43 * 57 + 440) * 2 * 3


def test_every_layer_has_a_time_for_every_phase_and_all_fit_in_the_step(trained: list[RunResult]) -> None:
    for result in trained[:-1]:
        table = list(rows(result.job, result))
        for worker in range(result.job.workers):
            own = [row for row in table if (row["worker"], row["iteration"]) == (worker, 2)]
            seconds = {(row["layer"], row["phase"]): float(str(row["seconds"])) for row in own}
            for layer in result.job.layers:
                assert all(seconds[layer.name, phase] > 0 for phase in ("forward", "backward", "copy"))
                assert result.job.fusion == "all" or seconds[layer.name, "communicate"] > 0
            busy = sum(value for (_, phase), value in seconds.items() if phase in ("forward", "backward", "copy"))
            assert busy < seconds["", "step"]
            if result.job.message_delay:  # a push to another's shard and the pull from there are handed over that much later each
                assert seconds["conv2d1", "communicate"] >= 2 * result.job.message_delay


def test_the_table_is_tidy_and_names_all_conditions(trained: list[RunResult], tmp_path: Path) -> None:
    for result in trained[:2]:
        write(tmp_path / "runs.csv", list(rows(result.job, result)))
    with (tmp_path / "runs.csv").open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    keys = [(x["net"], x["worker"], x["iteration"], x["layer"], x["phase"]) for x in lines]
    assert len(set(keys)) == len(keys) and {x["phase"] for x in lines} == {"forward", "backward", "copy", "communicate", "step"}
    assert not any(value == "" for x in lines for name, value in x.items() if name not in ("layer", "sent_bytes"))


needs_no_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")


@needs_no_cuda
@pytest.mark.parametrize("extra", [[], ["--strategy", "all-reduce", "--transport", "nccl"]], ids=["host staging", "nccl"])
def test_what_needs_cuda_says_that_it_did_not_run(extra: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--device", "cuda", *extra]) == 0
    assert capsys.readouterr().out.strip() == "not run: no CUDA device"


@needs_no_cuda
def test_a_job_for_cuda_is_refused_by_its_processes_too() -> None:
    with pytest.raises(NotRun, match=NO_CUDA):
        staging_of(job_of("mlp", "parameter-server", 2, device="cuda"))


class FakeStream:
    """Stands for a stream or an event, and notes what was asked of it."""

    def __init__(self, notes: list[str], **_: object) -> None:
        self.notes = notes

    def wait_stream(self, other: FakeStream) -> None:
        self.notes.append("wait for the gradient")

    def record(self, stream: FakeStream) -> None:
        self.notes.append("event")

    def synchronize(self) -> None:
        self.notes.append("copy seen to end")


def test_staging_copies_after_the_gradient_and_hands_over_after_the_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    cuda = staging_module.torch.cuda
    monkeypatch.setattr(cuda, "is_available", lambda: True)
    for name in ("Stream", "Event"):
        monkeypatch.setattr(cuda, name, lambda **_: FakeStream(notes))
    monkeypatch.setattr(cuda, "current_stream", lambda: FakeStream(notes))
    monkeypatch.setattr(cuda, "stream", lambda _: staging_module.torch.no_grad())
    monkeypatch.setattr(cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: None)
    staging, target = CudaStaging(), np.zeros(6, np.float32)
    staging.copy_out([(torch.arange(6.0).view(2, 3), target)], lambda *_: notes.append(f"handed over {target.tolist()}"))
    staging.drain()
    assert notes == ["wait for the gradient", "event", "event", "copy seen to end", "handed over [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"transport": "gloo"}, "all-reduce only"),
        ({"strategy": "all-reduce", "transport": "nccl"}, "nccl needs"),
        ({"numeric": True}, "gradients and times of its own"),
        ({"net": "transformer"}, "is not one of"),
        ({"device": "tpu"}, "is unknown"),
    ],
)
def test_settings_that_a_real_net_does_not_know_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Job((), **{"strategy": "parameter-server", "workers": 2, "net": "mlp", **settings})
