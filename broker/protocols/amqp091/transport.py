"""asyncio.Protocol <-> an AMQP 0-9-1 session, which cuts its own frames."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from ..transport import SocketTransport, TransportContext
from .session import AmqpSession


class AmqpTransport(SocketTransport):
    """A socket on which AMQP 0-9-1 is spoken."""

    protocol: ClassVar[str] = "amqp"

    def __init__(self, make_session: Callable[[SocketTransport], AmqpSession], context: TransportContext) -> None:
        self._session = make_session(self)
        super().__init__(self._session, context)

    def _take_in(self, data: bytes) -> None:
        if self._ending or (not self._logged_in and self._refused_before_login(data)):
            return
        session = self._session
        session.receive(data)
        partial = session.buffered
        if partial or self._partial:
            self._note_partial(partial, session.wanted, whole=partial < len(data))

    def _settles_only(self, data: bytes) -> bool:
        return self._session.settles_only(data)

    def _drop_input(self) -> None:
        self._session.drop_input()

    def _go_on(self) -> None:
        self._session.have_turn()
