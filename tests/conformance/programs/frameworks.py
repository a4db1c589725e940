"""What client libraries and frameworks rely on beyond the plain protocol: direct replies, shared prefetch, sentences that they read."""

from __future__ import annotations

import struct
import time
from typing import Any, Final

from pika import frame
from pika.spec import Basic, Connection, Exchange, Queue

from tests.amqp_wire import Ch, message_words, words
from tests.conformance.programs.stage import Stage, program

REPLY_TO: Final = "amq.rabbitmq.reply-to"
#: Stand in arguments for values of types that pika does not write.
_PLACE_8: Final = 0x0123456789ABCDEF
_PLACE_4: Final = 0x01234567


def sentence(s: Stage, method: Any, kind: bytes = b"", value: bytes = b"") -> str:
    """The whole text of the exception that ``method`` is answered with; "" where it is answered with none.

    ``kind``, ``value``: what an argument that is a place holder is replaced by.
    """
    ch = s.channel()
    place = b"l" + _PLACE_8.to_bytes(8, "big") if len(value) == 8 else b"I" + _PLACE_4.to_bytes(4, "big")
    ch.wire.write(frame.Method(ch.number, method).marshal().replace(place, kind + value))
    item = ch.item()
    return str(getattr(item, "reply_text", ""))


@program
def direct_replies_are_consumed_again(s: Stage) -> Any:
    ch = s.channel()
    first = ch.ask(Basic.Consume(queue=REPLY_TO, consumer_tag="one", no_ack=True))
    twice = s.one(Basic.Consume(queue=REPLY_TO, consumer_tag="other", no_ack=True))
    ch.publish("", s.queue("requests"), "?", reply_to=REPLY_TO)
    old = ch.wait(s("requests"))[1].reply_to
    cancelled = ch.ask(Basic.Cancel("one"))
    again = ch.ask(Basic.Consume(queue=REPLY_TO, consumer_tag="two", no_ack=True))
    ch.publish("", s("requests"), "?", reply_to=REPLY_TO)
    new = ch.wait(s("requests"))[1].reply_to
    other = s.wire().channel()
    other.publish("", new, "answer")
    answer = ch.take(1)
    while_there = ch.ask(Basic.Consume(queue=REPLY_TO, consumer_tag="three", no_ack=True))
    return [first, twice, cancelled, again, old != new, answer[0][0].consumer_tag, answer[0][2].decode(), while_there]


@program
def without_a_reply_consumer(s: Stage) -> Any:
    ch = s.channel()
    ch.ask(Basic.Consume(queue=REPLY_TO, consumer_tag="one", no_ack=True))
    ch.ask(Basic.Cancel("one"))
    ch.publish("", s.queue("requests"), "?", reply_to=REPLY_TO)
    return ch.answer(2)


@program
def colons_in_names(s: Stage) -> Any:
    ch, name, exchange = s.channel(), s("app::Work::rpc"), s("app::Events")
    answers = [
        ch.ask(Queue.Declare(queue=name, arguments={"x-dead-letter-exchange": exchange})),
        s.exchange("app::Events", "topic"),
    ]
    s.bind(name, exchange, "a::b")
    ch.publish(exchange, "a::b", "routed")
    ch.publish("", name, "by name")
    return [*answers, ch.wait(name)[2].decode(), ch.wait(name)[2].decode(), ch.ask(Queue.Delete(queue=name))]


