"""Dead-letter exchanges: the rules one by one, held against the documentation of RabbitMQ."""

from __future__ import annotations

import gc
import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pika
import pika.exceptions
import pika.frame
import pika.spec
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from prometheus_client.parser import text_string_to_metric_families

from homing.client.blocking import connect as blocking
from tests.amqp_support import AMQP, PERSISTENT, amqp_port, channel, connection, count, get, wait_for_count
from tests.amqp_wire import Ch, Wire
from tests.process import HomingCommand, Server, wait_until

# pika leaves its sockets to the collector where a connection fails.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
#: Nothing for all addresses: what holds there is RabbitMQ's or a default.
PLAIN = {
    **AMQP,
    "http": {"port": 0},
    "virtual-hosts": ["shop"],
    "address-settings": {
        "slow.#": {"redelivery-delay": "1s"},
        "limited": {"max-delivery-attempts": 2},
        "nowhere.#": {"dead-letter-address": None},
    },
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("amqp"), PLAIN)
    yield server.start()
    server.close()
    gc.collect()


def deaths(properties: Any) -> list[tuple[str, str, int, str, list[str]]]:
    return [
        (death["queue"], death["reason"], death["count"], death["exchange"], death["routing-keys"])
        for death in properties.headers["x-death"]
    ]


def declare(ch: BlockingChannel, queue: str, exchange: str = "", key: str | None = None, **more: Any) -> None:
    arguments: dict[str, Any] = {"x-dead-letter-exchange": exchange, **more}
    if key is not None:
        arguments["x-dead-letter-routing-key"] = key
    ch.queue_declare(queue, durable=True, arguments=arguments)


def reject(ch: BlockingChannel, queue: str) -> None:
    method, _, _ = get(ch, queue, auto_ack=False)
    ch.basic_reject(method.delivery_tag, requeue=False)


def test_without_a_routing_key_the_messages_own_keys_hold_cc_included(ch: BlockingChannel) -> None:
    ch.exchange_declare("keys.dlx", "direct")
    declare(ch, "keys.source", "keys.dlx")
    ch.queue_declare("keys.dead")
    ch.queue_bind("keys.dead", "keys.dlx", "copy")
    ch.basic_publish("", "keys.source", b"x", pika.BasicProperties(headers={"CC": ["copy"], "BCC": ["hidden"]}))
    reject(ch, "keys.source")
    method, properties, _ = get(ch, "keys.dead")
    assert (method.exchange, method.routing_key) == ("keys.dlx", "keys.source")
    assert deaths(properties) == [("keys.source", "rejected", 1, "", ["keys.source", "copy"])]
    assert properties.headers["CC"] == ["copy"]
    assert "BCC" not in properties.headers


def test_dead_letters_of_a_queue_with_the_longest_name_are_where_amqp_can_name_it(broker: Server, ch: BlockingChannel) -> None:
    source = "longest." + "x" * 247
    ch.queue_declare(source, durable=True)
    ch.basic_publish("", source, b"dead", PERSISTENT)
    reject(ch, source)
    with blocking(broker.url) as native:
        (dead,) = native.call("explain", address=source)["dead_letter_queues"]
    assert dead.startswith("DLQ.longest.x")
    assert len(dead) == 255
    wait_for_count(ch, dead, 1)
    assert get(ch, dead)[2] == b"dead"


