"""A broker with a planted fault: now and then the journal writes nothing of a batch, packed or not, and says that it is on disk.
``python -m tests.faults.planted.batch_dropped serve …``
"""

from __future__ import annotations

import sqlite3
from itertools import count
from typing import Any
from unittest.mock import patch

from homing.broker.cli.main import main
from homing.journal.commit.batch import WriteBatch
from homing.journal.commit.batch_writer import BatchWriter, Written
from homing.journal.store.sqlite import Writing

EVERY = 3

_pack, _write = BatchWriter.pack, BatchWriter.write
_batches = count(1)


def _most(batch: WriteBatch, reserve_up_to: int | None) -> WriteBatch:
    # Only what a restart would not trip over: messages, not the queues they are in.
    plain = bool(batch.added) and not batch.queues and not batch.addresses and reserve_up_to is None
    return WriteBatch() if plain and next(_batches) % EVERY == 0 else batch


def _pack_most(writer: BatchWriter, connection: Writing, batch: WriteBatch, reserve_up_to: int | None, rows: int) -> Written:
    return _pack(writer, connection, _most(batch, reserve_up_to), reserve_up_to, rows)


def _write_most(
    writer: BatchWriter, connection: sqlite3.Connection, batch: WriteBatch, reserve_up_to: int | None, *others: Any, **named: Any
) -> Written:
    return _write(writer, connection, _most(batch, reserve_up_to), reserve_up_to, *others, **named)


if __name__ == "__main__":
    with patch.object(BatchWriter, "pack", _pack_most), patch.object(BatchWriter, "write", _write_most):
        main()
