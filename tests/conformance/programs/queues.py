"""Queues: declared, found, purged, deleted; exclusive, auto-deleted, server-named; and what their arguments may be."""

from __future__ import annotations

import time
from typing import Any

from pika.spec import Basic, Exchange, Queue

from tests.amqp_wire import ANSWER_S
from tests.conformance.programs.stage import Stage, program


def there(s: Stage, name: str) -> Any:
    return s.one(Queue.Declare(queue=name, passive=True))


def gone(s: Stage, name: str, within_s: float = ANSWER_S) -> bool:
    end = time.monotonic() + within_s
    while " 404 " not in there(s, name):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


@program
def queues_declared_otherwise(s: Stage) -> Any:
    s.queue("q", {"x-message-ttl": 60_000}, durable=True)
    same: dict[str, Any] = {"durable": True, "arguments": {"x-message-ttl": 60_000}}
    others: list[dict[str, Any]] = [
        {},
        {"durable": False},
        {"auto_delete": True},
        {"exclusive": True},
        {"arguments": {}},
        {"arguments": None},
        {"arguments": {"x-message-ttl": 60_001}},
        {"arguments": {"x-message-ttl": "60000"}},
        {"arguments": {"x-message-ttl": 60_000, "x-max-length": 5}},
        {"arguments": {"x-message-ttl": 60_000, "unknown": 5}},
        {"passive": True, "durable": False, "arguments": {}},
    ]
    return s.each(*(Queue.Declare(queue=s("q"), **{**same, **other}) for other in others))


#: Every argument, what is wrong with it, and what is not.
VALUES: dict[str, list[Any]] = {
    "x-message-ttl": [0, 1, -1, "5", True, None, 1 << 40],
    "x-expires": [1000, 0, -1, "5", 1 << 40],
    "x-max-length": [0, 5, -1, "5", True],
    "x-max-length-bytes": [0, 5, -1, "5"],
    "x-overflow": ["drop-head", "reject-publish", "reject-publish-dlx", "explode", 1],
    "x-dead-letter-exchange": ["", "amq.direct", "missing", 1],
    "x-dead-letter-routing-key": ["alone", 1],
    "x-max-priority": [0, 1, 10, 255, 256, -1, "5"],
    "x-delivery-limit": [5, 0, -1, "5"],
    "x-queue-type": ["classic", "quorum", "nothing", 1],
    "x-queue-mode": ["lazy", "default", "other", 1],
    "x-single-active-consumer": [True, False, 1],
    "x-queue-version": [1, 2],
    "anything-else": [1, "text", None],
}


@program
def arguments_of_queues(s: Stage) -> Any:
    reported: dict[str, Any] = {}
    for name, values in VALUES.items():
        for number, value in enumerate(values):
            answer = s.one(Queue.Declare(queue=s(f"{name}.{number}"), durable=True, arguments={name: value}))
            reported[f"{name}: {value!r}"] = answer if "Close" in answer else "accepted"
    return reported


