"""How a message came in through an exchange, kept with it as one property: exchange, routing keys, and its content properties as they came.

Layout of the property: exchange, routing key (short strings), number of CC keys, those (short strings), then the properties in the
sender's own bytes; none where another protocol sent it, whose properties are the message's. A short string is a length octet and UTF-8.
With BCC keys the number is 255, and the numbers of CC and BCC keys follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ..message import AMQP_ORIGIN as ORIGIN
from ..message import Message, MessageReference, Properties
from .keys import key_of
from .vhost import local_name


class Way(NamedTuple):
    """The exchange a message was last published to, by a client or by a death, and under which keys (CC included).

    ``hidden``: BCC, which routes too and is shown to nobody.
    """

    exchange: str
    keys: tuple[str, ...]
    hidden: tuple[str, ...] = ()


#: More than 254 keys of either kind cannot be packed.
MOST_KEYS: Final = 254
_WITH_HIDDEN: Final = 255


def packed(exchange: str, key: str, cc: Sequence[str], content_properties: bytes, bcc: Sequence[str] = ()) -> bytes:
    numbers = bytes((_WITH_HIDDEN, len(cc), len(bcc))) if bcc else bytes((len(cc),))
    return b"".join([_short(exchange), _short(key), numbers, *map(_short, cc), *map(_short, bcc), content_properties])


def _short(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogateescape")[:255]
    return bytes((len(raw),)) + raw


def unpacked(origin: bytes) -> tuple[Way, bytes]:
    """The inverse of ``packed``."""
    at = 0
    texts: list[str] = []
    left, hidden = 2, 0
    while left:
        end = at + 1 + origin[at]
        texts.append(origin[at + 1 : end].decode("utf-8", "surrogateescape"))
        at = end
        left -= 1
        if len(texts) == 2:
            left = origin[at]
            at += 1
            if left == _WITH_HIDDEN:
                left, hidden = origin[at] + origin[at + 1], origin[at + 1]
                at += 2
    shown = len(texts) - hidden
    return Way(texts[0], tuple(texts[1:shown]), tuple(texts[shown:])), origin[at:]


class Ids(NamedTuple):
    """By which programs know a message, and log it: AMQP's message-id and app-id. None: it came with none, or another way."""

    amqp_message_id: str | None = None
    app_id: str | None = None


#: Kinds of the properties in the order of their flags, from the highest bit: short string, table, octet, 64 bits.
_KINDS: Final = "sstoosss" + "sqssss"
_MESSAGE_ID, _APP_ID = 8, 12
_TABLE_LENGTH, _WIDTHS = 4, {"o": 1, "q": 8}


def ids_in(properties: Properties | None) -> Ids:
    """Of a message with these properties. They are looked for where the sender's own stand, so that no message pays for it on its way."""
    origin = (properties or {}).get(ORIGIN)
    if not isinstance(origin, bytes):
        return Ids()
    raw = unpacked(origin)[1]
    flags, at = int.from_bytes(raw[:2], "big"), 2
    found: dict[int, str] = {}
    for number, kind in enumerate(_KINDS):
        if not flags & 1 << 15 - number:
            continue
        start = at
        if kind == "s":
            at += 1 + raw[at]
        elif kind == "t":
            at += _TABLE_LENGTH + int.from_bytes(raw[at : at + _TABLE_LENGTH], "big")
        else:
            at += _WIDTHS[kind]
        if number in (_MESSAGE_ID, _APP_ID):
            found[number] = raw[start + 1 : at].decode("utf-8", "replace")
    return Ids(found.get(_MESSAGE_ID), found.get(_APP_ID))


def way_of(message: Message) -> Way:
    """How the message was published; one that came without an exchange counts as sent through the default one."""
    origin = (message.properties or {}).get(ORIGIN)
    return unpacked(origin)[0] if isinstance(origin, bytes) else Way("", (local_name(message.address),))


def last_way(reference: MessageReference) -> Way:
    """How the message came into the queue it stands in: by its last death, where a dead-letter exchange took part in that; what a redrive
    sent back, as it was published."""
    for hop in reference.hops or () if not reference.redrive else ():
        detail = hop.detail
        if "to_exchange" in detail:
            return Way(detail["to_exchange"], tuple(map(key_of, detail["to_keys"])), tuple(map(key_of, detail.get("to_hidden", ()))))
    return way_of(reference.message)
