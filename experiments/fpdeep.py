"""FPDeep (Geng et al.): AlexNet, VGG-16 and VGG-19 on a chain of FPGAs, linear to 60, 83 and 100 devices.

    poseidon-sim reproduce fpdeep

Given: 250 Gb/s in and out of a device (125 each way). Assumed: a device computes 0.5 TFLOP/s, a mid-sized FPGA of the time,
on words of 16 bits (with 32 the links would end linear growth at 57 devices for VGG-16, 72 for VGG-19). The row is
how many devices scale linearly; ours is the largest chain, up to the published one, whose speedup is within 2 % of its devices for all
networks. What an FPGA spends in energy is not modelled.
"""

from __future__ import annotations

from pathlib import Path

from published import Row, flag_of, show, targets

import poseidon_sim as ps

LINK, RATE = 125e9 / 8, 0.5e12
NETWORKS = ("alexnet", "vgg16", "vgg19")


def speedup(model: str, devices: int) -> float:
    """Return the throughput of a chain over that of one device, at a global batch of 49,800 images."""
    fpga = ps.Gpu("fpga", flops={"fp16": RATE}, efficiency={"default": 1.0})

    def rate(nodes: int) -> float:
        network = ps.Network(LINK) if nodes > 1 else None
        return ps.simulate(ps.load_model(model, precision="fp16"), ps.Cluster(nodes=nodes, gpu=fpga, network=network), ps.FpDeep(), batch_size=49_800 / nodes).throughput

    return rate(devices) / rate(1)


def rows() -> list[Row]:
    """Return every published row with ours."""
    found = []
    for line in targets("S4-"):
        name, flag, what = line["id"], flag_of(line["confidence"]), f"{line['model']}: {line['metric']}"
        if line["metric"] != "linear_scaling_limit_devices":
            found.append(Row(name, what, float(line["value"]), None, "not modelled", flag, "energy"))
            continue
        devices = int(line["value"])
        lengths = [n for n in (devices // 4, devices // 2, devices) if all(speedup(model, n) > 0.98 * n for model in NETWORKS)]
        found.append(Row(name, what, float(devices), float(max(lengths, default=1)), "fitted", flag, "words of 16 bits were assumed in sight of it; only lengths up to the published one were tried"))
    return found


def main(out_dir: Path) -> int:
    """Print the rows, and where the link ends linear growth."""
    show(rows(), out_dir)
    for model in NETWORKS:
        print(f"  {model:<8}" + "".join(f"  {n} devices: {speedup(model, n):6.1f}" for n in (60, 83, 100, 150)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path("out/fpdeep")))
