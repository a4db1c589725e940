"""Which protocol the first bytes on a connection are of: those of a client on a wrong port, and those that a wrong port answers with."""

from __future__ import annotations

import re
from typing import Final

#: Protocol -> its name in a sentence.
NAMES: Final = {"native": "the native protocol", "amqp": "AMQP", "http": "HTTP", "tls": "TLS"}

_FIRST: Final = {
    "amqp": re.compile(rb"AMQP"),
    "http": re.compile(rb"HTTP/\d|[A-Z]{3,7} [^ ]{1,4096} HTTP/\d"),
    # A record of SSL 3 or TLS.
    "tls": re.compile(rb"[\x14-\x17]\x03[\x00-\x04]"),
    # A frame's length, an array of four, HELLO and "homing".
    "native": re.compile(rb"\x00.{3}\x94\x01\xa6homing", re.DOTALL),
}


def spoken(first: bytes) -> str | None:
    """A key of NAMES; None: nothing that is known here."""
    return next((protocol for protocol, pattern in _FIRST.items() if pattern.match(first)), None)