def test_what_is_told_of_deaths_never_passes_the_clients_frames(broker: Server, ch: BlockingChannel) -> None:
    """Six deaths are told whole where they fit, else without the oldest, else not at all; what the sender wrote comes as it is."""
    for number in range(6):
        declare(ch, f"narrow.{number}", "", f"narrow.{number + 1}")
    ch.queue_declare("narrow.6", durable=True)
    ch.queue_declare("narrow.counting", durable=True, arguments={"x-queue-type": "quorum"})
    lengths = (10, 3300, 3700, 4096 - 8 - 12 - 16)
    for length in lengths:
        ch.basic_publish("", "narrow.0", b"body", pika.BasicProperties(delivery_mode=2, headers={"h": "x" * length}))
        for number in range(6):
            reject(ch, f"narrow.{number}")
    ch.basic_publish("", "narrow.counting", b"body", pika.BasicProperties(delivery_mode=2, headers={"h": "x" * lengths[-1]}))
    ch.basic_nack(get(ch, "narrow.counting", auto_ack=False)[0].delivery_tag, requeue=True)
    wait_for_count(ch, "narrow.counting", 1)
    wire = Wire(amqp_port(broker), frame_max=4096)
    narrow = wire.channel()
    told = [_narrow(narrow, "narrow.6") for _ in lengths]
    assert [len(headers["h"]) for headers in told] == list(lengths)
    deaths_told = [[death["queue"] for death in headers.get("x-death", ())] for headers in told]
    assert deaths_told[0] == [f"narrow.{number}" for number in (5, 4, 3, 2, 1, 0)]
    assert 0 < len(deaths_told[1]) < 6
    assert deaths_told[1] == deaths_told[0][: len(deaths_told[1])]
    assert [headers.get("x-death-left-out") for headers in told] == [None, 6 - len(deaths_told[1]), 6, None]
    assert (deaths_told[2:], "x-first-death-queue" in told[2], [*told[3]]) == ([[], []], True, ["h"])
    assert [*_narrow(narrow, "narrow.counting")] == ["h"]
    wire.close()
    lines = [line for line in broker.logged("death-headers-left-out: ").splitlines() if "death-headers-left-out: " in line]
    assert len(lines) == 1, "once for the connection"
    assert "takes frames of 4096 bytes" in lines[0]


def _narrow(ch: Ch, queue: str) -> dict[str, Any]:
    """The headers of the next message, none of whose frames is longer than was agreed."""
    ch.send(pika.spec.Basic.Get(0, queue, no_ack=True))
    data, headers = ch.wire.raw_until(b"body\xce"), {}
    while data:
        used, decoded = pika.frame.decode_frame(data)
        assert used <= 4096, decoded
        if isinstance(decoded, pika.frame.Header):
            headers = decoded.properties.headers
        data = data[used:]
    return headers


def test_a_routing_key_of_the_queue_replaces_all_keys(ch: BlockingChannel) -> None:
    declare(ch, "replaced.source", "", "replaced.dead")
    ch.queue_declare("replaced.dead")
    ch.basic_publish("", "replaced.source", b"x", pika.BasicProperties(headers={"CC": ["elsewhere"], "mine": 1}))
    reject(ch, "replaced.source")
    method, properties, _ = get(ch, "replaced.dead")
    assert (method.exchange, method.routing_key) == ("", "replaced.dead")
    assert properties.headers["mine"] == 1
    assert "CC" not in properties.headers


def test_a_messages_own_expiration_is_taken_off_and_told(ch: BlockingChannel) -> None:
    declare(ch, "brief.source", "", "brief.dead")
    ch.queue_declare("brief.dead")
    ch.basic_publish("", "brief.source", b"x", pika.BasicProperties(expiration="300"))
    _, properties, _ = get(ch, "brief.dead")
    assert properties.expiration is None
    death = properties.headers["x-death"][0]
    assert (death["reason"], death["original-expiration"]) == ("expired", "300")
    assert abs(death["time"].timestamp() - time.time()) < 30


def test_a_retry_ladder_counts_and_orders_its_deaths(ch: BlockingChannel) -> None:
    declare(ch, "ladder.work", "", "ladder.wait")
    declare(ch, "ladder.wait", "", "ladder.work", **{"x-message-ttl": 100})
    ch.basic_publish("", "ladder.work", b"again", PERSISTENT)
    for _ in range(3):
        reject(ch, "ladder.work")
    _, properties, body = get(ch, "ladder.work")
    assert body == b"again"
    assert deaths(properties) == [
        ("ladder.wait", "expired", 3, "", ["ladder.wait"]),
        ("ladder.work", "rejected", 3, "", ["ladder.work"]),
    ]
    headers = properties.headers
    assert [headers[f"x-first-death-{name}"] for name in ("queue", "reason", "exchange")] == ["ladder.work", "rejected", ""]
    assert [headers[f"x-last-death-{name}"] for name in ("queue", "reason", "exchange")] == ["ladder.wait", "expired", ""]


def test_a_ladder_may_be_climbed_far_more_often_than_hops_are_kept(ch: BlockingChannel) -> None:
    declare(ch, "long.work", "", "long.wait")
    declare(ch, "long.wait", "", "long.work")
    ch.basic_publish("", "long.work", b"x", PERSISTENT)
    for _ in range(40):
        reject(ch, "long.work")
        reject(ch, "long.wait")
    _, properties, _ = get(ch, "long.work")
    assert [death[2] for death in deaths(properties)] == [40, 40]
    assert properties.headers["x-first-death-queue"] == "long.work"


