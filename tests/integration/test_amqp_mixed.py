"""AMQP and Homing's own protocol on the same queues: docs/interoperability.md row by row, and dead letters in both accounts."""

from __future__ import annotations

import gc
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

import homing
from homing.client import blocking
from tests.amqp_support import AMQP, PERSISTENT, channel, connect, count, cut, get, wait_for_count
from tests.process import ROOT, Server, wait_until

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
TEN_YEARS_MS = 10 * 365 * 86_400_000
SETTINGS = {
    "#": {"max-delivery-attempts": 10},
    "slow.#": {"redelivery-delay": "30s"},
    "wide.*": {"max-delivery-attempts": 4},
}


class Both(NamedTuple):
    server: Server
    amqp: BlockingChannel
    native: blocking.Connection

    def queue(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = next(queue for queue in self.native.call("queues") if queue["name"] == name)
        return found

    def settings(self, name: str) -> dict[str, Any]:
        explained = self.native.call("explain", address=name)
        return {"exchange": explained["dead_letter_exchange"], **{each["key"]: each["value"] for each in explained["settings"]}}

    def origin(self, name: str, key: str) -> str:
        return next(str(each["pattern"]) for each in self.native.call("explain", address=name)["settings"] if each["key"] == key)

    def receive(self, queue: str, settle: Callable[[Any], object] = lambda message: message.acknowledge(confirm=True)) -> Any:
        with self.native.session(homing.AckMode.INDIVIDUAL) as session:
            message = session.consumer(queue, prefetch=1).receive(timeout_ms=10_000)
            assert message is not None, f"nothing came from {queue}"
            settle(message)
        return message


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    server = Server(tmp_path_factory.mktemp("mixed"), {**AMQP, "address-settings": SETTINGS})
    server.start()
    with channel(server) as ch, blocking.connect(server.url) as native:
        yield Both(server, ch, native)
    server.close()
    gc.collect()


ROWS: dict[str, Callable[[Both], None]] = {}


def row(beginning: str) -> Callable[[Callable[[Both], None]], Callable[[Both], None]]:
    """The test of the row that begins so."""

    def enter(test: Callable[[Both], None]) -> Callable[[Both], None]:
        ROWS[beginning] = test
        return test

    return enter


# -- where things are kept ---------------------------------------------------------------------------------------------


@row("queue `orders`")
def queues(both: Both) -> None:
    both.amqp.queue_declare("wide.orders", durable=True)
    queue = both.queue("wide.orders")
    assert (queue["address"], queue["routing_type"], queue["durable"]) == ("wide.orders", "anycast", True)
    assert both.settings("wide.orders")["max-delivery-attempts"] == 4


@row("the default exchange")
def default_exchange(both: Both) -> None:
    both.native.session().producer("made.by.homing").send(b"one")
    both.amqp.basic_publish("", "made.by.homing", b"two")
    wait_for_count(both.amqp, "made.by.homing", 2)
    assert [both.receive("made.by.homing").body, get(both.amqp, "made.by.homing")[2]] == [b"one", b"two"]


@row("`x-message-ttl`")
def limits(both: Both) -> None:
    arguments = {"x-message-ttl": 60_000, "x-expires": 90_000, "x-consumer-timeout": 70_000, "x-max-length": 7, "x-max-length-bytes": 800}
    both.amqp.queue_declare("limits", arguments=arguments)
    both.amqp.queue_declare("limits.refused", arguments={**arguments, "x-overflow": "reject-publish"})
    held = both.settings("limits")
    shown = ("message-ttl", "consumer-timeout", "max-length", "max-length-bytes", "overflow")
    assert [held[name] for name in shown] == [60_000, 70_000, 7, 800, "drop-head"]
    assert both.queue("limits")["options"]["expires_ms"] == 90_000
    assert both.settings("limits.refused")["overflow"] == "reject-publish"


@row("`x-delivery-limit: n`")
def delivery_limit(both: Both) -> None:
    quorum = {"x-queue-type": "quorum"}
    declared = {"limited": {"x-delivery-limit": 3}, "unlimited": {}, "quorum": quorum, "wide.limit": {}, "wide.quorum": quorum}
    for name, arguments in declared.items():
        both.amqp.queue_declare(name, durable=True, arguments=arguments)
    assert [both.settings(name)["max-delivery-attempts"] for name in declared] == [4, -1, 21, 4, 4]
    origins = [both.origin(name, "max-delivery-attempts") for name in declared]
    assert origins == ["the queue's declaration", "default of classic queues", "default of quorum queues", "wide.*", "wide.*"]


#: What a queue says of delayed retries -> what waits of what is returned by reject and by nack, in ms.
RETRIES: dict[str, tuple[dict[str, Any], int, int]] = {
    "nothing": ({}, 0, 0),
    "all": ({"x-delayed-retry-type": "all", "x-delayed-retry-min": 30_000, "x-delayed-retry-max": 70_000}, 30_000, 30_000),
    "failed": ({"x-delayed-retry-type": "failed", "x-delayed-retry-min": 30_000}, 30_000, 0),
    "returned": ({"x-delayed-retry-type": "returned", "x-delayed-retry-min": 30_000}, 0, 30_000),
    "disabled": ({"x-delayed-retry-type": "disabled", "x-delayed-retry-min": 30_000}, 0, 0),
    "no-type": ({"x-delayed-retry-min": 30_000}, 0, 0),
    "LavinMQ": ({"x-delayed-retry-min": 30_000, "x-delayed-retry-multiplier": 3}, 30_000, 30_000),
}


@row("`x-delayed-retry-type`")
def delayed_retries(both: Both) -> None:
    for name, (arguments, rejected_ms, nacked_ms) in RETRIES.items():
        with fresh(both, f"retry.{name}", **arguments) as queue:
            for verb, waits_ms in ((both.amqp.basic_reject, rejected_ms), (both.amqp.basic_nack, nacked_ms)):
                both.amqp.basic_publish("", queue, b"x", PERSISTENT)
                wait_for_count(both.amqp, queue, 1)
                (message,) = both.native.call("peek", queue=queue, limit=1)["messages"]
                verb(get(both.amqp, queue, auto_ack=False)[0].delivery_tag, requeue=True)
                wait_until("it is back", lambda queue=queue: both.queue(queue)["delivering"] == 0)
                (attempt,) = both.native.call("history", message_id=message["message_id"])["attempts"]
                assert (name, attempt["delay_ms"]) == (name, waits_ms)
                both.amqp.queue_purge(queue)
                both.native.call("purge", queue=queue)
    with fresh(both, "retry.linear", **RETRIES["all"][0]) as linear, fresh(both, "retry.steep", **RETRIES["LavinMQ"][0]) as steep:
        schedule = ("redelivery-back-off", "redelivery-delay-multiplier", "max-redelivery-delay", "redelivery-collision-avoidance-factor")
        assert [both.settings(linear)[key] for key in schedule] == ["linear", 1.0, 70_000, 0.0]
        assert [both.settings(steep)[key] for key in schedule] == ["exponential", 3.0, TEN_YEARS_MS, 0.0]


@row("`x-dead-letter-exchange`")
def dead_letter_exchange(both: Both) -> None:
    both.amqp.queue_declare("with.dlx", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "with.dlx.dead"})
    both.amqp.queue_declare("with.dlx.dead")
    both.amqp.queue_declare("without.dlx")
    for queue in ("with.dlx", "without.dlx"):
        both.amqp.basic_publish("", queue, queue.encode())
        both.amqp.basic_reject(get(both.amqp, queue, auto_ack=False)[0].delivery_tag, requeue=False)
    assert (both.settings("with.dlx")["exchange"], both.settings("without.dlx")["exchange"]) == ("", None)
    assert both.receive("with.dlx.dead").body == b"with.dlx"
    assert both.receive("DLQ.without.dlx").body == b"without.dlx"


