"""Lists come in pages: each is bounded, and together they are the whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgpack import packb

from homing.broker.auth.access import BROKER
from homing.broker.broker import Broker
from homing.broker.core.amqp.policy import read_policy
from homing.broker.errors import Refused
from homing.broker.management import policies, queues, virtual_hosts
from homing.broker.management.arguments import taken
from homing.broker.management.pages import MAX_PAGE, MAX_WHOLE
from homing.broker.management.statistics import Meter
from homing.broker.protocols.native.answers import result_frame
from homing.broker.protocols.native.codec import FrameDecoder, Op
from homing.broker.protocols.native.fields import consumer_options
from homing.broker.steps import at_once
from tests import inside
from tests.model.world import ANYBODY, World, call


def list_queues(broker: Broker, arguments: dict[str, Any]) -> Any:
    return at_once(queues.list_queues(broker, ANYBODY, meter=Meter(broker), **taken(broker, queues.list_queues, arguments)))


List = Callable[[Broker, dict[str, Any]], Any]


def by_anybody(handler: Callable[..., Any], **given: Any) -> List:
    return lambda broker, arguments: at_once(call(handler, broker, given, **arguments))


def pages(broker: Broker, verb: List, **arguments: Any) -> list[dict[str, Any]]:
    found, after = [], None
    while True:
        page = verb(broker, {**arguments, "after": after, "limit": arguments.get("limit", 1000)})
        assert 0 < len(page["items"]) <= MAX_PAGE
        found.append(page)
        after = page["next"]
        if after is None:
            return found


def names(found: list[dict[str, Any]], key: str = "name") -> list[str]:
    return [item[key] for page in found for item in page["items"]]


@pytest.fixture(scope="module")
def full() -> Broker:
    broker = World({}, max_queues=20_000).broker
    for number in range(12_000):
        inside.resources(broker).declare(BROKER, {"queue": f"queue.{number * 7919 % 12_000}"})
    return broker


def test_twelve_thousand_queues_come_in_pages(full: Broker) -> None:
    found = pages(full, list_queues)
    assert names(found) == sorted(f"queue.{number}" for number in range(12_000))
    assert len(found) == 12_000 / MAX_PAGE
    assert max(len(packb(page)) for page in found) < full.limits.answer_bytes + 1024


def test_who_asks_for_all_of_very_many_is_told_to_ask_for_pages(full: Broker) -> None:
    with pytest.raises(Refused) as refused:
        list_queues(full, {})
    assert refused.value.code == "too-many-for-one-answer"


def test_who_asks_for_all_of_a_few_gets_them_in_one_list() -> None:
    broker = World({}).broker
    for number in range(MAX_WHOLE):
        inside.resources(broker).declare(BROKER, {"queue": f"queue.{number}"})
    assert len(list_queues(broker, {})) == MAX_WHOLE
    inside.resources(broker).declare(BROKER, {"queue": "one.more"})
    with pytest.raises(Refused):
        list_queues(broker, {})


def test_a_page_is_bounded_in_bytes_too() -> None:
    broker = World({}, max_frame_bytes=8192).broker
    for number in range(50):
        inside.resources(broker).declare(BROKER, {"queue": f"{number}.{'x' * 400}"})
    found = pages(broker, list_queues)
    assert len(names(found)) == len(set(names(found))) == 50
    assert all(len(packb(page)) < 4096 + 1024 for page in found)
    with pytest.raises(Refused):
        list_queues(broker, {})


def test_what_comes_and_goes_between_two_pages_doubles_nothing() -> None:
    broker = World({}).broker
    for number in range(30):
        inside.resources(broker).declare(BROKER, {"queue": f"q{number:02}"})
    first: Any = list_queues(broker, {"limit": 10})
    inside.removal(broker).delete(ANYBODY, inside.queues(broker)[first["next"]])
    inside.resources(broker).declare(BROKER, {"queue": "a"})
    second: Any = list_queues(broker, {"limit": 100, "after": first["next"]})
    assert names([first, second]) == [f"q{number:02}" for number in range(30)]


def test_every_list_has_pages() -> None:
    world = World({})
    broker = world.broker
    for number in range(5):
        inside.virtual_hosts(broker).add(BROKER, f"host {number}")
        inside.set_policy(broker, read_policy(f"p{number}", "^x", {"max-length": 5}, virtual_host=f"host {number % 2}"))
        for consumer in (1, 2):
            client = world.client(f"client {number} {consumer}", lambda delivery: None)
            assert client.connection is not None
            inside.subscriptions(broker).subscribe(client.connection, consumer, "orders", consumer_options({}))
    assert names(pages(broker, by_anybody(virtual_hosts.list_all), limit=2)) == ["/", *(f"host {number}" for number in range(5))]
    found = pages(broker, by_anybody(policies.list_all), limit=2)
    assert list(zip(names(found, "virtual_host"), names(found), strict=True)) == [
        ("host 0", "p0"), ("host 0", "p2"), ("host 0", "p4"), ("host 1", "p1"), ("host 1", "p3"),
    ]  # fmt: skip
    assert len(set(names(pages(broker, by_anybody(queues.consumers, sockets=dict), queue="orders", limit=3), "connection"))) == 10
    for verb in (by_anybody(virtual_hosts.list_all), by_anybody(policies.list_all), list_queues):
        for wrong in ({"after": 5}, {"limit": 0}, {"limit": "x"}, {"colour": 1}):
            with pytest.raises(Refused):
                verb(broker, wrong)


def test_an_answer_that_no_frame_holds_is_a_refusal() -> None:
    frame = result_frame(7, "settings", {"a": "x" * 5000}, 1000)
    assert len(frame) < 1000
    ((op, request, code, message, _),) = FrameDecoder(1 << 20).feed(frame)
    assert (op, request, code) == (Op.REFUSED, 7, "answer-too-large")
    assert "settings" in message
    assert FrameDecoder(1 << 20).feed(result_frame(7, "settings", 1, 1000)) == [[Op.RESULT, 7, 1]]
