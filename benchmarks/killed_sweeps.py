"""End a sweep by force at random moments, resume it, and compare its file with that of an undisturbed run.

    python benchmarks/killed_sweeps.py [--kills 20] [--jobs 2] [--backend processes]

Prints one line a kill and, at the end, whether every row is there once and the bytes are the same. Exit code 1 if not.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BASE = {
    "model": "resnet50",
    "cluster": {"nodes": 8, "gpu": "v100-sxm2-16gb", "network": {"bandwidth": "25 Gbit/s", "latency": "10 us"}},
    "strategy": "all-reduce",
}
GRID = {
    "nodes": [2, 4, 8, 16, 32, 64],
    "cluster.network.bandwidth": [f"{rate} Gbit/s" for rate in range(5, 105, 5)],
    "batch_size": [8, 16, 32],
    "strategy": ["parameter-server", "all-reduce", "poseidon"],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--backend", default="processes")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    chance = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        def command(name: str) -> list[str]:
            options = f"jobs={args.jobs}, backend={args.backend!r}"
            return [sys.executable, "-c", f"import poseidon_sim as ps; ps.sweep({BASE!r}, {GRID!r}, {f'{folder}/{name}'!r}, {options})"]

        began = time.monotonic()
        subprocess.run(command("whole"), check=True)
        whole = time.monotonic() - began
        total, kills, log = 1080, 0, Path(folder, "cut", "rows.jsonl")
        while kills < args.kills:
            child = subprocess.Popen(command("cut"), start_new_session=True)
            try:
                child.wait(chance.uniform(0.1, 0.6) * whole)
                print("the sweep was done before the kill; it begins anew in another folder")
                log.unlink()
                continue
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
            kills += 1
            lines = log.read_bytes().split(b"\n") if log.exists() else []
            print(f"kill {kills}: {max(0, len(lines) - 2)} of {total} rows on disk, last line {'whole' if not lines or not lines[-1] else 'cut'}")
            if kills % 5 == 0 and log.exists():
                subprocess.run(command("cut"), check=True)
                if not same(Path(folder), total):
                    return 1
                log.unlink()
        subprocess.run(command("cut"), check=True)
        return 0 if same(Path(folder), total) else 1


def same(folder: Path, total: int) -> bool:
    """Whether the resumed sweep has every row once and the same bytes."""
    indices = [json.loads(line)["row"] for line in (folder / "cut" / "rows.jsonl").read_text().splitlines()[1:]]
    rows = list(csv.DictReader((folder / "cut" / "results.csv").open()))
    equal = (folder / "cut" / "results.csv").read_bytes() == (folder / "whole" / "results.csv").read_bytes()
    fine = equal and sorted(indices) == list(range(total)) and len(rows) == total
    print(f"resumed: {len(rows)} rows, {len(indices) - len(set(indices))} double, bytes {'equal' if equal else 'DIFFER'}")
    return fine


if __name__ == "__main__":
    sys.exit(main())
