"""Predict every measured case and print measured, predicted and error.

    python -m validation.campaign.compare [--measured FILE] [--all] [--no-bucket]

Nothing is fitted on the cases: the simulator is told the stated compute times and message delay, and of the
network what `calibrate` measured without training. Cases are trusted by noise and load alone (`trusted`),
never by agreement.
"""

from __future__ import annotations

import argparse
import csv
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np

import poseidon_sim as ps

from ..network.spec import PAYLOAD_SHARE
from .cases import Case
from .nets import NETS
from .run import MEASURED, read_table

MOST_CPU = 0.35
MOST_VARIATION = 0.03


@dataclass(frozen=True)
class Comparison:
    """One case: measured and predicted seconds per step, and how far they vary (std / mean).

    `spread` is between repetitions, `variation` (median over repetitions) between the iterations of one.
    """

    case: Case
    measured: float
    predicted: float
    spread: float
    variation: float
    own_cpu: float
    host_busy: float
    drops: int
    repetitions: int

    @property
    def error(self) -> float:
        """(predicted - measured) / measured."""
        return self.predicted / self.measured - 1.0

    @property
    def trusted(self) -> bool:
        """Whether noise and load were low enough: no drops, under 35 % CPU, variations under 3 %."""
        steady = max(self.spread, self.variation if not self.case.staleness else 0.0) < MOST_VARIATION
        return self.drops == 0 and self.own_cpu < MOST_CPU and steady


def workload(case: Case) -> ps.Workload:
    """The case's network for the simulator."""
    layers = tuple(
        ps.Layer(
            x.name, "linear" if x.factor_shape else "conv", x.tensors, factor_shape=x.factor_shape,
            forward_time=x.forward_time, backward_time=x.backward_time,
        )
        for x in NETS[case.net]
    )  # fmt: skip
    return ps.Workload(case.net, layers, source="made up for the campaign", batch_size=case.batch_size)


def cluster(case: Case, calibration: dict[float, dict[str, float]], bucket: bool = True) -> ps.Cluster:
    """The case's cluster for the simulator.

    `bucket` : count that a token bucket gives idle time back (`ring_hop`). Other strategies keep their ports busy
    while a message is under way.
    """
    rates = calibration[case.rate_mbit]
    one_way, overhead = rates["one_way_s"] + case.delay_ms * 1e-3, rates["message_overhead_s"]
    if bucket and case.strategy == "all-reduce":
        one_way, overhead = ring_hop(case, one_way + overhead), 0.0
    network = ps.Network(
        bandwidth=case.rate_mbit * 1e6 / 8, efficiency=goodput_share(rates),
        latency=one_way, message_overhead=overhead,
        **_leaves(case),
    )  # fmt: skip
    slow = case.slow_port_mbit * 1e6 / 8 if case.slow_port_mbit else None
    last = ps.NodeGroup(1, slowdown=case.straggler, bandwidth=slow)
    groups = (ps.NodeGroup(case.workers - 1), last) if slow or case.straggler != 1.0 else ()
    return ps.Cluster(nodes=case.workers, network=network, groups=groups)


def ring_hop(case: Case, one_way: float) -> float:
    """Mean seconds that a hop of a ring costs besides its bytes, behind token buckets.

    While a hop is under way the ports idle and their buckets fill, by at most their size; the next chunk then passes
    that much sooner, though never before the hop is over. So a hop costs what exceeds the bucket, or what exceeds the
    chunk's own time if that is longer. Averaged over the collectives of an iteration.
    """
    wire = case.rate_mbit * 1e6 / 8
    tensors = [4 * size for layer in NETS[case.net] for size in layer.tensors]
    sizes = [sum(tensors)] if case.fusion == "all" else tensors
    given_back = (min(case.network().burst(wire), size / case.workers) / wire for size in sizes)
    return sum(max(0.0, one_way - time) for time in given_back) / len(sizes)


def goodput_share(rates: dict[str, float]) -> float:
    """Payload share of the wire in both directions at once, times the rate the token buckets gave over that asked."""
    return rates["payload_share"] * rates["goodput_share_one_direction"] / PAYLOAD_SHARE


