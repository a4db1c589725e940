"""A broker with a planted fault: it answers before the batch is on disk. ``python -m tests.faults.planted.ack_before_commit serve …``

The disk is slow as well, so that there is time to be killed between the answer and the commit.
"""

from __future__ import annotations

import asyncio
from unittest.mock import patch

from homing.broker.cli.main import main
from homing.journal.journal import Journal

SLOW_DISK_S = 0.2

_commit = Journal._commit


async def _answer_then_commit(journal: Journal, *arguments: bool, **named: bool) -> None:
    callbacks, journal.batch._after = journal.batch._after, []
    for callback in callbacks:
        callback()
    await asyncio.sleep(SLOW_DISK_S)
    await _commit(journal, *arguments, **named)


if __name__ == "__main__":
    with patch.object(Journal, "_commit", _answer_then_commit):
        main()
