"""One data-parallel ResNet-50 iteration, a ring per tensor, every message of every round: this engine beside SimPy and SimGrid.

    python benchmarks/against_peers.py [--nodes 16,64] [--simpy-up-to 16] [-o benchmarks/against_peers.csv]

Needs for SimGrid: g++ and its headers (Debian: libsimgrid-dev); without them its rows say "not run". CPU seconds of one core. The
network model of SimGrid is CM02 without cross-traffic and without its TCP window, so that a message costs latency + bytes / bandwidth
as here; the simulated times stand beside each other. "folded" is what `simulate(detail="rounds")` does on equal nodes; "every message"
forces each message to be a task of its own, as it is when nodes differ. "again" repeats the run with the recording kept.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from peers.ring_simpy import ring as simpy_ring

import poseidon_sim as ps

HERE = Path(__file__).parent
BANDWIDTH, LATENCY = 25e9 / 8, 5e-6
QUIET = ["network/model:CM02", "network/crosstraffic:0", "network/TCP-gamma:0", "network/weight-S:0", "network/latency-factor:1", "network/bandwidth-factor:1"]
Row = dict[str, object]


def scenario(nodes: int, slow: float = 1.0) -> ps.Cluster:
    groups = (ps.NodeGroup(1, slowdown=slow),) if slow != 1.0 else ()
    return ps.Cluster(nodes=nodes, gpu=ps.gpu("v100-sxm2-16gb"), network=ps.Network(BANDWIDTH, latency=LATENCY), groups=groups)


def tensors() -> list[tuple[float, float]]:
    """(ready time in s, bytes) of every tensor in the order in which backward makes them, read off the trace of one node."""
    run = ps.simulate("resnet50", ps.Cluster(nodes=1, gpu=ps.gpu("v100-sxm2-16gb")), "all-reduce")
    table, ends = run.trace.table, run.trace.times.end
    ready = {int(table.layer[i]): float(ends[i]) for i in range(len(ends)) if table.name(i).startswith("backward")}
    model = ps.load_model("resnet50")
    layers = [x for x in model.layers if x.gradient_bytes(4) > 0]
    return [(ready[i], size) for i in sorted(ready, reverse=True) for size in reversed(layers[i].tensor_bytes(4))]


def ours(nodes: int, name: str, equal: bool, repeat: int) -> list[Row]:
    model, cluster = ps.load_model("resnet50"), scenario(nodes, 1.0 if equal else 1.0 + 1e-12)
    rows = []
    for turn in range(repeat):
        begin = time.process_time()
        run = ps.simulate(model, cluster, ps.AllReduce(), engine="fast", detail="rounds")
        cpu = time.process_time() - begin
        iterations = len(run.trace.iteration_ends)
        rows.append(row(f"poseidon_sim, {name}" + (", again" if turn else ""), nodes, cpu / iterations, run.step_time, run.trace.program.num_tasks // iterations))
    return rows


def row(who: str, nodes: int, cpu: float, simulated: float, tasks: object = "") -> Row:
    messages = 161 * 2 * (nodes - 1) * nodes
    return {"who": who, "nodes": nodes, "messages": messages, "tasks": tasks, "cpu_s": round(cpu, 4), "messages_per_s": round(messages / cpu), "simulated_s": simulated}


def simgrid(nodes: int, work: list[tuple[float, float]], folder: Path) -> Row | None:
    binary = folder / "ring_simgrid"
    if not binary.exists():
        if shutil.which("g++") is None:
            return None
        built = subprocess.run(["g++", "-O3", str(HERE / "peers" / "ring_simgrid.cpp"), "-lsimgrid", "-o", str(binary)], capture_output=True, text=True)
        if built.returncode:
            print(f"SimGrid: not run; the compiler says: {built.stderr.strip().splitlines()[0]}", file=sys.stderr)
            return None
    lines = [f"{nodes} {BANDWIDTH} {LATENCY} {len(work)}", *(f"{ready!r} {size!r}" for ready, size in work)]
    (folder / "ring.txt").write_text("\n".join(lines) + "\n")
    out = subprocess.run([str(binary), str(folder / "ring.txt"), *(f"--cfg={each}" for each in QUIET), "--log=root.thres:error"], capture_output=True, text=True, check=True)
    simulated, _, cpu = (float(x) for x in out.stdout.split())
    return row("SimGrid, C++ actors", nodes, cpu, simulated)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default="16,64")
    parser.add_argument("--simpy-up-to", type=int, default=16)
    parser.add_argument("--every-message-up-to", type=int, default=64)
    parser.add_argument("--simgrid-up-to", type=int, default=64)
    parser.add_argument("-o", "--out", type=Path, default=HERE / "against_peers.csv")
    args = parser.parse_args()
    work, rows = tensors(), []
    ps.simulate("alexnet", scenario(2), "all-reduce", engine="fast")  # the compiled engine is loaded before anybody is timed
    with tempfile.TemporaryDirectory() as name:
        for nodes in map(int, args.nodes.split(",")):
            here = ours(nodes, "folded", True, 2)
            if nodes <= args.every_message_up_to:
                here += ours(nodes, "every message", False, 2)
            if nodes <= args.simpy_up_to:
                simulated, _, cpu = simpy_ring(nodes, BANDWIDTH, LATENCY, work)
                here.append(row("SimPy, processes", nodes, cpu, simulated))
            if nodes <= args.simgrid_up_to:
                peer = simgrid(nodes, work, Path(name))
                here += [peer] if peer else []
            base = next((r for r in here if str(r["who"]).startswith("SimGrid")), None)
            for each in here:
                each["times_simgrid"] = round(float(base["cpu_s"]) / float(each["cpu_s"]), 2) if base else "not run"  # type: ignore[arg-type]
                each["from_simgrid"] = f"{float(each['simulated_s']) / float(base['simulated_s']) - 1:+.4%}" if base else "not run"  # type: ignore[arg-type]
                print(f"{each['who']:<38} {nodes:4} nodes {each['messages']:>10} messages {each['cpu_s']:>9} s {each['messages_per_s']:>12}/s  step {float(each['simulated_s']) * 1e3:.4f} ms  {each['times_simgrid']} x SimGrid, time {each['from_simgrid']}", flush=True)  # type: ignore[arg-type]
            rows += here
    with open(args.out, "w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    print(args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
