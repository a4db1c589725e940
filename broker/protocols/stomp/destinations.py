"""What STOMP's destinations mean, as ActiveMQ, Artemis and RabbitMQ's plugin write them."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from ...core.amqp.origin import Way
from ...errors import Refused

QUEUE, TOPIC, TEMPORARY, EXCHANGE = "queue", "topic", "temporary", "exchange"
#: Where RabbitMQ has topics.
AMQ_TOPIC: Final = "amq.topic"
_KINDS: Final = {
    "/queue/": QUEUE,
    "/topic/": TOPIC,
    "/temp-queue/": TEMPORARY,
    "/temp-topic/": TEMPORARY,
    "/amq/queue/": QUEUE,
    "/reply-queue/": QUEUE,
    "queue://": QUEUE,
    "topic://": TOPIC,
}
#: As words of a name.
_WILDCARDS: Final = frozenset("*#>")
#: Artemis's words beside a plain name.
_ROUTING: Final = {"ANYCAST": QUEUE, "MULTICAST": TOPIC}
_MOST_PARTS: Final = 100
_EXCHANGE: Final = "/exchange/"
#: Of an exchange's name and of a routing key, in bytes.
_LONGEST: Final = 255


class Destination(NamedTuple):
    #: Of an address, a queue, ``address::queue``, or an exchange; of a temporary queue, the client's own name for it.
    name: str
    #: ``topic``: each subscription gets all; ``temporary``: a queue of the connection's own.
    kind: str
    #: The name has wildcards, as ActiveMQ or Artemis write them.
    pattern: bool = False
    #: Under which messages are sent to the exchange, or a queue is bound to it.
    key: str = ""

    @property
    def text(self) -> str:
        """As a MESSAGE says it."""
        return _of_exchange(self.name, self.key) if self.kind == EXCHANGE else f"/{self.kind}/{self.name}"


def _of_exchange(name: str, key: str) -> str:
    return _EXCHANGE + "/".join([quote(each, safe="*#", errors="surrogateescape") for each in (name, key) if each])


def told_of_way(way: Way, topics: str | None) -> str:
    """How a MESSAGE says under which key it came through which exchange, as RabbitMQ does. ``topics``: as of read_destination."""
    key = way.keys[0]
    if not way.exchange:
        return f"/queue/{key}"
    if way.exchange == topics:
        return "/topic/" + quote(key, safe="*#", errors="surrogateescape")
    return _of_exchange(way.exchange, key)


def read_destination(text: str, routing: str | None = None, patterns: bool = False, topics: str | None = None) -> Destination:
    """``routing``: how Artemis's clients say beside it what kind it is; ``patterns``: it may be one; ``topics``: the exchange whose keys
    topics are, where they are no addresses. Raises Refused.
    """
    found = _read(text, routing)
    if topics is not None and found.kind == TOPIC:
        found = _in_exchange(text, topics, found.name)
    if found.kind == EXCHANGE or _WILDCARDS.isdisjoint(found.name.split(".")):
        return found
    if not patterns:
        raise Refused("not-supported", f"wildcards are for SUBSCRIBE: {text[:80]!r}", "name each destination by itself")
    return found._replace(pattern=True)


def _in_exchange(text: str, name: str, key: str) -> Destination:
    name, wanted = (unquote(each, errors="surrogateescape") for each in (name, key))
    if not name or "/" in key or any(len(each.encode("utf-8", "surrogateescape")) > _LONGEST for each in (name, wanted)):
        raise Refused("invalid-destination", f"{text[:80]!r} is no exchange with a key", "write /exchange/NAME/KEY, and / within as %2F")
    return Destination(name, EXCHANGE, key=wanted)


def _read(text: str, routing: str | None) -> Destination:
    if text.startswith(_EXCHANGE):
        name, _, key = text.removeprefix(_EXCHANGE).partition("/")
        return _in_exchange(text, name, key)
    for prefix, kind in _KINDS.items():
        if text.startswith(prefix) and len(text) > len(prefix):
            return Destination(text[len(prefix) :], kind)
    if not text or text.startswith("/"):
        known = ", ".join(f"{prefix}NAME" for prefix in (*_KINDS, _EXCHANGE) if prefix.startswith("/"))
        raise Refused("invalid-destination", f"{text[:80]!r} is no destination", f"use {known}, or the plain name of an address")
    if routing is not None and routing.upper() not in _ROUTING:
        raise Refused("invalid-destination", f"{routing[:32]!r} is no kind of destination", f"use {' or '.join(_ROUTING)}")
    return Destination(text, QUEUE if routing is None else _ROUTING[routing.upper()])


def read_destinations(text: str, routing: str | None = None, patterns: bool = False, topics: str | None = None) -> tuple[Destination, ...]:
    """Of what may be several: ``/queue/a,/topic/b``. Raises Refused."""
    parts = text.split(",")
    if len(parts) > _MOST_PARTS:
        raise Refused("invalid-destination", f"a frame names at most {_MOST_PARTS} destinations", "send another one for the others")
    return tuple(read_destination(part.strip(), routing, patterns, topics) for part in parts)
