"""The page that a step of work goes on with, read while the disk is waited for.

A thread and a connection of its own (``mode=ro``) read it once a step is written and about to be committed. So the page shows what was
there before that commit, and whoever takes it asks whether anything was done to its rows since (``good``). Whatever goes wrong here,
nothing was read ahead, and the page is read in its turn.
"""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Final

from ..commit.batch import WriteBatch
from .pages import Page, Wanted, read_page

#: A read under way at the end takes some milliseconds; one that the disk does not answer is not waited for.
_END_S: Final = 1.0


def touched(page: Page, batch: WriteBatch) -> bool:
    """Whether the batch does something to rows of the page."""
    numbers = {record.sequence for record in page.records}
    states = (batch.deleted, batch.deleted_first, batch.changed, batch.added, batch.fault_changes.causes, batch.fault_changes.keys)
    return any(not numbers.isdisjoint(each) for each in states if each)


def _as_of_now(connection: sqlite3.Connection, wanted: Wanted) -> Page:
    """All of the page as of one moment: a commit between two of its statements would make it look like the last one."""
    connection.execute("BEGIN")
    try:
        return read_page(connection, wanted)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


class ReadAhead:
    def __init__(self, path: Path) -> None:
        self._uri = f"{path.absolute().as_uri()}?mode=ro"
        self._thread: Thread | None = None
        self._asked: SimpleQueue[tuple[Wanted, Future[Page | None]] | None] = SimpleQueue()
        self._ahead: tuple[Wanted, Future[Page | None]] | None = None
        #: Committed since it was begun.
        self._since: list[WriteBatch] = []

    def begin(self, wanted: Wanted) -> None:
        """On the store's thread, right before a commit."""
        if self._thread is None:
            # A process whose loop has ended must still be able to end.
            self._thread = Thread(target=self._serve, name="read-ahead", daemon=True)
            self._thread.start()
        self._since = []
        self._ahead = wanted, Future()
        self._asked.put(self._ahead)

    def committed(self, batch: WriteBatch) -> None:
        if self._ahead is not None:
            self._since.append(batch)

    def take(self, wanted: Wanted) -> Future[Page | None] | None:
        """What comes of it, where it was begun; any other is forgotten."""
        ahead, self._ahead = self._ahead, None
        return ahead[1] if ahead is not None and ahead[0] is wanted else None

    async def over(self) -> None:
        """A checkpoint passes no reader, and the write-ahead log begins anew only behind one that has copied all of it."""
        if self._ahead is not None:
            await asyncio.wrap_future(self._ahead[1])

    def good(self, page: Page) -> bool:
        """Whether what was taken is as it would be read now."""
        since, self._since = self._since, []
        return not any(touched(page, batch) for batch in since)

    def close(self) -> None:
        """Before the connection that writes is closed: the last one that closes removes the write-ahead log, and this one may not."""
        if self._thread is not None:
            self._asked.put(None)
            self._thread.join(_END_S)

    def _serve(self) -> None:
        connection: sqlite3.Connection | None = None
        while (asked := self._asked.get()) is not None:
            wanted, answer = asked
            if not answer.set_running_or_notify_cancel():
                continue
            try:
                connection = connection or sqlite3.connect(self._uri, uri=True, isolation_level=None, timeout=0)
                answer.set_result(_as_of_now(connection, wanted))
            except Exception:
                # It is read again in its turn, and what is wrong is said then.
                answer.set_result(None)
        if connection is not None:
            connection.close()
