"""Seconds of the kernels that a transformer layer is made of: matrix products by tiles, passes over memory by bytes.

A product of (rows x depth) with (depth x columns) is cut into tiles of the result. Every multiprocessor works on one tile at a
time, so the tiles run in whole waves, and each tile pays for filling and draining its pipeline as if it were TILE_DEPTH products
deeper. Of the tile shapes a library offers the quickest counts. Source: NVIDIA, Matrix Multiplication Background User's Guide
(tile and wave quantisation); docs/compute-model.md says where the numbers come from.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil

from poseidon_sim.cluster.parts import Gpu
from poseidon_sim.plan.rates import achievable_share, peak_rate
from poseidon_sim.workload.layer import ELEMENT_BYTES

#: tiles (rows, columns, share of the largest tile's rate): a smaller tile reads more for each product
TILES = (
    (256, 128, 1.0),
    (128, 256, 1.0),
    (128, 128, 0.9),
    (256, 64, 0.8),
    (64, 256, 0.8),
    (128, 64, 0.75),
    (64, 128, 0.75),
    (64, 64, 0.55),
)
#: tensor cores read 16 bytes at a time: a row whose length is no multiple of this many elements is read piecemeal
ALIGNED = 8
#: share of the rate that such a product reaches; fitted
UNALIGNED_SHARE = 0.25
#: products' worth of depth that filling and draining a tile takes; fitted
TILE_DEPTH = 256
#: share of the streaming bandwidth that the kernels between the products (norms, softmax, dropout, sums) reach; fitted
KERNEL_SHARE = 0.65


def product_time(gpu: Gpu, precision: str, rows: float, columns: float, depth: float, count: float = 1) -> float:
    """Return seconds of `count` equal matrix products in one kernel.

    The longer of the waves of tiles at the rate of kind 'product' and the bytes of both factors and the result. A GPU without
    `multiprocessors` has no tiles: FLOP over rate.

    >>> gpu = Gpu("mine", flops={"bf16": 1e14}, efficiency={"product": 0.5})
    >>> product_time(gpu, "bf16", 1000, 1000, 25_000)
    0.001
    """
    rate = achievable_share(gpu, "product", precision) * (peak_rate(gpu, precision) or 0.0)
    if depth % ALIGNED or columns % ALIGNED:
        rate *= UNALIGNED_SHARE
    work = _tiled_flops(gpu.multiprocessors, rows, columns, depth, count) / rate if rate else 0.0
    moved = count * (rows * depth + depth * columns + rows * columns) * ELEMENT_BYTES[precision]
    if not gpu.memory_bandwidth:
        return work
    return max(work, moved / (gpu.memory_efficiency * gpu.memory_bandwidth))


@lru_cache(maxsize=4096)
def _tiled_flops(processors: int, rows: float, columns: float, depth: float, count: float) -> float:
    """Return the FLOP that a GPU which is busy throughout would do in the time the tiles take."""
    if not processors:
        return 2.0 * count * rows * columns * depth
    return min(
        ceil(count * ceil(rows / high) * ceil(columns / wide) / processors) * processors
        * 2.0 * high * wide * (depth + TILE_DEPTH) / speed
        for high, wide, speed in TILES
    )  # fmt: skip


def kernel_time(gpu: Gpu, moved_bytes: float) -> float:
    """Return seconds of kernels that read and write `moved_bytes` and compute next to nothing.

    >>> kernel_time(Gpu("mine", memory_bandwidth=1e12, memory_efficiency=0.8), 0.65 * 0.8e9)
    0.001
    """
    if not gpu.memory_bandwidth:
        return 0.0
    return moved_bytes / (KERNEL_SHARE * gpu.memory_efficiency * gpu.memory_bandwidth)
