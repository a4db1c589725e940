"""When what failed is tried again, changed by hand: now, at another time, or not before it is released."""

from __future__ import annotations

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
from ..entries.choosing import in_place
from ..entries.shared_state import SharedState
from ..entries.waiting import FIRST, FIRST_ON_HOLD, Cursor, in_memory_only, on_disk, wants
from ..steps import LOOK_STEP, STEP, Steps
from ..topology import places
from .chosen import first_of, length_of

#: Stands for a time: as soon as may be.
NOW: Final = 0
#: Pages of one answer.
_PAGES: Final = 40
#: (how many, of how many that were looked at, where to go on: None at the end)
Done = tuple[int, int, Cursor | None]


class Retrying:
    def __init__(self, access: Access, state: SharedState) -> None:
        self.access = access
        self._state = state

    @needs((Right.MANAGE, at_queue), audited=True, tells=places.chosen, counts=first_of)
    def retry(self, who: Who, queue: Queue, wanted: Filter, due_at_ms: int, release: bool, after: Cursor) -> Steps[Done]:
        """Those that the filter takes are due then (NOW, or ON_HOLD_MS: when they are released): of what waits for a time, or, with
        ``release``, of what is on hold."""
        state, number, looked_at = self._state, 0, 0
        if after == FIRST:
            waiting = yield from in_memory_only(state, queue)
            for start in range(0, len(waiting), STEP):
                if start:
                    yield
                step = [each for each in waiting[start : start + STEP] if each.where is Where.SCHEDULED and each.on_hold is release]
                looked_at += len(step)
                number += len(self._give([each for each in step if wants(state, wanted, each)], due_at_ms))

        def take(records: list[ReferenceRecord]) -> None:
            nonlocal number
            chosen = [record for record in records if wants(state, wanted, as_it_is(queue, record))]
            found = [each for record in chosen if (each := in_place(state, queue, record)) is not None]
            given = self._give([each for each in found if each.due_at_ms is not None and each.on_hold is release], due_at_ms)
            number += len(given)
            # Those that were only on disk and keep their time go back there.
            state.enqueuing.enqueue(set(found).difference(given))

        begin, until_ms = (max(after, FIRST_ON_HOLD), ON_HOLD_MS) if release else (after, ON_HOLD_MS - 1)
        seen, go_on = yield from on_disk(state, queue, wanted, begin, until_ms, take, _PAGES)
        return number, looked_at + seen, go_on

    def _give(self, references: list[MessageReference], due_at_ms: int) -> list[MessageReference]:
        """Another time for those that wait: an earlier one, or the one that is named; returns those that had another."""
        state, changed = self._state, list[MessageReference]()
        for reference in references:
            to_ms = due_at_ms or state.pager.earliest_ms(reference.queue)
            if (reference.due_at_ms or 0) <= to_ms if not due_at_ms else reference.due_at_ms == to_ms:
                continue
            reference.queue.withdraw(reference, Where.IN_COMMIT)
            reference.due_at_ms = to_ms
            changed.append(reference)
        state.references.keep_failed(changed)
        state.recorder.changed(changed)
        state.enqueuing.enqueue_when_safe(changed)
        return changed

    @needs((Right.BROWSE, at_queue), audited=True, action="peek-retrying", tells=places.chosen, counts=length_of)
    def browse(
        self, who: Who, queue: Queue, wanted: Filter, after: Cursor, limit: int
    ) -> Steps[tuple[list[tuple[MessageReference, FaultGroup | None]], int, Cursor | None]]:
        """The next so many that wait to be tried again, suspects first, each with what it failed of; the same beside as Done."""
        state = self._state
        others = [*(yield from in_memory_only(state, queue)), *queue.suspects.values()]
        others = [each for each in others if _cursor(each) > after and wants(state, wanted, each)]
        found: list[MessageReference] = []

        def take(records: list[ReferenceRecord]) -> Cursor | None:
            for record in records:
                reference = as_it_is(queue, record)
                if reference.where is Where.SCHEDULED and wants(state, wanted, reference):
                    found.append(reference)
                    if len(found) == limit:
                        return record.due_at_ms or 0, record.sequence
            return None

        looked_at, go_on = yield from on_disk(state, queue, wanted, after, ON_HOLD_MS, take, _PAGES)
        if go_on is not None:
            others = [each for each in others if _cursor(each) <= go_on]
        found = sorted(found + others, key=_cursor)
        if len(found) > limit:
            found = found[:limit]
            go_on = _cursor(found[-1])
        return [(each, state.faults.group_of(each.cause)) for each in found], len(others) + looked_at, go_on

    @needs((Right.BROWSE, at_queue), audited=True, counts=length_of)
    def repeated(self, who: Who, queue: Queue, after: Cursor) -> Steps[tuple[list[Repeated], int, Cursor | None]]:
        """What is to come again, by the sends that asked for it; the same beside as Done. Of one there may be more behind that cursor."""
        state, looked_at, found = self._state, 0, dict[str, Repeated]()
        if after == FIRST:
            waiting = yield from in_memory_only(state, queue)
            looked_at = len(waiting)
            for start in range(0, looked_at, LOOK_STEP):
                if start:
                    yield
                for each in waiting[start : start + LOOK_STEP]:
                    add(found, each)

        def take(records: list[ReferenceRecord]) -> None:
            for record in records:
                add(found, as_it_is(queue, record))

        seen, go_on = yield from on_disk(state, queue, Filter(), after, ON_HOLD_MS - 1, take, _PAGES)
        return [*found.values()], looked_at + seen, go_on


def _cursor(reference: MessageReference) -> Cursor:
    return reference.due_at_ms or 0, reference.sequence