def _leaves(case: Case) -> dict[str, float]:
    if not case.uplink_mbit:
        return {}
    per_leaf = -(-case.workers // 2)
    return {"nodes_per_leaf": per_leaf, "oversubscription": per_leaf * case.rate_mbit / case.uplink_mbit}


def strategy(case: Case) -> ps.Strategy:
    """The case's strategy for the simulator."""
    if case.strategy == "parameter-server":
        servers = case.servers if case.servers == "colocated" else int(case.servers)
        return ps.ParameterServer(servers=servers, overlap=case.overlap, staleness=case.staleness)
    if case.strategy == "all-reduce":
        return ps.AllReduce(fusion=case.fusion, overlap=case.overlap)
    kind = ps.Poseidon if case.strategy == "poseidon" else ps.SufficientFactorBroadcast
    return kind(overlap=case.overlap)


def run_of(case: Case, calibration: dict[float, dict[str, float]], bucket: bool = True) -> ps.Run:
    """The case simulated; `bucket` as for `cluster`."""
    return ps.simulate(workload(case), cluster(case, calibration, bucket), strategy(case), batch_size=case.batch_size)


def predict(case: Case, calibration: dict[float, dict[str, float]], bucket: bool = True) -> float:
    """Predicted seconds per step."""
    return run_of(case, calibration, bucket).step_time


def read_calibration(path: Path) -> dict[float, dict[str, float]]:
    """What `calibrate` measured, by rate in Mbit/s."""
    with path.open(encoding="utf-8") as file:
        rows = [{key: float(value) for key, value in line.items()} for line in csv.DictReader(file)]
    return {line["rate_mbit"]: line for line in rows}


def read_cases(path: Path) -> dict[Case, list[dict[str, str]]]:
    """Lines of the table of measurements by case."""
    found: dict[Case, list[dict[str, str]]] = defaultdict(list)
    kinds = {
        f.name: {"int": int, "float": float, "bool": lambda x: x == "True"}.get(str(f.type), str)
        for f in fields(Case)
    }
    for line in read_table(path):
        found[Case(**{name: kind(line[name]) for name, kind in kinds.items()})].append(line)
    return found


def compare(measured: Path, calibration: dict[float, dict[str, float]], bucket: bool = True) -> list[Comparison]:
    """Predict every case of a table; the measured time is the median over the repetitions."""
    out = []
    for case, lines in read_cases(measured).items():
        times = np.array([float(x["step_time_s"]) for x in lines])
        out.append(Comparison(
            case, float(np.median(times)), predict(case, calibration, bucket), float(times.std() / times.mean()),
            statistics.median(float(x["variation"]) for x in lines),
            statistics.median(float(x["own_cpu"]) for x in lines),
            statistics.median(float(x["host_busy"]) for x in lines),
            max(int(x["drops"]) for x in lines), len(lines),
        ))  # fmt: skip
    return out


def summary(rows: Iterable[Comparison]) -> list[str]:
    """Median, 95th percentile and worst absolute error per strategy and over all, in per cent."""
    by: dict[str, list[float]] = defaultdict(list)
    for one in rows:
        by[one.case.strategy].append(one.error)
        by["all"].append(one.error)
    lines = [f"{'strategy':<30}{'cases':>6}{'median':>8}{'p95':>8}{'worst':>8}{'bias':>8}"]
    for name, errors in sorted(by.items()):
        size = np.abs(errors) * 100
        figures = (np.median(size), np.quantile(size, 0.95), size.max(), np.mean(errors) * 100)
        lines.append(f"{name:<30}{len(errors):>6}" + "".join(f"{x:>8.2f}" for x in figures))
    return lines


def winners(rows: Iterable[Comparison]) -> tuple[int, int, float]:
    """Groups of cases that differ in the strategy only, and whose best and worst differ by over 5 %.

    Returns (groups, groups whose winner is predicted right, worst regret: the predicted winner's measured time over
    the best measured time, minus 1).
    """
    groups: dict[Case, list[Comparison]] = defaultdict(list)
    for one in rows:
        groups[replace(one.case, strategy="", fusion="none", servers="colocated", staleness=0)].append(one)
    right, regrets = 0, []
    for group in groups.values():
        order = sorted(group, key=lambda one: one.measured)
        if len({one.case.strategy for one in group}) < 2 or order[-1].measured < 1.05 * order[0].measured:
            continue
        chosen = min(group, key=lambda one: one.predicted)
        regrets.append(chosen.measured / order[0].measured - 1.0)
        right += regrets[-1] < 0.01
    return len(regrets), right, max(regrets, default=0.0)


def between_hosts(one: Path, other: Path) -> list[float]:
    """Relative differences of the median step times of the cases that two tables share."""
    first, second = read_cases(one), read_cases(other)
    medians = [
        [statistics.median(float(x["step_time_s"]) for x in lines[case]) for lines in (first, second)]
        for case in first
        if case in second
    ]
    return [a / b - 1.0 for a, b in medians]


def table(rows: Iterable[Comparison]) -> list[str]:
    """One line per case."""
    lines = [
        f"{'case':<52}{'measured ms':>12}{'predicted':>11}"
        f"{'error %':>9}{'spread %':>9}{'var %':>7}{'cpu %':>7}{'host %':>7}"
    ]
    for one in rows:
        note = "" if one.trusted else "  not trusted"
        lines.append(
            f"{one.case.name:<52}{one.measured * 1e3:>12.2f}{one.predicted * 1e3:>11.2f}"
            f"{one.error * 100:>9.2f}{one.spread * 100:>9.2f}{one.variation * 100:>7.2f}"
            f"{one.own_cpu * 100:>7.1f}{one.host_busy * 100:>7.1f}{note}"
        )
    return lines


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measured", type=Path, default=MEASURED / "emulated.csv")
    parser.add_argument("--calibration", type=Path, default=MEASURED / "emulated_network.csv")
    parser.add_argument(
        "--all", action="store_true", help="count cases that are not trusted, too, in the summary"
    )
    parser.add_argument("--no-bucket", action="store_true", help="as if ports had no token bucket")
    chosen = parser.parse_args()
    rows = compare(chosen.measured, read_calibration(chosen.calibration), not chosen.no_bucket)
    kept = [one for one in rows if one.trusted or chosen.all]
    print("\n".join(table(rows)))
    print(f"\nabsolute error of the step time in per cent; {len(kept)} of {len(rows)} cases counted")
    print("\n".join(summary(kept)))
    groups, right, regret = winners(kept)
    print(f"\nbest strategy predicted right in {right} of {groups} groups; worst regret {regret:.1%}")
    apart = np.abs(between_hosts(chosen.measured, MEASURED / "emulated_other_host.csv")) * 100
    print(f"measured here against another host's: {apart.size} cases, median {np.median(apart):.2f} %, p95 {np.quantile(apart, 0.95):.2f} %")


if __name__ == "__main__":
    main()
