"""Independent measurements of the network with the runner's own messages: ping-pong and streams."""

from __future__ import annotations

import threading
import time

import numpy as np

from .sync import Send, as_bytes
from .wire import PING, Header

ACK = 1


class PingPong:
    """Rank 0 sends tiny messages to rank 1, which answers each: seconds of one way."""

    def __init__(self, rank: int, send: Send) -> None:
        self.rank, self.send, self.answered = rank, send, threading.Semaphore(0)

    def buffer_for(self, peer: int, header: Header) -> memoryview:
        return memoryview(bytearray(header.num_bytes))

    def deliver(self, peer: int, header: Header, payload: memoryview) -> None:
        if header.step == ACK:
            self.answered.release()
        else:
            self.send(peer, header._replace(step=ACK), payload)

    def run(self, settings: dict[str, str]) -> dict[str, float]:
        """Return the median and 90th percentile of half the round trip, seconds."""
        if self.rank != 0:
            return {}
        size, ways = int(settings.get("bytes", "64")), []
        payload = memoryview(bytes(size))
        for _ in range(int(settings.get("count", "300"))):
            began = time.perf_counter()
            self.send(1, Header(PING, 0, 0, 0, size), payload)
            self.answered.acquire(timeout=30)
            ways.append((time.perf_counter() - began) / 2)
            time.sleep(1e-3)
        return {"one_way_s": float(np.median(ways)), "one_way_p90_s": float(np.quantile(ways, 0.9))}


class Stream:
    """Senders stream messages to receivers, who acknowledge the last: seconds per message and payload
    bytes/s.

    `pattern` is 'one' (0 to 1), 'ring' (each to the next) or 'all' (each to all others).
    """

    def __init__(self, rank: int, send: Send) -> None:
        self.rank, self.send, self.answered = rank, send, threading.Semaphore(0)
        self.buffers: dict[tuple[int, int], np.ndarray] = {}

    def buffer_for(self, peer: int, header: Header) -> memoryview:
        buffer = self.buffers.setdefault((peer, header.num_bytes), np.zeros(header.num_bytes, np.uint8))
        return as_bytes(buffer)

    def deliver(self, peer: int, header: Header, payload: memoryview) -> None:
        if header.step == ACK:
            self.answered.release()
        elif header.iteration == 1:
            self.send(peer, Header(PING, 0, 0, ACK, 0), memoryview(b""))

    def run(self, settings: dict[str, str]) -> dict[str, float]:
        """Stream `count` messages of `bytes` bytes to every target; the time runs to the last
        acknowledgement.
        """
        nodes, pattern = int(settings["nodes"]), settings["pattern"]
        targets = {
            "one": [1] if self.rank == 0 else [],
            "ring": [(self.rank + 1) % nodes],
            "all": [r for r in range(nodes) if r != self.rank],
        }[pattern]
        size, count = int(settings["bytes"]), int(settings["count"])
        payload = as_bytes(np.zeros(size, np.uint8))
        began = time.perf_counter()
        for index in range(count):
            for target in targets:
                self.send(target, Header(PING, 0, int(index == count - 1), 0, size), payload)
        for _ in targets:
            self.answered.acquire(timeout=120)
        seconds = time.perf_counter() - began
        return {"seconds": seconds, "bytes": float(size * count * len(targets)), "messages": float(count)}


PROBES = {"ping": PingPong, "stream": Stream}