@program
def arguments_that_do_not_go_together(s: Stage) -> Any:
    quorum = {"x-queue-type": "quorum"}
    tries: list[dict[str, Any]] = [
        {"arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "k"}, "durable": True},
        {"arguments": quorum, "durable": False},
        {"arguments": quorum, "durable": True, "exclusive": True},
        {"arguments": quorum, "durable": True, "auto_delete": True},
        {"arguments": {**quorum, "x-max-priority": 5}, "durable": True},
        {"arguments": {**quorum, "x-overflow": "reject-publish-dlx"}, "durable": True},
        {"arguments": {**quorum, "x-delivery-limit": 3, "x-single-active-consumer": True}, "durable": True},
    ]
    answers = []
    for number, each in enumerate(tries):
        answer = s.one(Queue.Declare(queue=s(str(number)), **each))
        answers.append(answer if "Close" in answer else "accepted")
    return answers


@program
def arguments_that_grow(s: Stage) -> Any:
    s.queue("q", {"x-max-length": 5})
    return s.each(
        Queue.Declare(queue=s("q"), arguments={"x-max-length": 5}), Queue.Declare(queue=s("q"), arguments={"x-max-length": 1 << 40})
    )


@program
def queues_that_are_not_there(s: Stage) -> Any:
    return s.each(
        Queue.Declare(queue=s("missing"), passive=True),
        Queue.Declare(queue="amq.missing", passive=True),
        Queue.Declare(queue="amq.mine"),
        Queue.Declare(queue="", passive=True),
        Queue.Purge(queue=s("missing")),
        Queue.Delete(queue=s("missing")),
        Queue.Delete(queue=s("missing"), if_unused=True, if_empty=True),
        Basic.Get(queue=s("missing")),
        Basic.Consume(queue=s("missing")),
        Basic.Get(queue=""),
        Basic.Consume(queue=""),
        Queue.Purge(queue=""),
        Queue.Delete(queue=""),
    )


@program
def queues_named_by_the_server(s: Stage) -> Any:
    ch = s.channel()
    ch.send(Queue.Declare(queue="", exclusive=True))
    first = ch.item().queue
    ch.send(Queue.Declare(queue="", exclusive=True))
    second = ch.item().queue
    last = ch.ask(Queue.Declare(queue="", passive=True))
    return [first.startswith("amq.gen-"), first != second, last, ch.ask(Queue.Declare(queue=first, exclusive=True))]


@program
def queues_counted_purged_and_deleted(s: Stage) -> Any:
    queue, ch = s.queue("q"), s.channel()
    for number in range(5):
        ch.publish("", queue, str(number))
    ch.wait_count(queue, 5)
    ch.wait(queue, no_ack=False)
    declared = ch.ask(Queue.Declare(queue=queue))
    refused = s.one(Queue.Delete(queue=queue, if_empty=True))
    purged = ch.ask(Queue.Purge(queue=queue))
    again = ch.ask(Queue.Purge(queue=queue))
    ch.send(Basic.Nack(1, requeue=True))
    ch.wait_count(queue, 1)
    consumer = s.channel()
    consuming = consumer.ask(Basic.Consume(queue=queue, consumer_tag="c"))
    consumer.take(1)
    in_use = s.one(Queue.Delete(queue=queue, if_unused=True))
    counted = ch.ask(Queue.Declare(queue=queue))
    return [declared, refused, purged, again, consuming, in_use, counted, ch.ask(Queue.Delete(queue=queue)), there(s, queue)]


@program
def queue_deleted_if_empty_with_messages_out(s: Stage) -> Any:
    queue, ch = s.queue("q"), s.channel()
    ch.publish("", queue, "out")
    ch.wait(queue, no_ack=False)
    return [s.one(Queue.Delete(queue=queue, if_empty=True)), s.one(Queue.Declare(queue=queue, passive=True))]


@program
def deleted_and_declared_again_is_empty_and_unbound(s: Stage) -> Any:
    queue, exchange, ch = s.queue("q"), s.exchange("x", "fanout"), s.channel()
    s.bind(queue, exchange)
    ch.publish(exchange, "", "old")
    ch.wait_count(queue, 1)
    deleted = ch.ask(Queue.Delete(queue=queue))
    s.queue("q")
    ch.publish(exchange, "", "unrouted", mandatory=True)
    return [deleted, ch.answer(), ch.bodies(queue)]


@program
def exclusive_queue_from_another_connection(s: Stage) -> Any:
    queue, exchange, mine = s("q"), s.exchange("x", "fanout"), s.wire().channel()
    declared = mine.ask(Queue.Declare(queue=queue, exclusive=True))
    others = s.each(
        Queue.Declare(queue=queue, exclusive=True),
        Queue.Declare(queue=queue),
        Queue.Declare(queue=queue, passive=True),
        Queue.Bind(queue=queue, exchange=exchange),
        Queue.Unbind(queue=queue, exchange=exchange),
        Queue.Purge(queue=queue),
        Queue.Delete(queue=queue),
        Basic.Get(queue=queue),
        Basic.Consume(queue=queue),
    )
    publishing = s.channel()
    publishing.publish("", queue, "anybody may")
    own = [mine.wait(queue)[2].decode(), mine.ask(Queue.Declare(queue=queue, exclusive=True)), mine.ask(Queue.Declare(queue=queue))]
    second = mine.wire.channel().ask(Queue.Declare(queue=queue, passive=True))
    mine.wire.close()
    return [declared, others, own, second, gone(s, queue)]


@program
def exclusive_queue_of_a_connection_that_was_cut(s: Stage) -> Any:
    mine = s.wire().channel()
    mine.ask(Queue.Declare(queue=s("q"), exclusive=True, durable=True))
    mine.wire.cut()
    return gone(s, s("q"))


@program
def queue_that_ends_with_its_last_consumer(s: Stage) -> Any:
    queue = s.queue("q", auto_delete=True)
    ch, other = s.channel(), s.channel()
    ch.get(queue)
    after_get = there(s, queue)
    for channel, tag in ((ch, "one"), (ch, "two"), (other, "three")):
        channel.ask(Basic.Consume(queue=queue, consumer_tag=tag))
    ch.ask(Basic.Cancel("one"))
    ch.ask(Basic.Cancel("two"))
    one_left = there(s, queue)
    other.ask(Basic.Cancel("three"))
    return [after_get, one_left, gone(s, queue)]


@program
def queue_that_ends_with_its_consumers_channel(s: Stage) -> Any:
    queue, wire = s.queue("q", auto_delete=True), s.wire()
    wire.channel().ask(Basic.Consume(queue=queue))
    wire.cut()
    return gone(s, queue)


@program
def queue_that_expires_when_nobody_uses_it(s: Stage) -> Any:
    used, idle = s.queue("used", {"x-expires": 400}), s.queue("idle", {"x-expires": 400})
    ch = s.channel()
    ch.ask(Basic.Consume(queue=used))
    # Asking for a queue, also passively, is using it: so it is left alone first.
    time.sleep(2.5)
    return s.each(Queue.Declare(queue=idle, passive=True), Queue.Declare(queue=used, passive=True))


@program
def declared_without_waiting(s: Stage) -> Any:
    ch, exchange = s.channel(), s("x")
    ch.send(Exchange.Declare(exchange=exchange, type="fanout", nowait=True))
    ch.send(Queue.Declare(queue=s("q"), nowait=True))
    ch.send(Queue.Bind(queue=s("q"), exchange=exchange, nowait=True))
    ch.send(Basic.Consume(queue=s("q"), consumer_tag="c", no_ack=True, nowait=True))
    ch.publish(exchange, "", "x")
    came = ch.take(1)
    ch.send(Basic.Cancel("c", nowait=True))
    ch.send(Queue.Purge(queue=s("q"), nowait=True))
    ch.send(Queue.Delete(queue=s("q"), nowait=True))
    ch.send(Exchange.Delete(exchange=exchange, nowait=True))
    return [came[0][2].decode(), ch.more(), there(s, s("q"))]


@program
def names_of_any_kind(s: Stage) -> Any:
    names = ["ä ö", "with space", "a/b", "x" * 200, "*", "#", "a.b", "a::b", "tab\there", "ünï-🙂"]
    answers = []
    for name in names:
        answer = s.one(Queue.Declare(queue=s(name)))
        ch = s.channel()
        if "Close" not in answer:
            ch.publish("", s(name), "x")
            answer += " " + ch.wait(s(name))[2].decode()
            ch.ask(Queue.Delete(queue=s(name)))
        answers.append(answer)
    return answers
