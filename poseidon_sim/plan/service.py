"""A master that serves one client at a time: the client's bytes come up, the master works on them, its bytes go down.

Every leg of a service holds the master's queue until the bytes have arrived, so nobody comes between. Without a `master` node the
host of each client's own node serves, and the legs are copies between GPU and host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from poseidon_sim.plan.flows import Uses
from poseidon_sim.plan.plan import Plan
from poseidon_sim.plan.record import Handles

#: links that the copy of one GPU takes, out of it and into it
_LANES = {
    "copy_out": ("pcie_to_host", "switch_to_host", "host_copy", "host_memory"),
    "copy_in": ("pcie_to_gpu", "switch_to_gpu", "host_copy", "host_memory"),
}


def serve(
    plan: Plan, clients: np.ndarray, master: int | None, sizes: Sequence[float], after: Handles, *, order: str
) -> Handles:
    """Let the master serve every client (a class of one GPU each): messages of `sizes` bytes up, a sum, the same down.

    Parameters
    ----------
    master : class of the node that serves, None for the host of the clients' own node.
    after : (S,) when each client asks.
    order : 'round-robin' (each waits for the one before it, the first for the last of the iteration before), 'first-come'
        or 'hogwild' (nobody waits for the master; transfers share its links).

    Returns
    -------
    (S,) handles: true when a client has its answer on the GPU.
    """
    done = []
    for row, client in enumerate(clients.tolist()):
        asked = after[row : row + 1]
        if master is not None:
            asked = _copies(plan, "copy_out", client, sizes, asked, _own_lanes(plan, "copy_out", client))
        if order == "round-robin":
            asked = plan.all_of(asked, plan.known.get(_TURN, plan.start[:1]))
        queue = plan.recorder.queue(("master", client if order == "hogwild" else -1))
        answered = _served(plan, client, master, sizes, asked, queue)
        plan.known[_TURN] = answered
        if master is not None:
            answered = _copies(plan, "copy_in", client, sizes, answered, _own_lanes(plan, "copy_in", client))
        done.append(answered)
    return np.concatenate(done)


def copy_of_one(plan: Plan, kind: str, num_bytes: float, after: Handles) -> Handles:
    """Copy `num_bytes` between one GPU of every worker node and its host; `kind` is 'copy_out' or 'copy_in'."""
    rows = [
        _copies(plan, kind, client, [num_bytes], after[row : row + 1], _own_lanes(plan, kind, client))
        for row, client in enumerate(plan.workers.tolist())
    ]
    return np.concatenate(rows)


_TURN = "whose turn at the master is over"


def _served(plan: Plan, client: int, master: int | None, sizes: Sequence[float], asked: Handles, queue: int) -> Handles:
    """Record one service: whoever begins it keeps the queue, since its later legs go before all who wait."""
    ready = asked
    for place, size in enumerate(sizes):
        with plan.at_priority(float(place == 0)):
            ready = _leg(plan, client, master, size, ready, queue)
    where = client if master is None else master
    uses = Uses.of([[(link, 1.0)] if (link := plan.links.link("host_sum", where)) >= 0 else []])
    if uses.limited:
        ready = plan._record(
            "host", "master's sum", 1, ready, None, sum(sizes), queue=queue, links=uses.links, coefficients=uses.coefficients,
            node=where,
        )  # fmt: skip
    for size in sizes:
        ready = _leg(plan, client, master, size, ready, queue, down=True)
    return ready


def _leg(
    plan: Plan, client: int, master: int | None, size: float, after: Handles, queue: int, down: bool = False
) -> Handles:
    """Record one message between a client and the master; it holds the queue until it has arrived."""
    if master is None:
        return _copies(plan, "copy_in" if down else "copy_out", client, [size], after, queue)
    ends = np.array([master, client] if down else [client, master])
    flows, network = plan._flow_table(ends[:1], ends[1:]), plan._network
    return plan._record(
        "send", "centre" if down else "weights", 1, after, None, size, latency=network.message_overhead + network.latency,
        queue=queue, **flows.columns,
    )  # fmt: skip


def _own_lanes(plan: Plan, kind: str, client: int) -> int:
    return plan.recorder.queue((kind, client))


def _copies(plan: Plan, kind: str, client: int, sizes: Sequence[float], after: Handles, queue: int) -> Handles:
    """Record copies of one GPU, one after another; free when no rate is stated."""
    links = [(plan.links.link(name, client), 1.0) for name in _LANES[kind]]
    uses = Uses.of([[use for use in links if use[0] >= 0]])
    if not uses.limited:
        return after
    columns: dict[str, Any] = {"links": uses.links, "coefficients": uses.coefficients, "node": client, "queue": queue}
    label = "copy to host" if kind == "copy_out" else "copy to GPU"
    for size in sizes:
        after = plan._record(kind, label, 1, after, None, size, latency=plan.hardware.peer_latency, **columns)
    return after
