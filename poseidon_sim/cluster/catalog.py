"""The hardware catalog: GPUs and links by name, read from hardware.csv, which holds the source of every row.

Names are lower case with hyphens (`titan-x-maxwell`, `a100-sxm-80gb`, `10gbe-tcp`, `nvlink-3`); short names (`v100`, `a100`,
`h100`, `titan-x`) stand for the usual form. Rates are decimal; memory sizes are binary: what a data sheet calls 12 GB is
12 GiB on the card (24,576 MiB on a board of two GK210). PCIe and NVLink rates are the middle of the measured range, not
the raw figure. A price range counts as its middle.
"""

from __future__ import annotations

import csv
import re
from functools import cache
from pathlib import Path

from poseidon_sim.cluster.parts import Gpu, Link
from poseidon_sim.cluster.spread import CATALOG_SPREAD
from poseidon_sim.errors import unknown_name

_FILE = Path(__file__).with_name("hardware.csv")

#: seconds per layer and pass: a launch is 5 to 10 us, and most layers need one or two kernels
LAUNCH_OVERHEAD = 10e-6
#: achievable share of the data sheet's memory bandwidth in kernels that only stream
MEMORY_EFFICIENCY = 0.8
#: share of a raw rate taken where no measured range is known: the middle of what NVLink generations reach
UNMEASURED_LINK_EFFICIENCY = 0.8
#: FLOP that a matrix kernel loses while the GPU fills and drains: about half a wave of tiles (128 x 128 outputs, some 1000
#: products each, on 56 multiprocessors make 1.8 GFLOP a wave); one value for all cards, fitted
FILL_FLOPS = 1e9
#: architectures on which frameworks run 16-bit attention as one kernel
FUSED_ATTENTION = frozenset({"ampere", "ada", "hopper", "blackwell"})
#: achievable share of the peak rate, (linear, conv), by architecture; docs/compute-model.md tells which are fitted and which
#: are carried over from a neighbour. In fp32 without tensor cores:
_FP32 = {
    "kepler": (0.85, 0.35),
    "maxwell": (0.85, 0.80),
    "pascal": (0.85, 0.70),
    "volta": (0.85, 0.85),
    "turing": (0.85, 0.70),
}
#: in 16 bits on tensor cores, before the factor below
_TENSOR = {"volta": (0.40, 0.75), "turing": (0.40, 0.75)}
_TENSOR_LATER = (0.50, 0.75)
#: in tf32, before the factor below
_TF32 = (0.60, 0.35)
#: best measured bf16 matrix product as a share of the peak (hardware.csv), relative to that of an A100
_MATMUL = {"ampere": 1.0, "ada": 1.0, "hopper": 0.80 / 0.87, "blackwell": 0.78 / 0.87, "cdna": 0.51 / 0.87}
#: the same in fp8 relative to bf16: 1402.6 of 1979 against 794.5 of 989 TFLOP/s on an H100
_FP8 = 0.88
#: in 16 bits, share of the peak that (matrix products by tiles, fused attention) reach over a whole training step; a best
#: product measured alone reaches 0.87 of an A100 and 0.80 of an H100. docs/compute-model.md tells how they were found
_PRODUCTS = {
    "volta": (0.60, 0.30),
    "turing": (0.60, 0.30),
    "ampere": (0.80, 0.35),
    "ada": (0.80, 0.35),
    "hopper": (0.65, 0.36),
    "blackwell": (0.63, 0.36),
    "cdna": (0.47, 0.25),
}
#: multiprocessors by the longest name that begins a GPU's; vendor data sheets
_MULTIPROCESSORS = {
    "v100": 80, "t4": 40, "rtx-2080-ti": 68, "quadro-rtx-8000": 72,
    "a100": 108, "a10-": 72, "rtx-3090": 82, "rtx-a6000": 84,
    "rtx-4090": 128, "rtx-6000-ada": 142, "l4-": 58, "l40s": 142,
    "h100": 132, "h100-pcie": 114, "gh200": 132, "h200": 132, "b200": 148, "gb200": 148, "b300": 148,
}  # fmt: skip
_PRECISIONS = {
    "fp32": "fp32_tflops",
    "tf32": "tf32_tensor_tflops",
    "fp16": "fp16_tflops",
    "bf16": "bf16_tflops",
    "fp8": "fp8_tflops",
}


def list_gpus() -> tuple[str, ...]:
    """Return the names of all GPUs in the catalog, oldest first; short names are not repeated.

    >>> "titan-x-maxwell" in list_gpus()
    True
    """
    return tuple(_gpus())


def gpu(name: str) -> Gpu:
    """Return the GPU called `name`; case, spaces and underscores do not matter.

    Raises
    ------
    UnknownNameError : no such GPU; the message names the nearest known one.

    Examples
    --------
    >>> gpu("k20").flops["fp32"]
    3520000000000.0
    >>> gpu("V100").name
    'v100-sxm2-16gb'
    """
    return _gpus()[_known("gpu", name, tuple(_gpus()), _aliases(True))]


def list_links() -> tuple[str, ...]:
    """Return the names of all links in the catalog: NICs, PCIe, NVLink and Infinity Fabric.

    >>> "10gbe-tcp" in list_links()
    True
    """
    return tuple(_links())


def link(name: str) -> Link:
    """Return the link called `name`: raw rate of one direction, achievable share of it, latency.

    Raises
    ------
    UnknownNameError : no such link; the message names the nearest known one.

    Examples
    --------
    >>> link("infiniband-edr").bandwidth
    12500000000.0
    >>> round(link("nvlink-3").efficiency, 3)
    0.817
    """
    return _links()[_known("link", name, tuple(_links()), _aliases(False))]


