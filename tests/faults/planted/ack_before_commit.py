"""A broker with a planted fault: it answers before the batch is on disk. ``python -m tests.faults.planted.ack_before_commit serve …``

The disk is slow as well, so that there is time to be killed between the answer and the commit.
"""

from __future__ import annotations

import time
from typing import Any
from unittest.mock import patch

from homing.broker.cli.main import main
from homing.journal.commit.scheduler import CommitScheduler
from homing.journal.commit.writer_thread import WriterThread
from tests.faults.planted.answers_early import take_and_answer

SLOW_DISK_S = 0.2

_commit = WriterThread.commit


def _commit_slowly(writer_thread: WriterThread, *arguments: Any) -> Any:
    time.sleep(SLOW_DISK_S)
    return _commit(writer_thread, *arguments)


if __name__ == "__main__":
    with (
        patch.object(CommitScheduler, "take", take_and_answer),
        patch.object(WriterThread, "commit", _commit_slowly),
        patch.object(WriterThread, "rows_here", lambda self, batch: 0),
    ):
        main()
