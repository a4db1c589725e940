"""ActiveMQ Classic itself: the same STOMP frames for both, and what each says. Where they differ, that is meant, and docs/from-activemq.md
says it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

from benchmarks.peers import activemq
from benchmarks.peers.peer import Peer
from tests.stomp_support import STOMP, Told
from tests.system.check import Place, Unavailable, check
from tests.system.stomp_plays import (
    Different,
    Play,
    Wire,
    a_command_that_is_none,
    a_subscription_twice,
    a_transaction_that_is_none,
    a_transaction_that_is_undone,
    a_transaction_twice,
    an_ack_after_the_unsubscribe,
    an_ack_of_nothing,
    an_ack_twice,
    compared,
    filled,
    heartbeats,
    left,
    played,
    versions,
    what_is_acknowledged_up_to_one,
)

#: Nothing of it can be said as it is.
_LONG: Final = "a:b\\c\nd"


class WithSchedule(activemq.ActiveMQ):
    def command(self) -> list[str]:
        command = super().command()
        config = self.directory / "activemq.xml"
        config.write_text(config.read_text().replace('useJmx="false"', 'useJmx="false" schedulerSupport="true"'))
        return command


def a_receipt_and_its_message(port: int) -> str:
    link = Wire(port)
    link.send("SUBSCRIBE", id="s", destination="/queue/p.header")
    link.sure("SEND", b"a\0b", destination="/queue/p.header", colour=_LONG, priority="7", persistent="true", expires="99999999999999")
    (told,) = [each for each in link.comes() if each.command == "MESSAGE"] or [Told("", {}, b"none")]
    names = ("colour", "priority", "persistent", "expires", "destination", "subscription")
    return f"{told.body!r} " + " ".join(f"{name}={told.headers.get(name)!r}" for name in names)


def what_is_acknowledged_one_by_one(port: int) -> str:
    link, found = filled(port, "p.one")
    link.send("ACK", id=found[1].headers["ack"])
    link.sure("DISCONNECT")
    return left(port, "p.one")


def a_nack(port: int) -> str:
    link, found = filled(port, "p.nack", 1)
    link.send("NACK", id=found[0].headers["ack"])
    time.sleep(2)
    again = link.bodies()
    link.close()
    return f"again: {again}; left: {left(port, 'p.nack')}"


def a_nack_up_to_one(port: int) -> str:
    link, found = filled(port, "p.nacks", mode="client")
    link.send("NACK", id=found[1].headers["ack"])
    time.sleep(2)
    again = link.bodies()
    link.close()
    return f"again: {again}"


def what_was_held_at_a_disconnect(port: int) -> str:
    link, _ = filled(port, "p.held", 1)
    link.sure("DISCONNECT")
    _, found = filled(port, "p.held", 0)
    return " ".join(f"{each.body.decode()} redelivered={each.headers.get('redelivered')}" for each in found)


def what_was_held_when_it_was_cut(port: int) -> str:
    link, _ = filled(port, "p.cut", 1)
    link.close()
    time.sleep(0.5)
    _, found = filled(port, "p.cut", 0)
    return " ".join(f"{each.body.decode()} redelivered={each.headers.get('redelivered')}" for each in found)


def a_window_of_one(port: int) -> str:
    headers: dict[str, Any] = {"activemq.prefetchSize": "1"}
    _, found = filled(port, "p.window", **headers)
    return " ".join(each.body.decode() for each in found)


def a_selector(port: int) -> str:
    link = Wire(port)
    link.sure("SUBSCRIBE", id="s", destination="/queue/p.selector", selector="colour = 'red'")
    for colour in ("red", "blue"):
        link.sure("SEND", colour.encode(), destination="/queue/p.selector", colour=colour)
    return link.bodies()


def wildcards(port: int) -> str:
    link = Wire(port)
    link.sure("SUBSCRIBE", id="s", destination="/queue/w.>")
    for name in ("w.a", "w.b.c", "w"):
        link.sure("SEND", name.encode(), destination=f"/queue/{name}")
    return " ".join(sorted(link.bodies().split()))


def a_composite(port: int) -> str:
    link = Wire(port)
    link.sure("SUBSCRIBE", id="s", destination="/topic/p.news")
    link.sure("SEND", b"x", destination="/queue/p.all,/topic/p.news")
    return f"topic: {link.bodies()}; queue: {left(port, 'p.all')}"


def an_answer_to_a_temporary_queue(port: int) -> str:
    asker, worker = Wire(port), Wire(port)
    asker.sure("SUBSCRIBE", id="s", destination="/temp-queue/mine")
    worker.sure("SUBSCRIBE", id="s", destination="/queue/p.asked")
    asker.sure("SEND", b"?", destination="/queue/p.asked", reply_to="/temp-queue/mine")
    (asked,) = worker.comes()
    worker.sure("SEND", b"!", destination=asked.headers["reply-to"])
    return asker.bodies()


def a_topic_keeps_nothing_for_nobody(port: int) -> str:
    link = Wire(port)
    link.sure("SEND", b"before", destination="/topic/p.topic")
    link.sure("SUBSCRIBE", id="s", destination="/topic/p.topic")
    link.sure("SEND", b"after", destination="/topic/p.topic")
    return link.bodies()


def a_durable_subscription(port: int) -> str:
    subscribe = {"id": "s", "destination": "/topic/p.durable", "activemq.subscriptionName": "name"}
    first = Wire(port, client_id="program")
    first.sure("SUBSCRIBE", **subscribe)
    first.sure("DISCONNECT")
    Wire(port).sure("SEND", b"kept", destination="/topic/p.durable", persistent="true")
    second = Wire(port, client_id="program")
    second.send("SUBSCRIBE", **subscribe)
    return second.bodies()


def a_browser(port: int) -> str:
    link, _ = filled(port, "p.browser", 0, "client")
    link.send("UNSUBSCRIBE", id="s")
    link.sure("SEND", b"shown", destination="/queue/p.browser", persistent="true")
    link.send("SUBSCRIBE", id="b", destination="/queue/p.browser", browser="true")
    said = " ".join(each.headers.get("browser", each.body.decode()) for each in link.comes())
    return f"{said}; left: {left(port, 'p.browser')}"


def what_is_sent_for_later(port: int) -> str:
    link = Wire(port)
    link.sure("SUBSCRIBE", id="s", destination="/queue/p.later")
    link.sure("SEND", b"later", destination="/queue/p.later", AMQ_SCHEDULED_DELAY="2500")
    first = link.bodies()
    time.sleep(1.5)
    return f"{first}, then {link.bodies()}"


def what_is_repeated(port: int) -> str:
    link = Wire(port)
    link.sure("SUBSCRIBE", id="s", destination="/queue/p.repeated")
    schedule = {"AMQ_SCHEDULED_PERIOD": "300", "AMQ_SCHEDULED_REPEAT": "2"}
    link.sure("SEND", b"again", destination="/queue/p.repeated", **schedule)
    return link.bodies()


def what_has_expired(port: int) -> str:
    Wire(port).sure("SEND", b"old", destination="/queue/p.expired", expires="1000", persistent="true")
    return left(port, "p.expired")


def a_send_to_nowhere(port: int) -> str:
    link = Wire(port)
    link.send("SEND", b"x")
    return link.bodies()


def a_queue_and_a_topic_of_one_name(port: int) -> str:
    link = Wire(port)
    link.sure("SUBSCRIBE", id="s", destination="/topic/p.both")
    link.sure("SEND", b"to the queue", destination="/queue/p.both")
    return link.bodies()


PLAYS: Final[tuple[Play, ...]] = (
    *(versions, heartbeats, a_receipt_and_its_message, what_is_acknowledged_one_by_one, what_is_acknowledged_up_to_one, a_nack),
    *(a_nack_up_to_one, an_ack_of_nothing, an_ack_twice, what_was_held_at_a_disconnect, what_was_held_when_it_was_cut),
    *(an_ack_after_the_unsubscribe, a_transaction_that_is_undone, a_transaction_twice, a_transaction_that_is_none, a_window_of_one),
    *(a_selector, wildcards, a_composite, an_answer_to_a_temporary_queue, a_topic_keeps_nothing_for_nobody, a_durable_subscription),
    *(a_browser, what_is_sent_for_later, what_is_repeated, what_has_expired, a_command_that_is_none, a_send_to_nowhere),
    *(a_subscription_twice, a_queue_and_a_topic_of_one_name),
)
#: Why is in docs/from-activemq.md.
DIFFERENT: Final = {
    "a_nack": Different("again: nothing; left: nothing", "again: 0; left: 0"),
    "a_nack_up_to_one": Different("again: nothing", "again: 0 1"),
    "an_ack_twice": Different("ERROR", "nothing"),
    "an_ack_after_the_unsubscribe": Different("nothing; left: 0", "nothing; left: nothing"),
    "a_subscription_twice": Different("nothing", "ERROR"),
    "a_queue_and_a_topic_of_one_name": Different("nothing", "to the queue"),
}


def _of_activemq(directory: Path) -> dict[str, str]:
    peer: Peer = WithSchedule(directory)
    try:
        peer.start()
        return played(PLAYS, peer.port)
    finally:
        peer.kill()


@check
def beside_activemq(place: Place) -> str:
    if not (activemq.HOME / "bin" / "activemq.jar").exists():
        raise Unavailable("no ActiveMQ; enable: benchmarks/install_peers activemq")
    return compared(_of_activemq(place.directory / "activemq"), place, STOMP, PLAYS, DIFFERENT, "from-activemq.md")