@program
def line_feeds_in_names(s: Stage) -> Any:
    name, exchange, end = s("q"), s("x"), "\r\n"
    reported = s.each(
        Queue.Declare(queue=name + end),
        Queue.Declare(queue=end + name, passive=True),
        Queue.Declare(queue="amq" + end + ".mine"),
        Exchange.Declare(exchange=exchange + end, type="direct"),
        Exchange.Declare(exchange=exchange + end, passive=True),
        Exchange.Declare(exchange=exchange, passive=True),
        Exchange.Declare(exchange="amq" + end + ".mine", type="direct"),
        Queue.Bind(queue=name + end, exchange=exchange + end, routing_key="key\n"),
        Exchange.Bind(destination=exchange + end, source=exchange + end, routing_key="other"),
        Exchange.Unbind(destination=exchange + end, source=exchange + end, routing_key="other"),
        Basic.Get(queue=name + end),
        Basic.Consume(queue=name + end),
        Queue.Purge(queue=name + end),
    )
    routed = []
    for to, key in ((exchange, "key"), (exchange, "key\n"), ("", name), ("", name + end), (exchange + end, "key\n")):
        ch = s.channel()
        ch.publish(to, key, "x", mandatory=True)
        answer = ch.answer(0.5)
        routed.append(answer if isinstance(answer, str) else answer["how"])
    ch = s.channel()
    ch.wait_count(name, 2)
    ends = s.each(
        Queue.Unbind(queue=name + end, exchange=exchange + end, routing_key="key\n"),
        Queue.Delete(queue=name + end, if_empty=True),
        Queue.Delete(queue=name + end),
        Exchange.Delete(exchange=exchange + end),
        Exchange.Declare(exchange=exchange, passive=True),
        Queue.Declare(queue=name, passive=True),
    )
    return [reported, routed, ends]


@program
def secret_renewed(s: Stage) -> Any:
    wire = s.wire()
    wire.send(0, Connection.UpdateSecret("a new one", "it was old"))
    answer = wire.next(0)
    return [words(answer), wire.channel().ask(Queue.Declare(queue=s("q")))]


@program
def told_of_a_deleted_queue(s: Stage) -> Any:
    queue, ch = s.queue("q"), s.channel()
    ch.ask(Basic.Consume(queue=queue, consumer_tag="c"))
    answers = [ch.ask(Queue.Delete(queue=queue)), ch.answer()]
    other = s.queue("other")
    ch.ask(Basic.Consume(queue=other, consumer_tag="c"))
    ch.publish("", other, "out")
    ch.take(1)
    return [*answers, ch.ask(Queue.Delete(queue=other)), ch.answer()]


def names(ch: Ch, wanted: int) -> list[str]:
    """What the next so many methods are, whatever their order."""
    items = [ch.item() for _ in range(wanted)]
    return sorted((item[0] if isinstance(item, tuple) else item).NAME for item in items)


@program
def a_consumer_that_waits_comes_first(s: Stage) -> Any:
    queue, ch = s.queue("q"), s.channel()
    ch.ask(Basic.Consume(queue=queue, consumer_tag="c"))
    reported = []
    looking = (Basic.Get(queue=queue), Queue.Purge(queue=queue), Queue.Declare(queue=queue, passive=True), Queue.Delete(queue=queue))
    for number, method in enumerate(looking):
        ch.publish("", queue, str(number))
        ch.send(method)
        reported.append(names(ch, 2))
    return reported


@program
def asking_for_a_queue_keeps_it(s: Stage) -> Any:
    queue, ch = s.queue("q", {"x-expires": 1000}), s.channel()
    asked = []
    for _ in range(8):
        time.sleep(0.25)  # in all twice as long as it would live
        asked.append(ch.ask(Queue.Declare(queue=queue, passive=True)))
    return asked


@program
def a_queue_that_expires_soon(s: Stage) -> Any:
    queue = s.queue("q", {"x-expires": 100})
    time.sleep(0.6)  # asking for it meanwhile would be using it
    return s.one(Queue.Declare(queue=queue, passive=True))


def holding(ch: Ch, quiet_s: float = 0.4) -> dict[str, int]:
    """Deliveries by consumer, until no more come."""
    held: dict[str, int] = {}
    while isinstance(item := ch.item(quiet_s), tuple):
        held[item[0].consumer_tag] = held.get(item[0].consumer_tag, 0) + 1
    return dict(sorted(held.items()))


