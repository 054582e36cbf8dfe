"""Repeat the fit of fitted.csv: one number at a time, in the order of the file, on rows of fitted sets only.

    python -m validation.corpora.fit

Each number is scanned over a grid of physically sensible values; what counts is the mean absolute log error of the rows named
in the file. Two rounds, since the numbers lean on each other.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

from . import constants
from .cases import Entry, predicted
from .families import ddl_benchmarks, theano_mpi
from .records import Record, read_all

#: name -> (grid, set, text in the strategy or label, whether one-node rows only)
SCANS: dict[str, tuple[tuple[float, ...], str, str, bool | None]] = {
    "hkbu.10gbe.efficiency": ((0.91, 0.93, 0.95, 0.965, 0.98, 0.99), "hkbu resnet50 10GbE", "one all-reduce", False),
    "hkbu.peer_latency": ((5, 8, 10, 12, 15, 18, 22), "hkbu resnet50 10GbE", "per tensor", False),
    "hkbu.10gbe.latency": ((10, 15, 20, 25, 30, 40), "hkbu resnet50 10GbE", "per tensor", False),
    "hkbu.collective_overhead": ((0, 25, 50, 75, 100, 150), "hkbu resnet50 10GbE", "per tensor", False),
    "hkbu.100gbe.efficiency": ((0.16, 0.18, 0.2, 0.22, 0.25, 0.3), "hkbu resnet50 100GbE TCP", "one all-reduce", False),
    "hkbu.100gbe.latency": ((10, 15, 20, 25, 30, 40, 60), "hkbu resnet50 100GbE TCP", "per tensor", False),
    "hkbu.key_time": ((0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35), "hkbu resnet50 10GbE", "BytePS after backward", True),
    "hkbu.tcp_channel": ((1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 2.0), "hkbu resnet50 10GbE", "BytePS after backward", False),
    "tmpi.pcie": ((5.5, 6.0, 6.5, 7.0, 7.5), "tmpi AlexNet", "", None),
    "tmpi.socket": ((3.0, 3.25, 3.5, 3.75, 4.0), "tmpi AlexNet", "", None),
}
#: taken from the one-node run without overlap against the one-GPU rate: 102 MB x 6/4 over the difference of the step times
DIRECT = "hkbu.pcie"


def main() -> None:
    """Print the best value of each scan beside the one in the file."""
    records = read_all()
    values = dict(constants.fitted())
    for _ in range(2):
        for name, (grid, of, text, one_node) in SCANS.items():
            errors = {value: score(records, {**values, name: (value, values[name][1])}, of, text, one_node) for value in grid}
            best = min(errors, key=errors.__getitem__)
            values[name] = (best, values[name][1])
            print(f"{name:<26} {best:g} {values[name][1]:<6} mean absolute log error {errors[best]:.4f}   in the file: {constants.fitted()[name][0]:g}")
    print(f"{DIRECT:<26} {direct(records):.2f} GB/s   in the file: {constants.fitted()[DIRECT][0]:g}")


def score(records: list[Record], values: dict[str, tuple[float, str]], of: str, text: str, one_node: bool | None) -> float:
    """Return the mean absolute log error of the rows of a set with these values."""
    kept = constants.fitted
    constants.fitted = lambda: values  # type: ignore[assignment]
    ddl_benchmarks.compute_rate.cache_clear()
    try:
        rows = chosen(records, of, lambda e: text in (e.case.label if e.case else "") and one_node in (None, e.record.nodes == 1))
        known: dict[str, float | str] = {}
        return statistics.fmean(abs(math.log(1.0 + (predicted(entry, known).error or 0.0))) for entry in rows)
    finally:
        constants.fitted = kept
        ddl_benchmarks.compute_rate.cache_clear()


def chosen(records: list[Record], of: str, keep: Callable[[Entry], bool]) -> list[Entry]:
    """Return the cases of one fitted set that `keep` wants; a set that is not fitted is refused."""
    assert constants.use_of(of) == "fitted", f"{of} is not a fitted set"
    module = ddl_benchmarks if of.startswith("hkbu") else theano_mpi
    own = [r for r in records if module.claims(r)]
    rows = [e for e in module.entries(own) if e.case is not None and set_of(e.record) == of]
    return [e for e in rows if keep(e)]


def set_of(record: Record) -> str:
    return ddl_benchmarks.set_of(record) if record.set == "hkbu" else f"tmpi {record.model}"


def direct(records: list[Record]) -> float:
    """Return GB/s between GPUs of one HKBU node: ring traffic of ResNet-50 over what four GPUs take longer than one."""
    rows = {r.id: r for r in records if r.set == "hkbu" and r.model == "ResNet-50"}
    one = next(r for r in rows.values() if r.strategy == "single GPU")
    four = next(r for r in rows.values() if ddl_benchmarks.is_base(r))
    longer = 256 / (four.value or 1.0) - 64 / (one.value or 1.0)
    return 25_557_032 * 4 * 1.5 / longer / 1e9


if __name__ == "__main__":
    main()
