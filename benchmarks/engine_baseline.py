"""Tasks per second of the engines on three bare programs: a chain, a ring and pairwise flows.

    python benchmarks/engine_baseline.py
    python benchmarks/engine_baseline.py --nodes 16 --steps 2500 --layers 633 --engines fast

No domain is imported: this measures the engine alone. The first run of the fast engine compiles it (cached on
disk afterwards); that time is shown apart.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from poseidon_sim.engine import Program, make_program, run


def chain(num_queues: int, steps: int) -> Program:
    """`num_queues` independent chains of tasks that hold a queue for a latency; no links."""
    n = num_queues * steps
    return make_program(
        np.zeros(n),
        dependencies=[[task - num_queues] if task >= num_queues else [] for task in range(n)],
        latency=0.01,
        queue=np.arange(n) % num_queues,
        queue_slots=np.ones(num_queues),
    )


def ring(nodes: int, steps: int, seed: int = 0) -> Program:
    """Every node sends to its right, `steps` times, each step after its own and its left neighbour's last."""
    n = nodes * steps
    neighbours = [[i - nodes, i - nodes - 1 if i % nodes else i - 1] for i in range(n)]
    return make_program(
        1 + np.random.default_rng(seed).random(n),
        dependencies=[row if i >= nodes else [] for i, row in enumerate(neighbours)],
        uses=[{i % nodes: 1.0, nodes + (i + 1) % nodes: 1.0} for i in range(n)],
        capacity=np.ones(2 * nodes),
        latency=0.01,
        queue=np.arange(n) % nodes,
        queue_slots=np.ones(nodes),
    )


def pairwise(nodes: int, layers: int, seed: int = 0) -> Program:
    """Between every two nodes `layers` flows at once, all of different size: nothing ends together."""
    pairs = [(a, b) for a in range(nodes) for b in range(nodes) if a != b] * layers
    return make_program(
        1 + np.random.default_rng(seed).random(len(pairs)),
        uses=[{a: 1.0, nodes + b: 1.0} for a, b in pairs],
        capacity=np.ones(2 * nodes),
        latency=0.01,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=8, help="nodes of the ring and of the pairwise flows")
    parser.add_argument("--steps", type=int, default=125, help="steps of the ring and of the chains")
    parser.add_argument("--layers", type=int, default=4, help="concurrent flows between every two nodes")
    parser.add_argument("--engines", default="reference,fast", help="which to run, separated by commas")
    parser.add_argument("--repeat", type=int, default=3, help="best of so many")
    options = parser.parse_args()
    cases = {
        "chain": chain(options.nodes, options.steps),
        "ring": ring(options.nodes, options.steps),
        "pairwise": pairwise(options.nodes, options.layers),
    }
    print(f"{'engine':<10} {'program':<9} {'tasks':>8} {'instants':>9} {'seconds':>9} {'tasks/s':>11}")
    for engine in options.engines.split(","):
        begin = time.perf_counter()
        run(make_program([1.0], rate_cap=1.0), engine=engine)
        print(f"{engine:<10} {'(loading)':<9} {1:>8} {2:>9} {time.perf_counter() - begin:>9.3f}")
        for name, program in cases.items():
            seconds = []
            for _ in range(options.repeat):
                begin = time.perf_counter()
                times = run(program, engine=engine)
                seconds.append(time.perf_counter() - begin)
            rate = program.num_tasks / min(seconds)
            print(
                f"{engine:<10} {name:<9} {program.num_tasks:>8} {times.num_instants:>9} "
                f"{min(seconds):>9.3f} {rate:>11,.0f}"
            )


if __name__ == "__main__":
    main()
