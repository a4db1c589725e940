"""Random frames into a whole broker in this process: whatever comes, only ProtocolError may escape a session, the books stay such
that the journal can write them, and another client's messages stay where they are.

``scripts/fuzz SECONDS`` runs this for as long as it is told, from a fresh seed that it prints; HOMING_SEED repeats a run.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from typing import Any

from broker.broker import Broker
from broker.config import Change
from broker.core.address_settings import AddressSettingsRepository
from broker.errors import Refused
from broker.management.calls import Calls
from broker.protocols.native.codec import FrameDecoder, Op, ProtocolError, encode
from broker.protocols.native.session import NativeOptions, NativeSession
from tests.faults.hostile import check_words
from tests.fuzz.journal_words import check_group
from tests.model.world import DictJournal

SECONDS = float(os.environ.get("HOMING_FUZZ_SECONDS", "4"))
SEED = int(os.environ.get("HOMING_SEED", "20261121"))
NAMES = ["a", "b", "a.b", "DLA", "DLQ.a", "x" * 512, "a::b", "*", "", "ü", "a\n", "$sys"]
ODD: list[Any] = [None, True, False, 0, 1, -1, 7, 2**31, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 0.5, float("nan"), float("inf")]
ODD += ["", "text", "é" * 300, b"", b"bytes", [], {}, [[]], [1, 2], {"a": 1}, {"": None}, [[b"x"]], [1, 2**62]]
VERBS = ["queues", "peek", "history", "explain", "create-queue", "delete-queue", "purge", "pause", "resume", "redrive", "consumers", "none"]
HOSTS = ["/", "shop", "", "a/b", "x" * 200, "ü", "a\n"]
#: Of queues whose names begin with a: the good client's must keep what they hold.
PATTERNS = ["^a", "^a.*", "^a(b|)+$", "^a(", "^[a"]
DEFINITIONS: list[Any] = [
    {"message-ttl": 5, "max-length": 1, "overflow": "drop-head"},
    {"max-length": 2, "overflow": "reject-publish-dlx", "dead-letter-exchange": "", "dead-letter-routing-key": "a"},
    {"delivery-limit": 1, "expires": 10},
    {"max-length": -1},
    {"no-such": 1},
    {"alternate-exchange": "amq.fanout"},
]
ARGUMENTS = ["queue", "address", "selector", "limit", "after", "message_id", "message_ids", "if_empty", "routing_type", "durable"]
ARGUMENTS += ["message_ttl_ms", "max_length", "overflow", "dead_letter_address", "expiry_address", "redelivery_delay_ms", "exclusive"]
SELECTORS = ["a = 1", "p LIKE '%a_b%'", "a =", "NOT (a IN ('x'))", "TRUE", "(" * 80]


class Socket:
    """The transport's side: keeps what is written as frames, and whether it ended."""

    def __init__(self) -> None:
        self.decoder = FrameDecoder(1 << 30)
        self.frames: list[list[Any]] = []
        self.ended = False
        self.writable = True

    def write(self, data: bytes) -> None:
        self.frames += self.decoder.feed(data)

    def end(self) -> None:
        self.ended = True

    leave = end

    def opened(self, heartbeat_ms: int) -> None:
        assert heartbeat_ms >= 0


class NoHost:
    def history(self, message_id: int) -> dict[str, Any] | None:
        return None

    def committed(self, transaction_id: str) -> bool:
        return False

    def settings_in_force(self) -> dict[str, Any]:
        return {}

    def statistics(self) -> dict[str, Any]:
        return {}

    async def reload(self) -> list[Change]:
        raise Refused("no-config-file", "there is none", "none is needed")


