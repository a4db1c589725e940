"""pika against a real server: what every program written for RabbitMQ does all day."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pika
import pika.exceptions
import pytest
from pika import frame, spec
from pika.adapters.blocking_connection import BlockingChannel

from homing import HomingError
from homing.broker.auth.passwords import hash_password
from homing.client.blocking import connect as blocking
from tests.amqp_support import (
    AMQP,
    PERSISTENT,
    amqp_port,
    channel,
    connect,
    connection,
    consume,
    count,
    cut,
    get,
    named,
    wait_for_count,
    wait_until_seen,
)
from tests.amqp_wire import Wire
from tests.process import Server

# pika leaves its sockets to the collector where a connection fails.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


def closed_with(error: Any) -> tuple[int, str]:
    return error.value.reply_code, error.value.reply_text


# -- several methods in one write --------------------------------------------------------------------------------------


def test_answers_come_in_the_order_of_their_methods(broker: Server) -> None:
    """RabbitMQ answers so, and clients that send without waiting match the answers by it."""
    asked = [
        spec.Queue.Declare(0, "piped", durable=True),
        spec.Basic.Qos(0, 7, False),
        spec.Basic.Consume(0, "piped", "c"),
        spec.Exchange.Declare(0, "piped-x", "topic", durable=True),
        spec.Channel.Flow(True),
        spec.Queue.Bind(0, "piped", "piped-x", "a.b"),
        spec.Basic.Cancel("c"),
        spec.Basic.Get(0, "piped"),
        spec.Queue.Unbind(0, "piped", "piped-x", "a.b"),
        spec.Tx.Select(),
        spec.Tx.Commit(),
        spec.Exchange.Delete(0, "piped-x"),
        spec.Tx.Rollback(),
        spec.Queue.Purge(0, "piped"),
        spec.Basic.Recover(True),
        spec.Queue.Delete(0, "piped"),
        spec.Queue.Declare(0, "piped", passive=True),
    ]
    wire = Wire(amqp_port(broker))
    opened = wire.channel()
    wire.write(b"".join(frame.Method(opened.number, method).marshal() for method in asked))
    answers = [type(opened.item()).__name__ for _ in asked]
    wire.close()
    expected = [f"{type(method).__name__}Ok" for method in asked]
    assert answers == [{"GetOk": "GetEmpty"}.get(name, name) for name in expected[:-1]] + ["Close"]


# -- publish and get ---------------------------------------------------------------------------------------------------


def test_what_is_published_is_got_as_it_came(ch: BlockingChannel) -> None:
    ch.queue_declare("orders")
    headers = {"text": "ä", "number": -5, "big": 1 << 40, "flag": True, "none": None, "list": [1, {"deep": "x"}], "raw": b"\x00\xff"}
    sent = pika.BasicProperties(
        content_type="application/json", content_encoding="gzip", headers=headers, delivery_mode=2, priority=7, correlation_id="c",
        reply_to="r", expiration="600000", message_id="m", timestamp=1_700_000_000, type="t", user_id="guest", app_id="a", cluster_id="k",
    )  # fmt: skip
    ch.basic_publish("", "orders", b"body", sent)
    method, properties, body = get(ch, "orders")
    assert (method.exchange, method.routing_key, method.redelivered, method.message_count) == ("", "orders", False, 0)
    assert body == b"body"
    assert properties == sent


@pytest.mark.parametrize("size", [0, 1, 131_064, 131_065, 3_000_000])
def test_bodies_of_any_size(ch: BlockingChannel, size: int) -> None:
    ch.queue_declare("large")
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    ch.basic_publish("", "large", body)
    assert get(ch, "large")[2] == body


def test_a_body_beyond_the_limit_closes_the_channel_only(start_server: Callable[..., Server]) -> None:
    server = start_server({**AMQP, "limits": {"max-message-bytes": "64KiB"}})
    with connection(server) as opened:
        ch = opened.channel()
        ch.queue_declare("small")
        ch.basic_publish("", "small", b"x" * 70_000)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as error:
            ch.basic_get("small")
        assert closed_with(error) == (406, "PRECONDITION_FAILED - message size 70000 is larger than configured max size 65536")
        assert opened.channel().queue_declare("small", passive=True).method.message_count == 0


def test_an_empty_queue_says_so(ch: BlockingChannel) -> None:
    ch.queue_declare("empty")
    assert ch.basic_get("empty") == (None, None, None)


def test_confirms_come_for_every_publish(ch: BlockingChannel) -> None:
    ch.queue_declare("confirmed", durable=True)
    ch.confirm_delivery()
    for number in range(50):
        ch.basic_publish("", "confirmed", str(number).encode(), PERSISTENT)
    assert count(ch, "confirmed") == 50


def test_a_mandatory_message_without_a_queue_comes_back(ch: BlockingChannel) -> None:
    ch.confirm_delivery()
    ch.basic_publish("", "nowhere", b"unwanted")
    with pytest.raises(pika.exceptions.UnroutableError) as error:
        ch.basic_publish("", "nowhere", b"wanted", mandatory=True)
    returned = error.value.messages[0]
    assert (returned.method.reply_code, returned.method.reply_text, returned.method.routing_key) == (312, "NO_ROUTE", "nowhere")
    assert returned.body == b"wanted"


# -- consume and settle ------------------------------------------------------------------------------------------------


def test_consuming_in_order_within_the_prefetch(ch: BlockingChannel) -> None:
    ch.queue_declare("window")
    for number in range(10):
        ch.basic_publish("", "window", str(number).encode())
    ch.basic_qos(prefetch_count=3)
    held: list[Any] = []
    consume(ch, "window", 3, lambda method, properties, body: held.append((method, body)))
    ch.connection.process_data_events(0.2)
    assert [body for _, body in held] == [b"0", b"1", b"2"]
    ch.basic_ack(held[1][0].delivery_tag, multiple=True)
    wait_until_seen(ch, held, 5)
    assert [body for _, body in held] == [b"0", b"1", b"2", b"3", b"4"]
    wait_for_count(ch, "window", 5)


def test_a_prefetch_for_the_whole_channel(ch: BlockingChannel) -> None:
    for queue in ("left", "right"):
        ch.queue_declare(queue)
        for number in range(5):
            ch.basic_publish("", queue, str(number).encode())
    ch.basic_qos(prefetch_count=4, global_qos=True)
    held: list[Any] = []
    for queue in ("left", "right"):
        ch.basic_consume(queue, lambda _, method, properties, body: held.append(method.delivery_tag))
    wait_until_seen(ch, held, 4)
    ch.connection.process_data_events(0.2)
    assert len(held) == 4
    while len(held) < 10:
        ch.basic_ack(held[-1], multiple=True)
        wait_until_seen(ch, held, min(10, len(held) + 1))
    assert held == list(range(1, 11))


def test_no_ack_is_done_when_sent(ch: BlockingChannel) -> None:
    ch.queue_declare("fire")
    for _ in range(20):
        ch.basic_publish("", "fire", b"x", PERSISTENT)
    got: list[bytes] = []
    tag = consume(ch, "fire", 20, lambda method, properties, body: got.append(body), auto_ack=True)
    ch.basic_cancel(tag)
    assert count(ch, "fire") == 0


def test_nack_with_requeue_comes_back_redelivered_at_its_place(ch: BlockingChannel) -> None:
    ch.queue_declare("again", durable=True)
    for body in (b"first", b"second"):
        ch.basic_publish("", "again", body, PERSISTENT)
    method, properties, _ = get(ch, "again", auto_ack=False)
    assert properties.headers is None
    ch.basic_nack(method.delivery_tag, requeue=True)
    method, properties, body = ch.basic_get("again", auto_ack=True)
    assert (body, method.redelivered, properties.headers) == (b"first", True, None)
    assert get(ch, "again")[2] == b"second"


def test_what_was_given_back_is_there_for_whoever_asks_next_on_the_same_connection(ch: BlockingChannel) -> None:
    ch.queue_declare("given.dead", durable=True)
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "given.dead"}
    ch.queue_declare("given", durable=True, arguments={**dead, "x-queue-type": "quorum"})
    for _ in range(3):
        ch.basic_publish("", "given", b"x", PERSISTENT)
        for times in range(10):
            method, properties, _ = ch.basic_get("given")
            assert (method.redelivered, (properties.headers or {}).get("x-delivery-count", 0)) == (times > 0, times)
            ch.basic_nack(method.delivery_tag, requeue=times < 9)
    assert (count(ch, "given"), count(ch, "given.dead")) == (0, 3)
    method, *_ = ch.basic_get("given.dead")
    ch.basic_nack(method.delivery_tag)
    assert ch.queue_purge("given.dead").method.message_count == 3
    ch.basic_publish("", "given", b"x", PERSISTENT)
    method, *_ = ch.basic_get("given")
    ch.basic_reject(method.delivery_tag)
    assert ch.queue_delete("given").method.message_count == 1


def test_a_consumer_that_comes_after_what_was_given_back_gets_it_at_its_place(ch: BlockingChannel) -> None:
    ch.queue_declare("given.first", durable=True)
    for number in range(5):
        ch.basic_publish("", "given.first", str(number).encode(), PERSISTENT)
    for _ in range(2):
        ch.basic_get("given.first")
    ch.basic_recover(requeue=True)
    seen: list[tuple[bool, bytes]] = []
    consume(ch, "given.first", 5, lambda method, properties, body: seen.append((method.redelivered, body)), auto_ack=True)
    assert seen == [(True, b"0"), (True, b"1"), (False, b"2"), (False, b"3"), (False, b"4")]


@pytest.mark.parametrize("auto_ack", [True, False])
def test_consumers_take_turns(ch: BlockingChannel, auto_ack: bool) -> None:
    queue = f"turns.{auto_ack}"
    ch.queue_declare(queue)
    seen: list[str] = []
    for name in "abc":
        ch.basic_consume(queue, named(seen, name), auto_ack=auto_ack, consumer_tag=name)
    for _ in range(9):
        ch.basic_publish("", queue, b"x")
    while len(seen) < 9:
        ch.connection.process_data_events(1)
    assert sorted("".join(seen[at : at + 3]) for at in (0, 3, 6)) == ["".join(seen[:3])] * 3


def test_what_a_closed_channel_held_is_there_for_the_next(broker: Server, ch: BlockingChannel) -> None:
    ch.queue_declare("held", durable=True)
    for number in range(3):
        ch.basic_publish("", "held", str(number).encode(), PERSISTENT)
    other = ch.connection.channel()
    for _ in range(2):
        get(other, "held", auto_ack=False)
    other.close()
    assert count(ch, "held") == 3
    assert [get(ch, "held")[2] for _ in range(3)] == [b"0", b"1", b"2"]


def test_cancel_leaves_what_was_delivered_with_the_channel(ch: BlockingChannel) -> None:
    ch.queue_declare("cancelled")
    ch.basic_publish("", "cancelled", b"kept")
    tags: list[int] = []
    ch.basic_cancel(consume(ch, "cancelled", 1, lambda method, properties, body: tags.append(method.delivery_tag)))
    assert count(ch, "cancelled") == 0
    ch.basic_ack(tags[0])
    ch.connection.process_data_events(0.1)
    assert ch.is_open


def test_recover_brings_back_all_that_is_unacknowledged(ch: BlockingChannel) -> None:
    ch.queue_declare("recovered")
    for number in range(3):
        ch.basic_publish("", "recovered", str(number).encode())
        get(ch, "recovered", auto_ack=False)
    ch.basic_recover(requeue=True)
    assert count(ch, "recovered") == 3
    assert [(m.redelivered, b) for m, _, b in (get(ch, "recovered") for _ in range(3))] == [(True, b"0"), (True, b"1"), (True, b"2")]


def test_a_hundred_requeues_and_twenty_lost_consumers_lose_nothing(broker: Server, ch: BlockingChannel) -> None:
    ch.queue_declare("tough", durable=True, arguments={"x-queue-type": "quorum", "x-delivery-limit": -1})
    ch.basic_publish("", "tough", b"still here", PERSISTENT)
    for _ in range(100):
        method, _, _ = get(ch, "tough", auto_ack=False)
        ch.basic_reject(method.delivery_tag, requeue=True)
    for _ in range(20):
        lost = connect(broker)
        get(lost.channel(), "tough", auto_ack=False)
        cut(lost)
    method, properties, body = get(ch, "tough")
    assert (body, method.redelivered, properties.headers) == (b"still here", True, {"x-delivery-count": 120})


# -- what lasts --------------------------------------------------------------------------------------------------------


def test_durable_things_survive_a_kill_and_others_do_not(start_server: Callable[..., Server]) -> None:
    broker = start_server(AMQP)
    with channel(broker) as ch:
        ch.exchange_declare("lasting", "topic", durable=True)
        ch.exchange_declare("passing", "topic")
        ch.exchange_declare("inner", "fanout", durable=True)
        ch.queue_declare("kept", durable=True, arguments={"x-max-priority": 5})
        ch.queue_declare("gone")
        ch.queue_bind("kept", "inner", "")
        ch.exchange_bind("inner", "lasting", "a.#")
        ch.exchange_declare("priced", "headers", durable=True)
        ch.queue_declare("by price", durable=True)
        ch.queue_bind("by price", "priced", "", {"price": Decimal("12.5")})
        ch.queue_bind("gone", "lasting", "a.#")
        ch.confirm_delivery()
        ch.basic_publish("lasting", "a.b", b"durable", PERSISTENT)
        ch.basic_publish("lasting", "a.b", b"transient")
    broker.kill()
    broker.start()
    with connection(broker) as opened:
        ch = opened.channel()
        assert ch.queue_declare("kept", durable=True, arguments={"x-max-priority": 5}).method.message_count == 1
        ch.basic_publish("lasting", "a.c", b"routed again", PERSISTENT)
        method, _, body = get(ch, "kept")
        assert (method.exchange, method.routing_key, body) == ("lasting", "a.b", b"durable")
        assert get(ch, "kept")[2] == b"routed again"
        for price in ("12.5", Decimal("12.5")):
            ch.basic_publish("priced", "", str(type(price)).encode(), pika.BasicProperties(headers={"price": price}))
        assert get(ch, "by price")[2] == str(Decimal).encode()
        ch.queue_unbind("by price", "priced", "", {"price": Decimal("12.5")})
        ch.basic_publish("priced", "", b"unbound", pika.BasicProperties(headers={"price": Decimal("12.5")}))
        assert ch.queue_declare("by price", passive=True).method.message_count == 0
        for what, name in (("queue_declare", "gone"), ("exchange_declare", "passing")):
            with pytest.raises(pika.exceptions.ChannelClosedByBroker) as error:
                getattr(opened.channel(), what)(name, passive=True)
            assert error.value.reply_code == 404


# -- queues and exchanges ----------------------------------------------------------------------------------------------


def test_each_kind_of_exchange_routes_as_it_should(ch: BlockingChannel) -> None:
    for queue in "abc":
        ch.queue_declare(queue)
    for kind in ("direct", "fanout", "headers"):
        ch.exchange_declare(f"x.{kind}", kind)
    ch.queue_bind("a", "x.direct", "red")
    ch.queue_bind("b", "x.direct", "blue")
    ch.queue_bind("a", "x.fanout")
    ch.queue_bind("c", "x.fanout")
    ch.queue_bind("b", "amq.topic", "stock.*.eu")
    ch.queue_bind("c", "amq.topic", "#.eu")
    ch.queue_bind("a", "x.headers", "", {"x-match": "any", "kind": "x", "size": 3})
    ch.queue_bind("b", "x.headers", "", {"x-match": "all", "kind": "x", "size": 3})

    def reached(exchange: str, key: str, headers: dict[str, Any] | None = None) -> str:
        ch.basic_publish(exchange, key, b"", pika.BasicProperties(headers=headers))
        return "".join(queue for queue in "abc" if ch.basic_get(queue, auto_ack=True)[0] is not None)

    assert [reached("x.direct", key) for key in ("red", "blue", "green")] == ["a", "b", ""]
    assert reached("x.fanout", "whatever") == "ac"
    assert [reached("amq.topic", key) for key in ("stock.oil.eu", "eu", "stock.eu", "stock.oil.us")] == ["bc", "c", "c", ""]
    assert [reached("x.headers", "", headers) for headers in ({"kind": "x"}, {"kind": "x", "size": 3}, {"kind": "y"})] == ["a", "ab", ""]
    ch.queue_unbind("a", "x.fanout")
    assert reached("x.fanout", "") == "c"


def test_alternate_exchange_and_cc(ch: BlockingChannel) -> None:
    ch.exchange_declare("spare", "fanout")
    ch.exchange_declare("main", "direct", arguments={"alternate-exchange": "spare"})
    for queue in ("one", "two", "three", "unrouted"):
        ch.queue_declare(queue)
        ch.queue_bind(queue, "spare" if queue == "unrouted" else "main", queue)
    ch.basic_publish("main", "nobody", b"x")
    assert get(ch, "unrouted")[0].exchange == "main"
    ch.basic_publish("main", "one", b"x", pika.BasicProperties(headers={"CC": ["two"], "BCC": ["three"]}))
    for queue in ("one", "two", "three"):
        method, properties, _ = get(ch, queue)
        assert (method.routing_key, properties.headers) == ("one", {"CC": ["two"]})


def test_server_named_exclusive_and_auto_deleted_queues(broker: Server, ch: BlockingChannel) -> None:
    name = ch.queue_declare("", exclusive=True).method.queue
    assert name.startswith("amq.gen-")
    ch.queue_declare("brief", auto_delete=True)
    with connection(broker) as other:
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as error:
            other.channel().queue_declare(name, passive=True)
        assert error.value.reply_code == 405
        second = other.channel()
        second.basic_cancel(second.basic_consume("brief", lambda *_: None))
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as error:
            second.queue_declare("brief", passive=True)
        assert error.value.reply_code == 404
    ch.connection.close()
    with connection(broker) as other, pytest.raises(pika.exceptions.ChannelClosedByBroker) as error:
        other.channel().queue_declare(name, passive=True)
    assert closed_with(error) == (404, f"NOT_FOUND - no queue '{name}' in vhost '/'")


def test_purge_and_delete(ch: BlockingChannel) -> None:
    ch.queue_declare("full")
    for _ in range(3):
        ch.basic_publish("", "full", b"x")
    assert ch.queue_purge("full").method.message_count == 3
    ch.basic_publish("", "full", b"x")
    assert ch.queue_delete("full").method.message_count == 1
    assert ch.queue_delete("full").method.message_count == 0


def test_a_deleted_queue_cancels_its_consumers(broker: Server, ch: BlockingChannel) -> None:
    ch.queue_declare("doomed")
    cancelled: list[str] = []
    ch.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    tag = ch.basic_consume("doomed", lambda *_: None)
    with channel(broker) as other:
        other.queue_delete("doomed")
    wait_until_seen(ch, cancelled, 1)
    assert cancelled == [tag]


@pytest.mark.parametrize(
    ("wrong", "code", "text"),
    [
        (lambda c: c.queue_declare("q", durable=True), 406, "arg 'durable' for queue 'q' in vhost '/': received 'true' but current is"),
        (lambda c: c.queue_declare("q", arguments={"x-message-ttl": 5}), 406, "inequivalent arg 'x-message-ttl' for queue 'q'"),
        (lambda c: c.queue_declare("r", arguments={"x-message-ttl": "5"}), 406, "invalid arg 'x-message-ttl' for queue 'r'"),
        (lambda c: c.queue_declare("amq.mine"), 403, "reserved prefix"),
        (lambda c: c.exchange_declare("x", "direct"), 406, "inequivalent arg 'type' for exchange 'x'"),
        (lambda c: c.exchange_declare("amq.mine"), 403, "reserved prefix"),
        (lambda c: c.exchange_delete("amq.direct"), 403, "deletion of system exchange 'amq.direct' in vhost '/' not allowed"),
        (lambda c: c.exchange_delete("x", if_unused=True), 406, "in use"),
        (lambda c: c.queue_bind("q", "missing", ""), 404, "no exchange 'missing' in vhost '/'"),
        (lambda c: c.queue_bind("missing", "x", ""), 404, "no queue 'missing' in vhost '/'"),
        (lambda c: c.basic_consume("missing", lambda *_: None), 404, "no queue 'missing' in vhost '/'"),
        (lambda c: c.basic_get("missing"), 404, "no queue 'missing' in vhost '/'"),
        (lambda c: (c.basic_publish("missing", "", b""), c.basic_get("q")), 404, "no exchange 'missing' in vhost '/'"),
        (lambda c: (c.basic_publish("", "q", b"", pika.BasicProperties(expiration="soon")), c.basic_get("q")), 406, "invalid expiration"),
        (lambda c: (c.basic_publish("", "q", b"", pika.BasicProperties(user_id="eve")), c.basic_get("q")), 406, "user_id property"),
        (lambda c: (c.basic_ack(99), c.basic_get("q")), 406, "unknown delivery tag 99"),
    ],
)  # fmt: skip
def test_errors_are_those_of_rabbitmq(broker: Server, wrong: Callable[[Any], Any], code: int, text: str) -> None:
    with connection(broker) as opened:
        setup = opened.channel()
        setup.queue_declare("q")
        setup.exchange_declare("x", "fanout")
        setup.queue_bind("q", "x")
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as error:
            wrong(opened.channel())
        assert error.value.reply_code == code
        assert text in error.value.reply_text
        assert opened.channel().queue_declare("q", passive=True).method.queue == "q", "the connection goes on"


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"virtual_host": "other"}, "vhost other not found"),
        ({"credentials": pika.PlainCredentials("guest", "wrong")}, "ACCESS_REFUSED"),
        ({"credentials": pika.PlainCredentials("eve", "guest")}, "ACCESS_REFUSED"),
    ],
)
def test_who_is_not_let_in_is_told_why(broker: Server, parameters: dict[str, Any], text: str) -> None:
    with pytest.raises(pika.exceptions.AMQPConnectionError) as error:
        connect(broker, **parameters)
    assert text in repr(error.value)


def test_users_of_the_configuration_log_in_and_guest_does_not(start_server: Callable[..., Server]) -> None:
    right, wrong = "what anna says", "what eve says"
    server = start_server({**AMQP, "users": {"anna": hash_password(right)}})
    with connection(server, credentials=pika.PlainCredentials("anna", right)) as opened:
        ch = opened.channel()
        ch.queue_declare("hers")
        ch.basic_publish("", "hers", b"x", pika.BasicProperties(user_id="anna"))
        assert get(ch, "hers")[1].user_id == "anna"
    for credentials in (pika.PlainCredentials("anna", wrong), pika.PlainCredentials("guest", "guest")):
        with pytest.raises(pika.exceptions.AMQPConnectionError) as error:
            connect(server, credentials=credentials)
        assert "ACCESS_REFUSED" in repr(error.value)
    with blocking(server.url, user="anna", password=right) as native:
        native.call("create-queue", queue="last")
    with pytest.raises(HomingError, match="the user or the password is wrong"), blocking(server.url, user="anna", password=wrong):
        pass
    server.stop()
    log = server.log_path.read_text()
    assert log.count("login-refused: ") == 3
    assert [word for word in (right, wrong) if word in log] == []


def test_what_is_not_there_answers_540(ch: BlockingChannel) -> None:
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as error:
        ch.basic_qos(prefetch_size=1000)
    assert closed_with(error) == (540, "NOT_IMPLEMENTED - prefetch_size!=0")
