"""How a broker stops: nothing more is handed out, what was asked for is answered, clients are notified; all of it within a time."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Collection
from typing import Any, Final, Protocol

from homing.journal.backup.before_migration import remove_copy_in_time
from homing.journal.errors import JournalError
from homing.journal.journal import Journal

from ..broker import Broker
from ..http.health import Health
from .service_manager import ServiceManager

log = logging.getLogger("homing")

#: For the last answers.
_ANSWERS_S: Final = 5.0
#: For clients to read the goodbye and hang up.
_GOODBYE_S: Final = 1.0
#: For the journal to close. systemd's own patience is 90 s.
_CLOSE_S: Final = 60.0
_LOOK_S: Final = 0.01


class Serving(Protocol):
    """What of the server is to be stopped."""

    broker: Broker
    manager: ServiceManager

    def stop_clients(self) -> None: ...

    async def keep_messages(self, began_s: float) -> None: ...

    def sockets(self) -> Collection[object]: ...


async def until_stopped(
    server: Serving, journal: Journal, listeners: list[asyncio.Server], stop: asyncio.Event, health: Health, hands_over: asyncio.Event
) -> int:
    """Waits for ``stop``, or for ``hands_over``, which does not end the process, or for the journal to fail, and drains; returns the exit
    code."""
    asked: list[asyncio.Future[Any]] = [asyncio.get_running_loop().create_task(each.wait()) for each in (stop, hands_over)]
    await asyncio.wait({*asked, journal.failed}, return_when=asyncio.FIRST_COMPLETED)
    for each in asked:
        each.cancel()
    health.state = "failed" if journal.failed.done() else "stopping"
    if journal.failed.done() or stop.is_set():
        server.manager.stopping(health.state)
    for listener in listeners:
        listener.close()
    if journal.failed.done():
        error = journal.failed.exception()
        log.critical("stopped: %s", error, exc_info=None if isinstance(error, JournalError) else error)
        # Answer nobody: sockets are cut, not closed in order, so that nobody takes silence for an answer.
        return error.exit_code if isinstance(error, JournalError) else 70
    await drain(server, journal)
    return 0


async def drain(server: Serving, journal: Journal) -> None:
    """Nothing more is handed out, what was asked for is answered, and clients are notified, in a few seconds; then what is not durable is
    written, as far as there is time."""
    server.broker.dispatcher.stopping = True
    began_s = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout_at(began_s + _ANSWERS_S):
            await journal.flush()
            server.stop_clients()
            await journal.flush()
    except TimeoutError:
        log.warning("disk-slow: the disk is slow: clients are left without answers to what they did last")
        server.stop_clients()
    try:
        async with asyncio.timeout(_GOODBYE_S):
            while server.sockets():  # noqa: ASYNC110 - nobody tells of the last one
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        log.info(
            "connections-cut: %d connections did not hang up within %d s of being notified, and are cut", len(server.sockets()), _GOODBYE_S
        )
    await server.keep_messages(began_s)


async def close_in_time(journal: Journal) -> None:
    """Closes it. Where the disk does not answer, or the database of a node's log, the process ends here: in order it would wait for the
    thread that waits for the disk."""
    try:
        async with asyncio.timeout(_CLOSE_S):
            await journal.close()
        if not journal.failed.done():
            remove_copy_in_time(journal.directory)
    except TimeoutError:
        if journal.waits_s:
            log.critical("disk-hangs: the disk has not answered for %d s: the process ends, and the next start recovers", _CLOSE_S)
        else:
            log.critical("log-away: the log's database has not answered for %d s: the process ends, and whoever leads goes on", _CLOSE_S)
        logging.shutdown()
        os._exit(70)
