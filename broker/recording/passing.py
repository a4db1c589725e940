"""Messages that are not durable, as far as they come into the journal: on disk for want of memory, or kept from here on."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from homing.journal.contract import QueueStat

from ..core.message import MessageReference
from ..core.queue import Queue
from .journal_port import JournalPort
from .mapping import message_record, reference_record
from .transient_counts import TransientCounts

_MINUTE_MS: Final = 60_000


class Passing:
    def __init__(self, journal: JournalPort, transient: TransientCounts) -> None:
        self._journal = journal
        self._transient = transient

    def spill(self, reference: MessageReference) -> None:
        """One is on disk, and nowhere else, from here on."""
        record = reference_record(reference, message_record(reference.message))._replace(shared=False, spilled=True)
        self._journal.batch.spill({record.sequence: record}, record.message.weight)

    def unspill(self, queue: Queue, sequences: Collection[int]) -> None:
        """They are in memory, and nowhere else, from here on."""
        self._journal.batch.unspill(queue.queue_id, sequences)

    def end_spill(self, queue: Queue, keep: bool) -> None:
        """See WriteBatch.end_spill."""
        self._journal.batch.end_spill(queue.queue_id, keep)

    def keep_spilled(self, queue: Queue, number: int, now_ms: int) -> None:
        """So many of a queue that were on disk for want of memory are durable from here on."""
        self.end_spill(queue, keep=True)
        self._kept(queue, number, now_ms)

    def keep(self, references: Iterable[MessageReference], now_ms: int) -> None:
        """Those that were in memory alone are on disk from here on, as they stand."""
        batch = self._journal.batch
        for reference in references:
            message = reference.message
            record = message_record(message)
            if (message.references > 1 and not message.shared) or (message.shared and not message.stored):
                message.shared = True
                batch.add_message(record)
            if message.duplicate_id is not None:
                batch.duplicate(message.address, message.duplicate_id)
            message.stored += 1
            batch.add(reference_record(reference, record))
            self._kept(reference.queue, 1, now_ms)

    def _kept(self, queue: Queue, number: int, now_ms: int) -> None:
        self._transient.write_queue(queue.queue_id)
        self._journal.batch.counts(queue.queue_id, now_ms // _MINUTE_MS)[QueueStat.KEPT] += number
