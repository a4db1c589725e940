"""Fault groups: failures of one queue that look alike, who met them, and what became of their messages.

Here stands what each group is; its counts are added up in the journal, in the batch of what they count. The least recent of too many
groups is folded into one, OTHER, whose messages keep the number of the group that is gone; so are, after a while, groups of queues that are
gone, as of the temporary ones that come and go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import groupby, islice, takewhile
from operator import attrgetter
from typing import Final

from homing.journal.commit.fault_changes import FaultChanges
from homing.journal.contract import DEATH_BITS, DEATHS, OTHER_FAULT, SENT_BACK, FaultRecord, FaultStat, Program, RecoveredFault, cause
from homing.journal.fingerprint import fingerprint

from ..core.event import FAULT_GROWING, FAULT_NEW, FAULT_REGRESSED
from ..core.fault import FaultGroup
from ..core.memory import Kind, Memory, Owner
from ..core.message import MessageReference
from ..recording.failure_report import FaultDescription
from ..recording.journal_port import JournalPort
from .dead_letter_counts import DeadLetterCounts

#: Groups of a broker, and the part of memory-limit that they take at most.
MOST: Final = 5_000
_SHARE: Final = 16
#: Those of queues that are gone are folded so many at a time: each takes some statements of the commit.
_FOLDED_AT_ONCE: Final = 500
#: Muted and fixed ones that are passed over for each.
_SPARED: Final = 100
#: The one that others are folded into.
OTHER: Final = OTHER_FAULT
#: Samples and programs of a group, the latest; its row is written at most so often.
_SAMPLES: Final = 10
_PROGRAMS: Final = 20
_NOTE_EVERY_MS: Final = 60_000
#: Of its text so much is at hand; the journal has the whole, and the traceback.
_MOST_TEXT: Final = 256

_CAUSE: Final = attrgetter("cause")
#: As plain numbers: places in a list are found sooner by them.
_WAITING, _DIED, _SUCCEEDED = int(FaultStat.WAITING), int(FaultStat.DIED), int(FaultStat.SUCCEEDED)
_REDRIVEN, _BACK_DIED, _BACK_SUCCEEDED = int(FaultStat.REDRIVEN), int(FaultStat.BACK_DIED), int(FaultStat.BACK_SUCCEEDED)


def cause_when_back(cause: int) -> int:
    """Of a dead letter that is sent back to where it came from; 0: it was none."""
    return cause >> 4 << 4 | SENT_BACK if cause else 0


def goes_back(cause: int, hops: Sequence[object] | None, parked: int) -> bool:
    """Whether a message is one that a redrive sends back: a dead letter, one from before causes were kept, or one that could not leave its
    queue. Whatever else is there is not touched, as what waits for its time or is on hold."""
    return bool(cause & DEATH_BITS or parked or (hops and not cause))


class FaultGroups:
    def __init__(
        self,
        journal: JournalPort,
        now_ms: Callable[[], int],
        memory: Memory,
        bounced: Callable[[MessageReference], None] = lambda reference: None,
        report: Callable[[str, FaultGroup, int], None] = lambda name, group, failures: None,
    ) -> None:
        """``bounced``: called with a message that a redrive job sent, when it fails as it had before. ``report``: with an event, and of
        a group that has grown how many failures came within this hour (core/event.py)."""
        self._journal = journal
        self._now_ms = now_ms
        self._bounced = bounced
        self._report = report
        self._owner = Owner(memory, Kind.FAULTS)
        self._most_bytes = memory.limit // _SHARE
        self.by_id: dict[int, FaultGroup] = {}
        self.dead_letters = DeadLetterCounts(self.by_id)
        #: (fingerprint, queue) -> group, the least recent first.
        self._groups: dict[tuple[str, str], FaultGroup] = {}
        self._next_id = OTHER + 1
        #: How many that failed wait, by group; and of what is not durable, which ends with the process, as they do.
        self.waiting: Counter[int] = Counter()
        self.in_memory: Counter[int] = Counter()
        #: What else is counted of them, which stays: on record within a second, for no commit is made for it.
        self._later = FaultChanges()
        #: Groups of which something was seen that is not on record, and since when: the longest first.
        self._unrecorded: dict[int, int] = {}

    def restore(self, records: Iterable[RecoveredFault]) -> None:
        """Those on record, the least recent first."""
        now_ms = self._now_ms()
        for record, text, dead_lettered, in_hour, waiting in records:
            own = (record.fault_id, record.fingerprint, record.queue, record.error_class, text, record.first_ms, record.last_ms)
            met = {(client_id, host, version): (first, last) for client_id, host, version, first, last in record.programs}
            said = (record.fixed_in, record.fixed_ms, record.regressed_ms)
            group = FaultGroup(*own, record.message_ids, met, dead_lettered, record.muted, *said)
            # What of them was reported before is not again.
            group.grown(in_hour, now_ms)
            self._add(group)
            self.waiting[group.fault_id] = waiting

    def _add(self, group: FaultGroup) -> None:
        self.by_id[group.fault_id] = group
        if group.fault_id != OTHER:
            self._groups[group.fingerprint, group.queue] = group
        self._next_id = max(self._next_id, group.fault_id + 1)
        self._charge(group)

    def _charge(self, group: FaultGroup) -> None:
        weight = group.weight
        self._owner.charge(weight - group.charged)
        group.charged = weight

    def group_of(self, cause: int) -> FaultGroup | None:
        """Of what failed or was dead-lettered so; where that was folded, what it was folded into. None: it did neither."""
        return self.by_id.get(self._there(cause)) if cause else None

    def knows(self, name: str) -> bool:
        """Whether a fault's fingerprint is this or begins so."""
        return any(each.is_called(name) for each in self.by_id.values())

    def waits(self, group: FaultGroup) -> int:
        """How many failed so last, and are to be tried again."""
        return self.waiting[group.fault_id] + self.in_memory[group.fault_id]

    # -- what happens to messages ------------------------------------------------------------------------------------

    def failed(
        self,
        queue: str,
        references: Sequence[MessageReference],
        fault: FaultDescription,
        client: Program | None,
        now_ms: int,
        later: bool = False,
    ) -> None:
        """Deliveries of one queue that failed alike. ``fault``: its fingerprint, class, text and traceback. ``later``: no commit is
        made for them; that they failed is on record within a second."""
        new = (fault[0], queue) not in self._groups
        group = self._met(queue, fault, client, references[-1].message.message_id, now_ms)
        if new:
            self._report(FAULT_NEW, group, 1)
        if grown := group.grown(len(references), now_ms):
            self._report(FAULT_GROWING, group, grown)
        fault_id = group.fault_id
        counts = self._counts(fault_id << 4, not later and any(reference.durable for reference in references), now_ms)
        counts[FaultStat.FAILURES] += len(references)
        fresh, waiting = fault_id << 4, 0
        for reference in references:
            before = reference.cause
            if not before:
                # As most: the first failure.
                reference.cause = fresh
                if reference.durable:
                    waiting += 1
                else:
                    self.in_memory[fault_id] += 1
                continue
            # It failed so before, or is a dead letter: one that fails where it is stays what it was dead-lettered for.
            if before == fresh or before & DEATH_BITS:
                continue
            now = fresh | before & SENT_BACK
            if reference.redrive > 0 and reference.failed == 1 and self._alike(before, fault[0]):
                self._bounced(reference)
            if now != before:
                durable = reference.durable
                self._wait(before, durable, -1, self._counts(before, durable, now_ms))
                self._wait(now, durable, 1, self._counts(now, durable, now_ms))
                reference.cause = now
        counts[_WAITING] += waiting
        self.waiting[fault_id] += waiting

    def _alike(self, before: int, fingerprint: str) -> bool:
        group = self.by_id.get(before >> 4)
        return group is not None and group.fingerprint == fingerprint

    def dead_lettered(self, queue: str, references: Iterable[MessageReference], reason: str, now_ms: int) -> None:
        """They are about to leave this queue for their dead-letter queues. What never failed has its reason for a fault."""
        after: dict[int, int] = {}
        numbers: Counter[tuple[int, bool]] = Counter()
        for before, group in groupby(references, _CAUSE):
            alike = list(group)
            if before not in after:
                after[before] = self._dead_letter_cause(queue, alike[0], reason, now_ms)
            now = after[before]
            for reference in alike:
                reference.cause = now
                numbers[before, reference.durable] += 1
        for (before, durable), number in numbers.items():
            counts = self._counts(after[before], durable, now_ms)
            counts[_DIED] += number
            if before and not before & DEATH_BITS:
                self._wait(before, durable, -number, counts)
                if before & SENT_BACK:
                    counts[_BACK_DIED] += number

    def _dead_letter_cause(self, queue: str, reference: MessageReference, reason: str, now_ms: int) -> int:
        """The cause that it has from now on."""
        before = reference.cause
        if not before:
            described = (fingerprint(reason, queue), reason, "", "")
            before = self._met(queue, described, None, reference.message.message_id, now_ms).fault_id << 4
        group = self.by_id.get(self._there(before))
        if group is not None:
            group.dead_lettered = True
        return before & ~DEATH_BITS | DEATHS.index(reason)

    def dead_lettered_before(self, queue: str, fault: FaultDescription, reason: str, message_id: int, at_ms: int) -> int:
        """The cause of a dead letter from before causes were kept."""
        group = self._groups.get((fault[0], queue)) or self._made(queue, fault, message_id, at_ms)
        group.first_ms, group.last_ms, group.dead_lettered = min(group.first_ms, at_ms), max(group.last_ms, at_ms), True
        group.message_ids = [message_id, *group.message_ids][:_SAMPLES]
        self.note(group)
        why = cause(group.fault_id, reason)
        self._counts(why, True, at_ms)[_DIED] += 1
        return why

    def kept(self, reference: MessageReference, now_ms: int) -> None:
        """One in trouble that was in memory alone is durable from here on."""
        if not reference.cause & DEATH_BITS:
            counts = self._counts(reference.cause, True, now_ms)
            self._wait(reference.cause, False, -1, counts)
            self._wait(reference.cause, True, 1, counts)

    def ended(self, reference: MessageReference, succeeded: bool, now_ms: int) -> None:
        """One in trouble leaves its queue for good, acknowledged or otherwise. Dead letters are counted where they are."""
        if not reference.cause & DEATH_BITS:
            counts = self._counts(reference.cause, reference.durable, now_ms)
            self._wait(reference.cause, reference.durable, -1, counts)
            if succeeded:
                counts[_SUCCEEDED] += 1
                counts[_BACK_SUCCEEDED] += bool(reference.cause & SENT_BACK)

    def not_over(self, reference: MessageReference, now_ms: int) -> None:
        """One that was counted as acknowledged is in trouble still."""
        counts = self._counts(reference.cause, reference.durable, now_ms)
        self._wait(reference.cause, reference.durable, 1, counts)
        counts[_SUCCEEDED] -= 1
        counts[_BACK_SUCCEEDED] -= bool(reference.cause & SENT_BACK)

    def goes_on(self, old: MessageReference, new: MessageReference, back: bool) -> int:
        """The cause that a message has as what it is next; ``back``: it is sent back to where it came from, to be tried again."""
        before, now_ms = old.cause, new.entered_at_ms
        if not before:
            return 0
        after = cause_when_back(before) if back else before
        if not after & DEATH_BITS:
            counts = self._counts(after, new.durable, now_ms)
            self._wait(after, new.durable, 1, counts)
            counts[_REDRIVEN] += back
        return after

    def cause_in(self, old: MessageReference, new: MessageReference) -> int:
        """The cause that one just dead-lettered has in the queue that it goes to. Where it was before it is to be tried again, as on the
        way round of a retry over AMQP."""
        been_there = new.queue is old.queue or any(hop.detail["queue"] == new.queue.name for hop in old.hops or ())
        return self.goes_on(old, new, been_there)

    def sent_back(self, dead: Mapping[int, int], now_ms: int) -> None:
        """Dead letters were sent back from disk to disk: how many of each cause."""
        for before, number in dead.items():
            if before:
                counts = self._counts(before, True, now_ms)
                self._wait(before, True, number, counts)
                counts[_REDRIVEN] += number

    def _wait(self, cause: int, durable: bool, number: int, counts: list[int]) -> None:
        """So many more wait that failed so. ``counts``: of its group."""
        if durable:
            counts[_WAITING] += number
        (self.waiting if durable else self.in_memory)[self._there(cause)] += number

    def _counts(self, cause: int, durable: bool, now_ms: int) -> list[int]:
        """The row of increments of its group, indexed by FaultStat. What is not durable is on record within a second."""
        source = self._journal.batch.fault_counts if durable else self._later.counts
        return source(self._there(cause), now_ms)

    def put_on_record(self) -> None:
        """What was counted of messages that are not durable."""
        if self._later:
            self._journal.batch.faults().absorb(self._later)
            self._later = FaultChanges()

    def _there(self, cause: int) -> int:
        fault_id = cause >> 4  # contract.fault_of; here it is asked several times of each death
        return fault_id if fault_id in self.by_id else OTHER

    # -- groups ------------------------------------------------------------------------------------------------------

    def _met(self, queue: str, fault: FaultDescription, client: Program | None, message_id: int, now_ms: int) -> FaultGroup:
        key = (fault[0], queue)
        group = self._groups.pop(key, None)
        if group is None:
            group = self._made(queue, fault, message_id, now_ms)
        else:
            self._groups[key] = group
        self._seen(group, client, message_id, now_ms)
        return group

    def _made(self, queue: str, fault: FaultDescription, message_id: int, now_ms: int) -> FaultGroup:
        while len(self._groups) >= MOST or (self._owner.bytes > self._most_bytes and len(self._groups) > 1):
            self._fold(self._least_recent())
        fingerprint, error_class, text, traceback = fault
        group = FaultGroup(self._next_id, fingerprint, queue, error_class, text[:_MOST_TEXT], now_ms, now_ms)
        self._add(group)
        self._journal.batch.faults().texts[group.fault_id] = (text, traceback)
        return group

    def _least_recent(self) -> FaultGroup:
        """But none of which something was said, where there are others near; nor the one with the highest number, from which further ones
        are counted."""
        for _ in range(_SPARED):
            key, group = next((key, each) for key, each in self._groups.items() if each.fault_id != self._next_id - 1)
            if not (group.muted or group.fixed_in is not None):
                break
            # So it is not looked at again before all others were.
            self._groups[key] = self._groups.pop(key)
        return group

    def _seen(self, group: FaultGroup, client: Program | None, message_id: int, now_ms: int) -> None:
        group.last_ms = now_ms
        note, version = now_ms - group.noted_ms >= _NOTE_EVERY_MS, ""
        if client:
            version = client.get("version", "")
            program = (client.get("client_id", ""), client.get("host", ""), version)
            first_ms, _ = group.programs.get(program, (now_ms, 0))
            known = program in group.programs
            note = note or not known
            group.programs[program] = (first_ms, now_ms)
            if len(group.programs) > _PROGRAMS:
                del group.programs[min(group.programs, key=lambda each: group.programs[each][1])]
            if not known:
                self._charge(group)
        if group.fixed_in is not None and group.is_back(version):
            group.regressed_ms, note = now_ms, True
            self._report(FAULT_REGRESSED, group, 1)
        group.message_ids.append(message_id)
        if len(group.message_ids) > _SAMPLES:
            del group.message_ids[0]
        if note:
            self.note(group)
        else:
            self._unrecorded.setdefault(group.fault_id, now_ms)

    def record_seen(self, now_ms: int, waited_ms: int = _NOTE_EVERY_MS) -> None:
        """Puts on record what was counted, and what was seen of groups so long ago: when they were met last, by whom, and with which
        messages."""
        self.put_on_record()
        for fault_id in list(takewhile(lambda each: now_ms - self._unrecorded[each] >= waited_ms, self._unrecorded)):
            self.note(self.by_id[fault_id])

    def note(self, group: FaultGroup) -> None:
        """As it stands now, in this batch."""
        group.noted_ms = group.last_ms
        self._unrecorded.pop(group.fault_id, None)
        who, said = (group.fault_id, group.fingerprint, group.queue, group.error_class), (group.fixed_in, group.fixed_ms)
        programs = [(*program, *times) for program, times in group.programs.items()]
        record = FaultRecord(*who, group.first_ms, group.last_ms, list(group.message_ids), programs, group.muted, *said, group.regressed_ms)
        self._journal.batch.faults().records[group.fault_id] = record

    def forget(self, before_ms: int, queues: Container[str]) -> None:
        """Folds some that were met last before then, not of these queues; none that dead-lettered anything, or that is muted or fixed."""
        old = takewhile(lambda group: group.last_ms < before_ms, self._groups.values())
        gone = (
            group for group in old if group.queue not in queues and not (group.dead_lettered or group.muted or group.fixed_in is not None)
        )
        for group in list(islice(gone, _FOLDED_AT_ONCE)):
            # From the highest number further ones are counted.
            if group.fault_id != self._next_id - 1:
                self._fold(group)

    def _fold(self, group: FaultGroup) -> None:
        self.put_on_record()
        if OTHER not in self.by_id:
            self._add(FaultGroup(OTHER, "other", "", "other", "", group.first_ms, group.last_ms))
        other = self.by_id[OTHER]
        other.first_ms, other.last_ms = min(other.first_ms, group.first_ms), max(other.last_ms, group.last_ms)
        self.note(other)
        del self._groups[group.fingerprint, group.queue], self.by_id[group.fault_id]
        self._unrecorded.pop(group.fault_id, None)
        self._owner.charge(-group.charged)
        self._journal.batch.faults().folded[group.fault_id] = OTHER
        self.dead_letters.fold(group)
        for waiting in (self.waiting, self.in_memory):
            waiting[OTHER] += waiting.pop(group.fault_id, 0)
