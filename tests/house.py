"""A broker, somebody who may do everything, and for each right somebody who may do everything but what takes that."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
from argon2 import PasswordHasher
from pika.adapters.blocking_connection import BlockingChannel

import homing
from homing.broker.core.rights import Right
from homing.client import AckMode, blocking
from tests.amqp_support import AMQP, amqp_port
from tests.process import Server, wait_until
from tests.stomp_support import STOMP

#: Of the password "pw"; made to be cheap to check.
HASH = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash("pw")


class House:
    """Connections of its users, of which some stay open."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.admin = self.native("admin")
        self._names = count(1)
        self._native: dict[str, blocking.Connection] = {}
        self._amqp: dict[str, Any] = {}

    def native(self, user: str) -> blocking.Connection:
        return blocking.connect(self.server.url.replace("//", f"//{user}:pw@"), reconnect=False)

    def amqp(self, user: str, virtual_host: str = "/") -> Any:
        credentials = pika.PlainCredentials(user, "pw")
        return pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", amqp_port(self.server), virtual_host, credentials, socket_timeout=30)
        )

    def client(self, name: str, user: str | None = None) -> blocking.Connection:
        """The one connection of that name, which is the user's unless another is named."""
        if name not in self._native:
            self._native[name] = self.native(user or name)
        return self._native[name]

    def channel(self, user: str) -> BlockingChannel:
        if user not in self._amqp:
            self._amqp[user] = self.amqp(user)
        channel: BlockingChannel = self._amqp[user].channel()
        return channel

    def name(self) -> str:
        return f"n{next(self._names)}"

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.server.directory / "audit.log").read_text().splitlines()]

    def state(self) -> Any:
        """What an operation might have changed."""
        lists = {verb: self.admin.listing(verb) for verb in ("policies", "list-settings", "vhosts", "users")}
        queues = [(each["name"], each["messages"], each["paused"]) for each in self.admin.listing("queues")]
        return queues, {verb: [without_connections(each) for each in found] for verb, found in lists.items()}

    def close(self) -> None:
        for opened in (self.admin, *self._native.values(), *self._amqp.values()):
            with suppress(homing.HomingError, pika.exceptions.AMQPError):
                opened.close()


def without_connections(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name != "connections"}


@contextmanager
def opened(directory: Path) -> Iterator[House]:
    users: dict[str, Any] = {"admin": HASH}
    for right in Right:
        users[f"no-{right}"] = {"hash": HASH, "grants": [{"rights": [str(each) for each in Right if each is not right]}]}
    # Nothing goes by itself while somebody looks whether anything has changed.
    settings = {"#": {"redelivery-delay": 0, "auto-delete-queues": False}}
    config = {**AMQP, **STOMP, "audit": {"file": "audit.log"}, "users": users, "address-settings": settings}
    server = Server(directory, config).start()
    found = House(server)
    yield found
    found.close()
    server.close()
    gc.collect()


def made(house: House, name: str) -> None:
    house.admin.call("create-queue", queue=name)


def filled(house: House, name: str) -> int:
    """A queue with one message, whose number is returned."""
    house.admin.session().producer(name).send(b"x")
    (found,) = house.admin.call("peek", queue=name)["messages"]
    return int(found["message_id"])


def dead(house: House, name: str) -> dict[str, Any]:
    """A message that failed, and is in ``DLQ.<name>``: its history."""
    number = filled(house, name)
    with house.admin.session(AckMode.INDIVIDUAL) as session:
        message = session.consumer(name).receive(timeout_ms=20_000)
        assert message is not None
        message.nack(error=f"broken {name}", retryable=False)
    wait_until("it is dead", lambda: any(each["name"] == f"DLQ.{name}" for each in house.admin.listing("queues")))
    found: dict[str, Any] = house.admin.call("history", message_id=number)
    return found
