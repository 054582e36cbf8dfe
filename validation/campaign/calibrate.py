"""Measure the emulated network by itself, without any training: what the simulator is told about it.

    python -m validation.campaign.calibrate [--output FILE]

One way of a tiny message (ping-pong), payload share of the wire rate (one stream of 1 MiB messages), and the seconds a
message occupies its connection besides its bytes (a stream of tiny messages).
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ..network import emulated_network, uniform
from ..runner import Job, RunLayer, RunResult, awake_processors, run_job
from .run import MEASURED, append

RATES_MBIT = (100, 200, 500, 1000)


def probe(nodes: int, rate_mbit: float, **settings: object) -> RunResult:
    """Run one of the runner's probes on `nodes` equal ports."""
    words = {key: str(value) for key, value in settings.items()}
    job = Job((RunLayer("none", (1,)),), "parameter-server", nodes, extra={**words, "nodes": str(nodes)})
    with emulated_network(uniform(nodes, rate_mbit * 1e6 / 8)) as network:
        return run_job(job, network)


def calibrate(rate_mbit: float) -> dict[str, object]:
    """Return one line of the table for one rate."""
    wire = rate_mbit * 1e6 / 8
    ping = probe(2, rate_mbit, probe="ping").processes[0]["probe"]["one_way_s"]
    count = max(8, round(wire * 1.5 / 2**20))
    found = probe(2, rate_mbit, probe="stream", pattern="one", bytes=2**20, count=count).processes[0]["probe"]
    share = found["bytes"] / (found["seconds"] - 2 * ping) / wire
    tiny = probe(2, rate_mbit, probe="stream", pattern="one", bytes=64, count=3000).processes[0]["probe"]
    overhead = max(0.0, tiny["seconds"] / tiny["messages"] - (64 + 20) / (wire * share))
    return {
        "rate_mbit": rate_mbit, "payload_share": f"{share:.4f}", "one_way_s": f"{ping:.2e}",
        "message_overhead_s": f"{overhead:.2e}",
    }  # fmt: skip


def main() -> None:
    """Calibrate every rate of the campaign."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=MEASURED / "emulated_network.csv")
    chosen = parser.parse_args()
    chosen.output.unlink(missing_ok=True)
    with awake_processors():
        for rate in RATES_MBIT:
            line = calibrate(rate)
            append(chosen.output, line)
            print(line, flush=True)


if __name__ == "__main__":
    main()
