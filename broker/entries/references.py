"""References: here every one begins, is counted in and out of memory, is recorded, and ends.

A reference that begins is in its queue's contents and stands in IN_COMMIT until it is enqueued (enqueuing.py). What is read back from disk
was recorded all the time, and so is what goes there: ``restore``, ``forget``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final

from homing.journal.contract import MessageRecord, Outcome, QueueStat, ReferenceRecord, ReferenceState

from ..core.consumer import Consumer
from ..core.counts import COUNT_OF_OUTCOME, DELIVERED, MOVED_IN, PASSING, PERSISTENT, SENT, SUCCEEDED, Histogram
from ..core.dead_letter import DELIVERY_LIMIT, MAX_LENGTH, NOT_RETRYABLE, POISON, REJECTED
from ..core.memory import Memory
from ..core.message import DEATH_BITS, GONE, HOP_BYTES, REFERENCE_BYTES, Hop, Message, MessageReference, Where
from ..core.queue import Queue
from ..core.scheduled import Expiries
from ..core.settings.address_settings import AddressSettings
from ..core.settings.in_force import SettingsInForce
from ..recording.journal_port import JournalPort
from ..recording.mapping import key_in, message_key, message_of, message_record
from ..recording.recorder import Recorder
from .awaited_room import AwaitedRoom
from .disk_room import DiskRoom
from .fault_groups import FaultGroups
from .redrive_tally import RedriveTally

#: Bounds of a histogram of attempts.
ATTEMPTS: Final = (1, 2, 3, 4, 5, 7, 10, 20, 50)
_SUSPECT: Final = int(ReferenceState.SUSPECT)
#: A reference that ends, and the way of its message from here on.
Moved = tuple[MessageReference, list[Hop]]
#: Gives one that goes by hand what it is to have of the one that it was.
Back = Callable[[MessageReference, MessageReference], None]


def kinds(persistent: int, number: int) -> int:
    """The bits of so many messages, of which so many are meant to be durable."""
    return PERSISTENT * (persistent > 0) | PASSING * (persistent < number)


def key_of_death(reference: MessageReference, settings: SettingsInForce) -> str | None:
    """What its key is where it was dead-lettered last."""
    if not reference.hops:
        return None
    last = reference.hops[0].detail
    return key_in(reference.message.properties, settings.of_queue(last["queue"], last["address"]).message_key_property)


class References:
    def __init__(
        self,
        journal: JournalPort,
        recorder: Recorder,
        faults: FaultGroups,
        redrives: RedriveTally,
        now_ms: Callable[[], int],
        memory: Memory,
        awaited: AwaitedRoom,
        settings: SettingsInForce,
        disk: DiskRoom,
    ) -> None:
        self._awaited = awaited
        self._disk = disk
        self._settings = settings
        self._journal = journal
        self._recorder = recorder
        self._faults = faults
        self._redrives = redrives
        self._memory = memory
        self._now_ms = now_ms
        #: Of the messages that succeeded after a failure: how many attempts that took.
        self.attempts = Histogram(ATTEMPTS)
        #: How many were dead-lettered for each reason.
        self.dead_lettered = dict.fromkeys((DELIVERY_LIMIT, POISON, NOT_RETRYABLE, REJECTED, MAX_LENGTH), 0)
        #: Those that expire.
        self.expiries = Expiries()
        #: Messages for which there was none at their first failure.
        self.failed_not_kept = 0
        #: Bodies and properties as they are sent plus REFERENCE_BYTES for each reference, as store-limit counts the durable ones.
        self.durable_bytes = 0
        self.transient_bytes = 0
        #: What messages that are only on disk are reckoned at, bodies included.
        self.disk_bytes = 0
        #: The same of those that are not durable, as temp-limit counts them; and by queue how many, and their bodies.
        self.spilled_bytes = 0
        self.spilled: dict[Queue, tuple[int, int]] = {}

    @property
    def stored_bytes(self) -> int:
        """Of durable messages, in memory or only on disk."""
        return self.durable_bytes + self.disk_bytes

    # -- they begin --------------------------------------------------------------------------------------------------

    def arrive(self, queue: Queue, messages: list[Message], size: int, now_ms: int) -> list[MessageReference]:
        """Those of fresh messages, of ``size`` bytes, to one queue and no other."""
        first = self._journal.next_ids(len(messages))
        durable, durable_weight, weight = self._number(messages, first, 1, int(queue.durable), size, queue.keeps_all)
        # What it keeps says nothing of how it was sent.
        persistent = sum([message.durable for message in messages]) if queue.keeps_all else durable
        queue.sends |= kinds(persistent, len(messages))
        born = self.join(queue, messages, first, weight, now_ms)
        if durable and queue.durable:
            self._recorder.arrived((queue,), _durable_of(born, durable), durable, durable_weight, now_ms)
        if durable < len(messages):
            self._recorder.transient.add(queue, QueueStat.SENT, len(messages) - durable, now_ms)
        return list(born.values())

    def share(self, messages: list[Message], first: int, queues: int, size: int) -> tuple[list[MessageRecord | None], int]:
        """Numbers fresh messages of ``size`` bytes from ``first`` on, which so many durable queues keep in memory (``join``); none may. The
        bodies of durable ones are recorded then, each once; returns what these are there, and what all of them weigh.
        """
        _, _, weight = self._number(messages, first, queues, queues, size)
        records: list[MessageRecord | None] = []
        for message in messages:
            record: MessageRecord | None = None
            if message.durable:
                message.shared = True
                record = message_record(message)
                self._journal.batch.add_message(record, message.weight)
            records.append(record)
        return records, weight

    def _number(
        self, messages: list[Message], first: int, queues: int, stored: int, size: int, keeps_all: bool = False
    ) -> tuple[int, int, int]:
        """Fresh messages and their references to so many queues are counted in; ``stored``: the durable ones of these, of each message.
        ``keeps_all``: of messages that are not durable, too.

        Returns how many messages are durable, what these weigh, and what all of them do.
        """
        weight = transient = transient_size = transient_weight = 0
        for number, message in enumerate(messages, first):
            message.message_id = number
            message.references = queues
            weight += message.weight
            if message.durable or keeps_all:
                message.kept = True
                message.stored = stored
            else:
                transient += 1
                transient_size += message.size
                transient_weight += message.weight
        durable = len(messages) - transient
        if queues:
            cost = REFERENCE_BYTES * queues
            self.durable_bytes += size - transient_size + cost * durable
            self.transient_bytes += transient_size + cost * transient
            self._memory.charged += weight + cost * len(messages)
        return durable, weight - transient_weight, weight

    def join(
        self, queue: Queue, messages: list[Message], first: int, weight: int, now_ms: int, shared: bool = False
    ) -> dict[int, MessageReference]:
        """Those to one queue, numbered from ``first`` on, of messages that are counted already and weigh so much; to be recorded."""
        settings, expiries = queue.settings, self.expiries
        bounded = settings.no_expiry or not (settings.message_ttl_ms is settings.min_ttl_ms is settings.max_ttl_ms is None)
        born: dict[int, MessageReference] = {}
        for sequence, message in enumerate(messages, first):
            reference = MessageReference(message, queue, sequence, now_ms, shared)
            if bounded:
                reference.expires_at_ms = expires_at(settings, now_ms, message.expires_at_ms)
            if reference.expires_at_ms is not None:
                expiries.add(reference)
            born[sequence] = reference
        queue.references.update(born)
        queue.memory_bytes += REFERENCE_BYTES * len(messages) + weight
        return born

    def joined(self, queues: list[Queue], born: dict[int, MessageReference], durable: int, now_ms: int) -> None:
        """Shared messages, so many of them durable, have joined each of these: their references are recorded."""
        if durable and queues:
            self._recorder.arrived(queues, _durable_of(born, durable * len(queues)), durable, 0, now_ms)
        for queue in queues:
            if transient := len(born) // len(queues) - durable:
                self._recorder.transient.add(queue, QueueStat.SENT, transient, now_ms)

    def enter(
        self,
        message: Message,
        queues: Iterable[Queue],
        now_ms: int,
        column: QueueStat = QueueStat.SENT,
        *,
        hops: list[Hop] | None = None,
        due_at_ms: int | None = None,
        delivery_count: int = 0,
        expires_at_ms: int | None = None,
        cause: Callable[[MessageReference], int] | int = 0,
        key: str | None = None,
    ) -> list[MessageReference]:
        """Those of one message, sent or moved, to whatever queues. ``cause``: of all, or asked for each; ``key``: of a dead letter."""
        count = SENT if column is QueueStat.SENT else MOVED_IN
        # What one queue keeps says nothing of the others.
        kept = message.kept
        references: list[MessageReference] = []
        for queue in queues:
            queue.counts[count] += 1
            if queue.keeps_all and not message.kept:
                self._keep(message)
            # The first reference of a message that is new takes the message's own number, by which the journal finds it.
            fresh = hops is None and not message.references
            reference = MessageReference(message, queue, message.message_id if fresh else self._journal.next_id(), now_ms)
            reference.durable = (kept or queue.keeps_all) and queue.durable
            reference.hops = hops
            reference.due_at_ms = due_at_ms
            reference.delivery_count = delivery_count
            reference.cause = cause if isinstance(cause, int) else cause(reference)
            if reference.is_dead:
                self._faults.dead_letters.count(queue, reference.cause, 1)
            if column is QueueStat.SENT:
                queue.sends |= kinds(int(message.durable), 1)
                reference.expires_at_ms = expires_at(queue.settings, now_ms, expires_at_ms)
            else:
                reference.expires_at_ms = sooner(expires_when_moved(queue, now_ms), expires_at_ms)
            references.append(reference)
            self.restore(reference)
        self._recorder.entered(references, now_ms, column, key)
        return references

    def move(
        self,
        source: Queue,
        targets: list[Queue],
        moved: list[Moved],
        outcome: Outcome,
        now_ms: int,
        reason: str | None = None,
        back: Back | None = None,
    ) -> list[MessageReference]:
        """Entries of one queue, which stand in no line any more, become those of others: they die, of ``reason``, or, with ``back``, go by
        hand. Returns the new ones, which are to be arrived when that is on disk."""
        leaving = [reference for reference, _ in moved]
        if passing := [each for each in leaving if not each.durable]:
            self.keep_failed(passing)
        if back is None:
            # What was moved before is dead here, of this, for the moment in which it leaves.
            before = [each for each in leaving if each.hops]
            if before:
                self._faults.dead_letters.left(source, [each.cause for each in before])
            self._faults.dead_lettered(source.name, leaving, reason or "", now_ms)
            if before:
                self._faults.dead_letters.came(source, [each.cause for each in before])
        if len(targets) > 1:
            arrived = [new for old, hops in moved for new in self._enter_all(old, targets, hops, now_ms)]
            self.leave_all(source, leaving, outcome, now_ms, reason, targets)
            return arrived
        arrived = self._come(targets[0], moved, now_ms, back)
        self._count_out(source, leaving, outcome, now_ms, reason)
        self._recorder.moved(source, leaving, targets[0], arrived, outcome, now_ms, reason)
        if back is None and source.settings.message_key_property is not None:
            self._recorder.keyed({new.sequence: message_key(old) for new, old in zip(arrived, leaving, strict=True) if new.durable})
        return arrived

    def _come(self, queue: Queue, moved: list[Moved], now_ms: int, back: Back | None) -> list[MessageReference]:
        """What they become in one queue, counted in; to be recorded."""
        contents, expires_at_ms = queue.references, expires_when_moved(queue, now_ms)
        references: list[MessageReference] = []
        durable = weight = hops_made = 0
        for sequence, (old, hops) in enumerate(moved, self._journal.next_ids(len(moved))):
            message = old.message
            if queue.keeps_all and not message.kept:
                self._keep(message)
            reference = MessageReference(message, queue, sequence, now_ms)
            reference.hops = hops
            reference.expires_at_ms = expires_at_ms
            if back is None:
                first = old.hops is None and queue is not old.queue
                reference.cause = old.cause if first else self._faults.cause_in(old, reference)
            else:
                back(old, reference)
            contents[sequence] = reference
            message.references += 1
            durable += message.kept
            weight += message.weight
            hops_made += len(hops)
            references.append(reference)
            if reference.expires_at_ms is not None:
                self.expiries.add(reference)
        self._faults.dead_letters.came(queue, [each.cause for each in references])
        queue.counts[MOVED_IN] += len(references)
        self.durable_bytes += REFERENCE_BYTES * durable
        self.transient_bytes += REFERENCE_BYTES * (len(moved) - durable)
        charged = REFERENCE_BYTES * len(moved) + HOP_BYTES * hops_made
        self._memory.charged += charged
        queue.memory_bytes += charged + weight
        return references

    def _enter_all(self, old: MessageReference, queues: list[Queue], hops: list[Hop], now_ms: int) -> list[MessageReference]:
        cause = partial(self._faults.cause_in, old)
        return self.enter(old.message, queues, now_ms, QueueStat.MOVED_IN, hops=hops, cause=cause, key=message_key(old))

    def keep_failed(self, references: Iterable[MessageReference]) -> None:
        """These fail, or leave for another queue other than by success: from here on they are durable, as far as their queues have it.

        Where there is no room on disk they stay as they are.
        """
        passing = [each for each in references if not each.durable and each.queue.settings.keep_failed]
        if passing and not self._disk.may_keep(self.stored_bytes):
            self.failed_not_kept += sum([not each.cause for each in passing])
            return
        for reference in passing:
            # That of a queue that is not durable is kept wherever it goes.
            if not reference.message.kept and not reference.queue.durable:
                self._keep(reference.message)
        self.keep([each for each in passing if each.queue.durable])

    def keep(self, references: Sequence[MessageReference]) -> None:
        """Those that are not durable, in durable queues, are so from here on, as they stand: they are in the open batch."""
        for reference in references:
            if not reference.message.kept:
                self._keep(reference.message)
            reference.durable = True
        now_ms = self._now_ms()
        self._recorder.passing.keep(references, now_ms)
        if keys := {each.sequence: key_of_death(each, self._settings) for each in references if each.is_dead}:
            self._recorder.keyed(keys)
        for reference in references:
            if reference.cause:
                self._faults.kept(reference, now_ms)
            if reference.redrive:
                self._redrives.kept(reference)

    def _keep(self, message: Message) -> None:
        """One that is not durable comes to a queue that keeps it: it counts among durable ones from here on, wherever else it is."""
        message.kept = True
        size = message.size + REFERENCE_BYTES * message.references if message.references else 0
        self.durable_bytes += size
        self.transient_bytes -= size

    def restore(self, reference: MessageReference) -> None:
        """Counts one in that is recorded already, or about to be."""
        message = reference.message
        reference.queue.references[reference.sequence] = reference
        self.expiries.add(reference)
        size = REFERENCE_BYTES if message.references else REFERENCE_BYTES + message.size
        own = REFERENCE_BYTES + _hops_bytes(reference.hops)
        self._memory.charged += own if message.references else own + message.weight
        reference.queue.memory_bytes += own + message.weight
        message.references += 1
        if message.kept:
            self.durable_bytes += size
        else:
            self.transient_bytes += size

    def restore_all(self, queue: Queue, references: list[MessageReference]) -> None:
        """Counts in references of one queue, each to a message that nobody else refers to."""
        contents, size, weight, passing = queue.references, 0, 0, 0
        for reference in references:
            contents[reference.sequence] = reference
            if reference.expires_at_ms is not None:
                self.expiries.add(reference)
            message = reference.message
            message.references = 1
            size += message.size
            if not message.kept:
                passing += REFERENCE_BYTES + message.size
            weight += message.weight + _hops_bytes(reference.hops)
        cost = REFERENCE_BYTES * len(references)
        self._memory.charged += weight + cost
        queue.memory_bytes += weight + cost
        self.durable_bytes += size + cost - passing
        self.transient_bytes += passing

    # -- they end ----------------------------------------------------------------------------------------------------

    def succeed(
        self, queue: Queue, references: list[MessageReference], now_ms: int, alone: bool = True, consumer: Consumer | None = None
    ) -> None:
        """Acknowledged ones of one queue, out of its windows already, leave it for good. ``alone``: not as a part of a transaction."""
        queue.counts[DELIVERED] += len(references)
        queue.counts[SUCCEEDED] += len(references)
        for reference in self._recorder.succeeded(queue, references, now_ms, alone, consumer):
            if reference.failed:
                self.attempts.add(reference.failed + 1)
            self._troubled_ended(reference, "succeeded", now_ms)
        if dead := self.forget(queue, references):
            self._faults.dead_letters.left(queue, dead)

    def leave(
        self, reference: MessageReference, outcome: Outcome, now_ms: int, reason: str | None = None, targets: Sequence[Queue] = ()
    ) -> None:
        """One leaves its queue other than by success. ``targets``: the queues that its message went to."""
        reference.queue.withdraw(reference, Where.GONE)
        self.leave_all(reference.queue, (reference,), outcome, now_ms, reason, targets)

    def leave_all(
        self,
        queue: Queue,
        references: Sequence[MessageReference],
        outcome: Outcome,
        now_ms: int,
        reason: str | None = None,
        targets: Sequence[Queue] = (),
    ) -> None:
        """References of one queue, withdrawn from it already, leave it other than by success."""
        self._count_out(queue, references, outcome, now_ms, reason)
        self._recorder.left(queue, references, outcome, now_ms, reason, targets)

    def _count_out(self, queue: Queue, references: Sequence[MessageReference], outcome: Outcome, now_ms: int, reason: str | None) -> None:
        """As they leave it so; to be recorded."""
        if dead := self.forget(queue, references):
            self._faults.dead_letters.left(queue, dead)
        queue.counts[COUNT_OF_OUTCOME[outcome]] += len(references)
        if outcome == "dead-lettered" and reason is not None:
            self.dead_lettered[reason] = self.dead_lettered.get(reason, 0) + len(references)
        for reference in references:
            if reference.cause or reference.redrive:
                self._troubled_ended(reference, outcome, now_ms)
        if self._awaited.waiting:
            self._awaited.made(queue)

    def let_go(self, queue: Queue, references: Sequence[MessageReference], outcome: Outcome, now_ms: int) -> None:
        """As ``leave_all``, of a queue that is removed already: the journal removes and counts the rest (upkeep/deleted_queues.py)."""
        self.forget(queue, references)
        for reference in references:
            if reference.durable:
                reference.message.stored -= 1
            reference.consumer = None
            if reference.cause or reference.redrive:
                self._troubled_ended(reference, outcome, now_ms)
        self._awaited.made(queue)

    def _troubled_ended(self, reference: MessageReference, outcome: Outcome, now_ms: int) -> None:
        """What is counted of one that failed, or was dead-lettered or sent back before, when it leaves its queue."""
        # Of those dead-lettered their groups know already.
        if reference.cause and outcome != "dead-lettered":
            self._faults.ended(reference, outcome == "succeeded", now_ms)
        if reference.redrive:
            self._redrives.ended(reference, outcome)

    def leave_memory(self, queue: Queue, references: Collection[MessageReference]) -> None:
        """They stay in their queue and in the journal, and are only on disk from here on."""
        for reference in references:
            reference.message.stored -= 1
        self.forget(queue, references)
        self.count_on_disk(len(references), sum([reference.message.size for reference in references]))

    def spill(self, reference: MessageReference) -> None:
        """One that is not durable stays in its queue, and is only on disk from here on."""
        self._recorder.passing.spill(reference)
        self.forget(reference.queue, (reference,))
        self.count_spilled(reference.queue, 1, reference.message.size)

    def unspill(self, queue: Queue, records: Sequence[ReferenceRecord], size: int) -> None:
        """So much that was on disk for want of memory is in memory alone from here on, or gone."""
        self._recorder.passing.unspill(queue, [record.sequence for record in records])
        self.count_spilled(queue, -len(records), -size)

    def discard_spilled(self, queue: Queue) -> tuple[int, int]:
        """The queue is gone, with what of it was on disk for want of memory; returns how many messages, and their bodies."""
        number, size = self.spilled.get(queue, (0, 0))
        if number:
            self._recorder.passing.end_spill(queue, keep=False)
            self._recorder.transient.add(queue, QueueStat.PURGED, number, self._now_ms())
            self.count_spilled(queue, -number, -size)
        return number, size

    def count_spilled(self, queue: Queue, references: int, size: int) -> None:
        """As ``count_on_disk``, of what is not durable."""
        before, bytes_before = self.spilled.pop(queue, (0, 0))
        if before + references > 0:
            self.spilled[queue] = (before + references, bytes_before + size)
        self.spilled_bytes += REFERENCE_BYTES * references + size

    def count_on_disk(self, references: int, size: int) -> None:
        """So many more are only on disk, of messages of ``size`` bytes; negative when they have come from there, or are gone."""
        self.disk_bytes = max(0, self.disk_bytes + REFERENCE_BYTES * references + size)

    def count_set_aside(self, queue: Queue, cause: int) -> None:
        """One that is only on disk is not what was written, and stands in table quarantine."""
        self.count_on_disk(-1, 0)
        self._faults.dead_letters.left(queue, (cause,))

    def forget(self, queue: Queue, references: Collection[MessageReference]) -> list[int]:
        """Counts those of one queue out; returns the causes of the dead letters among them."""
        contents = queue.references
        size = weight = elsewhere = transient = 0
        dead: list[int] = []
        for reference in references:
            reference.where = GONE
            contents.pop(reference.sequence, None)
            if reference.expires_at_ms is not None:
                self.expiries.remove(reference)
            if reference.hops:
                weight += _hops_bytes(reference.hops)
                if reference.cause & DEATH_BITS:
                    dead.append(reference.cause)
            message = reference.message
            message.references -= 1
            if message.references:
                elsewhere += message.weight
            else:
                size += message.size
                weight += message.weight
            if not message.kept:
                transient += REFERENCE_BYTES if message.references else REFERENCE_BYTES + message.size
        cost = REFERENCE_BYTES * len(references)
        self.durable_bytes -= size + cost - transient
        self.transient_bytes -= transient
        self._memory.charged -= weight + cost
        queue.memory_bytes -= weight + cost + elsewhere
        return dead


def reference_of(queue: Queue, record: ReferenceRecord) -> MessageReference:
    """A row of the journal as it stood there, in no state and in no queue's contents yet."""
    _, priority, sequence, delivery_count, failed, assigned, state, due_ms, expires_ms, cause, redrive, entered_ms, hops, *_ = record
    message, spilled = message_of(record.message), record.spilled
    message.kept = message.kept or not spilled
    reference = MessageReference(message, queue, sequence, entered_ms)
    reference.durable = not spilled
    reference.priority = min(priority, len(queue.pending.on_disk) - 1)
    reference.delivery_count = delivery_count
    reference.failed = failed
    reference.dispatched = assigned
    reference.due_at_ms = due_ms
    reference.expires_at_ms = expires_ms
    reference.cause = cause
    reference.redrive = redrive
    reference.hops = None if hops is None else [Hop(*hop) for hop in hops]
    reference.suspect = state & _SUSPECT != 0
    return reference


