"""What goes round: messages whose senders did not want them kept, and that a program puts back over and over, without a word or a limit.

To write each of these returns would cost a commit that the message waits for. So they are counted in memory. The message is on disk from
its third failure on, or once it has not moved for a second; its counts are written from then on once a second, all of them together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..core.message import GONE, MessageReference
from ..core.scheduled import NEVER
from ..recording.recorder import Recorder
from ..steps import STEP
from .references import References

#: Failures after which it is on disk.
_KEPT_AT: Final = 3
STILL_MS: Final = 1_000
#: Those that stand still are looked for so often.
_LOOK_MS: Final = 250


class GoingRound:
    def __init__(self, references: References, recorder: Recorder) -> None:
        self._references = references
        self._recorder = recorder
        #: Those whose last return is not written -> when that was; the longest first.
        self.unwritten: dict[MessageReference, int] = {}
        #: ``look`` is wanted then; counts of those that are on disk are written then.
        self.look_at_ms = self._write_at_ms = NEVER
        #: There may be something to write now.
        self.due = False

    def put_back(self, returned: Sequence[MessageReference], now_ms: int) -> tuple[list[MessageReference], list[MessageReference]]:
        """Their failures are counted. Returns (those that are to be on disk now, those that wait for nothing)."""
        now: list[MessageReference] = []
        others: list[MessageReference] = []
        unwritten = self.unwritten
        for reference in returned:
            if unwritten:
                unwritten.pop(reference, None)
            if reference.durable and not reference.cause:
                # That it waits is counted with what its row says of it.
                now.append(reference)
                continue
            if not reference.durable:
                queue = reference.queue
                if reference.failed >= _KEPT_AT or not queue.durable or not queue.settings.keep_failed:
                    now.append(reference)
                    continue
            unwritten[reference] = now_ms
            others.append(reference)
        if unwritten and self.look_at_ms == NEVER:
            self.look_at_ms = self._write_at_ms = now_ms + STILL_MS
        return now, others

    def written(self, references: Sequence[MessageReference]) -> None:
        """All that is to be known of them is about to be written."""
        for reference in references:
            self.unwritten.pop(reference, None)

    def look(self, now_ms: int) -> None:
        """Something may have to be written (``go_on``)."""
        self.due = bool(self.unwritten)
        self.look_at_ms = now_ms + _LOOK_MS if self.due else NEVER

    def go_on(self, now_ms: int) -> None:
        """A step: those that stand still are written, and once a second the counts of those that are on disk."""
        until_ms = now_ms - STILL_MS
        found: list[MessageReference] = []
        counts = now_ms >= self._write_at_ms
        for reference, returned_ms in self.unwritten.items():
            if (counts and reference.durable) or returned_ms <= until_ms:
                found.append(reference)
            elif not counts:
                break
            if len(found) == STEP:
                break
        self._write(found)
        self.due = len(found) == STEP
        if counts and not self.due:
            self._write_at_ms = now_ms + STILL_MS

    def write_all(self) -> None:
        """The broker stops in order."""
        self._write(list(self.unwritten))

    def _write(self, references: list[MessageReference]) -> None:
        for reference in references:
            del self.unwritten[reference]
        there = [each for each in references if each.where is not GONE]
        self._recorder.changed(there)
        self._references.keep_failed(there)
