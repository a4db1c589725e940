"""What one channel publishes: with confirms, in a transaction, or without either."""

from __future__ import annotations

from typing import Final

from ...core.amqp.vhost import REPLY_TO
from ...core.reserved import FAILURE
from .codec import PublishEvent, PublishRun, content_frames
from .codec_methods import NUMBER, short_string
from .confirms import Confirms
from .connection import AmqpConnection
from .errors import not_implemented, precondition_failed
from .message_mapping import with_reply_to
from .publishing import pattern_of, take_in, take_in_run
from .reports import Reports
from .transacted import Transacted
from .unacked import UnackedDeliveries

#: Messages of a read that are taken in before it is looked whether the turn has been long enough: together, and one by one.
_AT_ONCE: Final = 500
_EACH: Final = 100
_REPLY_TO: Final = REPLY_TO.encode()
_RETURN: Final = NUMBER["basic.return"].to_bytes(4, "big")


class Publisher:
    """``number``: of the channel; ``reports`` of failures come as publishes, too, and are about what is in ``unacked``."""

    def __init__(self, session: AmqpConnection, number: int, reports: Reports, unacked: UnackedDeliveries, transacted: Transacted) -> None:
        self._session = session
        self._number = number
        self._reports = reports
        self._unacked = unacked
        self._transacted = transacted
        #: None: none are wanted.
        self.confirms: Confirms | None = None
        #: Where direct replies to this channel's requests come; "" before it consumes them.
        self.reply_queue = ""

    def publish(self, event: PublishEvent) -> None:
        if event.body is None and event.exchange != FAILURE:
            most = self._session.options.max_message_bytes
            raise precondition_failed(f"message size {event.size} is larger than configured max size {most}", NUMBER["basic.publish"])
        if event.immediate:
            raise not_implemented("immediate=true", NUMBER["basic.publish"])
        if _REPLY_TO in event.properties:
            event = event._replace(properties=with_reply_to(event.properties, self.reply_queue))
        transaction = self._transacted.open
        if transaction is not None:
            pattern, producer = pattern_of(self._session, event), self._session.producer
            if pattern is None:
                self._session.postpone(event)
                return
            producer.lasting, producer.passing = pattern.lasting, pattern.passing
            if event.exchange == FAILURE:
                self._reports.take_in(event, self._unacked, self._unacked.next_tag)
                return
            self._transacted.publish(transaction, event, pattern)
            return
        taken = take_in(self._session, event)
        if taken is None:
            self._session.postpone(event)
            return
        accepted, routed = taken
        if not routed and not self._unrouted(event):
            return
        if self.confirms is not None:
            self.confirms.took(1)
            if not accepted:
                self.confirms.refused()

    def publish_run(self, run: PublishRun) -> None:
        """All at once where nothing has to be told of any single one of them; else one by one. What is too much for now waits."""
        special = self._transacted.open is not None or run.immediate or _REPLY_TO in run.properties
        first = run if len(run.bodies) <= _AT_ONCE else run.first(_AT_ONCE)
        number = None if special else take_in_run(self._session, first)
        if number is None:
            self._publish_each(run)
            return
        if self.confirms is not None and number:
            self.confirms.took(number)
        if number < len(first.bodies):
            self._session.postpone(run.after(number))
        elif number < len(run.bodies):
            self._go_on(run.after(number))

    def _go_on(self, run: PublishRun) -> None:
        """With what is left of it, in another turn where this one has been long enough."""
        if self._session.late():
            self._session.wait_turn([run])
        else:
            self.publish_run(run)

    def _publish_each(self, run: PublishRun) -> None:
        for number, event in enumerate(run.first(_EACH).each(), 1):
            self.publish(event)
            if self._session.postponed:
                # The event itself is the first of what waits, as it was changed before.
                if number < len(run.bodies):
                    self._session.postpone(run.after(number))
                return
        if len(run.bodies) > _EACH:
            self._go_on(run.after(_EACH))

    def _unrouted(self, event: PublishEvent) -> bool:
        """Whether it is to be confirmed."""
        if event.exchange == FAILURE:
            return self._reports.take_in(event, self._unacked, self._unacked.next_tag)
        if event.mandatory:
            self.give_back(event)
        return True

    def give_back(self, event: PublishEvent) -> None:
        """No queue was there for it."""
        payload = b"".join(
            [_RETURN, (312).to_bytes(2, "big"), short_string("NO_ROUTE"), short_string(event.exchange), short_string(event.routing_key)]
        )
        self._session.write(b"".join(content_frames(self._number, payload, event.properties, event.body or b"", self._session.frame_max)))
