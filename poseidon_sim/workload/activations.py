"""Activations that training keeps from the forward to the backward pass: how many elements, whole or with recomputation."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

from poseidon_sim.workload.layer import Layer, Workload

#: assumed width of an attention head (BERT, GPT-2), to count score matrices
HEAD_SIZE = 64
#: kinds whose output replaces their input, is a view of it, or stands for an input that backward does not
#: need
_IN_PLACE = frozenset({"activation", "add", "dropout", "flatten", "reshape", "select"})


@lru_cache(maxsize=64)
def kept_elements(workload: Workload) -> float:
    """Return the activation elements per sample that are kept from forward to backward."""
    layers = workload.layers
    last = layers[-1].output_elements if layers else 0.0  # the loss keeps the logarithms of the last output
    return sum(kept_by_layer(workload)) + last


def kept_by_layer(workload: Workload) -> list[float]:
    """Return the activation elements per sample that every layer keeps from forward to backward."""
    after = [None, *(before for before, _ in pairwise(workload.layers))]
    return [_kept(layer, before, size=workload.element_bytes) for layer, before in zip(workload.layers, after, strict=False)]


def _kept(layer: Layer, previous: Layer | None, size: int) -> float:
    if (
        layer.kind == "activation"
        and previous is not None
        and previous.kind == "linear"
        and previous.factor_rows > 1
    ):
        return layer.output_elements
    if layer.kind == "attention":
        # two products of s x s x width multiply-adds; the scores are width / HEAD_SIZE matrices of s x s
        scores = layer.forward_flops / 4.0 / HEAD_SIZE
        return layer.output_elements + (scores if size >= 4 else 0.0)
    return 0.0 if layer.kind in _IN_PLACE else layer.output_elements


@lru_cache(maxsize=64)
def recomputed_share(workload: Workload, recompute: str, group: int = 1) -> float:
    """Return the share of the kept elements that is left when blocks are recomputed: 'none', 'selective' or 'full'.

    With full recomputation every `group` of blocks keeps what it reads, and one group at a time is whole again; with selective
    attention keeps no scores. Source: Korthikanti et al., arXiv 2205.05198.
    """
    blocks = {layer.block for layer in workload.layers if layer.block}
    whole = kept_elements(workload)
    if recompute == "none" or not blocks or not whole:
        return 1.0
    layers, size = workload.layers, workload.element_bytes
    if recompute == "selective":
        return 1.0 - sum(_kept(x, None, size) - x.output_elements for x in layers if x.kind == "attention") / whole
    ends = {layer.block: layer.output_elements for layer in layers if layer.block}
    inside = kept_elements(workload.with_changes(layers=tuple(layer for layer in layers if layer.block)))
    return min(1.0, (whole - inside + sum(ends.values()) / group + group * inside / len(blocks)) / whole)
