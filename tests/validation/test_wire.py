"""Messages arrive whole, in order, and after the stated delay."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from validation.runner.wire import PUSH, Connection, DelayLine, Header, Pacer, read_into, send_message


def pair_of_connections(received: list[tuple[Header, bytes, float]]) -> tuple[Connection, Connection]:
    """Two ends of one local connection; the second end notes what it is handed and when."""
    one, other = socket.socketpair()

    def buffer_for(peer: int, header: Header) -> memoryview:
        return memoryview(bytearray(header.num_bytes))

    def deliver(peer: int, header: Header, payload: memoryview) -> None:
        received.append((header, bytes(payload), time.perf_counter()))

    ends = Connection(1, one, buffer_for, deliver), Connection(0, other, buffer_for, deliver)
    for end in ends:
        end.start()
    return ends


def close(*ends: Connection) -> None:
    for end in ends:
        end.say_goodbye()
    for end in ends:
        end.close(5.0)


def test_a_header_survives_the_wire() -> None:
    header = Header(PUSH, 513, 70_000, 9, 2**33)
    raw = header.pack()
    one, other = socket.socketpair()
    with one, other:
        one.sendall(raw)
        got = bytearray(len(raw))
        assert read_into(other, memoryview(got))
        assert bytes(got) == raw


def test_messages_of_one_direction_arrive_whole_and_in_the_order_sent() -> None:
    received: list[tuple[Header, bytes, float]] = []
    ends = pair_of_connections(received)
    sizes = [0, 1, 100_000, 3, 2_000_000, 0, 17]
    for index, size in enumerate(sizes):
        ends[0].send(Header(PUSH, index, 0, 0, size), memoryview(bytes([index]) * size))
    close(*ends)
    assert [(h.layer, body) for h, body, _ in received] == [(i, bytes([i]) * n) for i, n in enumerate(sizes)]


def test_a_message_larger_than_the_socket_buffer_is_sent_in_full() -> None:
    one, other = socket.socketpair()
    body = bytes(range(256)) * 20_000
    sender = threading.Thread(
        target=send_message, args=(one, Header(PUSH, 0, 0, 0, len(body)), memoryview(body))
    )
    with one, other:
        sender.start()
        got = bytearray(len(Header(PUSH, 0, 0, 0, 0).pack()) + len(body))
        assert read_into(other, memoryview(got))
        sender.join(5)
    assert bytes(got[-len(body) :]) == body


def test_a_peer_that_hangs_up_within_a_message_is_an_error_and_between_messages_is_not() -> None:
    one, other = socket.socketpair()
    one.sendall(b"abc")
    one.close()
    with other, pytest.raises(ConnectionError):
        read_into(other, memoryview(bytearray(10)))
    one, other = socket.socketpair()
    one.close()
    with other:
        assert not read_into(other, memoryview(bytearray(10)))


def test_a_delayed_message_is_handed_over_no_earlier_than_its_delay_and_in_order() -> None:
    handed: list[tuple[int, float]] = []
    line = DelayLine(0.03, lambda peer, header, payload: handed.append((header.layer, time.perf_counter())))
    began = time.perf_counter()
    for index in range(5):
        line.put(0, Header(PUSH, index, 0, 0, 0), memoryview(b""))
    time.sleep(0.15)
    assert [index for index, _ in handed] == list(range(5))
    assert min(when for _, when in handed) - began >= 0.03


def test_a_pacer_lets_bytes_through_no_faster_than_its_rate() -> None:
    pacer = Pacer(1e6)
    began = time.perf_counter()
    for _ in range(5):
        pacer.wait(10_000)
    assert time.perf_counter() - began >= 0.05