class House:
    """A broker, a good client's messages in it, and hostile sessions that come and go."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.journal = DictJournal()
        self.now_ms = 1_800_000_000_000
        layers = {"#": {"dead-letter-address": "DLA", "auto-create-dead-letter-resources": True, "redelivery-delay": 5}}
        self.broker = Broker(self.journal, AddressSettingsRepository(layers), lambda: self.now_ms, random.Random(seed), lambda: None)
        self.calls = Calls(self.broker, NoHost())
        good, socket = self.session()
        good.receive([[Op.PRODUCER, 1, 1, "good"]])
        self.turn()
        good.receive([[Op.SEND, 1, 1, [[b"good%d" % n] for n in range(20)]]])
        self.turn()
        assert [Op.CONFIRM, 1, 20] in socket.frames
        self.hostile, self.socket = self.session()

    def session(self) -> tuple[NativeSession, Socket]:
        socket = Socket()
        session = NativeSession(self.broker, socket, NativeOptions("id", "fuzz"), lambda user, password, done: done(""), self.calls.run)
        session.receive(
            [[Op.HELLO, "homing", 1, {"client_id": f"c{self.chance.randrange(1 << 60)}", "joins_bodies": self.chance.random() < 0.5}]]
        )
        assert socket.frames[-1][0] == Op.WELCOME
        return session, socket

    def turn(self) -> None:
        """One turn of the loop: dispatch, what is due, and a commit, whose records must be such as SQLite takes."""
        self.now_ms += self.chance.choice((0, 1, 10, 2000))
        self.broker.drain()
        self.broker.tick()
        check_group(self.journal.group)
        self.journal.commit()

    async def step(self) -> None:
        frames = [self.frame() for _ in range(self.chance.choice((1, 1, 2, 5)))]
        try:
            self.hostile.receive([frame for each in frames for frame in FrameDecoder().feed(encode(each))])
        except ProtocolError as error:
            self.hostile.broken(error)
            if not self.socket.frames:
                raise
            check_words(self.socket.frames[-1][1:])
        self.turn()
        await asyncio.sleep(0)  # calls that work in steps, and reads of the journal, go on in the loop
        assert not any("internal-error" in frame for frame in self.socket.frames)
        if self.socket.ended or self.chance.random() < 0.01:
            self.hostile.lost()
            self.hostile, self.socket = self.session()
        self.socket.frames.clear()

    # -- what a hostile client may send

    def odd(self, right: Any) -> Any:
        return self.chance.choice(ODD) if self.chance.random() < 0.08 else right

    def number(self) -> int:
        return self.chance.choice((1, 1, 1, 2, 3, 50))

    def name(self) -> str:
        return self.chance.choice(NAMES[:5]) if self.chance.random() < 0.8 else self.chance.choice(NAMES)

    def ranges(self) -> list[int]:
        first = self.chance.randrange(1, 30)
        return self.chance.choice(([first, first], [1, first], [first, 2**62], [first, first + 1, first + 5, first + 9]))

    def message(self) -> list[Any]:
        chance = self.chance
        properties = {chance.choice("pqk"): chance.choice(["a" * 50, 1, None, 2.5, b"x"])}
        return [
            chance.randbytes(chance.choice((0, 5, 300))),
            self.odd(properties),
            self.odd(chance.randrange(10)),
            self.odd(chance.random() < 0.8),
            self.odd(chance.choice((0, 0, 5, 10**6))),
            self.odd(chance.choice((0, 0, 5, 3000))),
            self.odd(chance.choice((None, "same", "other"))),
        ][: chance.choice((1, 1, 2, 7))]

    def options(self) -> dict[str, Any]:
        chance = self.chance
        options: dict[str, Any] = {}
        if chance.random() < 0.5:
            options["prefetch"] = self.odd(chance.choice((0, 1, 10, 1000)))
        if chance.random() < 0.2:
            options["selector"] = self.odd(chance.choice(SELECTORS))
        if chance.random() < 0.2:
            options |= {"session": self.odd(1), "transacted": self.odd(True)}
        if chance.random() < 0.2:
            options["redelivery_policy"] = self.odd({"maximum_redeliveries": self.odd(1), "redelivery_delay_ms": self.odd(3)})
        return options

    def call(self) -> list[Any]:
        """A verb, mostly with arguments that it knows."""
        chance = self.chance
        made: dict[str, dict[str, Any]] = {
            "policies": {},
            "vhosts": {},
            "set-policy": {
                "name": self.odd(chance.choice("pq")),
                "pattern": self.odd(chance.choice(PATTERNS)) or "^a",  # an empty one would hold for the good client too
                "definition": self.odd(chance.choice(DEFINITIONS)),
                "apply_to": self.odd(chance.choice(("queues", "all", "exchanges"))),
                "priority": self.odd(chance.randrange(3)),
            },
            "clear-policy": {"name": self.odd(chance.choice("pq"))},
            "add-vhost": {"name": self.odd(chance.choice(HOSTS))},
            "delete-vhost": {"name": self.odd(chance.choice(HOSTS[1:]))},
        }
        if chance.random() < 0.3:
            verb, arguments = chance.choice(list(made.items()))
            if verb.endswith("policy") and chance.random() < 0.3:
                arguments["virtual_host"] = self.odd(chance.choice(HOSTS))
            return [self.number(), verb, self.odd(arguments)]
        arguments = {name: self.odd(self.name()) for name in chance.sample(ARGUMENTS, chance.randrange(4))}
        return [self.number(), self.odd(chance.choice(VERBS)), self.odd({"queue": self.name(), **arguments})]

    def frame(self) -> list[Any]:
        chance = self.chance
        session = chance.choice((0, 0, 0, 1, 2))
        failure = {"reason": "r", "delay_ms": self.odd(5), "count": self.odd(True), "retryable": self.odd(chance.random() < 0.8)}
        made: dict[Op, list[Any]] = {
            Op.CALL: self.call(),
            Op.PRODUCER: [self.number(), self.number(), self.odd(self.name())],
            Op.SEND: [self.number(), self.odd(0 if session else self.next_sequence()), [self.message() for _ in range(3)], session],
            Op.SEND_BODIES: [self.number(), self.odd(self.next_sequence()), self.message()[2:6], [self.odd(b"b"), b"c"]],
            Op.END_PRODUCER: [self.number()],
            Op.SUBSCRIBE: [self.number(), self.number(), self.odd(self.name()), self.odd(self.options())],
            Op.GIVEN: [self.number(), self.odd(chance.randrange(30))],
            Op.ACK: [self.number(), chance.randrange(-1, 8), self.odd(self.ranges()), self.odd(failure), self.number(), session],
            Op.PULL: [self.number(), self.odd(chance.choice((-1, 0, 5)))],
            Op.TOUCH: [self.number(), self.odd(self.ranges())],
            Op.UNSUBSCRIBE: [self.number(), self.number()],
            Op.COMMIT: [self.number(), 1, self.odd(f"t{chance.randrange(99)}"), self.odd(chance.randrange(4))],
            Op.ROLLBACK: [self.number(), self.odd(1)],
            Op.SESSION_ENDED: [self.number(), 1],
            Op.CLOSE: [1],
        }
        weights = [1 if op is Op.CLOSE else 8 for op in made]
        op = chance.choices(list(made), weights)[0]
        fields = [self.odd(field) if chance.random() < 0.1 else field for field in made[op]]
        return [int(op), *fields][: None if chance.random() < 0.97 else chance.randrange(1, 8)]

    def next_sequence(self) -> int:
        connection = self.hostile._connection
        producer = connection.producers.get(1) if connection is not None else None
        return producer.mark + 1 if producer is not None else 1

    def check(self) -> None:
        queue = self.broker.state.post_office.queues.get("good")
        if queue is not None:
            bodies = [each.message.body for each in queue.references.values() if each.message.body.startswith(b"good")]
            assert bodies == [b"good%d" % n for n in range(20)]
        for queue in self.broker.state.post_office.queues.values():
            for reference in queue.references.values():
                consumer = reference.consumer
                assert (
                    consumer is None
                    or (consumer.unsettled[reference.tag] is reference and consumer in queue.consumers)
                    or consumer.transacted
                )
        assert self.broker.state.memory_bytes >= 0


async def test_nothing_a_client_sends_breaks_the_broker() -> None:
    print(f"seed {SEED}, {SECONDS:g} s; HOMING_SEED={SEED} repeats it")
    end = time.monotonic() + SECONDS
    houses = 0
    while not houses or time.monotonic() < end:
        seed = SEED + houses
        house = House(seed)
        steps = 0
        try:
            for steps in range(150):  # noqa: B007
                await house.step()
            house.check()
        except Exception as error:
            error.add_note(f"house {seed}, step {steps}")
            raise
        houses += 1
    print(f"{houses} houses of 150 steps")
