"""Batches on their way to the GPUs: read from the node's disk, decoded on its CPUs, copied to each GPU over its lanes.

Source: Shi, Wang, Chu (DataCom'18, arXiv 1711.05979; arXiv 1805.03812): t_io grows with the GPUs of a node that share a disk;
without prefetching an iteration takes t_io + t_h2d + the rest, with it the longer of the two.
Simplified: one batch is loaded ahead; a whole batch is read before it is decoded and decoded before it is copied; what a strategy
sends at the start of an iteration waits for the batch as well.
"""

from __future__ import annotations

import numpy as np

from poseidon_sim.cluster.parts import Input
from poseidon_sim.plan.plan import Plan
from poseidon_sim.plan.record import Handles

#: where a plan keeps the handles of the batch that is loaded ahead
AHEAD = "the next batch is on the GPU"


def with_batch(plan: Plan, start: Handles) -> Handles:
    """Return `start` once this iteration's batch is on the GPU, and begin to load the next one if batches are prefetched."""
    given = plan.hardware.host.input
    if given is None:
        return start
    if not given.prefetch:
        return _load(plan, given, start)
    if AHEAD not in plan.known:
        plan.known[AHEAD] = _load(plan, given, plan.start)
    ready = plan.all_of(start, plan.known[AHEAD])
    plan.known[AHEAD] = _load(plan, given, ready)
    return ready


def _load(plan: Plan, given: Input, ready: Handles) -> Handles:
    """Record one batch for every GPU, (W,) handles: a node reads and decodes for one worker class after another."""
    plan.reads.add("batch")
    classes = [plan.classes[int(c)] for c in plan.workers]
    samples = np.array([plan.batch_of(c) for c in classes], dtype=np.float64)
    of_node = samples * [c.gpus for c in classes]
    node = np.array([int(c) - here.slot for c, here in zip(plan.workers, classes, strict=True)])
    read = of_node * given.sample_size / given.read_bandwidth if given.read_bandwidth else np.zeros(len(node))
    for label, seconds in (("read", read), ("decode", of_node * given.decode_time)):
        if np.any(seconds):
            queue = np.array([plan.recorder.queue((label, n)) for n in node.tolist()])
            ready = plan._record("load", label, len(node), ready, None, seconds, rate_cap=1.0, queue=queue, node=plan.workers)
    return plan._copy("load", "pcie_to_gpu", "switch_to_gpu", samples * given.copied_size, ready, None)