@row("other arguments")
def other_arguments(both: Both) -> None:
    hints = {"x-queue-mode": "lazy", "x-quorum-initial-group-size": 3, "x-nobody-knows": [1]}
    for name in ("hinted", "hinted.too"):
        both.amqp.queue_declare(name, durable=True, arguments={**hints, "x-max-length": 5})
        assert both.queue(name)["ignored_arguments"] == list(hints)
    log = both.server.logged(*(f"'hinted' in vhost '/': the argument {name} " for name in hints))
    reported = [line for line in log.splitlines() if "has no effect here" in line]
    assert not [line for line in reported if "hinted.too" in line]
    for name in ("x-message-deduplication", "x-max-age"):
        with channel(both.server) as other, pytest.raises(pika.exceptions.ChannelClosedByBroker, match=name) as refused:
            other.queue_declare("missed", arguments={name: True})
        assert refused.value.reply_code == 406
    assert "missed" not in [queue["name"] for queue in both.native.call("queues")]


@row("exclusive queue")
def exclusive(both: Both) -> None:
    with channel(both.server) as own:
        own.queue_declare("exclusive", exclusive=True, durable=True)
        assert not both.queue("exclusive")["durable"]
    wait_until("the queue is gone", lambda: "exclusive" not in [queue["name"] for queue in both.native.call("queues")])


