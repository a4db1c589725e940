"""When what failed is tried again, changed by hand: now, at another time, or not before it is released."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from homing.journal.contract import ReferenceRecord

from ..auth.access import Access, Who, at_queue, needs
from ..core.fault import FaultGroup
from ..core.message import ON_HOLD_MS, MessageReference, Where
from ..core.message_filter import Filter
from ..core.queue import Queue
from ..core.repeated import Repeated, add
from ..core.rights import Right
from ..entries.browsing import as_it_is
from ..entries.enqueuing import Enqueuing
from ..entries.fault_groups import FaultGroups
from ..entries.from_disk import FromDisk
from ..entries.references import References
from ..entries.room import Room
from ..entries.waiting import FIRST, FIRST_ON_HOLD, Cursor, Waiting, in_memory_only
from ..recording.recorder import Recorder
from ..steps import LOOK_STEP, STEP, Steps
from .chosen import first_of, length_of, told_of

#: Stands for a time: as soon as may be.
NOW: Final = 0
#: Pages of one answer.
_PAGES: Final = 40
#: (how many, of how many that were looked at, where to go on: None at the end)
Done = tuple[int, int, Cursor | None]


class Retrying:
    def __init__(
        self,
        access: Access,
        recorder: Recorder,
        references: References,
        from_disk: FromDisk,
        waiting: Waiting,
        enqueuing: Enqueuing,
        faults: FaultGroups,
        room: Room,
        now_ms: Callable[[], int],
    ) -> None:
        self.access = access
        self._recorder = recorder
        self._references = references
        self._from_disk = from_disk
        self._waiting = waiting
        self._enqueuing = enqueuing
        self._faults = faults
        self._room = room
        self._now_ms = now_ms

    @needs((Right.MANAGE, at_queue), audited=True, tells=told_of, counts=first_of)
    def retry(self, who: Who, queue: Queue, wanted: Filter, due_at_ms: int, release: bool, after: Cursor) -> Steps[Done]:
        """Those that the filter takes are due then (NOW, or ON_HOLD_MS: when they are released): of what waits for a time, or, with
        ``release``, of what is on hold."""
        number, looked_at = 0, 0
        if after == FIRST:
            waiting = yield from in_memory_only(queue)
            for start in range(0, len(waiting), STEP):
                if start:
                    yield
                step = [each for each in waiting[start : start + STEP] if each.where is Where.SCHEDULED and each.on_hold is release]
                looked_at += len(step)
                number += len(self._give([each for each in step if self._waiting.wants(wanted, each)], due_at_ms))

        def take(records: list[ReferenceRecord]) -> None:
            nonlocal number
            chosen = [record for record in records if self._waiting.wants(wanted, as_it_is(queue, record))]
            found = [each for record in chosen if (each := self._from_disk.in_place(queue, record)) is not None]
            given = self._give([each for each in found if each.due_at_ms is not None and each.on_hold is release], due_at_ms)
            number += len(given)
            # Those that were only on disk and keep their time go back there.
            self._enqueuing.enqueue(set(found).difference(given))

        begin, until_ms = (max(after, FIRST_ON_HOLD), ON_HOLD_MS) if release else (after, ON_HOLD_MS - 1)
        seen, go_on = yield from self._waiting.on_disk(queue, wanted, begin, until_ms, take, _PAGES)
        return number, looked_at + seen, go_on

    def _give(self, references: list[MessageReference], due_at_ms: int) -> list[MessageReference]:
        """Another time for those that wait: an earlier one, or the one that is named; returns those that had another."""
        changed = list[MessageReference]()
        for reference in references:
            to_ms = due_at_ms or self._room.earliest_ms(reference.queue, self._now_ms())
            if (reference.due_at_ms or 0) <= to_ms if not due_at_ms else reference.due_at_ms == to_ms:
                continue
            reference.queue.withdraw(reference, Where.IN_COMMIT)
            reference.due_at_ms = to_ms
            changed.append(reference)
        self._references.keep_failed(changed)
        self._recorder.changed(changed)
        self._enqueuing.enqueue_when_safe(changed)
        return changed

    @needs((Right.BROWSE, at_queue), audited=True, action="peek-retrying", tells=told_of, counts=length_of)
    def browse(
        self, who: Who, queue: Queue, wanted: Filter, after: Cursor, limit: int
    ) -> Steps[tuple[list[tuple[MessageReference, FaultGroup | None]], int, Cursor | None]]:
        """The next so many that wait to be tried again, suspects first, each with what it failed of; the same beside as Done."""
        others = [*(yield from in_memory_only(queue)), *queue.suspects.values()]
        others = [each for each in others if _cursor(each) > after and self._waiting.wants(wanted, each)]
        found: list[MessageReference] = []

        def take(records: list[ReferenceRecord]) -> Cursor | None:
            for record in records:
                reference = as_it_is(queue, record)
                if reference.where is Where.SCHEDULED and self._waiting.wants(wanted, reference):
                    found.append(reference)
                    if len(found) == limit:
                        return record.due_at_ms or 0, record.sequence
            return None

        looked_at, go_on = yield from self._waiting.on_disk(queue, wanted, after, ON_HOLD_MS, take, _PAGES)
        if go_on is not None:
            others = [each for each in others if _cursor(each) <= go_on]
        found = sorted(found + others, key=_cursor)
        if len(found) > limit:
            found = found[:limit]
            go_on = _cursor(found[-1])
        return [(each, self._faults.group_of(each.cause)) for each in found], len(others) + looked_at, go_on

    @needs((Right.BROWSE, at_queue), audited=True, counts=length_of)
    def repeated(self, who: Who, queue: Queue, after: Cursor) -> Steps[tuple[list[Repeated], int, Cursor | None]]:
        """What is to come again, by the sends that asked for it; the same beside as Done. Of one there may be more behind that cursor."""
        looked_at, found = 0, dict[str, Repeated]()
        if after == FIRST:
            waiting = yield from in_memory_only(queue)
            looked_at = len(waiting)
            for start in range(0, looked_at, LOOK_STEP):
                if start:
                    yield
                for each in waiting[start : start + LOOK_STEP]:
                    add(found, each)

        def take(records: list[ReferenceRecord]) -> None:
            for record in records:
                add(found, as_it_is(queue, record))

        seen, go_on = yield from self._waiting.on_disk(queue, Filter(), after, ON_HOLD_MS - 1, take, _PAGES)
        return [*found.values()], looked_at + seen, go_on


def _cursor(reference: MessageReference) -> Cursor:
    return reference.due_at_ms or 0, reference.sequence
