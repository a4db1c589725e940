"""A broker with a planted fault: it answers before the batch is on disk. ``python -m tests.faults.planted.ack_before_commit serve …``

The disk is slow as well, so that there is time to be killed between the answer and the commit, of few rows or many.
"""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import patch

from homing.broker.cli.main import main
from homing.journal.commit.scheduler import CommitScheduler
from homing.journal.journal import Journal
from tests.faults.planted.answers_early import take_and_answer

SLOW_DISK_S = 0.2

_write = Journal._write


async def _write_slowly(journal: Journal, *arguments: Any) -> Any:
    await asyncio.sleep(SLOW_DISK_S)
    return await _write(journal, *arguments)


if __name__ == "__main__":
    with patch.object(CommitScheduler, "take", take_and_answer), patch.object(Journal, "_write", _write_slowly):
        main()
