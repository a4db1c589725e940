"""Messages: published, returned, got, consumed, settled in every way, within every window."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from pika import frame, spec
from pika.spec import Basic, Channel, Queue

from tests.amqp_wire import Ch, message_words
from tests.conformance.programs.stage import Stage, program


def fill(ch: Ch, queue: str, count: int) -> None:
    for number in range(count):
        ch.publish("", queue, str(number))
    ch.wait_count(queue, count)


def bodies(items: list[Any]) -> list[str]:
    return [("+" if item[0].redelivered else "") + item[2].decode() for item in items]


@program
def content_comes_as_it_was_sent(s: Stage) -> Any:
    queue, ch = s.queue("q"), s.channel()
    deep: dict[str, Any] = {
        "text": "ä", "number": -5, "big": 1 << 40, "flag": True, "none": None, "list": [1, {"deep": "x"}, []], "raw": b"\x00\xff",
        "decimal": Decimal("1.25"), "time": datetime.fromtimestamp(1_700_000_000, UTC), "empty": {}, "": "no name",
    }  # fmt: skip
    ch.publish(
        "", queue, b"\x00body", content_type="a/b", content_encoding="gzip", headers=deep, delivery_mode=2,
        priority=200, correlation_id="c", reply_to="r", expiration="60000", message_id="m", timestamp=1_700_000_000, type="t",
        user_id="guest", app_id="a", cluster_id="k",
    )  # fmt: skip
    ch.publish("", queue, "")
    ch.publish("", queue, "x", headers={})
    ch.wait_count(queue, 3)
    return [message_words(ch.wait(queue)) for _ in range(3)]


#: A value of each type that a table can hold, as bytes behind its name.
FIELDS = {
    "t": b"t\x01", "b": b"b\xff", "B": b"B\xff", "s": b"s\xff\xfe", "u": b"u\xff\xfe", "I": b"I\xff\xff\xff\xfe", "i": b"i\xff\xff\xff\xfe",
    "l": b"l" + b"\xff" * 8, "f": b"f\x3f\x80\x00\x00", "d": b"d\x3f\xf0" + bytes(6), "D": b"D\x02\x00\x00\x00\x7d",
    "S": b"S\x00\x00\x00\x02\xc3\xa4", "not text": b"S\x00\x00\x00\x02\xff\xfe", "T": b"T" + bytes(4) + b"\x65\x53\xf1\x00", "V": b"V",
    "x": b"x\x00\x00\x00\x02\x00\xff", "A": b"A\x00\x00\x00\x07I\x00\x00\x00\x01t\x01", "F": b"F\x00\x00\x00\x04\x01kt\x00",
    "no list": b"A\x00\x00\x00\x00", "no table": b"F\x00\x00\x00\x00",
}  # fmt: skip


@program
def fields_of_every_type_come_back_to_the_byte(s: Stage) -> Any:
    wire, queue = s.wire(), s.queue("q")
    ch = wire.channel()
    table = b"".join(bytes((len(name),)) + name.encode() + value for name, value in FIELDS.items())
    properties = b"\x20\x00" + struct.pack(">I", len(table)) + table
    wire.send(1, Basic.Publish(exchange="", routing_key=queue))
    payload = struct.pack(">HHQ", 60, 0, 1) + properties
    wire.write(struct.pack(">BHI", 2, 1, len(payload)) + payload + b"\xce" + frame.Body(1, b"x").marshal())
    ch.wait_count(queue, 1)
    ch.send(Basic.Get(queue=queue))
    return wire.raw_until(b"x\xce").endswith(payload + b"\xce" + frame.Body(1, b"x").marshal())


@program
def bodies_of_all_sizes(s: Stage) -> Any:
    queue, ch = s.queue("q"), s.wire(frame_max=4096).channel()
    came = []
    for size in (0, 1, 4087, 4088, 4089, 8176, 8177, 100_000):
        body = bytes(range(256)) * (size // 256 + 1)
        ch.wire.send(ch.number, Basic.Publish(0, "", queue))
        ch.wire.tune.frame_max = 4096
        ch.wire.content(ch.number, body[:size], spec.BasicProperties())
        came.append(ch.wait(queue)[2] == body[:size])
    return came


@program
def mandatory_messages_come_back(s: Stage) -> Any:
    exchange, ch = s.exchange("x", "direct"), s.channel()
    ch.publish("", s("nobody"), "one", mandatory=True, content_type="a/b", headers={"h": 1}, delivery_mode=2)
    ch.publish(exchange, "key", "two", mandatory=True)
    ch.publish(exchange, "key", "silently dropped")
    ch.publish(exchange, "key", "x" * 200, mandatory=True)
    return [ch.answer() for _ in range(3)] + ch.more()


@program
def publishing_what_cannot_be(s: Stage) -> Any:
    queue = s.queue("q")
    tries: list[tuple[str, str, dict[str, Any]]] = [
        (s("missing"), "", {}),
        ("", queue, {"expiration": "soon"}),
        ("", queue, {"expiration": "-1"}),
        ("", queue, {"expiration": "1.5"}),
        ("", queue, {"expiration": ""}),
        ("", queue, {"user_id": "eve"}),
        ("", queue, {"immediate": True}),
        ("", queue, {"reply_to": "amq.rabbitmq.reply-to"}),
    ]
    answers = []
    for exchange, key, more in tries:
        ch = s.channel()
        ch.publish(exchange, key, "x", **more)
        answers.append(ch.ask(Basic.Qos(prefetch_count=1)))
    return [answers, s.channel().bodies(queue)]


@program
def after_an_error_the_rest_of_the_channel_is_not_heard(s: Stage) -> Any:
    queue, ch = s.queue("q"), s.channel()
    ch.publish("", queue, "before")
    ch.publish(s("missing"), "", "wrong")
    ch.publish("", queue, "after")
    ch.send(Basic.Qos(prefetch_count=1))
    closed = ch.answer()
    again = Ch(ch.wire, ch.number)
    return [closed, again.ask(Channel.Open()), again.wait(queue)[2].decode(), again.bodies(queue)]


@program
def getting(s: Stage) -> Any:
    queue, ch = s.queue("q"), s.channel()
    empty = ch.ask(Basic.Get(queue=queue))
    fill(ch, queue, 3)
    first, second = ch.ask(Basic.Get(queue=queue)), ch.ask(Basic.Get(queue=queue, no_ack=True))
    ch.send(Basic.Reject(1, requeue=True))
    ch.wait_count(queue, 2)
    return [empty, first, second, ch.ask(Basic.Get(queue=queue)), ch.ask(Basic.Get(queue=queue)), ch.ask(Basic.Get(queue=queue))]


@program
def getting_where_another_consumes_alone(s: Stage) -> Any:
    queue, ch = s.queue("q"), s.channel()
    consuming = ch.ask(Basic.Consume(queue=queue, exclusive=True, consumer_tag="c"))
    return [consuming, s.one(Basic.Get(queue=queue))]


@program
def prefetch_for_each_consumer(s: Stage) -> Any:
    queue, ch = s.queue("q"), s.channel()
    fill(ch, queue, 10)
    answers = [ch.ask(Basic.Qos(prefetch_count=3)), ch.ask(Basic.Consume(queue=queue, consumer_tag="one"))]
    first = bodies(ch.take(3)) + ch.more()
    ch.send(Basic.Ack(2))
    second = bodies(ch.take(1)) + ch.more()
    answers += [ch.ask(Basic.Qos(prefetch_count=1)), ch.ask(Basic.Consume(queue=queue, consumer_tag="two"))]
    third = bodies(ch.take(1)) + ch.more()
    ch.send(Basic.Ack(0, multiple=True))
    return [answers, first, second, third, sorted(bodies(ch.take(4))), ch.more()]


@program
def prefetch_for_the_channel(s: Stage) -> Any:
    queue, ch = s.queue("q"), s.channel()
    fill(ch, queue, 10)
    answers = [ch.ask(Basic.Qos(prefetch_count=3, global_qos=True))]
    answers.append(ch.ask(Basic.Consume(queue=queue, consumer_tag="one")))
    first = bodies(ch.take(3))
    answers.append(ch.ask(Basic.Consume(queue=queue, consumer_tag="two")))
    quiet = ch.more()
    ch.send(Basic.Ack(3, multiple=True))
    return [answers, first, quiet, bodies(ch.take(3)), ch.more()]


@program
def prefetch_is_nothing_to_gets_and_to_those_who_do_not_acknowledge(s: Stage) -> Any:
    queue, ch = s.queue("q"), s.channel()
    fill(ch, queue, 10)
    ch.ask(Basic.Qos(prefetch_count=1))
    got = [ch.get(queue, no_ack=False)[2].decode() for _ in range(3)]
    ch.ask(Basic.Consume(queue=queue, no_ack=True))
    return [got, bodies(ch.take(7)), ch.more(), ch.count(queue)]


@program
def prefetch_in_bytes_is_not_there(s: Stage) -> Any:
    return s.each(Basic.Qos(prefetch_size=1), Basic.Qos(prefetch_size=0))


@program
def consuming(s: Stage) -> Any:
    queue, ch = s.queue("q"), s.channel()
    return [
        ch.ask(Basic.Consume(queue=queue)),
        ch.ask(Basic.Consume(queue=queue, consumer_tag="mine")),
        ch.ask(Basic.Cancel("mine")),
        ch.ask(Basic.Cancel("mine")),
        ch.ask(Basic.Cancel("never there")),
        ch.ask(Basic.Consume(queue=queue, consumer_tag="mine", no_local=True)),
        s.channel().ask(Basic.Consume(queue=queue, consumer_tag="mine")),
        ch.ask(Basic.Consume(queue=queue, consumer_tag="mine")),
    ]


@program
def consuming_alone(s: Stage) -> Any:
    queue, ch = s.queue("q"), s.channel()
    alone = Basic.Consume(queue=queue, consumer_tag="alone", exclusive=True)
    steps = [
        ch.ask(alone),
        s.one(Basic.Consume(queue=queue)),
        s.one(Basic.Consume(queue=queue, exclusive=True)),
        ch.ask(Basic.Cancel("alone")),
    ]
    steps += [ch.ask(Basic.Consume(queue=queue, consumer_tag="shared")), s.one(alone)]
    steps += [ch.ask(Basic.Cancel("shared")), s.one(alone)]
    return steps


@program
def consumers_with_priorities(s: Stage) -> Any:
    queue, ch = s.queue("q"), s.channel()
    ch.ask(Basic.Qos(prefetch_count=2))
    for tag, priority in (("low", -5), ("none", None), ("high", 10)):
        ch.ask(Basic.Consume(queue=queue, consumer_tag=tag, arguments=None if priority is None else {"x-priority": priority}))
    for number in range(6):
        ch.publish("", queue, str(number))
    came = sorted((item[2].decode(), item[0].consumer_tag) for item in ch.take(6))
    return [came, s.each(*(Basic.Consume(queue=queue, arguments={"x-priority": wrong}) for wrong in ("5", True, None)))]


@program
def a_single_active_consumer(s: Stage) -> Any:
    queue, ch, other = s.queue("q", {"x-single-active-consumer": True}), s.channel(), s.channel()
    for tag in ("first", "second"):
        ch.ask(Basic.Consume(queue=queue, consumer_tag=tag))
    other.ask(Basic.Consume(queue=queue, consumer_tag="third"))
    for number in range(3):
        s.channel().publish("", queue, str(number))
    taken = ch.take(3)
    ch.send(Basic.Ack(taken[0][0].delivery_tag))
    ch.ask(Basic.Cancel("first"))
    ch.publish("", queue, "next")
    taken += ch.take(1)
    ch.ask(Channel.Close(200, "", 0, 0))
    came = sorted(bodies(other.take(3)))
    return [[(item[0].consumer_tag, item[2].decode()) for item in taken], came, s.one(Basic.Consume(queue=queue, exclusive=True))]


@program
def consumers_hear_that_their_queue_is_gone(s: Stage) -> Any:
    queue, notified, silent = s.queue("q"), s.channel(), s.wire(capabilities={}).channel()
    for ch in (notified, silent):
        ch.ask(Basic.Consume(queue=queue, consumer_tag="c"))
    deleted = s.one(Queue.Delete(queue=queue))
    came = [notified.answer(), notified.more(), silent.more()]
    return [deleted, *came, notified.ask(Basic.Qos(prefetch_count=1)), notified.ask(Basic.Cancel("c"))]


@program
def what_a_cancelled_consumer_holds_stays_with_its_channel(s: Stage) -> Any:
    queue, ch = s.queue("q"), s.channel()
    fill(ch, queue, 3)
    ch.ask(Basic.Qos(prefetch_count=2))
    ch.ask(Basic.Consume(queue=queue, consumer_tag="c"))
    held = bodies(ch.take(2))
    steps = [ch.ask(Basic.Cancel("c")), ch.count(queue)]
    ch.send(Basic.Ack(1))
    ch.send(Basic.Nack(2, requeue=True))
    ch.wait_count(queue, 2)
    return [held, steps, ch.bodies(queue)]


# -- settling ----------------------------------------------------------------------------------------------------------


@program
def unknown_delivery_tags(s: Stage) -> Any:
    queue = s.queue("q")
    fill(s.channel(), queue, 5)

    def wrong(*settle: Any, out: int = 2) -> Any:
        ch = s.channel()
        for _ in range(out):
            ch.get(queue, no_ack=False)
        for each in settle:
            ch.send(each)
        reported = ch.ask(Basic.Qos(prefetch_count=1))
        if not ch.closed:
            ch.ask(Channel.Close(200, "", 0, 0))
        s.channel().wait_count(queue, 5)
        return reported

    return {
        "ack 99": wrong(Basic.Ack(99)),
        "ack 0": wrong(Basic.Ack(0)),
        "ack 99 multiple": wrong(Basic.Ack(99, multiple=True)),
        "ack 0 multiple, nothing out": wrong(Basic.Ack(0, multiple=True), out=0),
        "ack 1 multiple, nothing out": wrong(Basic.Ack(1, multiple=True), out=0),
        "nack 99": wrong(Basic.Nack(99)),
        "nack 99 multiple": wrong(Basic.Nack(99, multiple=True)),
        "nack 0 multiple, nothing out": wrong(Basic.Nack(0, multiple=True), out=0),
        "reject 99": wrong(Basic.Reject(99)),
        "reject 0": wrong(Basic.Reject(0)),
        "twice": wrong(Basic.Nack(1, requeue=True), Basic.Ack(1)),
        "reject twice": wrong(Basic.Reject(2, requeue=True), Basic.Reject(2, requeue=True)),
        "multiple twice": wrong(Basic.Nack(2, multiple=True, requeue=True), Basic.Nack(2, multiple=True, requeue=True)),
        "multiple below what is settled": wrong(Basic.Nack(2, requeue=True), Basic.Nack(2, multiple=True, requeue=True)),
    }


@program
def another_channels_delivery_tag(s: Stage) -> Any:
    queue, ch = s.queue("q"), s.channel()
    fill(ch, queue, 1)
    ch.wait(queue, no_ack=False)
    return s.one(Basic.Ack(1))


@program
def acknowledging_many_at_once(s: Stage) -> Any:
    queue, ch = s.queue("q"), s.channel()
    fill(ch, queue, 6)
    for _ in range(6):
        ch.get(queue, no_ack=False)
    ch.send(Basic.Ack(3))
    ch.send(Basic.Ack(4, multiple=True))
    ch.ask(Channel.Close(200, "", 0, 0))
    s.channel().wait_count(queue, 2)
    return s.channel().bodies(queue)


@program
def refusing_many_at_once_puts_them_where_they_were(s: Stage) -> Any:
    queue, ch = s.queue("q"), s.channel()
    fill(ch, queue, 6)
    for _ in range(4):
        ch.get(queue, no_ack=False)
    ch.send(Basic.Reject(2, requeue=True))
    ch.wait_count(queue, 3)
    ch.send(Basic.Nack(0, multiple=True, requeue=True))
    ch.wait_count(queue, 6)
    return bodies([ch.get(queue) for _ in range(6)])


@program
def refused_for_good(s: Stage) -> Any:
    queue, ch = s.queue("q"), s.channel()
    fill(ch, queue, 6)
    for _ in range(4):
        ch.get(queue, no_ack=False)
    ch.send(Basic.Reject(1, requeue=False))
    ch.send(Basic.Nack(3, multiple=True, requeue=False))
    ch.ask(Channel.Close(200, "", 0, 0))
    s.channel().wait_count(queue, 3)
    return bodies([s.channel().get(queue) for _ in range(3)])


@program
def refused_comes_back_to_the_same_consumer(s: Stage) -> Any:
    queue, ch = s.queue("q"), s.channel()
    ch.ask(Basic.Qos(prefetch_count=1))
    ch.ask(Basic.Consume(queue=queue, consumer_tag="c"))
    ch.publish("", queue, "x")
    came = []
    for tag in range(1, 5):
        came += bodies(ch.take(1))
        ch.send(Basic.Nack(tag, requeue=True))
    return came + bodies(ch.take(1))


@program
def recovering(s: Stage) -> Any:
    queue, ch = s.queue("q"), s.channel()
    fill(ch, queue, 3)
    ch.ask(Basic.Consume(queue=queue, consumer_tag="c"))
    first = bodies(ch.take(3))
    ch.send(Basic.Ack(2))
    recovered = ch.ask(Basic.Recover(requeue=True))
    again = ch.take(2)
    unknown = [item[0].delivery_tag for item in again]
    ch.send(Basic.RecoverAsync(requeue=True))
    return [first, recovered, bodies(again), unknown, bodies(ch.take(2)), ch.more(), s.one(Basic.Recover(requeue=False))]


@program
def a_closed_channel_gives_back_what_it_held(s: Stage) -> Any:
    queue, ch = s.queue("q"), s.channel()
    fill(ch, queue, 4)
    ch.ask(Basic.Consume(queue=queue))
    ch.take(4)
    ch.send(Basic.Ack(2))
    ch.ask(Channel.Close(200, "", 0, 0))
    again = Ch(ch.wire, ch.number)
    opened = again.ask(Channel.Open())
    again.wait_count(queue, 3)
    items = [again.get(queue, no_ack=False) for _ in range(3)]
    return [opened, bodies(items), [item[0].delivery_tag for item in items]]


@program
def a_cut_connection_gives_back_what_it_held(s: Stage) -> Any:
    queue, lost = s.queue("q"), s.wire().channel()
    fill(lost, queue, 3)
    lost.ask(Basic.Consume(queue=queue))
    lost.take(3)
    lost.wire.cut()
    ch = s.channel()
    ch.wait_count(queue, 3)
    return bodies([ch.get(queue) for _ in range(3)])


@program
def direct_replies(s: Stage) -> Any:
    queue, asking, answering = s.queue("questions"), s.channel(), s.wire().channel()
    reply = "amq.rabbitmq.reply-to"
    refused = s.one(Basic.Consume(queue=reply))
    consuming = asking.ask(Basic.Consume(queue=reply, no_ack=True, consumer_tag="c"))
    asking.publish("", queue, "2 + 2", reply_to=reply)
    question = answering.wait(queue)
    answering.publish("", question[1].reply_to, "4")
    answer = asking.take(1)
    late = asking.ask(Basic.Consume(queue=reply, no_ack=True, consumer_tag="d"))
    return [refused, consuming, question[1].reply_to.startswith(reply + "."), answer[0][2].decode(), answer[0][0].exchange, late]


@program
def priorities_of_messages(s: Stage) -> Any:
    ch, found = s.channel(), []
    for arguments in ({}, {"x-max-priority": 5}):
        queue = s.queue(str(len(arguments)), arguments)
        for priority in (None, 1, 9, 3, 5, 0, 5):
            ch.publish("", queue, str(priority), priority=priority)
        ch.wait_count(queue, 7)
        found.append(ch.bodies(queue))
    return found
