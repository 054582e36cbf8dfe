"""What replicas of pipeline stages do together: sum their gradients, update parameters and gather them again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from poseidon_sim.plan.pipeline import Placement, group_phase, message_uses
from poseidon_sim.plan.plan import Phase, Plan
from poseidon_sim.plan.record import KIND, Block, Handles
from poseidon_sim.plan.schedule import Schedule
from poseidon_sim.plan.stages import Stages
from poseidon_sim.plan.tensor_parallel import optimizer_time
from poseidon_sim.workload.layer import ELEMENT_BYTES

#: bytes an optimizer's step moves per parameter beside its state: the gradient read, the master weight read and written, a copy
BESIDE_STATE = 12.0


def update_seconds(plan: Plan, parameters: np.ndarray) -> np.ndarray:
    """Return (W,) seconds of the optimizer's step over so many parameters of every worker; measured times hold it already."""
    moved = 2 * plan.workload.optimizer_bytes + BESIDE_STATE
    gpus = [None if plan.workload.is_measured else plan.classes[int(c)].gpu for c in plan.workers]
    return np.array([optimizer_time(gpu, float(n), moved) if gpu else 0.0 for gpu, n in zip(gpus, parameters, strict=True)])


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
        ends, begins, made = list(rows.values()), rows, of[workers[0]]
        if not by_piece:
            begins = {(0, 0): np.concatenate(ends)}
        for label, where, gradients in _groups(place, made.gradient_bytes, made.expert_gradient_bytes):
            for key, begin in begins.items():
                size = float(gradients[key[0] * p + device, key[1]] if by_piece else gradients[device::p].sum())
                if where.replicas > 1 and size:
                    phase = group_phase(plan, where, workers, where.replicas, size, passes, within=False)
                    ends.append(record_group(plan, phase, begin, "gradients" + label, device, int(plan.workers[workers[0]])))
        ready[workers] = plan.all_of(np.unique(np.concatenate(ends)).reshape(1, -1))[0]
    return ready


def update_parameters(
    plan: Plan, place: Placement, of: Sequence[Stages], lines: list[tuple[int, ...]], ready: Handles, *, sharded: bool
) -> Handles:
    """Record the optimizer's step and, where every replica updated its part, the gathering of the parameters."""
    devices = [sorted({line[device] for line in lines}) for device in range(place.devices)]
    covered, held = np.zeros(len(plan.workers)), np.zeros((2, len(plan.workers)))
    parts = np.array([1 / where.replicas if sharded else 1.0 for where in (place, place.of_experts)])
    for device, workers in enumerate(devices):
        for w in workers:
            held[:, w] = [each[device :: place.devices].sum() for each in (of[w].parameters, of[w].expert_parameters)]
        covered[workers] = 1.0
    ready = plan.on_gpu("update", covered * update_seconds(plan, parts @ held), plan.everyone(ready), label="optimizer").copy()
    for label, where, parameters in _groups(place, *held):
        for device, workers in enumerate(devices):
            size = ELEMENT_BYTES[plan.workload.precision] * float(parameters[workers[0]])
            if sharded and where.replicas > 1 and size:
                phase = group_phase(plan, where, workers, where.replicas, size, 1.0, within=False)
                node = int(plan.workers[workers[0]])
                ready[workers] = record_group(plan, phase, ready[workers], "parameters" + label, device, node)
    return plan.everyone(ready)


def _groups(place: Placement, dense: np.ndarray, experts: np.ndarray) -> list[tuple[str, Placement, np.ndarray]]:
    """Return (label, placement, figures) of what all replicas hold, and of experts where replicas hold different ones."""
    return [("", place, dense), *([(" of experts", place.of_experts, experts)] if place.experts > 1 else [])]


def copies(place: Placement, made: Stages) -> tuple[int, int] | None:
    """Return the devices that hold a copy of one tensor each (a token table that is the output layer too), or None."""
    if made.tied is None:
        return None
    a, b = (stage % place.devices for stage in made.tied)
    return None if a == b else (a, b)


def sum_copies(plan: Plan, place: Placement, of: Sequence[Stages], lines: list[tuple[int, ...]], ready: Handles) -> Handles:
    """Record the sum of a tensor that two devices hold: each GPU sends its gradient to its partner; return (W,) handles."""
    pair, ready, network = copies(place, of[0]), ready.copy(), plan.hardware.network
    if pair is None:
        return ready
    leaves = place.crosses(*pair)
    latency = network.latency + network.message_overhead if leaves and network is not None else plan.hardware.peer_latency
    for number, line in enumerate(lines):
        ends = [line[device] for device in pair]
        uses = dict([*message_uses(plan, place, ends[0], ends[1], leaves), *message_uses(plan, place, ends[1], ends[0], leaves)])
        phase = Phase(of[0].tied_bytes, latency, tuple(uses.items()))
        ready[ends] = record_group(plan, phase, ready[ends], "gradients of copies", ("copies", number), int(plan.workers[ends[0]]))
    return ready


def traffic(place: Placement, made: Stages, passes: int, parameter_bytes: float) -> float:
    """Return the bytes that all nodes send in an iteration of `passes` micro-batches.

    Activations and their gradients over every cut that leaves a node, rings of replicas, tensor groups wider than a node,
    all-to-alls of experts, and copies of one tensor. `parameter_bytes` : of a gathered parameter; 0 where nothing is sharded.
    """
    p, total = place.devices, 0.0
    for s in range(len(made.boundary_bytes) - 1):
        if place.crosses(s % p, (s + 1) % p):
            total += 2 * passes * made.boundary_bytes[s] * place.replicas
    halves = 1 if parameter_bytes else 2
    held = [(made.gradient_bytes, made.parameters), (made.expert_gradient_bytes, made.expert_parameters)]
    for where, (gradients, parameters) in zip((place, place.of_experts), held, strict=True):
        rings = where.groups_per_node * where.nodes if where.replicas > where.replicas_inside else 0
        total += rings * (halves * gradients.sum() + parameter_bytes * parameters.sum()) * (where.replicas - 1) / where.replicas
    wide = place.nodes if place.tensor > place.per_node else 0
    total += 2 * wide * (place.tensor - 1) / place.tensor * passes * made.tensor_bytes.sum()
    total += place.gpus * (place.experts - place.experts_inside) / place.experts * passes * made.expert_bytes.sum()
    pair = copies(place, made)
    return float(total + (2 * place.gpus * made.tied_bytes if pair and place.crosses(*pair) else 0.0))


def record_group(plan: Plan, phase: Phase, ready: Handles, label: str, channel: object, node: int) -> Handles:
    """Record a collective of some workers, in order on a channel of theirs; return its handle."""
    after, uses = np.unique(ready), np.array(phase.uses, dtype=np.float64).reshape(-1, 2)
    work = phase.work if len(uses) else 0.0  # links whose rate is not stated are free
    return plan.recorder.add(Block(
        1, KIND["collective"], plan.recorder.label(label), after[after >= 0].reshape(1, -1), work, phase.latency,
        queue=plan.recorder.queue(("group", channel)), links=uses[:, 0].astype(np.int64).reshape(1, -1),
        coefficients=uses[:, 1].reshape(1, -1), node=node, iteration=plan.iteration,
    ))  # fmt: skip
