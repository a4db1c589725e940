"""Tries of one task whose library sends each as a message of its own, as Celery, Taskiq and dramatiq do: attempts of one message.

Which task it is, is told with each failure (``story``). Its attempts stand under a number of its own, with its first failure; whoever
gives the last try back has a dead letter made of it under that number. The journal has them, too: a start finds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from homing.journal.contract import QueueStat

from ..core.consumer import Consumer
from ..core.message import DELIVERING, Message, MessageReference
from ..core.queue import Queue
from ..entries.references import References
from ..recording.journal_port import JournalPort

#: Of which the number is remembered; the journal keeps as many.
_REMEMBERED: Final = 10_000


class Stories:
    def __init__(self, journal: JournalPort, references: References, now_ms: Callable[[], int]) -> None:
        self._journal = journal
        self._references = references
        self._now_ms = now_ms
        #: (queue, story) -> the number of its message, and how often it failed.
        self._known: dict[tuple[str, str], tuple[int, int]] = {}

    def restore(self, stories: Iterable[tuple[str, str, int, int]]) -> None:
        """What the journal remembered, the least recent first."""
        self._known = {(queue, story): (number, failed) for queue, story, number, failed in stories}

    def has(self, queue: Queue, story: str) -> bool:
        """Whether a try of it has failed, and there is to be another."""
        return (queue.name, story) in self._known

    def next_try(self, queue: Queue, story: str, again: bool) -> tuple[int, int]:
        """Its number, and its failures so far. ``again``: there will be another try."""
        key = queue.name, story
        known = self._known.pop(key, None)
        number, failed = known or (self._journal.next_id(), 0)
        if story and again:
            self._known[key] = number, failed + 1
            if len(self._known) > _REMEMBERED:
                del self._known[next(iter(self._known))]
        if queue.durable and (known or key in self._known):
            self._journal.batch.story(*key, self._known.get(key))
        return number, failed

    def held(self, consumer: Consumer, message: Message, failed: int, column: QueueStat = QueueStat.SENT) -> MessageReference:
        """A message with a number enters the consumer's queue, and is with the consumer, in one step."""
        queue, now_ms = consumer.queue, self._now_ms()
        (reference,) = self._references.enter(message, (queue,), now_ms, column, expires_at_ms=message.expires_at_ms)
        reference.delivery_count = reference.failed = failed
        queue.append(reference)
        queue.withdraw(reference, DELIVERING)
        queue.delivering += 1
        consumer.dispatch((reference,), now_ms)
        return reference

    def joined(self, consumer: Consumer, reference: MessageReference, story: str) -> tuple[Consumer, MessageReference]:
        """The last try of a story, which its consumer gives back for good, under the story's number; as it is where there is none, or where
        it has failed, or gone somewhere, by itself. The consumer: one beside its own, whose tags go on.
        """
        queue, original = reference.queue, reference.message
        if not self.has(queue, story) or reference.failed or reference.hops or reference.redrive:
            return consumer, reference
        number, failed = self.next_try(queue, story, again=False)
        copy = Message(
            number,
            original.address,
            original.body,
            original.properties,
            original.priority,
            original.durable,
            original.sent_at_ms,
            reference.expires_at_ms,
            original.producer,
        )
        consumer.reports += 1
        copy.size, copy.weight, copy.kept = original.size, original.weight, True
        self._references.leave(reference, "moved", self._now_ms(), targets=(queue,))
        beside = Consumer(consumer.number, consumer.connection, consumer.sink, 1, returns_at_once=consumer.returns_at_once)
        beside.client, beside.stats_name, beside.queue, beside.open = consumer.client, consumer.stats_name, queue, False
        return beside, self.held(beside, copy, failed, QueueStat.MOVED_IN)
