"""The same ring in plain SimPy, as one would write it: a process a node, a resource a port, a store a mailbox."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import simpy


def ring(nodes: int, bandwidth: float, latency: float, tensors: list[tuple[float, float]]) -> tuple[float, int, float]:
    """Return simulated seconds, messages and CPU seconds; `tensors` are (ready time in s, bytes)."""
    env = simpy.Environment()
    ports = [simpy.Resource(env) for _ in range(nodes)]
    boxes = [simpy.Store(env) for _ in range(nodes)]
    ends = []

    def deliver(target: int) -> Iterator[Any]:
        yield env.timeout(latency)
        yield boxes[target].put(None)

    def send(me: int, seconds: float) -> Iterator[Any]:
        with ports[me].request() as port:
            yield port
            yield env.timeout(seconds)
        env.process(deliver((me + 1) % nodes))

    def node(me: int) -> Iterator[Any]:
        for ready, size in tensors:
            if env.now < ready:
                yield env.timeout(ready - env.now)
            for _ in range(2 * (nodes - 1)):
                sent = env.process(send(me, size / nodes / bandwidth))
                yield boxes[me].get()
                yield sent
        ends.append(env.now)

    for me in range(nodes):
        env.process(node(me))
    begin = time.process_time()
    env.run()
    return max(ends), len(tensors) * 2 * (nodes - 1) * nodes, time.process_time() - begin
