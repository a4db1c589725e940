"""A connection to a leader, of which its first bytes say whether another node passes it on, and for whom."""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from .codec_proxy import NotPassed, Peer, read_header


class Resident(Protocol):
    """A protocol that is connected already, as that of the one at the other end."""

    def came_from(self, peer: Peer) -> None: ...


class MaybePassed(asyncio.Protocol):
    """Goes as soon as that is known. ``secret``: without it a header is what it was sent as, bytes of the protocol above."""

    def __init__(self, above: asyncio.Protocol, secret: bytes) -> None:
        self._above = above
        self._secret = secret
        self._first = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self._above.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._first += data
        try:
            found = read_header(self._first, self._secret)
        except NotPassed:
            self._go(self._first)
            return
        if found is not None:
            peer, rest = found
            cast(Resident, self._above).came_from(peer)
            self._go(rest)

    def _go(self, rest: bytes) -> None:
        self._transport.set_protocol(self._above)
        if rest:
            self._above.data_received(rest)

    def eof_received(self) -> bool | None:
        if self._first:
            self._go(self._first)
        return self._above.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        self._above.connection_lost(error)

    def pause_writing(self) -> None:
        self._above.pause_writing()

    def resume_writing(self) -> None:
        self._above.resume_writing()
