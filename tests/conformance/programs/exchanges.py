"""Exchanges: declared, bound, deleted, and where each kind routes."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from pika.compat import long
from pika.spec import Basic, Exchange, Queue

from tests.amqp_wire import plain
from tests.conformance.programs.stage import Stage, program

KINDS = ("direct", "topic", "fanout", "headers")


@program
def exchanges_of_all_kinds_declared_twice_and_deleted(s: Stage) -> Any:
    def declare(kind: str) -> Any:
        return Exchange.Declare(exchange=s(kind), type=kind, durable=True)

    return [
        s.each(declare(kind), declare(kind), Exchange.Delete(exchange=s(kind)), Exchange.Declare(exchange=s(kind), passive=True))
        for kind in KINDS
    ]


@program
def exchanges_declared_otherwise(s: Stage) -> Any:
    s.exchange("x", "topic", {"alternate-exchange": "amq.fanout"}, durable=True)
    same: dict[str, Any] = {"type": "topic", "durable": True, "arguments": {"alternate-exchange": "amq.fanout"}}
    others: list[dict[str, Any]] = [
        {},
        {"type": "direct"},
        {"durable": False},
        {"auto_delete": True},
        {"internal": True},
        {"arguments": {}},
        {"arguments": {"alternate-exchange": "amq.direct"}},
        {"arguments": {"alternate-exchange": "amq.fanout", "other": 1}},
        {"passive": True, "type": "direct", "durable": False},
    ]
    return s.each(*(Exchange.Declare(exchange=s("x"), **{**same, **other}) for other in others))


@program
def exchanges_nobody_may_declare(s: Stage) -> Any:
    return s.each(
        Exchange.Declare(exchange="amq.mine", type="direct"),
        Exchange.Declare(exchange="amq.direct", type="direct", durable=True),
        Exchange.Declare(exchange="amq.direct", type="fanout", durable=True),
        Exchange.Declare(exchange="amq.direct", passive=True),
        Exchange.Declare(exchange="amq.missing", passive=True),
        Exchange.Declare(exchange="", type="direct", durable=True),
        Exchange.Declare(exchange="", passive=True),
        Exchange.Declare(exchange=s("x"), type="no-such-kind"),
        Exchange.Declare(exchange=s("x"), type="direct", arguments={"alternate-exchange": 5}),
    )


@program
def exchanges_that_are_always_there(s: Stage) -> Any:
    names = ("direct", "fanout", "headers", "match", "topic")
    return s.each(*(Exchange.Declare(exchange=f"amq.{name}", passive=True) for name in names))


@program
def exchanges_deleted(s: Stage) -> Any:
    used = s.exchange("used", "fanout")
    s.bind(s.queue("q"), used)
    return s.each(
        Exchange.Delete(exchange=s("missing")),
        Exchange.Delete(exchange=s("missing"), if_unused=True),
        Exchange.Delete(exchange=used, if_unused=True),
        Exchange.Delete(exchange=used),
        Exchange.Declare(exchange=used, passive=True),
        Exchange.Delete(exchange="amq.direct"),
        Exchange.Delete(exchange="amq.missing"),
        Exchange.Delete(exchange=""),
    )


@program
def exchange_that_is_internal(s: Stage) -> Any:
    inner, outer, queue = s.exchange("inner", "fanout", internal=True), s.exchange("outer", "fanout"), s.queue("q")
    s.bind(queue, inner)
    bound = s.one(Exchange.Bind(destination=inner, source=outer))
    refused = s.channel()
    refused.publish(inner, "", "direct")
    answer = refused.answer()
    ch = s.channel()
    ch.publish(outer, "", "through")
    message = ch.wait(queue)
    return [bound, answer, message[0].exchange, message[2].decode(), ch.bodies(queue)]


@program
def exchange_that_ends_with_its_last_binding(s: Stage) -> Any:
    passing, source, queue = (
        s.exchange("passing", "direct", auto_delete=True),
        s.exchange("source", "fanout", auto_delete=True),
        s.queue("q"),
    )
    there = [Exchange.Declare(exchange=name, passive=True) for name in (passing, source)]
    before = s.each(*there)
    s.bind(queue, passing, "one")
    s.bind(queue, passing, "two")
    steps = s.each(
        Exchange.Bind(destination=passing, source=source),
        Queue.Unbind(queue=queue, exchange=passing, routing_key="one"),
        there[0],
        Queue.Unbind(queue=queue, exchange=passing, routing_key="two"),
    )
    return [before, steps, s.each(*there)]


@program
def exchange_that_ends_with_its_last_queue(s: Stage) -> Any:
    passing, queue = s.exchange("passing", "topic", auto_delete=True), s.queue("q")
    s.bind(queue, passing, "#")
    return s.each(Queue.Delete(queue=queue), Exchange.Declare(exchange=passing, passive=True))


@program
def exchanges_bound_to_exchanges(s: Stage) -> Any:
    first, second, queue = s.exchange("first", "topic"), s.exchange("second", "direct"), s.queue("q")
    s.bind(queue, second, "a.b")
    answers = s.each(
        Exchange.Bind(destination=second, source=first, routing_key="a.#"),
        Exchange.Bind(destination=second, source=first, routing_key="a.#"),
        Exchange.Bind(destination=s("missing"), source=first),
        Exchange.Bind(destination=first, source=s("missing")),
        Exchange.Bind(destination="", source=first),
        Exchange.Bind(destination=first, source=""),
        Exchange.Unbind(destination=second, source=first, routing_key="never bound"),
        Exchange.Unbind(destination=s("missing"), source=first),
        Exchange.Unbind(destination=first, source=s("missing")),
        Exchange.Unbind(destination="", source=first),
    )
    ch = s.channel()
    for key in ("a.b", "a.c", "b.b"):
        ch.publish(first, key, key)
    ch.wait_count(queue, 1)
    reached = ch.bodies(queue)
    answers.append(s.one(Exchange.Unbind(destination=second, source=first, routing_key="a.#")))
    ch.publish(first, "a.b", "again")
    return [answers, reached, ch.more(), ch.bodies(queue)]


@program
def exchanges_bound_in_a_circle(s: Stage) -> Any:
    first, second, queue = s.exchange("first", "fanout"), s.exchange("second", "fanout"), s.queue("q")
    s.bind(queue, second)
    answers = s.each(Exchange.Bind(destination=second, source=first), Exchange.Bind(destination=first, source=second))
    ch = s.channel()
    ch.publish(first, "", "once")
    ch.wait(queue, no_ack=True)
    return [answers, ch.bodies(queue)]


@program
def bindings_of_queues(s: Stage) -> Any:
    queue, exchange = s.queue("q"), s.exchange("x", "direct")
    bind = {"queue": queue, "exchange": exchange, "routing_key": "k"}
    return s.each(
        Queue.Bind(**bind),
        Queue.Bind(**bind),
        Queue.Bind(**bind, arguments={"other": 1}),
        Queue.Bind(queue=s("missing"), exchange=exchange),
        Queue.Bind(queue=queue, exchange=s("missing")),
        Queue.Bind(queue=queue, exchange="", routing_key="k"),
        Queue.Bind(queue="", exchange=exchange),
        Queue.Unbind(**bind),
        Queue.Unbind(**bind),
        Queue.Unbind(queue=queue, exchange=exchange, routing_key="never bound"),
        Queue.Unbind(queue=s("missing"), exchange=exchange),
        Queue.Unbind(queue=queue, exchange=s("missing")),
        Queue.Unbind(queue=queue, exchange="", routing_key=queue),
    )


@program
def binding_twice_delivers_once_and_unbinding_once_is_enough(s: Stage) -> Any:
    queue, exchange = s.queue("q"), s.exchange("x", "topic")
    for key in ("a.*", "a.*", "#", "*.b"):
        s.bind(queue, exchange, key)
    ch = s.channel()
    ch.publish(exchange, "a.b", "once")
    ch.wait_count(queue, 1)
    first = ch.bodies(queue)
    for key in ("a.*", "#", "*.b"):
        s.one(Queue.Unbind(queue=queue, exchange=exchange, routing_key=key))
    ch.publish(exchange, "a.b", "never", mandatory=True)
    return [first, ch.answer(), ch.bodies(queue)]


@program
def bindings_without_names_take_the_channels_last_queue(s: Stage) -> Any:
    ch, exchange = s.channel(), s.exchange("x", "direct")
    answers = [ch.ask(Queue.Declare(queue=s("q"))), ch.ask(Queue.Bind(queue="", exchange=exchange, routing_key=""))]
    ch.publish(exchange, s("q"), "by its name")
    answers += [ch.wait(s("q"))[2].decode(), ch.ask(Queue.Unbind(queue="", exchange=exchange, routing_key=""))]
    ch.publish(exchange, s("q"), "no more", mandatory=True)
    return [*answers, ch.answer(), ch.ask(Queue.Purge(queue="")), ch.ask(Basic.Get(queue="")), ch.ask(Queue.Delete(queue=""))]


@program
def topics(s: Stage) -> Any:
    patterns = ["#", "*", "a", "a.*", "a.#", "*.b", "#.b", "a.*.c", "a.#.c", "#.b.#", "*.*", "a..c", "", ".", "#.#", "*.#"]
    exchange, ch = s.exchange("x", "topic"), s.channel()
    for number, pattern in enumerate(patterns):
        s.bind(s.queue(str(number)), exchange, pattern)
    reached = {}
    for key in ["", "a", "b", "a.b", "a.b.c", "a.c", "a.x.y.c", "a..c", ".", "x.b.y", "a.b.c.d", "A", "#", "*"]:
        ch.publish(exchange, key, key, mandatory=True)
        ch.wait_count(s("0"), 1)
        reached[key] = [pattern for number, pattern in enumerate(patterns) if ch.get(s(str(number))) is not None]
    return reached


@program
def headers(s: Stage) -> Any:
    rules: list[dict[str, Any]] = [
        {"x-match": "all", "a": "1", "b": 2},
        {"x-match": "any", "a": "1", "b": 2},
        {"a": "1"},
        {"x-match": "any"},
        {"x-match": "all"},
        {"x-match": "all", "x-own": 1},
        {"x-match": "all-with-x", "x-own": 1},
        {"x-match": "any-with-x", "x-own": 1, "a": "1"},
        {"a": None},
        {"flag": True},
        {"x-match": "any", "n": -7, "t": {"deep": 1}},
    ]
    exchange, ch = s.exchange("x", "headers"), s.channel()
    for number, rule in enumerate(rules):
        s.bind(s.queue(str(number)), exchange, "ignored", rule)
    s.bind(s.queue("all"), s.exchange("all", "fanout"))
    s.one(Exchange.Bind(destination=exchange, source=s("all")))
    reached = []
    sent: list[dict[str, Any] | None]
    sent = [None, {}, {"a": "1"}, {"b": 2}, {"a": "1", "b": 2}, {"a": 1}, {"b": "2"}, {"a": "1", "b": 3}, {"a": "x"}, {"x-own": 1}]
    sent += [{"flag": True}, {"flag": False}, {"flag": 1}, {"n": -7}, {"t": {"deep": 1}}, {"t": {"deep": 2}}, {"b": 1 << 40, "a": "1"}]
    for fields in sent:
        ch.publish(s("all"), "", "x", headers=fields)
        ch.wait(s("all"))
        reached.append([plain(fields), [rules[number] for number in range(len(rules)) if ch.get(s(str(number))) is not None]])
    wrong = [{"x-match": "some"}, {"x-match": 1}]
    return [reached, s.each(*(Queue.Bind(queue=s("all"), exchange=exchange, arguments=each) for each in wrong))]


#: One value of each type that pika writes, and some that are equal as numbers.
TYPED: dict[str, Any] = {
    "text": "1",
    "bytes": b"\x00\xff",
    "int": 1,
    "long": long(1),
    "true": True,
    "decimal": Decimal(1),
    "decimal 1.0": Decimal("1.0"),
    "time": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
    "table": {"a": [1, "x"]},
    "table, otherwise": {"a": [long(1), "x"]},
    "array": [1, None, Decimal("-2.5")],
}


@program
def headers_of_every_type(s: Stage) -> Any:
    """Which bindings, by the type of their value, take a header of which type; also after one was taken away."""
    exchange, ch, all_of_them = s.exchange("x", "headers"), s.channel(), s.queue("all")
    s.bind(all_of_them, exchange, "", {"h": None})
    for name, value in TYPED.items():
        s.bind(s.queue(name), exchange, "", {"h": value})
    s.one(Queue.Unbind(queue=s("decimal"), exchange=exchange, arguments={"h": TYPED["decimal"]}))
    for name, value in TYPED.items():
        ch.publish(exchange, "", name, headers={"h": value})
    ch.wait_count(all_of_them, len(TYPED))
    return {name: sorted(ch.bodies(s(name))) for name in TYPED}


@program
def alternate_exchanges(s: Stage) -> Any:
    queue, spare = s.queue("q"), s.exchange("spare", "fanout")
    s.bind(queue, spare)
    middle = s.exchange("middle", "direct", {"alternate-exchange": spare})
    first = s.exchange("first", "direct", {"alternate-exchange": middle})
    lost = s.exchange("lost", "direct", {"alternate-exchange": s("missing")})
    ch = s.channel()
    ch.publish(first, "key", "over two", mandatory=True)
    ch.publish(lost, "key", "back", mandatory=True)
    returned = ch.answer()
    message = ch.wait(queue)
    return [returned, message[0].exchange, message[0].routing_key, message[2].decode(), ch.bodies(queue)]


@program
def alternate_exchanges_in_a_circle(s: Stage) -> Any:
    first = s.exchange("first", "direct", {"alternate-exchange": s("second")})
    s.exchange("second", "direct", {"alternate-exchange": first})
    ch = s.channel()
    ch.publish(first, "key", "round", mandatory=True)
    return ch.answer()


@program
def copies_for_cc_and_bcc(s: Stage) -> Any:
    exchange, ch = s.exchange("x", "direct"), s.channel()
    for name in ("one", "two", "three", "four"):
        s.bind(s.queue(name), exchange, name)
    ch.publish(exchange, "one", "x", headers={"CC": ["two", "one"], "BCC": ["three"], "other": 1})
    found = [[m[0].routing_key, plain(m[1].headers)] for m in (ch.wait(s(name)) for name in ("one", "two", "three"))]
    wrong: list[Any] = []
    for fields in ({"CC": "two"}, {"BCC": "two"}, {"CC": [1]}, {"CC": None}):
        refused = s.channel()
        refused.publish(exchange, "one", "x", headers=fields)
        wrong.append(refused.ask(Basic.Qos(prefetch_count=1)))
    return [found, ch.get(s("four")), wrong]
