"""One process of a job: connects to all others, trains on an emulated GPU, prints what it measured.

Speaks with the launcher over stdin and stdout, a JSON line at a time: job in, port out, addresses in, 'ready'
out, 'go' in, result out.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import resource
import socket
import sys
import time

from .job import Job
from .model import Model
from .probe import PROBES
from .ring import RingSync
from .sync import LayerSync, Sync
from .wire import Connection, DelayLine, Header, Pacer, sleep_until, tune


class Node:
    """A process's connections and its strategy."""

    def __init__(
        self, job: Job, rank: int, listener: socket.socket, addresses: list[tuple[str, int]]
    ) -> None:
        self.job, self.rank = job, rank
        self.model = Model(job, rank)
        kind = RingSync if job.strategy == "all-reduce" else LayerSync
        self.sync: Sync = kind(job, rank, self.model, self.send)
        probe = PROBES.get(job.extra.get("probe", ""))
        self.probe = probe(rank, self.send) if probe else None
        if self.probe is not None:
            self.sync = self.probe  # type: ignore[assignment]
        deliver = self.sync.deliver
        if job.message_delay:
            deliver = DelayLine(job.message_delay, self.sync.deliver).put
        up, down = (Pacer(rate) for rate in job.pacing[rank]) if job.pacing else (None, None)
        self.connections = {
            peer: Connection(peer, sock, self.sync.buffer_for, deliver, up, down)
            for peer, sock in connect(job, rank, listener, addresses).items()
        }

    def send(self, peer: int, header: Header, payload: memoryview) -> None:
        """Queue a message to a peer."""
        self.connections[peer].send(header, payload)

    def start(self) -> None:
        """Begin to receive."""
        for connection in self.connections.values():
            connection.start()

    def train(self) -> tuple[list[float], list[float]]:
        """Run all iterations; return the monotonic times at which each began and ended on this worker."""
        starts, ends = [], []
        for iteration in range(self.job.warm_up + self.job.iterations):
            self.sync.wait_clock(iteration)
            starts.append(time.perf_counter())
            self._compute(iteration, starts[-1])
            self.sync.wait(iteration)
            ends.append(time.perf_counter())
            self.sync.tell_clock(iteration)
        return starts, ends

    def _compute(self, iteration: int, clock: float) -> None:
        """Forward and backward on the emulated GPU: waits on one absolute time line."""
        job = self.job
        slowdown = job.slowdown[self.rank] if job.slowdown else 1.0
        clock += slowdown * sum(layer.forward_time for layer in job.layers)
        backward = range(len(job.layers) - 1, -1, -1)
        for layer in backward:
            clock += slowdown * job.layers[layer].backward_time
            sleep_until(clock)
            self.model.backward(layer, iteration)
            if job.overlap:
                self.sync.gradient_ready(layer, iteration)
        if not job.overlap:
            for layer in backward:
                self.sync.gradient_ready(layer, iteration)

    def close(self) -> None:
        """Answer until nobody asks any more, then part."""
        everyone = self.connections.values()
        for connection in everyone:
            connection.say_done()
        for connection in everyone:
            connection.peer_done.wait(120.0)
        for connection in everyone:
            connection.say_goodbye()
        for connection in everyone:
            connection.close(10.0)

    def result(self, starts: list[float], ends: list[float]) -> dict[str, object]:
        """What the launcher gets."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        found: dict[str, object] = {
            "rank": self.rank, "starts": starts, "ends": ends, "cpu_s": usage.ru_utime + usage.ru_stime,
            "sent_bytes": sum(c.sent_bytes for c in self.connections.values()),
        }  # fmt: skip
        if self.job.numeric:
            found["digest"] = [hashlib.sha256(p.tobytes()).hexdigest() for p in self.model.parameters]
            found["parameters"] = [p.tobytes().hex() for p in self.model.parameters]
        return found


def connect(
    job: Job, rank: int, listener: socket.socket, addresses: list[tuple[str, int]]
) -> dict[int, socket.socket]:
    """Make one connection per pair: to every lower rank, from every higher one."""
    sockets: dict[int, socket.socket] = {}
    for peer in range(rank):
        sock = socket.socket()
        tune(sock, job.socket_buffer)
        sock.connect(tuple(addresses[peer]))
        sock.sendall(rank.to_bytes(4, "big"))
        sockets[peer] = sock
    for _ in range(rank + 1, job.processes):
        sock, _address = listener.accept()
        tune(sock, job.socket_buffer)
        sockets[int.from_bytes(sock.recv(4, socket.MSG_WAITALL), "big")] = sock
    return sockets


def host_cpu() -> list[int]:
    """Jiffies of the host since boot: user, nice, system, idle, iowait, irq, softirq, steal; [] where
    unknown.
    """
    try:
        with open("/proc/stat", encoding="ascii") as file:
            return [int(x) for x in file.readline().split()[1:9]]
    except OSError:
        return []


def main() -> None:
    """Run as told by the launcher."""
    say(port=None)
    order = json.loads(sys.stdin.readline())
    job, rank = Job.from_json(order["job"]), order["rank"]
    if job.real_time:
        set_real_time()
    sys.setswitchinterval(5e-4)
    listener = socket.create_server((order["host"], 0))
    tune(listener, job.socket_buffer)
    say(port=listener.getsockname()[1])
    node = Node(job, rank, listener, json.loads(sys.stdin.readline()))
    node.start()
    say(ready=True)
    sys.stdin.readline()
    starts: list[float] = []
    ends: list[float] = []
    before, used, began = host_cpu(), time.process_time(), time.perf_counter()
    found: dict[str, object] = {}
    if node.probe is not None:
        found["probe"] = node.probe.run(job.extra)
    elif rank < job.workers:
        starts, ends = node.train()
    found["host_cpu"] = [b - a for a, b in zip(before, host_cpu(), strict=True)]
    found["loop_cpu_s"], found["loop_s"] = time.process_time() - used, time.perf_counter() - began
    node.close()
    say(**node.result(starts, ends), **found)


def set_real_time() -> None:
    """Ask for round-robin real-time priority; without the privilege nothing changes."""
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(10))


def say(**values: object) -> None:
    """Print one JSON line to the launcher."""
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
