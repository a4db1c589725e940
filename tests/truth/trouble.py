"""Trouble that does not depend on the policy, really run under one. The consumer keeps account."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from homing import client
from homing.client import AckMode
from tests.process import Server

MESSAGES = 150
QUEUE = "orders"
#: (message, attempt, milliseconds since the first message was sent) -> the error, or None
Fails = Callable[[int, int, float], Exception | None]


def outage(seed: int) -> Fails:
    """What all depend on is away for a while; one message in twenty is poison."""
    ends_ms = Random(seed).uniform(3_200, 6_400)

    def fails(message: int, attempt: int, at_ms: float) -> Exception | None:
        if message % 20 == 7:
            return ValueError(f"order {message} has no price")
        return ConnectionError("no connection to the warehouse") if at_ms < ends_ms else None

    return fails


def dice(seed: int) -> Fails:
    """Each attempt fails with the same chance."""

    def fails(message: int, attempt: int, at_ms: float) -> Exception | None:
        return TimeoutError("no answer in time") if Random(f"{seed} {message} {attempt}").random() < 0.55 else None

    return fails


def repairs(seed: int) -> Fails:
    """Each message waits for something of its own."""
    times = Random(seed)
    ends_ms = [times.lognormvariate(7.6, 0.8) for _ in range(MESSAGES)]

    def fails(message: int, attempt: int, at_ms: float) -> Exception | None:
        return KeyError(f"customer {message}") if at_ms < ends_ms[message] else None

    return fails


def poison(seed: int) -> Fails:
    """Every fifth message never succeeds; of the others some fail once, with another error."""

    def fails(message: int, attempt: int, at_ms: float) -> Exception | None:
        if message % 5 == seed % 5:
            return ValueError(f"order {message} has no price")
        return TimeoutError("no answer in time") if attempt == 1 and Random(f"{seed} {message}").random() < 0.4 else None

    return fails


def partial(seed: int) -> Fails:
    """A fifth never succeeds, and says the same as the others, of which each attempt fails with the same chance."""

    def fails(message: int, attempt: int, at_ms: float) -> Exception | None:
        never, chance = Random(f"{seed} {message}").random() < 0.2, Random(f"{seed} {message} {attempt}").random()
        return KeyError(f"customer {message}") if never or chance < 0.5 else None

    return fails


@dataclass
class Came:
    """What it came to, of the messages that failed."""

    failures: dict[int, int] = field(default_factory=dict)
    took_ms: dict[int, float] = field(default_factory=dict)

    @property
    def figures(self) -> dict[str, float]:
        home = [took for message, took in self.took_ms.items() if message in self.failures]
        return {
            "deliveries": sum(self.failures.values()) + len(home),
            "dead_letters": len(self.failures) - len(home),
            "succeeded": len(home),
            "time_to_success_ms": sum(home) / len(home),
        }


async def run(directory: Path, policy: dict[str, Any], fails: Fails) -> tuple[Server, Came]:
    """The server is stopped; its data are there."""
    keeps = {"dead-letter-address": "DLA", "auto-create-dead-letter-resources": True}
    server, came = Server(directory, {"address-settings": {"#": keeps, QUEUE: policy}}).start(), Came()
    limit, over = policy["max-delivery-attempts"], 0
    async with client.connect(server.url) as connection, connection.session(AckMode.INDIVIDUAL) as session:
        began = time.monotonic()
        producer = session.producer(QUEUE)
        for number in range(MESSAGES):
            producer.send_nowait(b"%d" % number)
        await producer.flush()
        consumer = session.consumer(QUEUE)
        while over < MESSAGES:
            message = await consumer.receive(timeout_ms=60_000)
            assert message is not None
            number, at_ms = int(message.body), (time.monotonic() - began) * 1000
            error = fails(number, came.failures.get(number, 0) + 1, at_ms)
            if error is None:
                await message.acknowledge()
                came.took_ms[number] = at_ms
            else:
                came.failures[number] = came.failures.get(number, 0) + 1
                await message.nack(error=error)
            over += error is None or came.failures[number] == limit
    server.stop()
    return server, came
