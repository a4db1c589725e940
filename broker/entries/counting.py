"""How many messages a filter takes, and how many are dead: what is known of all of them, and, in steps, those that stand on no page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from homing.journal.contract import DEATH_BITS, DEATHS, OTHER_FAULT, SENT_BACK, DeadLetters
from homing.journal.read.choosing import Choice

from ..core.message import MessageReference
from ..core.message_filter import Filter
from ..core.queue import Queue
from ..core.routing import PostOffice
from ..recording.journal_port import JournalPort
from ..steps import LOOK_STEP, Steps
from .choosing import Choosing, died_in
from .fault_groups import FaultGroups
from .in_memory import in_memory_only, parts
from .references import References


class Counting:
    def __init__(
        self, journal: JournalPort, post_office: PostOffice, faults: FaultGroups, references: References, choosing: Choosing
    ) -> None:
        self._journal = journal
        self._post_office = post_office
        self._faults = faults
        self._references = references
        self._choosing = choosing

    def choice(self, wanted: Filter) -> Choice:
        """What indexes know of the filter, for another thread."""
        return self._choosing.choice(wanted, self._journal.next_id())

    def sequences_in_memory(self, queue: Queue, wanted: Filter) -> Steps[list[int]]:
        """Of those that a filter takes and that stand on no page, in order."""
        others = self._choosing.in_memory(queue, wanted, self._journal.next_id())
        while not others.looked():
            yield
        return others.sequences

    def known(self, queue: Queue, wanted: Filter) -> tuple[Counter[tuple[int, str | None]], Choice | None]:
        """How many of all that is in the queue the filter takes, as ``in_memory`` tells it, as far as they are counted as they come and go;
        and what is left to count of the journal: None where that is nothing, else those of faults that were folded, or all."""
        which = self.choice(wanted)
        if not which.is_of_causes:
            return Counter(), which
        takes, group_of = which.takes or (lambda cause, source: True), self._faults.group_of
        dead = list(self._faults.dead_letters.within((queue,)))
        found: Counter[tuple[int, str | None]] = Counter({(0, None): queue.count - queue.dead} if which.takes is None else {})
        for each in dead:
            if each.source is not None and takes(each.cause, lambda: None):
                found[each.fault_id, each.source] += each.messages

        def takes_folded(cause: int, source: Callable[[], str | None]) -> bool:
            group = group_of(cause)
            return (group is None or not group.queue) and takes(cause, source)

        return found, which._replace(takes=takes_folded) if any(each.source is None for each in dead) else None

    def in_memory(self, queue: Queue, wanted: Filter) -> Steps[Counter[tuple[int, str | None]]]:
        """Of those that stand on no page: see journal.read.choosing.count."""
        found = yield from in_memory_only(queue, self._choosing.fits(wanted, self._journal.next_id()))
        return Counter(self._fault(each) if each.cause & DEATH_BITS else (0, None) for each in found)

    def dead_in_memory(self) -> Steps[list[DeadLetters]]:
        """Those that stand on no page: see journal.read.faults.dead."""
        found = list[DeadLetters]()
        looked_at = 0
        # Where no message is transient, what is not durable is in queues that are not.
        transient = self._references.transient_bytes > 0
        for queue in [each for each in self._post_office.queues.values() if each.dead and (transient or not each.durable)]:
            by_cause: dict[int, DeadLetters] = {}
            for part in parts(queue):
                looked_at += len(part)
                if looked_at >= LOOK_STEP:
                    looked_at = 0
                    yield
                for each in part:
                    if each.in_memory_only and each.is_dead:
                        by_cause[each.cause] = _with(by_cause.get(each.cause) or self._none_yet(each), each)
            found += by_cause.values()
        return found

    def _fault(self, reference: MessageReference) -> tuple[int, str | None]:
        group = self._faults.group_of(reference.cause)
        return (OTHER_FAULT, died_in(reference)) if group is None or not group.queue else (group.fault_id, group.queue)

    def _none_yet(self, like: MessageReference) -> DeadLetters:
        fault_id, source = self._fault(like)
        death = like.cause & DEATH_BITS
        reason, back, at_ms = DEATHS[death] if death < len(DEATHS) else "", bool(like.cause & SENT_BACK), like.entered_at_ms
        return DeadLetters(like.queue.queue_id, fault_id, source, reason, back, 0, at_ms, at_ms, transient=True)


def _with(found: DeadLetters, one: MessageReference) -> DeadLetters:
    at_ms = one.entered_at_ms
    return found._replace(messages=found.messages + 1, oldest_ms=min(found.oldest_ms, at_ms), newest_ms=max(found.newest_ms, at_ms))
