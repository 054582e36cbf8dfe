"""The same sweep on every backend that is installed: the files must be equal to the byte.

    python benchmarks/every_backend.py [--backends processes,dask,ray]

Needs `pip install "poseidon-sim[dask,ray]"` for the clusters; local ones are started and stopped. Exit code 1 when a file differs.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
import time

import poseidon_sim as ps

BASE = {
    "model": "resnet50",
    "cluster": {"nodes": 8, "gpu": "v100-sxm2-16gb", "network": {"bandwidth": "25 Gbit/s", "latency": "10 us"}},
    "strategy": "all-reduce",
}
GRID = {
    "nodes": [2, 4, 8, 16],
    "cluster.network.bandwidth": [f"{rate} Gbit/s" for rate in range(10, 110, 10)],
    "batch_size": [16, 32, 100000],
    "strategy": ["parameter-server", "all-reduce", "poseidon"],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", default="processes,dask,ray")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        alone = ps.sweep(BASE, GRID, f"{folder}/alone").read_bytes()
        fine, rows = True, len(alone.splitlines()) - 1
        for backend in args.backends.split(","):
            module = {"dask": "distributed"}.get(backend, backend)
            if backend != "processes" and importlib.util.find_spec(module) is None:
                print(f"{backend}: not run ({module} is not installed)")
                continue
            began = time.perf_counter()
            there = ps.sweep(BASE, GRID, f"{folder}/{backend}", jobs=2, backend=backend).read_bytes()
            fine &= there == alone
            print(f"{backend}: {rows} rows in {time.perf_counter() - began:.1f} s, bytes {'equal' if there == alone else 'DIFFER'}")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
