"""What kinds of layers move and reach: passes over memory, shares of the peak rate."""

from __future__ import annotations

from typing import NamedTuple

from poseidon_sim.cluster.parts import Gpu

#: width of an attention head (BERT, GPT-2, LLaMA: 64 to 128), to count score matrices from FLOP
HEAD_SIZE = 64


class Passes(NamedTuple):
    """How often a pass moves each thing: (input, output, weights, attention scores), forward and backward."""

    forward: tuple[float, float, float, float]
    backward: tuple[float, float, float, float]


ELEMENTWISE = Passes((1, 1, 0, 0), (1, 2, 0, 0))  # backward reads the output and its gradient, writes one
_VIEW = Passes((0, 0, 0, 0), (0, 0, 0, 0))
_PRODUCT = Passes((1, 1, 1, 0), (2, 2, 2, 0))  # backward is two products: gradient of the input, of the weights
PASSES: dict[str, Passes] = {
    "conv": _PRODUCT,
    "linear": _PRODUCT,
    "lstm": _PRODUCT,
    "attention": Passes((1, 1, 0, 8), (2, 2, 0, 10)),  # scale, mask, softmax and dropout as kernels of their own
    "norm": Passes((2, 1, 1, 0), (3, 2, 1, 0)),  # statistics first, then the values
    "pool": Passes((1, 1, 0, 0), (2, 2, 0, 0)),
    "embedding": Passes((1, 2, 0, 0), (1, 1, 1, 0)),  # reads rows only; its gradient is dense
    "add": Passes((1, 1, 0, 0), (1, 1, 0, 0)),
    "multiply": Passes((1, 1, 0, 0), (2, 1, 0, 0)),
    "concat": Passes((1, 1, 0, 0), (1, 1, 0, 0)),
    "flatten": _VIEW,
    "reshape": _VIEW,
    "select": _VIEW,
}


def achievable_share(gpu: Gpu, kind: str, precision: str) -> float:
    """Return the share of the peak rate that layers of a kind reach in a precision.

    The most specific of '<kind>/<precision>', '<kind>', 'default/<precision>' and 'default' that `gpu.efficiency`
    states; 0.5 when it states none.

    >>> achievable_share(Gpu("mine", efficiency={"conv": 0.6, "conv/fp16": 0.3}), "conv", "fp16")
    0.3
    """
    for key in (f"{kind}/{precision}", kind, f"default/{precision}", "default"):
        if key in gpu.efficiency:
            return gpu.efficiency[key]
    return 0.5


def peak_rate(gpu: Gpu, precision: str) -> float | None:
    """Return the peak rate at which a GPU computes in a precision, FLOP/s, or None when it does not state one.

    A GPU without tf32 runs such work in fp32, as frameworks do.

    >>> peak_rate(Gpu("old", flops={"fp32": 4e12}), "tf32")
    4000000000000.0
    """
    return gpu.flops.get(precision) or (gpu.flops.get("fp32") if precision == "tf32" else None)
