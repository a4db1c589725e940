"""Routes that are long to find: what they take, and what another client notices meanwhile."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pika import frame, spec

from tests.amqp_wire import Wire
from tests.faults.crowding.attacks import ADDRESS, Amqp, Attack, Going, LongWays, amqp_port, connected
from tests.process import Server

_AT_A_TIME: Final = 500
#: So often another client declares a queue and deletes it.
_EVERY_S: Final = 0.02


@dataclass(frozen=True)
class Routes(Amqp):
    """So many bindings of an exchange of this kind to one queue; of each message ``keys`` keys, which none had before it."""

    kind: str = "topic"
    bindings: int = 1
    keys: int = 1
    #: Another client declares and deletes queues meanwhile.
    beside: bool = False

    def prepare(self, server: Server) -> None:
        wire = Wire(amqp_port(server))
        channel = wire.channel()
        channel.ask(spec.Exchange.Declare(exchange=ADDRESS, type=self.kind))
        channel.ask(spec.Queue.Declare(queue=ADDRESS))
        for start in range(0, self.bindings, _AT_A_TIME):
            part = [self._binding(number) for number in range(start, min(self.bindings, start + _AT_A_TIME))]
            wire.write(b"".join([frame.Method(channel.number, each).marshal() for each in part]))
            for _ in part:
                assert wire.next(channel.number) is not None
        wire.close()

    def _binding(self, number: int) -> Any:
        if self.kind == "headers":
            return spec.Queue.Bind(queue=ADDRESS, exchange=ADDRESS, arguments={"x-match": "all", "kind": "order", "shop": str(number)})
        return spec.Queue.Bind(queue=ADDRESS, exchange=ADDRESS, routing_key=f"shop.{number}.*")

    def begin(self, server: Server) -> Going:
        going = super().begin(server)
        if self.beside:
            ours, theirs = socket.socketpair()
            theirs.setblocking(False)
            going.beside(ours, partial(_declare, server, theirs))
        return going

    def publishes(self, channel: int) -> bytes:
        return b"".join([self._publish(channel, number) for number in range(self.messages)])

    def _publish(self, channel: int, number: int) -> bytes:
        keys = [f"shop.{(number * self.keys + each) % self.bindings}.n{number}-{each}" for each in range(self.keys)]
        headers: dict[str, Any] = {"CC": keys[1:]}
        if self.kind == "headers":
            headers |= {"kind": "order", "shop": str(number % self.bindings)}
        properties = spec.BasicProperties(delivery_mode=1, headers=headers)
        method = spec.Basic.Publish(exchange=ADDRESS, routing_key=keys[0])
        parts = [frame.Method(channel, method), frame.Header(channel, 1, properties), frame.Body(channel, b"x")]
        return b"".join([part.marshal() for part in parts])


def _declare(server: Server, ends: socket.socket) -> None:
    with connected(server) as channel:
        number = 0
        while not _closed(ends):
            number += 1
            channel.queue_declare(f"beside{number}")
            channel.queue_delete(f"beside{number}")
            time.sleep(_EVERY_S)


def _closed(ends: socket.socket) -> bool:
    try:
        return not ends.recv(1)
    except BlockingIOError:
        return False


ROUTES: Final[dict[str, Attack]] = {
    "one-long-way": LongWays(1, 1),
    "five-of-20000-topics": Routes(1, 5, bindings=20_000, keys=200),
    "one-of-5000-headers": Routes(1, 1, kind="headers", bindings=5_000, keys=250),
}
#: Very many, one after the other.
NEW_KEYS: Final[dict[str, Attack]] = {
    "new-topics": Routes(1, 20_000, bindings=5_000),
    "new-topics-declared-beside": Routes(1, 20_000, bindings=5_000, beside=True),
}
