"""The hardware catalog: GPUs and links by name, read from hardware.csv with the source of every row."""

from __future__ import annotations

import csv
import re
from functools import cache
from pathlib import Path

from poseidon_sim.cluster.parts import Gpu, Link
from poseidon_sim.errors import unknown_name

_FILE = Path(__file__).with_name("hardware.csv")


#: seconds per layer and pass: one or a few kernel launches, as measured on CUDA GPUs of the last decade (5 to 10 us each)
LAUNCH_OVERHEAD = 10e-6
#: achievable share of the fp32 (or tensor) peak by generation: (linear, conv), fitted as docs/compute-model.md tells
_EFFICIENCY = {
    "kepler": (0.60, 0.36),
    "maxwell": (0.70, 0.48),
    "pascal": (0.75, 0.56),
    "volta": (0.75, 0.65),
    "turing": (0.70, 0.58),
    "ampere": (0.55, 0.40),
    "hopper": (0.50, 0.25),
}


def _efficiency(row: dict[str, str]) -> dict[str, float]:
    year = int(row["year"])
    ends = ((2014, "kepler"), (2015, "maxwell"), (2016, "pascal"), (2017, "volta"), (2019, "turing"), (2021, "ampere"))
    generation = next((name for last, name in ends if year <= last), "hopper")
    linear, conv = _EFFICIENCY[generation]
    return {"linear": linear, "attention": linear, "lstm": linear, "conv": conv, "default": conv}


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", re.sub(r"\(.*?\)", lambda m: m.group(0) if "axwell" in m.group(0) else "", name).lower()).strip("-")


def _number(text: str, scale: float) -> float | None:
    return float(text) * scale if text else None


@cache
def _rows() -> tuple[dict[str, str], ...]:
    with open(_FILE, newline="", encoding="utf-8") as lines:
        return tuple(csv.DictReader(lines))


@cache
def _pcie() -> dict[str, float]:
    return {
        row["name"].split()[1][0]: (float(row["effective_gbs_low"]) + float(row["effective_gbs_high"])) / 2 * 1e9
        for row in _rows() if row["kind"] == "pcie"
    }  # fmt: skip


@cache
def _gpus() -> dict[str, Gpu]:
    found = {}
    for row in _rows():
        if row["kind"] != "gpu":
            continue
        peaks = {
            "fp32": row["fp32_tflops"], "tf32": row["tf32_tensor_tflops"], "fp16": row["fp16_tflops"],
            "bf16": row["bf16_tflops"], "fp8": row["fp8_tflops"],
        }  # fmt: skip
        name = _slug(row["name"])
        found[name] = Gpu(
            name=name, flops={k: float(v) * 1e12 for k, v in peaks.items() if v},
            memory_bandwidth=_number(row["mem_bw_gbs"], 1e9), memory=_number(row["mem_gb"], 2.0**30),
            efficiency=_efficiency(row), memory_efficiency=0.8, launch_overhead=LAUNCH_OVERHEAD, pcie_bandwidth=_pcie().get(row["pcie_gen"][:1]),
            peer_bandwidth=_number(row["peer_link_gbs_per_dir"], 0.8e9), source=row["source"], confidence=row["confidence"],
        )  # fmt: skip
    return found


def list_gpus() -> tuple[str, ...]:
    """Return the names of all GPUs in the catalog."""
    return tuple(_gpus())


#: short names people use, for the common form of a card
ALIASES = {
    "titan-x": "titan-x-maxwell", "p100": "p100-sxm2-16gb", "v100": "v100-sxm2-16-32gb", "v100-sxm2": "v100-sxm2-16-32gb",
    "2080ti": "rtx-2080-ti", "a100": "a100-sxm-80gb", "a100-sxm": "a100-sxm-80gb", "a100-pcie": "a100-pcie-80gb",
    "h100": "h100-sxm-80gb", "h100-sxm": "h100-sxm-80gb", "h100-pcie": "h100-pcie-80gb", "h200": "h200-sxm-141gb",
    "b200": "b200-sxm-180gb", "b300": "b300-sxm-288gb",
}  # fmt: skip


def gpu(name: str) -> Gpu:
    """Return the GPU called `name` (or by one of its `ALIASES`); raise UnknownNameError with the nearest known name.

    >>> gpu("h100").name
    'h100-sxm-80gb'
    """
    known = _gpus()
    found = ALIASES.get(name, name)
    if found not in known:
        raise unknown_name("gpu", name, [*known, *ALIASES])
    return known[found]


@cache
def _links() -> dict[str, Link]:
    found = {}
    for row in _rows():
        if row["kind"] == "gpu":
            continue
        raw = float(row["peer_link_gbs_per_dir"]) * 1e9
        low, high = row["effective_gbs_low"], row["effective_gbs_high"]
        effective = (float(low) + float(high)) / 2 * 1e9 if low and high else raw
        found[_slug(row["name"])] = Link(
            _slug(row["name"]), row["kind"], raw, effective / raw, float(row["latency_us_typical"] or 0) * 1e-6,
            row["source"], row["confidence"],
        )  # fmt: skip
    return found


def list_links() -> tuple[str, ...]:
    """Return the names of all links in the catalog."""
    return tuple(_links())


def link(name: str) -> Link:
    """Return the link called `name`; raise UnknownNameError with the nearest known name."""
    if name not in _links():
        raise unknown_name("link", name, _links())
    return _links()[name]
