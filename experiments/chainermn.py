"""ChainerMN (Akiba et al., 2017): ResNet-50 on up to 128 Titan X, on MN-1's nodes of eight P100 over two networks, and on 1,024 of them.

    poseidon-sim reproduce chainermn

Given: the rate of one GPU (Titan X), of one node of eight (MN-1). Links are the catalogue's; NCCL over TCP reaches 2 of 10 Gbit/s
in their stack, a figure derived from two nodes on 10 GbE (fitted on B-CMN13-ips-eth-16). Two more numbers are fitted, each on one node
of four Titan X: SPREAD, how far GPUs' compute times spread (a step waits for the slowest), and MXNET_SUM, the rate at which MXNet
sums a node's gradients on its host. Rows across nodes are predicted. What another batch takes is our law of compute, scaled to the node's rate.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from published import Row, flag_of, show, targets

import poseidon_sim as ps

IMAGES = 1_281_167
#: fitted on B-CMN-ips-ChainerMN-4: half the width of the even spread of compute times from GPU to GPU
SPREAD = 0.123
#: fitted on B-CMN-ips-MXNet-4: bytes/s at which the host sums gradients
MXNET_SUM = 1.175e9
#: fitted on B-CMN13-ips-eth-16: NCCL over TCP as a share of 10 Gbit/s
TCP_SHARE = 0.2
FITTED = ("B-CMN-ips-ChainerMN-4", "B-CMN-speedup-4", "B-CMN-ips-MXNet-4", "B-CMN13-ips-eth-16")
NOT_MODELLED = {
    "B-CMN-abs-eff128": "baseline not stated; B-CMN-speedup rows compare with one GPU",
    "B-CMN-hours-CNTK": "what CNTK exchanged is not stated (32 or 1 bit)", "B-CMN-ips-CNTK": "what CNTK exchanged is not stated (32 or 1 bit)",
    "B-CMN-hours-TensorFlow": "where 31 parameter servers ran is not stated",
    "B-CMN-ips-TensorFlow": "where 31 parameter servers ran is not stated",
    "B-CMN1024-eff1": "the rate of one P100 is not published",
}  # fmt: skip
TREE = "the 15 minutes are rounded and hold start and validation; ours no input, no wait for the slowest, no slower link between 16 nodes and the rest"
HOURS = "the published hours are those of 11 to 14 % fewer images/s than the same job's plot: validation, start, input"
REASONS = {
    "B-CMN-ips-ChainerMN-8": "read off a plot that loses next to nothing from 4 to 8 GPUs", "B-CMN-ips-MXNet-8": "keys and messages cost the hosts nothing here",
    "B-CMN-ips-MXNet-128": "suspected: each server handles the keys of 32 nodes one by one, ours all at a time",
    "B-CMN-hours-MXNet": "the published hours are those of 4,620 images/s, the plot's 6,030",
    "B-CMN13-hours-ib": HOURS,
    "B-CMN13-hours-eth": f"{HOURS}; they are above even 64 images throughout, where we let 128 halve the steps from epoch 30 on",
    "B-CMN1024-min": TREE, "B-CMN1024-ips": TREE, "B-CMN1024-sec": TREE, "B-CMN1024-eff": TREE,
}  # fmt: skip


def slowest(gpus: int) -> float:
    """Return what the slowest of so many GPUs takes over the mean, on average over draws from an even spread.

    >>> slowest(1)
    1.0
    """
    return 1.0 + SPREAD * (gpus - 1) / (gpus + 1)


@cache
def titan(system: str, nodes: int, gpus: int, alone: float) -> float:
    """Return images/s on nodes of Titan X, from images/s of one."""
    wire = ps.link("infiniband-fdr")
    cluster = ps.Cluster(
        nodes=nodes, gpus_per_node=gpus, gpu=ps.gpu("titan-x-maxwell"), node="pcie-tree", gpu_spread=0.0,  # SPREAD in its place
        network=ps.Network(wire.bandwidth, efficiency=wire.efficiency, latency=wire.latency),
        groups=(ps.NodeGroup(nodes, slowdown=slowest(nodes * gpus) if system == "ChainerMN" else 1.0),),
        host=ps.Host(reduce_bandwidth=MXNET_SUM if system == "MXNet" else None),
    )  # fmt: skip
    strategy = ps.ChainerMn() if system == "ChainerMN" else ps.ParameterServer()
    return ps.simulate(ps.load_model("resnet50", single_gpu_throughput=alone), cluster, strategy, batch_size=32).throughput


@cache
def summing(nodes: int, network: str, gradients: str = "fp32") -> float:
    """Return the seconds of one all-reduce by pure NCCL on nodes of eight P100; nothing overlaps, so computing does not matter."""
    fdr = ps.link("infiniband-fdr")
    networks = {
        "ib": ps.Network(fdr.bandwidth, efficiency=fdr.efficiency, latency=fdr.latency),
        "2 x ib": ps.Network(2 * fdr.bandwidth, efficiency=fdr.efficiency, latency=fdr.latency),
        "eth": ps.Network(1.25e9, efficiency=TCP_SHARE, latency=ps.link("10gbe-tcp").latency),
    }
    cluster = ps.Cluster(nodes=nodes, gpus_per_node=8, gpu=ps.gpu("p100-pcie"), node="pcie-tree", network=networks[network])
    strategy = ps.ChainerMn(communicator="pure-nccl", gradients=gradients)
    run = ps.simulate(ps.load_model("resnet50", single_gpu_throughput=100.0), cluster, strategy, batch_size=1)
    return run.step_time - run.single_gpu_time


@cache
def share_of_64(batch: int) -> float:
    """Return the seconds of a batch on one P100 over those of 64 images, by our law of compute."""
    seconds = [ps.simulate("resnet50", ps.Cluster(1, gpu=ps.gpu("p100-pcie")), ps.ChainerMn(), batch_size=size).step_time for size in (batch, 64)]
    return seconds[0] / seconds[1]


def mn1(nodes: int, network: str, one_node: float, batch: int = 64, gradients: str = "fp32") -> float:
    """Return images/s on nodes of eight P100, from images/s of one node with 64 images per GPU."""
    compute = 8 * 64 / one_node - summing(1, network)
    return 8 * nodes * batch / (compute * share_of_64(batch) + summing(nodes, network, gradients))


def rows() -> list[Row]:
    """Return every published row with ours beside it."""
    lines = targets("B-CMN")
    value = {line["id"]: float(line["value"]) for line in lines}
    ours = predicted(lines, value)
    return [row_of(line, value[line["id"]], ours) for line in lines]


def row_of(line: dict[str, str], value: float, ours: dict[str, float]) -> Row:
    """Return the row of one published figure."""
    name, flag = line["id"], flag_of(line["confidence"])
    what = f"{line['strategy']}, {line['nodes']} x {line['gpus_per_node']} GPUs, batch {line['batch_per_gpu']}: {line['metric']}"
    why = next((reason for prefix, reason in NOT_MODELLED.items() if name.startswith(prefix)), "")
    if name in ("B-CMN-ips-ChainerMN-1", "B-CMN-ips-MXNet-1", "B-CMN13-ips-ib-8", "B-CMN13-ips-eth-8"):
        return Row(name, what, value, value, "given", flag)
    if why:
        return Row(name, what, value, None, "not modelled", flag, why)
    use = "fitted" if name in FITTED else "counted" if name == "B-CMN1024-gbs" else "predicted"
    return Row(name, what, value, ours[name], use, flag, REASONS.get(name, ""))


def predicted(lines: list[dict[str, str]], value: dict[str, float]) -> dict[str, float]:
    """Return our figures of all rows that are modelled, by id."""
    alone, ib, eth = value["B-CMN-ips-ChainerMN-1"], value["B-CMN13-ips-ib-8"], value["B-CMN13-ips-eth-8"]
    ours = {"B-CMN-blog-100x": titan("ChainerMN", 32, 4, alone) / alone}
    for line in lines:
        name, nodes, gpus = line["id"], int(line["nodes"]), int(line["gpus_per_node"])
        if name.startswith(("B-CMN-ips-ChainerMN", "B-CMN-ips-MXNet")):
            system = name.split("-")[3]
            ours[name] = titan(system, nodes, gpus, value[f"B-CMN-ips-{system}-1"])
        elif name.startswith(("B-CMN-speedup", "B-CMN-curve")):
            rate = titan("ChainerMN", nodes, gpus, alone)
            ours[name] = rate / alone if "speedup" in name else 100 * IMAGES / rate
        elif name.startswith("B-CMN13-ips"):
            network = name.split("-")[3]
            ours[name] = mn1(nodes, network, ib if network == "ib" else eth)
    for system in ("ChainerMN", "MXNet"):
        ours[f"B-CMN-hours-{system}"] = 100 * IMAGES / titan(system, 32, 4, value[f"B-CMN-ips-{system}-1"]) / 3600
    for network, one_node in (("ib", ib), ("eth", eth)):
        small, large = (mn1(4, network, one_node, batch) for batch in (64, 128))
        ours[f"B-CMN13-hours-{network}"] = IMAGES * (30 / small + 60 / large) / 3600
    many, node = mn1(128, "2 x ib", ib, 32, "fp16"), mn1(1, "2 x ib", ib, 32, "fp16")
    return ours | {
        "B-CMN1024-ips": many, "B-CMN1024-min": 90 * IMAGES / many / 60, "B-CMN1024-sec": 90 * IMAGES / many,
        "B-CMN1024-eff": many / (128 * node), "B-CMN1024-gbs": 32.0 * 1024,
    }  # fmt: skip


def main(out_dir: Path) -> int:
    """Print the rows."""
    show(rows(), out_dir)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path("out/chainermn")))
