"""Clients that send to very many queues: legally, within the credit they were granted, and as fast as they can."""

from __future__ import annotations

import random
import select
import socket
import threading
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
        self._sockets: list[socket.socket] = []

    def add(self, owner: socket.socket, work: Callable[[], object], confirmed: Callable[[], int]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        self._sockets.append(owner)
        self._counts.append(confirmed)
        thread.start()

    def done(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    def confirmed(self) -> int:
        return sum(count() for count in self._counts)

    def close(self) -> None:
        for each in self._sockets:
            each.close()
        for thread in self._threads:
            thread.join(10)


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
            one = self.publish(channel.number)
            seen = [0]
            going.add(wire.socket, lambda wire=wire, one=one, seen=seen: self.send(wire, one, seen), lambda seen=seen: seen[0])  # type: ignore[misc]
        return going

    def publish(self, channel: int) -> bytes:
        body = b"x" * self.body_bytes
        properties = spec.BasicProperties(delivery_mode=2)
        parts = [frame.Method(channel, spec.Basic.Publish(exchange=ADDRESS)), frame.Header(channel, len(body), properties)]
        return b"".join([part.marshal() for part in (*parts, frame.Body(channel, body))])

    def send(self, wire: Wire, one: bytes, seen: list[int]) -> None:
        data, came = memoryview(one * self.messages), b""
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

    def _publish(self, channel: int) -> bytes:
        keys = [".".join([*["a"] * 50, f"c{number}"] if self.alike else [f"w{number}", *["a"] * 50]) for number in range(200)]
        properties = spec.BasicProperties(delivery_mode=2, headers={"CC": keys})
        parts = [frame.Method(channel, spec.Basic.Publish(exchange=ADDRESS)), frame.Header(channel, 1, properties)]
        return b"".join([part.marshal() for part in (*parts, frame.Body(channel, b"x"))])


class Anything(Attack):
    """Random requests, each of a kind that may be long: publishes along long ways and to many queues, bindings, declarations, a
    transaction, and everything given back."""

    def prepare(self, server: Server) -> None:
        LongWays(1, 1, alike=False).prepare(server)
        with connected(server) as channel:
            channel.exchange_declare("wide", "fanout")
            for number in range(self.queues):
                channel.queue_declare(f"wide{number}", arguments={"x-max-length": 100})
                channel.queue_bind(f"wide{number}", "wide")

    def begin(self, server: Server) -> Going:
        going = Going()
        for number in range(self.connections):
            ours, theirs = socket.socketpair()
            done = [0]
            work = partial(self._work, server, random.Random(number), theirs, done)
            going.add(ours, work, lambda done=done: done[0])  # type: ignore[misc]
        return going

    def _work(self, server: Server, rng: random.Random, ends: socket.socket, done: list[int]) -> None:
        ends.setblocking(False)
        with connected(server) as channel:
            name = f"own{rng.random()}"
            channel.queue_declare(name, arguments={"x-max-length": 20_000})
            while done[0] < self.messages and not select.select([ends], [], [], 0)[0]:
                self._one(channel, rng, name)
                done[0] += 1

    def _one(self, channel: BlockingChannel, rng: random.Random, name: str) -> None:
        match rng.randrange(6):
            case 0:
                keys = [".".join([f"w{rng.randrange(1_000)}", *["a"] * rng.randrange(50)]) for _ in range(rng.randrange(200))]
                channel.basic_publish(ADDRESS, "none", b"x", spec.BasicProperties(headers={"CC": keys}))
            case 1:
                channel.basic_publish("wide", "", b"x")
            case 2:
                channel.queue_bind(name, ADDRESS, "#.a." * rng.randrange(60) + str(rng.random()))
            case 3:
                channel.queue_declare(f"{name}.more")
                channel.queue_delete(f"{name}.more")
            case 4:
                for _ in range(rng.randrange(2_000)):
                    channel.basic_publish("", name, b"x")
            case _:
                for _ in range(rng.randrange(500)):
                    channel.basic_get(name)
                channel.basic_nack(0, multiple=True, requeue=rng.random() < 0.5)


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
    "amqp-20-random": Anything(300, 1 << 30, connections=20),
}
