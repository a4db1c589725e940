"""A guest that speaks the native protocol: acts of whole sessions, each in its right order, with fields bent here and there."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

from homing.broker.protocols.native.codec import FrameDecoder, Op, ProtocolError, encode
from tests.fuzz.native_frames import DEFINITIONS, HOSTS, SELECTORS, Frames
from tests.fuzz.sessions.line import Line, Over
from tests.fuzz.sessions.oddities import EXTREMES, bend, damage

#: All that guests name begins with one of these letters, so that a policy of theirs holds for nobody else.
QUEUES: Final = ("a", "b", "a.b", "q1", "q2", "t.x", "a.paged", "a.loop", "DLQ.a", "DLQ.a.paged")
_OURS: Final = "^(a|b|q|t[.])"
#: What no backup may be called: it would stand outside the directory of backups.
ESCAPED: Final = "escaped"
_TTLS_MS: Final = (0, 0, 0, 1, 50, 2000, 10**9, 2**31, 2**53, 315_360_000_000)
_CREDIT_MESSAGES: Final = 4000


class NativeGuest:
    """One session. ``record`` gets a line for each thing done."""

    def __init__(self, chance: random.Random, port: int, record: Callable[[str], None]) -> None:
        self.chance = chance
        self.port = port
        self.record = record
        self.bent = chance.choice((0.0, 0.0, 0.02, 0.1, 0.3))
        self.seen: Counter[int] = Counter()
        self.message_ids: list[int] = []
        self.results: dict[int, Any] = {}
        self.tags: dict[int, int] = {}
        self.sequences: dict[int, int] = {}
        self._decoder = FrameDecoder(1 << 30)
        self._requests = 100
        self._consumers = 0
        self.line: Line

    async def run(self) -> None:
        """From HELLO to a good or bad end. Raises Over when the broker ends it."""
        self.line = await Line.open(self.port, self._took)
        reset = self.chance.random() < 0.4
        try:
            await self._hello()
            acts = self.chance.choices(list(ACTS), [weight for _, weight in ACTS.values()], k=self.chance.randrange(1, 6))
            for act in acts:
                self.record(f"act {act}")
                await ACTS[act][0](self)
            if self.chance.random() < 0.3:
                await self.send(Op.CLOSE, 1)
                await self.line.something()
        finally:
            await self.line.close(reset)

    # -- out and in

    async def send(self, *frame: Any) -> None:
        fields = list(frame)
        if self.chance.random() < self.bent:
            at = self.chance.randrange(len(fields))
            fields[at] = bend(self.chance, fields[at])
        await self._write(fields)

    async def _write(self, fields: list[Any]) -> None:
        data = encode(fields)
        self.record(f"{fields!r:.300}" if len(data) < 5000 else f"{fields[:3]!r:.100}… {len(data)} bytes")
        await self.line.write(data)

    async def ask(self, op: Op, *fields: Any) -> Any:
        """With a request number of its own; the answer's value, None where none came in time."""
        self._requests += 1
        request = self._requests
        await self.send(op, request, *fields)
        await self.line.something(lambda: request in self.results)
        return self.results.get(request)

    async def call(self, verb: str, **said: Any) -> Any:
        """A call's arguments are bent more often than frames: a bent one is refused, and the session goes on."""
        arguments: Any = bend(self.chance, said) if self.chance.random() < 0.4 else said
        if verb == "set-policy" and isinstance(arguments, dict) and isinstance(pattern := arguments.get("pattern", ""), str):
            arguments["pattern"] = _OURS + pattern.removeprefix(_OURS)
        self._requests += 1
        request = self._requests
        await self._write([int(Op.CALL), request, verb, arguments])
        if self.chance.random() < 0.2:
            return None  # without waiting for the answer
        await self.line.something(lambda: request in self.results)
        return self.results.get(request)

    def _took(self, data: bytes) -> None:
        try:
            frames = self._decoder.feed(data)
        except ProtocolError as error:
            raise AssertionError(f"the broker sent a malformed frame: {error}") from error
        for frame in frames:
            self.seen[frame[0]] += 1
            if frame[0] == Op.DELIVER:
                self.message_ids = [*self.message_ids[-50:], *(message[0] for message in frame[3])]
                self.tags[frame[1]] = frame[2] + len(frame[3]) - 1
            elif frame[0] == Op.DELIVER_BODIES:
                self.message_ids = [*self.message_ids[-50:], frame[3]]
                self.tags[frame[1]] = frame[2] + len(frame[8]) - 1
            elif frame[0] == Op.RESULT:
                self.results[frame[1]] = frame[2]
            elif frame[0] == Op.REFUSED:
                self.results[frame[1]] = None
                if frame[2] == "internal-error":
                    self.record("INTERNAL-ERROR " + str(frame))

    async def _hello(self) -> None:
        chance = self.chance
        if chance.random() < 0.03:
            await self.line.write(chance.randbytes(chance.randrange(1, 200)))
            return
        options: dict[str, Any] = {"heartbeat_ms": chance.choice((0, 0, 1000, 60_000)), "joins_bodies": chance.random() < 0.5}
        if chance.random() < 0.6:
            options["client_id"] = f"guest{chance.randrange(20)}"
        if chance.random() < 0.1:
            options["redelivery_policies"] = {chance.choice(("a", "#", "a.*")): self._policy()}
        await self.send(Op.HELLO, "homing", 1, options)
        await self.line.something(lambda: self.seen[Op.WELCOME] > 0)

    def _policy(self) -> dict[str, Any]:
        return {"maximum_redeliveries": self.chance.choice((-1, 0, 1, 6)), "redelivery_delay_ms": self.chance.choice((0, 5, 1000, 2**53))}

    def name(self) -> str:
        return self.chance.choice(QUEUES)

    # -- acts: sending

    async def producer(self, number: int, address: str) -> None:
        result = await self.ask(Op.PRODUCER, number, address)
        mark = result.get("mark", 0) if isinstance(result, dict) else 0
        self.sequences[number] = mark + 1

    def message(self) -> list[Any]:
        chance = self.chance
        properties = chance.choice((None, None, {"p": "a_b" * 5}, {"a": 1, "region": "eu", "n": 2**63 - 1, "f": 1e308, "b": b"\x00"}))
        body = chance.randbytes(chance.choice((0, 1, 20, 300, 9000)))
        ttl_ms, delay_ms = chance.choice(_TTLS_MS), chance.choice(_TTLS_MS)
        duplicate_id = chance.choice((None, None, None, f"d{chance.randrange(30)}"))
        return [body, properties, chance.randrange(10), chance.random() < 0.8, ttl_ms, delay_ms, duplicate_id][
            : chance.choice((1, 1, 2, 5, 7))
        ]

    async def deliver_to(self, address: str, count: int, number: int = 1, size: int | None = None) -> None:
        """``count`` messages in frames of up to a hundred, as a well-behaved producer numbers them."""
        if number not in self.sequences:
            await self.producer(number, address)
        while count > 0:
            some = min(count, 100)
            messages = [self.message() if size is None else [b"x" * size] for _ in range(some)]
            await self.send(Op.SEND, number, self.sequences[number], messages)
            self.sequences[number] += some
            count -= some
        await self.line.something()

    async def produce(self) -> None:
        number = self.chance.randrange(1, 4)
        await self.deliver_to(self.name(), self.chance.choice((1, 3, 20, 150)), number)
        if self.chance.random() < 0.3:
            said = [self.chance.randrange(10), self.chance.random() < 0.8, self.chance.choice(_TTLS_MS), 0]
            await self.send(Op.SEND_BODIES, number, self.sequences[number], said, [b"b", b"", b"c" * 100])
            self.sequences[number] += 3
        if self.chance.random() < 0.2:
            await self.send(Op.SEND, number, self.sequences[number] + self.chance.choice((-5, 1, 2**40)), [[b"gap"]])
        if self.chance.random() < 0.3:
            await self.send(Op.END_PRODUCER, number)
            self.sequences.pop(number, None)

    async def beyond_credit(self) -> None:
        """Twice what was granted, and more: that ends the connection."""
        address = self.name()
        await self.producer(9, address)
        messages = [[b""]] * self.chance.choice((_CREDIT_MESSAGES, _CREDIT_MESSAGES * 2))
        for _ in range(3):
            await self.send(Op.SEND, 9, self.sequences[9], messages)
            self.sequences[9] += len(messages)

    async def fan_out(self) -> None:
        """Multicast queues, and one frame for all of them."""
        address = f"t.fan{self.chance.randrange(2)}"
        queues = [f"{address}.{n}" for n in range(self.chance.choice((3, 20, 60)))]
        for queue in queues:
            await self._write([int(Op.CALL), 1, "create-queue", {"queue": queue, "address": address, "routing_type": "multicast"}])
        await self.line.something()
        await self.producer(8, address)
        await self.send(Op.SEND, 8, self.sequences[8], [[b"to all"]] * self.chance.choice((1, 50, 300)))
        await self.line.something(lambda: self.seen[Op.CONFIRM] > 0)
        for queue in queues:
            verb = self.chance.choice(("purge", "delete-queue", "delete-queue", "delete-queue"))
            await self._write([int(Op.CALL), 2, verb, {"queue": queue}])
        await self.line.something()

    # -- acts: receiving

    async def subscribe(self, queue: str, **options: Any) -> int:
        self._consumers += 1
        number = self._consumers
        await self.ask(Op.SUBSCRIBE, number, queue, {"prefetch": self.chance.choice((0, 1, 10, 1000)), **options})
        return number

    async def settle(self, consumer: int, session: int = 0) -> None:
        """Given, and settled in every way there is, with some tags that were never given."""
        chance = self.chance
        last = self.tags.get(consumer, chance.randrange(1, 20))
        await self.send(Op.GIVEN, consumer, chance.choice((last, last, last + 5, 1)))
        at = 1
        while at <= last:
            end = min(last, at + chance.choice((0, 0, 2, 20, 500)))
            kind = chance.choice((2, 4, 4, 3, 3, 1, 5, 6, 0))
            failure: dict[str, Any] | None = None
            if kind in (1, 3):
                failure = chance.choice(
                    (None, {"reason": "no", "count": chance.random() < 0.8}, {"delay_ms": chance.choice((0, 5, 10**9))})
                )
                if failure is not None and chance.random() < 0.5:
                    failure |= {"error_type": "E" * 50, "error_text": "\x1b[31mred=1", "traceback": 'File "a.py", line 1\n' * 20}
                    failure["retryable"] = chance.random() < 0.7
            first = max(1, at - chance.choice((0, 0, 0, 3)))
            await self.send(Op.ACK, consumer, kind, [first, end], failure, 0, session if kind in (2, 4) else 0)
            at = end + 1
        if chance.random() < 0.1:
            await self.send(Op.ACK, consumer, 4, [last + 1, 2**62], None, 3)
        if chance.random() < 0.1:
            await self.send(Op.TOUCH, consumer, [1, last])

    async def consume(self) -> None:
        chance = self.chance
        options: dict[str, Any] = {}
        if chance.random() < 0.3:
            options["selector"] = chance.choice(SELECTORS)
        if chance.random() < 0.3:
            options["redelivery_policy"] = self._policy()
        queue = self.name()
        consumer = await self.subscribe(queue, **options)
        if chance.random() < 0.6:
            await self.deliver_to(queue, chance.choice((1, 10, 100)), 4)
        for _ in range(chance.randrange(1, 5)):
            await self.send(Op.PULL, consumer, chance.choice((-1, 0, 5, 2**31)))
            await self.line.something()
            await self.settle(consumer)
        if chance.random() < 0.5:
            await self.send(Op.UNSUBSCRIBE, 5, consumer)

    async def select(self) -> None:
        """Selectors that look long at long properties, on a queue of them."""
        chance = self.chance
        selectors = ("p LIKE '%" + "a_" * 1900 + "b%'", "p LIKE '" + "%a" * 1900 + "%b'", " OR ".join(["p LIKE '%a_a_b%'"] * 20))
        await self.producer(3, "t.x")
        await self.send(Op.SEND, 3, self.sequences[3], [[b"", {"p": "b" + "a" * chance.choice((10, 60_000))}]] * 20)
        self.sequences[3] += 20
        for _ in range(chance.choice((1, 5, 20))):
            await self.subscribe("t.x", selector=chance.choice(selectors), prefetch=10)

    async def transact(self) -> None:
        chance = self.chance
        session, queue = chance.randrange(1, 4), self.name()
        consumer = await self.subscribe(queue, session=session, transacted=True)
        await self.producer(7, queue)
        for _ in range(chance.randrange(1, 4)):
            count = chance.randrange(0, 6)
            if count:
                await self.send(Op.SEND, 7, 0, [self.message() for _ in range(count)], session)
            await self.settle(consumer, session)
            ending = chance.randrange(6)
            if ending < 3:
                await self.ask(Op.COMMIT, session, f"t{chance.randrange(10**6)}", count + chance.choice((0, 0, 0, 1)))
            elif ending == 3:
                await self.ask(Op.ROLLBACK, session)
            elif ending == 4:
                await self.ask(Op.SESSION_ENDED, session)
        if chance.random() < 0.5:
            await self.send(Op.UNSUBSCRIBE, 6, consumer)

    async def deaf(self) -> None:
        """Asks for much, reads nothing for a while."""
        queue = self.name()
        await self.deliver_to(queue, 100, 5, size=20_000)
        await self.subscribe(queue, prefetch=1000)
        for _ in range(200):
            await self._write([int(Op.CALL), 4, self.chance.choice(("queues", "settings", "peek")), {}])
        await self.line.deaf(self.chance.choice((0.2, 1.0, 3.0)))

    # -- acts: managing

    async def manage(self) -> None:
        for _ in range(self.chance.randrange(1, 8)):
            verb = self.chance.choice(list(CALLS))
            await self.call(verb, **CALLS[verb](self))

    async def leaf_through(self) -> None:
        """A queue that is longer than its window: pages of it, while it is fed, redriven, purged and deleted."""
        chance = self.chance
        await self.deliver_to("a.paged", chance.choice((100, 400)), 6, size=10)
        after: Any = None
        for _ in range(chance.randrange(1, 6)):
            wanted = after if chance.random() < 0.6 else [chance.choice(EXTREMES), chance.choice(EXTREMES)]
            page = await self.call("peek", queue="a.paged", limit=chance.choice((1, 20, 1000)), after=wanted)
            after = page.get("next") if isinstance(page, dict) else None
        if chance.random() < 0.5:
            consumer = await self.subscribe("a.paged", prefetch=200)
            await self.line.something(lambda: bool(self.tags))
            last = self.tags.get(consumer, 5)
            await self.send(Op.GIVEN, consumer, last)
            await self.send(Op.ACK, consumer, 1, [1, last], {"reason": "poison"})
            await self.call("redrive", queue="DLQ.a.paged", message_ids=chance.choice((None, None, self.message_ids[-5:], EXTREMES[:5])))
        await self.call(chance.choice(("purge", "delete-queue", "pause", "resume", "peek")), queue="a.paged")

    # -- acts: noise

    async def noise(self) -> None:
        frames = Frames(self.chance, lambda: self.sequences.get(1, 1))
        for _ in range(self.chance.randrange(1, 40)):
            frame = frames.frame()
            if frame[:1] == [Op.CALL]:
                continue  # management has acts of its own, whose policies hold for nobody else
            await self._write(frame)

    async def garble(self) -> None:
        """A good frame with its bytes damaged, or only half of it."""
        good = encode([int(Op.SEND), 1, self.sequences.get(1, 1), [self.message() for _ in range(5)]])
        data = damage(self.chance, good)
        self.record(f"bytes {data[:60].hex()}")
        await self.line.write(data)
        if self.chance.random() < 0.5:
            await self.line.something()

    async def half(self) -> None:
        """In the middle of a frame it is gone."""
        frame = encode([int(Op.SEND), 1, self.sequences.get(1, 1), [[b"x" * self.chance.choice((10, 100_000))]]])
        await self.line.write(frame[: self.chance.randrange(1, len(frame))])
        raise Over

    async def wait(self) -> None:
        await asyncio.sleep(self.chance.choice((0.01, 0.1, 0.5)))


