"""Two other orders in which a parameter server's iteration runs: TensorFlow's fetching, and plain Caffe's blocking copies.

Source: TensorFlow r0.10 (SyncReplicas); Zhang et al. ATC'17 section 5 (Caffe+PS).
Simplified: the token that lets workers fetch costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from poseidon_sim.plan.plan import Plan
from poseidon_sim.plan.record import Handles

if TYPE_CHECKING:
    from poseidon_sim.strategy.parameter_server import ParameterServer


def fetching_iteration(server: ParameterServer, plan: Plan, start: Handles) -> Handles:
    """Fetch each layer's parameters before its forward, push when its backward ends.

    Nobody fetches before every gradient of the last iteration is applied (the tokens of TensorFlow's SyncReplicas).
    """
    ready = start
    applied = [plan.everyone(summed) for summed in plan.carried.values()]
    fresh = plan.everyone(plan.all_of(plan.everyone(start)[:1], *(each[:1] for each in applied)))[:1]
    fetched = {x.name: server.fetch(plan, x, np.repeat(fresh, len(plan.servers))) for x in plan.layers}
    for layer in plan.layers:
        ready = plan.forward(after=plan.all_of(ready, fetched[layer.name]), layer=layer)
    pushed = []
    for layer in reversed(plan.layers):
        ready = plan.backward(layer, after=ready)
        pushed.append((layer, ready))
    for layer, gradient in pushed:
        plan.carried[layer.name] = server.push(plan, layer, gradient if server.overlap else ready)
    return ready


def blocking_exchange(server: ParameterServer, plan: Plan, ready: Handles) -> Handles:
    """After backward: copy every gradient out, synchronise from host to host, copy every value back."""
    layers = plan.layers[::-1]
    on_host = plan.all_of(*(plan.copy_to_host(x.gradient_bytes, after=ready, layer=x) for x in layers))
    arrived = []
    for layer in layers:
        for piece in server.pieces(plan, layer.gradient_bytes):
            summed = server.gather(plan, layer, on_host, piece)
            arrived.append(plan.arrived(server.give_back(plan, layer, summed, piece)))
    fresh = plan.all_of(*arrived)
    return plan.all_of(*(plan.copy_to_gpu(x.gradient_bytes, after=fresh, layer=x) for x in layers))
