"""What goes round: messages whose senders did not want them kept, and that a program puts back over and over, without a word or a limit.

To write each of these returns would cost a commit. They are counted in memory; the message is on disk from its third failure on, or once it
has not moved for a second, and its counts from then on at most once a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Final

from ..core.message import GONE, MessageReference
from ..core.scheduled import NEVER
from ..recording.recorder import Recorder
from .references import References

#: Failures after which it is on disk.
_KEPT_AT: Final = 3
#: One that has not moved for so long is written, and one that moves no more often.
STILL_MS: Final = 1_000
#: Those that stand still are looked for no more often, and so many of them are written at a time.
_LOOK_MS: Final = 250
_AT_A_TIME: Final = 500


class GoingRound:
    def __init__(self, references: References, recorder: Recorder) -> None:
        self._references = references
        self._recorder = recorder
        #: Those whose last return is not written -> when that was; the longest first.
        self.unwritten: dict[MessageReference, int] = {}
        #: Those that were written within this second -> when; the longest first.
        self._written: dict[MessageReference, int] = {}
        #: ``look`` is wanted then.
        self.look_at_ms = NEVER

    def put_back(self, returned: Sequence[MessageReference], now_ms: int) -> list[MessageReference]:
        """Their failures are counted. Returns those of which that is to be written at once; the others need not wait for the disk."""
        at_once: list[MessageReference] = []
        unwritten, written = self.unwritten, self._written
        for reference in returned:
            unwritten.pop(reference, None)
            if reference.durable:
                later = now_ms - written.get(reference, 0) < STILL_MS
            else:
                queue = reference.queue
                later = reference.failed < _KEPT_AT and queue.durable and queue.settings.keep_failed
            if later:
                unwritten[reference] = now_ms
            else:
                at_once.append(reference)
                written.pop(reference, None)
                written[reference] = now_ms
        self.look_at_ms = min(self.look_at_ms, now_ms + STILL_MS)
        return at_once

    def written(self, references: Sequence[MessageReference]) -> None:
        """All that is to be known of them is about to be written."""
        for reference in references:
            self.unwritten.pop(reference, None)

    def look(self, now_ms: int) -> None:
        """Those that stand still are written."""
        until_ms = now_ms - STILL_MS
        still = [each for each, _ in takewhile(lambda item: item[1] <= until_ms, self.unwritten.items())][:_AT_A_TIME]
        self._write(still)
        for reference in still:
            self._written.pop(reference, None)
            self._written[reference] = now_ms
        for reference in [each for each, _ in takewhile(lambda item: item[1] <= until_ms, self._written.items())]:
            del self._written[reference]
        waits = self.unwritten or self._written
        self.look_at_ms = now_ms + (_LOOK_MS if len(still) < _AT_A_TIME else 0) if waits else NEVER

    def write_all(self) -> None:
        """The broker stops in order."""
        self._write(list(self.unwritten))

    def _write(self, references: list[MessageReference]) -> None:
        for reference in references:
            del self.unwritten[reference]
        there = [each for each in references if each.where is not GONE]
        self._recorder.changed(there)
        self._references.keep_failed(there)
