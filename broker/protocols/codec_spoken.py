"""Which protocol the first bytes on a connection are of: those of a client on a wrong port, and those that a wrong port answers with."""

from __future__ import annotations

import re
from typing import Final

#: Protocol -> its name in a sentence.
NAMES: Final = {"native": "the native protocol", "amqp": "AMQP", "stomp": "STOMP", "http": "HTTP", "tls": "TLS"} | {
    # Those that no port is for.
    "amqp-1": "AMQP 1.0",
    "mqtt": "MQTT",
    "mqtt-5": "MQTT 5",
}

_FIRST: Final = {
    # The protocol itself, with TLS, and with SASL.
    "amqp-1": re.compile(rb"AMQP[\x00\x02\x03]\x01\x00\x00"),
    "amqp": re.compile(rb"AMQP"),
    # A connect: its length, the protocol's name with its own, and the level.
    "mqtt-5": re.compile(rb"\x10[\x80-\xff]{0,3}[\x00-\x7f]\x00\x04MQTT\x05"),
    "mqtt": re.compile(rb"\x10[\x80-\xff]{0,3}[\x00-\x7f]\x00(\x04MQTT|\x06MQIsdp)"),
    "stomp": re.compile(rb"(CONNECT|STOMP)\r?\n"),
    "http": re.compile(rb"HTTP/\d|[A-Z]{3,7} [^ ]{1,4096} HTTP/\d"),
    # A record of SSL 3 or TLS.
    "tls": re.compile(rb"[\x14-\x17]\x03[\x00-\x04]"),
    # A frame's length, an array of four, HELLO and "homing".
    "native": re.compile(rb"\x00.{3}\x94\x01\xa6homing", re.DOTALL),
}


def spoken(first: bytes) -> str | None:
    """A key of NAMES; None: nothing that is known here."""
    return next((protocol for protocol, pattern in _FIRST.items() if pattern.match(first)), None)
