"""What of a queue stands on no page: messages that are in memory alone. They are looked for in steps, and join the pages in their order.

A queue is looked through once for all pages of a call, or of a job; whoever joined later has a later sequence, and is not meant.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from homing.journal.contract import ReferenceRecord
from homing.journal.read.pages import Page

from ..core.message import MessageReference
from ..core.message_filter import Filter
from ..core.queue import Queue
from ..recording.mapping import message_record, reference_record
from ..steps import LOOK_STEP, Steps

Fits = Callable[[MessageReference], bool]
_END: Final = object()


def in_memory_only(queue: Queue, fits: Fits) -> Steps[list[MessageReference]]:
    """Those that ``fits`` says yes to."""
    found: list[MessageReference] = []
    for part in parts(queue):
        found += [each for each in part if not each.durable and fits(each)]
        yield
    return found


def parts(queue: Queue) -> Iterator[list[MessageReference]]:
    """What is in memory of a queue, as much at a time as may be looked at in one step. Of what is durable it is no more than a window."""
    references = list(queue.references.values())
    # From the end, so that what was looked at is let go a part at a time, too.
    references.reverse()
    while references:
        part = references[-LOOK_STEP:]
        del references[-LOOK_STEP:]
        part.reverse()
        yield part


def meant(wanted: Filter, key_of: Callable[[MessageReference], str | None]) -> Fits:
    """Whether the filter takes one, as far as its times, its number and its key go."""
    numbers = None if wanted.message_ids is None else frozenset(wanted.message_ids)
    since_ms, until_ms, key = wanted.since_ms, wanted.until_ms, wanted.key

    def fits(reference: MessageReference) -> bool:
        if numbers is not None and reference.message.message_id not in numbers:
            return False
        if since_ms is not None and reference.entered_at_ms < since_ms:
            return False
        if until_ms is not None and reference.entered_at_ms >= until_ms:
            return False
        return key is None or key_of(reference) == key

    return fits


def records(queue: Queue, sequences: Iterable[int], fits: Fits = lambda reference: True) -> list[ReferenceRecord]:
    """Those of them that are there, as the journal would have them; without what has left meanwhile, or does not fit any more."""
    there = [queue.references.get(sequence) for sequence in sequences]
    found = [each for each in there if each is not None and not each.durable and fits(each)]
    return [reference_record(each, message_record(each.message)) for each in found]


class InMemory:
    """Those of one queue that ``fits``, for a walk through pages of all that is chosen (journal.read.choosing.Choice)."""

    def __init__(self, queue: Queue, fits: Fits) -> None:
        self.queue = queue
        self._fits = fits
        #: In order, once all were ``looked`` at. Whoever is named may leave meanwhile.
        self.sequences: list[int] = []
        self._steps = self._look(parts(queue))

    def _look(self, parts: Iterator[list[MessageReference]]) -> Steps[None]:
        sequences, in_order = self.sequences, True
        for number, part in enumerate(parts):
            if number:
                yield
            found = sorted([each.sequence for each in part if not each.durable and self._fits(each)])
            in_order = in_order and not (found and sequences and found[0] < sequences[-1])
            sequences += found
        if not in_order:
            sequences.sort()

    def looked(self) -> bool:
        """Looks on; whether that was all. To be called once a turn until then."""
        return next(self._steps, _END) is _END

    def join(self, page: Page, after: int, rows: int, newest_first: bool) -> Page:
        """The page of ``rows`` behind ``after`` with those that stand between its messages, cut to as many of these at most."""
        here = self._between(after, page.last if page.more else 0, rows + 1, newest_first)
        if not here:
            return page
        stored, last, more = page.records, page.last, page.more
        if len(here) > rows:
            here, more = here[:rows], True
            last = here[-1]
            stored = [each for each in stored if (each.sequence > last if newest_first else each.sequence < last)]
        elif not more:
            last = (min if newest_first else max)(last or here[-1], here[-1])
        joined = [*stored, *records(self.queue, here, self._fits)]
        joined.sort(key=lambda each: each.sequence, reverse=newest_first)
        return page._replace(records=joined, last=last, more=more)

    def _between(self, after: int, last: int, most: int, newest_first: bool) -> list[int]:
        """The first so many of their sequences beyond ``after``, 0 being before the first, up to ``last``, 0 being behind all."""
        there = self.sequences
        if newest_first:
            begin, end = bisect_left(there, last), bisect_left(there, after) if after else len(there)
            return there[max(begin, end - most) : end][::-1]
        begin, end = bisect_right(there, after), bisect_right(there, last) if last else len(there)
        return there[begin : min(end, begin + most)]
