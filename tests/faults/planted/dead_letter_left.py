"""A broker with a planted fault: a dead letter is put into its new queue and not taken out of the old one on disk.
``python -m tests.faults.planted.dead_letter_left serve …``
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from unittest.mock import patch

from homing.broker.cli.main import main
from homing.broker.core.message import MessageReference
from homing.broker.core.queue import Queue
from homing.broker.recording.recorder import Recorder
from homing.journal.commit.batch import Leaving
from homing.journal.contract import Outcome

_leaving = Recorder._leaving


def _leaving_unless_dead(recorder: Recorder, queue: Queue, references: Iterable[MessageReference], outcome: Outcome, *more: Any) -> Leaving:
    return _leaving(recorder, queue, () if outcome == "dead-lettered" else references, outcome, *more)


if __name__ == "__main__":
    with patch.object(Recorder, "_leaving", _leaving_unless_dead):
        main()
