"""What is fuzzed of STOMP: bytes that decide what hostile clients write to a whole broker, valid frames and others, cut anywhere."""

from __future__ import annotations

import logging
import random
from typing import Final

from homing.broker.protocols.stomp.codec import VERSIONS, frame
from homing.broker.protocols.stomp.options import StompOptions
from homing.broker.protocols.stomp.session import StompSession
from tests.fuzz.amqp_targets import Bytes, HostileClients, Socket
from tests.fuzz.journal_words import check_batch
from tests.model.world import World

COMMANDS: Final = ("SEND", "SEND", "SEND", "SUBSCRIBE", "ACK", "ACK", "NACK", "UNSUBSCRIBE", "BEGIN", "COMMIT", "ABORT", "DISCONNECT", "?")
HEADERS: Final = {
    "destination": ("/queue/a", "/queue/a", "/topic/t", "b", "/queue/a::b", "/topic/t::u", "/", "", "#", "x" * 600, "/queue/homing.events"),
    "id": ("1-1", "1-2", "2-1", "s", "1", "0-0", "1-99999999999999999999", "²-1", ""),
    "message-id": ("2", "3", "4", "-1", "x", "9" * 30),
    "subscription": ("s", "1", "/queue/a", ""),
    "ack": ("client", "client-individual", "auto", "never"),
    "transaction": ("t", "u", ""),
    "receipt": ("r", "", "x" * 2000),
    "persistent": ("true", "false", "yes"),
    "priority": ("0", "9", "200", "-1", "²", "high"),
    "expires": ("0", "1", "9999999999999", "9" * 18, "9" * 40, "soon"),
    "selector": ("a = 'b'", "a +", "TRUE"),
    "activemq.prefetchSize": ("0", "1", "5", "-1", "9" * 12),
    "delay": ("0", "100", "9" * 12, "x"),
    "retryable": ("false", "true", "perhaps"),
    "_AMQ_ORIG_ADDRESS": ("a",),
    "JMSXGroupID": ("g",),
    "a": ("b", "é\0", "x" * 3000),
}
LIKELY: Final = {
    "SEND": ("destination",),
    "SUBSCRIBE": ("destination", "id", "ack"),
    "ACK": ("id", "message-id", "subscription"),
    "NACK": ("id", "message-id", "subscription"),
    "UNSUBSCRIBE": ("id", "destination"),
}


class _Broken(logging.Handler):
    """What a session says when it fails on a frame in a turn of its own, where nothing is raised to the test."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(self.format(record))


class Attack(HostileClients):
    """Over STOMP."""

    def __init__(self, data: bytes) -> None:
        self.chance = Bytes(data)
        self.world = World(
            {"a": {"max-delivery-attempts": 2, "redelivery-delay": 50}, "b": {"max-length": 3, "overflow": "reject-publish"}}
        )
        good, _ = self.connect()
        for number in range(3):
            good.receive(frame("SEND", [("destination", "/queue/good"), ("persistent", "true")], b"good%d" % number))
        self.world.commit()
        self.hostile: list[tuple[StompSession, Socket]] = [self.connect(), self.connect()]

    def connect(self) -> tuple[StompSession, Socket]:
        socket = Socket()
        options = StompOptions("homing/0", max_message_bytes=5000, max_properties_bytes=4000)
        session = StompSession(self.world.broker, socket, options, lambda user, password, done: done(""))
        session.receive(frame("CONNECT", [("accept-version", self.chance.choice(VERSIONS))]))
        assert not socket.ended
        return session, socket

    def frame(self) -> bytes:
        chance = self.chance
        command = chance.choice(COMMANDS)
        names = [*LIKELY.get(command, ("transaction",)), *(chance.choice(tuple(HEADERS)) for _ in range(chance.below(4)))]
        headers = [(name, chance.choice(HEADERS[name][: chance.choice((1, 1, 2, 20))])) for name in names]
        made = frame(command, headers, b"x" * chance.choice((0, 0, 1, 20, 4999, 5001)), "1.2")
        kind = chance.below(24)
        at = chance.below(len(made)) if kind < 3 else 0
        return (made[:at] + chance.take(1) + made[at + 1 :], made[:at], chance.take(30))[kind] if kind < 3 else made

    def step(self) -> None:
        which = self.chance.below(2)
        session, socket = self.hostile[which]
        if socket.ended or self.chance.below(60) == 1:
            session.lost()
            self.hostile[which] = self.connect()
            return
        data = b"".join(self.frame() for _ in range(1 + self.chance.below(3)))
        at = self.chance.below(len(data) + 1)
        session.receive(data[:at])
        session.receive(data[at:])
        doing = self.chance.below(8)
        if doing == 1:
            self.world.time_ms += self.chance.choice((1, 100, 5000))
            self.world.turn()
        elif doing < 4:
            check_batch(self.world.journal.batch)
            self.world.commit()
        self.world.check_balance()


def attack(data: bytes) -> None:
    """Whatever hostile clients send: nothing is raised, what is counted agrees, the journal can write it."""
    broken, log = _Broken(), logging.getLogger("homing")
    log.addHandler(broken)
    try:
        Attack(data).run()
    finally:
        log.removeHandler(broken)
    assert not broken.told


def decisions(rng: random.Random) -> bytes:
    """For ``attack``."""
    return rng.randbytes(rng.choice((200, 1000, 4000)))
