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
    #: The name has wildcards, as ActiveMQ or Artemis write them.
    pattern: bool = False

    @property
    def text(self) -> str:
        """As a MESSAGE says it."""
        return f"/{self.kind}/{self.name}"


def read_destination(text: str, routing: str | None = None, patterns: bool = False) -> Destination:
    """``routing``: how Artemis's clients say beside it what kind it is; ``patterns``: it may be one. Raises Refused."""
    found = _read(text, routing)
    if _WILDCARDS.isdisjoint(found.name.split(".")):
        return found
    if not patterns:
        raise Refused("not-supported", f"wildcards are for SUBSCRIBE: {text[:80]!r}", "name each destination by itself")
    return found._replace(pattern=True)


def _read(text: str, routing: str | None) -> Destination:
    for prefix, kind in _KINDS.items():
        if text.startswith(prefix) and len(text) > len(prefix):
            return Destination(text[len(prefix) :], kind)
    if not text or text.startswith("/"):
        known = ", ".join(f"{prefix}NAME" for prefix in _KINDS if prefix.startswith("/"))
        raise Refused("invalid-destination", f"{text[:80]!r} is no destination", f"use {known}, or the plain name of an address")
    if routing is not None and routing.upper() not in _ROUTING:
        raise Refused("invalid-destination", f"{routing[:32]!r} is no kind of destination", f"use {' or '.join(_ROUTING)}")
    return Destination(text, QUEUE if routing is None else _ROUTING[routing.upper()])


def read_destinations(text: str, routing: str | None = None, patterns: bool = False) -> tuple[Destination, ...]:
    """Of what may be several: ``/queue/a,/topic/b``. Raises Refused."""
    parts = text.split(",")
    if len(parts) > _MOST_PARTS:
        raise Refused("invalid-destination", f"a frame names at most {_MOST_PARTS} destinations", "send another one for the others")
    return tuple(read_destination(part.strip(), routing, patterns) for part in parts)
