"""Twenty clients at once, each with one request after the other of kinds that may be long, drawn by chance."""

from __future__ import annotations

import random
import select
import socket
import urllib.request
from functools import partial
from typing import Any, Final

from pika import spec
from pika.adapters.blocking_connection import BlockingChannel

from homing.broker.protocols.native.codec import Op
from tests.faults.crowding.attacks import ADDRESS, Attack, Going, LongWays, connected
from tests.faults.hostile import Raw
from tests.process import Server

_WAIT_S: Final = 120.0


class Anything(Attack):
    """Publishes along long ways and to many queues, bindings, declarations, deliveries that end by the thousand, queues that are deleted
    with what is in them, other settings and policies for all queues, scrapes."""

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
            client = _Client(server, channel, rng)
            while done[0] < self.messages and not select.select([ends], [], [], 0)[0]:
                rng.choice(client.requests)()
                done[0] += 1


class _Client:
    def __init__(self, server: Server, channel: BlockingChannel, rng: random.Random) -> None:
        self._server, self._channel, self._rng = server, channel, rng
        self._name = f"own{rng.random()}"
        self.requests = (self.long_way, self.wide, self.bind, self.declare, self.fill, self.settle, self.delete, self.change, self.scrape)
        self._declare()

    def _declare(self) -> None:
        self._channel.queue_declare(self._name, durable=True, arguments={"x-max-length": 20_000})

    def long_way(self) -> None:
        rng = self._rng
        keys = [".".join([f"w{rng.randrange(1_000)}", *["a"] * rng.randrange(50)]) for _ in range(rng.randrange(200))]
        self._channel.basic_publish(ADDRESS, "none", b"x", spec.BasicProperties(headers={"CC": keys}))

    def wide(self) -> None:
        self._channel.basic_publish("wide", "", b"x")

    def bind(self) -> None:
        self._channel.queue_bind(self._name, ADDRESS, "#.a." * self._rng.randrange(60) + str(self._rng.random()))

    def declare(self) -> None:
        for number in range(self._rng.randrange(30)):
            self._channel.queue_declare(f"{self._name}.{number}")
        for number in range(30):
            self._channel.queue_delete(f"{self._name}.{number}")

    def fill(self) -> None:
        durable = spec.BasicProperties(delivery_mode=self._rng.choice((1, 2)))
        for _ in range(self._rng.randrange(5_000)):
            self._channel.basic_publish("", self._name, b"x", durable)

    def settle(self) -> None:
        """All that is delivered within a second or so, at once and in one of several ways."""
        rng = self._rng
        with connected(self._server) as channel:
            taken = [0]
            channel.basic_consume(self._name, lambda *_: taken.__setitem__(0, taken[0] + 1))
            while (before := taken[0]) < 10_000:
                channel.connection.process_data_events(0.2)
                if taken[0] == before:
                    break
            match rng.randrange(5):
                case 0:
                    channel.basic_ack(0, multiple=True)
                case 1 | 2:
                    channel.basic_nack(0, multiple=True, requeue=rng.random() < 0.5)
                case 3:
                    channel.basic_recover(requeue=True)
                case _:
                    # What is left comes back with the connection.
                    pass

    def delete(self) -> None:
        if self._rng.random() < 0.5:
            self._channel.queue_purge(self._name)
        self._channel.queue_delete(self._name)
        self._declare()

    def change(self) -> None:
        number = self._rng.randrange(3, 9)
        verb, arguments = self._rng.choice(
            (
                ("set-settings", {"layers": {"#": {"max-delivery-attempts": number}}}),
                ("set-settings", {"layers": {self._name: {"max-length": 1_000 * number, "overflow": "drop-head"}}}),
                ("preview-settings", {"layers": {"#": {"max-delivery-attempts": number}}}),
                ("set-policy", {"name": "all", "pattern": "^wide", "definition": {"delivery-limit": number}}),
                ("statistics", {}),
            )
        )
        self._call(verb, arguments)

    def _call(self, verb: str, arguments: dict[str, Any]) -> None:
        with Raw(self._server.url) as raw:
            raw.send(Op.CALL, 1, verb, arguments)
            answer = raw.next(_WAIT_S)
            assert answer is not None
            assert answer[0] == Op.RESULT, answer

    def scrape(self) -> None:
        with urllib.request.urlopen(f"http://{self._server.ready['http']}/metrics", timeout=_WAIT_S) as answer:
            assert b"homing_queue_messages" in answer.read()
