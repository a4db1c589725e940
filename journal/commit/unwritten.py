"""What was appended and is not on disk yet: the open batch, those that wait, and the one in flight; and the numbers that were given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..options import JournalOptions
from .batch import WriteBatch
from .scheduler import CommitScheduler

#: What a reference that is to be written takes beside its message, about.
_ROW_BYTES: Final = 400


class Unwritten:
    """``wake``: there is something to write. Used on the loop."""

    def __init__(self, options: JournalOptions, first_id: int, wake: Callable[[], None]) -> None:
        self._options = options
        self._wake = wake
        #: The number that comes next.
        self.ids_taken = first_id
        self._reserved_up_to = first_id + 2 * options.id_block
        #: What the commit under way raises it to.
        self._reserving = self._reserved_up_to
        self._in_flight: WriteBatch | None = None
        self._scheduler = CommitScheduler(options.elide)
        #: The open batch. Always reached as ``journal.batch``: it is swapped at each commit.
        self.batch = self._new_batch()

    def next_id(self) -> int:
        """A message id or sequence, like those of ``next_ids``."""
        return self.next_ids(1)

    def next_ids(self, count: int) -> int:
        """The first of so many in a row. Never refused.

        They may be shown to nobody before ``ids_reserved``, so that none is ever seen twice, whatever happens. What is written needs no
        such care: the commit that writes it reserves what it holds. A block is reserved ahead, so that it is rarely waited for.
        """
        next_id = self.ids_taken
        self.ids_taken = next_id + count
        if self.ids_taken > self._reserved_up_to - self._options.id_block:
            # The next commit reserves more, and there has to be one, whether there is anything to write or not.
            self.batch.touch()
        return next_id

    @property
    def ids_reserved(self) -> bool:
        """Whether all that were given are reserved on disk; while they are not, a commit is on its way that changes it."""
        return self.ids_taken <= self._reserved_up_to

    def when_safe(self, callback: Callable[[], None]) -> None:
        """Calls back once everything appended so far is on disk; at once when it is already."""
        if self.busy():
            self.batch.after.append(callback)
        else:
            callback()

    def when_stored(self, callback: Callable[[], None]) -> None:
        """Calls back when a send may be confirmed: once on disk, which may wait for acknowledgements (commit/scheduler.py). What is on
        disk for want of memory alone is waited for by nobody."""
        if self.busy(sends=True):
            self.batch.confirms.append(callback)
        else:
            callback()

    def busy(self, sends: bool = False) -> bool:
        """Whether something appended is not on disk yet; ``sends``: something that a confirm waits for."""
        if sends:
            return self.batch.owes or any(batch is not None and batch.owes for batch in (self._in_flight, *self._scheduler.waiting))
        return self.batch.touched or self._in_flight is not None or bool(self._scheduler.waiting)

    @property
    def unwritten_bytes(self) -> int:
        """Of what was appended and is not on disk yet, about."""
        in_flight = self._in_flight.size if self._in_flight is not None else 0
        size = self.batch.size + in_flight + sum([batch.size for batch in self._scheduler.waiting])
        return size + _ROW_BYTES * self.unwritten_references

    @property
    def unwritten_references(self) -> int:
        """References that were added and are not on disk yet."""
        number = len(self.batch.added)
        if self._in_flight is not None:
            number += len(self._in_flight.added)
        for batch in self._scheduler.waiting:
            number += len(batch.added)
        return number

    def _new_batch(self) -> WriteBatch:
        return WriteBatch(self._wake, self._options.elide, self._scheduler.waiting)

    def _close_batch(self, now_s: float) -> None:
        """What gathers from here on goes with a later commit."""
        self._scheduler.close(self.batch, now_s)
        self.batch = self._new_batch()

    def _give(self, now_s: float) -> WriteBatch | None:
        """What has gathered while the batch in flight is written, and goes along with it; None where it must wait."""
        in_flight, later = self._in_flight, self.batch
        if in_flight is None or self._scheduler.waiting or not later.awaited or self.ids_taken > self._reserving:
            return None
        self.batch = self._new_batch()
        in_flight.absorb(later)
        self._scheduler.awaited_s = now_s
        return later

    def _reserve_wanted(self) -> int | None:
        """Raise the reservation while a whole block is still ahead, so that it is on disk long before it is needed."""
        block = self._options.id_block
        if self._reserved_up_to - self.ids_taken >= block:
            return None
        return self.ids_taken + 2 * block
