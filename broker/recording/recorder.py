"""What happens to references is entered here, and from here into the journal's open batch.

Every state change of a durable reference is one or two calls; all calls made in one step of the loop land in one batch, so a move
(out of one queue, into another, with its attempt) is on disk as a whole or not at all. Nothing is decided here, and no reference or queue
changes: but for what of a message is on disk (``stored``, ``shared``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from homing.journal.commit.batch import Failures, Leaving
from homing.journal.contract import (
    AddressRecord,
    AttemptDetail,
    AttemptOutcome,
    Attempts,
    MessageRecord,
    Outcome,
    OutcomeDetail,
    Outcomes,
    QueueRecord,
    QueueStat,
    ReferenceCounts,
    ReferenceRecord,
    make,
)

from ..core.consumer import Consumer
from ..core.dead_letter import DELETED
from ..core.message import Message, MessageReference, is_durable
from ..core.queue import Queue
from ..core.redelivery import Decision, Terms
from ..core.routing import Address
from ..core.settings.rules import Action
from .failure_report import LastReport
from .journal_port import JournalPort
from .mapping import arrival_record, home_of, message_key, message_record, reference_record, state_bits
from .passing import Passing
from .policies_in_force import PoliciesInForce
from .transient_counts import TransientCounts

#: What ``max-redelivery-records: -1`` comes to.
MAX_ATTEMPT_RECORDS: Final = 100
_MINUTE_MS: Final = 60_000
_REDELIVER: Final = Action.REDELIVER

COLUMN_OF_OUTCOME: Final = {
    "succeeded": QueueStat.SUCCEEDED,
    "dead-lettered": QueueStat.DEAD_LETTERED,
    "expired": QueueStat.EXPIRED,
    "dropped": QueueStat.DROPPED,
    "purged": QueueStat.PURGED,
    **dict.fromkeys(("redriven", "moved", "edited"), QueueStat.MOVED_OUT),
}


_Verdicts = list[tuple[MessageReference, Decision]]
#: By what they have in common.
_FailedAlike = dict[tuple[object, ...], Attempts]
_EndedAlike = dict[tuple[object, ...], Outcomes]


class Recorder:
    def __init__(self, journal: JournalPort, keep_all_history: bool) -> None:
        self._journal = journal
        self._keep_all = keep_all_history
        self.transient = TransientCounts(journal)
        self.passing = Passing(journal, self.transient)
        #: Read once for each report, however many messages it fails, and before any of them changes.
        self.report = LastReport()
        self._policies = PoliciesInForce(journal)
        #: (queue_id, consumer) -> returns that are counted and not in the journal yet: how many, held for how long, the first, the last.
        self._rounds: dict[tuple[int, str], list[int]] = {}

    # -- addresses and queues ----------------------------------------------------------------------------------------

    def address_made(self, address: Address) -> None:
        self._journal.batch.address(AddressRecord(address.name, int(address.routing_types), address.auto_created, address.created_at_ms))

    def address_gone(self, address: Address) -> None:
        self._journal.batch.delete_address(address.name)

    def queue_changed(self, queue: Queue, deleted_at_ms: int | None = None) -> None:
        """Made, paused, resumed or (with a time) deleted. Queues that are not durable are not recorded."""
        if queue.durable:
            self._journal.batch.queue(
                QueueRecord(
                    queue.queue_id,
                    queue.name,
                    queue.address,
                    queue.routing_type,
                    queue.selector.text if queue.selector else None,
                    True,
                    queue.auto_created,
                    queue.paused,
                    queue.options,
                    queue.created_at_ms,
                    deleted_at_ms,
                    queue.last_policy,
                )
            )

    # -- a queue entry -------------------------------------------------------------------------------------------

    def entered(self, references: list[MessageReference], now_ms: int, column: QueueStat = QueueStat.SENT, key: str | None = None) -> None:
        """References of *one* message joined their queues. Several durable ones share one stored body. ``key``: of dead letters."""
        durable: list[MessageReference] = []
        for reference in references:
            if reference.durable:
                durable.append(reference)
            else:
                self.transient.add(reference.queue, column, 1, now_ms)
        if not durable:
            return
        batch, minute = self._journal.batch, now_ms // _MINUTE_MS
        message = durable[0].message
        record = message_record(message)
        # A shared body leaves the disk with its last durable reference; one that comes from a queue that is not durable brings it back.
        if (len(durable) > 1 and not message.shared) or (message.shared and not message.stored):
            message.shared = True
            batch.add_message(record)
        message.stored += len(durable)
        for reference in durable:
            batch.add(reference_record(reference, record))
            if key is not None:
                batch.faults().keys[reference.sequence] = key
            batch.counts(reference.queue.queue_id, minute)[column] += 1

    def moved(
        self,
        source: Queue,
        gone: Sequence[MessageReference],
        target: Queue,
        come: list[MessageReference],
        outcome: Outcome,
        now_ms: int,
        reason: str | None = None,
    ) -> None:
        """References of one queue leave it otherwise than by success, and fresh ones to their messages join another."""
        batch, size = self._journal.batch, 0
        records: dict[int, ReferenceRecord] = {}
        for reference in come:
            if reference.durable:
                message = reference.message
                record = message_record(message)
                if not message.shared:
                    size += message.weight
                elif not message.stored:
                    batch.add_message(record)
                message.stored += 1
                records[reference.sequence] = reference_record(reference, record)
        # After those that come: a shared body that these bring back is not to go with the last of those.
        leaving = self._leaving(source, gone, outcome, now_ms, reason, (target,))
        batch.moved(now_ms // _MINUTE_MS, leaving, target.queue_id, records, size)
        if transient := len(come) - len(records):
            self.transient.add(target, QueueStat.MOVED_IN, transient, now_ms)

    def keyed(self, keys: dict[int, str | None]) -> None:
        """What keys dead letters that have just joined their queue have, by sequence."""
        self._journal.batch.faults().keys.update({sequence: key for sequence, key in keys.items() if key is not None})

    def arrived(self, queues: Sequence[Queue], arrivals: dict[int, MessageReference], number: int, size: int, now_ms: int) -> None:
        """The plain case of sending: fresh durable references, by sequence, of so many messages of ``size`` in each of these queues."""
        queue_ids = [queue.queue_id for queue in queues]
        self._journal.batch.add_arrivals(queue_ids, now_ms // _MINUTE_MS, number, arrivals, size, arrival_record)

    def arrived_on_disk(
        self,
        queue: Queue,
        messages: list[Message],
        first: int,
        expiries: list[int | None],
        now_ms: int,
        shared: Sequence[MessageRecord | None] | None = None,
    ) -> None:
        """Messages arrived of which there is no reference in memory, all durable or none, numbered from ``first`` on. ``shared``: what they
        are where other queues share them, and their bodies are recorded already.
        """
        batch, queue_id = self._journal.batch, queue.queue_id
        size = sum([message.weight for message in messages]) if shared is None else 0
        spilled = not is_durable(messages[0], queue)
        records: dict[int, ReferenceRecord] = {}
        for number, message in enumerate(messages):
            record = message_record(message) if shared is None else shared[number]
            assert record is not None, "only durable messages share their bodies on disk"
            sequence, priority = first + number, queue.priority_of(message.priority)
            values = (
                queue_id,
                priority,
                sequence,
                0,
                0,
                0,
                0,
                None,
                expiries[number],
                0,
                0,
                now_ms,
                None,
                record,
                shared is not None,
                spilled,
            )
            records[sequence] = make(ReferenceRecord, values)
        if spilled:
            batch.spill(records, size)
            self.transient.add(queue, QueueStat.SENT, len(messages), now_ms)
            return
        batch.add_fresh(records, size)
        batch.counts(queue_id, now_ms // _MINUTE_MS)[QueueStat.SENT] += len(messages)

    def changed(self, references: Iterable[MessageReference]) -> None:
        """Counts, due time or state of references that stay where they are."""
        for counts, sequences in self._standing(references):
            self._journal.batch.change(sequences, counts)

    @staticmethod
    def _standing(references: Iterable[MessageReference]) -> list[tuple[ReferenceCounts, list[int]]]:
        """As they stand now, those that are durable: which of them alike."""
        alike: dict[tuple[int, int, int, int, int | None, int | None, int, int], list[int]] = {}
        last = None
        for reference in references:
            if reference.durable:
                counts = (
                    reference.delivery_count,
                    reference.failed,
                    reference.dispatched,
                    state_bits(reference),
                    reference.due_at_ms,
                    reference.expires_at_ms,
                    reference.cause,
                    reference.redrive,
                )
                if counts != last:
                    last, sequences = counts, alike.setdefault(counts, [])
                sequences.append(reference.sequence)
        return [(make(ReferenceCounts, counts), sequences) for counts, sequences in alike.items()]

    def succeeded(
        self, queue: Queue, references: list[MessageReference], now_ms: int, alone: bool = True, consumer: Consumer | None = None
    ) -> list[MessageReference]:
        """Acknowledged references of one queue leave it for good. ``alone``: not as a part of a transaction. Returns those that were in
        trouble before."""
        batch, begun_ms = self._journal.batch, 0
        first_tries: set[int] = set()
        keep_all = self._keep_all
        troubled: list[MessageReference] = []
        recorded: list[int] = []
        untried = recorded_ms = transient_ms = tried = 0
        alike: _EndedAlike = {}
        for reference in references:
            if not reference.durable:
                transient_ms += reference.delivered_at_ms or reference.dispatched_at_ms
                if reference.failed or reference.cause or reference.redrive:
                    tried += reference.failed > 0
                    troubled.append(reference)
                continue
            # A redrive puts ``failed`` back to 0; the hops tell that it has failed before, elsewhere or in an earlier entry, or, where
            # there are none, that it was moved by hand; of an edited message the cause does.
            if reference.failed or reference.hops is not None or reference.cause or keep_all:
                untried += not reference.failed
                recorded.append(reference.sequence)
                recorded_ms += now_ms - (reference.delivered_at_ms or reference.dispatched_at_ms)
                troubled.append(reference)
                deliveries = reference.delivery_count + (not reference.counted)
                self._ended(reference, deliveries, "succeeded", now_ms, None, (), alike, consumer)
            else:
                first_tries.add(reference.sequence)
                begun_ms += reference.delivered_at_ms or reference.dispatched_at_ms
            message = reference.message
            message.stored -= 1
            if message.shared and not message.stored:
                batch.delete_message(message.message_id)
        minute, name = now_ms // _MINUTE_MS, consumer.stats_name if consumer else ""
        if recorded:
            batch.remove(queue.queue_id, minute, recorded, untried, name, recorded_ms, now_ms, alike.values())
        if first_tries:
            number, held_ms = len(first_tries), now_ms * len(first_tries) - begun_ms
            batch.succeed(queue.queue_id, minute, first_tries, alone, name, held_ms, now_ms)
        else:
            number = 0
        if transient := len(references) - len(recorded) - number:
            self.transient.succeeded(queue, transient, transient - tried, name, now_ms * transient - transient_ms, now_ms)
        return troubled

    def left(
        self,
        queue: Queue,
        references: Iterable[MessageReference],
        outcome: Outcome,
        now_ms: int,
        reason: str | None = None,
        targets: Sequence[Queue] = (),
    ) -> None:
        """References leave their queue otherwise: dead-lettered, expired, dropped, purged, redriven, …; ``targets``: where to."""
        leaving = self._leaving(queue, references, outcome, now_ms, reason, targets)
        if leaving.sequences:
            self._journal.batch.left(now_ms // _MINUTE_MS, leaving)

    def _leaving(
        self,
        queue: Queue,
        references: Iterable[MessageReference],
        outcome: Outcome,
        now_ms: int,
        reason: str | None,
        targets: Sequence[Queue],
    ) -> Leaving:
        """What is written of them; those that are not durable are counted."""
        target_queues = tuple([target.name for target in targets])
        batch, column = self._journal.batch, COLUMN_OF_OUTCOME[outcome]
        always = self._keep_all or outcome in ("dead-lettered", "expired", "redriven", "moved", "edited") or reason == DELETED
        alike: _EndedAlike = {}
        gone: list[int] = []
        transient = 0
        for reference in references:
            if not reference.durable:
                transient += 1
                continue
            gone.append(reference.sequence)
            if always or reference.failed or reference.hops:
                self._ended(reference, reference.delivery_count, outcome, now_ms, reason, target_queues, alike)
            message = reference.message
            message.stored -= 1
            if message.shared and not message.stored:
                batch.delete_message(message.message_id)
        if transient:
            self.transient.add(queue, column, transient, now_ms)
        return Leaving(queue.queue_id, column, gone, alike.values())

    def was_over(self, reference: MessageReference, outcome: Outcome, reason: str | None, now_ms: int) -> None:
        """Of one that failed, as was heard when it had left its queue: how that ended is recorded, and counted nowhere."""
        if reference.durable:
            ended: _EndedAlike = {}
            self._ended(reference, reference.delivery_count, outcome, now_ms, reason, (), ended)
            for each in ended.values():
                self._journal.batch.outcome(each)

    @staticmethod
    def _ended(
        reference: MessageReference,
        deliveries: int,
        outcome: Outcome,
        now_ms: int,
        reason: str | None,
        target_queues: tuple[str, ...],
        alike: _EndedAlike,
        consumer: Consumer | None = None,
    ) -> None:
        """Into ``alike``: entries of the same queue that ended in the same way and went to the same queues, as most do."""
        message, failed = reference.message, reference.failed
        name = message_key(reference) if reference.queue.settings.message_key_property else None
        home = home_of(reference) if reference.hops else None
        key = (message.address, failed, deliveries, name, message.producer, home)
        ended = alike.get(key)
        if ended is None:
            detail = OutcomeDetail(
                message.address,
                failed,
                deliveries,
                reason,
                target_queues,
                name,
                consumer.client if consumer else None,
                message.producer or None,
                home,
            )
            ended = alike[key] = Outcomes(reference.queue.queue_id, now_ms, outcome, detail, [])
        ended.entries.append((message.message_id, reference.sequence, message.sent_at_ms, reference.entered_at_ms))

    # -- attempts ----------------------------------------------------------------------------------------------------

    def failed(
        self, consumer: Consumer, terms: Terms, verdicts: _Verdicts, outcome: AttemptOutcome, now_ms: int, delivered: bool = True
    ) -> None:
        """Deliveries of one queue that ended badly, all in the same way, decided by ``terms``; their counts have gone up already, and their
        report was read (``report``); what is to be redelivered has its due time. ``delivered``: they are counted as deliveries here.

        Keeps, of each message, the first tenth and the last of at most max-redelivery-records.
        """
        batch, queue_id, settings = self._journal.batch, consumer.queue.queue_id, consumer.queue.settings
        limit = settings.max_redelivery_records
        limit = MAX_ATTEMPT_RECORDS if limit < 0 else min(limit, MAX_ATTEMPT_RECORDS)
        kept_last = limit - limit // 10
        by_key = settings.message_key_property is not None
        # What is recorded of them is the same for most: those that went out together and were tried as often.
        alike: _FailedAlike = {}
        last, attempts = None, None
        number = first = failed_ms = 0
        transient: list[MessageReference] = []
        for reference, decision in verdicts:
            if not reference.durable:
                transient.append(reference)
                continue
            number += 1
            first += reference.failed == 1
            failed_ms += now_ms - (reference.delivered_at_ms or reference.dispatched_at_ms)
            message, sequence, failed, hops = reference.message, reference.sequence, reference.failed, reference.hops
            if failed > limit:
                if not limit:
                    continue
                batch.delete_attempt(message.message_id, sequence, failed - kept_last)
            address = hops[-1].detail["address"] if hops else message.address
            home = home_of(reference) if hops else None
            key = message_key(reference) if by_key else None
            counted, dispatched_ms, delivered_ms = reference.delivery_count, reference.dispatched_at_ms, reference.delivered_at_ms
            kind = (address, dispatched_ms, delivered_ms, counted, failed, decision, key, message.producer, home)
            if kind != last:
                last, attempts = kind, alike.get(kind)
            if attempts is None:
                detail = AttemptDetail(
                    original_address=address,
                    outcome=outcome,
                    consumer=consumer.name,
                    connection=consumer.connection,
                    assigned_at_ms=dispatched_ms,
                    given_at_ms=delivered_ms,
                    delivery_count=counted,
                    failed=failed,
                    delay_ms=decision.delay_ms if decision.action is _REDELIVER else None,
                    due_at_ms=decision.due_at_ms,
                    decision=decision.action.value,
                    policy=self._policies.name(terms.settings, terms.policy, now_ms),
                    fault=self.report.to_store(),
                    message_key=key,
                    client=consumer.client,
                    producer=message.producer or None,
                    home=home,
                    rule=terms.rule.name if terms.rule else None,
                )
                attempts = alike[kind] = Attempts(queue_id, failed, now_ms, detail, [])
            attempts.entries.append((message.message_id, sequence))
        if number:
            numbers = Failures(number if delivered else 0, number, first, failed_ms, now_ms, now_ms)
            again = self._standing([each for each, decision in verdicts if decision.action is _REDELIVER])
            batch.failed(queue_id, consumer.stats_name, alike.values(), numbers, again)
        if transient:
            self._transient_failed(consumer, transient, now_ms, delivered)

    def _transient_failed(self, consumer: Consumer, references: list[MessageReference], now_ms: int, delivered: bool = True) -> None:
        queue, number = consumer.queue, len(references)
        if delivered:
            self.transient.add(queue, QueueStat.DELIVERED, number, now_ms)
        first, held_ms = sum([each.failed == 1 for each in references]), sum([_held_ms(each, now_ms) for each in references])
        self.transient.failed(queue, number, first, consumer.stats_name, held_ms, now_ms)

    def went_round(self, consumer: Consumer, references: list[MessageReference], now_ms: int) -> None:
        """As ``failed``, but nothing is written now: they are counted, and of durable ones that is in the journal within a second."""
        durable = [each for each in references if each.durable]
        if transient := [each for each in references if not each.durable]:
            self._transient_failed(consumer, transient, now_ms)
        if durable:
            row = self._rounds.setdefault((consumer.queue.queue_id, consumer.stats_name), [0, 0, now_ms, now_ms])
            row[0] += len(durable)
            row[1] += sum([_held_ms(each, now_ms) for each in durable])
            row[3] = now_ms

    def write_rounds(self) -> None:
        """What was only counted of returns."""
        for (queue_id, name), (number, failed_ms, first_ms, last_ms) in self._rounds.items():
            self._journal.batch.failed(queue_id, name, (), Failures(number, number, 0, failed_ms, first_ms, last_ms))
        self._rounds.clear()

    def delivered(self, queue: Queue, references: list[MessageReference], now_ms: int) -> None:
        """The application was given them, and they came back, which is no failure; others count this themselves."""
        number = sum([reference.durable for reference in references])
        if number:
            self._journal.batch.counts(queue.queue_id, now_ms // _MINUTE_MS)[QueueStat.DELIVERED] += number
        if transient := len(references) - number:
            self.transient.add(queue, QueueStat.DELIVERED, transient, now_ms)


def _held_ms(reference: MessageReference, now_ms: int) -> int:
    return now_ms - (reference.delivered_at_ms or reference.dispatched_at_ms)
