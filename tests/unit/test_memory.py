"""What the account charges is what things take: weights against tracemalloc."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from homing.broker.core.amqp.exchange import Destination
from homing.broker.core.memory import Kind, Memory, Owner
from homing.broker.core.message import HOP_BYTES, REFERENCE_BYTES, Hop, Message, MessageReference
from homing.broker.core.queue import Queue
from homing.broker.core.settings.address_settings import AddressSettings
from homing.broker.errors import Refused
from homing.broker.limits import BrokerLimits
from homing.broker.properties import extra_of, size_of
from homing.broker.protocols.native.codec import PROPERTY_OVERHEAD_BYTES, properties_cost
from homing.journal.contract import weight_of
from tests.model.world import World

MANY = 3000


def taken(make: Callable[[], object]) -> float:
    """Bytes that what is made takes."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        kept = make()
        after, _ = tracemalloc.get_traced_memory()
        del kept
    finally:
        tracemalloc.stop()
    return after - before


@pytest.mark.parametrize(
    ("properties", "most"),
    [
        pytest.param(lambda number: {f"n{number}": f"value {number}"}, 1.5, id="text"),
        pytest.param(lambda number: {f"n{number}": number + 10_000, f"m{number}": number + 20_000}, 1.5, id="whole numbers"),
        pytest.param(lambda number: {f"{at}n{number}": number / 7 for at in range(20)}, 1.7, id="floats"),
        pytest.param(lambda number: {f"{at}n{number}": b"x" * at for at in range(20)}, 1.5, id="binary"),
        pytest.param(lambda number: {f"{at}n{number}": f"{number}{at}" for at in range(20)}, 1.5, id="texts"),
        pytest.param(lambda number: {f"n{number}": f"\N{BALLOON}{number}" + "x" * 300}, 1.5, id="wide text"),
        pytest.param(lambda number: {f"n{number}": f"{number}" + "x" * 2000}, 1.5, id="long text"),
        pytest.param(lambda number: {"a": True, "b": None, "c": False}, 5.0, id="names that all share"),
    ],
)
def test_properties_are_charged_what_they_take(properties: Callable[[int], dict[str, Any]], most: float) -> None:
    size = taken(lambda: [properties(number) for number in range(500)])
    charged = sum(weight_of(properties(number)) for number in range(500))
    assert size * 0.8 <= charged <= size * most, f"{charged / 500:.0f} B are charged for {size / 500:.0f} B"


def test_references_and_hops_are_charged_what_they_take() -> None:
    queue = Queue(1, "q", "q", "anycast", AddressSettings(), created_at_ms=0)

    def messages() -> object:
        made = {}
        for number in range(MANY):
            message = Message(10**6 + number, "q", b"body %d" % number)
            made[message.message_id] = MessageReference(message, queue, message.message_id, 0)
        return made

    size = taken(messages) / MANY
    assert size * 0.75 <= REFERENCE_BYTES + len(b"body 1000") <= size * 1.3

    def hops() -> object:
        return [[Hop(number + 10_000, died(number))] for number in range(MANY)]

    size = taken(hops) / MANY
    assert size * 0.8 <= HOP_BYTES <= size * 1.5


def died(number: int) -> Any:
    return {**_DIED, "at_ms": number + 10_000}


_DIED: dict[str, Any] = {
    "reason": "poison",
    "queue": "q",
    "address": "q",
    "routing_type": "anycast",
    "at_ms": 0,
    "attempts": 1,
    "delivery_count": 1,
    "expires_at_ms": None,
}


def test_credit_is_reckoned_alike_on_both_sides() -> None:
    properties: dict[str, Any] = {"text": "ä", "binary": b"12", "number": 5, "none": None}
    size = size_of(properties)
    assert properties_cost(properties) == size + PROPERTY_OVERHEAD_BYTES * len(properties)
    assert size + extra_of(properties, size) == weight_of(properties)


def test_owners_give_back_what_they_hold() -> None:
    memory = Memory(1000, lambda: 7)
    first, second = Owner(memory, Kind.CONNECTIONS), Owner(memory, Kind.CACHES)
    first.charge(100)
    second.hold(450)
    memory.charge(Kind.QUEUES, 400)
    assert (memory.bytes, memory.room(), memory.full) == (957, -50, False)
    second.hold(50)
    kinds = {"queues": 400, "connections": 100, "sessions": 0, "caches": 50, "declarations": 0, "journal": 7}
    assert memory.described() == {"memory_bytes": 557, "memory": kinds}
    first.close()
    second.close()
    assert (memory.charged, memory.room()) == (400, 500)


class Anybody:
    """A front end that is told and does nothing."""

    writable = True

    def __getattr__(self, name: str) -> Any:
        return lambda *told: None


def test_what_is_declared_is_charged_what_it_takes_and_refused_past_half_of_the_limit() -> None:
    world = World({}, limits=BrokerLimits(memory_bytes=4 << 20))
    broker = world.broker
    connection = broker.connect("", "", Anybody())
    exchanges = broker.virtual_hosts.of_name("/").exchanges
    many = 1000

    def declare(number: int) -> None:
        broker.resources.declare({"queue": f"queue.{number}"})
        broker.subscribe(connection, number + 1, f"queue.{number}", {"prefetch": 10, "selector": f"number = {number} AND kind LIKE 'a%'"})
        broker.open_producer(connection, number + 1, f"queue.{number}")
        broker.high_watermarks[f"{number:032x}/1"] = [number + 1000, number + 10**12]
        exchanges.bind("amq.topic", Destination(f"queue.{number}", True), f"key.{number}", {})

    def all_of_them() -> object:
        for number in range(many):
            declare(number)
        world.commit()
        return None

    size = taken(all_of_them)
    broker.declared.weigh()
    charged = broker.memory.by_kind[Kind.DECLARATIONS]
    # What a process remembers for all its brokers (selectors, names) may be there already.
    assert size * 0.8 <= charged <= size * 3, f"{charged / many:.0f} B are charged for {size / many:.0f} B"
    with pytest.raises(Refused, match="no more consumers"):
        broker.subscribe(connection, 5000, "queue.1", {})
    with pytest.raises(Refused, match="no more producers"):
        broker.open_producer(connection, 5000, "queue.1")
    broker.disconnect(connection, lost=False)
    broker.high_watermarks.clear()
    for queue in list(broker.queues().values()):
        broker.resources.delete_queue(queue)
    broker.declared.weigh()
    assert broker.memory.described()["memory_bytes"] == 0
