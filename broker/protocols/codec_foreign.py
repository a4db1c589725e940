"""A client that has come to the wrong port is notified in its own protocol, as far as that has words for it."""

from __future__ import annotations

from typing import Final

from .amqp091.codec import PROTOCOL_HEADER
from .codec_spoken import NAMES
from .native.codec import Op, encode

#: Protocol -> what to do instead.
FIXES: Final = {
    "native": "use the port of native: in broker.yaml, 7171 as shipped",
    "amqp": "use the port of amqp: in broker.yaml, 5672 as shipped",
    "http": "use the port of http: in broker.yaml, 7172 as shipped",
    "tls": "connect without TLS, or use the port of tls-port in broker.yaml",
}


def describe(place: str, theirs: str, ours: str) -> str:
    """For the log."""
    return f"{place} speaks {NAMES[theirs]} on a port for {NAMES[ours]}: {_fix(theirs, ours)}"


def _fix(theirs: str, ours: str) -> str:
    return "connect with TLS: homings://, amqps://, https://" if ours == "tls" else FIXES[theirs]


def answer(theirs: str, ours: str) -> bytes:
    said = f"this port speaks {NAMES[ours]}, not {NAMES[theirs]}"
    if theirs == "native":
        return encode([Op.ERROR, "wrong-protocol", said, _fix(theirs, ours)])
    if theirs == "amqp":
        # All that its specification knows; whoever gets it on another port says "incompatible protocol".
        return PROTOCOL_HEADER
    # For TLS, whatever is no record of it is reported as a port without it.
    body = f"{said}; {_fix(theirs, ours)}\n"
    return (
        f"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()
    )
