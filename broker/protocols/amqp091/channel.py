"""One AMQP channel: delivering, settling, and its transactions. What it publishes is publisher.py's, queues and exchanges methods.py's.

What comes in one turn of the loop is gathered by the session (``Turn``) and handed to the broker at its end: messages of one queue
together, acknowledgements of one consumer together, one confirm for all.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from ...core.amqp.declared import ConsumerArguments, counts_deliveries
from ...core.amqp.vhost import local_name
from ...core.consumer import Consumer, Returned, SharedWindow
from ...core.dead_letter import REJECTED
from ...core.message import MessageReference
from ...core.queue import Queue
from ...steps import LIGHTER, MOST_ACKNOWLEDGED_AT_ONCE, MOST_AT_ONCE, SETTLE_STEP
from .codec import (
    FRAME_BODY,
    FRAME_OVERHEAD,
    SHORT,
    AckEvent,
    AmqpError,
    content_frames,
    known_shape,
    method_frame,
    new_shape,
)
from .codec_methods import NUMBER, short_string
from .confirms import Confirms
from .connection import AmqpConnection, Subscriber
from .errors import precondition_failed, unknown_tag
from .in_order import InOrder
from .message_mapping import wire_of
from .publisher import Publisher
from .publishing import message_of, pattern_again
from .refusals import refused, still_unacked
from .reports import Reports
from .settled_reports import ConsumerQueues
from .transacted import Transacted
from .unacked import Unacked, UnackedDeliveries

#: A window without a limit.
UNLIMITED: Final = 1 << 30
_DELIVERY: Final = struct.Struct(">QB")
_SIZE: Final = struct.Struct(">Q")
_FRAME: Final = struct.Struct(">BHI")
_DELIVER: Final = NUMBER["basic.deliver"].to_bytes(4, "big")
_REJECT: Final = NUMBER["basic.reject"]


class Subscription(Subscriber):
    def __init__(self, channel: Channel, consumer: Consumer, tag: str, no_ack: bool) -> None:
        super().__init__(consumer)
        self.channel = channel
        self.tag = tag
        self.no_ack = no_ack
        #: What every delivery to it begins with.
        self.prefix = _DELIVER + short_string(tag)

    def deliver(self, references: list[MessageReference]) -> None:
        self.channel.deliver(self, references)

    def settled(self) -> None:
        if self.channel.window.limit:
            self.channel.settled(self.consumer)

    def cancelled(self) -> None:
        self.channel.cancelled(self)


class Channel:
    def __init__(self, session: AmqpConnection, number: int) -> None:
        self.session = session
        self.number = number
        self.subscriptions: dict[str, Subscription] = {}
        #: Cancelled consumers and those of single gets, as long as something of theirs is unacknowledged.
        self.holders: dict[int, Consumer] = {}
        #: Of these, those of single gets: one for each queue.
        self._getting: dict[Queue, Consumer] = {}
        self.prefetch = 0
        self.window = SharedWindow()
        self.last_queue = ""
        self.closed = False
        #: Its answers.
        self.answers = InOrder(session.broker.journal.when_safe)
        self._queues = ConsumerQueues(session)
        self._reports = Reports(session.reports, session.introduced, self._queues.failed)
        self._unacked = UnackedDeliveries()
        self._transacted = Transacted(session, number, self._timed_out)
        self.publisher = Publisher(session, number, self._reports, self._unacked, self._transacted)

    def write(self, name: str, *values: object) -> None:
        self.session.write(method_frame(self.number, name, *values))

    def answer(self, name: str, *values: object) -> None:
        self.answers.now(partial(self.write, name, *values))

    def answer_when_safe(self, name: str, *values: object) -> None:
        """Once everything so far is on disk: what was declared durable is durable when the client hears of it."""
        self.answers.when_safe(partial(self.write, name, *values))

    def select_confirms(self) -> None:
        if self._transacted.open is not None:
            raise precondition_failed("cannot switch from tx to confirm mode", NUMBER["confirm.select"])
        if self.publisher.confirms is None:
            self.publisher.confirms = Confirms(self.session, self.number, self._confirm)

    def _confirm(self, frame: bytes) -> None:
        if not self.closed:
            self.session.write(frame)

    # -- consuming ---------------------------------------------------------------------------------------------------

    def consume(self, queue: Queue, tag: str, no_ack: bool, exclusive: bool, arguments: ConsumerArguments) -> str:
        session = self.session
        if tag in self.subscriptions:
            raise AmqpError(530, f"NOT_ALLOWED - attempt to reuse consumer tag '{tag}'", NUMBER["basic.consume"])
        tag = tag or "amq.ctag-" + secrets.token_urlsafe(16)
        prefetch = UNLIMITED if no_ack else self.prefetch or UNLIMITED
        consumer = session.broker.subscriptions.consume(
            session.connection,
            session.next_consumer(),
            queue,
            prefetch,
            self.window,
            holds_nothing=no_ack,
            exclusive=exclusive,
            arguments=arguments,
        )
        consumer.tag = tag
        self._queues.consumes(tag, queue.name)
        self.subscriptions[tag] = session.subscribers[consumer.number] = Subscription(self, consumer, tag, no_ack)
        return tag

    def cancel(self, tag: str) -> None:
        """The consumer ends; what it holds stays with the channel."""
        subscription = self.subscriptions.pop(tag, None)
        if subscription is None:
            return
        session, consumer = self.session, subscription.consumer
        session.subscribers.pop(consumer.number, None)
        session.broker.consumers.unsubscribe(session.connection, consumer, keep_delivered=True)
        if local_name(consumer.queue.name) == self.publisher.reply_queue:
            # The queue ends with its consumer; another one may be asked for.
            self.publisher.reply_queue = ""
        if consumer.unsettled:
            self.holders[consumer.number] = consumer
        else:
            self.window.leave(consumer)
        session.broker.removal.consumers_gone([consumer.queue])

    def cancelled(self, subscription: Subscription) -> None:
        """The broker ended it: the queue is gone."""
        self.subscriptions.pop(subscription.tag, None)
        self.window.leave(subscription.consumer)
        if self.window.limit:
            self.session.broker.ready.offer_room(self.window)
        if self.session.notifies_cancels:
            # Behind the answer to whoever deleted it, which waits for the disk.
            self.answer_when_safe("basic.cancel", subscription.tag, True)

    def deliver(self, subscription: Subscription, references: list[MessageReference]) -> None:
        session, consumer = self.session, subscription.consumer
        first = self._unacked.next_tag
        parts: list[bytes] = []
        room, number, prefix, delivery = session.frame_max - FRAME_OVERHEAD, self.number, subscription.prefix, _DELIVERY.pack
        like: tuple[bytes, bytes] | None = None
        like_size, before, between = 0, b"", b""
        counting, view = counts_deliveries(consumer.queue), session.view
        for tag, reference in enumerate(references, first):
            body, wire = reference.message.body, wire_of(reference, counting, view)
            size, redelivered = len(body), reference.delivery_count > reference.counted
            if wire is like and size == like_size:
                parts += (before, delivery(tag, redelivered), between, body, b"\xce")
            elif 0 < size <= room:
                before, middle, behind = (known_shape if len(wire[1]) <= SHORT else new_shape)(number, prefix, *wire)
                between = b"".join((middle, _SIZE.pack(size), behind, _FRAME.pack(FRAME_BODY, number, size)))
                like, like_size = wire, size
                parts += (before, delivery(tag, redelivered), between, body, b"\xce")
            else:
                payload = b"".join((subscription.prefix, delivery(tag, redelivered), wire[0]))
                parts += content_frames(number, payload, wire[1], body, session.frame_max)
        self._unacked.next_tag = first + len(references)
        no_ack = subscription.no_ack
        if not no_ack:
            self._unacked.add(consumer, first, references)
        session.write(b"".join(parts))
        if no_ack:
            for tag, reference in enumerate(references, first):
                if reference.cause:
                    self._reports.succeeded(tag, reference)
            session.broker.settlement.acknowledge(consumer, references)
        else:
            consumer.delivered(references[-1].tag, session.broker.now_ms())

    def holder_of_gets(self, queue: Queue) -> int:
        """The number of the consumer that holds what was got of a queue and is not acknowledged."""
        holder = self._getting.get(queue)
        return self.session.next_consumer() if holder is None else holder.number

    def deliver_one(self, consumer: Consumer, reference: MessageReference, no_ack: bool) -> int:
        """A single get has brought this; the channel's tag of it. ``no_ack``: it is acknowledged by the caller."""
        tag = self._unacked.next_tag
        self._unacked.next_tag += 1
        if not no_ack:
            self.holders[consumer.number] = self._getting[consumer.queue] = consumer
            self._unacked.add(consumer, tag, [reference])
        return tag

    def qos(self, prefetch: int, for_channel: bool) -> None:
        if for_channel:
            self.window.limit = prefetch
            self.session.broker.ready.offer_room(self.window)
        else:
            self.prefetch = prefetch

    # -- settling ----------------------------------------------------------------------------------------------------

    def acknowledge(self, event: AckEvent) -> None:
        if self._reports and self._transacted.open is None:
            self._reports.acknowledged(event)
        if event.multiple or self._transacted.open is not None:
            for tag in event.tags:
                if event.multiple and self._in_steps(tag, "ack", MOST_ACKNOWLEDGED_AT_ONCE):
                    self.session.settle_first()
                else:
                    self._settle(self._unacked.take_named(tag, event.multiple), "ack")
            return
        pop, acknowledged = self._unacked.holders.pop, self.session.gathered.acknowledged
        for tag in event.tags:
            holder = pop(tag, None)
            if holder is None:
                raise unknown_tag(tag)
            consumer, behind = holder
            reference = consumer.unsettled.get(tag + behind)
            if reference is not None:
                acknowledged[consumer].append(reference)
                if reference.cause:
                    self._reports.succeeded(tag, reference)

    def refuse(self, tag: int, multiple: bool, requeue: bool) -> None:
        how = "nack" if requeue else REJECTED
        if multiple and self._in_steps(tag, how, MOST_AT_ONCE):
            self.session.settle_first()
        else:
            self._settle(self._unacked.take_named(tag, multiple), how)

    def refuse_each(self, tags: list[int], requeue: bool, method: int) -> None:
        """One after the other, each by itself, all with ``basic.nack`` or all with ``basic.reject``."""
        pop = self._unacked.holders.pop
        taken: list[Unacked] = []
        try:
            for tag in tags:
                holder = pop(tag, None)
                if holder is None:
                    raise unknown_tag(tag)
                taken.append((holder[0], tag + holder[1], tag))
        finally:
            self._settle(taken, REJECTED if not requeue else "reject" if method == _REJECT else "nack")
            self.session.settle_first()

    def recover(self) -> None:
        if self._in_steps(0, "recover", MOST_AT_ONCE):
            return
        self._unacked.oldest_tag = self._unacked.next_tag
        self._end(self._unacked.take(list(self._unacked)), "recover")

    def _in_steps(self, tag: int, how: str, most: int) -> bool:
        """Whether there may be more up to this tag than is ended at once: then it has begun (``settle_first``)."""
        last, unacked = tag or self._unacked.next_tag - 1, self._unacked
        if self._transacted.open is not None or min(len(unacked), last - self._unacked.oldest_tag) <= most or (tag and tag not in unacked):
            return False
        self._unacked.oldest_tag = last + 1
        self.session.gathered.finish()
        self.session.broker.settling.begin(self.session.connection.name, self._parts(last, how))
        return True

    def _parts(self, last: int, how: str) -> Iterator[tuple[int, Callable[[], Returned]]]:
        """Tags are looked up once: a dictionary of which the front was taken is passed over anew by each look at its front."""
        size = SETTLE_STEP // LIGHTER if how == "ack" else SETTLE_STEP
        tags = [tag for tag in self._unacked if tag <= last]
        for start in range(0, len(tags), SETTLE_STEP):
            yield size, partial(self._end_some, tags[start : start + SETTLE_STEP], how)

    def _end_some(self, tags: list[int], how: str) -> Returned:
        taken = self._unacked.take(tags)
        broker, back = self.session.broker, Returned()
        if how == "ack":
            for consumer, references in still_unacked(taken, self._reports).items():
                broker.settlement.acknowledge(consumer, references)
                self.session.settled(consumer)
        else:
            for failed in refused(taken, how, self._reports):
                back.append((failed[0], broker.failing.fail(*failed)))
                self.settled(failed[0])
        return back

    def _settle(self, taken: list[Unacked], how: str) -> None:
        transaction = self._transacted.open
        if transaction is not None:
            self._transacted.settle(transaction, taken, how)
        else:
            self._end(taken, how)

    def _end(self, ended: list[Unacked], how: str) -> None:
        """One fate for all, those of one consumer together."""
        if how == "ack":
            for consumer, references in still_unacked(ended, self._reports).items():
                self.session.gathered.acknowledged[consumer] += references
            return
        for consumer, references, failure, outcome, report in refused(ended, how, self._reports):
            self.session.broker.settlement.fail(consumer, references, failure, outcome, report)
            self.session.gave_back()
            self.settled(consumer)

    def end(self, how: str) -> None:
        """What was reported of, and not settled, has failed as reported. The rest was held beside it."""
        self.closed = True
        told = self._unacked.take(self._reports.tags)
        if not told or self._transacted.open is not None:
            return
        for consumer in self._unacked.consumers():
            consumer.accompanied_to = consumer.next_tag - 1
        self._end(told, how)

    def settled(self, consumer: Consumer) -> None:
        """Something of the consumer's was settled: a closed one may go, a shared window has room again."""
        if not consumer.open and not consumer.unsettled:
            self._drop_holder(consumer)
        if self.window.limit:
            self.session.broker.ready.offer_room(self.window)

    def _drop_holder(self, consumer: Consumer) -> None:
        self.holders.pop(consumer.number, None)
        if self._getting.get(consumer.queue) is consumer:
            del self._getting[consumer.queue]
        self.window.leave(consumer)
        self.session.connection.retired.pop(consumer.number, None)

    # -- transactions ------------------------------------------------------------------------------------------------

    def select_transactions(self) -> None:
        if self.publisher.confirms is not None:
            raise precondition_failed("cannot switch from confirm to tx mode", NUMBER["tx.select"])
        if self._transacted.open is None:
            self._transacted.begin()

    def _timed_out(self) -> None:
        why = "the transaction was open for longer than limits.transaction-timeout allows: commit sooner"
        self.session.close_channel(self.number, precondition_failed(why))

    def commit(self) -> None:
        """Everything that was held, in one step of the loop and so in one batch of the journal."""
        session, transaction, fates = self.session, self._transacted.asked_for("tx.commit"), dict[str, list[Unacked]]()
        for entry, how in self._transacted.settled:
            fates.setdefault(how, []).append(entry)
        acks = fates.pop("ack", [])
        acknowledged, no_longer_held = (
            still_unacked(acks, self._reports),
            [consumer for consumer, tag, _ in acks if tag not in consumer.unsettled],
        )
        # What cannot be published any more, or is too much, is found before anything is.
        events = [event for event, _ in transaction.sends]
        patterns = [pattern_again(session, event, pattern) for event, pattern in transaction.sends]
        sends = [(message_of(session, event, pattern), pattern.route.queues) for event, pattern in zip(events, patterns, strict=True)]
        session.broker.transactions.commit_channel(transaction, sends, list(acknowledged.items()), no_longer_held, session.producer)
        for event, (message, queues) in zip(events, sends, strict=True):
            if queues:
                session.gathered.charge(1, message.size, len(queues))
            elif event.mandatory:
                self.publisher.give_back(event)
        for consumer in acknowledged:
            session.settled(consumer)
        for how, ended in fates.items():
            self._end(ended, how)
        session.gathered.finish()
        self._transacted.begin()

    def roll_back(self) -> None:
        """Publishes are forgotten, reports too; what was acknowledged is unacknowledged again, and not delivered again by itself."""
        self._transacted.asked_for("tx.rollback")
        self._reports.clear()
        for entry, _ in self._transacted.settled:
            self._unacked.oldest_tag = min(self._unacked.oldest_tag, entry[2])
        self._unacked.put_back([entry for entry, _ in self._transacted.settled])
        self._transacted.end()
        self._transacted.begin()

    # -- the end -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Consumers end, what is unacknowledged goes back: all at once, so that of each queue it is known who was alone."""
        if self.closed:
            return
        self.end("closed")
        session = self.session
        open_ones = [subscription.consumer for subscription in self.subscriptions.values()]
        for consumer in open_ones:
            session.subscribers.pop(consumer.number, None)
            session.broker.consumers.unsubscribe(session.connection, consumer, keep_delivered=True)
        session.broker.consumers.release(session.connection, [*self.holders.values(), *open_ones])
        self.subscriptions.clear()
        self.holders.clear()
        self._unacked.clear()
        self._reports.clear()
        if self._transacted.open is not None:
            self._transacted.end()
        queues = [consumer.queue for consumer in open_ones]
        session.broker.settling.when_over(session.connection.name, partial(session.broker.removal.consumers_gone, queues))
