"""asyncio.Protocol <-> a STOMP session, which cuts its own frames."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from ..transport import SocketTransport, TransportContext
from .session import StompSession


class StompTransport(SocketTransport):
    """A socket on which STOMP is spoken."""

    protocol: ClassVar[str] = "stomp"

    def __init__(self, make_session: Callable[[SocketTransport], StompSession], context: TransportContext) -> None:
        self._session = make_session(self)
        super().__init__(self._session, context)

    def _take_in(self, data: bytes) -> None:
        if self._ending or (not self._logged_in and self._refused_before_login(data)):
            return
        reader = self._session.reader
        self._session.receive(data)
        partial = reader.buffered
        if partial or self._partial:
            self._note_partial(partial, reader.wanted, whole=partial < len(data))

    def eof_received(self) -> bool:
        """The peer says no more, and may listen still: what it said is answered before the socket is closed."""
        self._hurried = True
        if self._leaving or self._ending:
            return False
        try:
            return self._session.heard_all()
        except Exception as error:
            self._session.broken(error)
            return False

    def _drop_input(self) -> None:
        self._session.drop_input()

    def _go_on(self) -> None:
        self._session.have_turn()
