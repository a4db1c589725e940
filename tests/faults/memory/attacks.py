"""Clients that make the broker hold as much as it will: each a way past ``memory-limit``, if there is one.

An attack is a handful of connections, and what each of them sends; ``Attack.factor`` times the limit at most, all together. Nothing is
slowed down and no credit is minded: what is not read waits in the socket, and who is thrown out has lost.
"""

from __future__ import annotations

import itertools
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from pika import frame, spec

from homing.broker.core.message import REFERENCE_BYTES
from homing.broker.protocols.native.codec import MESSAGE_OVERHEAD_BYTES, Frame, FrameDecoder, Op, encode
from homing.broker.protocols.stomp.codec import frame as stomp_frame
from tests.amqp_wire import Gone, Wire
from tests.faults.hostile import Raw
from tests.process import Server
from tests.stomp_support import Link

Sending = Iterator[bytes]
_MIB: Final = 1 << 20


class Client:
    """A logged-in socket, what is still to be sent on it, and whether it reads what comes."""

    def __init__(self, opened: Raw | Wire | Link, sending: Sending, *, reads: bool = True) -> None:
        self.opened = opened
        self.socket: socket.socket = opened.socket
        self.reads = reads
        self._sending = sending
        self._data = memoryview(b"")
        self.over = False

    def write(self) -> int:
        """As much as the socket takes of what comes next; how much that was."""
        if not self._data:
            self._data = memoryview(next(self._sending, b""))
            if not self._data:
                self.over = True
                return 0
        try:
            sent = self.socket.send(self._data)
        except BlockingIOError:
            return 0
        except OSError:
            self.over = True
            return 0
        self._data = self._data[sent:]
        return sent

    def read(self) -> None:
        with suppress(BlockingIOError):
            try:
                if not self.socket.recv(1 << 18):
                    self.over = True
            except ConnectionError:
                self.over = True


