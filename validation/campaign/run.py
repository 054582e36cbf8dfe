"""Run the campaign's cases on the emulated network and append what they measured to a table.

    python -m validation.campaign.run [--part first|more|last|wide|slow] [--repetitions 5] [--match WORD] [--output FILE]

What the table has already is not run again, so a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import signal
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import poseidon_sim as ps

from ..network import emulated_network, missing_requirements
from ..network.spec import PAYLOAD_SHARE
from ..runner import RunResult, awake_processors, run_job
from .cases import Case, all_cases, first_cases, last_cases, more_cases, slow_cases, wide_cases

PARTS = {"all": all_cases, "first": first_cases, "more": more_cases, "last": last_cases, "wide": wide_cases, "slow": slow_cases}
MEASURED = Path(__file__).resolve().parents[1] / "measured"


def row(case: Case, repetition: int, result: RunResult) -> dict[str, object]:
    """One line of the table: the case, its conditions and what was measured (times in seconds)."""
    return {
        "case": case.name, **asdict(case), "repetition": repetition, "iterations": len(result.step_times),
        "step_time_s": f"{result.step_time:.6f}", "mean_step_time_s": f"{result.mean_step_time:.6f}",
        "min_step_time_s": f"{min(result.step_times):.6f}",
        "max_step_time_s": f"{max(result.step_times):.6f}",
        "variation": f"{result.variation:.4f}", "sent_bytes": round(result.sent_bytes),
        "own_cpu": f"{result.own_cpu:.3f}",
        "host_busy": f"{result.host_busy:.3f}", "host_steal": f"{result.host_steal:.4f}",
        "load_average": f"{os.getloadavg()[0]:.2f}", "drops": result.drops, "retransmits": result.retransmits,
        "bucket_bytes": case.network().burst(case.rate_mbit * 1e6 / 8), "priority": result.processes[0]["priority"],
        "cores": os.cpu_count(), "kernel": platform.release(), "taken": time.strftime("%Y-%m-%dT%H:%M:%S"),
    }  # fmt: skip


def append(path: Path, line: dict[str, object]) -> None:
    """Add a line to a CSV file, with the head if it is new."""
    fresh = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(line), lineterminator="\n")
        if fresh:
            writer.writeheader()
        writer.writerow(line)


def read_table(path: Path) -> list[dict[str, str]]:
    """The lines of a table of measurements; raise UnreadableFileError where it is none, or a line was cut off by a kill."""
    with path.open(encoding="utf-8") as file:
        reader = csv.DictReader(file)
        lines = list(reader)
    if not {"case", "repetition", "step_time_s"} <= set(reader.fieldnames or ()):
        raise ps.UnreadableFileError(f"{path}: is no table of the campaign; give another file")
    for number, line in enumerate(lines, 2):
        if None in line or None in line.values():
            raise ps.UnreadableFileError(f"{path}:{number}: has not as many fields as the head; delete the line and run again, the rest is kept")
    return lines


def taken_already(path: Path) -> set[tuple[str, int]]:
    """Case and repetition of every line of a table; none where there is no table."""
    return {(line["case"], int(line["repetition"])) for line in read_table(path)} if path.exists() else set()


def measure(case: Case, iterations: int = 6) -> RunResult:
    """Run one case once, on a network made for it.

    Where none can be made: on paced loopback, with drops = -1, so that it is never trusted.
    """
    job, spec = case.job(iterations), case.network()
    if missing_requirements():
        paced = tuple((port.up * PAYLOAD_SHARE, port.down * PAYLOAD_SHARE) for port in spec.ports)
        return run_job(replace(job, pacing=paced))
    with emulated_network(spec) as network:
        return run_job(job, network)


def main() -> None:
    """Run the chosen cases, one repetition of all after the other, so that drifts spread over all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=PARTS, default="all", help="only these cases")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--begin", type=int, default=0, help="number of the first repetition (to add to a table)")
    parser.add_argument("--match", default="", help="only cases whose name contains this")
    parser.add_argument("--output", type=Path, default=MEASURED / "emulated.csv")
    chosen = parser.parse_args()
    problem = missing_requirements()
    if problem:
        print(f"paced loopback in place of an emulated network, for a look only: {problem}")
    cases = [c for c in PARTS[chosen.part]() if chosen.match in c.name]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the network is taken down then, too
    try:
        taken = taken_already(chosen.output)
    except ps.UnreadableFileError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    with awake_processors():
        for repetition in range(chosen.begin, chosen.begin + chosen.repetitions):
            for case in (one for one in cases if (one.name, repetition) not in taken):
                try:
                    line = row(case, repetition, measure(case))
                except RuntimeError as error:
                    print(f"{case.name}: failed, {error}", flush=True)
                    continue
                append(chosen.output, line)
                print(
                    *(line[k] for k in ("case", "step_time_s", "variation", "own_cpu", "host_busy", "drops")),
                    flush=True,
                )


if __name__ == "__main__":
    main()
