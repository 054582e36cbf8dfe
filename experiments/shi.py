"""Shi, Chu and others: GoogLeNet's trace on 10 GbE, sparse and dense sums on 1 GbE, ASC-WFBP, jobs that share a port, costs of NCCL.

    poseidon-sim reproduce shi

Given: rates and compute seconds of one worker, measured layer times of the trace, start-up and byte time of a message on 1 GbE
(S11G-p2p) and of one job's all-reduce (S11M-cont, one job). Fitted on VGG-16: UNPACK, on the communication of gTop-k (S11G-brk), and GATHER_UNPACK, on top-k at 4 workers (S11G-05). All
else is predicted. Of ASC-WFBP neither GPUs nor batch are stated: 8 nodes of four RTX 2080 Ti are assumed, as the group's other runs; costs of hops and calls are
those fitted on ResNet-50 of their benchmark (validation/corpora/fitted.csv), the link is iperf's 9.43 Gbit/s, of which one stream takes 3/4.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from published import Row, corpora, flag_of, show, targets

import poseidon_sim as ps

#: fitted on S11G-brk-VGG-16: bytes/s of the dense gradient at which a worker's host passes a sparse sum on (copies, merging, unpacking)
UNPACK = 74.9e6
#: fitted on S11G-05: the same where the sum is of the all-gathered sets of all workers
GATHER_UNPACK = 60.8e6
FITTED = ("S11G-brk-VGG-16 (CIFAR-10)-communication_s", "S11G-05")
#: parameters of the networks on 1 GbE: VGG-16 and ResNet-20 for CIFAR-10 with batch normalisation, torchvision's AlexNet
SIZES = {"VGG-16 (CIFAR-10)": 14_728_266, "ResNet-20 (CIFAR-10)": 272_474, "AlexNet": 61_100_840}
IPERF = 9.43e9 / 8
STREAM_SHARE = 0.75
MICRO = "a microbenchmark of MPI between hosts, whose protocols change at 8 KiB and 512 KiB"
STAGED = "their MPI all-reduce takes 11 to 13 ns a byte, a message on the wire 9: copies between card and host and the host's sum, suspected"
CROWDED = "the network collapses at 16 and 32 workers: several switches, suspected"
SMALL = "published: 1 to 2 ms above an iteration of one worker, what the hops alone take; the breakdown at 32 workers has 25 ms"
STREAMS = "GPUs and batch assumed; the published WFBP is that of streams that fill the link alone, MG-WFBP that of streams that do not"
INTERFERENCE = "suspected: a node computes slower while its host sends (with WFBP an iteration grows by 36 ms at 2 and at 4 nodes alike)"
CONTENTION = "two and three jobs lose 11 to 13 % beyond an even share, more jobs less; ours share evenly"
PROFILE = "a constant of the authors' scheduler; GPU and run not stated"
NO_TABLE = "no table of its layers"
REASONS = (
    ("S11B-01", INTERFERENCE), ("S11B-04", INTERFERENCE), ("S11B-05", INTERFERENCE), ("S11T-2-meas", INTERFERENCE), ("S11T-4-meas", INTERFERENCE),
    ("S11B-02", "layer times of the trace hold waiting at 4 nodes"),
    ("S11A", STREAMS),
    ("S11G-17", SMALL), ("S11G-21", SMALL),
    ("S11M-cont-41943040-2", CONTENTION), ("S11M-cont-41943040-3", CONTENTION),
    ("S11M-ab-56", "GPUs without peer-to-peer copy through the host: 7 to 10 GB/s in a node, not the catalogue's 12"),
)


def rows() -> list[Row]:
    """Return every published row with ours beside it."""
    lines = targets("S11")
    value = {line["id"]: float(line["value"]) for line in lines}
    return [row_of(line, value) for line in lines]


def row_of(line: dict[str, str], value: dict[str, float]) -> Row:
    """Return the row of one published figure."""
    name, flag = line["id"], flag_of(line["confidence"])
    what = f"{line['model']}, {line['strategy'] or '-'}, {line['nodes'] or '-'} nodes, {line['bandwidth_gbps'] or '-'} Gbit/s: {line['metric']}"
    table = next(made for prefix, made in TABLES.items() if name.startswith(prefix))
    ours, use, reason = table(line, value)
    reason = reason or next((why for prefix, why in REASONS if name.startswith(prefix)), "")
    return Row(name, what, value[name], ours, "fitted" if name in FITTED else use, flag, reason)


Told = tuple[float | None, str, str]


def of_trace(line: dict[str, str], value: dict[str, float]) -> Told:
    """GoogLeNet on B-Caffe: measured layer times through MG-WFBP's channel; groups as recorded at 8 nodes, by the rule at others."""
    name, metric, nodes = line["id"], line["metric"], int(line["nodes"])
    alone = 64 / value["S11B-1-GoogLeNet"]
    if nodes == 1 or metric.startswith("sum_layer"):
        return value[name], "given", ""
    method = {"WFBP": "per layer", "MG-WFBP": "merged"}.get(line["strategy"], "fused")
    exposed = corpora("replay").exposed(nodes, method)
    if metric.endswith("_ms") or metric.endswith("replay"):
        return exposed * 1e3, "predicted", ""
    rate = nodes * 64 / (alone + exposed)
    return rate if metric.startswith("throughput") else rate * alone / 64, "predicted", ""


