"""Dead letters that go back from disk to disk: their rows go on in the journal, and nothing of them comes into memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from homing.journal.commit.batch import Leaving
from homing.journal.contract import DEATH_BITS, EndedEntry, HopRecord, OutcomeDetail, Outcomes, QueueStat, ReferenceRecord, make

from ..core.counts import COUNT_OF_OUTCOME, MOVED_IN
from ..core.message import MessageReference, Where
from ..core.queue import Queue
from ..properties import measured
from ..recording.journal_port import JournalPort
from ..recording.mapping import key_in
from .awaited_room import AwaitedRoom
from .fault_groups import FaultGroups, cause_when_back
from .ready_set import ReadySet
from .references import expires_when_moved
from .to_disk import ToDisk

_MINUTE_MS: Final = 60_000
_OUTCOME: Final = "redriven"


class DiskMoves:
    def __init__(self, journal: JournalPort, faults: FaultGroups, to_disk: ToDisk, awaited: AwaitedRoom, ready: ReadySet) -> None:
        self._journal = journal
        self._faults = faults
        self._to_disk = to_disk
        self._awaited = awaited
        self._ready = ready

    def may_take(self, queue: Queue, records: list[ReferenceRecord], target: Queue) -> bool:
        """Whether all is on disk that is to be known of them, and they need not be in memory where they go: nobody takes them, or there is
        no place."""
        if target is queue or not target.durable or target.settings.limited or expires_when_moved(target, 0) is not None:
            return False
        if not _all_on_disk(queue, records):
            return False
        if not target.consumers:
            return True
        priorities = {record.message.priority for record in records}
        return not any(self._to_disk.room.keeps(target, target.priority_of(priority)) for priority in priorities)

    def move_back(self, queue: Queue, records: list[ReferenceRecord], target: Queue, job_id: int, now_ms: int) -> None:
        """Those of ``queue`` (``may_take``) that a job sends to ``target``: they are so in the open batch."""
        there = queue.references
        self._to_disk.let_go(queue, [there[record.sequence] for record in records if record.sequence in there])
        batch, minute, number = self._journal.batch, now_ms // _MINUTE_MS, len(records)
        key_name = queue.settings.message_key_property
        moved: dict[int, ReferenceRecord] = {}
        by_detail: dict[OutcomeDetail, Outcomes] = {}
        entries: list[EndedEntry] = []
        sizes: list[int] = []
        weight = 0
        before, priority, deliveries, cause = None, 0, 0, 0
        for sequence, record in enumerate(records, self._journal.next_ids(number)):
            hops, message = record.hops or (), record.message
            # Most in a row are alike, and what follows from that is worked out once.
            died_in, at = hops[0][1]["queue"], hops[0][1]["delivery_count"]
            alike = (record.cause, record.delivery_count, message.priority, message.address, message.producer, died_in, at)
            if alike != before or len(hops) > 1 or key_name is not None:
                before, priority, deliveries = alike, target.priority_of(message.priority), deliveries_at(hops, target)
                cause = cause_when_back(record.cause)
                detail = _outcome(record, queue, target, key_in(message.properties, key_name))
                if detail not in by_detail:
                    by_detail[detail] = Outcomes(queue.queue_id, now_ms, _OUTCOME, detail, [])
                entries = by_detail[detail].entries
            values = (
                target.queue_id,
                priority,
                sequence,
                deliveries,
                0,
                0,
                0,
                None,
                None,
                cause,
                job_id,
                now_ms,
                hops,
                message,
                False,
                False,
            )
            moved[sequence] = make(ReferenceRecord, values)
            entries.append((message.message_id, record.sequence, message.sent_at_ms, record.entered_at_ms))
            body, (size, extra) = len(message.body), measured(message.properties)
            sizes.append(body + size)
            weight += body + size + extra
        left = [record.sequence for record in records]
        causes = Counter([record.cause for record in records])
        self._faults.sent_back(causes, now_ms)
        self._faults.dead_letters.left(queue, causes)
        leaving = Leaving(queue.queue_id, QueueStat.MOVED_OUT, left, by_detail.values())
        batch.moved(minute, leaving, target.queue_id, moved, weight, dict(zip(moved, left, strict=True)))
        target.counts[MOVED_IN] += number
        queue.counts[COUNT_OF_OUTCOME[_OUTCOME]] += number
        self._to_disk.moved(queue, records, target, list(moved.values()), sizes)
        self._awaited.made(queue)
        self._ready.mark(target)


def _all_on_disk(queue: Queue, records: list[ReferenceRecord]) -> bool:
    """Whether all is on disk that is to be known of these of the queue."""
    there = queue.references
    return all(map(_is_plain, records)) and all(_as_recorded(there[each.sequence], each) for each in records if each.sequence in there)


def _is_plain(record: ReferenceRecord) -> bool:
    """Whether nothing is to be known of it but that it is dead: no time of its own, no body shared with others, no other job's."""
    _, _, _, _, failed, _, state, due_at_ms, expires_at_ms, cause, redrive, _, hops, _, shared, spilled = record
    plain = due_at_ms is None and expires_at_ms is None and not (failed or state or redrive or shared or spilled)
    return plain and bool(hops) and (not cause or cause & DEATH_BITS > 0)


def _as_recorded(reference: MessageReference, record: ReferenceRecord) -> bool:
    """Whether one in memory is on disk and waits as its plain record says, and its message is in no other queue's."""
    if not reference.durable or reference.where is not Where.PENDING or reference.suspect or reference.message.references > 1:
        return False
    return (reference.delivery_count, reference.failed) == (record.delivery_count, record.failed)


def deliveries_at(hops: Sequence[HopRecord], target: Queue) -> int:
    """The delivery count that one with these hops had when it was dead-lettered from the queue last; where it never was, when first."""
    return next((detail for _, detail in hops if detail["queue"] == target.name), hops[-1][1])["delivery_count"]


def _outcome(record: ReferenceRecord, queue: Queue, target: Queue, key: str | None) -> OutcomeDetail:
    """How its entry ended."""
    message, died_in = record.message, (record.hops or ())[-1][1]["queue"]
    return OutcomeDetail(
        message.address,
        0,
        record.delivery_count,
        None,
        (target.name,),
        key,
        None,
        message.producer or None,
        None if died_in == queue.name else died_in,
    )
