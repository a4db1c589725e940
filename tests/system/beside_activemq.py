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
    BOTH,
    Different,
    Play,
    Wire,
    compared,
    filled,
    kept_for_a_durable_subscription,
    left,
    played,
    subscribed,
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


def what_was_held_at_a_disconnect(port: int) -> str:
    link, _ = filled(port, "p.held", 1)
    link.sure("DISCONNECT")
    _, found = filled(port, "p.held", 0)
    return " ".join(f"{each.body.decode()} redelivered={each.headers.get('redelivered')}" for each in found)


def a_window_of_one(port: int) -> str:
    headers: dict[str, Any] = {"activemq.prefetchSize": "1"}
    _, found = filled(port, "p.window", **headers)
    return " ".join(each.body.decode() for each in found)


def a_selector(port: int) -> str:
    link = subscribed(port, "/queue/p.selector", selector="colour = 'red'")
    for colour in ("red", "blue"):
        link.sure("SEND", colour.encode(), destination="/queue/p.selector", colour=colour)
    return link.bodies()


def wildcards(port: int) -> str:
    link = subscribed(port, "/queue/w.>")
    for name in ("w.a", "w.b.c", "w"):
        link.sure("SEND", name.encode(), destination=f"/queue/{name}")
    return " ".join(sorted(link.bodies().split()))


def a_composite(port: int) -> str:
    link = subscribed(port, "/topic/p.news")
    link.sure("SEND", b"x", destination="/queue/p.all,/topic/p.news")
    return f"topic: {link.bodies()}; queue: {left(port, 'p.all')}"


def an_answer_to_a_temporary_queue(port: int) -> str:
    asker, worker = subscribed(port, "/temp-queue/mine"), subscribed(port, "/queue/p.asked")
    asker.sure("SEND", b"?", destination="/queue/p.asked", reply_to="/temp-queue/mine")
    (asked,) = worker.comes()
    worker.sure("SEND", b"!", destination=asked.headers["reply-to"])
    return asker.bodies()


def a_durable_subscription(port: int) -> str:
    subscribe = {"id": "s", "destination": "/topic/p.durable", "activemq.subscriptionName": "name"}
    return kept_for_a_durable_subscription(port, {"client_id": "program"}, subscribe)


def a_browser(port: int) -> str:
    link, _ = filled(port, "p.browser", 0, "client")
    link.send("UNSUBSCRIBE", id="s")
    link.sure("SEND", b"shown", destination="/queue/p.browser", persistent="true")
    link.send("SUBSCRIBE", id="b", destination="/queue/p.browser", browser="true")
    said = " ".join(each.headers.get("browser", each.body.decode()) for each in link.comes())
    return f"{said}; left: {left(port, 'p.browser')}"


def what_is_sent_for_later(port: int) -> str:
    link = subscribed(port, "/queue/p.later")
    link.sure("SEND", b"later", destination="/queue/p.later", AMQ_SCHEDULED_DELAY="2500")
    first = link.bodies()
    time.sleep(1.5)
    return f"{first}, then {link.bodies()}"


def what_is_repeated(port: int) -> str:
    link = subscribed(port, "/queue/p.repeated")
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
    link = subscribed(port, "/topic/p.both")
    link.sure("SEND", b"to the queue", destination="/queue/p.both")
    return link.bodies()


PLAYS: Final[tuple[Play, ...]] = (
    *BOTH,
    *(a_receipt_and_its_message, what_is_acknowledged_one_by_one, what_was_held_at_a_disconnect, a_window_of_one, a_selector),
    *(
        wildcards,
        a_composite,
        an_answer_to_a_temporary_queue,
        a_durable_subscription,
        a_browser,
        what_is_sent_for_later,
        what_is_repeated,
        what_has_expired,
    ),
    *(a_send_to_nowhere, a_queue_and_a_topic_of_one_name),
)
#: Why is in docs/from-activemq.md.
DIFFERENT: Final = {
    "a_nack": Different("again: nothing; left: nothing", "again: 0 redelivered=true; left: 0"),
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