def _known(what: str, name: str, names: tuple[str, ...], aliases: dict[str, str]) -> str:
    """Return the catalog name that `name` or its alias stands for."""
    plain = re.sub(r"[\s_]+", "-", str(name).strip().lower())
    plain = aliases.get(plain, plain)
    if plain not in names:
        raise unknown_name(what, name, [*names, *aliases])
    return plain


@cache
def _rows() -> tuple[dict[str, str], ...]:
    with open(_FILE, newline="", encoding="utf-8") as lines:
        return tuple(csv.DictReader(lines))


@cache
def _aliases(gpus: bool) -> dict[str, str]:
    return {
        alias: row["id"] for row in _rows() if (row["kind"] == "gpu") is gpus for alias in row["aliases"].split()
    }


@cache
def _gpus() -> dict[str, Gpu]:
    return {row["id"]: _gpu(row) for row in _rows() if row["kind"] == "gpu"}


@cache
def _links() -> dict[str, Link]:
    return {row["id"]: _link(row) for row in _rows() if row["kind"] != "gpu"}


def _gpu(row: dict[str, str]) -> Gpu:
    pcie = re.search(r"\b\d\b", row["pcie_gen"])
    return Gpu(
        name=row["id"],
        flops={name: float(row[column]) * 1e12 for name, column in _PRECISIONS.items() if row[column]},
        memory_bandwidth=_number(row["mem_bw_gbs"], 1e9),
        memory=_number(row["mem_gb"], 2.0**30),
        efficiency=_efficiency(row["architecture"]),
        memory_efficiency=MEMORY_EFFICIENCY,
        launch_overhead=LAUNCH_OVERHEAD,
        pcie_bandwidth=_achievable(f"pcie-{pcie.group()}.0-x16") if pcie else None,
        peer_bandwidth=_peer_bandwidth(row),
        price_per_hour=_middle(row["cloud_usd_per_gpu_h"]),
        price=_number(row["price_usd"], 1.0),
        year=int(row["year"]),
        source=row["source"],
        confidence=row["confidence"],
        fill_flops=FILL_FLOPS,
        fused_attention=row["architecture"] in FUSED_ATTENTION,
        multiprocessors=_multiprocessors(row["id"]),
        spread=CATALOG_SPREAD,
    )


def _link(row: dict[str, str]) -> Link:
    raw = float(row["peer_link_gbs_per_dir"])
    low, high = row["effective_gbs_low"], row["effective_gbs_high"]
    known = bool(low and high)
    return Link(
        name=row["id"],
        kind=row["kind"],
        bandwidth=raw * 1e9,
        efficiency=(float(low) + float(high)) / 2 / raw if known else UNMEASURED_LINK_EFFICIENCY,
        latency=float(row["latency_us_typical"] or 0) * 1e-6,
        source=row["source"],
        confidence=row["confidence"] if known else f"{row['confidence']} (rate); achievable share assumed",
    )


def _efficiency(architecture: str) -> dict[str, float]:
    """Return the achievable shares of an architecture; attention, lstm and unnamed kinds take linear's."""
    by_precision = {"": _FP32.get(architecture, _FP32["volta"])}
    if architecture in _TENSOR:
        by_precision["/fp16"] = _TENSOR[architecture]
    elif architecture in _MATMUL:
        factor = _MATMUL[architecture]
        for precision, (linear, conv) in (("/fp16", _TENSOR_LATER), ("/bf16", _TENSOR_LATER), ("/tf32", _TF32)):
            by_precision[precision] = (factor * linear, factor * conv)
        by_precision["/fp8"] = (_FP8 * factor * _TENSOR_LATER[0], _FP8 * factor * _TENSOR_LATER[1])
    shares = {}
    for precision, (linear, conv) in by_precision.items():
        shares["conv" + precision] = conv
        for kind in ("linear", "attention", "lstm", "default"):
            shares[kind + precision] = linear
    products, fused = _PRODUCTS.get(architecture, (0.0, 0.0))
    for precision, factor in (("fp16", 1.0), ("bf16", 1.0), ("fp8", _FP8)):
        if f"linear/{precision}" in shares:
            shares[f"product/{precision}"] = factor * products
            shares[f"fused_attention/{precision}"] = factor * fused
    return shares


def _multiprocessors(name: str) -> int:
    """Return how many tiles of a matrix product a GPU works on at a time, 0 where that is not listed."""
    known = [each for each in _MULTIPROCESSORS if f"{name}-".startswith(each)]
    return _MULTIPROCESSORS[max(known, key=len)] if known else 0


def _peer_bandwidth(row: dict[str, str]) -> float | None:
    """Return what a GPU reaches to its peers in a node; a bridge joins two cards only and is not a node's fabric."""
    generation = row["nvlink_gen"]
    if not generation or "bridge" in generation:
        return None
    nvlink = re.match(r"\d", generation)
    if nvlink:
        return _achievable(f"nvlink-{nvlink.group()}")
    return float(row["peer_link_gbs_per_dir"]) * 1e9 * UNMEASURED_LINK_EFFICIENCY


def _achievable(name: str) -> float:
    return _links()[name].bandwidth * _links()[name].efficiency


def _number(text: str, scale: float) -> float | None:
    return float(text) * scale if text else None


def _middle(text: str) -> float | None:
    """Return the middle of a range such as '1.99-5.00', or the number itself."""
    numbers = [float(each) for each in text.split("-") if each]
    return sum(numbers) / len(numbers) if numbers else None