Act = Callable[[NativeGuest], Awaitable[None]]
ACTS: Final[dict[str, tuple[Act, int]]] = {
    "produce": (NativeGuest.produce, 6),
    "consume": (NativeGuest.consume, 8),
    "transact": (NativeGuest.transact, 5),
    "manage": (NativeGuest.manage, 8),
    "leaf_through": (NativeGuest.leaf_through, 4),
    "fan_out": (NativeGuest.fan_out, 2),
    "select": (NativeGuest.select, 1),
    "beyond_credit": (NativeGuest.beyond_credit, 1),
    "deaf": (NativeGuest.deaf, 1),
    "noise": (NativeGuest.noise, 4),
    "garble": (NativeGuest.garble, 2),
    "half": (NativeGuest.half, 1),
    "wait": (NativeGuest.wait, 1),
}


def _page(guest: NativeGuest) -> dict[str, Any]:
    return guest.chance.choice(({}, {"limit": guest.chance.choice((1, 250, 2**63)), "after": guest.chance.choice((None, "a", ""))}))


def _create(guest: NativeGuest) -> dict[str, Any]:
    chance = guest.chance
    options: dict[str, Any] = {
        "max_length": chance.choice((1, 5, 2**53)),
        "max_length_bytes": 100,
        "message_ttl_ms": chance.choice((1, 1000, 2**53)),
        "expires_ms": chance.choice((1, 100, 10**9)),
        "overflow": chance.choice(("page", "block", "drop-head", "reject-publish", "reject-publish-dlx")),
        "max_delivery_attempts": chance.choice((-1, 0, 1, 3)),
        "redelivery_delay_ms": chance.choice((0, 5, 10**9)),
        "dead_letter_address": chance.choice(("a", "a.loop", "b", "nowhere", None)),
        "expiry_address": chance.choice(("a", "b")),
        "selector": chance.choice(SELECTORS),
        "durable": chance.random() < 0.7,
        "exclusive": chance.random() < 0.2,
        "max_consumers": chance.choice((-1, 0, 1)),
    }
    some = chance.sample(list(options), chance.randrange(4))
    made = {"queue": guest.name(), "address": guest.name(), "routing_type": chance.choice(("anycast", "multicast"))}
    return {**made, **{name: options[name] for name in some}}


