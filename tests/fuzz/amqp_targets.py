"""What is fuzzed of AMQP 0-9-1: bytes into the frame reader, and bytes that decide what hostile clients do to a whole broker.

Both take plain bytes, so that a random campaign (test_fuzz_amqp.py) and a coverage-guided one (atheris_amqp.py) drive the same.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import Any, Final, Protocol, TypeVar

from homing.broker.errors import Refused
from homing.broker.protocols.amqp091.codec import (
    AckEvent,
    ErrorEvent,
    FrameReader,
    NackEvent,
    PublishEvent,
    PublishRun,
    content_frames,
    method_frame,
)
from homing.broker.protocols.amqp091.codec_methods import METHODS, NUMBER, PROTOCOL_HEADER, write_arguments
from homing.broker.protocols.amqp091.options import AmqpOptions
from homing.broker.protocols.amqp091.session import AmqpSession
from tests import inside
from tests.fuzz.journal_words import check_batch
from tests.model.world import World
from tests.session_support import Transport

Item = TypeVar("Item")
_PUBLISH: Final = METHODS[NUMBER["basic.publish"]]


class Bytes:
    """Decisions, read from bytes; when they are used up, every further one is 0."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        found = self._data[self._at : self._at + count]
        self._at += len(found)
        return found

    def below(self, most: int) -> int:
        return int.from_bytes(self.take(1 if most <= 256 else 4), "big") % most

    def choice(self, items: Sequence[Item]) -> Item:
        return items[self.below(len(items))]


# -- the frame reader --------------------------------------------------------------------------------------------------


def read_frames(data: bytes) -> None:
    """Whatever the bytes and wherever they are cut: the same events, an error is the last, nothing else is raised."""
    chance = Bytes(data)
    frame_max, piece = chance.choice((4096, 8192, 131_072)), chance.choice((1, 2, 7, 8, 20, 300))
    stream = chance.take(chance.left)
    whole = _events(stream, len(stream) or 1, frame_max)
    assert whole == _events(stream, piece, frame_max)


def _events(stream: bytes, piece: int, frame_max: int) -> list[Any]:
    reader = FrameReader({1, 2}, 10_000)
    reader.frame_max = frame_max
    found: list[Any] = []
    for at in range(0, len(stream), piece):
        for event in reader.feed(stream[at : at + piece]):
            assert not found or found[-1][0] != "error", "something follows an error"
            if isinstance(event, AckEvent | NackEvent):
                # How many make one event depends on the cut.
                found += [(type(event), event.channel, tag, *event[2:]) for tag in event.tags]
            elif isinstance(event, PublishRun):
                found += event.each()
            elif isinstance(event, ErrorEvent):
                assert event.error.hard
                found.append(("error", event.error.code, event.error.text, event.error.method))
            else:
                found.append(event if isinstance(event, PublishEvent) else ("event", repr(event)))
    return found


# -- the session -------------------------------------------------------------------------------------------------------

NAMES: Final = [
    "q1", "q2", "x1", "x2", "", "amq.topic", "amq.direct", "amq.headers", "a.b", "#", "*", "direct", "topic", "fanout", "headers",
    "tag", "amq.rabbitmq.reply-to", "amq.mine", "a::b", "é" * 100, "x" * 255, "\x00", "/", "5", "-1", "60000",
]  # fmt: skip
NUMBERS: Final = {
    "o": (0, 1, 255),
    "h": (0, 1, 2, 3, 300, 65_535),
    "l": (0, 1, 100, 4096, 131_072, 2**31, 2**32 - 1),
    "q": (0, 1, 2, 3, 4, 5, 6, 2**31, 2**63 - 1, 2**63, 2**64 - 1),
}
ODD: Final[list[Any]] = [
    None, True, False, 0, 1, -1, 5, 300, 2**31, 2**62, 2**63 - 1, -(2**63), 0.5, float("nan"), float("inf"), "", "q1", "5", "any",
    "drop-head", "reject-publish", "quorum", "stream", b"\xff", [], {}, [[]], ["q1", "q2"], [1, None], {"a": {"b": [1]}}, {"": 1},
]  # fmt: skip
FIELDS: Final = [
    "x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes", "x-overflow", "x-dead-letter-exchange", "x-dead-letter-routing-key",
    "x-max-priority", "x-delivery-limit", "x-queue-type", "x-single-active-consumer", "x-priority", "alternate-exchange", "x-match", "CC",
    "BCC", "x-death", "x-delivery-count", "_AMQ_ORIG_ADDRESS", "_HOMING_AMQP", "capabilities", "a", "",
]  # fmt: skip
LIKELY: Final = (
    *("queue.declare", "queue.declare", "queue.bind", "exchange.declare", "exchange.bind", "basic.consume", "basic.get", "basic.ack"),
    *("basic.nack", "basic.reject", "confirm.select", "tx.select", "tx.commit", "basic.qos", "channel.open", "channel.close-ok"),
    *("basic.cancel", "queue.purge", "queue.delete", "basic.recover", "channel.close"),
)
ANY: Final = sorted(NUMBER)
_CONTENTS: Final = (
    b"\x00\x00",
    b"\x10\x00\x02",
    b"\x08\x00\x05",
    b"\x01\x00\x015",
    b"\x02\x00\x02q1",
    b"\x20\x00\x00\x00\x00\x00",
    b"\xff\xff",
)


