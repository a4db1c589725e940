"""RabbitMQ's STOMP plugin itself: the same frames for both, and what each says. Where they differ, that is meant, and
docs/from-rabbitmq.md says it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

from tests.conformance import rabbitmq
from tests.stomp_support import STOMP, StompRefused
from tests.system.check import Place, Unavailable, check
from tests.system.stomp_plays import (
    BOTH,
    Different,
    Play,
    Wire,
    compared,
    filled,
    kept_for_a_durable_subscription,
    left,
    played,
    said,
    subscribed,
)

#: As the plays log in, and what they call the host.
_LOGIN: Final = {
    "users": [{"name": "admin", "password": "admin", "tags": "administrator"}],
    "vhosts": [{"name": "localhost"}],
    "permissions": [{"user": "admin", "vhost": "localhost", "configure": ".*", "write": ".*", "read": ".*"}],
}
_TOPICS: Final = {"stomp": {**STOMP["stomp"], "topics": "amq.topic"}}


def a_host_that_is_none(port: int) -> str:
    try:
        return Wire(port, host="nowhere").connected.command
    except StompRefused:
        return "ERROR"


def an_exchange_and_its_key(port: int) -> str:
    link = subscribed(port, "/exchange/amq.topic/a.*")
    for key in ("a.b", "a.b.c", "a.d"):
        link.sure("SEND", key.encode(), destination=f"/exchange/amq.topic/{key}")
    return said(link.comes(), "destination", "subscription")


def an_exchange_without_a_key(port: int) -> str:
    link = subscribed(port, "/exchange/amq.fanout")
    link.sure("SEND", b"x", destination="/exchange/amq.fanout")
    return said(link.comes(), "destination")


def an_exchange_that_is_none(port: int) -> str:
    link = Wire(port)
    link.send("SEND", b"x", destination="/exchange/p.nowhere/k")
    return link.bodies()


def a_subscription_to_an_exchange_that_is_none(port: int) -> str:
    link = Wire(port)
    link.send("SUBSCRIBE", id="s", destination="/exchange/p.nowhere/k")
    return link.bodies()


def a_slash_in_a_name(port: int) -> str:
    link = subscribed(port, "/queue/a%2Fb")
    link.sure("SEND", b"x", destination="/queue/a%2Fb")
    return said(link.comes(), "destination")


def an_amq_queue_that_is_there(port: int) -> str:
    Wire(port).sure("SEND", b"x", destination="/queue/p.there")
    link = subscribed(port, "/amq/queue/p.there")
    link.sure("SEND", b"y", destination="/amq/queue/p.there")
    return said(link.comes(), "destination")


def an_amq_queue_that_is_none(port: int) -> str:
    link = Wire(port)
    link.send("SUBSCRIBE", id="s", destination="/amq/queue/p.none")
    return link.bodies()


def a_send_to_an_amq_queue_that_is_none(port: int) -> str:
    link = Wire(port)
    link.sure("SEND", b"x", destination="/amq/queue/p.none.too")
    return f"{link.bodies()}; left: {left(port, 'p.none.too')}"


def a_queue(port: int) -> str:
    link = Wire(port)
    link.sure("SEND", b"x", destination="/queue/p.queue")
    link.sure("SUBSCRIBE", id="s", destination="/queue/p.queue")
    return said(link.comes(), "destination", "subscription", "redelivered")


def topics(port: int) -> str:
    link = subscribed(port, "/topic/t.*.x")
    every = subscribed(port, "/topic/t.#")
    for name in ("t.a.x", "t.a.y", "t"):
        link.sure("SEND", name.encode(), destination=f"/topic/{name}")
    return f"{said(link.comes(), 'destination')} / {said(every.comes())}"


def a_topic_is_a_key_of_amq_topic(port: int) -> str:
    link = subscribed(port, "/topic/key.x")
    link.sure("SEND", b"x", destination="/exchange/amq.topic/key.x")
    return said(link.comes(), "destination")


_DURABLE: Final = {"id": "name", "destination": "/topic/p.durable", "durable": "true", "auto_delete": "false"}


def a_durable_subscription(port: int) -> str:
    return kept_for_a_durable_subscription(port, {}, _DURABLE)


def the_end_of_a_durable_subscription(port: int) -> str:
    link = Wire(port)
    link.sure("SUBSCRIBE", **_DURABLE)
    link.sure("UNSUBSCRIBE", id="name", durable="true")
    Wire(port).sure("SEND", b"lost", destination="/topic/p.durable", persistent="true")
    again = Wire(port)
    again.send("SUBSCRIBE", **_DURABLE)
    return said(again.comes())


def a_temporary_queue(port: int) -> str:
    asker, worker = Wire(port), subscribed(port, "/queue/p.asked")
    asker.sure("SEND", b"?", destination="/queue/p.asked", reply_to="/temp-queue/mine")
    (asked,) = worker.comes()
    worker.sure("SEND", b"!", destination=asked.headers["reply-to"])
    return said(asker.comes(), "subscription")


def two_answers_to_a_temporary_queue(port: int) -> str:
    asker, worker = Wire(port), subscribed(port, "/queue/p.asked.twice")
    for _ in range(2):
        asker.sure("SEND", b"?", destination="/queue/p.asked.twice", reply_to="/temp-queue/mine")
    for each in worker.comes():
        worker.sure("SEND", b"!", destination=each.headers["reply-to"])
    return said(asker.comes(), "subscription")


def an_answer_by_amq_queue(port: int) -> str:
    asker, worker = Wire(port), subscribed(port, "/queue/p.asked.amq")
    asker.sure("SEND", b"?", destination="/queue/p.asked.amq", reply_to="/temp-queue/other")
    (asked,) = worker.comes()
    worker.sure("SEND", b"!", destination="/reply-queue/" + asked.headers["reply-to"].rpartition("/")[2])
    return said(asker.comes(), "subscription")


def headers_of_a_message(port: int) -> str:
    link = subscribed(port, "/queue/p.headers")
    known = {"correlation_id": "c", "type": "t", "priority": "3", "content_type": "text/plain", "app_id": "shop", "colour": "a:b"}
    link.sure("SEND", b"x", destination="/queue/p.headers", **known)
    return said(link.comes(), "correlation-id", "type", "priority", "content-type", "app-id", "colour", "content-length")


def a_message_that_expires(port: int) -> str:
    Wire(port).sure("SEND", b"old", destination="/queue/p.expired", expiration="100")
    time.sleep(0.5)
    return left(port, "p.expired")


def a_queue_that_is_declared(port: int) -> str:
    link = Wire(port)
    declared = {"x-max-length": "2", "x-message-ttl": "60000", "durable": "true"}
    link.sure("SUBSCRIBE", id="s", destination="/queue/p.declared", ack="client", **{"prefetch-count": "1"}, **declared)
    for number in range(5):
        link.sure("SEND", b"%d" % number, destination="/queue/p.declared")
    (first,) = [each for each in link.comes() if each.command == "MESSAGE"][:1]
    link.send("ACK", id=first.headers["ack"])
    return said([first, *link.comes()])


def a_queue_that_is_declared_otherwise(port: int) -> str:
    subscribed(port, "/queue/p.otherwise", **{"x-max-length": "2"})
    link = Wire(port)
    link.send("SUBSCRIBE", id="s", destination="/queue/p.otherwise", **{"x-max-length": "3"})
    return link.bodies()


def a_queue_of_ones_own(port: int) -> str:
    subscribed(port, "/queue/p.own", exclusive="true")
    link = Wire(port)
    link.send("SUBSCRIBE", id="s", destination="/queue/p.own")
    return link.bodies()


def a_queue_named_by_its_subscription(port: int) -> str:
    subscribed(port, "/topic/p.named", **{"x-queue-name": "p.of.a.topic", "auto-delete": "false", "durable": "true"})
    Wire(port).sure("SEND", b"x", destination="/topic/p.named")
    link = subscribed(port, "/amq/queue/p.of.a.topic")
    other = Wire(port)
    other.sure("SEND", b"y", destination="/amq/queue/p.of.a.topic")
    return str(len(link.comes()) > 0)


def dead_letters(port: int) -> str:
    dead = subscribed(port, "/queue/p.dead")
    link = subscribed(
        port, "/queue/p.dying", ack="client", **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "p.dead", "durable": "true"}
    )
    link.sure("SEND", b"x", destination="/queue/p.dying")
    (came,) = link.comes()
    link.send("NACK", id=came.headers["ack"], requeue="false")
    return said(dead.comes(), "destination")


def a_nack_without_requeue(port: int) -> str:
    link, found = filled(port, "p.dropped", 1)
    link.send("NACK", id=found[0].headers["ack"], requeue="false")
    again = link.bodies()
    link.close()
    return f"again: {again}; left: {left(port, 'p.dropped')}"


def a_prefetch_of_two(port: int) -> str:
    headers: dict[str, Any] = {"prefetch-count": "2"}
    _, found = filled(port, "p.window", **headers)
    return said(found)


def a_consumer_with_priority(port: int) -> str:
    low = subscribed(port, "/queue/p.ranked", **{"x-priority": "-1"})
    high = subscribed(port, "/queue/p.ranked", **{"x-priority": "5"})
    low.sure("SEND", b"x", destination="/queue/p.ranked")
    return f"low: {low.bodies()}, high: {high.bodies()}"


def a_transaction(port: int) -> str:
    link, found = filled(port, "p.transaction", 1)
    link.send("BEGIN", transaction="t")
    link.send("SEND", b"new", destination="/queue/p.transaction", transaction="t")
    link.send("ACK", id=found[0].headers["ack"], transaction="t")
    before = link.bodies()
    link.sure("COMMIT", transaction="t")
    return f"before: {before}, after: {link.bodies()}"


def a_destination_that_is_none(port: int) -> str:
    link = Wire(port)
    link.send("SEND", b"x", destination="/nothing/known")
    return link.bodies()


PLAYS: Final[tuple[Play, ...]] = (
    *BOTH,
    *(a_host_that_is_none, an_exchange_and_its_key, an_exchange_without_a_key, an_exchange_that_is_none),
    *(a_subscription_to_an_exchange_that_is_none, a_slash_in_a_name, an_amq_queue_that_is_there, an_amq_queue_that_is_none),
    *(
        a_send_to_an_amq_queue_that_is_none,
        a_queue,
        topics,
        a_topic_is_a_key_of_amq_topic,
        a_durable_subscription,
        the_end_of_a_durable_subscription,
    ),
    *(a_temporary_queue, two_answers_to_a_temporary_queue, an_answer_by_amq_queue, headers_of_a_message, a_message_that_expires),
    *(a_queue_that_is_declared, a_queue_that_is_declared_otherwise, a_queue_of_ones_own, a_queue_named_by_its_subscription),
    *(dead_letters, a_nack_without_requeue, a_prefetch_of_two, a_consumer_with_priority, a_transaction),
    a_destination_that_is_none,
)
#: Why is in docs/from-rabbitmq.md.
DIFFERENT: Final = {
    "a_host_that_is_none": Different("ERROR", "CONNECTED"),
    "an_amq_queue_that_is_there": Different(
        "x destination=/queue/p.there; y destination=/queue/p.there", "x destination=/amq/queue/p.there; y destination=/amq/queue/p.there"
    ),
    "an_amq_queue_that_is_none": Different("ERROR", "nothing"),
    "a_send_to_an_amq_queue_that_is_none": Different("nothing; left: nothing", "nothing; left: x"),
    "a_queue": Different(
        "x destination=/queue/p.queue subscription=s redelivered=false", "x destination=/queue/p.queue subscription=s redelivered=None"
    ),
    "an_ack_twice": Different("ERROR", "nothing"),
    "an_ack_after_the_unsubscribe": Different("ERROR; left: nothing", "nothing; left: nothing"),
    "a_consumer_with_priority": Different("low: x, high: nothing", "low: nothing, high: x"),
    "a_transaction_twice": Different("nothing", "ERROR"),
}


def _of_rabbitmq(directory: Path) -> dict[str, str]:
    directory.mkdir()
    theirs = rabbitmq.RabbitMQ(directory, _LOGIN, stomp=True)
    try:
        theirs.start()
        return played(PLAYS, theirs.stomp_port)
    finally:
        theirs.close()


@check
def stomp_beside_rabbitmq(place: Place) -> str:
    if not rabbitmq.installed():
        raise Unavailable("no RabbitMQ; enable: sudo apt-get install rabbitmq-server")
    return compared(_of_rabbitmq(place.directory / "theirs"), place, _TOPICS, PLAYS, DIFFERENT, "from-rabbitmq.md")
