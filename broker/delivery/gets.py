"""Messages that are got one at a time, as AMQP's ``basic.get`` does."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from ..auth.access import Access, at_queue, needs
from ..connection import Connection
from ..core.consumer import Consumer
from ..core.dead_letter import EXPIRED
from ..core.message import MessageReference, Where
from ..core.queue import Queue
from ..core.rights import Right
from ..entries.memory_quota import MemoryQuota
from ..entries.pager import Pager
from ..errors import Refused
from ..recording.journal_port import JournalPort
from ..recording.recorder import Recorder
from .dead_lettering import DeadLetterOffice
from .dispatching import Dispatcher


def _same(connection: Connection, queue: Queue) -> Hashable:
    return connection.user, queue.queue_id


class Gets:
    def __init__(
        self,
        access: Access,
        dispatcher: Dispatcher,
        office: DeadLetterOffice,
        pager: Pager,
        quota: MemoryQuota,
        recorder: Recorder,
        journal: JournalPort,
        now_ms: Callable[[], int],
    ) -> None:
        self.access = access
        self._dispatcher = dispatcher
        self._office = office
        self._pager = pager
        self._quota = quota
        self._recorder = recorder
        self._journal = journal
        self._now_ms = now_ms

    def check(self, connection: Connection, queue: Queue) -> None:
        """Raises Refused while memory is short, where the next message is on disk and the connection keeps much that it got before."""
        pending, kept = queue.pending, connection.kept.bytes
        if queue.paused or pending.count or not (pending.disk_count or pending.overdue) or self._quota.allow(kept):
            return
        raise Refused(
            "memory-short",
            f"memory-limit is near, and this connection keeps {kept >> 20} MiB that it got: acknowledge some of it, then get more",
            "acknowledge what was got, or raise broker.memory-limit",
        )

    @needs((Right.CONSUME, at_queue), same=_same)
    def get(self, connection: Connection, number: int, queue: Queue) -> MessageReference | None:
        """The next message, if there is one, for the consumer under ``number`` that exists only to hold what was got of this queue.

        One that is ``counted`` already may leave only once that is on disk.
        """
        now_ms = self._now_ms()
        queue.used_at_ms = now_ms
        if queue.paused or queue.shut or self._dispatcher.stopping:
            return None
        # Only where that matters: a connection may hold very many of its single gets.
        holds_some = bool(queue.suspects) and any(each.queue is queue and each.unsettled for each in connection.all_consumers())
        while (reference := queue.take_next(connection.name, now_ms, holds_some)) is not None:
            self._dispatcher.room_made(queue)
            if reference.expired(now_ms):
                queue.delivering -= 1
                reference.where = Where.IN_COMMIT
                self._office.dead_letter(reference, EXPIRED)
                continue
            consumer = connection.retired.get(number) or _holder(connection, number, queue)
            consumer.dispatch((reference,), now_ms)
            consumer.delivered(reference.tag, now_ms)
            if queue.settings.persist_delivery_count_before_delivery:
                reference.delivery_count += 1
                reference.counted = True
                self._recorder.changed((reference,))
            return reference
        return None

    def may_answer(self, queue: Queue, reference: MessageReference | None = None) -> bool:
        """Whether what was found in the queue may be answered before anything more is on disk: that message, or that there is none."""
        if queue.dead_lettering:
            return False
        return reference is None or (not reference.counted and self._journal.ids_reserved)

    def when_read(self, connection: Connection, queue: Queue, callback: Callable[[], None]) -> bool:
        """Calls back when more of the queue has come, from disk or from who held it; False, and never, where there is nothing to come."""
        given_nothing = queue.paused or self._dispatcher.stopping or queue.is_apart(connection.name, self._now_ms())
        return not given_nothing and self._pager.when_read(queue, callback)


def _holder(connection: Connection, number: int, queue: Queue) -> Consumer:
    consumer = Consumer(
        number,
        connection.name,
        connection.front_end,
        1,
        kept=connection.kept,
        returns_at_once=connection.returns_at_once,
        client=connection.client,
    )
    consumer.queue = queue
    consumer.open = False
    connection.retire(consumer)
    return consumer
