"""Messages between processes: a fixed header and a payload, first in first out per direction of a connection.

One TCP connection per pair of processes, one thread per direction of it. A message is handed to `deliver`
when its last byte is in, or a stated delay later; the connection goes on meanwhile.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

HEADER = struct.Struct("!BxHIIQ")
PUSH, PULL, FACTORS, RING, CLOCK, PING, DONE, BYE = range(8)
PACED_PIECE = 65_536


class Header(NamedTuple):
    """What a message is: its kind, the layer (or bucket), the iteration, the step of a collective, payload
    bytes.
    """

    kind: int
    layer: int
    iteration: int
    step: int
    num_bytes: int

    def pack(self) -> bytes:
        """The bytes on the wire."""
        return HEADER.pack(*self)


Deliver = Callable[[int, Header, memoryview], None]
BufferFor = Callable[[int, Header], memoryview]


class Pacer:
    """Spaces pieces out to a rate on a time line that all connections of a process share, per direction."""

    def __init__(self, rate: float) -> None:
        self.rate, self.free, self.lock = rate, 0.0, threading.Lock()

    def wait(self, num_bytes: int) -> None:
        """Return when `num_bytes` would have passed."""
        with self.lock:
            self.free = max(self.free, time.perf_counter()) + num_bytes / self.rate
            until = self.free
        sleep_until(until)


class DelayLine:
    """Hands messages over a fixed time after they arrived, in order, on a thread of its own."""

    def __init__(self, delay: float, deliver: Deliver) -> None:
        self.delay, self.deliver = delay, deliver
        self.waiting: list[tuple[float, int, tuple[int, Header, memoryview]]] = []
        self.count = itertools.count()
        self.ready = threading.Condition()
        threading.Thread(target=self._run, daemon=True).start()

    def put(self, peer: int, header: Header, payload: memoryview) -> None:
        """Take a message that has just arrived."""
        with self.ready:
            entry = (time.perf_counter() + self.delay, next(self.count), (peer, header, payload))
            heapq.heappush(self.waiting, entry)
            self.ready.notify()

    def _run(self) -> None:
        while True:
            with self.ready:
                while not self.waiting:
                    self.ready.wait()
                due, _, message = heapq.heappop(self.waiting)
            sleep_until(due)
            self.deliver(*message)


class Connection:
    """Both directions of the connection to one peer."""

    def __init__(
        self, peer: int, sock: socket.socket, buffer_for: BufferFor, deliver: Deliver,
        up: Pacer | None = None, down: Pacer | None = None,
    ) -> None:  # fmt: skip
        self.peer, self.sock, self.peer_done = peer, sock, threading.Event()
        self.buffer_for, self.deliver = buffer_for, deliver
        self.up, self.down = up, down
        self.outgoing: queue.SimpleQueue[tuple[Header, memoryview] | None] = queue.SimpleQueue()
        self.sent_bytes = 0
        self.threads = [threading.Thread(target=f, daemon=True) for f in (self._send_all, self._receive_all)]

    def start(self) -> None:
        """Begin sending and receiving."""
        for thread in self.threads:
            thread.start()

    def send(self, header: Header, payload: memoryview) -> None:
        """Queue a message; the payload must stay unchanged until it has left."""
        self.outgoing.put((header, payload))

    def say_done(self) -> None:
        """Tell the peer that this process will ask nothing more of it (it still answers)."""
        self.outgoing.put((Header(DONE, 0, 0, 0, 0), memoryview(b"")))

    def say_goodbye(self) -> None:
        """Tell the peer that nothing more will come: the last message."""
        self.outgoing.put((Header(BYE, 0, 0, 0, 0), memoryview(b"")))
        self.outgoing.put(None)

    def close(self, timeout: float) -> None:
        """Wait until all has left and the peer's goodbye is in."""
        for thread in self.threads:
            thread.join(timeout)
        self.sock.close()

    def _send_all(self) -> None:
        while (message := self.outgoing.get()) is not None:
            header, payload = message
            if self.up is not None:
                self._send_paced(header, payload)
            else:
                send_message(self.sock, header, payload)
            self.sent_bytes += len(payload)

    def _send_paced(self, header: Header, payload: memoryview) -> None:
        assert self.up is not None
        self.sock.sendall(header.pack())
        for first in range(0, len(payload), PACED_PIECE):
            piece = payload[first : first + PACED_PIECE]
            self.up.wait(len(piece))
            self.sock.sendall(piece)

    def _receive_all(self) -> None:
        raw = bytearray(HEADER.size)
        while read_into(self.sock, memoryview(raw)):
            header = Header(*HEADER.unpack(raw))
            if header.kind == BYE:
                return
            if header.kind == DONE:
                self.peer_done.set()
                continue
            payload = self.buffer_for(self.peer, header)
            if header.num_bytes:
                self._fill(payload)
            self.deliver(self.peer, header, payload)

    def _fill(self, payload: memoryview) -> None:
        if self.down is None:
            if not read_into(self.sock, payload):
                raise ConnectionError(f"process {self.peer} hung up in the middle of a message")
            return
        for first in range(0, len(payload), PACED_PIECE):
            piece = payload[first : first + PACED_PIECE]
            if not read_into(self.sock, piece):
                raise ConnectionError(f"process {self.peer} hung up in the middle of a message")
            self.down.wait(len(piece))


def send_message(sock: socket.socket, header: Header, payload: memoryview) -> None:
    """Send header and payload, the first piece of the payload in the header's segment."""
    if not len(payload):
        sock.sendall(header.pack())
        return
    gone = sock.sendmsg([header.pack(), payload]) - HEADER.size
    if gone < 0:  # the system took less than a header: finish it first
        sock.sendall(header.pack()[gone:])
        gone = 0
    if gone < len(payload):
        sock.sendall(payload[gone:])


def read_into(sock: socket.socket, view: memoryview) -> bool:
    """Fill `view`; False when the peer closed before the first byte, ConnectionError when within."""
    got = 0
    while got < len(view):
        count = sock.recv_into(view[got:], 0, socket.MSG_WAITALL)
        if count == 0:
            if got == 0:
                return False
            raise ConnectionError("the peer closed the connection in the middle of a message")
        got += count
    return True


def sleep_until(when: float) -> None:
    """Sleep to a point of the monotonic clock."""
    left = when - time.perf_counter()
    if left > 0:
        time.sleep(left)


def tune(sock: socket.socket, socket_buffer: int | None) -> None:
    """No waiting for full segments, cubic, and buffers of a stated size if wanted."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    congestion = getattr(socket, "TCP_CONGESTION", None)
    if congestion is not None:
        with contextlib.suppress(OSError):  # else the system's own choice stays
            sock.setsockopt(socket.IPPROTO_TCP, congestion, b"cubic")
    if socket_buffer:
        set_buffers(sock, socket_buffer)


def set_buffers(sock: socket.socket, num_bytes: int) -> None:
    """Fix both socket buffers, above the system's limit where the privilege is there."""
    for forced, plain in ((33, socket.SO_RCVBUF), (32, socket.SO_SNDBUF)):  # SO_RCVBUFFORCE, SO_SNDBUFFORCE
        try:
            sock.setsockopt(socket.SOL_SOCKET, forced, num_bytes // 2)
        except OSError:
            sock.setsockopt(socket.SOL_SOCKET, plain, num_bytes // 2)
