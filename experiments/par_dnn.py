"""ParDNN (Qararyah et al., 2021): operators of one model on up to 16 GPUs; throughput grows faster than the devices.

    poseidon-sim reproduce par-dnn

The published result is a direction: with more devices there is more memory, so a larger batch, and throughput grows more than
the devices. The link's figures are constants of the authors' code and given.
"""

from __future__ import annotations

from pathlib import Path

from published import Row, flag_of, show, targets

import poseidon_sim as ps

LATENCY, RATE = 45e-6, 140 * 2**30


def throughput(gpus: int) -> tuple[int, float]:
    """Return the largest batch (of powers of two) that fits on so many GPUs of 2 GB, and its samples/s."""
    gpu = ps.Gpu("small", flops={"fp32": 15e12}, memory_bandwidth=9e11, memory=2e9, peer_bandwidth=RATE, launch_overhead=1e-5)
    where = ps.Cluster(nodes=1, gpus_per_node=gpus, gpu=gpu, node="nvswitch", peer_latency=LATENCY)
    best = (0, 0.0)
    for batch in (1, 2, 4, 8, 16, 32, 64, 128):
        try:
            run = ps.simulate("inception-v3", where, ps.ParDnn(), batch_size=batch / gpus)
        except ps.InfeasibleError:
            break
        best = (batch, run.throughput)
    return best


def rows() -> list[Row]:
    """Return the three published rows."""
    given = {"B-PDNN-alpha": LATENCY * 1e6, "B-PDNN-bw": RATE / 2**30}
    found = []
    for line in targets("B-PDNN"):
        name, flag = line["id"], flag_of(line["confidence"])
        if name in given:
            found.append(Row(name, line["metric"], float(line["value"]), given[name], "given", flag))
            continue
        found.append(Row(name, line["metric"], float("nan"), None, "not modelled", flag, "a direction: the batch grows with memory (ours 8, 32, 64 on 1, 2, 4 small GPUs); throughput grows 1.4 times on two, not more than twice: few operators run side by side"))
    return found


def main(out_dir: Path) -> int:
    """Print the rows, and how batch and throughput grow with devices."""
    show(rows(), out_dir)
    print("inception-v3 on GPUs of 2 GB (predicted)")
    for gpus in (1, 2, 4):
        batch, rate = throughput(gpus)
        print(f"  {gpus} GPUs: largest batch {batch:>4}, {rate:8.1f} samples/s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path("out/par-dnn")))
