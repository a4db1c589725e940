"""Clients that send to very many queues: legally, within the credit they were granted, and as fast as they can."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from pika import BlockingConnection, ConnectionParameters, frame, spec
from pika.adapters.blocking_connection import BlockingChannel

from homing.broker.protocols.native.codec import FrameDecoder, Op, encode
from tests.amqp_wire import Wire
from tests.faults.hostile import Raw
from tests.process import Server

ADDRESS: Final = "crowd"
_AT_A_TIME: Final = 200


class Going:
    """An attack under way, on threads that only write and read."""

    def __init__(self) -> None:
        self._counts: list[Callable[[], int]] = []
        self._threads: list[threading.Thread] = []
        self._beside: list[threading.Thread] = []
        self._began_s = time.monotonic()
        self._took_s: list[float] = []
        self._sockets: list[socket.socket] = []

    def add(self, owner: socket.socket, work: Callable[[], object], confirmed: Callable[[], int]) -> None:
        self._threads.append(self._start(owner, partial(self._timed, work)))
        self._counts.append(confirmed)

    def beside(self, owner: socket.socket, work: Callable[[], object]) -> None:
        """It ends when the attack is closed."""
        self._beside.append(self._start(owner, work))

    def _start(self, owner: socket.socket, work: Callable[[], object]) -> threading.Thread:
        thread = threading.Thread(target=partial(_behind_others, work), daemon=True)
        self._sockets.append(owner)
        thread.start()
        return thread

    def _timed(self, work: Callable[[], object]) -> None:
        began_s = time.monotonic()
        work()
        self._took_s.append(time.monotonic() - began_s)

    def done(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    def confirmed(self) -> int:
        return sum(count() for count in self._counts)

    def took_s(self) -> float:
        """Until the last of it was through, as far as it is."""
        return max(self._took_s, default=time.monotonic() - self._began_s)

    def close(self) -> None:
        for each in self._sockets:
            each.close()
        for thread in (*self._threads, *self._beside):
            thread.join(10)


def _behind_others(work: Callable[[], object]) -> None:
    """The broker and the neighbour come first, as if these had a machine of their own."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
    work()


@dataclass(frozen=True)
class Attack:
    queues: int
    messages: int
    body_bytes: int = 1
    connections: int = 1

    def prepare(self, server: Server) -> None:
        raise NotImplementedError

    def begin(self, server: Server) -> Going:
        raise NotImplementedError


class Native(Attack):
    """All messages in one frame, which the first credit allows."""

    def prepare(self, server: Server) -> None:
        with Raw(server.url) as raw:
            for start in range(0, self.queues, _AT_A_TIME):
                part = range(start, min(self.queues, start + _AT_A_TIME))
                for number in part:
                    raw.send(
                        Op.CALL, number + 1, "create-queue", {"queue": f"crowd.{number}", "address": ADDRESS, "routing_type": "multicast"}
                    )
                for _ in part:
                    raw.until(Op.RESULT)

    def begin(self, server: Server) -> Going:
        going = Going()
        for _ in range(self.connections):
            raw = Raw(server.url)
            raw.producer(ADDRESS)
            frame = encode([int(Op.SEND_BODIES), 1, 1, [], [b"x" * self.body_bytes] * self.messages])
            seen = [0]
            going.add(raw.socket, lambda raw=raw, frame=frame, seen=seen: self._send(raw, frame, seen), lambda seen=seen: seen[0])  # type: ignore[misc]
        return going

    def _send(self, raw: Raw, frame: bytes, seen: list[int]) -> None:
        decoder = FrameDecoder(64 << 20)
        try:
            raw.socket.settimeout(None)
            raw.socket.sendall(frame)
            while seen[0] < self.messages and (data := raw.socket.recv(1 << 16)):
                for came in decoder.feed(data):
                    if came[0] == Op.CONFIRM:
                        seen[0] = came[2]
        except OSError:
            return