class Minding(Client):
    """Sends so many messages of one byte, never more than it has credit for."""

    def __init__(self, raw: Raw, messages: int) -> None:
        super().__init__(raw, self._frames(messages))
        self._decoder = FrameDecoder()
        self._messages = self._bytes = 0
        raw.send(Op.PRODUCER, 1, 1, "held")
        raw.until(Op.RESULT)
        self._granted(raw.until(Op.CREDIT))

    def _granted(self, frame: Frame) -> None:
        self._messages += frame[2]
        self._bytes += frame[3]

    @property
    def _credit(self) -> int:
        return min(self._messages, self._bytes // (MESSAGE_OVERHEAD_BYTES + 1))

    def _frames(self, messages: int) -> Sending:
        first = 1
        while first <= messages:
            count = min(self._credit, 500, messages + 1 - first)
            self._messages -= count
            self._bytes -= count * (MESSAGE_OVERHEAD_BYTES + 1)
            yield encode([int(Op.SEND), 1, first, [[b"x"]] * count])
            first += count

    def write(self) -> int:
        if not self._data and self._credit <= 0:
            time.sleep(0.001)
            return 0
        return super().write()

    def read(self) -> None:
        with suppress(BlockingIOError):
            data = self.socket.recv(1 << 18)
            self.over = not data
            for frame in self._decoder.feed(data):
                if frame[0] == Op.CREDIT:
                    self._granted(frame)


class Rejecting(Client):
    """Sends so many messages to a queue, as fast as it is given them back, and rejects each."""

    def __init__(self, wire: Wire, queue: str, messages: int) -> None:
        super().__init__(wire, self._frames(queue, messages))
        self._given, self._tail = 0, b""
        wire.send(1, spec.Basic.Consume(queue=queue))

    def _frames(self, queue: str, messages: int) -> Sending:
        one = frame.Method(1, spec.Basic.Publish(routing_key=queue)).marshal()
        one += frame.Header(1, 100, spec.BasicProperties()).marshal() + frame.Body(1, b"x" * 100).marshal()
        reject = frame.Method(1, spec.Basic.Nack(delivery_tag=0, multiple=True, requeue=False)).marshal()
        sent = rejected = 0
        while rejected < messages:
            frames = b""
            if rejected < self._given:
                rejected, frames = self._given, reject
            if sent < messages and sent - self._given < 2000:
                sent += 500
                frames += 500 * one
            if not frames:
                time.sleep(0.001)
            yield frames or _HEARTBEAT

    def read(self) -> None:
        with suppress(BlockingIOError):
            data = self._tail + self.socket.recv(1 << 18)
            self._given += data.count(_DELIVER)
            self._tail = data[-len(_DELIVER) + 1 :]


_HEARTBEAT: Final = b"\x08\0\0\0\0\0\0\xce"
_DELIVER: Final = spec.Basic.Deliver.INDEX.to_bytes(4, "big")


def pump(clients: list[Client], seconds: float, most_bytes: int, alive: Callable[[], bool]) -> int:
    """Sends until nobody has anything more to send, or nothing was taken for a while, or it is enough; how much that was."""
    end = quiet = time.monotonic() + seconds
    sent = 0
    by_socket = {client.socket: client for client in clients}
    for each in by_socket:
        each.setblocking(False)
    poll = select.epoll()
    for each, client in by_socket.items():
        poll.register(each, select.EPOLLOUT | (select.EPOLLIN if client.reads else 0))
    by_number = {each.fileno(): client for each, client in by_socket.items()}
    quiet = time.monotonic() + _QUIET_S
    while by_number and sent < most_bytes and time.monotonic() < min(end, quiet) and alive():
        for number, event in poll.poll(0.1):
            client = by_number[number]
            taken = client.write() if event & select.EPOLLOUT else 0
            if event & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
                client.read()
            if taken:
                sent += taken
                quiet = time.monotonic() + _QUIET_S
            if client.over:
                poll.unregister(number)
                del by_number[number]
    poll.close()
    return sent


#: Nothing more is taken after so long.
_QUIET_S: Final = 2.0


@dataclass(frozen=True)
class Attack:
    """``factor``: how much is sent at most, in limits. ``hangs``: while the disk takes its time over a sync. ``declared``: queues that
    stay, with all that is bound to them, until they are deleted."""

    clients: Callable[[Server, int], list[Client]]
    factor: float = 8.0
    hangs: bool = False
    config: dict[str, Any] | None = None
    declared: tuple[str, ...] = ()


def _amqp(server: Server, channels: int = 1) -> Wire:
    wire = Wire(int(server.ready["amqp"].rpartition(":")[2]))
    for number in range(1, channels + 1):
        wire.send(number, spec.Channel.Open())
        assert wire.next(number) is not None
    return wire


def _publish(channel: int, key: str, body: bytes, headers: dict[str, Any] | None = None, **properties: Any) -> bytes:
    parts: list[Any] = [frame.Method(channel, spec.Basic.Publish(exchange="", routing_key=key))]
    parts.append(frame.Header(channel, len(body), spec.BasicProperties(headers=headers, **properties)))
    parts += [frame.Body(channel, body[at : at + 131_064]) for at in range(0, len(body), 131_064)]
    return b"".join([part.marshal() for part in parts])


# -- each attack ---------------------------------------------------------------------------------------------------------


def amqp_transactions(server: Server, limit: int) -> list[Client]:
    """Published and never committed."""
    one = _publish(1, "held", b"x" * 4096, delivery_mode=2) * 16
    clients = []
    for _ in range(64):
        wire = _amqp(server)
        wire.send(1, spec.Tx.Select())
        assert wire.next(1) is not None
        clients.append(Client(wire, itertools.repeat(one)))
    return clients


def _native(server: Server, items: list[Any], connections: int, **hello: Any) -> list[Client]:
    """Producers that send the same frame again and again."""

    def frames() -> Sending:
        for number in itertools.count():
            yield encode([int(Op.SEND), 1, 1 + number * len(items), items])

    clients = []
    for _ in range(connections):
        raw = Raw(server.url, **hello)
        raw.producer("held")
        clients.append(Client(raw, frames()))
    return clients


def _tiny_properties(number: int) -> dict[str, None]:
    return {f"{at:x}": None for at in range(number)}


def unwritten(server: Server, limit: int) -> list[Client]:
    """Durable messages without a body, made of properties, while the disk does not answer."""
    return _native(server, [[b"", _tiny_properties(200)]] * 50, 8)


def empty_bodies(server: Server, limit: int) -> list[Client]:
    """The same without properties."""
    return _native(server, [[b""]] * 2000, 8)


def properties(server: Server, limit: int) -> list[Client]:
    """Messages that are not durable, made of properties."""
    return _native(server, [[b"", _tiny_properties(3000), 4, False]] * 20, 1)


def transient(server: Server, limit: int) -> list[Client]:
    """Messages that are not durable, with three properties of their own."""

    def frames() -> Sending:
        for number in itertools.count():
            first = 1 + number * 500
            items = [[b"x" * 100, {"order": f"order-{n}", "region": f"region-{n}", "size": n}, 4, False] for n in range(first, first + 500)]
            yield encode([int(Op.SEND), 1, first, items])

    raw = Raw(server.url)
    raw.producer("held")
    return [Client(raw, frames())]


def rejected(server: Server, limit: int) -> list[Client]:
    """A million messages that are not durable, each rejected: dead letters, as far as those are made."""
    wire = _amqp(server)
    for name, arguments in (("held", {}), ("failing", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "held"})):
        wire.send(1, spec.Queue.Declare(queue=name, durable=True, arguments=arguments))
        assert wire.next(1) is not None
    return [Rejecting(wire, "failing", 1_000_000)]