class Hostile:
    """Frames that a hostile client writes, one after the other."""

    def __init__(self, chance: Bytes) -> None:
        self.chance = chance

    def frames(self) -> bytes:
        kind = self.chance.below(20)
        frames = self.publish() if kind < 7 else self.method()
        if kind == 16:
            at = self.chance.below(len(frames))
            return frames[:at] + self.chance.take(1) + frames[at + 1 :]
        if kind == 17:
            return frames[: self.chance.below(len(frames))]
        if kind == 18:
            return self.chance.take(self.chance.below(40))
        if kind == 19:
            return struct.pack(">BHI", self.chance.below(9), self.chance.below(3), self.chance.below(30)) + self.chance.take(30) + b"\xce"
        return frames

    def channel(self) -> int:
        return self.chance.choice((1, 1, 1, 1, 2, 2, 3, 0))

    def publish(self) -> bytes:
        chance = self.chance
        flags = chance.below(32)
        payload = write_arguments(_PUBLISH, (0, chance.choice(NAMES[:9]), chance.choice(NAMES[:10]), flags == 1, flags == 2))
        properties = chance.choice(_CONTENTS)
        if chance.below(4) == 1:
            table = write_arguments(METHODS[NUMBER["exchange.bind"]], (0, "", "", "", False, self.table()))[6:]
            properties = b"\x20\x00" + table
        body = b"x" * chance.choice((0, 1, 20, 4088, 4089, 5001))
        frames = content_frames(self.channel(), payload, properties, body, 4096)
        return b"".join(frames if chance.below(30) else frames[:-1])

    def method(self) -> bytes:
        name = self.chance.choice(LIKELY) if self.chance.below(12) else self.chance.choice(ANY)
        channel = 0 if name.startswith("connection.") and self.chance.below(8) else self.channel()
        return method_frame(channel, name, *(self.value(kind) for kind in METHODS[NUMBER[name]].arguments))

    def value(self, kind: str) -> Any:
        if kind == "b":
            return self.chance.below(4) == 1
        if kind in ("s", "k"):
            return self.chance.choice(NAMES[: self.chance.choice((6, 6, 20, len(NAMES)))])
        if kind == "S":
            return self.chance.choice((b"", b"\x00guest\x00guest"))
        if kind == "t":
            return self.table()
        return self.chance.choice(NUMBERS[kind][: self.chance.choice((2, 5, 11))])

    def table(self) -> dict[str, Any]:
        return {self.chance.choice(FIELDS): self.chance.choice(ODD) for _ in range(self.chance.choice((0, 0, 1, 2, 4)))}


class Socket(Transport):
    """The transport's side: counts, and remembers whether it ended."""

    def __init__(self) -> None:
        self.written = 0

    def write(self, data: bytes) -> None:
        self.written += len(data)


class Session(Protocol):
    def lost(self) -> None: ...


