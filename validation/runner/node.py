"""One process of a job: connects to all others, trains on an emulated GPU or a real net, prints what it measured.

Speaks with the launcher over stdin and stdout, a JSON line at a time: job in, port out, addresses in, 'ready'
out, 'go' in, result out; then the next job, until the launcher hangs up.
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
from typing import TYPE_CHECKING, Any

from .job import Job
from .model import Model
from .probe import PROBES
from .ring import RingSync
from .sync import LayerSync, Send, Sync
from .wire import Connection, DelayLine, Header, Pacer, sleep_until, tune

if TYPE_CHECKING:
    from .torch_model import TorchModel


class Node:
    """A process's connections and its strategy."""

    def __init__(
        self, job: Job, rank: int, listener: socket.socket, addresses: list[tuple[str, int]], meeting: str = ""
    ) -> None:
        self.job, self.rank = job, rank
        self.torch_model = torch_model(job, rank)
        self.model = self.torch_model or Model(job, rank)
        self.sync = sync_of(job, rank, self.model, self.send, meeting)
        self.sync.on_fresh = self._fresh
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
        if self.torch_model is not None:
            self.torch_model.sent[self.sync.layer_of(header.layer), header.iteration] += header.num_bytes
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
        if self.torch_model is not None:
            self._train(self.torch_model, iteration)
            return
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

    def _train(self, model: TorchModel, iteration: int) -> None:
        """Forward and backward of a real net, synchronised layer by layer or after the whole backward."""
        waiting: list[int] = []
        if self.job.overlap:
            model.train(iteration, self._begin)
            return
        model.train(iteration, lambda layer, _: waiting.append(layer))
        for layer in waiting:
            self._begin(layer, iteration)

    def _begin(self, layer: int, iteration: int) -> None:
        assert self.torch_model is not None
        self.torch_model.note_begin(layer, iteration)
        self.torch_model.note_begin(None, iteration)
        self.sync.gradient_ready(layer, iteration)

    def _fresh(self, unit: int, iteration: int) -> None:
        if self.torch_model is not None and self.rank < self.job.workers:
            layer = self.sync.layer_of(unit)
            self.torch_model.refresh(layer)
            self.torch_model.note_end(layer, iteration)

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
        if self.probe is None:
            self.sync.close()

    def result(self, starts: list[float], ends: list[float]) -> dict[str, object]:
        """What the launcher gets."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        found: dict[str, object] = {
            "rank": self.rank, "starts": starts, "ends": ends, "cpu_s": usage.ru_utime + usage.ru_stime,
            "sent_bytes": sum(c.sent_bytes for c in self.connections.values()), "priority": priority(),
        }  # fmt: skip
        if self.torch_model is not None:
            found["spans"] = self.torch_model.spans()
            found["losses"] = [float(loss) for loss in self.torch_model.losses]
        if self.job.numeric or self.job.keep_parameters:
            found["digest"] = [hashlib.sha256(p.tobytes()).hexdigest() for p in self.model.parameters]
            found["parameters"] = [p.tobytes().hex() for p in self.model.parameters]
        return found


def torch_model(job: Job, rank: int) -> TorchModel | None:
    """The real net of a job that has one; PyTorch is loaded only then."""
    if not job.net:
        return None
    from .torch_model import TorchModel

    return TorchModel(job, rank)


def sync_of(job: Job, rank: int, model: Model, send: Send, meeting: str) -> Sync:
    """What makes parameters fresh again under the job's strategy; `meeting` : a file that all processes reach."""
    if job.transport != "tcp":
        from .distributed import DistributedSync

        return DistributedSync(job, rank, model, send, meeting)  # type: ignore[arg-type]
    return RingSync(job, rank, model, send) if job.strategy == "all-reduce" else LayerSync(job, rank, model, send)


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
    """Run jobs as told by the launcher."""
    say(port=None)
    while line := sys.stdin.readline():
        run(json.loads(line))


def run(order: dict[str, Any]) -> None:
    """Take part in one job."""
    job, rank = Job.from_json(order["job"]), order["rank"]
    if job.real_time:
        set_real_time()
    sys.setswitchinterval(5e-4)
    listener = socket.create_server((order["host"], 0))
    tune(listener, job.socket_buffer)
    say(port=listener.getsockname()[1])
    node = Node(job, rank, listener, json.loads(sys.stdin.readline()), order["meeting"])
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


def priority() -> str:
    """How the system schedules this process, in a word: 'rr10' (round robin, real time, 10) or 'nice0'."""
    if hasattr(os, "sched_getscheduler") and os.sched_getscheduler(0) == os.SCHED_RR:
        return f"rr{os.sched_getparam(0).sched_priority}"
    return f"nice{os.getpriority(os.PRIO_PROCESS, 0)}"


def say(**values: object) -> None:
    """Print one JSON line to the launcher."""
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
