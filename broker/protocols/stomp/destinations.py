"""What STOMP's destinations mean: ``/queue/a``, ``/topic/a``, and plain names as Artemis takes them."""

from __future__ import annotations

from typing import Final, NamedTuple

from ...errors import Refused

_TOPIC: Final = "/topic/"
#: Prefix -> whether each subscription gets all that is sent.
_PREFIXES: Final = {"/queue/": False, _TOPIC: True}


class Destination(NamedTuple):
    #: Of an address, a queue, or ``address::queue``.
    name: str
    #: Each subscription has a queue of its own.
    is_topic: bool


def read_destination(text: str) -> Destination:
    """Raises Refused."""
    for prefix, is_topic in _PREFIXES.items():
        if text.startswith(prefix) and len(text) > len(prefix):
            return Destination(text[len(prefix) :], is_topic)
    if not text or text.startswith("/"):
        known = ", ".join(f"{prefix}NAME" for prefix in _PREFIXES)
        raise Refused("invalid-destination", f"{text[:80]!r} is no destination", f"use {known}, or the plain name of an address")
    return Destination(text, False)
