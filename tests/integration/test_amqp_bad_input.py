"""What somebody who has not logged in can cost the broker, measured at the process. (What each malformed frame is answered with, and that
of RabbitMQ beside it, is in tests/conformance.)"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from pika import frame, spec

from tests.amqp_support import AMQP, amqp_port, channel
from tests.amqp_wire import HEADER, Wire
from tests.pauses import tried_again
from tests.process import Server, wait_until

CONNECTIONS = 200
START_OK = frame.Method(0, spec.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US")).marshal()
WRONG = frame.Method(0, spec.Connection.StartOk({"a": "x" * 3000}, "PLAIN", "\0guest\0wrong", "en_US")).marshal()
CHANNEL = frame.Method(1, spec.Channel.Open()).marshal() + frame.Method(1, spec.Basic.Publish()).marshal()
CONTENT = CHANNEL + frame.Header(1, 1 << 40, spec.BasicProperties()).marshal()
LARGEST = struct.pack(">BHI", 1, 0, 4088)
#: What is sent, and as much more of it as the broker takes.
JUNK = {
    "half a header": HEADER[:5],
    "no AMQP": b"x" * 100_000,
    "a frame of 2 GiB": HEADER + struct.pack(">BHI", 1, 0, 0x7FFF_FFFF) + b"x" * 100_000,
    "half of a largest frame": HEADER + LARGEST + b"x" * 4000,
    "half of a frame after start-ok": HEADER + START_OK + LARGEST + b"x" * 4000,
    "a table of nonsense": HEADER + struct.pack(">BHI", 1, 0, 4000) + b"\x00\x0a\x00\x0b" + b"\xff" * 3996 + b"\xce",
    "content for no channel": HEADER + CONTENT + frame.Body(1, b"x" * 4000).marshal() * 20,
    "content after start-ok": HEADER + START_OK + CONTENT + frame.Body(1, b"x" * 4000).marshal() * 20,
    "wrong passwords": HEADER + WRONG,
    "many logins": HEADER + START_OK * 500,
}


def resident_kb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("the kernel does not tell the memory of a process")


def opened(port: int, data: bytes) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), 10)
    with suppress(ConnectionError):
        sock.sendall(data)
    return sock


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc; enable: run on Linux")
def test_nothing_before_the_login_costs_memory(start_server: Callable[..., Server]) -> None:
    server = start_server(AMQP)
    port = amqp_port(server)
    for sock in [opened(port, HEADER) for _ in range(CONNECTIONS)]:
        sock.close()
    before = resident_kb(server.pid)
    for data in (*JUNK.values(), *JUNK.values()):
        open_now = [opened(port, data) for _ in range(CONNECTIONS)]
        with channel(server) as ch:
            # An answer: what was sent before it has been read.
            ch.queue_declare("somebody else is served")
        for sock in open_now:
            sock.close()
    grown = resident_kb(server.pid) - before
    sent = 2 * CONNECTIONS * sum(map(len, JUNK.values())) // 1024
    # A connection may send 8 KiB before it is logged in; had only those been kept, it would be twice as much.
    assert grown < CONNECTIONS * len(JUNK) * 8, f"{sent} kB in {2 * CONNECTIONS * len(JUNK)} connections cost {grown} kB"


def test_who_does_not_log_in_is_shut_out(start_server: Callable[..., Server]) -> None:
    server = start_server({**AMQP, "limits": {"login-timeout": "1s"}})

    @tried_again
    def wait() -> None:
        silent, slow = Wire(amqp_port(server), login=False), Wire(amqp_port(server), login=False)
        slow.write(HEADER)
        assert isinstance(slow.next(0), spec.Connection.Start)
        said = slow.next(0, 20)
        assert (said.reply_code, said.reply_text.partition(" - ")[0]) == (320, "CONNECTION_FORCED")
        silent.socket.settimeout(20)
        assert silent.socket.recv(100) == b""
        wait_until("both are gone", lambda: _ended(slow.socket))
        for wire in (silent, slow):
            wire.cut()

    wait()


def _ended(sock: socket.socket) -> bool:
    sock.settimeout(20)
    return sock.recv(100) == b""


def test_names_that_are_no_text_do_not_reach_the_journal(start_server: Callable[..., Server]) -> None:
    server = start_server(AMQP)
    wire = Wire(amqp_port(server))
    ch = wire.channel()
    assert ch.ask(spec.Queue.Declare(queue="q", durable=True)).startswith("Queue.DeclareOk")
    name = b"\x03\xd6xy"
    header = struct.pack(">HHQ", 60, 0, 1) + b"\x30\x00" + struct.pack(">I", len(name) + 2) + name + b"t\x01" + b"\x02"
    wire.send(1, spec.Basic.Publish(0, "", "q"))
    wire.write(struct.pack(">BHI", 2, 1, len(header)) + header + b"\xce" + frame.Body(1, b"x").marshal())
    ch.wait_count("q", 1)
    ch.send(spec.Basic.Get(queue="q", no_ack=True))
    assert header in wire.raw_until(b"x\xce")
    declare = b"\x00\x32\x00\x0a\x00\x00\x01p\x02" + struct.pack(">I", len(name) + 2) + name + b"t\x01"
    wire.write(struct.pack(">BHI", 1, 1, len(declare)) + declare + b"\xce")
    assert ch.answer() == "Channel.Close 406 PRECONDITION_FAILED 50.10"
    assert wire.channel().ask(spec.Queue.Declare(queue="r", durable=True)).startswith("Queue.DeclareOk")
    wire.close()