@program
def a_shared_prefetch_is_shared(s: Stage) -> Any:
    ch = s.channel()
    ch.ask(Basic.Qos(prefetch_count=1, global_qos=True))
    queues = [s.queue(str(number)) for number in range(3)]
    for queue in queues:
        for number in range(100):
            ch.publish("", queue, str(number))
        ch.wait_count(queue, 100)
    for number, queue in enumerate(queues):
        ch.send(Basic.Consume(queue=queue, consumer_tag=str(number), nowait=True))
    came: dict[str, int] = {}
    for _ in range(99):
        ((how, _, _),) = ch.take(1)
        came[how.consumer_tag] = came.get(how.consumer_tag, 0) + 1
        ch.send(Basic.Ack(how.delivery_tag))
    return [sorted(came), all(20 <= count <= 46 for count in came.values())]


@program
def a_shared_prefetch_and_consumers_without_acknowledgements(s: Stage) -> Any:
    ch = s.channel()
    ch.ask(Basic.Qos(prefetch_count=3, global_qos=True))
    acked, free = s.queue("acked"), s.queue("free")
    for queue, count in ((acked, 3), (free, 10)):
        for number in range(count):
            ch.publish("", queue, str(number))
        ch.wait_count(queue, count)
    ch.ask(Basic.Consume(queue=acked, consumer_tag="acked"))
    reported = [holding(ch)]
    ch.ask(Basic.Consume(queue=free, consumer_tag="free", no_ack=True))
    reported.append(holding(ch))
    ch.send(Basic.Ack(1))
    reported.append(holding(ch))
    ch.publish("", acked, "fills it again")
    reported.append(holding(ch))
    ch.publish("", free, "waits")
    reported.append(holding(ch))
    ch.send(Basic.Cancel("acked", nowait=True))
    reported.append(holding(ch))
    ch.send(Basic.Ack(0, multiple=True))
    reported.append(holding(ch))
    return reported


@program
def a_get_does_not_count_for_a_shared_prefetch(s: Stage) -> Any:
    ch, queue = s.channel(), s.queue("q")
    ch.ask(Basic.Qos(prefetch_count=2, global_qos=True))
    for number in range(10):
        ch.publish("", queue, str(number))
    ch.wait_count(queue, 10)
    for _ in range(2):
        ch.wait(queue, no_ack=False)
    ch.ask(Basic.Consume(queue=queue, consumer_tag="c"))
    return holding(ch)


@program
def priorities_up_to_255(s: Stage) -> Any:
    queue, ch = s.queue("q", {"x-max-priority": 255}), s.channel()
    sent = [0, 10, 255, 9, 100, None, 254, 11, 101, 4]
    for priority in sent:
        ch.publish("", queue, str(priority), priority=priority)
    ch.wait_count(queue, len(sent))
    small = s.queue("small", {"x-max-priority": 12})
    for priority in [0, 13, 12, 255, 11, 12, 5]:
        ch.publish("", small, str(priority), priority=priority)
    ch.wait_count(small, 7)
    return [ch.bodies(queue), ch.bodies(small)]


@program
def one_message_in_queues_of_several_priorities(s: Stage) -> Any:
    exchange, ch = s.exchange("x", "fanout"), s.channel()
    queues = [s.queue("none"), s.queue("few", {"x-max-priority": 3}), s.queue("many", {"x-max-priority": 20})]
    for queue in queues:
        s.bind(queue, exchange)
    for priority in [2, 10, 3, 15, None, 1]:
        ch.publish(exchange, "", str(priority), priority=priority)
    for queue in queues:
        ch.wait_count(queue, 6)
    return [ch.bodies(queue) for queue in queues]


