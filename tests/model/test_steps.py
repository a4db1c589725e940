"""No request, however much it concerns, does more in one turn of the loop than a budget says: counted in work done, not by the clock.

Each is made of a broker that serves, through a socket, with so many objects that it would be beyond the budget if it were not in steps.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from pika import frame, spec

from homing.testing import Broker
from tests.amqp_wire import Ch, Wire
from tests.turns import Turns

#: Lines that a turn may execute: some 10 to 20 ms.
BUDGET = 150_000
QUEUES = 1_000
MESSAGES = 2_000
#: That ask at once, and requests of each.
CLIENTS, MIXED = 4, 6
DELIVER = b"\0\x3c\0\x3c"


@pytest.mark.plain
def test_no_turn_does_more_of_a_request_than_it_may() -> None:
    found = asyncio.run(measured())
    assert len(found) == len(REQUESTS) + len(CALLS) + 1
    assert {name: f"{lines:,}: {where}" for name, (lines, where) in found.items() if lines > BUDGET} == {}


async def measured() -> dict[str, tuple[int, object]]:
    """Lines of the longest turn of each request, and where most of them are."""
    found: dict[str, tuple[int, object]] = {}
    async with Broker({"amqp": {}, "address-settings": {"#": {"redelivery-delay": 0}}}) as broker, broker.connect() as connection:
        port = int(str(broker.amqp_url).rstrip("/").rpartition(":")[2])
        await asyncio.to_thread(declare, port)
        turns = Turns(asyncio.get_running_loop())
        for name, (prepare, request) in REQUESTS.items():
            wire = await asyncio.to_thread(prepare, port)
            await broker.settled()
            turns.begin()
            await asyncio.to_thread(request, wire)
            await broker.settled()
            found[name] = turns.end()
            await asyncio.to_thread(wire.close)
        for verb, arguments in CALLS:
            turns.begin()
            await connection.call(verb, **arguments)
            await broker.settled()
            found[f"{verb} {arguments}"] = turns.end()
        turns.begin()
        await asyncio.gather(*[asyncio.to_thread(mixed, port, seed) for seed in range(CLIENTS)])
        await broker.settled()
        found["anything"] = turns.end()
    return found


def mixed(port: int, seed: int) -> None:
    """One of several clients at once, each with one request after the other that is drawn by chance."""
    rng, wire, name = random.Random(seed), connected(port), f"own.{seed}"
    # Its length is limited, so that each message is looked at by itself.
    ask_all(wire, [spec.Queue.Declare(queue=name, arguments={"x-max-length": 10_000})])
    counted = spec.Queue.Declare(queue=name, passive=True)
    names = [f"{name}.{number}" for number in range(100)]
    for _ in range(MIXED):
        match rng.randrange(6):
            case 0:
                publish(wire, "", name, rng.randrange(2_000))
            case 1:
                publish(wire, "some", "", rng.randrange(4))
            case 2:
                patterns = ["#.a." * rng.randrange(50) + str(rng.random()) for _ in range(50)]
                ask_all(wire, [spec.Queue.Bind(queue=name, exchange="amq.topic", routing_key=pattern) for pattern in patterns])
            case 3:
                publish(wire, "amq.topic", ".".join(["a"] * rng.randrange(100)), 20)
            case 4:
                ask_all(wire, [spec.Queue.Declare(queue=each) for each in names] + [spec.Queue.Delete(queue=each) for each in names])
            case _:
                ask_all(wire, [spec.Queue.Purge(queue=name)])
        ask_all(wire, [counted])
    wire.close()


def publish(wire: Wire, exchange: str, key: str, number: int) -> None:
    """In one write."""
    parts = [frame.Method(1, spec.Basic.Publish(exchange=exchange, routing_key=key)), frame.Header(1, 1, spec.BasicProperties())]
    wire.write(b"".join([part.marshal() for part in (*parts, frame.Body(1, b"x"))]) * number)


def ask_all(wire: Wire, methods: list[Any]) -> None:
    """In one write."""
    wire.write(b"".join([frame.Method(1, method).marshal() for method in methods]))
    for _ in methods:
        assert wire.next(1, 60) is not None


def declare(port: int) -> None:
    wire = Wire(port)
    wire.channel().ask(spec.Exchange.Declare(exchange="wide", type="fanout"))
    for start in range(0, QUEUES, 500):
        names = [f"many.{number}" for number in range(start, start + 500)]
        ask_all(wire, [each for name in names for each in (spec.Queue.Declare(queue=name), spec.Queue.Bind(queue=name, exchange="wide"))])
    # One message is one step, however many queues it is for: of these it is less than the budget.
    binds = [spec.Queue.Bind(queue=f"many.{number}", exchange="some") for number in range(300)]
    ask_all(wire, [spec.Exchange.Declare(exchange="some", type="fanout"), *binds])
    wire.close()


def connected(port: int) -> Wire:
    wire = Wire(port)
    wire.channel()
    return wire


def filled(port: int) -> Wire:
    """There are as many in a queue ``full``, in memory only."""
    wire = connected(port)
    channel = Ch(wire, 1)
    ask_all(wire, [spec.Queue.Declare(queue="full", durable=True), spec.Confirm.Select()])
    missing = MESSAGES - channel.count("full")
    parts = [frame.Method(1, spec.Basic.Publish(routing_key="full")), frame.Header(1, 1, spec.BasicProperties()), frame.Body(1, b"x")]
    wire.write(b"".join([part.marshal() for part in parts]) * missing)
    confirmed = 0
    while confirmed < missing:
        confirmed = wire.next(1).delivery_tag
    return wire


def held(port: int) -> Wire:
    """All of them were delivered to a consumer that is no more."""
    wire = filled(port)
    wire.send(1, spec.Basic.Consume(queue="full", consumer_tag="all"))
    wire.socket.settimeout(60)
    came = b""
    while came.count(DELIVER) < MESSAGES:
        came += wire.socket.recv(1 << 20)
    wire.send(1, spec.Basic.Cancel("all"))
    wire.raw_until(b"\x03all\xce")
    return wire


def asked(*methods: Any) -> Callable[[Wire], None]:
    return lambda wire: ask_all(wire, list(methods))


def then_counted(*methods: Any) -> Callable[[Wire], None]:
    """Of methods without an answer: what is answered behind them."""

    def ask(wire: Wire) -> None:
        wire.write(b"".join([frame.Method(1, method).marshal() for method in methods]))
        ask_all(wire, [spec.Queue.Declare(queue="full", passive=True)])

    return ask


REQUESTS: dict[str, tuple[Callable[[int], Wire], Callable[[Wire], None]]] = {
    "requeue": (held, then_counted(spec.Basic.Nack(0, True, True))),
    "lost": (held, Wire.cut),
    "nack": (held, then_counted(spec.Basic.Nack(0, True, False))),
    "purge": (filled, asked(spec.Queue.Purge(queue="full"))),
    "delete": (filled, asked(spec.Queue.Delete(queue="full"))),
    "declare": (connected, asked(*[spec.Queue.Declare(queue=f"many.{number}") for number in range(QUEUES)])),
    "delete-exchange": (connected, asked(spec.Exchange.Delete(exchange="wide"))),
}
_ALL = {"#": {"max-delivery-attempts": 7}}
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("set-settings", {"layers": _ALL, "dry_run": True}),
    ("preview-settings", {"layers": _ALL}),
    ("set-settings", {"layers": _ALL}),
    ("set-policy", {"name": "all", "pattern": "^many", "definition": {"delivery-limit": 7}}),
    ("set-settings", {"layers": {"DLQ.full": {"max-length": 5, "overflow": "drop-head"}}}),
    ("statistics", {}),
]
