"""How gradients become fresh parameters: parameter server and sufficient factors, chosen per layer.

Called from the compute thread (`gradient_ready`, `wait`) and from the receiving threads (`buffer_for`,
`deliver`).
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable

import numpy as np

from .job import Job
from .model import Array, Model, rebuild
from .wire import CLOCK, FACTORS, PULL, PUSH, Header

Send = Callable[[int, Header, memoryview], None]


def as_bytes(array: Array) -> memoryview:
    """The bytes of a contiguous array, without a copy."""
    return memoryview(array).cast("B") if array.size else memoryview(b"")


class Sync:
    """What all strategies share: counting layers done, and the clocks of bounded staleness."""

    def __init__(self, job: Job, rank: int, model: Model, send: Send) -> None:
        self.job, self.rank, self.model, self.send = job, rank, model, send
        self.units = len(job.layers)
        self.changed = threading.Condition()
        self.done: dict[int, int] = defaultdict(int)
        self.clocks = [-1] * job.workers
        self.on_fresh: Callable[[int, int], None] = lambda unit, iteration: None

    def gradient_ready(self, layer: int, iteration: int) -> None:
        """Begin to synchronise a layer whose backward has ended."""
        raise NotImplementedError

    def buffer_for(self, peer: int, header: Header) -> memoryview:
        """Where the payload of a message goes."""
        raise NotImplementedError

    def deliver(self, peer: int, header: Header, payload: memoryview) -> None:
        """Act on a message."""
        raise NotImplementedError

    def layer_of(self, unit: int) -> int | None:
        """The layer that a unit (what a message's header names) belongs to; None for the whole model."""
        return unit

    def finish(self, unit: int, iteration: int) -> None:
        """Count one layer (or bucket) of an iteration as fresh on this worker."""
        self.on_fresh(unit, iteration)
        with self.changed:
            self.done[iteration] += 1
            if self.done[iteration] == self.units:
                self.changed.notify_all()

    def wait(self, iteration: int, timeout: float = 120.0) -> None:
        """Block until every layer of the iteration is fresh here."""
        with self.changed:
            if not self.changed.wait_for(lambda: self.done[iteration] == self.units, timeout):
                count = f"{self.done[iteration]} of {self.units} layers"
                raise TimeoutError(f"process {self.rank}: {count} in iteration {iteration}")
            del self.done[iteration]

    def close(self) -> None:
        """Give back what the strategy holds outside of this process's memory."""

    def tell_clock(self, iteration: int) -> None:
        """Tell every worker that this one has finished an iteration (bounded staleness only)."""
        if self.job.staleness == 0:
            return
        self.hear_clock(self.rank, iteration)
        for peer in range(self.job.workers):
            if peer != self.rank:
                self.send(peer, Header(CLOCK, 0, iteration, 0, 0), memoryview(b""))

    def hear_clock(self, worker: int, iteration: int) -> None:
        """Note the clock of a worker."""
        with self.changed:
            self.clocks[worker] = max(self.clocks[worker], iteration)
            self.changed.notify_all()

    def wait_clock(self, iteration: int, timeout: float = 120.0) -> None:
        """Block until everyone has finished iteration `iteration` - 1 - staleness."""
        if self.job.staleness == 0:
            return
        needed = iteration - 1 - self.job.staleness
        with self.changed:
            if not self.changed.wait_for(lambda: min(self.clocks) >= needed, timeout):
                raise TimeoutError(f"process {self.rank}: clocks {self.clocks} never reached {needed}")


class LayerSync(Sync):
    """Parameter server with even shards; sufficient factors for the layers that the job sends that way."""

    def __init__(self, job: Job, rank: int, model: Model, send: Send) -> None:
        super().__init__(job, rank, model, send)
        self.factored = [job.by_factors(layer) for layer in job.layers]
        servers = job.server_ranks
        self.bounds = [np.linspace(0, x.elements, len(servers) + 1).astype(int) for x in job.layers]
        self.shard_of = {server: index for index, server in enumerate(servers)}
        self.locks = [threading.Lock() for _ in job.layers]
        self.sums: list[Array | None] = [None] * len(job.layers)
        self.pushes, self.pulls = [0] * len(job.layers), [0] * len(job.layers)
        self.heard_of = [[0, 0] for _ in job.layers]
        self.received: dict[tuple[int, int, int, int], Array] = {}

    def gradient_ready(self, layer: int, iteration: int) -> None:
        if self.factored[layer]:
            self._broadcast(layer, iteration)
            return
        gradient = self.model.gradients[iteration % 2][layer]
        for server in self._in_turn(self.job.server_ranks):
            lo, hi = self._shard(layer, server)
            if server == self.rank:
                self._take_push(self.rank, layer, iteration, gradient[lo:hi])
                continue
            header = Header(PUSH, layer, iteration, 0, 4 * (hi - lo))
            self.send(server, header, as_bytes(gradient[lo:hi]))

    def buffer_for(self, peer: int, header: Header) -> memoryview:
        if header.kind == PULL:
            lo, hi = self._shard(header.layer, peer)
            return as_bytes(self.model.parameters[header.layer][lo:hi])
        key = (header.kind, peer, header.layer, header.iteration % 2)
        if key not in self.received or self.received[key].nbytes != header.num_bytes:
            self.received[key] = np.zeros(header.num_bytes // 4, np.float32)
        return as_bytes(self.received[key])

    def deliver(self, peer: int, header: Header, payload: memoryview) -> None:
        if header.kind == PUSH:
            self._take_push(peer, header.layer, header.iteration, np.frombuffer(payload, np.float32))
        elif header.kind == PULL:
            self._take_pull(header.layer, header.iteration)
        elif header.kind == FACTORS:
            self._take_factors(header.layer, header.iteration)
        elif header.kind == CLOCK:
            self.hear_clock(peer, header.iteration)

    def _in_turn(self, ranks: tuple[int, ...]) -> list[int]:
        """The peers, beginning after this process, so that not everybody starts with the same one."""
        return [*[r for r in ranks if r > self.rank], *[r for r in ranks if r <= self.rank]]

    def _shard(self, layer: int, server: int) -> tuple[int, int]:
        index = self.shard_of[server]
        return int(self.bounds[layer][index]), int(self.bounds[layer][index + 1])

    def _take_push(self, worker: int, layer: int, iteration: int, gradient: Array) -> None:
        """The server's side: add up, and when all have pushed (or at once, if stale), step and send back."""
        lo, hi = self._shard(layer, self.rank)
        shard = self.model.parameters[layer][lo:hi]
        with self.locks[layer]:
            if self.job.staleness:
                self.model.apply(layer, gradient, lo, hi)
                self._reply(worker, layer, iteration, shard.copy())
                return
            total = self.sums[layer]
            if total is None:
                total = self.sums[layer] = np.zeros(hi - lo, np.float32)
            if self.pushes[layer] == 0:
                total[:] = gradient
            else:
                total += gradient
            self.pushes[layer] += 1
            if self.pushes[layer] < self.job.workers:
                return
            self.pushes[layer] = 0
            self.model.apply(layer, total, lo, hi, spare=True)
        for peer in self._in_turn(tuple(range(self.job.workers))):
            self._reply(peer, layer, iteration, shard)

    def _reply(self, worker: int, layer: int, iteration: int, shard: Array) -> None:
        if worker == self.rank:
            self._take_pull(layer, iteration)
        else:
            self.send(worker, Header(PULL, layer, iteration, 0, shard.nbytes), as_bytes(shard))

    def _take_pull(self, layer: int, iteration: int) -> None:
        with self.changed:
            self.pulls[layer] += 1
            complete = self.pulls[layer] == len(self.job.server_ranks)
            if complete:
                self.pulls[layer] = 0
        if complete:
            self.finish(layer, iteration)

    def _broadcast(self, layer: int, iteration: int) -> None:
        own = self.model.factors[iteration % 2][layer]
        assert own is not None
        for peer in self._in_turn(tuple(range(self.job.workers))):
            if peer != self.rank:
                self.send(peer, Header(FACTORS, layer, iteration, 0, own.nbytes), as_bytes(own))
        self._take_factors(layer, iteration)

    def _take_factors(self, layer: int, iteration: int) -> None:
        parity = iteration % 2
        with self.changed:
            self.heard_of[layer][parity] += 1
            complete = self.heard_of[layer][parity] == self.job.workers
            if complete:
                self.heard_of[layer][parity] = 0
        if complete:
            self._rebuild(layer, parity)
            self.finish(layer, iteration)

    def _rebuild(self, layer: int, parity: int) -> None:
        if not self.job.true_gradients:
            return  # the emulated GPU multiplies for nothing
        total = np.zeros(self.job.layers[layer].elements, np.float32)
        for worker in range(self.job.workers):
            own = self.model.factors[parity][layer]
            found = own if worker == self.rank else self.received[(FACTORS, worker, layer, parity)]
            assert found is not None
            total += rebuild(self.job.layers[layer], found, self.job.batch_size)
        self.model.apply(layer, total)
