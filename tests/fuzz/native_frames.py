"""Frames that a hostile client may send: of every operation, mostly such as a client would, some with a field that is none."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from homing.broker.protocols.native.codec import Op

NAMES = ["a", "b", "a.b", "DLA", "DLQ.a", "x" * 512, "a::b", "*", "", "ü", "a\n", "$sys"]
ODD: list[Any] = [None, True, False, 0, 1, -1, 7, 2**31, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 0.5, float("nan"), float("inf")]
ODD += ["", "text", "é" * 300, b"", b"bytes", [], {}, [[]], [1, 2], {"a": 1}, {"": None}, [[b"x"]], [1, 2**62]]
VERBS = ["queues", "peek", "history", "explain", "create-queue", "delete-queue", "purge", "pause", "resume", "redrive", "consumers", "none"]
VERBS += ["queue", "connections", "statistics", "list-settings", "why", "last-attempts"]
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
SETTINGS: list[Any] = [
    {"message-ttl": "5ms", "max-length": 1, "overflow": "drop-head"},
    {"redelivery-delays": [1, 2]},
    {"redelivery_delay_ms": 5, "max-delivery-attempts": 2, "dead-letter-address": None},
    {"min-ttl": 5, "max-ttl": 1},
    {"no-such": 1},
]
SELECTORS = ["a = 1", "p LIKE '%a_b%'", "a =", "NOT (a IN ('x'))", "TRUE", "(" * 80]


class Frames:
    """Draws frames. ``next_sequence`` says what number producer 1 is expected to send next."""

    def __init__(self, chance: random.Random, next_sequence: Callable[[], int]) -> None:
        self.chance = chance
        self.next_sequence = next_sequence

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
            # Numbers and patterns that do not mean what is the good client's.
            "why": {"message_id": self.odd(chance.randrange(60))},
            "delete-message": {"message_id": chance.randrange(21, 80), "queue": self.odd(self.name())},
            "move-message": {"message_id": chance.randrange(21, 80), "queue": self.odd(self.name()), "source": self.odd(self.name())},
            "last-attempts": {"stays": self.odd([[self.odd(chance.randrange(60)), chance.randrange(60)]])},
            "set-settings": {"layers": {chance.choice(("a", "a.#", "#.b")): self.odd(chance.choice(SETTINGS))}, "dry_run": self.odd(False)},
            "unset-settings": {"pattern": self.odd(chance.choice(("a", "a.#", "#.b"))), "keys": self.odd(None)},
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