@row("`basic.reject`, `basic.nack` with requeue")
def requeue(both: Both) -> None:
    both.amqp.queue_declare("slow.requeue", durable=True)
    for verb in (both.amqp.basic_reject, both.amqp.basic_nack):
        both.amqp.basic_publish("", "slow.requeue", b"x", PERSISTENT)
        verb(get(both.amqp, "slow.requeue", auto_ack=False)[0].delivery_tag, requeue=True)
    wait_until("both wait for their delay", lambda: both.queue("slow.requeue")["scheduled"] == 2)
    assert both.amqp.basic_get("slow.requeue")[0] is None


@row("… without requeue")
def refused(both: Both) -> None:
    both.amqp.queue_declare("refused", durable=True)
    both.amqp.basic_publish("", "refused", b"x", PERSISTENT)
    both.amqp.basic_nack(get(both.amqp, "refused", auto_ack=False)[0].delivery_tag, requeue=False)
    message = both.receive("DLQ.refused")
    assert message.properties["_AMQ_ORIG_ADDRESS"] == "refused"
    attempts = both.native.call("history", message_id=message.properties["_AMQ_ORIG_MESSAGE_ID"])
    assert "rejected" in str(attempts)


def lose(both: Both, queue: str, wanted: int) -> None:
    """A consumer that holds ``wanted`` messages is killed."""
    lost = connect(both.server)
    held: list[int] = []
    lost.channel().basic_consume(queue, lambda _, method, properties, body: held.append(method.delivery_tag))
    while len(held) < wanted:
        lost.process_data_events(0.05)
    cut(lost)
    wait_until("they are back, or dead", lambda: both.queue(queue)["delivering"] == 0)


@row("`basic.get`, declare, purge, delete after those")
def asked_at_once(both: Both) -> None:
    both.amqp.queue_declare("asked", durable=True)
    both.amqp.basic_publish("", "asked", b"x", PERSISTENT)
    for _ in range(20):
        method, *_ = both.amqp.basic_get("asked")
        both.amqp.basic_nack(method.delivery_tag)
    assert count(both.amqp, "asked") == 1


@row("unacknowledged at a lost connection")
def lost_connection(both: Both) -> None:
    both.amqp.queue_declare("lost", durable=True, arguments={"x-delivery-limit": 0})
    for body in (b"one", b"two"):
        both.amqp.basic_publish("", "lost", body, PERSISTENT)
    wait_for_count(both.amqp, "lost", 2)
    lose(both, "lost", 2)
    # Beyond the limit, but nobody knows which of the two it was.
    wait_for_count(both.amqp, "lost", 2)
    lose(both, "lost", 1)
    assert both.receive("DLQ.lost").body == b"one"
    method, properties, body = get(both.amqp, "lost")
    assert (method.redelivered, properties.headers["x-delivery-count"], body) == (True, 1, b"two")