@program
def a_priority_is_told_as_it_was_sent(s: Stage) -> Any:
    queue, ch = s.queue("q", {"x-max-priority": 5}), s.channel()
    ch.publish("", queue, "none")
    ch.publish("", queue, "more than there are", priority=9)
    ch.wait_count(queue, 2)
    return [message_words(ch.get(queue))["properties"] for _ in range(2)]


@program
def a_priority_outlives_a_death(s: Stage) -> Any:
    dead, ch = s.queue("dead", {"x-max-priority": 100}), s.channel()
    source = s.queue("source", {"x-max-priority": 5, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    for priority in [3, 70, 20, 90, 5]:
        ch.publish("", source, str(priority), priority=priority)
    ch.wait_count(source, 5)
    for _ in range(5):
        ch.send(Basic.Reject(ch.get(source, no_ack=False)[0].delivery_tag, requeue=False))
    ch.wait_count(dead, 5)
    return ch.bodies(dead)


@program
def a_head_that_expired_is_gone_when_get_answers(s: Stage) -> Any:
    dead, ch = s.queue("dead", durable=True), s.channel()
    source = s.queue("source", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}, durable=True)
    reported = []
    for number in range(60):
        ch.publish("", source, str(number), expiration="1", delivery_mode=2)
        time.sleep(0.001 * (number % 6))  # about as long as it lives
        # Before its time the message itself comes, and then there is no death.
        if ch.get(source) is None:
            reported.append(ch.get(dead) is not None)
    return [any(reported), all(reported)]


@program
def sentences_about_queues(s: Stage) -> Any:
    s.queue("q", {"x-message-ttl": 1000}, durable=True)
    s.queue("text", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "here", "x-single-active-consumer": True})
    s.queue("gone", auto_delete=True)
    mine = s.wire().channel()
    mine.ask(Queue.Declare(queue=s("mine"), exclusive=True, durable=True))
    reported = [
        sentence(s, Queue.Declare(queue=s("q"), durable=True)),
        sentence(s, Queue.Declare(queue=s("q"), durable=True, arguments={"x-message-ttl": 2000})),
        sentence(s, Queue.Declare(queue=s("q"), durable=True, arguments={"x-message-ttl": 1 << 32})),
        sentence(s, Queue.Declare(queue=s("q"), durable=True, arguments={"x-message-ttl": _PLACE_4}), b"i", struct.pack(">I", 1000)),
        sentence(s, Queue.Declare(queue=s("q"), durable=True, arguments={"x-message-ttl": _PLACE_8}), b"l", struct.pack(">q", 1000)),
        sentence(s, Queue.Declare(queue=s("q"), durable=True, arguments={"x-message-ttl": _PLACE_8}), b"l", struct.pack(">q", 1001)),
        sentence(s, Queue.Declare(queue=s("q"), durable=True, arguments={"x-message-ttl": _PLACE_8}), b"T", struct.pack(">q", 1000)),
        sentence(s, Queue.Declare(queue=s("q"), durable=True, arguments={"x-message-ttl": 1000, "x-max-length": 5})),
        sentence(s, Queue.Declare(queue=s("q"), durable=True, arguments={"x-message-ttl": "1000"})),
        sentence(s, Queue.Declare(queue=s("q"), durable=True, arguments={"x-message-ttl": True})),
        sentence(s, Queue.Declare(queue=s("q"), arguments={"x-message-ttl": 1000})),
        sentence(s, Queue.Declare(queue=s("q"), auto_delete=True)),
        sentence(s, Queue.Declare(queue=s("q"), exclusive=True)),
        sentence(s, Queue.Declare(queue=s("gone"))),
        sentence(s, Queue.Declare(queue=s("text"), arguments={"x-dead-letter-exchange": "amq.fanout"})),
        sentence(s, Queue.Declare(queue=s("text"), arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "there"})),
        sentence(s, Queue.Declare(queue=s("text"), arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "here"})),
        sentence(s, Queue.Declare(queue=s("mine"))),
        sentence(s, Queue.Declare(queue=s("mine"), exclusive=True)),
    ]
    own = [
        mine.ask(Queue.Declare(queue=s("mine"), exclusive=True, durable=False)),
        mine.ask(Queue.Declare(queue=s("mine"), exclusive=True, durable=True)),
    ]
    other = mine.wire.channel()
    other.send(Queue.Declare(queue=s("mine"), exclusive=False, durable=True))
    own.append(other.item().reply_text)
    other = mine.wire.channel()
    other.send(Queue.Declare(queue=s("mine"), exclusive=True, durable=True, auto_delete=True))
    own.append(other.item().reply_text)
    return [reported, own]


