"""Pages of queues on their way from disk: one of a kind for each queue at a time, and what becomes of one that could not be read.

A page of a queue is asked for again a second later. One for a call fails that call alone: its error, or what the call's own look at it
raised, is raised where the call goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from homing.journal.contract import ReferenceRecord
from homing.journal.read.pages import Page, Wanted

from ..core.message import REFERENCE_BYTES
from ..core.queue import Queue
from ..core.routing import PostOffice
from ..errors import Refused
from ..recording.journal_port import JournalPort
from ..steps import Steps
from .memory_quota import MemoryQuota
from .ready_set import ReadySet

_AGAIN_MS: Final = 1_000
#: Looks at what of a queue is only on disk; returns whether it wants more.
Look = Callable[[list[ReferenceRecord]], bool]


class PageReads:
    def __init__(
        self, journal: JournalPort, quota: MemoryQuota, post_office: PostOffice, ready: ReadySet, now_ms: Callable[[], int]
    ) -> None:
        self._journal = journal
        self._quota = quota
        self._post_office = post_office
        self._ready = ready
        self._now_ms = now_ms
        #: Pages that are on their way, by queue and kind, and what each may take of memory.
        self.reading: dict[tuple[int, str], int] = {}
        #: Queues of which a page could not be read, and when they are looked at again.
        self._failed: dict[Queue, None] = {}
        self._again_ms = 0
        #: By queue and priority: sequences of what goes to disk after what came later, and is not there yet.
        self._late: dict[tuple[Queue, int], deque[int]] = {}

    def read(self, queue: Queue, kind: str, wanted: Wanted, take: Callable[[Page], None], failed: Callable[[], None]) -> bool:
        """Whether a page was asked for: one of a kind is on its way at a time. ``failed``: it could not be read, all is as it was."""
        if (queue.queue_id, kind) in self.reading or queue in self._failed:
            return False
        size = wanted.size + REFERENCE_BYTES * wanted.rows
        self.reading[queue.queue_id, kind] = size
        self._quota.coming_bytes += size

        def lost(error: Exception) -> None:
            if (queue.queue_id, kind) not in self.reading:
                # It had come, and was taken only in part: nobody knows what is recorded of it, but the journal does.
                raise error
            self.ended(queue, kind)
            if self._post_office.queues_by_id.get(queue.queue_id) is queue:
                failed()
                if not self._failed:
                    self._again_ms = self._now_ms() + _AGAIN_MS
                self._failed[queue] = None

        self._journal.read(wanted, take, lost)
        return True

    def comes_late(self, queue: Queue, priority: int, sequence: int) -> None:
        """It is in the open batch, and what came later may be on disk already."""
        self._late.setdefault((queue, priority), deque()).append(sequence)
        self._journal.when_safe(partial(self._is_there, (queue, priority)))

    def _is_there(self, line: tuple[Queue, int]) -> None:
        self._late[line].popleft()
        if not self._late[line]:
            del self._late[line]

    def before_late(self, queue: Queue, priority: int, records: list[ReferenceRecord]) -> list[ReferenceRecord]:
        """A page without what stands behind one that it cannot have."""
        late = self._late.get((queue, priority))
        return records if late is None else [record for record in records if record.sequence < late[0]]

    def ended(self, queue: Queue, kind: str) -> None:
        """It is on its way no more."""
        self._quota.coming_bytes -= self.reading.pop((queue.queue_id, kind))

    def look_again(self, now_ms: int) -> None:
        """At least once a second: at queues of which a page could not be read."""
        if self._failed and now_ms >= self._again_ms:
            queues, self._failed = self._failed, {}
            for queue in queues:
                self._ready.mark(queue)

    def ask(self, wanted: Wanted, act: Callable[[Page], bool]) -> Asked:
        """A page for a call. ``act`` is called when it is here, before anything else is written, and says whether there is more to do."""
        return Asked(self._journal, wanted, act, self._ready.wake)


class Asked:
    """A page that a call waits for. What goes wrong is the call's own affair: ``more`` raises it."""

    def __init__(self, journal: JournalPort, wanted: Wanted, act: Callable[[Page], bool], wake: Callable[[], None]) -> None:
        self._wake = wake
        self._act = act
        self.came = False
        self._more = False
        self._error: Exception | None = None
        journal.read(wanted, self._take, self._failed)

    def _take(self, page: Page) -> None:
        try:
            self._more = self._act(page)
        except Exception as error:
            self._error = error
        self._ended()

    def _failed(self, error: Exception) -> None:
        self._error = Refused("journal-unreadable", f"the journal could not be read ({error})", "ask again; the broker's log says more")
        self._ended()

    def _ended(self) -> None:
        self.came = True
        self._wake()

    def over(self) -> Steps[bool]:
        """Waits for it, then says ``more``."""
        while not self.came:
            yield self
        return self.more()

    def more(self) -> bool:
        """What ``act`` said. Raises what it raised, or Refused ``journal-unreadable``."""
        if self._error is not None:
            raise self._error
        return self._more


class Scan:
    """Where a look at all of one priority of a queue stands. ``alive``: whether the queue of a page is still there."""

    def __init__(self, queue: Queue, act: Look, up_to: int, after: int, alive: Callable[[Queue, Page], bool]) -> None:
        self._queue = queue
        self._act = act
        self._up_to = up_to
        self._alive = alive
        self.after = after
        self.wants_more = True

    def look(self, page: Page) -> bool:
        """Whether there are further pages."""
        queue, up_to = self._queue, self._up_to
        self.after = page.records[-1].sequence if page.records else up_to
        self.wants_more = self._alive(queue, page) and self._act(
            [r for r in page.records if r.sequence not in queue.references and r.sequence < up_to]
        )
        return page.more and self.after < up_to