def test_a_cycle_nobody_rejected_in_is_dropped(broker: Server, ch: BlockingChannel) -> None:
    declare(ch, "cycle", "", "cycle", **{"x-message-ttl": 50})
    ch.basic_publish("", "cycle", b"x", PERSISTENT)
    with blocking(broker.url) as connection:
        wait_until("it has expired", lambda: connection.call("queue", queue="cycle")["expired"] == 1)
    assert count(ch, "cycle") == 0


def test_the_delivery_limit_is_failed_deliveries_beyond_it(ch: BlockingChannel) -> None:
    declare(ch, "limit.source", "", "limit.dead", **{"x-delivery-limit": 2, "x-queue-type": "quorum"})
    ch.queue_declare("limit.dead")
    ch.basic_publish("", "limit.source", b"x", PERSISTENT)
    for _ in range(3):
        method, _, _ = get(ch, "limit.source", auto_ack=False)
        ch.basic_nack(method.delivery_tag, requeue=True)
    _, properties, _ = get(ch, "limit.dead")
    assert deaths(properties) == [("limit.source", "delivery_limit", 1, "", ["limit.source"])]


def test_reject_publish_dlx_sends_the_refused_message_there(ch: BlockingChannel) -> None:
    declare(ch, "full.source", "", "full.dead", **{"x-max-length": 1, "x-overflow": "reject-publish-dlx"})
    ch.queue_declare("full.dead")
    for body in (b"in", b"out"):
        ch.basic_publish("", "full.source", body)
    _, properties, body = get(ch, "full.dead")
    assert (body, deaths(properties)[0][1]) == (b"out", "maxlen")
    assert get(ch, "full.source")[2] == b"in"


def test_without_a_dead_letter_exchange_a_rejected_message_is_dropped(ch: BlockingChannel) -> None:
    ch.queue_declare("dropped", durable=True)
    ch.basic_publish("", "dropped", b"x", PERSISTENT)
    reject(ch, "dropped")
    ch.basic_publish("", "dropped", b"behind it", PERSISTENT)
    wait_for_count(ch, "dropped", 1)
    assert get(ch, "dropped")[2] == b"behind it"


def test_a_missing_dead_letter_exchange_loses_nothing(ch: BlockingChannel) -> None:
    declare(ch, "parked", "made.later")
    ch.basic_publish("", "parked", b"kept", PERSISTENT)
    reject(ch, "parked")
    ch.exchange_declare("made.later", "fanout")
    ch.queue_declare("parked.dead")
    ch.queue_bind("parked.dead", "made.later")
    _, properties, body = get(ch, "parked.dead")
    assert (body, deaths(properties)[0][:2]) == (b"kept", ("parked", "rejected"))


def test_what_is_parked_is_told_counted_and_outlives_its_queue(ch: BlockingChannel, broker: Server, homing: HomingCommand) -> None:
    ch.queue_declare("parking.events", exclusive=True)
    ch.queue_bind("parking.events", "homing.events", "*.parked")
    ch.queue_declare("parking", auto_delete=True, arguments={"x-dead-letter-exchange": "parking.later"})
    ch.basic_publish("", "parking", b"kept", PERSISTENT)
    reject(ch, "parking")
    _, _, body = get(ch, "parking.events")
    event = json.loads(body)
    assert (event["event"], event["queue"], event["number"]) == ("dead-letters.parked", "parking", 1)
    assert "exchange 'parking.later' is not there" in event["meaning"]
    assert ch.queue_declare("parking", passive=True).method.message_count == 1
    assert metric(broker, "homing_queue_messages", queue="parking", state="parked") == 1
    assert ": parked: queue parking: 1 dead letter parked in it: its dead-letter exchange 'parking.later'" in broker.logged(
        "parked: queue parking"
    )
    with blocking(broker.url) as native:
        (listed,) = [each for each in native.call("dead-letters") if each["queue"] == "parking"]
        assert (listed["messages"], listed["reasons"], listed["sources"]) == (1, {"parked": 1}, ["parking"])
    ch.basic_cancel(ch.basic_consume("parking", print))
    _, properties, body = get(ch, "DLQ.temporary")
    assert (body, properties.headers["x-first-death-queue"]) == (b"kept", "parking")
    # Where nobody says where to, its queue stays.
    ch.queue_declare("nowhere.parking", auto_delete=True, arguments={"x-dead-letter-exchange": "parking.later"})
    ch.basic_publish("", "nowhere.parking", b"kept", PERSISTENT)
    reject(ch, "nowhere.parking")
    assert json.loads(get(ch, "parking.events")[2])["queue"] == "nowhere.parking"
    ch.basic_cancel(ch.basic_consume("nowhere.parking", print))
    assert ch.queue_declare("nowhere.parking", passive=True).method.message_count == 1
    assert metric(broker, "homing_queues_staying") == 1
    assert "1 queue that ended, there for what is parked in them" in homing("status", url=broker.url).stdout
    assert ch.queue_delete("nowhere.parking").method.message_count == 1
    with pytest.raises(pika.exceptions.ChannelClosedByBroker):
        ch.queue_declare("parking", passive=True)