class Amqp(Attack):
    """Publishes to a fanout exchange with confirms, as many as are wanted, in one write after the other."""

    def prepare(self, server: Server) -> None:
        wire = Wire(amqp_port(server))
        channel = wire.channel()
        channel.ask(spec.Exchange.Declare(exchange=ADDRESS, type="fanout"))
        for start in range(0, self.queues, _AT_A_TIME):
            part = range(start, min(self.queues, start + _AT_A_TIME))
            for number in part:
                wire.send(channel.number, spec.Queue.Declare(queue=f"crowd.{number}", durable=True))
                wire.send(channel.number, spec.Queue.Bind(queue=f"crowd.{number}", exchange=ADDRESS))
            for _ in range(2 * len(part)):
                assert wire.next(channel.number) is not None
        wire.close()

    def begin(self, server: Server) -> Going:
        going = Going()
        for _ in range(self.connections):
            wire = Wire(amqp_port(server))
            channel = wire.channel()
            channel.ask(spec.Confirm.Select())
            data = self.publishes(channel.number)
            seen = [0]
            going.add(wire.socket, lambda wire=wire, data=data, seen=seen: self.send(wire, data, seen), lambda seen=seen: seen[0])  # type: ignore[misc]
        return going

    def publishes(self, channel: int) -> bytes:
        return self.publish(channel) * self.messages

    def publish(self, channel: int) -> bytes:
        body = b"x" * self.body_bytes
        properties = spec.BasicProperties(delivery_mode=2)
        parts = [frame.Method(channel, spec.Basic.Publish(exchange=ADDRESS)), frame.Header(channel, len(body), properties)]
        return b"".join([part.marshal() for part in (*parts, frame.Body(channel, body))])

    def send(self, wire: Wire, publishes: bytes, seen: list[int]) -> None:
        data, came = memoryview(publishes), b""
        wire.socket.setblocking(False)
        try:
            while seen[0] < self.messages:
                readable, writable, _ = select.select([wire.socket], [wire.socket] if data else [], [], 60)
                if writable:
                    data = data[wire.socket.send(data[: 1 << 18]) :]
                if readable:
                    got = wire.socket.recv(1 << 16)
                    if not got:
                        return
                    came += got
                    # basic.ack: a method frame of 13 bytes of payload, the tag in the middle of it.
                    while len(came) >= 8 and len(came) >= (size := int.from_bytes(came[3:7], "big") + 8):
                        if came[0] == 1 and came[7:11] == b"\x00\x3c\x00\x50":
                            seen[0] = int.from_bytes(came[11:19], "big")
                        came = came[size:]
        except (OSError, ValueError):
            return


@dataclass(frozen=True)
class LongWays(Amqp):
    """Publishes with 200 keys through 1,000 patterns with 50 ``#`` each, of which none fits. ``alike``: the patterns begin alike."""

    alike: bool = True

    def prepare(self, server: Server) -> None:
        wire = Wire(amqp_port(server))
        channel = wire.channel()
        channel.ask(spec.Exchange.Declare(exchange=ADDRESS, type="topic"))
        channel.ask(spec.Queue.Declare(queue="crowd", durable=True))
        for number in range(1_000):
            pattern = "#.a." * 50 + f"b{number}" if self.alike else f"#.w{number}." + "#.a." * 49 + "b"
            channel.ask(spec.Queue.Bind(queue="crowd", exchange=ADDRESS, routing_key=pattern))
        wire.close()

    def publish(self, channel: int) -> bytes:
        keys = [".".join([*["a"] * 50, f"c{number}"] if self.alike else [f"w{number}", *["a"] * 50]) for number in range(200)]
        properties = spec.BasicProperties(delivery_mode=2, headers={"CC": keys})
        parts = [frame.Method(channel, spec.Basic.Publish(exchange=ADDRESS)), frame.Header(channel, 1, properties)]
        return b"".join([part.marshal() for part in (*parts, frame.Body(channel, b"x"))])


@contextmanager
def connected(server: Server) -> Iterator[BlockingChannel]:
    connection = BlockingConnection(ConnectionParameters("127.0.0.1", amqp_port(server), heartbeat=0))
    try:
        yield connection.channel()
    finally:
        connection.close()


def amqp_port(server: Server) -> int:
    return int(server.ready["amqp"].rpartition(":")[2])


class Nothing(Attack):
    """What the neighbour sees anyway, on this machine."""

    def prepare(self, server: Server) -> None:
        pass

    def begin(self, server: Server) -> Going:
        going = Going()
        ours, theirs = socket.socketpair()
        going.add(ours, lambda: bool(theirs.recv(1)), lambda: 0)
        return going


ATTACKS: Final[dict[str, Attack]] = {
    "nothing": Nothing(0, 0),
    "native-4000-to-400": Native(400, 4000),
    "native-4000-to-600": Native(600, 4000),
    "native-4000-to-1000": Native(1000, 4000),
    "native-700-to-3000": Native(3000, 700),
    "native-4000-to-3000": Native(3000, 4000),
    "amqp-5000-to-1500": Amqp(1500, 5000, 59),
    "amqp-10x3000-to-300": Amqp(300, 3000, 59, 10),
    "amqp-30x3000-to-100": Amqp(100, 3000, 59, 30),
    "amqp-long-ways-alike": LongWays(1, 20),
    "amqp-long-ways": LongWays(1, 20, alike=False),
}
