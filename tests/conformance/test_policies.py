"""Policies beside what queues and exchanges were declared with: the same outcome here and on a real RabbitMQ, where one is asked for."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.amqp_support import AMQP, PERSISTENT, amqp_port, count, get
from tests.conformance import rabbitmq
from tests.process import Server, wait_until

# pika leaves its sockets to the collector where a connection fails.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
#: Name -> (pattern, apply-to, priority, definition): set on both brokers from the start.
POLICIES: Final[dict[str, tuple[str, str, int, dict[str, Any]]]] = {
    "ttl": ("^ttl", "queues", 0, {"message-ttl": 300}),
    "length": ("^length", "queues", 0, {"max-length": 4}),
    "bytes": ("^bytes$", "queues", 0, {"max-length-bytes": 5}),
    "rejecting": ("^rejecting", "queues", 0, {"max-length": 2, "overflow": "reject-publish"}),
    "overflow": ("^overflow", "queues", 0, {"overflow": "reject-publish"}),
    "dead": ("^dies", "queues", 0, {"dead-letter-exchange": "amq.direct", "dead-letter-routing-key": "by.policy"}),
    "exchange-only": ("^plain", "queues", 0, {"dead-letter-exchange": "amq.fanout"}),
    "limit": ("^limit", "queues", 0, {"delivery-limit": 2, "dead-letter-exchange": "", "dead-letter-routing-key": "limited"}),
    "expires": ("^idle", "queues", 0, {"expires": 400}),
    "low": ("ranked", "all", 1, {"max-length": 1}),
    "high": (r"ranked\.high$", "all", 2, {"message-ttl": 60_000}),
    "elsewhere": ("^untouched", "exchanges", 9, {"max-length": 1}),
    "alternate": ("^picky", "exchanges", 0, {"alternate-exchange": "caught"}),
}


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[int]]:
    """Ours, and RabbitMQ's where it is asked for."""
    fields = ("pattern", "apply-to", "priority", "definition")
    configured = {name: dict(zip(fields, policy, strict=True)) for name, policy in POLICIES.items()}
    server = Server(tmp_path_factory.mktemp("homing"), {**AMQP, "address-settings": {}, "policies": configured})
    other: rabbitmq.RabbitMQ | None = None
    try:
        found = [amqp_port(server.start())]
        if rabbitmq.asked_for():
            definitions = [{"name": name, "vhost": "/", **policy} for name, policy in configured.items()]
            other = rabbitmq.RabbitMQ(tmp_path_factory.mktemp("rabbitmq"), {"policies": definitions})
            found.append(other.start().port)
        yield found
    finally:
        server.close()
        if other is not None:
            other.close()
        gc.collect()


class Stage:
    def __init__(self, ch: BlockingChannel) -> None:
        self.ch = ch

    def queue(self, name: str, **arguments: Any) -> None:
        self.ch.queue_declare(name, durable=True, arguments={f"x-{key.replace('_', '-')}": value for key, value in arguments.items()})

    def publish(self, queue: str, bodies: str) -> str:
        """A word a message: ``+`` taken, ``-`` refused."""
        said = ""
        for body in bodies:
            try:
                self.ch.basic_publish("", queue, body.encode(), PERSISTENT)
                said += "+"
            except pika.exceptions.NackError:
                said += "-"
        return said

    def shrinks_to(self, queue: str, most: int) -> None:
        wait_until(f"{queue} is down to {most}", lambda: count(self.ch, queue) <= most)

    def rest(self, queue: str) -> str:
        found = ""
        while (message := self.ch.basic_get(queue, auto_ack=True))[0] is not None:
            found += message[2].decode()
        return found

    def reject(self, queue: str, requeue: bool = False) -> None:
        self.ch.basic_reject(get(self.ch, queue, auto_ack=False)[0].delivery_tag, requeue=requeue)


def limits(s: Stage) -> Any:
    seen = []
    for queue, most, arguments in (
        ("length", 4, {}),
        ("length.2", 2, {"max_length": 2}),
        ("length.9", 4, {"max_length": 9}),
        ("bytes", 5, {}),
    ):
        s.queue(queue, **arguments)
        s.publish(queue, "abcdefg")
        s.shrinks_to(queue, most)
        seen.append(s.rest(queue))
    return seen


def times(s: Stage) -> Any:
    for queue, arguments in (("ttl", {}), ("ttl.long", {"message_ttl": 60_000}), ("ttl.short", {"message_ttl": 100})):
        s.queue(queue, **arguments)
        s.publish(queue, "x")
    queues = ("ttl", "ttl.long", "ttl.short")
    wait_until("all have expired", lambda: not any(count(s.ch, queue) for queue in queues))
    return [s.rest(queue) for queue in queues]


