"""Theano-MPI (Ma et al., 2016): compute and exchange of AlexNet and VGG-16 on up to 16 GPUs, logged apart.

    poseidon-sim reproduce theano-mpi

Given: the seconds of one GPU of every table (k GPUs compute a kth of it); the share of validation in the epoch of one GPU. Cost of a
call and of a hop: as GoogLeNet and ResNet-50, whose many small tensors are not in these tables, leave them (30 us a tensor at 2 GPUs, 45 at 4).
Fitted on AlexNet with NCCL 1: LANES and COPY_TIME (2 and 4 GPUs), SOCKET (8); on ASA at 4 GPUs: MESSAGE. VGG-16, ASA at 8 GPUs
and the other tables are predicted. Mosaic's InfiniBand is taken as QDR (assumed), its exchanger as asa32; neither is stated.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from published import Row, flag_of, show, targets

import poseidon_sim as ps

IMAGES, TRAIN_IMAGES = 5120, 1_281_167
#: seconds of one call, and of one of the 2 (k - 1) hops of a ring: 30 us a tensor at 2 GPUs, 45 us at 4
CALL_TIME, HOP_TIME = 22.5e-6, 3.75e-6
#: fitted on AlexNet with NCCL 1, 2 and 4 GPUs: bytes/s between GPUs of a socket; s a byte of the copy out of NCCL 1's buffer
LANES, COPY_TIME = 7.15e9, 0.036e-9
#: fitted on AlexNet with NCCL 1, 8 GPUs: bytes/s between the sockets
SOCKET = 3.56e9
#: fitted on AlexNet with ASA, 4 GPUs: bytes/s of a message of CUDA-aware MPI between GPUs of a node
MESSAGE = 2.34e9
FITTED = ("B-TMPI-nccl32-AlexNet-128b-", "B-TMPI-asa32-AlexNet-4-")
#: prefix of the ids -> (machine, exchanger, id of the one-GPU row, remark)
TABLES = {
    "B-TMPI-nccl32-AlexNet-128b": ("copper", "nccl32", "B-TMPI-nccl32-AlexNet-128b-1-train", ""),
    "B-TMPI-nccl32-VGG16-16b": ("copper", "nccl32", "B-TMPI-nccl32-VGG16-16b-1-train", ""),
    "B-TMPI-nccl32-VGG16-32b": ("copper", "nccl32", "B-TMPI-nccl32-VGG16-32b-1-train", ""),
    "B-TMPI-nobind": ("copper", "nccl32", "B-TMPI-nccl32-AlexNet-128b-1-train", ""),
    "B-TMPI-asa32": ("copper", "asa32", "B-TMPI-asa32-AlexNet-1-train", ""),
    "B-TMPI-mosaic": ("mosaic", "asa32", "B-TMPI-apr16-AlexNet-1", "exchanger and generation of InfiniBand not stated: asa32 on QDR"),
    "B-TMPI-apr16": ("mosaic", "asa32", "B-TMPI-apr16-AlexNet-1", ""),
    "B-TMPI-mar16-AlexNet": ("mosaic", "asa32", "B-TMPI-mar16-AlexNet-1", "cluster and exchanger not stated: as mosaic"),
    "B-TMPI-mar16-VGGNet": ("mosaic", "asa32", "B-TMPI-mar16-VGGNet-1", "cluster and exchanger not stated: as mosaic"),
    "B-TMPI-oct16-AlexNet128": ("copper", "nccl32", "B-TMPI-oct16-AlexNet128-1", "exchanger not stated: nccl32"),
    "B-TMPI-oct16-VGGNet16": ("copper", "nccl32", "B-TMPI-oct16-VGGNet16-1", "exchanger not stated: nccl32"),
    "B-TMPI-oct16-VGGNet32": ("copper", "nccl32", "B-TMPI-oct16-VGGNet32-1", "exchanger not stated: nccl32"),
}  # fmt: skip
INPUT = "the rates of disk and decoding are not stated"
WAIT = f"the wait for the slowest rank, logged apart; larger than the transfer, as loaders that share a disk would make it; {INPUT}"
SLOW = "8 processes compute 23 % longer than an eighth of one GPU's seconds, with 32 images each they do not; the hosts' threads, suspected"
COMM_WAIT = "a sixth more than the same bytes take with 32 images: waiting that the barrier before it did not take, suspected"
REASONS = {
    "B-TMPI-nccl32-VGG16-16b-8-train": SLOW, "B-TMPI-nccl32-VGG16-16b-8-speedup": SLOW, "B-TMPI-oct16-VGGNet16-8": SLOW,
    "B-TMPI-nccl32-VGG16-16b-8-comm": COMM_WAIT, "B-TMPI-nccl32-VGG16-16b-8-busbw": COMM_WAIT, "B-TMPI-nccl32-VGG16-16b-8-commiter": COMM_WAIT,
    "B-TMPI-asa32-AlexNet-8-commmin": "the lowest of 17,514 records; ours is set by the median of 4 GPUs, which holds waiting",
    "B-TMPI-asa32-AlexNet-4-train": "train and exchange trade against each other from epoch to epoch: compare totals",
    "B-TMPI-asa32-AlexNet-8-train": "train and exchange trade against each other from epoch to epoch: compare totals",
    "B-TMPI-asa32-AlexNet-1-comm": "one GPU has nothing to exchange",
    "B-TMPI-nobind-AlexNet-8-comm": "processes not bound to cores: copies through the other socket's memory are not modelled",
    "B-TMPI-easgd-AlexNet-worker-train": "workers and period not recorded",
    "B-TMPI-easgd-AlexNet-worker-comm": "workers and period not recorded",
}  # fmt: skip
NO_FIGURE = ("B-TMPI-asa32-AlexNet-1-comm", "B-TMPI-nobind-AlexNet-8-comm", "B-TMPI-easgd")


def machine(name: str, gpus: int) -> ps.Cluster:
    """Return copper (one node, K80 boards, four GPUs to a socket) or mosaic (a K20m a node, InfiniBand)."""
    if name == "copper":
        sockets = {"node": "pcie-tree", "socket_bandwidth": SOCKET} if gpus > 4 else {}
        return ps.Cluster(nodes=1, gpus_per_node=gpus, gpu=ps.gpu("k80"), pcie=LANES, peer_latency=HOP_TIME, **sockets)
    wire, lanes = ps.link("infiniband-qdr"), ps.link("pcie-2.0-x16")
    network = ps.Network(wire.bandwidth, efficiency=wire.efficiency, latency=wire.latency)
    return ps.Cluster(nodes=gpus, gpu=ps.gpu("k20x"), network=network, pcie=lanes.bandwidth * lanes.efficiency)


@cache
def exchange_time(model: str, where: str, exchange: str, gpus: int) -> float:
    """Return the seconds of one exchange; nothing overlaps, so that what computes does not matter."""
    message = MESSAGE if where == "copper" else None
    strategy = ps.TheanoMpi(exchange=exchange, call_time=CALL_TIME, copy_time=COPY_TIME, message_bandwidth=message)
    workload = ps.load_model({"AlexNet": "alexnet"}.get(model, "vgg16"), single_gpu_throughput=100.0)
    run = ps.simulate(workload, machine(where, gpus), strategy, batch_size=1)
    return run.step_time - run.single_gpu_time


def bus_bandwidth(model: str, gpus: int, seconds: float) -> float:
    """Return what a ring of so many seconds reaches, GB/s."""
    return 2 * (gpus - 1) / gpus * ps.load_model({"AlexNet": "alexnet"}.get(model, "vgg16")).gradient_bytes / seconds / 1e9


def rows() -> list[Row]:
    """Return every published row with ours beside it."""
    lines = targets("B-TMPI")
    value = {line["id"]: float(line["value"]) for line in lines}
    return [row_of(line, value) for line in lines]


def row_of(line: dict[str, str], value: dict[str, float]) -> Row:
    """Return the row of one published figure."""
    name, metric, flag = line["id"], line["metric"], flag_of(line["confidence"])
    gpus = int(line["nodes"] or 1) * int(line["gpus_per_node"] or 1)
    what = f"{line['model']}, {gpus} GPUs, batch {line['batch_per_gpu']}, {line['strategy']}: {metric}"
    if "sync_wait" in metric or "data_wait" in metric or name.startswith(NO_FIGURE):
        reason = WAIT if "sync_wait" in metric else INPUT if "data_wait" in metric else REASONS[name]
        return Row(name, what, value[name], None, "not modelled", flag, reason)
    prefix = next(p for p in TABLES if name.startswith(p))
    _, _, base, remark = TABLES[prefix]
    if gpus == 1:
        return Row(name, what, value[name], value[name], "given", flag)
    own = name.startswith(FITTED) and "train" not in metric.replace("train_plus_comm", "")
    return Row(name, what, value[name], figure(line, value, base), "fitted" if own else "predicted", flag, REASONS.get(name, remark))


def figure(line: dict[str, str], value: dict[str, float], base: str) -> float:
    """Return our figure of a row, in its unit."""
    where, exchange, _, _ = next(t for p, t in TABLES.items() if line["id"].startswith(p))
    gpus, metric, model = int(line["nodes"]) * int(line["gpus_per_node"]), line["metric"], line["model"]
    seconds = exchange_time(model, where, exchange, gpus)
    train, comm = value[base] / gpus, seconds * IMAGES / (gpus * int(line["batch_per_gpu"]))
    total = train + comm
    per_5_iterations = 5 * gpus * int(line["batch_per_gpu"]) / IMAGES
    validation = value["B-TMPI-asa32-AlexNet-1-epoch"] - TRAIN_IMAGES / IMAGES * value["B-TMPI-asa32-AlexNet-1-total"] / 3600
    return {
        "train_s_per_5120_images": train, "comm_s_per_5120_images": comm, "comm_s_per_5120_images_minimum": comm,
        "total_s_per_5120_images": total, "total_s_per_5120_images_as_printed": total,
        "train_s_per_5_iterations": train * per_5_iterations, "comm_s_per_5_iterations": 5 * seconds,
        "total_s_per_5_iterations": total * per_5_iterations, "comm_ms_per_iteration": seconds * 1e3,
        "ring_bus_bandwidth_GBps": bus_bandwidth(model, gpus, seconds),
        "speedup_vs_1gpu": value[base] / total, "speedup_vs_1gpu_train_plus_comm": value[base] / total,
        "epoch_hours_incl_validation": TRAIN_IMAGES / IMAGES * total / 3600 + validation / gpus,
    }[metric]  # fmt: skip


def main(out_dir: Path) -> int:
    """Print the rows, and what each exchanger takes for AlexNet on one node."""
    show(rows(), out_dir)
    print("milliseconds of one exchange of AlexNet on copper at 2, 4 and 8 GPUs (predicted)")
    for name in ("nccl32", "nccl16", "asa32", "asa16", "copper", "ar"):
        print(f"  {name:<8}", *(f"{exchange_time('AlexNet', 'copper', name, gpus) * 1e3:8.1f}" for gpus in (2, 4, 8)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path("out/theano-mpi")))