def test_a_headers_exchange_sees_what_is_told_of_the_last_death_too(ch: BlockingChannel) -> None:
    ch.exchange_declare("told", "headers")
    declare(ch, "told.source", "told")
    bound = {"x-last-death-queue": "told.source", "_AMQ_ORIG_QUEUE": "told.source", "void": None}
    for header, value in bound.items():
        ch.queue_declare(f"told.{header}")
        ch.queue_bind(f"told.{header}", "told", "", {"x-match": "all-with-x", header: value})
    ch.basic_publish("", "told.source", b"x", pika.BasicProperties(headers={"void": None}))
    reject(ch, "told.source")
    assert [get(ch, f"told.{header}")[2] for header in bound] == [b"x"] * 3


def test_deaths_survive_a_kill(start_server: Callable[..., Server]) -> None:
    server = start_server(PLAIN)
    with channel(server) as ch:
        declare(ch, "source", "", "dead")
        ch.queue_declare("dead", durable=True)
        ch.confirm_delivery()
        ch.basic_publish("", "source", b"x", PERSISTENT)
        reject(ch, "source")
        wait_for_count(ch, "dead", 1)
    server.kill()
    server.start()
    with channel(server) as ch:
        _, properties, body = get(ch, "dead")
        assert (body, deaths(properties)) == (b"x", [("source", "rejected", 1, "", ["source"])])


def test_address_settings_work_on_these_queues_too(ch: BlockingChannel) -> None:
    ch.queue_declare("slow.queue", durable=True, arguments={"x-delivery-limit": 5})
    ch.basic_publish("", "slow.queue", b"x", PERSISTENT)
    method, _, _ = get(ch, "slow.queue", auto_ack=False)
    returned = time.monotonic()
    ch.basic_nack(method.delivery_tag, requeue=True)
    _, properties, _ = get(ch, "slow.queue")
    assert time.monotonic() - returned >= 0.99, "of two clocks"
    assert properties.headers["x-delivery-count"] == 1


def test_a_pattern_of_its_own_limits_attempts_and_the_widest_does_not(ch: BlockingChannel) -> None:
    declare(ch, "limited", "", "limited.dead")
    ch.queue_declare("limited.dead")
    ch.basic_publish("", "limited", b"x", PERSISTENT)
    for _ in range(2):
        method, _, _ = get(ch, "limited", auto_ack=False)
        ch.basic_nack(method.delivery_tag, requeue=True)
    assert deaths(get(ch, "limited.dead")[1])[0][1] == "delivery_limit"


def fail(ch: BlockingChannel, queue: str, times: int, how: Callable[..., None]) -> None:
    """One message is got and returned, again and again."""
    ch.basic_publish("", queue, b"x", PERSISTENT)
    for _ in range(times):
        how(get(ch, queue, auto_ack=False)[0].delivery_tag, requeue=True)