CALLS: Final[dict[str, Callable[[NativeGuest], dict[str, Any]]]] = {
    "queues": _page,
    "consumers": lambda guest: {"queue": guest.name(), **_page(guest)},
    "peek": lambda guest: {"queue": guest.name(), "limit": 20, "after": [-4, guest.chance.choice((0, 2**63 - 1, 2**64 - 1))]},
    "history": lambda guest: {"message_id": guest.chance.choice([1, *guest.message_ids])},
    "explain": lambda guest: {"address": guest.name()},
    "create-queue": _create,
    "delete-queue": lambda guest: {"queue": guest.name(), "if_empty": False, "if_unused": guest.chance.random() < 0.5},
    "purge": lambda guest: {"queue": guest.name()},
    "pause": lambda guest: {"queue": guest.name()},
    "resume": lambda guest: {"queue": guest.name()},
    "redrive": lambda guest: {"queue": guest.name(), "message_ids": guest.chance.choice((None, guest.message_ids[-20:]))},
    "policies": _page,
    "vhosts": _page,
    "backup": lambda guest: {
        "name": guest.chance.choice(("one", "two", f"b{guest.chance.randrange(99)}", f"../{ESCAPED}", f"a/../../{ESCAPED}"))
    },
    **{
        verb: lambda guest: {
            "name": guest.chance.choice(("one", f"../{ESCAPED}", "..", "/")),
            "offset": guest.chance.choice((0, -1, 2**50)),
        }
        for verb in ("export-part", "report-part")
    },
    "set-policy": lambda guest: {
        "name": guest.chance.choice("pq"),
        "pattern": _OURS,
        "definition": guest.chance.choice(
            [*DEFINITIONS, {"message-ttl": guest.chance.choice((1, 2**31, 2**53, 2**62)), "delivery-limit": 3}, {"expires": 2**53}]
        ),
        "apply_to": guest.chance.choice(("queues", "all", "exchanges")),
        "priority": guest.chance.randrange(3),
    },
    "clear-policy": lambda guest: {"name": guest.chance.choice("pq")},
    "add-vhost": lambda guest: {"name": guest.chance.choice(HOSTS[1:])},
    "delete-vhost": lambda guest: {"name": guest.chance.choice(HOSTS[1:])},
    "transaction-outcome": lambda guest: {"transaction_id": f"t{guest.chance.randrange(99)}"},
    "statistics": lambda guest: {},
    "settings": lambda guest: {},
    "reload": lambda guest: {},
    "none": lambda guest: {"queue": "a"},
}
