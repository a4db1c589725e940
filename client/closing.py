"""Closing in order and in bounded time, with an account of what stayed unknown."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from homing.broker.protocols.native.codec import Op

from .errors import CloseIncomplete, HomingError, TransactionError, UsageError
from .reply import Reply

if TYPE_CHECKING:
    from .connection import Connection
    from .session import Session

#: Of the time given: how much flushing may take, so that the orderly end still has some.
FLUSH_SHARE: Final = 0.8

SESSION_CLOSED: Final = UsageError("session-closed", "this session is closed", "open a new one with connection.session(mode)")


async def close_session(session: Session, timeout_ms: int) -> None:
    loop = session.connection.loop
    started = loop.time()
    await _flush([session], started + timeout_ms * FLUSH_SHARE / 1000)
    report = _account([session])
    answered = True
    try:
        async with asyncio.timeout_at(started + timeout_ms / 1000):
            await _end_consumers(session)
            await _end_transaction(session)
    except TimeoutError:
        answered = False
    session._end(SESSION_CLOSED)
    session.connection._forget_session(session)
    if any(report) or not answered:
        raise CloseIncomplete(*report, answered)


async def close_connection(connection: Connection, timeout_ms: int) -> None:
    """Flush everything, CLOSE, wait for CLOSED. Raises CloseIncomplete."""
    loop = connection.loop
    started = loop.time()
    sessions = list(connection._sessions)
    await _flush(sessions, started + timeout_ms * FLUSH_SHARE / 1000)
    report = _account(sessions)
    wire = connection.wire
    connection._closing()
    answered = True
    if wire is not None:
        future: asyncio.Future[Any] = loop.create_future()
        wire.write(Op.CLOSE, connection.expect(Reply(UsageError, future)))
        wire.flush()
        try:
            async with asyncio.timeout_at(started + timeout_ms / 1000):
                await future
        except (TimeoutError, HomingError):
            answered = False
    await connection._closed(answered)
    if any(report) or not answered:
        raise CloseIncomplete(*report, answered)


async def _flush(sessions: Sequence[Session], deadline: float) -> None:
    """Stop listeners, let sends be confirmed, write held acknowledgements; gives up quietly at the deadline (the account tells)."""
    try:
        async with asyncio.timeout_at(deadline):
            listeners = [listener for session in sessions for listener in session._listeners]
            await asyncio.gather(*(listener.stop() for listener in listeners))
            for session in sessions:
                if session._transaction is not None:
                    await session._transaction.quiet()
                    session._transaction._drop_unwritten("the session was closed without a commit")
                for producer in list(session._producers):
                    while producer.unconfirmed:
                        await producer._moved.wait()
    except TimeoutError:
        pass
    for session in sessions:
        for listener in list(session._listeners):
            listener.cancel()
        for consumer in list(session._consumers.values()):
            consumer._settlement.flush_lazy()
        wire = session.connection.wire
        if wire is not None:
            wire.flush()


def _account(sessions: Sequence[Session]) -> tuple[int, int, int]:
    """Sends without a confirm, failed sends nobody looked at, acknowledgements that could not be written."""
    unconfirmed = sum(producer.unconfirmed for session in sessions for producer in session._producers)
    failed = sum(len(producer._unobserved) for session in sessions for producer in session._producers)
    unwritten = sum(consumer._settlement.unwritten for session in sessions for consumer in session._consumers.values())
    return unconfirmed, failed, unwritten


async def _end_consumers(session: Session) -> None:
    await asyncio.gather(*(consumer.close() for consumer in list(session._consumers.values())))


async def _end_transaction(session: Session) -> None:
    transaction, wire = session._transaction, session.connection.wire
    if transaction is None or wire is None:
        return
    future: asyncio.Future[Any] = session.connection.loop.create_future()
    wire.write(Op.SESSION_ENDED, session.connection.expect(Reply(TransactionError, future)), transaction.number)
    try:
        await future
    except HomingError as error:
        if not error.connection_lost:
            raise