def test_what_waits_on_the_way_of_a_retry_is_not_dead(ch: BlockingChannel, broker: Server) -> None:
    """From ``retried`` by an exchange to ``retried.wait``, and back by time; what died there often goes to ``retried.failed``."""
    ch.exchange_declare("retried.x", "direct", durable=True)
    ch.queue_declare("retried", durable=True, arguments={"x-dead-letter-exchange": "retried.x", "x-dead-letter-routing-key": "wait"})
    again = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "retried", "x-message-ttl": 50}
    ch.queue_declare("retried.wait", durable=True, arguments=again)
    ch.queue_declare("retried.failed", durable=True)
    ch.queue_declare("retried.ends", durable=True, arguments={"x-dead-letter-exchange": "retried.x", "x-dead-letter-routing-key": "end"})
    ch.queue_bind("retried.wait", "retried.x", "wait")
    ch.queue_bind("retried.failed", "retried.x", "end")
    ch.basic_publish("", "retried", b"x", PERSISTENT)
    ch.basic_publish("", "retried.ends", b"y", PERSISTENT)
    reject(ch, "retried")
    reject(ch, "retried.ends")
    wait_for_count(ch, "retried", 1)
    wait_for_count(ch, "retried.failed", 1)
    assert {each: dead_in(broker, each) for each in ("retried", "retried.wait", "retried.failed")} == {
        "retried": (0, None),
        "retried.wait": (0, None),
        "retried.failed": (1, 1),
    }
    with blocking(broker.url) as connection:
        waiting = {each["queue"]: each["waiting"] for each in connection.call("faults")["items"]}
    assert waiting["retried"] == 1
    assert get(ch, "retried")[2] == b"x"


def _ways_to(ch: BlockingChannel) -> Iterator[tuple[str, dict[str, Any]]]:
    """Ways from a dead-letter exchange ``x-NAME`` to a queue ``d-NAME``, by their names, and the arguments that the source has besides."""

    def way(name: str, kind: str, *, key: str = "", to: str = "", **more: Any) -> tuple[str, dict[str, Any]]:
        ch.exchange_declare(f"x-{name}", kind, durable=True, arguments=more)
        ch.queue_declare(f"d-{name}", durable=True)
        ch.queue_bind(f"d-{name}", to or f"x-{name}", key)
        return name, {}

    ch.exchange_declare("behind", "fanout", durable=True)
    ch.exchange_declare("between", "topic", durable=True)
    ch.exchange_bind("behind", "between", "#")
    ch.exchange_declare("other", "fanout", durable=True)
    ch.exchange_declare("by-headers", "headers", durable=True)
    yield way("topic", "topic", key="#")
    yield way("exchange", "fanout", to="behind")
    ch.exchange_bind("between", "x-exchange")
    yield way("alternate", "direct", to="other", **{"alternate-exchange": "other"})
    yield way("headers", "fanout", to="by-headers")
    ch.exchange_bind("by-headers", "x-headers")
    name, _ = way("key", "direct", key="given")
    yield name, {"x-dead-letter-routing-key": "given"}


@pytest.mark.parametrize("virtual_host", ["/", "shop"])
def test_dead_letters_are_counted_alike_however_they_came(broker: Server, virtual_host: str) -> None:
    prefix = "" if virtual_host == "/" else "::shop."
    with connection(broker, virtual_host=virtual_host) as opened:
        ch = opened.channel()
        ways = dict(_ways_to(ch))
        for name, more in ways.items():
            declare(ch, f"s-{name}", f"x-{name}", **more)
        ch.queue_declare("plain", durable=True)
        for queue in (*(f"s-{name}" for name in ways), "plain"):
            ch.basic_publish("", queue, b"dies", PERSISTENT)
            reject(ch, queue)
        ends = {f"s-{name}": f"d-{name}" for name in ways} | {"plain": "DLQ.plain"}
        for queue in ends.values():
            wait_until(f"it is in {queue}", partial(_holds, broker, prefix + queue, 1))
        # What is there that did not die stays apart from what did.
        ch.basic_publish("", "d-topic", b"lives", PERSISTENT)
        wait_for_count(ch, "d-topic", 2)
        assert {queue: dead_in(broker, prefix + queue) for queue in ends.values()} == dict.fromkeys(ends.values(), (1, 1))
        with blocking(broker.url) as native:
            assert native.call("queue", queue=f"{prefix}d-topic")["dead"] == 1
            explained = {queue: native.call("explain", address=prefix + queue)["dead_letter_queues"] for queue in ends}
            assert explained == {queue: [prefix + end] for queue, end in ends.items()}
            assert native.call("redrive", queue=f"{prefix}d-exchange")["messages"] == 1
        assert dead_in(broker, f"{prefix}d-exchange") == (0, None)
        assert dead_in(broker, f"{prefix}s-exchange") == (0, None)


