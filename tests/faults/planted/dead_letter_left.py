"""A broker with a planted fault: a dead letter is put into its new queue and not taken out of the old one on disk.
``python -m tests.faults.planted.dead_letter_left serve …``
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from homing.broker.cli.main import main
from homing.journal.commit.batch import Leaving, WriteBatch
from homing.journal.contract import QueueStat

_moved = WriteBatch.moved


def _moved_and_left(batch: WriteBatch, minute: int, leaving: Leaving, *came: Any) -> None:
    _moved(batch, minute, leaving._replace(sequences=()) if leaving.column == QueueStat.DEAD_LETTERED else leaving, *came)


if __name__ == "__main__":
    with patch.object(WriteBatch, "moved", _moved_and_left):
        main()
