"""What is done with the messages that a filter takes: shown, deleted, moved. Each in steps, and for so long as one answer may take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from homing.journal.contract import ReferenceRecord

from ..core.dead_letter import DELETED
from ..core.letter_filter import Filter
from ..core.message import MessageReference
from ..core.queue import Queue
from ..entries.browsing import as_it_is
from ..entries.choosing import choose, in_place
from ..entries.state import BrokerState
from ..steps import Steps
from .by_hand import ByHand

#: Pages of one answer.
PAGES: Final = 40
#: (how many, of how many that were looked at, where to go on: None at the end)
Done = tuple[int, int, int | None]


def shown(
    state: BrokerState, queue: Queue, wanted: Filter, after: int, limit: int, newest_first: bool, pages: int, most_bytes: int
) -> Steps[tuple[list[MessageReference], int, int | None]]:
    """The next so many, of as many bytes; the same beside as Done."""
    found: list[MessageReference] = []
    size = 0

    def take(record: ReferenceRecord) -> bool:
        nonlocal size
        reference = as_it_is(queue, record)
        found.append(reference)
        size += 2 * reference.message.size
        return len(found) < limit and size < most_bytes

    looked_at, go_on = yield from choose(state, queue, wanted, after, take, pages, newest_first)
    return found, looked_at, go_on


def delete(state: BrokerState, queue: Queue, wanted: Filter, after: int) -> Steps[Done]:
    return _each(state, queue, wanted, after, lambda reference: state.references.leave(reference, "purged", state.now_ms(), DELETED))


def move(state: BrokerState, hand: ByHand, queue: Queue, target: Queue, wanted: Filter, after: int) -> Steps[Done]:
    """Raises Refused where the target has no room; what went before that stays there."""
    number = 0

    def act(reference: MessageReference) -> None:
        nonlocal number
        hand.move(reference, target, number)
        number += 1

    return _each(state, queue, wanted, after, act)


def drop(state: BrokerState, queue: Queue, entries: Mapping[int, int], why: str) -> Steps[int]:
    """Removes dead letters, by sequence and message id, that nobody holds; counted as dropped. Returns how many."""
    number = 0

    def take(record: ReferenceRecord) -> bool:
        nonlocal number
        reference = in_place(state, queue, record) if record.sequence in entries else None
        if reference is not None:
            state.references.leave(reference, "dropped", state.now_ms(), why)
            number += 1
        return True

    wanted = Filter(message_ids=tuple(sorted(set(entries.values()))))
    yield from choose(state, queue, wanted, 0, take)
    return number


def _each(state: BrokerState, queue: Queue, wanted: Filter, after: int, act: Callable[[MessageReference], None]) -> Steps[Done]:
    number = 0

    def take(record: ReferenceRecord) -> bool:
        nonlocal number
        reference = in_place(state, queue, record)
        if reference is not None:
            try:
                act(reference)
                number += 1
            finally:
                # One that could not go stays where it was; of one that went nothing is in its old place.
                state.place((reference,))
        return True

    looked_at, go_on = yield from choose(state, queue, wanted, after, take, PAGES)
    return number, looked_at, go_on
