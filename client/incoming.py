"""What the broker says, frame by frame, and whom it concerns. A frame of the wrong shape raises; the wire ends the connection."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from homing.broker.protocols.native.codec import PROTOCOL_VERSION, Op

from .errors import ConnectionLost
from .reconnect import PASSING_ERRORS
from .wire import Frame

if TYPE_CHECKING:
    from .connection import Connection

log = logging.getLogger("homing.client")


class Incoming:
    """Called with every frame, in order."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._handlers: dict[int, Callable[..., None]] = {
            Op.WELCOME: self._on_welcome,
            Op.HEARTBEAT: self._on_heartbeat,
            Op.CLOSED: self._on_closed,
            Op.ERROR: self._on_error,
            Op.REFUSED: self._on_refused,
            Op.RESULT: self._on_result,
            Op.CREDIT: self._on_credit,
            Op.CONFIRM: self._on_confirm,
            Op.DELIVER: self._on_deliver,
            Op.DELIVER_BODIES: self._on_deliver_bodies,
            Op.NOT_HELD: self._on_not_held,
            Op.PULL_EMPTY: self._on_pull_empty,
            Op.CANCELLED: self._on_cancelled,
        }

    def __call__(self, frame: Frame) -> None:
        handler = self._handlers.get(frame[0])
        if handler is None:
            raise ValueError(f"no frame with op {frame[0]} goes to a client")
        handler(*frame[1:])

    def _on_welcome(self, version: int, options: dict[str, Any]) -> None:
        if self._connection._welcome is None or version != PROTOCOL_VERSION:
            raise ValueError(f"an unexpected WELCOME of version {version}")
        if not self._connection._welcome.done():
            self._connection._welcome.set_result(options)

    def _on_heartbeat(self) -> None:
        pass  # that it came is noted where bytes arrive

    def _on_closed(self, request: int) -> None:
        self._on_result(request, None)

    def _on_error(self, code: str, message: str, fix: str = "") -> None:
        self._connection._passing = code in PASSING_ERRORS
        wire = self._connection._dialling or self._connection.wire
        if wire is not None:
            wire.abort(ConnectionLost(code, message, fix))

    def _on_refused(self, request: int, code: str, message: str, fix: str = "") -> None:
        reply = self._connection._replies.pop(request, None)
        if reply is not None:
            reply.fail(reply.error_type(code, message, fix))

    def _on_result(self, request: int, value: Any = None) -> None:
        reply = self._connection._replies.pop(request, None)
        if reply is not None:
            reply.answer(value)

    def _on_credit(self, producer: int, messages: int, size_bytes: int, reason: str | None = None) -> None:
        if (found := self._connection._producers.get(producer)) is not None:
            found._credit(messages, size_bytes, reason)

    def _on_confirm(self, producer: int, up_to: int, refused: list[Any] | None = None) -> None:
        if (found := self._connection._producers.get(producer)) is not None:
            found._confirm(up_to, refused)

    def _on_deliver(self, consumer: int, first_tag: int, messages: list[list[Any]]) -> None:
        if (found := self._connection._consumers.get(consumer)) is not None:
            found._deliver(first_tag, messages)

    def _on_deliver_bodies(
        self,
        consumer: int,
        first_tag: int,
        first_id: int,
        count: int,
        address: str,
        priority: int,
        sent_at_ms: int,
        durable: bool,
        bodies: list[bytes],
    ) -> None:
        if (found := self._connection._consumers.get(consumer)) is not None:
            found._deliver_bodies(first_tag, first_id, count, address, priority, sent_at_ms, durable, bodies)

    def _on_not_held(self, consumer: int, ranges: list[int], request: int = 0) -> None:
        if (found := self._connection._consumers.get(consumer)) is not None:
            found._settlement.unanswered += len(ranges) // 2
        log.warning("consumer %d acknowledged messages the broker no longer holds for it: tags %s", consumer, ranges)

    def _on_pull_empty(self, consumer: int) -> None:
        if (found := self._connection._consumers.get(consumer)) is not None:
            found._pull_was_empty()

    def _on_cancelled(self, consumer: int, code: str, message: str, fix: str = "") -> None:
        if (found := self._connection._consumers.get(consumer)) is not None:
            found._cancelled(code, message, fix)
