"""AMQP's own account of a message, which its front end alone reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from ..message import Hop, Message, PropertyValue
from .exchange import Compared


class AmqpAccount(NamedTuple):
    """``rewritten``: an origin with these headers changed, those without a value being gone, and whether it keeps its expiration.
    ``headers_seen``: what a headers exchange sees of a message with these hops. By default there is no such front end."""

    rewritten: Callable[[bytes, Mapping[str, PropertyValue], bool], bytes] = lambda origin, changes, expires: origin
    headers_seen: Callable[[Message, list[Hop]], Compared] = lambda message, hops: {}


NO_AMQP: Final = AmqpAccount()