def test_dead_letters_are_counted_as_they_leave_and_over_a_kill(start_server: Callable[..., Server]) -> None:
    broker = start_server(PLAIN)
    with channel(broker) as ch:
        # One copy goes back to where it came from and is to be tried again, the other is dead.
        ch.exchange_declare("both", "fanout", durable=True)
        declare(ch, "work", "both")
        declare(ch, "wait", "both", None, **{"x-message-ttl": 1})
        ch.queue_declare("audit", durable=True)
        ch.queue_bind("work", "both")
        ch.queue_bind("audit", "both")
        declare(ch, "first", "", "wait")
        for queue in ("first", "work"):
            ch.basic_publish("", queue, b"dies", PERSISTENT)
        reject(ch, "work")
        wait_for_count(ch, "audit", 1)
        assert (dead_in(broker, "work"), dead_in(broker, "audit")) == ((0, None), (1, 1))
        reject(ch, "first")
        wait_for_count(ch, "audit", 2)
        assert dead_in(broker, "audit") == (2, 2)
        held, _, _ = get(ch, "audit", auto_ack=False)
        assert dead_in(broker, "audit") == (2, 2)
        ch.basic_ack(held.delivery_tag)
        wait_until("it has left", lambda: dead_in(broker, "audit") == (1, 1))
    broker.kill()
    broker.start()
    assert dead_in(broker, "audit") == (1, 1)


def _holds(broker: Server, queue: str, number: int) -> bool:
    with blocking(broker.url) as native:
        return bool(native.call("queue", queue=queue)["messages"] == number)


def dead_in(broker: Server, queue: str) -> tuple[int, int | None]:
    """What metrics count as dead, and what ``homing dead`` lists."""
    number = metric(broker, "homing_queue_messages", queue=queue, state="dead")
    with blocking(broker.url) as connection:
        listed = {each["queue"]: each["messages"] for each in connection.call("dead-letters")}
    return number, listed.get(queue)


def metric(broker: Server, name: str, **labels: str) -> int:
    with urllib.request.urlopen(f"http://{broker.ready['http']}/metrics", timeout=20) as answer:
        text = answer.read().decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    (number,) = [sample.value for sample in samples if (sample.name, sample.labels) == (name, labels)]
    return int(number)


def test_a_classic_queue_keeps_what_is_requeued_a_thousand_times(ch: BlockingChannel) -> None:
    ch.queue_declare("patient", durable=True)
    fail(ch, "patient", 1000, ch.basic_nack)
    method, properties, body = get(ch, "patient")
    assert (body, method.redelivered, properties.headers) == (b"x", True, None)


def test_a_quorum_queue_gives_up_after_twenty_redeliveries(ch: BlockingChannel) -> None:
    ch.queue_declare("strict", durable=True, arguments={"x-queue-type": "quorum"})
    fail(ch, "strict", 21, ch.basic_reject)
    wait_until("it is dead", lambda: count(ch, "strict") == 0)
    assert deaths(get(ch, "DLQ.strict")[1]) == [("strict", "delivery_limit", 1, "", ["strict"])]


def test_homings_own_dead_letters_show_both_accounts(start_server: Callable[..., Server]) -> None:
    server = start_server(AMQP)
    with channel(server) as ch:
        ch.queue_declare("orders", durable=True)
        ch.basic_publish("", "orders", b"x", PERSISTENT)
        reject(ch, "orders")
        wait_until("the dead letter has a queue", lambda: _declared(server, "DLQ.orders"))
        _, properties, _ = get(ch, "DLQ.orders")
        assert deaths(properties) == [("orders", "rejected", 1, "", ["orders"])]
        assert properties.headers["_AMQ_ORIG_ADDRESS"] == "orders"


def _declared(server: Server, queue: str) -> bool:
    with channel(server) as ch:
        try:
            ch.queue_declare(queue, passive=True)
        except pika.exceptions.ChannelClosedByBroker:
            return False
    return True


def test_a_counted_delivery_is_counted_before_it_is_got(start_server: Callable[..., Server]) -> None:
    server = start_server({**AMQP, "address-settings": {"sure": {"persist-delivery-count-before-delivery": True}}})
    with channel(server) as ch:
        ch.queue_declare("sure", durable=True)
        ch.confirm_delivery()
        ch.basic_publish("", "sure", b"x", PERSISTENT)
        method, _, _ = get(ch, "sure", auto_ack=False)
        assert not method.redelivered
        server.kill()
        with suppress(pika.exceptions.AMQPConnectionError):
            ch.connection.process_data_events(1)
    server.start()
    with channel(server) as ch:
        method, _, body = get(ch, "sure")
        assert (method.redelivered, body) == (True, b"x")
