"""The open batch: what the next commit will write.

A batch is a map from key to final state, so that add, change and delete of one thing within one batch cannot collide, and
what was both added and deleted within it need not be written at all. Everything here is a few dict operations, because it
runs for every message on the loop's thread; packing and SQL are the writer's, on its own thread (batch_writer.py).

WriteBatches that wait for the disk (scheduler.py) stand in a row, oldest first, and only ever go there as a prefix of it. A message that
succeeds while its batch still waits is taken out of that batch, as if it had been consumed before the batch was closed.

Records are handed over: neither they nor the maps and lists inside them may change after the turn of the loop that did so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sized
from typing import Any, Final, NamedTuple

from ..contract import Arrival, Attempts, MessageRecord, Outcomes, QueueStat, ReferenceCounts, ReferenceRecord, make
from .history_changes import HistoryChanges

#: As plain numbers: places in a list are found sooner by them.
_SENT, _MOVED_IN, _DELIVERED = int(QueueStat.SENT), int(QueueStat.MOVED_IN), int(QueueStat.DELIVERED)
_FAILED, _FAILED_FIRST, _FAILED_MS = int(QueueStat.FAILED), int(QueueStat.FAILED_FIRST), int(QueueStat.FAILED_MS)
#: Of a small batch.
SMALL_ROWS: Final = 64
SMALL_BYTES: Final = 64 << 10
_NO_SOURCES: Final[Mapping[int, int]] = {}
#: Makes the record of an arrival. The map: messages of the same batch that stand in rows of their own, by id.
AsRecord = Callable[[Any, Mapping[int, MessageRecord]], ReferenceRecord]


def _nothing() -> None:
    """Stands for "already awake"."""


def _no_arrivals(arrival: Any, messages: Mapping[int, MessageRecord]) -> ReferenceRecord:
    raise TypeError(f"{type(arrival).__name__} joined a batch without a way to make its record")


class Failures(NamedTuple):
    """Of one queue and consumer. ``first``: how many failed for the first time; ``failed_ms``: how long they were held together; when the
    first and the last of them failed."""

    delivered: int
    failed: int
    first: int
    failed_ms: int
    first_at_ms: int
    last_at_ms: int


class Leaving(NamedTuple):
    """Entries of one queue that leave it otherwise than by an acknowledgement: what counts them, and how they ended as far as that is
    kept."""

    queue_id: int
    column: QueueStat
    sequences: Collection[int]
    outcomes: Iterable[Outcomes]


class WriteBatch(HistoryChanges):
    """Everything between two commits. ``wake`` is called at the first touch; ``elide``: add and delete cancel out.

    ``older`` are the batches before this one that wait for the disk still, oldest first; it is shared and changes.
    """

    __slots__ = (
        "_after",
        "_as_record",
        "_older",
        "added",
        "applied",
        "begun_ms",
        "changed",
        "closed_s",
        "deleted",
        "deleted_first",
        "elide",
        "elided",
        "messages",
        "messages_deleted",
        "size",
        "sources",
        "spill_ended",
        "stores",
        "to_tables",
        "unspilled",
        "urgent",
    )

    def __init__(self, wake: Callable[[], None] = _nothing, elide: bool = True, older: Iterable[WriteBatch] = ()) -> None:
        super().__init__(wake)
        self._older = older
        self.elide = elide
        #: Somebody waits for the disk who is not a producer waiting for a confirm.
        self.urgent = False
        #: With its commit it is to be in the tables, with all before it.
        self.to_tables = False
        #: When it was closed; it waits since then.
        self.closed_s = 0.0
        #: References that were added and deleted within this batch and so never reach the disk.
        self.elided = 0
        #: Bytes of the bodies and properties in it, about.
        self.size = 0
        #: What came new, as a record or as its owner has it (``records``).
        self.added: dict[int, ReferenceRecord | Arrival] = {}
        self._as_record: AsRecord = _no_arrivals
        #: Sequences of what was added -> of the rows that their messages leave, where the latest hop does not name these.
        self.sources: dict[int, int] = {}
        #: Something was sent that is to be on disk before it is confirmed.
        self.stores = False
        #: Queues of which nothing is to be spilled any more: whether what was is kept (upkeep/spilled.py).
        self.spill_ended: dict[int, bool] = {}
        #: What was spilled and is deleted in it, though it may come back -> its queue.
        self.unspilled: dict[int, int] = {}
        self.changed: dict[int, ReferenceCounts] = {}
        self.deleted: set[int] = set()
        #: Deleted, then added again under the same sequence: deleted before the insert instead of after it.
        self.deleted_first: set[int] = set()
        self.messages: dict[int, MessageRecord] = {}
        self.messages_deleted: set[int] = set()
        #: When a leader of the replicated log began, which all that is not durable goes with, as with a crash; 0: none did.
        self.begun_ms = 0
        #: Where the replicated log stands with it, packed; None: there is no such log.
        self.applied: bytes | None = None
        self._after: list[Callable[[], None]] = []

    @property
    def after(self) -> list[Callable[[], None]]:
        """Callbacks for the loop, called in order once this batch, and so everything before it, is on disk.

        One for a frame, never one for a message. A batch that holds nothing else is not written, only waited for.
        """
        if not self.touched:
            self.touch()
        elif not self.urgent:
            self._wake()
        self.urgent = True
        return self._after

    @property
    def readable(self) -> list[Callable[[], None]]:
        """As ``after``, for who reads the tables: it will be in them, with all before it."""
        after, self.to_tables = self.after, True
        return after

    @property
    def confirms(self) -> list[Callable[[], None]]:
        """As ``after``, for confirms of sends: those may wait a few milliseconds for the acknowledgements of what was sent."""
        if not self.touched:
            self.touch()
        return self._after

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for it."""
        return bool(self._after)

    @property
    def answers(self) -> list[Callable[[], None]]:
        """Who does: ``after`` and ``confirms``, in order."""
        return self._after

    @property
    def may_wait(self) -> bool:
        """Nobody waits for it, and it only says what has left: acknowledgements without a confirm, and their counts."""
        return not (self._after or self.added or self.changed or self.messages or self.has_states()) and self.writes()

    def add(self, record: ReferenceRecord) -> None:
        if not self.touched:
            self.touch()
        self.stores = True
        sequence = record.sequence
        if sequence in self.deleted:
            self.deleted.discard(sequence)
            self.deleted_first.add(sequence)
        self.added[sequence] = record
        if not record.shared:
            self.size += record.message.weight

    def add_fresh(self, records: dict[int, ReferenceRecord], size: int, sources: Mapping[int, int] = _NO_SOURCES) -> None:
        """Adds records whose sequences never were anywhere before. ``size``: of their messages; ``sources``: see there."""
        if not self.touched:
            self.touch()
        self.stores = True
        self.added.update(records)
        self.sources.update(sources)
        self.size += size

    def add_arrivals(
        self, queue_ids: Iterable[int], minute: int, number: int, arrivals: Mapping[int, Arrival], size: int, as_record: AsRecord
    ) -> None:
        """So many messages were sent to each of the queues: arrivals, of which there is no record yet. ``as_record`` is always the same
        function, and is called on any thread."""
        for queue_id in queue_ids:
            self.counts(queue_id, minute)[_SENT] += number
        self.stores = True
        self.added.update(arrivals)
        self.size += size
        self._as_record = as_record

    def spill(self, records: Mapping[int, ReferenceRecord], size: int) -> None:
        """Adds what is on disk for want of memory alone, for which no confirm waits."""
        if not self.touched:
            self.touch()
        if not self.deleted.isdisjoint(records):
            back = self.deleted.intersection(records)
            self.deleted -= back
            self.deleted_first |= back
        self.added.update(records)
        self.size += size

    def unspill(self, queue_id: int, sequences: Collection[int]) -> None:
        """Removes what of a queue was spilled and may come back under the same sequences: its rows go at once, however far apart."""
        self.unspilled.update(dict.fromkeys(sequences, queue_id))
        self.delete_all(sequences)

    def end_spill(self, queue_id: int, keep: bool) -> None:
        """What of the queue was spilled is durable from here on (``keep``), or gone."""
        if not self.touched:
            self.touch()
        self.spill_ended[queue_id] = keep

    @property
    def owes(self) -> bool:
        """Whether a confirm of what was sent waits for it."""
        return self.stores or bool(self.messages) or self.has_states()

    def records(self) -> Iterator[ReferenceRecord]:
        """What was added."""
        as_record, messages = self._as_record, self.messages
        for added in self.added.values():
            yield added if isinstance(added, ReferenceRecord) else as_record(added, messages)

    def make_records(self) -> None:
        """Of what was added, once for all who ask for them."""
        self.added = dict(zip(self.added, self.records(), strict=True))

    def shared_bodies(self) -> set[int]:
        """Bodies in rows of their own that something added points at, by message id."""
        return {each.message.message_id for each in self.added.values() if each.shared}

    def change(self, sequences: Iterable[int], counts: ReferenceCounts) -> None:
        """Set counts, state and times in place; where a reference was added in this batch, in what will be written."""
        if not self.touched:
            self.touch()
        self._change(dict.fromkeys(sequences, counts))

    def _change(self, changed: dict[int, ReferenceCounts]) -> None:
        added, deleted = self.added, self.deleted
        if changed.keys().isdisjoint(added.keys()) and changed.keys().isdisjoint(deleted):
            self.changed.update(changed)
            return
        for sequence, counts in changed.items():
            fresh = added.get(sequence)
            if fresh is not None:
                record = fresh if isinstance(fresh, ReferenceRecord) else self._as_record(fresh, self.messages)
                added[sequence] = make(ReferenceRecord, (*record[:3], *counts, *record[11:]))
            elif sequence not in deleted:
                self.changed[sequence] = counts

    def delete_all(self, sequences: Collection[int]) -> None:
        """Remove references. Sequences are unique over the journal, so they alone are the keys."""
        if not self.touched:
            self.touch()
        if self.elide and not self.added.keys().isdisjoint(sequences):
            self._elide(sequences)
            return
        if self.changed:
            for sequence in self.changed.keys() & sequences:
                del self.changed[sequence]
        self.deleted.update(sequences)

    def _elide(self, sequences: Iterable[int]) -> None:
        """What was added here is as if it had never been; the rest is deleted."""
        added, size, number = self.added, 0, 0
        for sequence in sequences:
            fresh = added.get(sequence)
            if fresh is None:
                self.changed.pop(sequence, None)
                self.deleted.add(sequence)
                continue
            del added[sequence]
            number += 1
            if not fresh.shared:
                size += fresh.message.weight
            # Re-added over a row that is on disk: that row still has to go.
            if self.deleted_first and sequence in self.deleted_first:
                self.deleted_first.discard(sequence)
                self.deleted.add(sequence)
        self.elided += number
        self.size -= size

    def succeed(
        self, queue_id: int, minute: int, sequences: set[int], alone: bool, consumer: str = "", held_ms: int = 0, at_ms: int = 0
    ) -> None:
        """First deliveries that ``consumer`` acknowledged: the references go, the minute counts them.

        ``alone``: the acknowledgements stand for themselves (they are no part of a transaction), so a reference whose batch still
        waits is taken out of that one, with its counts: whatever prefix of the row reaches the disk agrees with itself.
        """
        if alone and self.elide:
            for older in self._older:
                if older.added:
                    found = older.added.keys() & sequences
                    if found:
                        older.remove(queue_id, minute, found, len(found), consumer, held_ms, at_ms)
                        held_ms = 0  # reported once
                        sequences -= found
                        if not sequences:
                            return
        self.remove(queue_id, minute, sequences, len(sequences), consumer, held_ms, at_ms)

    def remove(
        self,
        queue_id: int,
        minute: int,
        sequences: Collection[int],
        first_tries: int,
        consumer: str,
        held_ms: int,
        at_ms: int,
        outcomes: Iterable[Outcomes] = (),
    ) -> None:
        """As ``succeed``, but for this batch alone. ``first_tries``: how many of the deliveries were a message's first."""
        counts, number = self.counts(queue_id, minute), len(sequences)
        counts[QueueStat.DELIVERED] += number
        counts[QueueStat.SUCCEEDED] += number
        counts[QueueStat.FIRST_TRY] += first_tries
        self.add_consumer_stats(queue_id, minute, consumer, [number, held_ms, 0, 0, at_ms, at_ms])
        self.outcomes += outcomes
        self.delete_all(sequences)
        if self.closed_s and not self.added:
            self._wake()

    def add_message(self, message: MessageRecord, weight: int | None = None) -> None:
        """A body that several references share (or a large one). ``weight``: what it weighs, where that is known."""
        if not self.touched:
            self.touch()
        self.messages_deleted.discard(message.message_id)
        self.messages[message.message_id] = message
        self.size += message.weight if weight is None else weight

    def delete_message(self, message_id: int) -> None:
        """Nothing in memory needs this body any more. The writer keeps it where a reference on disk does (batch_writer.py)."""
        if not self.touched:
            self.touch()
        self.messages_deleted.add(message_id)

    def left(self, minute: int, leaving: Leaving) -> None:
        """Gone otherwise than by an acknowledgement."""
        self.counts(leaving.queue_id, minute)[leaving.column] += len(leaving.sequences)
        self.outcomes += leaving.outcomes
        self.delete_all(leaving.sequences)

    def moved(
        self,
        minute: int,
        leaving: Leaving,
        queue_id: int,
        records: dict[int, ReferenceRecord],
        size: int,
        sources: Mapping[int, int] = _NO_SOURCES,
    ) -> None:
        """They came to another queue, with sequences that never were anywhere before. ``sources``: see there. Any of the two may be empty:
        what is not durable is not there."""
        if records:
            self.counts(queue_id, minute)[_MOVED_IN] += len(records)
            self.add_fresh(records, size, sources)
        if leaving.sequences:
            self.left(minute, leaving)

    def failed(
        self,
        queue_id: int,
        consumer: str,
        attempts: Iterable[Attempts],
        numbers: Failures,
        changes: Iterable[tuple[ReferenceCounts, list[int]]] = (),
    ) -> None:
        """Deliveries to ``consumer`` of which these attempts are kept, and how those that stay in their queue stand now."""
        delivered, failed, first, failed_ms, first_at_ms, last_at_ms = numbers
        minute = last_at_ms // 60_000
        counts = self.counts(queue_id, minute)
        counts[_DELIVERED] += delivered
        counts[_FAILED] += failed
        counts[_FAILED_FIRST] += first
        counts[_FAILED_MS] += failed_ms
        self.attempts += attempts
        for standing, sequences in changes:
            self._change(dict.fromkeys(sequences, standing))
        self.add_consumer_stats(queue_id, minute, consumer, [0, 0, failed, failed_ms, first_at_ms, last_at_ms])

    def absorb(self, later: WriteBatch) -> None:
        """Everything that ``later`` holds happens in this batch as well, after what is here. ``later`` is used up."""
        self.absorb_changes(later)
        self._after += later._after

    def absorb_changes(self, later: WriteBatch) -> None:
        """As ``absorb``, but that whoever waits for ``later`` does not wait for this one."""
        self._absorb_references(later)
        self.absorb_history(later)
        self.absorb_states(later)
        self.elided += later.elided
        self.to_tables = self.to_tables or later.to_tables

    def _absorb_references(self, later: WriteBatch) -> None:
        self.delete_all(later.deleted_first)
        size = self.size + later.size
        come_back = self.deleted & later.added.keys()
        self.deleted -= come_back
        self.deleted_first |= come_back
        self.added.update(later.added)
        self.sources.update(later.sources)
        self._as_record = later._as_record if self._as_record is _no_arrivals else self._as_record
        self.size = size
        self.stores = self.stores or later.stores
        self.spill_ended.update(later.spill_ended)
        self.unspilled.update(later.unspilled)
        self._change(later.changed)
        self.delete_all(later.deleted)
        self.messages_deleted -= later.messages.keys()
        self.messages.update(later.messages)
        for message_id in later.messages_deleted:
            self.delete_message(message_id)

    def drop_bodies_gone_in(self, later: Iterable[WriteBatch]) -> None:
        """Shared bodies that nothing here points at any more, and that a later batch deletes, need not be written."""
        if not self.elide:
            return
        unused = {message_id for batch in later for message_id in batch.messages_deleted if message_id in self.messages}
        if unused:
            for message_id in unused - self.shared_bodies():
                del self.messages[message_id]

    def is_small(self) -> bool:
        """Few messages, what became of them, and counts: to write them takes about as long as to wake a thread."""
        return self.small_rows() > 0

    def small_rows(self) -> int:
        """Rows of a small batch; 0: it is none."""
        if self.to_tables or self.size > SMALL_BYTES or self.declares() or self.spill_ended or self.unspilled or self.fault_changes.folded:
            return 0
        held: tuple[Sized, ...] = (
            *(self.added, self.changed, self.deleted, self.deleted_first, self.messages, self.messages_deleted),
            *(self.queue_stats, self.consumer_stats, self.attempts_deleted, self.edits, self.stories, self.events),
            *(self.producers, self.duplicates, self.transactions, self.fault_changes),
        )
        rows = sum(map(len, held))
        rows += sum([len(each.entries) for each in self.attempts]) + sum([len(each.entries) for each in self.outcomes])
        return rows if rows <= SMALL_ROWS else 0

    def writes(self) -> bool:
        """Whether there is anything for the disk, as against only callbacks."""
        references = self.added or self.changed or self.deleted or self.deleted_first or self.messages or self.messages_deleted
        return bool(references or self.clock_ms or self.spill_ended) or self.has_history() or self.has_states()
