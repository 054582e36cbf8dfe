"""Repeat the fit of Ampere's shares of matrix products and fused attention (catalog.py, `_PRODUCTS`), on rows of fitted sets only.

    python -m validation.corpora.fit_shares

Scored: llm-foundry's rows on A100 40 GB (weight 3/4) and vTrain's one node of hidden 1024 without tensor parallelism, micro-batches
of 4 and more (1/4), by the mean absolute log error of the step time. Every pair of the grid is simulated, so spread of GPUs,
communication and pipelines are what they are in any run. Takes about 20 minutes.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from itertools import product

import poseidon_sim as ps

from .cases import Case, scenario_of
from .constants import use_of
from .families import llm_foundry, vtrain
from .records import Record, read_all

PRODUCTS = tuple(round(0.76 + 0.01 * i, 2) for i in range(13))
ATTENTION = (0.29, 0.31, 0.33, 0.35, 0.37, 0.39)
WEIGHTS = (0.75, 0.25)


def main() -> None:
    """Print the best pairs, and the pair in the catalog."""
    sets = chosen(read_all())
    scores = {pair: score(sets, *pair) for pair in product(PRODUCTS, ATTENTION)}
    for pair in sorted(scores, key=scores.__getitem__)[:8]:
        print(f"products {pair[0]:g}, attention {pair[1]:g}: mean absolute log error {scores[pair]:.4f}")
    shares = ps.gpu("a100-sxm-40gb").efficiency
    print(f"in the catalog: products {shares['product/bf16']:g}, attention {shares['fused_attention/bf16']:g}")


def chosen(records: list[Record]) -> tuple[list[Case], list[Case]]:
    """Return the scored cases of both sets."""
    assert use_of("llm-foundry") == use_of("vtrain one node") == "fitted"
    mosaic = llm_foundry.entries([r for r in records if llm_foundry.claims(r) and r.gpu == "A100-40GB"])
    node = vtrain.entries([r for r in records if r.set == "vtrs" and "hidden 1024" in r.model])
    return (
        [e.case for e in mosaic if e.case],
        [e.case for e in node if e.case and "TP=1 " in e.record.strategy and int(e.case.scenario["micro_batch_size"]) >= 4],
    )


def score(sets: tuple[list[Case], list[Case]], products: float, attention: float) -> float:
    """Return the weighted mean absolute log error with these shares."""
    errors = [statistics.fmean(abs(math.log(seconds(case, products, attention) / case.measured)) for case in rows) for rows in sets]
    return sum(weight * error for weight, error in zip(WEIGHTS, errors, strict=True))


def seconds(case: Case, products: float, attention: float) -> float:
    """Return the step time of a case whose GPU reaches these shares."""
    scenario = scenario_of(case)
    gpu = scenario.cluster.gpu
    assert gpu is not None
    reached = {"product": products, "fused_attention": attention}
    shares = {key: reached.get(key.split("/")[0], share) for key, share in gpu.efficiency.items()}
    return ps.simulate(replace(scenario, cluster=replace(scenario.cluster, gpu=replace(gpu, efficiency=shares)))).step_time


if __name__ == "__main__":
    main()
