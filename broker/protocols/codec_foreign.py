"""A client that has come to the wrong port, or the wrong broker, is notified in its own protocol, as far as that has words for it."""

from __future__ import annotations

from typing import Final

from .amqp091.codec_methods import PROTOCOL_HEADER
from .codec_spoken import NAMES
from .native.codec import Op, encode

_NO_SUCH_PORT: Final = "use AMQP 0-9-1, at the port of amqp: in broker.yaml, 5672 as shipped"
#: Protocol -> what to do instead.
FIXES: Final = {
    "native": "use the port of native: in broker.yaml, 7171 as shipped",
    "amqp": "use the port of amqp: in broker.yaml, 5672 as shipped",
    "stomp": "use the port of stomp: in broker.yaml, 61613 as shipped",
    "http": "use the port of http: in broker.yaml, 7172 as shipped",
    "tls": "connect without TLS, or use the port of tls-port in broker.yaml",
    "amqp-1": _NO_SUCH_PORT,
    "mqtt": _NO_SUCH_PORT,
    "mqtt-5": _NO_SUCH_PORT,
}
#: MQTT's packet that answers a connect, and its codes for a server that is not there for that: until 3.1.1, and of 5.
_CONNACK: Final = 0x20
_SERVER_UNAVAILABLE: Final = 3
_SERVER_UNAVAILABLE_5: Final = 0x88
_REASON_STRING: Final = 0x1F


def describe(place: str, theirs: str, ours: str) -> str:
    """For the log."""
    return f"{place} speaks {NAMES[theirs]} on a port for {NAMES[ours]}: {_fix(theirs, ours)}"


def _fix(theirs: str, ours: str) -> str:
    if theirs not in ("native", "amqp", "stomp", "http"):
        return FIXES[theirs]
    return "connect with TLS: homings://, amqps://, https://" if ours == "tls" else FIXES[theirs]


def answer(theirs: str, ours: str) -> bytes:
    said, fix = f"this port speaks {NAMES[ours]}, not {NAMES[theirs]}", _fix(theirs, ours)
    if theirs == "native":
        return encode([Op.ERROR, "wrong-protocol", said, fix])
    if theirs in ("amqp", "amqp-1"):
        # All that its specification knows; whoever gets it on another port, or means 1.0, says "incompatible protocol".
        return PROTOCOL_HEADER
    if theirs == "mqtt":
        return bytes((_CONNACK, 2, 0, _SERVER_UNAVAILABLE))
    if theirs == "mqtt-5":
        reason = f"{said}; {fix}".encode()
        properties = bytes((_REASON_STRING, 0, len(reason))) + reason
        return bytes((_CONNACK, 3 + len(properties), 0, _SERVER_UNAVAILABLE_5, len(properties))) + properties
    body = f"{said}; {fix}\n"
    if theirs == "stomp":
        return f"ERROR\nmessage:{said}\ncontent-type:text/plain\ncontent-length:{len(body)}\n\n{body}\0\n".encode()
    # For TLS, whatever is no record of it is reported as a port without it.
    return (
        f"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()
    )