@cache
def sparse_step(model: str, strategy: ps.Strategy, workers: int, alone: float, batch: int, startup: float, byte_time: float) -> float:
    """Return the seconds of an iteration on nodes of one GPU with the measured costs of a message on 1 GbE."""
    layer = ps.Layer("all", "linear", (SIZES[model],), forward_time=batch / alone / 3, backward_time=batch / alone * 2 / 3)
    gathers = isinstance(strategy, ps.TopK) and strategy.aggregation == "all-gather"
    host = ps.Host(reduce_bandwidth=GATHER_UNPACK if gathers else UNPACK)
    cluster = ps.Cluster(nodes=workers, gpu=ps.gpu("p40"), network=ps.Network(1 / byte_time, latency=startup), host=host)
    return ps.simulate(ps.Workload(model, (layer,), batch_size=batch), cluster, strategy).step_time


def of_sparse(line: dict[str, str], value: dict[str, float]) -> Told:
    """Dense sums, top-k and gTop-k on 1 GbE; no catalogue holds a P102-100, whose rate is given."""
    name, model = line["id"], line["model"]
    if name.startswith(("S11G-1-", "S11G-p2p")) or name.endswith("compute_s"):
        return value[name], "given", ""
    alone, workers = value[f"S11G-1-{model}"], int(line["nodes"])
    batch = 64 if model == "AlexNet" else 128
    wire = value["S11G-p2p-a"] / 1e3, value["S11G-p2p-b"] / 1e3
    tree, gather = (ps.TopK(aggregation=way, staging="host") for way in ("tree", "all-gather"))
    if name.startswith("S11G-brk"):
        selecting = _selection(model)
        if name.endswith("compression_s"):
            return selecting, "predicted", "the cost s x log2(x) of a P102-100"
        return sparse_step(model, tree, workers, alone, batch, *wire) - batch / alone - selecting, "predicted", ""
    kind = line["strategy"]
    strategy = tree if kind.startswith("gTop-k") else gather if kind.startswith("top-k") else ps.AllReduce(fusion="all", overlap=False)
    seconds = sparse_step(model, strategy, workers, alone, batch, *wire)
    crowded = workers >= 16 and not kind.startswith("gTop-k")
    reason = CROWDED if crowded else STAGED if kind.startswith("dense") else ""
    return batch / seconds, "predicted", reason


def _selection(model: str) -> float:
    """Return the seconds of choosing the largest values of a network's gradient."""
    layer = ps.Layer("all", "linear", (SIZES[model],), forward_time=0.0, backward_time=1.0)
    cluster = ps.Cluster(nodes=2, network=ps.Network(1e15))
    run = ps.simulate(ps.Workload(model, (layer,), batch_size=1), cluster, ps.TopK(aggregation="tree"))
    return run.step_time - run.single_gpu_time


def one_job(value: dict[str, float]) -> tuple[float, float]:
    """Return (start-up seconds, seconds a byte) of one all-reduce alone, from its two sizes."""
    small, large = 10_485_760, 41_943_040
    byte_time = (value[f"S11M-cont-{large}-1"] - value[f"S11M-cont-{small}-1"]) / (large - small) * 1e-6
    return value[f"S11M-cont-{small}-1"] * 1e-6 - byte_time * small, byte_time


