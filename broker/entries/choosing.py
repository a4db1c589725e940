"""The messages of a queue that a filter takes, a page at a time; among them those that stand on no page (in_memory.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from homing.journal.contract import DEATH_BITS, DEATHS, ReferenceRecord
from homing.journal.read.choosing import Choice, Takes
from homing.journal.read.pages import Page, Wanted

from ..core.message import MessageReference
from ..core.message_filter import Filter
from ..core.queue import Queue
from ..core.settings.in_force import SettingsInForce
from ..recording.journal_port import JournalPort
from ..steps import Steps
from .browsing import as_it_is
from .enqueuing import Enqueuing
from .fault_groups import FaultGroups
from .from_disk import FromDisk
from .in_memory import Fits, InMemory, meant
from .page_reads import Asked
from .references import key_of_death

#: Messages of one page: acting on them takes some 5 ms.
ROWS: Final = 250
#: Bodies of one page that is only looked at.
_LOOK_ROWS: Final = 1_000
#: Takes one; whether it wants more.
Take = Callable[[ReferenceRecord], bool]


def died_in(reference: MessageReference) -> str | None:
    """The queue of its first death; None: it is no dead letter."""
    return reference.hops[-1].detail["queue"] if reference.hops else None


def is_dead(record: ReferenceRecord) -> bool:
    """As MessageReference.is_dead."""
    return bool(record.hops) and record.cause & DEATH_BITS > 0


class Choosing:
    def __init__(
        self, journal: JournalPort, faults: FaultGroups, settings: SettingsInForce, from_disk: FromDisk, enqueuing: Enqueuing
    ) -> None:
        self._journal = journal
        self._faults = faults
        self._settings = settings
        self._from_disk = from_disk
        self._enqueuing = enqueuing

    def choice(self, wanted: Filter, up_to: int, newest_first: bool = False) -> Choice:
        """What of the filter indexes know. ``up_to``: what comes from that sequence on is not meant."""
        takes: Takes | None = None
        if wanted.is_of_deaths:
            group_of = self._faults.group_of
            death = None if wanted.reason is None else DEATHS.index(wanted.reason)

            def takes(cause: int, source: Callable[[], str | None]) -> bool:
                return (death is None or cause & DEATH_BITS == death) and wanted.takes_group(group_of(cause), source)

        return Choice(takes, wanted.since_ms, wanted.until_ms, wanted.key, wanted.message_ids, up_to, newest_first)

    def in_memory(self, queue: Queue, wanted: Filter, up_to: int) -> InMemory:
        """What of the queue stands on no page and is chosen as ``choice`` chooses among the others."""
        return InMemory(queue, self.fits(wanted, up_to))

    def fits(self, wanted: Filter, up_to: int) -> Fits:
        """What ``choice`` says, asked of one that is in memory."""
        is_meant = meant(wanted, lambda each: key_of_death(each, self._settings))
        return lambda each: each.sequence < up_to and is_meant(each) and self._died_so(wanted, each)

    def _died_so(self, wanted: Filter, reference: MessageReference) -> bool:
        if not wanted.is_of_deaths:
            return True
        death = reference.cause & DEATH_BITS
        if not death or (wanted.reason is not None and DEATHS[death] != wanted.reason):
            return False
        return wanted.takes_group(self._faults.group_of(reference.cause), lambda: died_in(reference))

    def select(self, queue: Queue, wanted: Filter, up_to: int, newest_first: bool = False) -> Selection:
        """What a filter takes of a queue, of what is there before the sequence ``up_to``."""
        others = self.in_memory(queue, wanted, up_to)
        return Selection(self._from_disk, queue, wanted, self.choice(wanted, up_to, newest_first), others)

    def choose(
        self, queue: Queue, wanted: Filter, after: int, take: Take, pages: int = 0, newest_first: bool = False
    ) -> Steps[tuple[int, int | None]]:
        """Gives what is chosen behind ``after``, of what is there now, to ``take``, before anything else is written; returns how many were
        looked at, and where to go on, None at the end.

        ``pages``: so many, then it returns; 0: all. Raises what ``take`` raised, or Refused where a page could not be read.
        """
        number = looked_at = 0
        selection = self.select(queue, wanted, self._journal.next_id(), newest_first)
        while not selection.ready():
            yield
        while True:
            last, wants_more = after, True

            def look(records: list[ReferenceRecord], page_last: int, _: bool) -> bool:
                nonlocal last, wants_more, looked_at
                last = page_last
                for record in records:
                    looked_at += 1
                    if selection.scans and not wanted.takes(as_it_is(queue, record)):
                        continue
                    wants_more = take(record)
                    if not wants_more:
                        last = record.sequence
                        return True
                return True

            more = yield from selection.ask(after, _LOOK_ROWS if selection.scans else ROWS, look).over()
            if not more and wants_more:
                return looked_at, None
            number += 1
            after = last
            if not wants_more or number == pages:
                return looked_at, after
            yield

    def in_place(self, queue: Queue, record: ReferenceRecord, act: Callable[[MessageReference], None]) -> bool:
        """Does it to the message where it stands, brought into memory where it is not; False where somebody holds it. What ``act`` does not
        take out stays where it was, whatever it raises."""
        reference = self._from_disk.in_place(queue, record)
        if reference is None:
            return False
        try:
            act(reference)
        finally:
            self._enqueuing.enqueue((reference,))
        return True


class Selection:
    """What a filter takes of a queue, a page at a time, wherever it is. ``others``: of it, what stands on no page."""

    def __init__(self, from_disk: FromDisk, queue: Queue, wanted: Filter, choice: Choice, others: InMemory) -> None:
        self.queue = queue
        self.wanted = wanted
        #: Each message of its pages has to be looked at.
        self.scans = wanted.scans
        self._from_disk = from_disk
        self._choice = choice
        self._others = others

    def ready(self) -> bool:
        """Whether pages can be asked for. To be called once a turn until then: what stands on none of them is looked for."""
        return self._others.looked()

    def ask(self, after: int, rows: int, take: Callable[[list[ReferenceRecord], int, bool], bool], on_disk: bool = False) -> Asked:
        """The page behind ``after``. ``take`` gets its records, the last sequence that was looked at, and whether there is more, before
        anything else is written. It says whether it wants more; so does ``Asked.more``. ``on_disk``: all that is meant is there, but for
        what stands on no page."""

        def look(page: Page) -> bool:
            if not self._from_disk.alive(self.queue, page):
                return False
            page = self._others.join(page, after, rows, self._choice.newest_first)
            return take(page.records, page.last, page.more) and page.more

        wanted = Wanted(self.queue.queue_id, "chosen", after=after, rows=rows, choice=self._choice, on_disk=on_disk)
        return self._from_disk.reads.ask(wanted, look)
