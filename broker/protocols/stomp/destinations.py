"""What STOMP's destinations mean, as ActiveMQ, Artemis and RabbitMQ's plugin write them."""

from __future__ import annotations

from typing import Final, NamedTuple

from ...errors import Refused

QUEUE, TOPIC, TEMPORARY = "queue", "topic", "temporary"
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


class Destination(NamedTuple):
    #: Of an address, a queue, or ``address::queue``; of a temporary queue, the client's own name for it.
    name: str
    #: ``topic``: each subscription gets all; ``temporary``: a queue of the connection's own.
    kind: str


def read_destination(text: str, routing: str | None = None) -> Destination:
    """``routing``: how Artemis's clients say beside it what kind it is. Raises Refused."""
    if not _WILDCARDS.isdisjoint(text.rpartition("/")[2].split(".")):
        raise Refused("not-supported", f"wildcards are not understood here: {text[:80]!r}", "name each destination by itself")
    for prefix, kind in _KINDS.items():
        if text.startswith(prefix) and len(text) > len(prefix):
            return Destination(text[len(prefix) :], kind)
    if not text or text.startswith("/"):
        known = ", ".join(f"{prefix}NAME" for prefix in _KINDS if prefix.startswith("/"))
        raise Refused("invalid-destination", f"{text[:80]!r} is no destination", f"use {known}, or the plain name of an address")
    if routing is not None and routing.upper() not in _ROUTING:
        raise Refused("invalid-destination", f"{routing[:32]!r} is no kind of destination", f"use {' or '.join(_ROUTING)}")
    return Destination(text, QUEUE if routing is None else _ROUTING[routing.upper()])


def read_destinations(text: str, routing: str | None = None) -> tuple[Destination, ...]:
    """Of a message, which may be for several: ``/queue/a,/topic/b``. Raises Refused."""
    parts = text.split(",")
    if len(parts) > _MOST_PARTS:
        raise Refused("invalid-destination", f"a message is for at most {_MOST_PARTS} destinations", "send it again, for the others")
    return tuple(read_destination(part.strip(), routing) for part in parts)