def native_frames(server: Server, limit: int) -> list[Client]:
    """Frames of 16 MiB that are never whole."""
    start = (16 << 20).to_bytes(4, "big") + b"\xdd"
    return [Client(Raw(server.url), iter((start, *[bytes(_MIB)] * 15))) for _ in range(40)]


def amqp_frames(server: Server, limit: int) -> list[Client]:
    """Bodies of 16 MiB that are never whole, on four channels each."""

    def contents() -> Sending:
        for channel in range(1, 5):
            yield frame.Method(channel, spec.Basic.Publish(exchange="", routing_key="held")).marshal()
            yield frame.Header(channel, 16 * _MIB, spec.BasicProperties()).marshal()
        for _ in range(120):
            for channel in range(1, 5):
                yield frame.Body(channel, bytes(131_064)).marshal()

    return [Client(_amqp(server, 4), contents()) for _ in range(16)]


def answers(server: Server, limit: int) -> list[Client]:
    """Long answers that nobody reads."""
    with Raw(server.url) as raw:
        for number in range(1500):
            raw.send(Op.CALL, number + 1, "create-queue", {"queue": f"{'q' * 200}.{number}", "durable": False})
        for _ in range(1500):
            raw.until(Op.RESULT)
    asked = [encode([int(Op.CALL), number, "queues", {"limit": 1000}]) for number in range(1, 200)]
    return [Client(Raw(server.url), iter(asked), reads=False) for _ in range(30)]


def amqp_headers(server: Server, limit: int) -> list[Client]:
    """Consumed at once; each with long headers that no other has."""

    def messages() -> Sending:
        for number in itertools.count():
            yield _publish(1, "seen", b"x", {"number": number, "text": "x" * 100_000})

    wire = _amqp(server)
    wire.send(1, spec.Queue.Declare(queue="seen", arguments={"x-delivery-limit": 5, "x-queue-type": "quorum"}, durable=True))
    assert wire.next(1) is not None
    for number in range(4):
        wire.send(1, spec.Basic.Consume(queue="seen", consumer_tag=f"tag{number}", no_ack=True))
        assert wire.next(1) is not None
    return [Client(wire, messages())]


def marks(server: Server, limit: int) -> list[Client]:
    """Producers that send one message each and are gone."""

    def producers() -> Sending:
        for number in range(1, 60_000):
            parts: list[list[Any]] = [[int(Op.PRODUCER), number, number, "marked"], [int(Op.SEND), number, 1, [[b"", None, 4, False]]]]
            yield b"".join([encode(part) for part in (*parts, [int(Op.END_PRODUCER), number])])

    with Raw(server.url) as raw:
        raw.send(Op.CALL, 1, "create-queue", {"queue": "marked", "durable": False})
        raw.until(Op.RESULT)
    return [Client(Raw(server.url), producers()) for _ in range(8)]


