"""A guest that speaks AMQP 0-9-1: acts of whole sessions, with odd arguments, tags, channels and orders here and there."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final

from homing.broker.protocols.amqp091.codec import content_frames, method_frame
from homing.broker.protocols.amqp091.codec_methods import METHODS, NUMBER, PROTOCOL_HEADER, write_arguments
from homing.broker.protocols.amqp091.codec_properties import ContentProperties, write_properties
from homing.broker.protocols.amqp091.codec_tables import write_table
from tests.fuzz.amqp_targets import FIELDS, ODD, Bytes, Hostile
from tests.fuzz.sessions.line import Line, Over
from tests.fuzz.sessions.oddities import damage

_PUBLISH: Final = METHODS[NUMBER["basic.publish"]]
_QUEUES: Final = ("q1", "q2", "a", "b", "q.work", "t.x", "a.paged")
_EXCHANGES: Final = ("x1", "x2", "amq.topic", "amq.direct", "amq.headers", "amq.fanout", "")
_FRAME_MAX: Final = 4096
_ARGUMENTS: Final[dict[str, tuple[Any, ...]]] = {
    "x-message-ttl": (0, 1, 500, 2**31, 2**53, -1, "5"),
    "x-expires": (1, 100, 2**31, 2**53, 0),
    "x-max-length": (0, 1, 5, 2**53, -1),
    "x-max-length-bytes": (0, 100, 2**53),
    "x-overflow": ("drop-head", "reject-publish", "reject-publish-dlx", "none"),
    "x-dead-letter-exchange": ("", "x1", "x2", "amq.fanout", "nowhere"),
    "x-dead-letter-routing-key": ("q1", "q2", "a", "k" * 255),
    "x-max-priority": (0, 1, 5, 255, 256),
    "x-delivery-limit": (0, 1, 3, -1, 2**31),
    "x-queue-type": ("classic", "quorum", "stream"),
    "x-single-active-consumer": (True, False),
}


class AmqpGuest:
    """One connection. ``record`` gets a line for each thing done."""

    def __init__(self, chance: random.Random, port: int, record: Callable[[str], None]) -> None:
        self.chance = chance
        self.port = port
        self.record = record
        self.bent = chance.choice((0.0, 0.0, 0.03, 0.2))
        self.came = 0
        self.line: Line

    async def run(self) -> None:
        """From the header to a good or bad end. Raises Over when the broker ends it."""
        self.line = await Line.open(self.port, self._took)
        reset = self.chance.random() < 0.4
        try:
            await self._log_in()
            for act in self.chance.choices(list(ACTS), [weight for _, weight in ACTS.values()], k=self.chance.randrange(1, 6)):
                self.record(f"act {act}")
                await ACTS[act][0](self)
            if self.chance.random() < 0.3:
                await self.method(0, "connection.close", 200, "bye", 0, 0)
                await self.answer()
        finally:
            await self.line.close(reset)

    def _took(self, data: bytes) -> None:
        self.came += len(data)

    async def answer(self) -> None:
        came = self.came
        await self.line.something(lambda: self.came > came)

    async def method(self, channel: int, name: str, *values: Any) -> None:
        chance = self.chance
        if chance.random() < self.bent:
            hostile = Hostile(Bytes(chance.randbytes(80)))
            kinds = METHODS[NUMBER[name]].arguments
            at = chance.randrange(len(kinds)) if kinds else 0
            values = tuple(hostile.value(kind) if n == at else value for n, (kind, value) in enumerate(zip(kinds, values, strict=True)))
        if chance.random() < self.bent / 4:
            channel = chance.choice((0, 1, 2, 7, 65_535))
        self.record(f"{channel} {name} {values!r:.250}")
        await self.line.write(method_frame(channel, name, *values))

    async def publish(self, exchange: str, key: str, body: bytes, channel: int = 1, **properties: Any) -> None:
        flags = self.chance.random()
        payload = write_arguments(_PUBLISH, (0, exchange, key, flags < 0.2, flags > 0.98))
        frames = content_frames(channel, payload, write_properties(ContentProperties(**properties)), body, _FRAME_MAX)
        if self.chance.random() < self.bent / 4:
            frames = frames[: self.chance.randrange(len(frames))]
        self.record(f"{channel} publish {exchange!r} {key!r} {properties!r:.200} {len(body)}")
        await self.line.write(b"".join(frames))

    async def _log_in(self) -> None:
        chance = self.chance
        if chance.random() < 0.03:
            await self.line.write(chance.choice((b"GET / HTTP/1.1\r\n\r\n", b"AMQP\x00\x01\x00\x00", chance.randbytes(30))))
            return
        await self.line.write(PROTOCOL_HEADER)
        capabilities = {"publisher_confirms": True, "consumer_cancel_notify": chance.random() < 0.5, "basic.nack": True}
        response = b"\x00guest\x00" + (b"guest" if chance.random() < 0.97 else b"wrong")
        await self.method(0, "connection.start-ok", {"product": "guest", "capabilities": capabilities}, "PLAIN", response, "en_US")
        await self.answer()
        await self.method(0, "connection.tune-ok", 100, _FRAME_MAX, chance.choice((0, 0, 1, 60)))
        await self.method(0, "connection.open", "/" if chance.random() < 0.9 else chance.choice(("shop", "none")), "", False)
        for channel in (1, 2):
            await self.method(channel, "channel.open", "")
        await self.answer()

    # -- what is named

    def arguments(self) -> dict[str, Any]:
        chance = self.chance
        found = {name: chance.choice(_ARGUMENTS[name]) for name in chance.sample(list(_ARGUMENTS), chance.choice((0, 0, 1, 2, 3)))}
        if chance.random() < self.bent:
            found[chance.choice(FIELDS)] = chance.choice(ODD)
        return found

    async def queue(self, channel: int = 1) -> str:
        """A queue that is there, whether as asked for or as somebody else made it."""
        chance = self.chance
        name = chance.choice(_QUEUES)
        kind = chance.random()
        if kind < 0.15:
            name = f"q.{chance.randrange(200)}"
        await self.method(
            channel, "queue.declare", 0, name, False, kind < 0.8, 0.1 < kind < 0.13, kind < 0.2, kind > 0.99, self.arguments()
        )
        return name

    def properties(self) -> dict[str, Any]:
        chance = self.chance
        found: dict[str, Any] = {"delivery_mode": chance.choice((1, 2, 2, 2))}
        if chance.random() < 0.2:
            found["expiration"] = chance.choice(("0", "1", "500", str(2**31), str(2**53), str(2**64), "-1", "x"))
        if chance.random() < 0.2:
            found["priority"] = chance.choice((0, 5, 9, 255))
        if chance.random() < 0.2:
            headers = {chance.choice(FIELDS): chance.choice(ODD) for _ in range(chance.randrange(4))}
            found["headers"] = write_table(headers)[4:]
        if chance.random() < 0.1:
            found |= {
                "reply_to": "q1",
                "correlation_id": "\x1b[31m",
                "message_id": "m" * 200,
                "timestamp": chance.choice((0, 2**63, 2**64 - 1)),
            }
        return found

    # -- acts

    async def send(self) -> None:
        chance = self.chance
        key = await self.queue()
        if chance.random() < 0.6:
            await self.method(1, "confirm.select", False)
        size = chance.choice((0, 1, 100, 4088, 4089, 20_000))
        for _ in range(chance.choice((1, 10, 100))):
            await self.publish(chance.choice(("", "", "", *_EXCHANGES)), chance.choice((key, "k.a", "")), b"x" * size, **self.properties())
        await self.answer()

    async def topology(self) -> None:
        chance = self.chance
        for exchange in ("x1", "x2"):
            kind = chance.choice(("direct", "topic", "fanout", "headers"))
            alternate = {"alternate-exchange": chance.choice(("x2", "amq.fanout", exchange))} if chance.random() < 0.3 else {}
            await self.method(1, "exchange.declare", 0, exchange, kind, False, True, chance.random() < 0.2, False, False, alternate)
        for _ in range(chance.randrange(1, 8)):
            source, key = chance.choice(_EXCHANGES[:4]), chance.choice(("k.#", "*", "#", "", "q1", "k.a"))
            if chance.random() < 0.3:
                await self.method(1, "exchange.bind", 0, chance.choice(("x1", "x2")), source, key, False, {})
            else:
                bound = {"x-match": chance.choice(("all", "any", "any-with-x")), "a": chance.choice(ODD)} if chance.random() < 0.3 else {}
                await self.method(1, "queue.bind", 0, await self.queue(), source, key, False, bound)
        for _ in range(chance.randrange(1, 20)):
            await self.publish(chance.choice(_EXCHANGES), chance.choice(("k.a", "q1", "q2")), b"routed", **self.properties())
        if chance.random() < 0.3:
            await self.method(1, "exchange.delete", 0, chance.choice(("x1", "x2")), chance.random() < 0.5, False)
        await self.answer()

    async def consume(self) -> None:
        chance = self.chance
        name = await self.queue(2)
        await self.method(2, "basic.qos", 0, chance.choice((0, 1, 10, 65_535)), chance.random() < 0.3)
        tag, no_ack = f"tag{chance.randrange(3)}", chance.random() < 0.2
        consumer = {"x-priority": chance.choice((0, 5, -5, 2**31))} if chance.random() < 0.1 else {}
        await self.method(2, "basic.consume", 0, name, tag, False, no_ack, chance.random() < 0.05, False, consumer)
        await self.publish("", name, b"to be settled", 1, **self.properties())
        await self.answer()
        await self.settle(2)
        if chance.random() < 0.5:
            await self.method(2, "basic.cancel", tag, False)
        await self.answer()

    async def settle(self, channel: int) -> None:
        """Tags count from 1 for each channel; some of these were never given, or settled before (which ends the channel)."""
        chance = self.chance
        for tag in range(1, chance.randrange(2, 31)):
            odd = chance.random() < self.bent
            given = chance.choice((0, 1, tag + 100, 2**63, 2**64 - 1)) if odd else tag
            many = chance.random() < 0.1
            kind = chance.choice(("ack", "ack", "nack", "reject", "recover"))
            if kind == "ack":
                await self.method(channel, "basic.ack", given, many)
            elif kind == "nack":
                if chance.random() < 0.2:
                    report = write_table({"reason": "no", "delivery-tag": tag, "delay-ms": chance.choice((0, 2**53, -1))})[4:]
                    await self.publish("homing.failure", "", b"", channel, headers=report)
                await self.method(channel, "basic.nack", given, many, chance.random() < 0.6)
            elif kind == "reject":
                await self.method(channel, "basic.reject", given, chance.random() < 0.6)
            elif chance.random() < 0.2:
                await self.method(channel, "basic.recover", True)

    async def get(self) -> None:
        name = await self.queue()
        for _ in range(self.chance.randrange(1, 10)):
            await self.method(1, "basic.get", 0, name, self.chance.random() < 0.3)
        await self.answer()
        await self.settle(1)

    async def transact(self) -> None:
        chance = self.chance
        name = await self.queue()
        await self.method(1, "tx.select")
        for _ in range(chance.randrange(1, 5)):
            for _ in range(chance.randrange(6)):
                await self.publish("", chance.choice((name, "nowhere")), b"in a transaction", **self.properties())
            if chance.random() < 0.5:
                await self.method(1, "basic.get", 0, name, False)
                await self.answer()
                await self.settle(1)
            await self.method(1, chance.choice(("tx.commit", "tx.commit", "tx.rollback")))
        await self.answer()

    async def remove(self) -> None:
        name = self.chance.choice(_QUEUES)
        if self.chance.random() < 0.5:
            await self.method(1, "queue.purge", 0, name, False)
        else:
            await self.method(1, "queue.delete", 0, name, self.chance.random() < 0.3, self.chance.random() < 0.3, False)
        await self.answer()

    async def deaf(self) -> None:
        """Takes all there is without acknowledging, and reads none of it for a while."""
        name = await self.queue()
        for _ in range(100):
            await self.publish("", name, b"x" * 20_000)
        await self.method(2, "basic.consume", 0, name, "deaf", False, True, False, False, {})
        await self.line.deaf(self.chance.choice((0.2, 1.0, 3.0)))

    async def channels(self) -> None:
        """Opened twice, closed twice, used when closed."""
        for _ in range(self.chance.randrange(1, 10)):
            channel = self.chance.choice((1, 2, 3, 3, 100, 101))
            name = self.chance.choice(("channel.open", "channel.close", "channel.flow", "basic.recover", "tx.select", "confirm.select"))
            values: tuple[Any, ...] = {
                "channel.open": ("",),
                "channel.close": (200, "", 0, 0),
                "channel.flow": (self.chance.random() < 0.5,),
                "basic.recover": (True,),
                "tx.select": (),
                "confirm.select": (False,),
            }[name]
            await self.method(channel, name, *values)
        await self.answer()

    async def noise(self) -> None:
        hostile = Hostile(Bytes(self.chance.randbytes(2000)))
        for _ in range(self.chance.randrange(1, 40)):
            await self.line.write(hostile.frames())
        await self.answer()

    async def garble(self) -> None:
        payload = write_arguments(_PUBLISH, (0, "", "q1", False, False))
        good = b"".join(content_frames(1, payload, write_properties(ContentProperties(delivery_mode=2)), b"x" * 300, _FRAME_MAX))
        await self.line.write(damage(self.chance, good))

    async def half(self) -> None:
        payload = write_arguments(_PUBLISH, (0, "", "q1", False, False))
        good = b"".join(content_frames(1, payload, write_properties(ContentProperties()), b"x" * 9000, _FRAME_MAX))
        await self.line.write(good[: self.chance.randrange(1, len(good))])
        raise Over

    async def wait(self) -> None:
        await asyncio.sleep(self.chance.choice((0.01, 0.1, 0.5)))


Act = Callable[[AmqpGuest], Awaitable[None]]
ACTS: Final[dict[str, tuple[Act, int]]] = {
    "send": (AmqpGuest.send, 6),
    "topology": (AmqpGuest.topology, 4),
    "consume": (AmqpGuest.consume, 8),
    "get": (AmqpGuest.get, 4),
    "transact": (AmqpGuest.transact, 5),
    "remove": (AmqpGuest.remove, 2),
    "deaf": (AmqpGuest.deaf, 1),
    "channels": (AmqpGuest.channels, 2),
    "noise": (AmqpGuest.noise, 4),
    "garble": (AmqpGuest.garble, 2),
    "half": (AmqpGuest.half, 1),
    "wait": (AmqpGuest.wait, 1),
}