@program
def numbers_declared_otherwise(s: Stage) -> Any:
    queue = s.queue("q", {"x-message-ttl": 10}, durable=True)
    kinds = {
        "d": struct.pack(">d", 10.0),
        "f": struct.pack(">f", 10.0),
        "I": struct.pack(">i", 10),
        "i": struct.pack(">I", 10),
        "l": struct.pack(">q", 10),
        "T": struct.pack(">Q", 10),
    }
    reported = {}
    for kind, value in kinds.items():
        place = _PLACE_8 if len(value) == 8 else _PLACE_4
        said = sentence(s, Queue.Declare(queue=queue, durable=True, arguments={"x-message-ttl": place}), kind.encode(), value)
        reported[kind] = said.partition(": received")[0]
    return reported


@program
def sentences_about_arguments(s: Stage) -> Any:
    arguments: list[dict[str, Any]] = [
        {"x-message-ttl": -1},
        {"x-message-ttl": "5"},
        {"x-expires": 0},
        {"x-expires": -1},
        {"x-max-length": -1},
        {"x-max-length": "5"},
        {"x-max-priority": -1},
        {"x-max-priority": 256},
        {"x-max-priority": "5"},
        {"x-overflow": "explode"},
        {"x-overflow": 1},
        {"x-dead-letter-exchange": 1},
        {"x-dead-letter-routing-key": "alone"},
        {"x-queue-type": "nothing"},
        {"x-queue-mode": "other"},
        {"x-single-active-consumer": 1},
    ]
    return [sentence(s, Queue.Declare(queue=s(str(number)), durable=True, arguments=each)) for number, each in enumerate(arguments)]


@program
def sentences_of_other_exceptions(s: Stage) -> Any:
    queue, ch = s.queue("q"), s.channel()
    ch.publish("", queue, "x")
    ch.wait_count(queue, 1)
    exchange = s.exchange("x", "direct", durable=True)
    reported = [
        sentence(s, Queue.Delete(queue=queue, if_empty=True)),
        sentence(s, Queue.Declare(queue=s("missing"), passive=True)),
        sentence(s, Queue.Declare(queue="amq.mine")),
        sentence(s, Queue.Bind(queue=queue, exchange=s("missing"))),
        sentence(s, Basic.Ack(7)),
        sentence(s, Basic.Consume(queue=s("missing"))),
    ]
    ch.ask(Basic.Consume(queue=queue, consumer_tag="c", exclusive=True))
    reported += [
        sentence(s, Basic.Consume(queue=queue)),
        sentence(s, Queue.Delete(queue=queue, if_unused=True)),
    ]
    reported += [
        sentence(s, Exchange.Declare(exchange=exchange, type="fanout", durable=True)),
        sentence(s, Exchange.Declare(exchange=exchange, type="direct")),
        sentence(s, Exchange.Declare(exchange=exchange, type="direct", durable=True, arguments={"alternate-exchange": "other"})),
        sentence(s, Exchange.Declare(exchange="amq.mine", type="direct")),
        sentence(s, Exchange.Declare(exchange=s("missing"), passive=True)),
        sentence(s, Exchange.Delete(exchange="amq.direct")),
        sentence(s, Queue.Bind(queue=queue, exchange="")),
    ]
    return reported
