"""A connection for whose protocol there is no broker here now: it is refused in its own words, and may come again."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final, cast

from ..errors import Refused
from .amqp091.codec import method_frame
from .amqp091.codec_methods import DIALECTS, PROTOCOL_HEADER, Dialect
from .amqp091.errors import error_of
from .amqp091.login import server_properties
from .amqp091.options import AmqpOptions
from .native.codec import Op, encode
from .stomp.codec import frame

#: So long a peer has to read it, and hang up.
_TO_HANG_UP_S: Final = 10.0
_HEADER_BYTES: Final = 8


class Refusing(asyncio.Protocol):
    """``protocol``: native, amqp or stomp. ``amqp``: what clients choose their words by."""

    def __init__(self, protocol: str, refusal: Refused, amqp: AmqpOptions) -> None:
        self._protocol = protocol
        self._refusal = refusal
        self._amqp = amqp
        self._first = b""
        #: Of an AMQP client that was told to start.
        self._dialect: Dialect | None = None
        self._said = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self._given_up = asyncio.get_running_loop().call_later(_TO_HANG_UP_S, self._transport.abort)

    def connection_lost(self, error: Exception | None) -> None:
        self._given_up.cancel()

    def data_received(self, data: bytes) -> None:
        if self._said:
            return
        if self._protocol == "amqp":
            self._answer_amqp(data)
            return
        refusal = self._refusal
        if self._protocol == "native":
            self._say(encode([Op.ERROR, refusal.code, refusal.message, refusal.fix]))
        else:
            headers = [("message", refusal.message), ("content-type", "text/plain")]
            self._say(frame("ERROR", headers, f"{refusal.message}\n{refusal.fix}\n".encode()))
        self._end()

    def _answer_amqp(self, data: bytes) -> None:
        """Behind the start: a client whose header is not answered takes it for another protocol, or its login for a wrong one."""
        if self._dialect is not None:
            error = error_of(self._refusal)
            self._say(method_frame(0, "connection.close", error.code, error.text, 0, 0, dialect=self._dialect))
            self._said = True
            return
        self._first += data
        self._dialect = DIALECTS.get(self._first[:_HEADER_BYTES])
        if self._dialect is not None:
            said = (*self._dialect.version, server_properties(self._amqp), b"PLAIN AMQPLAIN", b"en_US")
            self._say(method_frame(0, "connection.start", *said))
            if len(self._first) > _HEADER_BYTES:
                self._answer_amqp(b"")
        elif len(self._first) >= _HEADER_BYTES:
            self._say(PROTOCOL_HEADER)
            self._end()

    def _say(self, data: bytes) -> None:
        self._transport.write(data)

    def _end(self) -> None:
        """What is still on its way here is read: else it would be reset, and what was said might be lost."""
        self._said = True
        # Whose peer has hung up meanwhile.
        with suppress(OSError):
            self._transport.write_eof()