@row("unacknowledged when a channel or connection is closed in order")
def closed_channel(both: Both) -> None:
    both.amqp.queue_declare("closed", durable=True, arguments={"x-queue-type": "quorum"})
    both.amqp.basic_publish("", "closed", b"x", PERSISTENT)
    for whole in (False, True):
        with channel(both.server) as other:
            get(other, "closed", auto_ack=False)
            if whole:
                other.connection.close()
            else:
                other.close()
        wait_for_count(both.amqp, "closed", 1)
    message = both.receive("closed", lambda message: message.release())
    assert (message.delivery_count, "x-delivery-count" in message.properties) == (3, False)
    method, properties, _ = get(both.amqp, "closed")
    assert (method.redelivered, properties.headers) == (True, {"x-delivery-count": 2}), "its type has a limit: both ends count"


@row("`basic.recover`")
def recover(both: Both) -> None:
    both.amqp.queue_declare("recovered.both", durable=True)
    both.amqp.basic_publish("", "recovered.both", b"x", PERSISTENT)
    get(both.amqp, "recovered.both", auto_ack=False)
    both.amqp.basic_recover(requeue=True)
    message = both.receive("recovered.both", lambda message: message.release())
    assert message.delivery_count == 2


@pytest.fixture(scope="module")
def survived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Killed after a confirm and a commit, and before another commit."""
    server = Server(tmp_path_factory.mktemp("survived"), AMQP)
    server.start()
    connection = connect(server)
    ch, tx = connection.channel(), connection.channel()
    ch.exchange_declare("lasting", "topic", durable=True)
    ch.queue_declare("kept", durable=True)
    ch.queue_declare("committed", durable=True)
    ch.queue_bind("kept", "lasting", "a.#")
    ch.confirm_delivery()
    ch.basic_publish("lasting", "a.b", b"confirmed", PERSISTENT)
    tx.tx_select()
    for body in (b"one", b"two"):
        tx.basic_publish("", "committed", body, PERSISTENT)
    tx.tx_commit()
    tx.basic_publish("", "committed", b"never", PERSISTENT)
    server.kill()
    with suppress(pika.exceptions.AMQPConnectionError):
        while connection.is_open:
            connection.process_data_events(1)
    del connection, ch, tx
    yield server.start()
    server.close()
    gc.collect()


def test_what_is_kept_is_in_the_journal(survived: Server) -> None:
    with closing(sqlite3.connect(f"file:{next(survived.data.glob('*.db'))}?mode=ro", uri=True)) as journal:
        kept = dict(journal.execute("SELECT kind, count(*) FROM declaration GROUP BY kind").fetchall())
    assert kept == {"exchange": 1, "binding": 1}
    with channel(survived) as ch:
        assert get(ch, "kept")[2] == b"confirmed"
        assert [get(ch, "committed")[2] for _ in range(2)] == [b"one", b"two"]
        assert count(ch, "committed") == 0


# -- a message in both -------------------------------------------------------------------------------------------------


@contextmanager
def fresh(both: Both, name: str, **arguments: Any) -> Iterator[str]:
    both.amqp.queue_declare(name, durable=True, arguments={key.replace("_", "-"): value for key, value in arguments.items()})
    yield name
    both.amqp.queue_delete(name)


def over(both: Both, queue: str, properties: pika.BasicProperties) -> Any:
    """Sent with AMQP, received with Homing's protocol."""
    both.amqp.basic_publish("", queue, b"x", properties)
    return both.receive(queue)


def back(both: Both, queue: str, **options: Any) -> tuple[Any, Any]:
    """The other way: (method, properties)."""
    both.native.session().producer(queue).send(b"x", **options)
    return get(both.amqp, queue)[:2]


