"""Train a real PyTorch net in several processes and write down how long each layer took.

    python -m validation.runner.train --net cnn --strategy poseidon --workers 3 --output FILE
    python -m validation.runner.train --net wide-mlp --strategy all-reduce --transport gloo --workers 2 --rate-mbit 1000

One line per worker, iteration, layer and phase, with all conditions: seconds of `forward`, `backward`, `copy` (device to the
memory that is sent), `communicate` (from there until the layer is fresh; with the bytes that this worker sent for it, none
where torch.distributed sends) and `step` (the whole iteration). Layer '' is the whole net. The processes share the machine's
processors, so compare such runs with care: times of several workers per processor are no times of a GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import os
import platform
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import torch

from ..network import Network, emulated_network, uniform
from .job import NETS, STRATEGIES, Job
from .launch import RunResult, run_job
from .staging import why_not
from .torch_nets import job_of


def conditions(job: Job, result: RunResult, rate_mbit: float) -> dict[str, object]:
    """Everything that the times may depend on."""
    return {
        "net": job.net, "strategy": job.strategy, "workers": job.workers, "batch_size": job.batch_size,
        "servers": job.servers, "fusion": job.fusion, "overlap": job.overlap, "staleness": job.staleness,
        "device": job.device, "transport": job.transport, "rate_mbit": rate_mbit, "message_delay_s": job.message_delay,
        "socket_buffer": job.socket_buffer or 0, "seed": job.seed, "warm_up": job.warm_up,
        "host_busy": f"{result.host_busy:.3f}", "load_average": f"{os.getloadavg()[0]:.2f}",
        "priority": result.processes[0]["priority"], "cores": os.cpu_count(), "kernel": platform.release(),
        "torch": torch.__version__, "taken": time.strftime("%Y-%m-%dT%H:%M:%S"),
    }  # fmt: skip


def rows(job: Job, result: RunResult, rate_mbit: float = 0.0) -> Iterator[dict[str, object]]:
    """Return the lines of one run; spans of one layer and phase in one iteration are added up."""
    shared = conditions(job, result, rate_mbit)
    for one in result.processes[: job.workers]:
        seconds: dict[tuple[int, str, str], float] = defaultdict(float)
        sent: dict[tuple[int, str, str], int] = defaultdict(int)
        for iteration, layer, phase, took, num_bytes in one["spans"]:
            key = iteration, "" if layer is None else job.layers[layer].name, phase
            seconds[key] += took
            sent[key] += num_bytes
        for iteration, (start, end) in enumerate(zip(one["starts"], one["ends"], strict=True)):
            seconds[iteration, "", "step"] = end - start
        for (iteration, layer, phase), took in sorted(seconds.items()):
            known = phase == "communicate" and job.transport == "tcp"
            yield {
                **shared, "worker": one["rank"], "iteration": iteration, "layer": layer, "phase": phase,
                "seconds": f"{took:.7f}", "sent_bytes": sent[iteration, layer, phase] if known else "",
            }  # fmt: skip


def write(path: Path, lines: list[dict[str, object]]) -> None:
    """Append lines to a table, with the head if it is new."""
    fresh = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(lines[0]), lineterminator="\n")
        if fresh:
            writer.writeheader()
        writer.writerows(lines)


@contextlib.contextmanager
def network_of(job: Job, rate_mbit: float) -> Iterator[Network | None]:
    """Equal ports of a rate, or loopback as fast as it goes (0)."""
    if not rate_mbit:
        yield None
        return
    with emulated_network(uniform(job.processes, rate_mbit * 1e6 / 8)) as network:
        yield network


def read_arguments(words: list[str] | None) -> argparse.Namespace:
    """What is asked for on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", choices=NETS, default="cnn")
    parser.add_argument("--strategy", choices=STRATEGIES, default="parameter-server")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16, help="samples per worker")
    parser.add_argument("--servers", default="colocated", help="'colocated' or the number of extra server processes")
    parser.add_argument("--fusion", choices=("none", "all"), default="none")
    parser.add_argument("--no-overlap", action="store_true", help="synchronise after the whole backward pass")
    parser.add_argument("--staleness", type=int, default=0, help="iterations a worker may run ahead")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--transport", choices=("tcp", "gloo", "nccl"), default="tcp")
    parser.add_argument("--rate-mbit", type=float, default=0.0, help="of every port of an emulated network; 0 is loopback")
    parser.add_argument("--delay-ms", type=float, default=0.0, help="added to the way of every message")
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--real-time", action="store_true", help="real-time priority; may starve other programs")
    parser.add_argument("--output", type=Path, default=Path("out/torch_runs.csv"))
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    """Run as asked; where a device is missing, say so and run nothing."""
    chosen = read_arguments(words)
    job = job_of(
        chosen.net, chosen.strategy, chosen.workers, batch_size=chosen.batch_size,
        servers=chosen.servers if chosen.servers == "colocated" else int(chosen.servers), fusion=chosen.fusion,
        overlap=not chosen.no_overlap, staleness=chosen.staleness, device=chosen.device, transport=chosen.transport,
        message_delay=chosen.delay_ms * 1e-3, iterations=chosen.iterations, real_time=chosen.real_time,
    )  # fmt: skip
    problem = why_not(job)
    if problem:
        print(problem)
        return 0
    with network_of(job, chosen.rate_mbit) as network:
        result = run_job(job, network)
    chosen.output.parent.mkdir(parents=True, exist_ok=True)
    write(chosen.output, list(rows(job, result, chosen.rate_mbit)))
    losses = result.processes[0]["losses"]
    print(f"{result.step_time * 1e3:.2f} ms per step; loss of worker 0 from {losses[0]:.3f} to {losses[-1]:.3f}; {chosen.output}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
