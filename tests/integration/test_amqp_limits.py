"""pika against a real server: priorities, limits, transactions, heartbeats, and whose turn it is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.amqp_support import AMQP, PERSISTENT, channel, connect, connection, count, cut, get, named, wait_until_seen
from tests.pauses import tried_again
from tests.process import Server, wait_until

# pika leaves its sockets to the collector where a connection fails.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


def test_priorities_count_only_where_the_queue_says_so(ch: BlockingChannel) -> None:
    ch.queue_declare("flat")
    ch.queue_declare("steep", arguments={"x-max-priority": 5})
    for queue in ("flat", "steep"):
        for priority in (None, 1, 9, 3, 5):
            ch.basic_publish("", queue, str(priority).encode(), pika.BasicProperties(priority=priority))
    assert [get(ch, "flat")[2] for _ in range(5)] == [b"None", b"1", b"9", b"3", b"5"]
    assert [get(ch, "steep")[2] for _ in range(5)] == [b"9", b"5", b"3", b"1", b"None"]


def test_reject_publish_is_a_nack(ch: BlockingChannel) -> None:
    ch.queue_declare("short", arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    ch.confirm_delivery()
    ch.basic_publish("", "short", b"1")
    ch.basic_publish("", "short", b"2")
    with pytest.raises(pika.exceptions.NackError):
        ch.basic_publish("", "short", b"3")
    assert [get(ch, "short")[2] for _ in range(2)] == [b"1", b"2"]


def test_transactions_take_effect_at_commit(broker: Server, ch: BlockingChannel) -> None:
    ch.queue_declare("in", durable=True)
    ch.queue_declare("out", durable=True)
    for number in range(2):
        ch.basic_publish("", "in", str(number).encode(), PERSISTENT)
    with connection(broker) as other:
        tx = other.channel()
        tx.tx_select()
        method, _, _ = get(tx, "in", auto_ack=False)
        tx.basic_ack(method.delivery_tag)
        tx.basic_publish("", "out", b"done", PERSISTENT)
        assert count(ch, "out") == 0
        tx.tx_commit()
        assert count(ch, "out") == 1
        method, _, _ = get(tx, "in", auto_ack=False)
        tx.basic_ack(method.delivery_tag)
        tx.basic_publish("", "out", b"undone", PERSISTENT)
        tx.tx_rollback()
        assert count(ch, "out") == 1
        tx.basic_nack(method.delivery_tag, requeue=True)
        tx.tx_commit()
    assert count(ch, "in") == 1


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_a_commit_to_a_full_queue_is_refused_and_nothing_of_it_is_done(
    broker: Server, ch: BlockingChannel, kind: str, overflow: str
) -> None:
    """Of five places, three are taken: three more are refused, two are not. A queue with room beside it gets none of what is refused."""
    full, beside, dead = (f"tx.{kind}.{overflow}.{name}" for name in ("full", "beside", "dead"))
    limits = {"x-queue-type": kind, "x-max-length": 5, "x-overflow": overflow}
    ch.queue_declare(full, durable=True, arguments={**limits, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    for queue in (beside, dead):
        ch.queue_declare(queue, durable=True)
    ch.exchange_declare(f"tx.{kind}.{overflow}", "fanout")
    for queue in (full, beside):
        ch.queue_bind(queue, f"tx.{kind}.{overflow}")
    ch.basic_publish("", beside, b"taken", PERSISTENT)
    counts: list[tuple[str, int, int, int]] = []
    with connection(broker) as other:
        for number in (3, 3, 2, 1):
            tx = other.channel()
            tx.tx_select()
            tx.basic_ack(get(tx, beside, auto_ack=False)[0].delivery_tag)
            for _ in range(number):
                tx.basic_publish(f"tx.{kind}.{overflow}", "", b"m", PERSISTENT)
            said = "ok"
            try:
                tx.tx_commit()
                tx.close()
            except pika.exceptions.ChannelClosedByBroker as closed:
                said = f"{closed.reply_code} {closed.reply_text}"
            counts.append((said[:60], count(ch, full), count(ch, beside), count(ch, dead)))
    refused = f"406 PRECONDITION_FAILED - queue {full} is full"[:60]
    assert counts == [("ok", 3, 3, 0), (refused, 3, 3, 0), ("ok", 5, 4, 0), (refused, 5, 4, 0)]


@tried_again
def test_heartbeats_keep_an_idle_connection(broker: Server) -> None:
    with connection(broker, heartbeat=1) as opened:
        end = time.monotonic() + 4
        while time.monotonic() < end:
            opened.process_data_events(0.2)
        assert opened.is_open
        opened.channel().queue_declare("alive")


@tried_again
def test_a_peer_that_falls_silent_is_given_up(broker: Server, ch: BlockingChannel) -> None:
    ch.queue_declare("back", durable=True)
    ch.queue_purge("back")
    ch.basic_publish("", "back", b"x", PERSISTENT)
    silent = connect(broker, heartbeat=1)
    get(silent.channel(), "back", auto_ack=False)
    wait_until("the silent peer's message is back", lambda: count(ch, "back") == 1)
    assert get(ch, "back")[0].redelivered
    cut(silent)


def test_a_single_active_consumer_is_followed_by_the_next(broker: Server, ch: BlockingChannel) -> None:
    ch.queue_declare("single", arguments={"x-single-active-consumer": True})
    seen: list[str] = []
    with channel(broker) as first:
        first.basic_consume("single", lambda *_: seen.append("first"), auto_ack=True)
        ch.basic_consume("single", lambda *_: seen.append("second"), auto_ack=True)
        assert ch.queue_declare("single", passive=True).method.consumer_count == 2
        for _ in range(5):
            ch.basic_publish("", "single", b"x")
        end = time.monotonic() + 15
        while len(seen) < 5 and time.monotonic() < end:
            first.connection.process_data_events(0.05)
            ch.connection.process_data_events(0.05)
        assert seen == ["first"] * 5
    ch.basic_publish("", "single", b"x")
    wait_until_seen(ch, seen, 6)
    assert seen[-1] == "second"


def test_a_single_active_consumer_that_closes_hands_over_in_order(broker: Server, ch: BlockingChannel) -> None:
    """pika cancels, waits for the answer, and closes the channel then."""
    ch.queue_declare("handed", durable=True, arguments={"x-single-active-consumer": True})
    for body in (b"1", b"2", b"3", b"4"):
        ch.basic_publish("", "handed", body, PERSISTENT)
    with connection(broker) as first, connection(broker) as second:
        one, two = first.channel(), second.channel()
        held: list[Any] = []
        seen: list[bytes] = []
        one.basic_qos(prefetch_count=2)
        one.basic_consume("handed", lambda *_: held.append(1))
        wait_until_seen(one, held, 2)
        two.basic_consume("handed", lambda _, method, __, body: seen.append(body))
        one.close()
        wait_until_seen(two, seen, 4)
    assert seen == [b"1", b"2", b"3", b"4"]


def test_a_full_queue_that_blocks_stops_its_publishers(start_server: Callable[..., Server]) -> None:
    server = start_server({**AMQP, "address-settings": {"narrow": {"max-length": 10, "overflow": "block"}}})
    with connection(server) as publishing, channel(server) as consuming:
        blocked: list[bool] = []
        publishing.add_on_connection_blocked_callback(lambda *_: blocked.append(True))
        publishing.add_on_connection_unblocked_callback(lambda *_: blocked.append(False))
        ch = publishing.channel()
        ch.queue_declare("narrow")
        for _ in range(11):
            ch.basic_publish("", "narrow", b"x")
        wait_until_seen(ch, blocked, 1)
        for _ in range(50):
            ch.basic_publish("", "narrow", b"x")
        publishing.process_data_events(0.2)
        assert count(consuming, "narrow") < 20
        for _ in range(61):
            get(consuming, "narrow")
        while blocked[-1]:
            wait_until_seen(ch, blocked, len(blocked) + 1)


def test_consumers_with_priority_are_served_first(ch: BlockingChannel) -> None:
    ch.queue_declare("ranked")
    low, high = ch.connection.channel(), ch.connection.channel()
    seen: list[str] = []
    for opened, name, priority in ((low, "low", -1), (high, "high", 10)):
        opened.basic_qos(prefetch_count=3)
        opened.basic_consume("ranked", named(seen, name), arguments={"x-priority": priority})
    for _ in range(5):
        ch.basic_publish("", "ranked", b"x")
    wait_until_seen(ch, seen, 5)
    assert sorted(seen) == ["high"] * 3 + ["low"] * 2
    low.close()
    high.close()
