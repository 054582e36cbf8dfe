"""Measure the emulated network by itself, without any training: what the simulator is told about it.

    python -m validation.campaign.calibrate [--output FILE]

One way of a tiny message (ping-pong); payload bytes over wire bytes when data flows in both directions, as in
training (headers and the acknowledgements of the other direction take the rest), by counting; the timed rate
of one stream in one direction over the wire rate, for comparison; and the seconds a message occupies its
connection besides its bytes (a stream of tiny messages).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median

from ..network import emulated_network, uniform
from ..runner import Job, RunLayer, RunResult, awake_processors, run_job
from ..runner.wire import HEADER
from .run import MEASURED, append

RATES_MBIT = (50, 100, 200, 500, 1000)
SOCKET_BUFFER = 131_072


def probe(nodes: int, rate_mbit: float, **settings: object) -> tuple[RunResult, float]:
    """Run one of the runner's probes on `nodes` equal ports; also return payload over wire bytes."""
    words = {key: str(value) for key, value in settings.items()}
    job = Job(
        (RunLayer("none", (1,)),), "parameter-server", nodes, socket_buffer=SOCKET_BUFFER,
        extra={**words, "nodes": str(nodes)},
    )  # fmt: skip
    with emulated_network(uniform(nodes, rate_mbit * 1e6 / 8)) as network:
        before = network.wire_bytes()
        result = run_job(job, network)
        wire = network.wire_bytes() - before
    return result, sum(one["sent_bytes"] for one in result.processes) / wire


def once(rate_mbit: float) -> dict[str, float]:
    """Measure everything once at one rate."""
    wire = rate_mbit * 1e6 / 8
    ping = probe(2, rate_mbit, probe="ping")[0].processes[0]["probe"]["one_way_s"]
    count = max(8, round(wire * 1.5 / 2**20))
    stream = {"probe": "stream", "bytes": 2**20, "count": count}
    one = probe(2, rate_mbit, **stream, pattern="one")[0].processes[0]["probe"]
    _, both = probe(2, rate_mbit, **stream, pattern="ring")
    share = one["bytes"] / (one["seconds"] - 2 * ping) / wire
    tiny = probe(2, rate_mbit, probe="stream", pattern="one", bytes=64, count=3000)[0].processes[0]["probe"]
    overhead = max(0.0, tiny["seconds"] / tiny["messages"] - (64 + HEADER.size) / (wire * share))
    return {
        "payload_share": both, "goodput_share_one_direction": share, "one_way_s": ping,
        "message_overhead_s": overhead,
    }  # fmt: skip


def calibrate(rate_mbit: float, repetitions: int = 5) -> dict[str, object]:
    """Return one line of the table for one rate: medians."""
    found = [once(rate_mbit) for _ in range(repetitions)]
    return {"rate_mbit": rate_mbit, **{key: f"{median(x[key] for x in found):.4g}" for key in found[0]}}


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