def tiny(server: Server, limit: int) -> list[Client]:
    """Durable messages of one byte, beyond all credit."""
    return _native(server, [[b"x"]] * 2000, 4)


def million(server: Server, limit: int) -> list[Client]:
    """A million of them, within it."""
    return [Minding(Raw(server.url), 250_000) for _ in range(4)]


def connections(server: Server, limit: int) -> list[Client]:
    """Five thousand of them, each with some of a frame."""
    start = (1 << 20).to_bytes(4, "big") + b"\xdd" + bytes(40_000)
    return [Client(Raw(server.url, source=f"127.0.0.{2 + number % 2}"), iter((start,))) for number in range(5000)]


def never_read(server: Server, limit: int) -> list[Client]:
    """Eighty consumers that never read, of queues of 4 KiB messages; others send."""
    consumers: list[Client] = []
    for number in range(80):
        raw = Raw(server.url)
        raw.send(Op.CALL, 1, "create-queue", {"queue": f"unread.{number}", "address": "held", "routing_type": "multicast"})
        raw.until(Op.RESULT)
        raw.send(Op.SUBSCRIBE, 2, 1, f"unread.{number}", {"prefetch": 100_000})
        raw.until(Op.RESULT)
        consumers.append(Client(raw, iter(()), reads=False))
    return consumers + _native(server, [[b"x" * 4096]] * 4, 2)


def many_queues(server: Server, limit: int) -> list[Client]:
    """200 queues, from 512 MiB on 10,000, each filled for a consumer that acknowledges nothing."""
    clients: list[Client] = []
    each = 50 if limit >= 512 * _MIB else 1

    def frames() -> Sending:
        for at in range(200):
            for number in range(1, each + 1):
                yield encode([int(Op.SEND_BODIES), number, 1 + at * 50, [], [b"x" * 4096] * 50])

    for connection in range(200):
        raw = Raw(server.url)
        for number in range(1, each + 1):
            raw.send(Op.SUBSCRIBE, 2, number, f"slow.{connection}.{number}", {"prefetch": 10_000})
            raw.until(Op.RESULT)
            raw.producer(f"slow.{connection}.{number}", number)
        clients.append(Client(raw, frames()))
    return clients


def bindings(server: Server, limit: int) -> list[Client]:
    """Whatever can be declared: bindings of one queue, under keys of 250 letters."""

    def declared() -> Sending:
        for number in itertools.count():
            yield frame.Method(
                1, spec.Queue.Bind(queue="bound", exchange="amq.topic", routing_key=f"{number:0250d}", nowait=True)
            ).marshal()

    clients = []
    for _ in range(2):
        wire = _amqp(server)
        wire.send(1, spec.Queue.Declare(queue="bound"))
        assert wire.next(1) is not None
        clients.append(Client(wire, declared()))
    return clients


