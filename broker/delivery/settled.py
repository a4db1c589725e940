"""Failures that are reported of deliveries which were acknowledged before, as of tasks that Celery acknowledges when it begins them.

Nothing is remembered of what was acknowledged. So the attempt stands under a number of its own; where the queue's settings have it
(``keep-settled-failures``), the message that came with the report is a dead letter of the queue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..auth.access import Access, queue_place
from ..connection import Connection
from ..core.consumer import Consumer
from ..core.counts import FAILED
from ..core.fault import ACKNOWLEDGED, FailureReport
from ..core.message import DEATH_BITS, Message, MessageReference, Trouble
from ..core.queue import Queue
from ..core.redelivery import Decision, Failure, Terms
from ..core.rights import Right
from ..core.settings.rules import Action
from ..core.settled_report import SettledReport
from ..entries.fault_groups import FaultGroups
from ..entries.redrive_tally import RedriveTally
from ..recording.recorder import Recorder
from .settlement import Settlement
from .stories import Stories

_NOT_AGAIN: Final = Failure(retryable=False)
#: Tries that are to be followed by others.
_REMEMBERED: Final = 10_000
_GONE: Final = Decision(Action.DROP, dropped_by=ACKNOWLEDGED)


class SettledReports:
    def __init__(
        self,
        access: Access,
        recorder: Recorder,
        faults: FaultGroups,
        redrives: RedriveTally,
        settlement: Settlement,
        stories: Stories,
        now_ms: Callable[[], int],
    ) -> None:
        self._access = access
        self._recorder = recorder
        self._faults = faults
        self._redrives = redrives
        self._now_ms = now_ms
        self._settlement = settlement
        self._stories = stories
        #: (queue, story) -> what a try was counted as that had failed before, was acknowledged, and is tried again.
        self._before: dict[tuple[str, str], Trouble] = {}

    def report(self, connection: Connection, number: int, queue: Queue, told: SettledReport) -> None:
        """What was acknowledged of the queue has failed. A dead letter is made of it only for who may send to the queue. A success ends the
        story of its task, where there is one."""
        consumer = Consumer(number, connection.name, connection.front_end, 1, client=connection.client)
        consumer.queue = queue
        consumer.open = False
        connection.late_reports += 1
        self._take(consumer, told, self._access.may(connection, Right.SEND, queue_place(queue)))

    def _take(self, consumer: Consumer, told: SettledReport, may_keep: bool) -> None:
        """``consumer``: one that holds nothing. ``may_keep``: a dead letter may be made of it."""
        queue, message, story = consumer.queue, told.message, told.report.get("story", "")
        if told.succeeded and not self._stories.has(queue, story):
            return
        before = self._counted_before(queue, told)
        message.kept = True
        message.message_id, failed = self._stories.next_try(queue, story, told.again)
        if may_keep and told.whole and not told.again and queue.settings.keep_settled_failures:
            self._dead_letter(consumer, message, failed, told.report, before)
            return
        now_ms, recorder, faults = self._now_ms(), self._recorder, self._faults
        reference = MessageReference(message, queue, message.message_id, now_ms)
        reference.delivery_count, reference.failed, reference.dispatched_at_ms = failed + 1, failed, now_ms
        if told.succeeded:
            recorder.was_over(reference, "succeeded", None, now_ms)
            return
        self._in_trouble(reference, before)
        reference.failed += 1
        recorder.report.read(told.report, queue.name, queue.settings, ACKNOWLEDGED)
        terms = Terms(queue.settings, None)
        recorder.failed(consumer, terms, [(reference, _GONE)], ACKNOWLEDGED, now_ms, delivered=False)
        queue.counts[FAILED] += 1
        faults.failed(queue.name, [reference], recorder.report.description, consumer.client, now_ms)
        faults.ended(reference, False, now_ms)
        self._redrives.ended(reference, "dropped")
        if not told.again:
            recorder.was_over(reference, "dropped", ACKNOWLEDGED, now_ms)

    def _counted_before(self, queue: Queue, told: SettledReport) -> Trouble | None:
        """What it was counted as, of which nothing is true any more: where it is over, and did not succeed."""
        key = queue.name, told.report.get("story", "")
        before = told.before or self._before.pop(key, None)
        if before is None or told.succeeded or before.cause & DEATH_BITS:
            return None
        if not told.again:
            return before
        if key[1]:
            self._before[key] = before
            if len(self._before) > _REMEMBERED:
                del self._before[next(iter(self._before))]
        return None

    def _in_trouble(self, reference: MessageReference, before: Trouble | None) -> None:
        if before is not None:
            reference.cause, reference.redrive = before
            self._faults.not_over(reference, self._now_ms())
            self._redrives.not_over(reference)

    def _dead_letter(self, consumer: Consumer, message: Message, failed: int, report: FailureReport, before: Trouble | None) -> None:
        """It enters its queue, is with the consumer and fails, all in one step."""
        reference = self._stories.held(consumer, message, failed)
        self._in_trouble(reference, before)
        self._settlement.fail(consumer, [reference], _NOT_AGAIN, ACKNOWLEDGED, report)
