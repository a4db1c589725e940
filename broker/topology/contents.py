"""What is in queues: handed out or not, removed, and let go with its queue. In steps, where it is much."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from homing.journal.contract import Outcome, ReferenceRecord

from ..auth.access import BROKER, Access, Who, at_queue, needs
from ..core.counts import COUNT_OF_OUTCOME
from ..core.message import MessageReference, Where
from ..core.queue import Queue
from ..core.rights import Right
from ..entries.from_disk import FromDisk
from ..entries.ready_set import ReadySet
from ..entries.references import References
from ..recording.journal_port import JournalPort
from ..recording.recorder import Recorder
from ..steps import MOST_AT_ONCE, STEP, Steps, at_once

#: Rows on disk that are purged in one step: between two of them is a commit.
_PURGED_ROWS: Final = 500


class Contents:
    def __init__(
        self,
        access: Access,
        journal: JournalPort,
        recorder: Recorder,
        references: References,
        from_disk: FromDisk,
        ready: ReadySet,
        now_ms: Callable[[], int],
    ) -> None:
        self.access = access
        self._journal = journal
        self._recorder = recorder
        self._references = references
        self._from_disk = from_disk
        self._ready = ready
        self._now_ms = now_ms

    @needs((Right.MANAGE, at_queue), audited=True, tells=lambda paused: {"paused": paused})
    def pause(self, who: Who, queue: Queue, paused: bool) -> None:
        """Whether it hands anything out."""
        if queue.paused is not paused:
            queue.paused = paused
            self._recorder.queue_changed(queue)
            self._ready.mark(queue)

    @needs((Right.MANAGE, at_queue), audited=True, counts=int)
    def purge(self, who: Who, queue: Queue, outcome: Outcome = "purged") -> Steps[int]:
        """Removes all messages that nobody holds, in steps: of what is there now, what is still there when its turn comes."""
        up_to = self._journal.next_id()
        count = yield from self._purge_memory(queue, outcome)

        def leave(records: list[ReferenceRecord]) -> bool:
            nonlocal count
            count += self._leave_all(queue, [self._from_disk.adopt(queue, record) for record in records], outcome)
            return True

        yield from self._from_disk.on_disk(queue, leave, up_to, rows=_PURGED_ROWS)
        return count

    def empty(self, queue: Queue) -> Steps[int]:
        """As it is about to go: nobody is handed anything more. Where that fails, what is left is a queue as before."""
        paused, queue.paused = queue.paused, True
        try:
            return (yield from self.purge(BROKER, queue))
        except Exception:
            queue.paused = paused
            self._ready.mark(queue)
            raise

    def end(self, queue: Queue, outcome: Outcome) -> tuple[int, list[MessageReference]]:
        """The queue is about to go, with all that is in it; returns how many messages that is, and those that are still to be let go:
        memory is given back in steps where there is much."""
        count = 0
        if len(queue.references) <= MOST_AT_ONCE:
            count = at_once(self._purge_memory(queue, outcome, everything=True))
        count += queue.count
        self._from_disk.forget(queue)
        left = queue.end()
        queue.counts[COUNT_OF_OUTCOME[outcome]] += len(left)
        return count, left

    def let_go(self, queue: Queue, references: list[MessageReference], outcome: Outcome) -> Steps[None]:
        for part in _used_up(references):
            self._references.let_go(queue, part, outcome, self._now_ms())
            yield

    def _purge_memory(self, queue: Queue, outcome: Outcome, everything: bool = False) -> Steps[int]:
        count = 0
        stay = (Where.GONE,) if everything else (Where.GONE, Where.DELIVERING, Where.IN_COMMIT)
        for number, part in enumerate(_used_up(list(queue.references.values()))):
            if number:
                yield
            count += self._leave_all(queue, [each for each in part if each.where not in stay], outcome)
        return count

    def _leave_all(self, queue: Queue, references: list[MessageReference], outcome: Outcome) -> int:
        for reference in references:
            queue.withdraw(reference, Where.GONE)
        if references:
            self._references.leave_all(queue, references, outcome, self._now_ms())
        return len(references)


def _used_up(references: list[MessageReference]) -> Iterator[list[MessageReference]]:
    """A step's worth at a time, in order. Nothing keeps what was handed out: very much would be freed at once in the end."""
    references.reverse()
    while references:
        part = references[-STEP:]
        del references[-STEP:]
        part.reverse()
        yield part
        del part
