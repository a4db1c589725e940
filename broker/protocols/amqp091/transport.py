"""asyncio.Protocol <-> an AMQP 0-9-1 session, which cuts its own frames."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from ..gathering import Gathering
from ..handshakes import Admission
from ..transport import SocketTransport, TransportLimits
from ..turns import Turns
from .session import AmqpSession


class AmqpTransport(SocketTransport):
    """A socket on which AMQP 0-9-1 is spoken."""

    protocol: ClassVar[str] = "amqp"

    def __init__(
        self,
        make_session: Callable[[SocketTransport], AmqpSession],
        limits: TransportLimits,
        connections: set[SocketTransport],
        admission: Admission,
        gathering: Gathering,
        turns: Turns,
    ) -> None:
        self._session = make_session(self)
        super().__init__(self._session, limits, connections, admission, gathering, turns)

    def _take_in(self, data: bytes) -> None:
        if self._ending:
            return
        session = self._session
        if not self._logged_in:
            if not self._received_before_login and self._is_foreign(data):
                return
            self._received_before_login += len(data)
            if self._received_before_login > self._limits.max_bytes_before_login:
                session.end("login-expected", "too much was sent before the login was done", "log in first")
                return
        session.receive(data)
        held = session.buffered
        if held or self._held:
            self._note_held(held, session.wanted, whole=held < len(data))

    def _drop_input(self) -> None:
        self._session.drop_input()

    def _go_on(self) -> None:
        self._session.have_turn()
