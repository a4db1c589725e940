"""A broker with a planted fault: now and then the journal drops a batch and says that it is on disk.
``python -m tests.faults.planted.batch_dropped serve …``
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from itertools import count
from unittest.mock import patch

from homing.broker.cli.main import main
from homing.journal.commit.batch import WriteBatch
from homing.journal.commit.writer_thread import Standing, WriterThread

EVERY = 3

_commit = WriterThread.commit
_batches = count(1)


def _commit_most(
    writer_thread: WriterThread,
    connection: sqlite3.Connection,
    batch: WriteBatch,
    reserve_up_to: int | None,
    joining: Callable[[], WriteBatch | None] | None = None,
) -> Standing | None:
    # Only what a restart would not trip over: messages, not the queues they are in.
    plain = bool(batch.added) and not batch.queues and not batch.addresses and reserve_up_to is None
    if plain and next(_batches) % EVERY == 0:
        writer_thread.on_disk(batch)
        return writer_thread.standing(connection)
    return _commit(writer_thread, connection, batch, reserve_up_to, joining)


if __name__ == "__main__":
    with patch.object(WriterThread, "commit", _commit_most), patch.object(WriterThread, "rows_here", lambda self, batch: 0):
        main()
