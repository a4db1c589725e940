"""What the broker's rooms share: the post office, the books, what waits for its time, and the ready set.

Whatever can make a queue dispatchable puts it into one *ready set*; the loop drains that set in one place. A reference that has been
changed stands in SETTLING until the group with its change is on disk; ``place_when_safe`` is the only way back from there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from random import Random

from homing.journal.contract import MinuteColumn

from ..core.consumer import Consumer, SharedWindow
from ..core.counts import MOVED_IN, SENT
from ..core.message import GONE, REFERENCE_BYTES, SETTLING, Hop, Message, MessageReference, Where
from ..core.queue import Queue
from ..core.routing import PostOffice
from ..core.scheduled import Expiries, Schedule
from ..core.settings.address_settings import AddressSettings, AddressSettingsRepository
from ..paging.page_reads import Reader
from ..paging.pager import Pager, Windows
from ..recording.recorder import Ledger
from .throttle import Throttle

log = logging.getLogger("homing")


class BrokerState:
    def __init__(
        self,
        ledger: Ledger,
        settings: AddressSettingsRepository,
        now_ms: Callable[[], int],
        rng: Random,
        wake: Callable[[], None],
        max_hops: int,
        reader: Reader,
        windows: Windows,
    ) -> None:
        self.ledger = ledger
        self.settings = settings
        self.now_ms = now_ms
        self.rng = rng
        self.max_hops = max_hops
        self.post_office = PostOffice()
        self.schedule = Schedule()
        self.expiries = Expiries()
        self.pager = Pager(self, reader, windows)
        #: Queues that may have something to dispatch, in the order they became so.
        self.ready: dict[Queue, None] = {}
        self.wake = wake
        #: Bodies plus REFERENCE_BYTES for each reference; durable and other apart.
        self.memory_bytes = 0
        self.durable_bytes = 0
        self.transient_bytes = 0
        self.throttle = Throttle(ledger, wake, lambda: self.memory_bytes >= windows.memory_bytes)

    @property
    def stored_bytes(self) -> int:
        """Of durable messages, in memory or only on disk."""
        return self.durable_bytes + self.pager.disk_bytes

    def mark_ready(self, queue: Queue) -> None:
        """The queue may have become dispatchable; the loop will look."""
        if not self.ready:
            self.wake()
        self.ready[queue] = None

    # -- in ----------------------------------------------------------------------------------------------------------

    def enter(
        self,
        message: Message,
        queues: Iterable[Queue],
        column: MinuteColumn = MinuteColumn.SENT,
        *,
        hops: list[Hop] | None = None,
        due_at_ms: int | None = None,
        delivery_count: int = 0,
        expires_at_ms: int | None = None,
    ) -> list[MessageReference]:
        """One message joins queues, on the books too. The references stand in SETTLING until they are placed."""
        now_ms, count = self.now_ms(), SENT if column is MinuteColumn.SENT else MOVED_IN
        references: list[MessageReference] = []
        for queue in queues:
            queue.counts[count] += 1
            # The first reference of a message that was just sent takes the message's own number.
            fresh = hops is None and not references and column is MinuteColumn.SENT
            reference = MessageReference(message, queue, message.message_id if fresh else self.ledger.next_id(), now_ms)
            reference.hops = hops
            reference.due_at_ms = due_at_ms
            reference.delivery_count = delivery_count
            if column is MinuteColumn.SENT:
                reference.expires_at_ms = expires_at(queue.settings, now_ms, expires_at_ms)
            else:
                reference.expires_at_ms = expires_when_moved(queue, now_ms)
            references.append(reference)
            self.hold(reference)
        self.ledger.entered(references, column)
        return references

    def arrive(self, messages: list[Message], queue: Queue) -> None:
        """The plain case of sending, a frame at a time: messages that all go to one queue, and at once."""
        pager = self.pager
        queue.counts[SENT] += len(messages)
        if not queue.durable or pager.room(queue, len(messages), sum([message.size for message in messages])):
            self._arrive_in_memory(messages, queue)
            return
        for stays, run in groupby(messages, lambda message: not message.durable or pager.keeps(queue, queue.priority_of(message))):
            if stays:
                self._arrive_in_memory(list(run), queue)
            else:
                self._arrive_on_disk(list(run), queue)

    def _arrive_on_disk(self, messages: list[Message], queue: Queue) -> None:
        """There is no room in memory: they are in the open group, and nowhere else."""
        now_ms, settings, arrived = self.now_ms(), queue.settings, self.pager.arrived
        expiries: list[int | None] = []
        for number, message in enumerate(messages, self.ledger.next_ids(len(messages))):
            message.message_id = number
            expires_at_ms = expires_at(settings, now_ms, message.expires_at_ms)
            expiries.append(expires_at_ms)
            arrived(queue, queue.priority_of(message), number, message.size, expires_at_ms)
        self.ledger.arrived_on_disk(queue, messages, expiries)
        self.mark_ready(queue)

    def _arrive_in_memory(self, messages: list[Message], queue: Queue) -> None:
        now_ms = self.now_ms()
        settings, stored = queue.settings, int(queue.durable)
        bounded = settings.no_expiry or not (settings.message_ttl_ms is settings.min_ttl_ms is settings.max_ttl_ms is None)
        arrived: dict[int, MessageReference] = {}
        durable = durable_bytes = transient_bytes = bodies = 0
        for number, message in enumerate(messages, self.ledger.next_ids(len(messages))):
            message.message_id = number
            message.references = 1
            reference = MessageReference(message, queue, number, now_ms)
            if bounded:
                reference.expires_at_ms = expires_at(settings, now_ms, message.expires_at_ms)
            if reference.expires_at_ms is not None:
                self.expiries.add(reference)
            arrived[number] = reference
            if message.durable:
                message.stored = stored
                durable += 1
                durable_bytes += message.size
                bodies += len(message.body)
            else:
                transient_bytes += message.size
        self.durable_bytes += durable_bytes + REFERENCE_BYTES * durable
        self.transient_bytes += transient_bytes + REFERENCE_BYTES * (len(arrived) - durable)
        self.memory_bytes += durable_bytes + transient_bytes + REFERENCE_BYTES * len(arrived)
        queue.references.update(arrived)
        if durable and stored:
            kept = arrived if durable == len(arrived) else {number: each for number, each in arrived.items() if each.durable}
            self.ledger.arrived(queue, kept, bodies)
        queue.append_all(list(arrived.values()))
        self.mark_ready(queue)

    def hold(self, reference: MessageReference) -> None:
        """Counts a reference in: its queue's contents, expiry, memory."""
        message = reference.message
        reference.queue.references[reference.sequence] = reference
        self.expiries.add(reference)
        size = REFERENCE_BYTES if message.references else REFERENCE_BYTES + message.size
        message.references += 1
        self.memory_bytes += size
        if message.durable:
            self.durable_bytes += size
        else:
            self.transient_bytes += size

    def hold_all(self, queue: Queue, references: list[MessageReference]) -> None:
        """The same for durable references of one queue to as many messages that nobody else refers to."""
        contents, size = queue.references, REFERENCE_BYTES * len(references)
        for reference in references:
            contents[reference.sequence] = reference
            if reference.expires_at_ms is not None:
                self.expiries.add(reference)
            reference.message.references = 1
            size += reference.message.size
        self.memory_bytes += size
        self.durable_bytes += size

    def place(self, references: Iterable[MessageReference], fresh: bool = False) -> None:
        """SETTLING references become pending, or scheduled when their time is still to come. ``fresh``: first arrivals."""
        now_ms = self.now_ms()
        ready: dict[Queue, tuple[list[MessageReference], list[MessageReference]]] = {}
        for reference in references:
            if reference.where is not SETTLING:
                continue
            queue = reference.queue
            if reference.expires_at_ms is not None:
                self.expiries.add(reference)  # again: the sweep passes over what is being delivered
            if reference.due_at_ms is not None and reference.due_at_ms > now_ms:
                if not self.pager.leave_until(reference, reference.due_at_ms):
                    self.schedule.add(reference, reference.due_at_ms)
                self.wake()
                continue
            new, back = ready.get(queue) or ready.setdefault(queue, ([], []))
            if fresh and reference.due_at_ms is None:
                new.append(reference)
            else:
                reference.due_at_ms = None
                back.append(reference)
        for queue, (new, back) in ready.items():
            queue.put_back(back)
            room = self.pager.room(queue, len(new), sum([reference.message.size for reference in new]))
            for reference in new:
                if room or not self.pager.leave(reference):
                    queue.append(reference)
            self.mark_ready(queue)

    def place_when_safe(self, references: list[MessageReference]) -> None:
        """The same, once everything on the books so far is on disk."""
        if references:
            self.ledger.when_safe(lambda: self.place(references))

    def take_back(self, consumer: Consumer, references: list[MessageReference]) -> None:
        """The same for what a consumer gave back. The credit of what is to go out again at once is free when that stands in its place; of
        what has a time it is free now.
        """
        soon = sum([reference.due_at_ms is None for reference in references])
        if not soon:
            self.place_when_safe(references)
        elif not consumer.returning and not any(reference.durable for reference in references):
            # None of it is on the books.
            self.place(references)
        else:
            consumer.expect_back(soon)
            self.ledger.when_safe(lambda: self._put_back(consumer, references, soon))

    def _put_back(self, consumer: Consumer, references: list[MessageReference], soon: int) -> None:
        """Whatever has become of some of them meanwhile: deleted with their queue, they are passed over."""
        queue, shared = consumer.queue, consumer.shared
        consumer.came_back(soon)
        self.place(references)
        if queue.consumers:
            self.mark_ready(queue)
        if shared is not None and shared.limit:
            self.offer_room(shared)

    def offer_room(self, window: SharedWindow) -> None:
        """The queues of those who share the window are looked at anew, whoever holds least first."""
        for consumer in window.in_turn():
            self.ready.pop(consumer.queue, None)
            self.mark_ready(consumer.queue)

    def arrive_when_safe(self, references: list[MessageReference]) -> None:
        """First arrivals, which length limits count since their queue was told to expect them: the same."""

        def arrive() -> None:
            for reference in references:
                reference.queue.expect(-1, -reference.message.size)
            self.place(references, fresh=True)

        self.ledger.when_safe(arrive)

    # -- out ---------------------------------------------------------------------------------------------------------

    def leave(self, reference: MessageReference, outcome: str, reason: str | None = None, targets: Sequence[Queue] = ()) -> None:
        """A reference leaves its queue other than by success, on the books too. ``targets``: the queues that its message went to."""
        reference.queue.withdraw(reference, Where.GONE)
        self.forget(reference)
        self.ledger.left(reference.queue, (reference,), outcome, reason, targets)

    def leave_all(
        self, queue: Queue, references: list[MessageReference], outcome: str, reason: str | None = None, targets: Sequence[Queue] = ()
    ) -> None:
        """The same for references of one queue that are withdrawn from it already."""
        self.forget_all(queue, references)
        self.ledger.left(queue, references, outcome, reason, targets)

    def forget(self, reference: MessageReference) -> None:
        """Counts a reference out."""
        self.forget_all(reference.queue, (reference,))

    def forget_on_disk(self, reference: MessageReference) -> None:
        """It stays in the queue and on the books, and is in memory no longer."""
        reference.message.stored -= 1
        self.forget_all(reference.queue, (reference,))

    def forget_all(self, queue: Queue, references: Iterable[MessageReference]) -> None:
        """Counts references of one queue out."""
        contents = queue.references
        durable = transient = 0
        for reference in references:
            reference.where = GONE
            contents.pop(reference.sequence, None)
            if reference.expires_at_ms is not None:
                self.expiries.remove(reference)
            message = reference.message
            message.references -= 1
            size = REFERENCE_BYTES if message.references else REFERENCE_BYTES + message.size
            if message.durable:
                durable += size
            else:
                transient += size
        self.durable_bytes -= durable
        self.transient_bytes -= transient
        self.memory_bytes -= durable + transient


def expires_when_moved(queue: Queue, now_ms: int) -> int | None:
    """A death clears the expiration: only what the dead-letter queue itself was declared with, or its policy, counts now."""
    own = "message_ttl_ms" in queue.options or (queue.policy is not None and "message-ttl" in queue.policy.definition)
    return _after(now_ms, queue.settings.message_ttl_ms) if own else None


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
