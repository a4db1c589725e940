"""Messages that die together become, in the journal and in the queues, what they would have become one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from homing.broker.auth.access import BROKER
from homing.broker.core.amqp.exchange import Destination
from homing.broker.core.message import MessageReference, Properties
from homing.broker.core.queue import Queue
from homing.broker.core.redelivery import Failure
from homing.broker.core.settings.address_settings import AddressSettingsRepository
from homing.broker.delivery import dead_lettering
from homing.broker.delivery.dead_lettering import DeadLetterOffice
from homing.broker.topology.explain import target_of
from homing.journal.contract import Death
from tests import inside
from tests.model.life import Life
from tests.model.world import World

_together = DeadLetterOffice.dead_letter_all


def _one_by_one(
    office: DeadLetterOffice, queue: Queue, references: Sequence[MessageReference], reason: Death, now_ms: int, address: str | None = None
) -> None:
    for reference in references:
        _together(office, queue, (reference,), reason, now_ms, address=address)


def through_an_exchange(life: Life) -> None:
    """By headers, so that the way depends on each message; one of the queues takes three and then is full."""
    client = life.client()
    assert client.connection is not None
    broker = life.world.broker
    exchanges = inside.virtual_hosts(broker).find("/").exchanges
    exchanges.declare(BROKER, "graves", "headers", durable=True, auto_delete=False, internal=False, arguments={})
    for name, colour, arguments in (
        ("red", "red", {"x-max-length": 3, "x-overflow": "reject-publish"}),
        ("blue", "blue", {}),
        ("all", None, {}),
    ):
        declare(life, client.connection, name, arguments)
        match = {"x-match": "any", "colour": colour or "red", **({} if colour else {"colour2": "x"})}
        exchanges.bind(BROKER, "graves", Destination(name, is_queue=True), "", match)
    declare(life, client.connection, "a", {"x-dead-letter-exchange": "graves", "x-delivery-limit": 0})


def to_an_address(life: Life) -> None:
    broker = life.world.broker
    for name, selector, most in (("red", "colour = 'red'", 3), ("blue", "colour = 'blue'", None), ("all", "colour = 'red'", None)):
        options = {"queue": name, "address": "DLA", "routing_type": "multicast", "selector": selector}
        inside.resources(broker).declare(BROKER, options if most is None else {**options, "max_length": most, "overflow": "reject-publish"})
    inside.resources(broker).declare(BROKER, {"queue": "a"})


def declare(life: Life, connection: Any, name: str, arguments: dict[str, Any]) -> None:
    inside.declared_queues(life.world.broker).declare(
        connection, name, durable=True, exclusive=False, auto_delete=False, arguments=arguments
    )


def dead(monkeypatch: pytest.MonkeyPatch, setting: Any, dead_letter_all: Any) -> dict[str, Any]:
    monkeypatch.setattr(DeadLetterOffice, "dead_letter_all", dead_letter_all)
    life = Life({"dead-letter-address": "DLA", "auto-create-dead-letter-resources": False, "max-delivery-attempts": 1})
    setting(life)
    client = life.client()
    colours: list[Properties | None] = [{"colour": name} for name in ("red", "red", "blue", "red", "blue", "red", "red", "green")]
    for number, properties in enumerate([*colours, None, None]):
        life.send(client, "a", str(number), properties=properties, durable=number != 2)
    consumer = life.subscribe(client, "a", prefetch=100)
    life.world.commit()
    life.world.time_ms += 1000
    inside.settlement(life.world.broker).fail(consumer, list(consumer.unsettled.values()), Failure(), "nack", {})
    life.world.check_balance()
    references = inside.references(life.world.broker)
    memory = (inside.memory(life.world.broker).charged, references.durable_bytes, references.transient_bytes)
    life.world.commit()
    life.world.check_balance()
    return {"queues": {name: contents(life.queue(name)) for name in ("a", "red", "blue", "all")}, "memory": memory}


def contents(queue: Queue) -> list[Any]:
    return sorted(
        (r.message.body, r.where, r.park_reason, r.failed, r.hops, r.message.shared, r.message.stored) for r in queue.references.values()
    )


@pytest.mark.parametrize("setting", [through_an_exchange, to_an_address])
@pytest.mark.plain
def test_together_or_one_by_one(monkeypatch: pytest.MonkeyPatch, setting: Any) -> None:
    together = dead(monkeypatch, setting, _together)
    assert together == dead(monkeypatch, setting, _one_by_one)
    bodies = {name: [row[0] for row in rows] for name, rows in together["queues"].items()}
    assert bodies["red"] == bodies["all"] == [b"0", b"1", b"3"]
    assert bodies["blue"] == [b"2", b"4"]
    assert {b"5", b"6"} <= set(bodies["a"]), "what found a target full is parked"


@pytest.mark.plain
def test_a_message_leaves_one_queue_when_it_enters_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def now_ms(world: World) -> int:
        """Each look at the clock finds another millisecond."""
        world.time_ms += 1
        return world.time_ms

    monkeypatch.setattr(World, "now_ms", now_ms)
    life = Life({"max-delivery-attempts": 1})
    broker, client = life.world.broker, life.client()
    life.send(client, "a", "one")
    consumer = life.subscribe(client, "a")
    life.world.commit()
    inside.settlement(broker).fail(consumer, list(consumer.unsettled.values()), Failure(), "nack", {})
    (dead,) = life.queue("DLQ.a").references.values()
    (ended,) = life.world.journal.batch.outcomes
    assert (ended.outcome, ended.at_ms) == ("dead-lettered", dead.entered_at_ms)
    life.world.commit()
    inside.transfer(broker).put(dead, life.queue("a"))
    (ended,) = life.world.journal.batch.outcomes
    (moved,) = life.queue("a").references.values()
    assert (ended.outcome, ended.at_ms) == ("moved", moved.entered_at_ms)


@pytest.mark.plain
def test_where_dead_letters_go_is_remembered_until_bindings_or_settings_change(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def noted(state: Any, queue: Queue, reason: Death) -> Any:
        asked.append(queue.name)
        return target_of(state, queue, reason)

    monkeypatch.setattr(dead_lettering, "target_of", noted)
    life = Life({"dead-letter-address": "DLA", "max-delivery-attempts": 1})
    client, broker = life.client(), life.world.broker
    consumer = life.subscribe(client, "a", prefetch=1)

    def dies(*bodies: str) -> int:
        """How often it was worked out where they go."""
        before = len(asked)
        for body in bodies:
            life.send(client, "a", body)
            life.world.commit()
            inside.settlement(broker).fail(consumer, list(consumer.unsettled.values()), Failure(), "nack", {})
            life.world.commit()
        return len(asked) - before

    def there(queue: str) -> list[bytes]:
        return [each.message.body for each in life.queue(queue).references.values()]

    # The first makes the queue, which is another way for the second.
    assert dies("1", "2", "3", "4") == 2
    inside.resources(broker).declare(
        BROKER, {"queue": "twos", "address": "DLA", "routing_type": "multicast", "selector": "_HOMING_REASON <> 'x'"}
    )
    assert dies("5", "6") == 1
    assert (there("DLQ.a"), there("twos")) == ([b"1", b"2", b"3", b"4", b"5", b"6"], [b"5", b"6"])
    again = {"dead-letter-address": "DLA", "dead-letter-queue-prefix": "again.", "max-delivery-attempts": 1}
    inside.apply_settings(broker, AddressSettingsRepository({"#": {"redelivery-delay": 0, **again}}))
    assert dies("7", "8", "9") == 2
    assert (there("again.a"), there("twos")[2:]) == ([b"7", b"8", b"9"], [b"7", b"8", b"9"])