class HostileClients:
    """A broker, a good client's messages in it, and two hostile connections that come and go."""

    chance: Bytes
    world: World
    hostile: Sequence[tuple[Session, Socket]]

    def run(self) -> None:
        steps = 0
        while self.chance.left and steps < 150:
            steps += 1
            self.step()
        for session, _ in self.hostile:
            session.lost()
        self.world.turn()
        self.world.commit()
        self.check()

    def step(self) -> None:
        raise NotImplementedError

    def check(self) -> None:
        """Nobody holds anything, and the good client's messages are as it left them."""
        self.world.check_balance()
        queues = inside.queues(self.world.broker)
        assert all(not queue.delivering for queue in queues.values())
        assert inside.memory(self.world.broker).charged >= 0
        bodies = [reference.message.body for reference in queues["good"].references.values()]
        assert bodies == [b"good%d" % number for number in range(3)]


class Attack(HostileClients):
    """Over AMQP."""

    def __init__(self, data: bytes) -> None:
        self.chance = Bytes(data)
        self.client = Hostile(self.chance)
        self.world = World({"q2": {"max-delivery-attempts": 2, "redelivery-delay": 50}})
        good, _ = self.connect()
        good.receive(method_frame(1, "queue.declare", 0, "good", False, True, False, False, False, {}))
        payload = write_arguments(_PUBLISH, (0, "", "good", False, False))
        for number in range(3):
            good.receive(b"".join(content_frames(1, payload, b"\x10\x00\x02", b"good%d" % number, 4096)))
        self.world.commit()
        self.hostile: list[tuple[AmqpSession, Socket]] = [self.connect(), self.connect()]

    def connect(self) -> tuple[AmqpSession, Socket]:
        socket = Socket()
        session = AmqpSession(self.world.broker, socket, AmqpOptions("RabbitMQ", "3.13.7", max_message_bytes=5000), _let_in)
        session.receive(PROTOCOL_HEADER + method_frame(0, "connection.start-ok", {}, "PLAIN", b"\x00guest\x00guest", "en_US"))
        session.receive(method_frame(0, "connection.tune-ok", 10, 4096, 0) + method_frame(0, "connection.open", "/", "", False))
        session.receive(method_frame(1, "channel.open", ""))
        assert not socket.ended
        return session, socket

    def step(self) -> None:
        which = self.chance.below(2)
        session, socket = self.hostile[which]
        if socket.ended or self.chance.below(60) == 1:
            session.lost()
            self.hostile[which] = self.connect()
            return
        session.receive(b"".join(self.client.frames() for _ in range(1 + self.chance.below(3))))
        doing = self.chance.below(8)
        if doing == 1:
            self.world.time_ms += self.chance.choice((1, 100, 5000))
            self.world.turn()
        elif doing < 4:
            check_batch(self.world.journal.batch)
            self.world.commit()
        self.world.check_balance()


def _let_in(user: str, password: str, done: Any) -> None:
    done(user if password == "guest" else Refused("login-refused", "no", "try again"))


def attack(data: bytes) -> None:
    """Whatever hostile clients send: nothing is raised, what is counted agrees, the journal can write them."""
    Attack(data).run()


# -- where to begin ----------------------------------------------------------------------------------------------------


def frames_and_faults(rng: random.Random) -> bytes:
    """Two octets that say how to read, then frames of which some are wrong."""
    made = [rng.randbytes(2)]
    payload = write_arguments(_PUBLISH, (0, "x", "key", False, False))
    for _ in range(rng.randrange(1, 12)):
        channel = rng.choice((1, 1, 1, 2, 3, 0))
        doing = rng.randrange(10)
        if doing < 3:
            piece = b"".join(content_frames(channel, payload, b"\x10\x00\x02", rng.randbytes(rng.choice((0, 1, 50, 5000))), 4096))
        elif doing < 6:
            settled = [rng.randrange(5), rng.random() < 0.3, rng.random() < 0.5]
            piece = method_frame(channel, "basic.ack", *settled[:2]) if doing < 5 else method_frame(channel, "basic.nack", *settled)
        else:
            piece = Hostile(Bytes(rng.randbytes(60))).method()
        if rng.random() < 0.1:
            at = rng.randrange(len(piece))
            piece = piece[:at] + rng.randbytes(rng.randrange(3)) + piece[at + rng.randrange(2) :]
        made.append(piece)
    return b"".join(made)


def decisions(rng: random.Random) -> bytes:
    """For ``attack``."""
    return rng.randbytes(rng.randrange(50, 3000))
