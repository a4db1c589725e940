"""What is done with the messages that a filter takes: shown, deleted, moved. Each in steps, and for so long as one answer may take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from homing.journal.contract import ReferenceRecord

from ..auth.access import Access, Told, Who, at_queue, at_target, needs
from ..core.dead_letter import DELETED
from ..core.message import MessageReference
from ..core.message_filter import Filter
from ..core.queue import Queue
from ..core.rights import Right
from ..entries.browsing import Browsing, Ordered, as_it_is
from ..entries.choosing import Choosing, is_dead
from ..entries.references import References
from ..steps import Steps
from .transfer import Transfer

#: Pages of one answer.
PAGES: Final = 40
#: (how many, of how many that were looked at, where to go on: None at the end)
Done = tuple[int, int, int | None]
#: The next so many; the same beside as Done.
Shown = tuple[list[MessageReference], int, int | None]


def first_of(answer: tuple[int, object, object]) -> int:
    """How many messages the audit says it was."""
    return answer[0]


def length_of(answer: tuple[list[Any], object, object]) -> int:
    """The same, of what was shown."""
    return len(answer[0])


def told_of(wanted: Filter) -> Told:
    """What else the audit says of it."""
    return {"filter": wanted.said()}


def _told_of_those_that_go(wanted: Filter, living: bool) -> Told:
    return {"filter": wanted.said(), **({"living": True} if living else {})}


def _told_of_those_that_move(wanted: Filter, target: Queue) -> Told:
    return {"filter": wanted.said(), "to": target.name}


class Chosen:
    """``most_bytes``: of one answer."""

    def __init__(
        self,
        access: Access,
        browsing: Browsing,
        choosing: Choosing,
        references: References,
        transfer: Transfer,
        most_bytes: int,
        now_ms: Callable[[], int],
    ) -> None:
        self.access = access
        self._browsing = browsing
        self._choosing = choosing
        self._references = references
        self._now_ms = now_ms
        self._transfer = transfer
        self._most_bytes = most_bytes

    @needs((Right.BROWSE, at_queue), audited=True)
    def peek(self, who: Who, queue: Queue, after: tuple[int, int], count: int) -> Steps[list[Ordered]]:
        """Of all that is in the queue. See Browsing."""
        return self._browsing.browse(queue, after, count)

    @needs((Right.BROWSE, at_queue), audited=True, action="peek-dead-letters", tells=told_of, counts=length_of)
    def browse(self, who: Who, queue: Queue, wanted: Filter, after: int, limit: int, newest_first: bool, pages: int) -> Steps[Shown]:
        return self._shown(queue, wanted, after, limit, newest_first, pages)

    @needs((Right.BROWSE, at_queue), audited=True, action="histories", tells=told_of, counts=length_of)
    def browse_histories(self, who: Who, queue: Queue, wanted: Filter, after: int, limit: int, newest_first: bool) -> Steps[Shown]:
        """Those whose histories are asked for."""
        return self._shown(queue, wanted, after, limit, newest_first, PAGES)

    def _shown(self, queue: Queue, wanted: Filter, after: int, limit: int, newest_first: bool, pages: int) -> Steps[Shown]:
        found: list[MessageReference] = []
        size = 0

        def take(record: ReferenceRecord) -> bool:
            nonlocal size
            reference = as_it_is(queue, record)
            found.append(reference)
            size += 2 * reference.message.size
            return len(found) < limit and size < self._most_bytes

        looked_at, go_on = yield from self._choosing.choose(queue, wanted, after, take, pages, newest_first)
        return found, looked_at, go_on

    @needs((Right.MANAGE, at_queue), audited=True, action="delete-dead-letters", tells=_told_of_those_that_go, counts=first_of)
    def delete(self, who: Who, queue: Queue, wanted: Filter, after: int, living: bool) -> Steps[Done]:
        """``living``: also what is no dead letter, and none that found no place."""

        def act(reference: MessageReference) -> None:
            self._references.leave(reference, "purged", self._now_ms(), DELETED)

        return self._each(queue, wanted, after, act, lambda record: living or is_dead(record) or record.sequence in queue.parked)

    @needs(
        (Right.CONSUME, at_queue),
        (Right.SEND, at_target),
        audited=True,
        action="move-dead-letters",
        tells=_told_of_those_that_move,
        counts=first_of,
    )
    def move(self, who: Who, queue: Queue, target: Queue, wanted: Filter, after: int) -> Steps[Done]:
        """Raises Refused where the target has no room; what went before that stays there."""
        number = 0

        def act(reference: MessageReference) -> None:
            nonlocal number
            self._transfer.put(reference, target, number)
            number += 1

        return self._each(queue, wanted, after, act)

    def drop(self, queue: Queue, entries: Mapping[int, int], why: str) -> Steps[int]:
        """Removes dead letters, by sequence and message id, that nobody holds; counted as dropped. Returns how many."""
        number = 0

        def act(reference: MessageReference) -> None:
            self._references.leave(reference, "dropped", self._now_ms(), why)

        def take(record: ReferenceRecord) -> bool:
            nonlocal number
            number += record.sequence in entries and self._choosing.in_place(queue, record, act)
            return True

        wanted = Filter(message_ids=tuple(sorted(set(entries.values()))))
        yield from self._choosing.choose(queue, wanted, 0, take)
        return number

    def _each(
        self,
        queue: Queue,
        wanted: Filter,
        after: int,
        act: Callable[[MessageReference], None],
        meant: Callable[[ReferenceRecord], bool] = lambda _: True,
    ) -> Steps[Done]:
        number = 0

        def take(record: ReferenceRecord) -> bool:
            nonlocal number
            number += meant(record) and self._choosing.in_place(queue, record, act)
            return True

        looked_at, go_on = yield from self._choosing.choose(queue, wanted, after, take, PAGES)
        return number, looked_at, go_on