def overflows(s: Stage) -> Any:
    seen = []
    for queue, arguments in (
        ("rejecting", {}),
        ("rejecting.not", {"overflow": "drop-head"}),
        ("overflow", {"max_length": 2}),
        ("overflow.not", {"max_length": 2, "overflow": "drop-head"}),
    ):
        s.queue(queue, **arguments)
        s.publish(queue, "ab")
        taken = s.publish(queue, "c")
        s.shrinks_to(queue, 2)
        seen.append((taken, s.rest(queue)))
    return seen


def dead_letter_exchanges(s: Stage) -> Any:
    for queue in ("by.policy", "own", "plain.grave"):
        s.queue(queue)
        s.ch.queue_bind(queue, "amq.direct", queue)
    s.ch.queue_bind("plain.grave", "amq.fanout")
    seen = []
    for queue, arguments in (
        ("dies", {}),
        ("dies.own", {"dead_letter_exchange": "amq.direct", "dead_letter_routing_key": "own"}),
        ("dies.half", {"dead_letter_exchange": ""}),
        ("plain", {}),
    ):
        s.queue(queue, **arguments)
        s.publish(queue, "x")
        s.reject(queue)
        graves = ["by.policy", "own", "plain.grave"]
        wait_until("it is dead-lettered", lambda graves=graves: any(count(s.ch, grave) for grave in graves))
        seen.append([s.rest(grave) for grave in graves])
    return seen


def delivery_limits(s: Stage) -> Any:
    s.queue("limited")
    seen = []
    for queue, arguments in (("limit", {}), ("limit.1", {"delivery_limit": 1}), ("limit.5", {"delivery_limit": 5})):
        s.queue(queue, queue_type="quorum", **arguments)
        s.publish(queue, "x")
        deliveries = 0
        while (dead := s.ch.basic_get("limited", auto_ack=True))[0] is None:
            message = s.ch.basic_get(queue)[0]
            if message is not None:
                deliveries += 1
                s.ch.basic_nack(message.delivery_tag)
            time.sleep(0.05)
        death = dead[1].headers["x-death"][0]
        seen.append((deliveries, death["queue"], death["reason"], death["count"], death["exchange"], death["routing-keys"]))
    return seen


def idle_queues(s: Stage) -> Any:
    s.queue("idle", expires=60_000)
    for _ in range(4):
        # Asking for it is using it, so it is left alone for a while before each time.
        time.sleep(2.5)
        try:
            s.ch.connection.channel().queue_declare("idle", passive=True)
        except pika.exceptions.ChannelClosedByBroker as closed:
            return closed.reply_code, closed.reply_text
    return "it is there"


def ranks(s: Stage) -> Any:
    seen = []
    for queue, most in (("is.ranked", 1), ("is.ranked.high", 3), ("untouched", 3)):
        s.queue(queue)
        s.publish(queue, "abc")
        s.shrinks_to(queue, most)
        seen.append(s.rest(queue))
    return seen


def alternate_exchanges(s: Stage) -> Any:
    for name in ("caught", "own-catch"):
        s.ch.exchange_declare(name, "fanout")
        s.queue(name)
        s.ch.queue_bind(name, name)
    s.ch.exchange_declare("picky", "direct")
    s.ch.exchange_declare("picky.own", "direct", arguments={"alternate-exchange": "own-catch"})
    for exchange in ("picky", "picky.own"):
        s.ch.basic_publish(exchange, "nobody", exchange.encode())
    wait_until("both are caught", lambda: all(count(s.ch, name) for name in ("caught", "own-catch")))
    return [s.rest(name) for name in ("caught", "own-catch")]


#: Program -> what RabbitMQ 3.10 says, and so do we.
EXPECTED: Final[list[tuple[Callable[[Stage], Any], Any]]] = [
    (limits, ["defg", "fg", "defg", "cdefg"]),
    (times, ["", "", ""]),
    (overflows, [("-", "ab"), ("+", "bc"), ("-", "ab"), ("+", "bc")]),
    (dead_letter_exchanges, [["x", "", ""], ["", "x", ""], ["x", "", ""], ["", "", "x"]]),
    (
        delivery_limits,
        [
            (3, "limit", "delivery_limit", 1, "", ["limit"]),
            (2, "limit.1", "delivery_limit", 1, "", ["limit.1"]),
            (3, "limit.5", "delivery_limit", 1, "", ["limit.5"]),
        ],
    ),
    (idle_queues, (404, "NOT_FOUND - no queue 'idle' in vhost '/'")),
    (ranks, ["c", "abc", "abc"]),
    (alternate_exchanges, ["picky", "picky.own"]),
]


@pytest.mark.parametrize(("program", "expected"), EXPECTED, ids=[program.__name__ for program, _ in EXPECTED])
def test_policies_mean_what_they_mean_to_rabbitmq(ports: list[int], program: Callable[[Stage], Any], expected: Any) -> None:
    for port in ports:
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
        try:
            ch = connection.channel()
            ch.confirm_delivery()
            assert program(Stage(ch)) == expected, f"RabbitMQ's is {ports[1:]}, ours {ports[0]}; this is {port}"
        finally:
            connection.close()
