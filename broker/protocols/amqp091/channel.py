"""One AMQP channel: publishing with confirms or in a transaction, delivering, settling. Queues and exchanges are methods.py's.

What comes in one turn of the loop is gathered by the session (``Turn``) and handed to the broker at its end: messages of one queue
together, acknowledgements of one consumer together, one confirm for all.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from ...core.amqp.declared import ConsumerArguments, counts_deliveries
from ...core.amqp.vhost import REPLY_TO, local_name
from ...core.consumer import Consumer, Returned, SharedWindow
from ...core.dead_letter import REJECTED
from ...core.message import MessageReference
from ...core.queue import Queue
from ...core.reserved import FAILURE
from ...core.transaction import Transaction
from ...steps import LIGHTER, MOST_ACKNOWLEDGED_AT_ONCE, MOST_AT_ONCE, SETTLE_STEP
from .batch import Confirming
from .codec import (
    FRAME_BODY,
    FRAME_OVERHEAD,
    SHORT,
    AckEvent,
    AmqpError,
    PublishEvent,
    PublishRun,
    content_frames,
    known_shape,
    method_frame,
    new_shape,
)
from .codec_methods import NUMBER, short_string
from .connection import AmqpConnection, Pattern, Subscriber
from .errors import not_implemented, precondition_failed, unknown_tag
from .in_order import InOrder
from .message_mapping import wire_of, with_reply_to
from .publishing import held_bytes, message_of, pattern_again, pattern_of, take_in, take_in_run
from .refusals import refused, still_unacked
from .reports import Reports
from .settled_reports import ConsumerQueues
from .unacked import Unacked, UnackedDeliveries

#: A publish of a transaction, and what it comes to.
Held = tuple[PublishEvent, Pattern]
#: A window without a limit.
UNLIMITED: Final = 1 << 30
#: Messages of a read that are taken in before it is looked whether the turn has been long enough: together, and one by one.
_AT_ONCE: Final = 500
_EACH: Final = 100
_DELIVERY: Final = struct.Struct(">QB")
_REPLY_TO: Final = REPLY_TO.encode()
_SIZE: Final = struct.Struct(">Q")
_FRAME: Final = struct.Struct(">BHI")
_DELIVER: Final = NUMBER["basic.deliver"].to_bytes(4, "big")
_RETURN: Final = NUMBER["basic.return"].to_bytes(4, "big")
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


class Channel(Confirming):
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
        #: Where direct replies to this channel's requests come; "" before it consumes them.
        self.reply_queue = ""
        #: None: no confirms; else the number of the last publish.
        self.published: int | None = None
        self.confirmed = 0
        #: Numbers of this turn's refused publishes.
        self.rejected: list[int] = []
        #: None: what is published and settled takes effect at once.
        self.transaction: Transaction[Held] | None = None
        #: Deliveries settled in it, and what is to become of each.
        self._settled: list[tuple[Unacked, str]] = []
        self.closed = False
        #: Its answers.
        self.answers = InOrder(session.broker.journal.when_safe)
        self._queues = ConsumerQueues(session)
        self._reports = Reports(session.reports, session.introduced, self._queues.failed)
        self._unacked = UnackedDeliveries()
        self._next_tag = 1
        self._oldest_tag = 1

    def write(self, name: str, *values: object) -> None:
        self.session.write(method_frame(self.number, name, *values))

    def answer(self, name: str, *values: object) -> None:
        self.answers.now(partial(self.write, name, *values))

    def answer_when_safe(self, name: str, *values: object) -> None:
        """Once everything so far is on disk: what was declared durable is durable when the client hears of it."""
        self.answers.when_safe(partial(self.write, name, *values))

    # -- publishing --------------------------------------------------------------------------------------------------

    def publish(self, event: PublishEvent | PublishRun) -> None:
        if isinstance(event, PublishRun):
            self._publish_run(event)
            return
        if event.body is None and event.exchange != FAILURE:
            most = self.session.options.max_message_bytes
            raise precondition_failed(f"message size {event.size} is larger than configured max size {most}", NUMBER["basic.publish"])
        if event.immediate:
            raise not_implemented("immediate=true", NUMBER["basic.publish"])
        if _REPLY_TO in event.properties:
            event = event._replace(properties=with_reply_to(event.properties, self.reply_queue))
        if self.transaction is not None:
            pattern, producer = pattern_of(self.session, event), self.session.producer
            if pattern is None:
                self.session.postpone(event)
                return
            producer.lasting, producer.passing = pattern.lasting, pattern.passing
            if event.exchange == FAILURE:
                self._reports.take_in(event, self._unacked, self._next_tag)
                return
            self.session.broker.transactions.hold(self.transaction, [(event, pattern)], held_bytes(event))
            _check(self.transaction)
            return
        self._take_in(event)

    def _publish_run(self, run: PublishRun) -> None:
        """All at once where nothing has to be told of any single one of them; else one by one. What is too much for now waits."""
        special = self.transaction is not None or run.immediate or _REPLY_TO in run.properties
        first = run if len(run.bodies) <= _AT_ONCE else run.first(_AT_ONCE)
        number = None if special else take_in_run(self.session, first)
        if number is None:
            self._publish_each(run)
            return
        if self.published is not None and number:
            self.published += number
            self.session.turn.confirming[self] = None
        if number < len(first.bodies):
            self.session.postpone(run.after(number))
        elif number < len(run.bodies):
            self._go_on(run.after(number))

    def _go_on(self, run: PublishRun) -> None:
        """With what is left of it, in another turn where this one has been long enough."""
        if self.session.late():
            self.session.wait_turn([run])
        else:
            self._publish_run(run)

    def _publish_each(self, run: PublishRun) -> None:
        for number, event in enumerate(run.first(_EACH).each(), 1):
            self.publish(event)
            if self.session.postponed:
                # The event itself is the first of what waits, as it was changed before.
                if number < len(run.bodies):
                    self.session.postpone(run.after(number))
                return
        if len(run.bodies) > _EACH:
            self._go_on(run.after(_EACH))

    def _take_in(self, event: PublishEvent) -> None:
        taken = take_in(self.session, event)
        if taken is None:
            self.session.postpone(event)
            return
        accepted, routed = taken
        if not routed and not self._unrouted(event):
            return
        if self.published is not None:
            self.published += 1
            self.session.turn.confirming[self] = None
        if not accepted and self.published is not None:
            self.rejected.append(self.published)

    def _unrouted(self, event: PublishEvent) -> bool:
        """Whether it is to be confirmed."""
        if event.exchange == FAILURE:
            return self._reports.take_in(event, self._unacked, self._next_tag)
        if event.mandatory:
            self._return(event)
        return True

    def _return(self, event: PublishEvent) -> None:
        payload = b"".join(
            [_RETURN, (312).to_bytes(2, "big"), short_string("NO_ROUTE"), short_string(event.exchange), short_string(event.routing_key)]
        )
        self.session.write(b"".join(content_frames(self.number, payload, event.properties, event.body or b"", self.session.frame_max)))

    def confirm(self) -> None:
        last, rejected = self.published or 0, self.rejected
        self.rejected = []
        self.session.broker.journal.when_stored(lambda: self._confirm(last, rejected))

    def _confirm(self, last: int, rejected: list[int]) -> None:
        if self.closed:
            return
        for number in rejected:
            self._acknowledge_up_to(number - 1)
            self.write("basic.nack", number, False, False)
            self.confirmed = number
        self._acknowledge_up_to(last)

    def _acknowledge_up_to(self, number: int) -> None:
        if number > self.confirmed:
            self.write("basic.ack", number, number > self.confirmed + 1)
            self.confirmed = number

    def select_confirms(self) -> None:
        if self.transaction is not None:
            raise precondition_failed("cannot switch from tx to confirm mode", NUMBER["confirm.select"])
        if self.published is None:
            self.published = 0

    # -- consuming ---------------------------------------------------------------------------------------------------

    def consume(self, queue: Queue, tag: str, no_ack: bool, exclusive: bool, arguments: ConsumerArguments) -> str:
        session = self.session
        if tag in self.subscriptions:
            raise AmqpError(530, f"NOT_ALLOWED - attempt to reuse consumer tag '{tag}'", NUMBER["basic.consume"])
        tag = tag or "amq.ctag-" + secrets.token_urlsafe(16)
        prefetch = UNLIMITED if no_ack else self.prefetch or UNLIMITED
        consumer = session.broker.consume(
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
        session.broker.unsubscribe(session.connection, consumer, keep_delivered=True)
        if local_name(consumer.queue.name) == self.reply_queue:
            # The queue ends with its consumer; another one may be asked for.
            self.reply_queue = ""
        if consumer.unsettled:
            self.holders[consumer.number] = consumer
        else:
            self.window.leave(consumer)
        session.broker.consumers_gone([consumer.queue])

    def cancelled(self, subscription: Subscription) -> None:
        """The broker ended it: the queue is gone."""
        self.subscriptions.pop(subscription.tag, None)
        self.window.leave(subscription.consumer)
        if self.window.limit:
            self.session.broker.offer_room(self.window)
        if self.session.notifies_cancels:
            # Behind the answer to whoever deleted it, which waits for the disk.
            self.answer_when_safe("basic.cancel", subscription.tag, True)

    def deliver(self, subscription: Subscription, references: list[MessageReference]) -> None:
        session, consumer = self.session, subscription.consumer
        first = self._next_tag
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
        self._next_tag = first + len(references)
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
        tag = self._next_tag
        self._next_tag += 1
        if not no_ack:
            self.holders[consumer.number] = self._getting[consumer.queue] = consumer
            self._unacked.add(consumer, tag, [reference])
        return tag

    def qos(self, prefetch: int, for_channel: bool) -> None:
        if for_channel:
            self.window.limit = prefetch
            self.session.broker.offer_room(self.window)
        else:
            self.prefetch = prefetch

    # -- settling ----------------------------------------------------------------------------------------------------

    def acknowledge(self, event: AckEvent) -> None:
        if self._reports and self.transaction is None:
            self._reports.acknowledged(event)
        if event.multiple or self.transaction is not None:
            for tag in event.tags:
                if event.multiple and self._in_steps(tag, "ack", MOST_ACKNOWLEDGED_AT_ONCE):
                    self.session.settle_first()
                else:
                    self._settle(self._take(tag, event.multiple), "ack")
            return
        pop, acknowledged = self._unacked.holders.pop, self.session.turn.acknowledged
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
            self._settle(self._take(tag, multiple), how)

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
        self._oldest_tag = self._next_tag
        self._end(self._unacked.take(list(self._unacked)), "recover")

    def _in_steps(self, tag: int, how: str, most: int) -> bool:
        """Whether there may be more up to this tag than is ended at once: then it has begun (``settle_first``)."""
        last, unacked = tag or self._next_tag - 1, self._unacked
        if self.transaction is not None or min(len(unacked), last - self._oldest_tag) <= most or (tag and tag not in unacked):
            return False
        self._oldest_tag = last + 1
        self.session.turn.finish()
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
                back.append((failed[0], broker.settlement.fail_but_for_places(*failed)))
                self.settled(failed[0])
        return back

    def _take(self, tag: int, multiple: bool) -> list[Unacked]:
        """The deliveries an acknowledgement names; tag 0 with ``multiple`` is all of them."""
        unacked = self._unacked
        if not multiple:
            entry = unacked.pop(tag)
            if entry is None:
                raise unknown_tag(tag)
            return [entry]
        last = tag or self._next_tag - 1
        if tag and tag not in unacked:
            raise unknown_tag(tag)
        span = range(self._oldest_tag, last + 1)
        tags: Iterable[int] = span if len(span) <= 2 * len(unacked) else sorted(each for each in unacked if each <= last)
        taken = unacked.take(tags)
        self._oldest_tag = max(self._oldest_tag, last + 1)
        return taken

    def _settle(self, taken: list[Unacked], how: str) -> None:
        if self.transaction is not None:
            self._settled += [(entry, how) for entry in taken]
            self.session.broker.transactions.hold(self.transaction, [], 0, len(taken))
            _check(self.transaction)
        else:
            self._end(taken, how)

    def _end(self, ended: list[Unacked], how: str) -> None:
        """One fate for all, those of one consumer together."""
        if how == "ack":
            for consumer, references in still_unacked(ended, self._reports).items():
                self.session.turn.acknowledged[consumer] += references
            return
        for consumer, references, failure, outcome, report in refused(ended, how, self._reports):
            self.session.broker.settlement.fail(consumer, references, failure, outcome, report)
            self.session.gave_back()
            self.settled(consumer)

    def end(self, how: str) -> None:
        """What was reported of, and not settled, has failed as reported. The rest was held beside it."""
        self.closed = True
        told = self._unacked.take(self._reports.tags)
        if not told or self.transaction is not None:
            return
        for consumer in self._unacked.consumers():
            consumer.accompanied_to = consumer.next_tag - 1
        self._end(told, how)

    def settled(self, consumer: Consumer) -> None:
        """Something of the consumer's was settled: a closed one may go, a shared window has room again."""
        if not consumer.open and not consumer.unsettled:
            self._drop_holder(consumer)
        if self.window.limit:
            self.session.broker.offer_room(self.window)

    def _drop_holder(self, consumer: Consumer) -> None:
        self.holders.pop(consumer.number, None)
        if self._getting.get(consumer.queue) is consumer:
            del self._getting[consumer.queue]
        self.window.leave(consumer)
        self.session.connection.retired.pop(consumer.number, None)

    # -- transactions ------------------------------------------------------------------------------------------------

    def select_transactions(self) -> None:
        if self.published is not None:
            raise precondition_failed("cannot switch from confirm to tx mode", NUMBER["tx.select"])
        if self.transaction is None:
            self._begin()

    def _begin(self) -> None:
        self.transaction = self.session.broker.transactions.begin(self.session.connection, self.number, self._timed_out)
        self._settled = []

    def _timed_out(self) -> None:
        why = "the transaction was open for longer than limits.transaction-timeout allows: commit sooner"
        self.session.close_channel(self.number, precondition_failed(why))

    def commit(self) -> None:
        """Everything that was held, in one step of the loop and so in one batch of the journal."""
        session, transaction, fates = self.session, self._in_transaction("tx.commit"), dict[str, list[Unacked]]()
        for entry, how in self._settled:
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
                session.turn.charge(1, message.size, len(queues))
            elif event.mandatory:
                self._return(event)
        for consumer in acknowledged:
            session.settled(consumer)
        for how, ended in fates.items():
            self._end(ended, how)
        session.turn.finish()
        self._begin()

    def roll_back(self) -> None:
        """Publishes are forgotten, reports too; what was acknowledged is unacknowledged again, and not delivered again by itself."""
        self._in_transaction("tx.rollback")
        self._reports.clear()
        for entry, _ in self._settled:
            self._oldest_tag = min(self._oldest_tag, entry[2])
        self._unacked.put_back([entry for entry, _ in self._settled])
        self.session.broker.transactions.end(self.session.connection, self.number)
        self._begin()

    def _in_transaction(self, method: str) -> Transaction[Held]:
        if self.transaction is None:
            raise precondition_failed("channel is not transactional", NUMBER[method])
        return self.transaction

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
            session.broker.unsubscribe(session.connection, consumer, keep_delivered=True)
        session.broker.release(session.connection, [*self.holders.values(), *open_ones])
        self.subscriptions.clear()
        self.holders.clear()
        self._unacked.clear()
        self._reports.clear()
        if self.transaction is not None:
            session.broker.transactions.end(session.connection, self.number)
        queues = [consumer.queue for consumer in open_ones]
        session.broker.settling.when_over(session.connection.name, partial(session.broker.consumers_gone, queues))


def _check(transaction: Transaction[Held]) -> None:
    """A transaction may not grow without end."""
    if transaction.broken is not None:
        _, message, fix = transaction.broken
        raise precondition_failed(f"{message}: {fix}")