def at_once(num_bytes: float, jobs: int, startup: float, byte_time: float) -> float:
    """Return the seconds of an all-reduce between two nodes when so many begin together on their ports."""
    layer = ps.Layer("buffer", "linear", (round(num_bytes / 4),), forward_time=0.0, backward_time=1e-9)
    network = ps.Network(1 / byte_time, collective_overhead=startup).shared_by(jobs)
    return ps.simulate(ps.Workload("job", (layer,), batch_size=1), ps.Cluster(nodes=2, network=network), ps.AllReduce()).step_time


def of_shared_port(line: dict[str, str], value: dict[str, float]) -> Told:
    """Jobs that begin together on one port share it evenly; one job alone is given."""
    _, _, num_bytes, jobs = line["id"].split("-")
    seconds = at_once(float(num_bytes), int(jobs), *one_job(value))
    return seconds * 1e6, "given" if jobs == "1" else "predicted", ""


def of_costs(line: dict[str, str], value: dict[str, float]) -> Told:
    """NCCL's byte times are those of a ring on the catalogue's links."""
    name, metric, nodes, gpus = line["id"], line["metric"], int(line["nodes"]), int(line["gpus_per_node"])
    if "OSU" in name or "-osu-" in name:
        return None, "not modelled", MICRO
    if "ab-10GbE" in name:
        return None, "not modelled", "its byte times are those of more than 10 Gbit/s"
    if metric == "alpha_s":
        return None, "not modelled", "start-up of a call: an input (collective_overhead)"
    wire, lanes = ps.link("infiniband-fdr" if "IB" in name else "10gbe-tcp"), ps.link("pcie-3.0-x16")
    ring, peers = ps.collective_algorithm("ring"), lanes.bandwidth * lanes.efficiency
    seconds = ring.time(1.0, nodes * gpus, wire.bandwidth * wire.efficiency, 0.0, gpus, peers)
    return seconds, "predicted", ""


def of_profile(line: dict[str, str], value: dict[str, float]) -> Told:
    """Sizes are counted, in MiB; times are constants of a scheduler's simulator."""
    if line["metric"] != "model_size_MB":
        return None, "not modelled", PROFILE
    model = {"LSTM-PTB": "lstm-lm"}.get(line["model"], line["model"].lower().replace("-1", "1").replace("t-50", "t50"))
    return ps.load_model(model).gradient_bytes / 2**20, "counted", ""


@cache
def exposed(model: str, method: str, compute: float) -> float:
    """Return the seconds of an iteration beyond its compute seconds on 32 GPUs."""
    fitted = {key: number for key, (number, _) in corpora("constants").fitted().items()}
    share = 1.0 if method == "ASC-WFBP" else STREAM_SHARE  # one stream at a time: all that WFBP and MG-WFBP get
    network = ps.Network(
        IPERF * share, latency=fitted["hkbu.10gbe.latency"] * 1e-6, collective_overhead=fitted["hkbu.collective_overhead"] * 1e-6
    )
    cluster = ps.Cluster(
        nodes=8, gpus_per_node=4, gpu=ps.gpu("rtx-2080-ti"), network=network, pcie=fitted["hkbu.pcie"] * 1e9,
        peer_latency=fitted["hkbu.peer_latency"] * 1e-6,
    )  # fmt: skip
    strategies: dict[str, ps.Strategy] = {"WFBP": ps.AllReduce(), "MG-WFBP": ps.MergedGradient(), "ASC-WFBP": ps.AscWfbp(stream_share=STREAM_SHARE)}
    run = ps.simulate(ps.load_model(model, single_gpu_throughput=32 / compute), cluster, strategies[method], batch_size=32)
    return run.step_time - compute


def of_streams(line: dict[str, str], value: dict[str, float]) -> Told:
    """WFBP, MG-WFBP and ASC-WFBP on 10 GbE."""
    known = {"ResNet-152": "resnet152", "BERT-Base": "bert-base-pretraining"}
    if line["strategy"] == "compute":
        return value[line["id"]], "given", ""
    if line["model"] not in known:
        return None, "not modelled", NO_TABLE
    return exposed(known[line["model"]], line["strategy"], value[f"S11A-{line['model']}-c"]), "predicted", ""


TABLES = {
    "S11B": of_trace, "S11T": of_trace, "S11G": of_sparse, "S11M-cont": of_shared_port, "S11M-prof": of_profile, "S11M": of_costs,
    "S11A": of_streams,
}  # fmt: skip


def main(out_dir: Path) -> int:
    """Print the rows."""
    show(rows(), out_dir)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path("out/shi")))