@row("header (text, number, boolean, binary)")
def headers(both: Both) -> None:
    simple = {"text": "ä", "number": -7, "flag": True, "raw": b"\x00\xff"}
    rich = {"table": {"a": 1}, "array": [1], "decimal": Decimal("1.5"), "time": datetime.fromtimestamp(1_700_000_000, UTC)}
    with fresh(both, "mixed.headers") as queue:
        shown = over(both, queue, pika.BasicProperties(headers={**simple, **rich})).properties
        assert {name: value for name, value in shown.items() if name in {**simple, **rich}} == simple
        both.amqp.basic_publish("", queue, b"x", pika.BasicProperties(headers=rich))
        assert sorted(get(both.amqp, queue)[1].headers) == sorted(rich)
        assert back(both, queue, properties=simple)[1].headers == simple


@row("`correlation-id`, `type`, `reply-to`")
def known_properties(both: Both) -> None:
    names = {"JMSCorrelationID": "c", "JMSType": "t", "JMSReplyTo": "r"}
    with fresh(both, "mixed.names") as queue:
        shown = over(both, queue, pika.BasicProperties(correlation_id="c", type="t", reply_to="r")).properties
        assert {name: shown.get(name) for name in names} == names
        properties = back(both, queue, properties=names)[1]
        assert (properties.correlation_id, properties.type, properties.reply_to, properties.headers) == ("c", "t", "r", None)


@row("`delivery-mode` 2")
def durability(both: Both) -> None:
    with fresh(both, "mixed.durable") as queue:
        assert [over(both, queue, pika.BasicProperties(delivery_mode=mode)).durable for mode in (2, 1, None)] == [True, False, False]
        assert [back(both, queue, durable=durable)[1].delivery_mode for durable in (True, False)] == [2, None]


@row("`priority`")
def priorities(both: Both) -> None:
    with fresh(both, "mixed.steep", x_max_priority=5) as steep, fresh(both, "mixed.flat") as flat:
        assert [over(both, steep, pika.BasicProperties(priority=priority)).priority for priority in (None, 3, 9)] == [0, 3, 5]
        assert len({over(both, flat, pika.BasicProperties(priority=priority)).priority for priority in (None, 3, 9)}) == 1
        both.native.session().producer("made.for.priorities").send(b"x")
        both.receive("made.for.priorities")
        assert over(both, "made.for.priorities", pika.BasicProperties(priority=9)).priority == 9
        assert [back(both, flat, priority=priority)[1].priority for priority in (4, 7)] == [None, 7]


@row("`expiration`")
def expirations(both: Both) -> None:
    with fresh(both, "mixed.ttl") as queue:
        expires_at_ms = over(both, queue, pika.BasicProperties(expiration="60000")).expires_at_ms
        assert 20_000 < expires_at_ms - time.time() * 1000 < 61_000
        assert back(both, queue, ttl_ms=60_000)[1].expiration is None


@row("`message-id`, `timestamp`")
def identities(both: Both) -> None:
    with fresh(both, "mixed.ids") as queue:
        message = over(both, queue, pika.BasicProperties(message_id="mine", timestamp=5))
        assert "mine" not in map(str, [message.message_id, *message.properties.values()])
        assert abs(message.sent_at_ms / 1000 - time.time()) < 60
        assert back(both, queue)[1].message_id is None
        properties = back(both, queue, properties={"n": 1})[1]
        assert int(properties.message_id) > 0
        assert abs(properties.timestamp - time.time()) < 60


@row("exchange and routing key")
def ways(both: Both) -> None:
    with fresh(both, "mixed.ways") as queue:
        both.amqp.queue_bind(queue, "amq.topic", "way.#")
        both.amqp.basic_publish("amq.topic", "way.a", b"x", pika.BasicProperties(content_type="a/b"))
        message = both.receive(queue, lambda message: message.release())
        assert (message.address, "_HOMING_AMQP" in message.properties) == ("amq.topic", False)
        method, properties, _ = get(both.amqp, queue)
        assert (method.exchange, method.routing_key, properties.content_type) == ("amq.topic", "way.a", "a/b")
        method, _ = back(both, queue)
        assert (method.exchange, method.routing_key) == ("", queue)


