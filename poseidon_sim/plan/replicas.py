"""What replicas of pipeline stages do together: sum their gradients, update parameters and gather them again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from poseidon_sim.plan.pipeline import Placement, group_phase
from poseidon_sim.plan.plan import Phase, Plan
from poseidon_sim.plan.record import KIND, Block, Handles
from poseidon_sim.plan.schedule import Schedule
from poseidon_sim.plan.stages import Stages
from poseidon_sim.plan.tensor_parallel import optimizer_time
from poseidon_sim.workload.layer import ELEMENT_BYTES

#: bytes an optimizer's step moves per parameter beside its state: the gradient read, the master weight read and written, a copy
BESIDE_STATE = 12.0


def sum_gradients(
    plan: Plan, place: Placement, of: Sequence[Stages], lines: list[tuple[int, ...]], order: Schedule, done: np.ndarray,
    *, sharded: bool, by_piece: bool,
) -> Handles:  # fmt: skip
    """Record the sums of every device's gradients over its replicas; return (W,) handles, true when the last is there.

    Parameters
    ----------
    of : stages on the GPUs of each worker. `done` : (lines, R) handles of the passes. `sharded` : every replica ends with its
        part of the sum. `by_piece` : a sum begins when its piece of the last backward pass ends, else one follows all passes.
    """
    ready = np.full(len(plan.workers), -1)
    p, passes = place.devices, 1.0 if sharded else 2.0
    last = {
        (d, c, k): r
        for r, (d, c, k) in enumerate(zip(order.device.tolist(), order.chunk.tolist(), order.piece.tolist(), strict=True))
        if order.backward[r]
    }
    for device in range(p):
        workers = sorted({line[device] for line in lines})
        rows = {(chunk, piece): done[:, row] for (d, chunk, piece), row in last.items() if d == device}
        ends, gradients = list(rows.values()), of[workers[0]].gradient_bytes
        sizes = {key: float(gradients[key[0] * p + device, key[1]]) for key in rows}
        if not by_piece:
            sizes, rows = {(0, 0): float(gradients[device::p].sum())}, {(0, 0): np.concatenate(ends)}
        for key, size in sizes.items():
            if place.replicas > 1 and size:
                phase = group_phase(plan, place, workers, place.replicas, size, passes, within=False)
                ends.append(record_group(plan, phase, rows[key], "gradients", device, int(plan.workers[workers[0]])))
        ready[workers] = plan.all_of(np.unique(np.concatenate(ends)).reshape(1, -1))[0]
    return ready


def update_parameters(
    plan: Plan, place: Placement, of: Sequence[Stages], lines: list[tuple[int, ...]], ready: Handles, *, sharded: bool
) -> Handles:
    """Record the optimizer's step and, where every replica updated its part, the gathering of the parameters."""
    devices = [sorted({line[device] for line in lines}) for device in range(place.devices)]
    seconds, held = np.zeros(len(plan.workers)), np.zeros(len(plan.workers))
    for device, workers in enumerate(devices):
        for w in workers:
            held[w] = of[w].parameters[device :: place.devices].sum()
            gpu = plan.classes[int(plan.workers[w])].gpu
            if gpu is not None and not plan.workload.is_measured:
                mine = held[w] / (place.replicas if sharded else 1)
                seconds[w] = optimizer_time(gpu, mine, 2 * plan.workload.optimizer_bytes + BESIDE_STATE)
    ready = plan.on_gpu("update", seconds, plan.everyone(ready), label="optimizer").copy()
    if sharded and place.replicas > 1:
        for device, workers in enumerate(devices):
            size = ELEMENT_BYTES[plan.workload.precision] * held[workers[0]]
            phase = group_phase(plan, place, workers, place.replicas, size, 1.0, within=False)
            ready[workers] = record_group(plan, phase, ready[workers], "parameters", device, int(plan.workers[workers[0]]))
    return plan.everyone(ready)


def record_group(plan: Plan, phase: Phase, ready: Handles, label: str, channel: object, node: int) -> Handles:
    """Record a collective of some workers, in order on a channel of theirs; return its handle."""
    after, uses = np.unique(ready), np.array(phase.uses, dtype=np.float64).reshape(-1, 2)
    return plan.recorder.add(Block(
        1, KIND["collective"], plan.recorder.label(label), after[after >= 0].reshape(1, -1), phase.work, phase.latency,
        queue=plan.recorder.queue(("group", channel)), links=uses[:, 0].astype(np.int64).reshape(1, -1),
        coefficients=uses[:, 1].reshape(1, -1), node=node, iteration=plan.iteration,
    ))  # fmt: skip
