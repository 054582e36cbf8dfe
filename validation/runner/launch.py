"""Start the processes of a job, on an emulated network or on loopback, and gather what they measured."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..network import Network
from .job import Job

PACKAGE = __package__ or "validation.runner"
ROOT = Path(__file__).resolve().parents[PACKAGE.count(".") + 1]


@dataclass(frozen=True)
class RunResult:
    """What a job's processes measured.

    `step_time` : median seconds of one iteration over the measured ones (BSP: mean over workers of the time
    between
    ends; staleness: global rate). `mean_step_time`, `variation` : mean, and standard deviation over mean.
    `sent_bytes` : payload bytes all processes sent in one iteration. `own_cpu`, `host_busy`, `host_steal` :
    shares of
    all cores, while training. `drops`, `retransmits` : on the emulated network, else -1.
    """

    job: Job
    step_times: tuple[float, ...]
    sent_bytes: float
    own_cpu: float
    host_busy: float
    host_steal: float
    drops: int
    retransmits: int
    processes: tuple[dict[str, Any], ...]

    @property
    def step_time(self) -> float:
        """Median seconds per iteration; with staleness, where single iterations mean little, the mean."""
        return float(np.mean(self.step_times) if self.job.staleness else np.median(self.step_times))

    @property
    def mean_step_time(self) -> float:
        """Mean seconds per iteration."""
        return float(np.mean(self.step_times))

    @property
    def variation(self) -> float:
        """Standard deviation over mean of the iterations."""
        return float(np.std(self.step_times) / np.mean(self.step_times))


def run_job(job: Job, network: Network | None = None, timeout: float = 300.0) -> RunResult:
    """Run one job: `run_jobs` with a list of one."""
    return run_jobs([job], network, timeout)[0]


def run_jobs(jobs: Sequence[Job], network: Network | None = None, timeout: float = 300.0) -> list[RunResult]:
    """Run jobs one after the other with one process per node of `network`, or all on loopback.

    The processes are started once, which is what takes long where they load PyTorch.

    Raises
    ------
    RuntimeError
        A process failed or took longer than `timeout` seconds; the message carries its error output.
    """
    results = []
    with tempfile.TemporaryFile("w+") as errors, tempfile.TemporaryDirectory() as place:
        processes = [_start(network, rank, errors) for rank in range(max(job.processes for job in jobs))]
        alarm = threading.Timer(timeout, _stop, (processes,))
        alarm.start()
        try:
            for process in processes:
                _hear(process)
            for index, job in enumerate(jobs):
                before = _counters(network)
                found = _converse(job, network, processes[: job.processes], f"{place}/meeting{index}")
                results.append(_result(job, found, before, _counters(network)))
        except (BrokenPipeError, json.JSONDecodeError) as error:
            _stop(processes)
            errors.seek(0)
            raise RuntimeError(f"a process of the job failed:\n{errors.read()[-3000:]}") from error
        finally:
            alarm.cancel()
            _stop(processes)
    return results


def _counters(network: Network | None) -> tuple[int, int] | None:
    """Drops and retransmits so far; None on loopback, where nobody counts."""
    return (network.drops(), network.retransmits()) if network else None


def _start(network: Network | None, rank: int, errors: Any) -> subprocess.Popen[str]:
    where = network.command(rank) if network else []
    line = "eth0" if network else "lo"  # which torch.distributed is to use
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": line, "NCCL_SOCKET_IFNAME": line,
    }  # fmt: skip
    return subprocess.Popen(
        [*where, sys.executable, "-m", f"{PACKAGE}.node"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=errors, text=True, env=environment,
    )  # fmt: skip


def _converse(
    job: Job, network: Network | None, processes: list[subprocess.Popen[str]], meeting: str
) -> list[dict[str, Any]]:
    text = job.to_json()
    hosts = [network.addresses[rank] if network else "127.0.0.1" for rank in range(job.processes)]
    for rank, process in enumerate(processes):
        _tell(process, {"job": text, "rank": rank, "host": hosts[rank], "meeting": meeting})
    addresses = [(host, _hear(process)["port"]) for host, process in zip(hosts, processes, strict=True)]
    for process in processes:
        _tell(process, addresses)
    for process in processes:
        _hear(process)
    for process in processes:
        _tell(process, "go")
    return [_hear(process) for process in processes]


def _tell(process: subprocess.Popen[str], value: object) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(value) + "\n")
    process.stdin.flush()


def _hear(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    found: dict[str, Any] = json.loads(process.stdout.readline())
    return found


def _stop(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        if process.stdin is not None and not process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
    for process in processes:
        if process.poll() is None:
            try:
                process.wait(0.3)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdout is not None and not process.stdout.closed:
            process.stdout.close()


def _result(
    job: Job, results: list[dict[str, Any]], before: tuple[int, int] | None, after: tuple[int, int] | None
) -> RunResult:
    cores = os.cpu_count() or 1
    cpu = results[0]["host_cpu"]
    total = max(1, sum(cpu))
    idle = cpu[1] + cpu[3] + cpu[4] if cpu else 0  # nice counts as idle: the spinners of `awake_processors`
    seconds = max(r["loop_s"] for r in results)
    sent = sum(r["sent_bytes"] for r in results) / (job.warm_up + job.iterations)
    drops, retransmits = (after[0] - before[0], after[1] - before[1]) if before and after else (-1, -1)
    return RunResult(
        job, _step_times(job, results), sent, sum(r["loop_cpu_s"] for r in results) / seconds / cores,
        1 - idle / total if cpu else -1.0, cpu[7] / total if cpu else -1.0,
        drops, retransmits, tuple(results),
    )  # fmt: skip


def _step_times(job: Job, results: list[dict[str, Any]]) -> tuple[float, ...]:
    """Seconds between the ends of successive measured iterations, averaged over workers."""
    ends = np.array([r["ends"] for r in results[: job.workers] if r["ends"]])
    if not ends.size:
        return (0.0,)
    first = job.warm_up - 1
    gaps = np.diff(ends[:, first:], axis=1) if first >= 0 else np.diff(ends, axis=1)
    return tuple(float(x) for x in gaps.mean(axis=0))