def half_messages(server: Server, limit: int) -> list[Client]:
    """Connections, one after the other, that end in the middle of a message of 7 MiB: with a frame that is none, or without a word."""
    body = frame.Body(1, bytes(131_064)).marshal()
    for number in range(4 * limit // (7 * _MIB)):
        wire = _amqp(server)
        wire.send(1, spec.Basic.Publish(exchange="", routing_key="held"))
        wire.write(frame.Header(1, 8 * _MIB, spec.BasicProperties()).marshal() + body * 56)
        if number % 2:
            wire.write(b"\x09" + body[1:])
            with suppress(Gone):
                wire.next(0)
        wire.cut()
    return [Client(_amqp(server), iter(()))]


def _filled(server: Server, limit: int, size: int) -> int:
    """A queue of durable messages that come to half as much again as the limit in memory, 300,000 at most; how many those are."""
    wire, count = _amqp(server), min(3 * limit // 2 // (size + REFERENCE_BYTES), 300_000) // 1000 * 1000
    wire.send(1, spec.Queue.Declare(queue="unacked", durable=True))
    wire.send(1, spec.Confirm.Select())
    assert wire.next(1) is not None
    assert wire.next(1) is not None
    for number in range(1000, count + 1, 1000):
        wire.write(_publish(1, "unacked", b"x" * size, delivery_mode=2) * 1000)
        while not (isinstance(said := wire.next(1), spec.Basic.Ack) and said.delivery_tag >= number):
            assert said is not None
    wire.close()
    return count


def unacked(server: Server, limit: int, size: int = 100) -> list[Client]:
    """A consumer without prefetch, and nothing is acknowledged; there is half as much again as the limit holds."""
    _filled(server, limit, size)
    wire = _amqp(server)
    wire.send(1, spec.Basic.Consume(queue="unacked"))
    wire.socket.settimeout(_QUIET_S)
    with suppress(TimeoutError):
        while wire.socket.recv(1 << 20):
            pass
    return [Client(wire, iter(()))]


def unacked_gets(server: Server, limit: int, size: int = 100) -> list[Client]:
    """The same by single gets, until they are refused."""
    count, wire = _filled(server, limit, size), _amqp(server)
    ask, answer = frame.Method(1, spec.Basic.Get(queue="unacked")).marshal() * 500, b"\0\x3c\0\x47"
    wire.socket.settimeout(_QUIET_S)
    with suppress(TimeoutError):
        for _ in range(0, count, 500):
            wire.write(ask)
            came = 0
            while came < 500 and (data := wire.socket.recv(1 << 20)):
                came += data.count(answer)
    return [Client(wire, iter(()))]


def _in_transactions() -> Sending:
    for number in itertools.count():
        transaction = ("transaction", str(number % 1000))
        begin = stomp_frame("BEGIN", [transaction]) if number < 1000 else b""
        yield begin + stomp_frame("SEND", [("destination", "/queue/held"), transaction], b"x" * 4096) * 16


def stomp_transactions(server: Server, limit: int) -> list[Client]:
    """A thousand of each connection that never end, and are sent in."""
    return [Client(Link(server), _in_transactions()) for _ in range(16)]


def _subscribed(number: int) -> Sending:
    for each in itertools.count():
        yield stomp_frame("SUBSCRIBE", [("id", f"{each}{'x' * 1000}"), ("destination", f"/topic/held.{number}.{each}")])


def stomp_subscriptions(server: Server, limit: int) -> list[Client]:
    """Each connection makes as many as it may; ten thousand and more all together."""
    return [Client(Link(server), _subscribed(number)) for number in range(12)]


def stomp_never_read(server: Server, limit: int) -> list[Client]:
    """Of a topic, by forty that do not read what others send."""
    readers = [Link(server) for _ in range(40)]
    for each in readers:
        each.sure("SUBSCRIBE", id="s", destination="/topic/held", ack="client", prefetch_count="0")
    send = stomp_frame("SEND", [("destination", "/topic/held")], b"x" * 4096) * 16
    return [Client(each, iter(()), reads=False) for each in readers] + [Client(Link(server), itertools.repeat(send)) for _ in range(2)]


ATTACKS: Final[dict[str, Attack]] = {
    "amqp-transactions": Attack(amqp_transactions),
    "unwritten-properties": Attack(unwritten, hangs=True),
    "unwritten-empty": Attack(empty_bodies, 1.0, hangs=True),
    "properties": Attack(properties, 4.0),
    "native-frames": Attack(native_frames, 12.0),
    "amqp-frames": Attack(amqp_frames, 16.0),
    "unread-answers": Attack(answers),
    "amqp-headers": Attack(amqp_headers, 12.0),
    "marks": Attack(marks),
    "transient": Attack(transient, 4.0),
    "rejected": Attack(rejected, 100.0),
    "rejected-in-memory": Attack(rejected, 100.0, config={"address-settings": {"#": {"keep-failed": False}}}),
    "tiny": Attack(tiny, 0.2),
    "million": Attack(million),
    "connections": Attack(connections, 12.0),
    "never-read": Attack(never_read),
    "slow-queues": Attack(many_queues, 40.0),
    "bindings": Attack(bindings, declared=("bound",)),
    "half-messages": Attack(half_messages),
    "stomp-transactions": Attack(stomp_transactions),
    "stomp-subscriptions": Attack(stomp_subscriptions),
    "stomp-never-read": Attack(stomp_never_read),
    "unacked": Attack(unacked),
    "unacked-gets": Attack(unacked_gets),
}