@pytest.mark.parametrize("beginning", ROWS)
def test_row(beginning: str, both: Both) -> None:
    ROWS[beginning](both)


def test_every_row_is_tested() -> None:
    reported = (ROOT / "docs" / "interoperability.md").read_text()
    tables = "".join(
        reported.partition(f"### {heading}")[2].partition("\n### ")[0] for heading in ("Where things are kept", "A message in both")
    )
    rows = [line.removeprefix("| ") for line in tables.splitlines() if line.startswith("| ") and not line.startswith(("| ---", "| AMQP"))]
    # With the other events; after a kill, above; near memory-limit, in test_long_queues.py; in tests/unit/test_amqp_shared_prefetch.py,
    # test_amqp_methods.py and test_orderly_closes.py.
    elsewhere = (
        "exchange `homing.events`",
        "other exchanges, bindings",
        "`tx.commit`",
        "confirm",
        "`basic.get` again and again",
        "`basic.qos` with `global`",
        "`basic.consume` with `x-priority`",
        "`basic.cancel`",
    )
    assert len(rows) == len(ROWS) + len(elsewhere)
    for line in rows:
        assert any(line.startswith(beginning) for beginning in (*ROWS, *elsewhere)), line


# -- dead letters in both accounts -------------------------------------------------------------------------------------


def test_sent_with_amqp_failed_with_homing_read_with_amqp(both: Both) -> None:
    arguments = {"x-dead-letter-exchange": "amq.direct", "x-dead-letter-routing-key": "dead"}
    both.amqp.queue_declare("both.source", durable=True, arguments=arguments)
    both.amqp.queue_declare("both.dead", durable=True)
    both.amqp.queue_bind("both.dead", "amq.direct", "dead")
    both.amqp.basic_publish("", "both.source", b"x", pika.BasicProperties(delivery_mode=2, headers={"mine": 1}))
    both.receive("both.source", lambda message: message.nack(reason="never", retryable=False))
    method, properties, _ = get(both.amqp, "both.dead", auto_ack=False)
    death = properties.headers["x-death"][0]
    assert (method.exchange, method.routing_key, properties.headers["mine"]) == ("amq.direct", "dead", 1)
    assert (death["queue"], death["reason"], death["count"], death["routing-keys"]) == ("both.source", "rejected", 1, ["both.source"])
    assert (properties.headers["_AMQ_ORIG_ADDRESS"], properties.headers["_AMQ_ORIG_QUEUE"]) == ("both.source", "both.source")
    both.amqp.basic_nack(method.delivery_tag, requeue=True)
    shown = both.receive("both.dead").properties
    assert (shown["_AMQ_ORIG_ADDRESS"], shown["_AMQ_ORIG_QUEUE"], shown["mine"]) == ("both.source", "both.source", 1)


def test_sent_with_homing_failed_with_amqp_read_with_both(both: Both) -> None:
    producer = both.native.session().producer("source.of.homing")
    for _ in range(2):
        producer.send(b"x", properties={"mine": 1})
        both.amqp.basic_reject(get(both.amqp, "source.of.homing", auto_ack=False)[0].delivery_tag, requeue=False)
    wait_until("both are dead", lambda: "DLQ.source.of.homing" in [queue["name"] for queue in both.native.call("queues")])
    headers = get(both.amqp, "DLQ.source.of.homing")[1].headers
    assert (headers["x-death"][0]["queue"], headers["x-death"][0]["reason"], headers["mine"]) == ("source.of.homing", "rejected", 1)
    assert headers["_AMQ_ORIG_ADDRESS"] == "source.of.homing"
    shown = both.receive("DLQ.source.of.homing").properties
    assert (shown["_AMQ_ORIG_ADDRESS"], shown["_AMQ_ORIG_QUEUE"], shown["mine"]) == ("source.of.homing", "source.of.homing", 1)
