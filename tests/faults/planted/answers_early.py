"""The fault of answering before the disk has it, for the broker and for the journal alone."""

from __future__ import annotations

from homing.journal.commit.batch import WriteBatch
from homing.journal.commit.scheduler import CommitScheduler

_take = CommitScheduler.take


def take_and_answer(self: CommitScheduler, now_s: float, open_batch: WriteBatch) -> WriteBatch | None:
    """In place of ``CommitScheduler.take``: whoever waits for a confirm has it before the batch is written."""
    batch = _take(self, now_s, open_batch)
    if batch is not None:
        waiting = [*batch.confirms]
        batch.confirms.clear()
        for callback in waiting:
            callback()
    return batch