def _durable_of(born: dict[int, MessageReference], durable: int) -> dict[int, MessageReference]:
    return born if durable == len(born) else {sequence: each for sequence, each in born.items() if each.durable}


def _hops_bytes(hops: list[Hop] | None) -> int:
    return HOP_BYTES * len(hops) if hops else 0


def expires_when_moved(queue: Queue, now_ms: int) -> int | None:
    """A death clears the expiration: only what the dead-letter queue itself was declared with, or its policy, counts now."""
    own = "message_ttl_ms" in queue.options or (queue.policy is not None and "message-ttl" in queue.policy.definition)
    return _after(now_ms, queue.settings.message_ttl_ms) if own and not queue.settings.no_expiry else None


def sooner(one_ms: int | None, other_ms: int | None) -> int | None:
    return min(one_ms, other_ms) if one_ms is not None and other_ms is not None else one_ms if other_ms is None else other_ms


def expires_at(settings: AddressSettings, now_ms: int, wanted_ms: int | None) -> int | None:
    """When a message that arrives now expires: the sender's wish, bounded and defaulted by the settings (semantics, section 10)."""
    if settings.no_expiry:
        return None
    limits = [limit for limit in (wanted_ms, _after(now_ms, settings.message_ttl_ms)) if limit is not None]
    expires = min(limits) if limits else None
    if settings.min_ttl_ms is not None and expires is not None:
        expires = max(expires, now_ms + settings.min_ttl_ms)
    if settings.max_ttl_ms is not None:
        expires = min(expires, now_ms + settings.max_ttl_ms) if expires is not None else now_ms + settings.max_ttl_ms
    return expires


def _after(now_ms: int, delay_ms: int | None) -> int | None:
    return None if delay_ms is None else now_ms + delay_ms
