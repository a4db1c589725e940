"""How deliveries end: acknowledged, failed, or given back. The table of counts in docs/semantics.md is this file."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from random import Random
from typing import Final

from homing.journal.contract import AttemptOutcome, Death

from ..connection import Connection
from ..core.consumer import Consumer, Returned
from ..core.counts import DELIVERED, FAILED, RETRIED
from ..core.dead_letter import DELIVERY_LIMIT, EXPIRED, POISON, REJECTED
from ..core.fault import CLOSED, FailureReport
from ..core.message import MessageReference
from ..core.queue import Queue
from ..core.redelivery import Decision, Failure, Terms, Verdicts, attempts_allowed, limit_reached, of_amqp_consumer, under
from ..core.settings.address_settings import AddressSettings
from ..core.settings.rules import Action, Rule, first, fitting, reported_failure
from ..entries.enqueuing import Enqueuing
from ..entries.fault_groups import FaultGroups
from ..entries.going_round import GoingRound
from ..entries.ready_set import ReadySet
from ..entries.references import References
from ..recording.recorder import Recorder
from ..steps import LIGHTER, MOST_ACKNOWLEDGED_AT_ONCE, MOST_AT_ONCE, SETTLE_STEP
from .dead_lettering import DeadLetterOffice
from .settling import Part, Settling
from .stories import Stories

log = logging.getLogger("homing")

COUNTED: Final = Failure()
#: How far a client's clock may be off where it says that something has expired.
_CLOCK_SLACK_MS: Final = 60_000
_TIMED_OUT: Final = Failure(returned=True)
UNCOUNTED: Final = Failure(counts=False)
_CLOSED: Final = Failure(delay_ms=0)
#: Of consumers that end: not returned by a program, over and over.
_NOT_RETURNED: Final = ("closed", "connection-lost")
_REDELIVER: Final = Action.REDELIVER
_Verdicts = list[tuple[MessageReference, Decision]]
#: Those that one rule has a say in, or none.
_Group = tuple[Rule | None, list[MessageReference]]
#: Of consumers that end together, by queue: how what was delivered of it failed, in which words, and whether the limit is applied.
_Ends = dict[Queue, tuple[Failure, AttemptOutcome, bool]]


class Failing:
    """Deliveries that came back from the application, or did not in time."""

    def __init__(
        self,
        recorder: Recorder,
        references: References,
        faults: FaultGroups,
        going_round: GoingRound,
        office: DeadLetterOffice,
        ready: ReadySet,
        now_ms: Callable[[], int],
        rng: Random,
    ) -> None:
        self._recorder = recorder
        self._references = references
        self._faults = faults
        self._going_round = going_round
        self._office = office
        self._ready = ready
        self._now_ms = now_ms
        self._rng = rng
        #: Messages that consumers gave back within this second, to be delivered again at once.
        self.returns: dict[Queue, int] = {}

    def fail(
        self,
        consumer: Consumer,
        references: list[MessageReference],
        failure: Failure | None,
        outcome: AttemptOutcome,
        report: FailureReport | None = None,
        apply_limit: bool = True,
    ) -> list[MessageReference]:
        """Each is decided by itself: again at once, again at a time, or dead. Those it returns go out again, and are still to be taken
        back. ``failure`` None: as the report has it."""
        queue, settings = consumer.queue, consumer.queue.settings
        report = report or {}
        failure = failure or _reported(report)
        if consumer.returns_at_once:
            settings = of_amqp_consumer(settings, failure)
        # The native client always says how it came back, which alone tells nothing of why.
        reported = bool(report.keys() - {"outcome"})
        consumer.reports += reported
        if failure.counts:
            # What a client wrote is read before anything changes.
            self._recorder.report.read(report, queue.name, queue.settings, outcome)
        queue.release(consumer, references)
        now_ms = self._now_ms()
        failed, expired = self._count(references, failure, now_ms)
        queue.counts[DELIVERED] += len(failed)
        groups: Sequence[_Group] = ((None, failed),)
        if settings.rules and failure.counts and outcome != CLOSED and (settings.rules_meant or not consumer.returns_at_once):
            groups = _by_rule(settings, failed, report, outcome)
        again: list[MessageReference] = []
        for rule, members in groups:
            terms = Terms(settings, consumer.policy) if rule is None else under(rule, settings, consumer.policy)
            decisions = Verdicts(terms, failure, now_ms, self._rng, apply_limit)
            verdicts = [(reference, decisions[reference.failed]) for reference in members]
            ending: dict[tuple[str | None, Death], list[MessageReference]] = {}
            for reference, decision in verdicts:
                if decision.action is not _REDELIVER:
                    ending.setdefault((decision.dropped_by, decision.reason or DELIVERY_LIMIT), []).append(reference)
                    continue
                reference.due_at_ms = decision.due_at_ms
                # It was not alone when its consumer was lost; the next loss would end it, so it shall be alone then.
                reference.suspect = not apply_limit and limit_reached(terms.settings, terms.policy, reference.failed + 1)
                again.append(reference)
            if failure.counts:
                self._record(consumer, terms, verdicts, outcome, reported, now_ms)
            else:
                self._recorder.delivered(queue, members, now_ms)
            for (dropped_by, reason), gone in ending.items():
                if dropped_by is not None:
                    self._office.drop_all(queue, gone, dropped_by, now_ms)
                else:
                    address = None if rule is None else rule.dead_letter_address
                    self._office.dead_letter_all(queue, gone, REJECTED if outcome == REJECTED else reason, now_ms, address=address)
        if expired:
            self._office.dead_letter_all(queue, expired, EXPIRED, now_ms)
        if failure.counts:
            queue.counts[RETRIED] += len(again)
        elif again:
            unwritten = self._going_round.unwritten
            self._recorder.changed([each for each in again if each not in unwritten] if unwritten else again)
        if outcome not in _NOT_RETURNED and (soon := sum([each.due_at_ms is None for each in again])):
            self.returns[queue] = self.returns.get(queue, 0) + soon
        self._ready.mark(queue)
        return again

    def _record(self, consumer: Consumer, terms: Terms, verdicts: _Verdicts, outcome: AttemptOutcome, reported: bool, now_ms: int) -> None:
        """What has failed alike is in the open batch, and durable from here on; but for what only goes round."""
        queue, rounds = consumer.queue, self._going_round
        members = [reference for reference, _ in verdicts]
        at_once = verdicts
        round_again: list[MessageReference] = []
        if not queue.keeps_all and (passing := [each for each in members if not each.message.durable]):
            if outcome == "nack" and not reported and _goes_round(terms, verdicts):
                passing, round_again = rounds.put_back(passing, now_ms)
                if round_again:
                    at_once = (
                        [verdict for verdict in verdicts if verdict[0] not in rounds.unwritten] if len(round_again) < len(members) else []
                    )
                    self._recorder.went_round(consumer, round_again, now_ms)
            elif rounds.unwritten:
                rounds.written(passing)
            if passing:
                self._references.keep_failed(passing)
        queue.counts[FAILED] += len(members)
        if members and outcome != CLOSED:
            before = [each.cause for each in round_again]
            self._faults.failed(queue.name, members, self._recorder.report.description, consumer.client, now_ms, later=not at_once)
            if changed := [each for each, was in zip(round_again, before, strict=True) if each.durable and each.cause != was]:
                # They wait for another fault from here on, and are written with that.
                rounds.written(changed)
                self._recorder.changed(changed)
        self._recorder.failed(consumer, terms, at_once, outcome, now_ms)

    @staticmethod
    def _count(references: list[MessageReference], failure: Failure, now_ms: int) -> tuple[list[MessageReference], list[MessageReference]]:
        """(those that failed, with their counts raised; those that have expired meanwhile, which do not count)"""
        failed: list[MessageReference] = []
        expired: list[MessageReference] = []
        for reference in references:
            reference.suspect = False
            reference.transaction = None
            if reference.expires_at_ms is not None and reference.expires_at_ms <= now_ms and not failure.poison:
                expired.append(reference)
                continue
            if reference.counted:
                reference.counted = False
            else:
                reference.delivery_count += 1
            reference.failed += failure.counts
            failed.append(reference)
        return failed, expired


class Settlement:
    def __init__(
        self,
        recorder: Recorder,
        references: References,
        enqueuing: Enqueuing,
        ready: ReadySet,
        office: DeadLetterOffice,
        failing: Failing,
        settling: Settling,
        stories: Stories,
        now_ms: Callable[[], int],
    ) -> None:
        self._recorder = recorder
        self._references = references
        self._enqueuing = enqueuing
        self._ready = ready
        self._office = office
        self._failing = failing
        self._settling = settling
        self.stories = stories
        self._now_ms = now_ms

    def _in_steps(
        self, consumer: Consumer, references: list[MessageReference], settle: Callable[[list[MessageReference]], object], lighter: int = 1
    ) -> None:
        """Deliveries that are too many for one step."""

        def some(tags: list[int]) -> Returned:
            again = settle(consumer.still_held(tags))
            return [(consumer, again)] if isinstance(again, list) else []

        tags = [each.tag for each in references]
        parts = (tags[at : at + SETTLE_STEP] for at in range(0, len(tags), SETTLE_STEP))
        self._settling.begin(consumer.connection, ((len(part) // lighter, partial(some, part)) for part in parts))

    def _come_back(
        self, consumer: Consumer, references: list[MessageReference], settle: Callable[[list[MessageReference]], list[MessageReference]]
    ) -> None:
        """They end in one step where they are few. ``settle`` returns those that are still to be taken back."""
        if len(references) > MOST_AT_ONCE:
            self._in_steps(consumer, references, settle)
        elif again := settle(references):
            self._enqueuing.take_back(consumer, again)

    def acknowledge(self, consumer: Consumer, references: list[MessageReference], alone: bool = True) -> None:
        """These are done, but for what a transaction holds. They leave for good; the window has room again. ``alone``: not as a part of a
        transaction."""
        if len(references) > MOST_ACKNOWLEDGED_AT_ONCE and alone:
            self._in_steps(consumer, references, partial(self.acknowledge, consumer), LIGHTER)
            return
        queue = consumer.queue
        references = [reference for reference in references if reference.transaction is None]
        queue.release(consumer, references)
        self._references.succeed(queue, references, self._now_ms(), alone, consumer)
        self._ready.mark(queue)

    def give_back(self, consumer: Consumer, references: list[MessageReference]) -> None:
        """Unread or unusable: back to their places, nothing counted."""
        self._come_back(consumer, references, partial(self._give_back, consumer))

    def _give_back(self, consumer: Consumer, references: list[MessageReference]) -> list[MessageReference]:
        """But for their places."""
        queue = consumer.queue
        queue.release(consumer, references)
        uncounted: list[MessageReference] = []
        for reference in references:
            reference.transaction = None
            if reference.counted:
                reference.counted = False
                reference.delivery_count -= 1
                uncounted.append(reference)
        self._recorder.changed(uncounted)
        self._ready.mark(queue)
        return references

    def client_saw_expire(self, consumer: Consumer, references: list[MessageReference]) -> None:
        """Ack type 6. Believed only for what really expires about now; anything else goes back uncounted."""
        self._come_back(consumer, references, partial(self._saw_expire, consumer))

    def _saw_expire(self, consumer: Consumer, references: list[MessageReference]) -> list[MessageReference]:
        horizon_ms = self._now_ms() + _CLOCK_SLACK_MS
        expired = [reference for reference in references if reference.expired(horizon_ms)]
        consumer.queue.release(consumer, expired)
        for reference in expired:
            self._office.dead_letter(reference, EXPIRED)
        return self._give_back(consumer, [reference for reference in references if not reference.expired(horizon_ms)])

    def poison(self, consumer: Consumer, references: list[MessageReference], report: FailureReport) -> None:
        """Dead-letter now, whatever the counts say."""
        retryable = report.get("retryable", True)
        failure = Failure(retryable=retryable, poison=True)
        self.fail(consumer, references, failure, POISON if retryable else report.get("outcome", "nack"), report)

    def without_too_large(self, consumer: Consumer, references: list[MessageReference], most: int) -> list[MessageReference]:
        """What was just dispatched without the messages of more than ``most`` bytes, body and properties, which its client cannot take.

        Those are dead-lettered at once, with why, and the log names sender and consumer; a pull is still to be answered.
        """
        large = [reference for reference in references if reference.message.size > most]
        if not large:
            return references
        if not consumer.prefetch:
            consumer.pulls += len(large)
        consumer.too_large += len(large)
        self._too_large(consumer, large, most)
        self._ready.mark(consumer.queue)
        return [reference for reference in references if reference.message.size <= most]

    def _too_large(self, consumer: Consumer, references: list[MessageReference], most: int) -> None:
        """Dead, because no frame of the consumer's holds them."""
        for reference in references:
            message = reference.message
            why = (
                f"message {message.message_id} from {message.producer} takes {message.size} bytes, consumer {consumer.name} at most {most}"
            )
            fix = "raise limits.max-frame-bytes, or consume the queue over AMQP"
            log.warning("message-too-large: queue %s: %s; it is dead-lettered (%s)", consumer.queue.name, why, fix)
            report: FailureReport = {"reason": why, "error_type": "message-too-large", "error_text": fix}
            self.fail(consumer, [reference], Failure(poison=True), POISON, report)

    def fail(
        self,
        consumer: Consumer,
        references: list[MessageReference],
        failure: Failure | None,
        outcome: AttemptOutcome,
        report: FailureReport | None = None,
        apply_limit: bool = True,
    ) -> None:
        """These came back from the application: see Failing."""
        if report and "story" in report and outcome == REJECTED and len(references) == 1:
            consumer, last = self.stories.joined(consumer, references[0], report["story"])
            references = [last]
        self._come_back(consumer, references, lambda some: self._failing.fail(consumer, some, failure, outcome, report, apply_limit))

    # -- consumers that end ------------------------------------------------------------------------------------------

    def closed(self, name: str, consumers: Iterable[Consumer], connection: Connection | None = None) -> None:
        """A clean end of consumers of the connection of that name: delivered messages come back counted but not blamed, unread ones as if
        nothing had been.

        ``connection``: where it was AMQP's, whose programs end in order however they fared: where a limit is in force, they failed. Of the
        connection's other consumers each that holds something of the queue is company.
        """
        self._settling.begin(name, self._closed(list(consumers), connection))

    def _closed(self, consumers: list[Consumer], connection: Connection | None) -> Iterator[Part]:
        ends: _Ends = {}
        for queue, held in _by_queue(consumers).items():
            if connection is None or not queue.settings.limit_in_force:
                ends[queue] = UNCOUNTED, CLOSED, True
                continue
            beside = [each for each in connection.all_consumers() if each.queue is queue and each.unsettled]
            for each in beside:
                each.accompanied_to = each.next_tag - 1
            alone = None if beside else _alone(held)
            # Programs are stopped in order, too: what others made a suspect is spared once.
            spared = alone is None or (alone.suspect and not limit_reached(queue.settings, None, alone.failed))
            ends[queue] = _CLOSED, CLOSED, not spared
        yield from self._end(consumers, ends)

    def rolled_back(self, name: str, consumers: Iterable[Consumer]) -> None:
        """Their session's transaction was undone: delivered messages failed once more, unread ones are released."""
        consumers = list(consumers)
        self._settling.begin(name, self._end(consumers, {each.queue: (COUNTED, "rollback", True) for each in consumers}))

    def lost(self, name: str, consumers: Iterable[Consumer]) -> None:
        """Their connection is gone. Delivered messages failed; the limit is applied only to one that was delivered alone of its queue."""
        self._settling.begin(name, self._lost(list(consumers)))

    def _lost(self, consumers: list[Consumer]) -> Iterator[Part]:
        ends: _Ends = {queue: (COUNTED, "connection-lost", _alone(held) is not None) for queue, held in _by_queue(consumers).items()}
        yield from self._end(consumers, ends)

    def _end(self, consumers: Iterable[Consumer], ends: _Ends) -> Iterator[Part]:
        """Of all that they hold so much at a time, what was delivered first."""
        for consumer in consumers:
            while tags := list(islice(consumer.unsettled, SETTLE_STEP)):
                yield len(tags), partial(self._end_some, consumer, tags, ends)

    def _end_some(self, consumer: Consumer, tags: list[int], ends: _Ends) -> Returned:
        held = consumer.still_held(tags)
        delivered = [each for each in held if each.tag <= consumer.delivered_to]
        unread = [each for each in held if each.tag > consumer.delivered_to]
        back: Returned = [(consumer, self._give_back(consumer, unread))] if unread else []
        if delivered:
            failure, outcome, apply_limit = ends[consumer.queue]
            back.append((consumer, self._failing.fail(consumer, delivered, failure, outcome, apply_limit=apply_limit)))
        return back

    def time_out(self, consumer: Consumer, now_ms: int) -> list[MessageReference]:
        """Messages delivered longer ago than the consumer's time, or ``consumer-timeout``, fail by themselves; the rest stays with it."""
        timeout_ms = consumer.queue.settings.consumer_timeout_ms if consumer.timeout_ms is None else consumer.timeout_ms
        if consumer.oldest_delivered_ms is None or now_ms - consumer.oldest_delivered_ms < timeout_ms:
            return []
        if consumer.connection in self._settling.lines:
            # It may be these.
            return []
        late: list[MessageReference] = []
        oldest: int | None = None
        for reference in consumer.unsettled.values():
            delivered_ms = reference.delivered_at_ms
            if delivered_ms is None:
                continue
            if now_ms - delivered_ms >= timeout_ms:
                late.append(reference)
            elif oldest is None or delivered_ms < oldest:
                oldest = delivered_ms
        if late:
            self.fail(consumer, late, _TIMED_OUT, "timeout", {"reason": f"not settled within {timeout_ms} ms of being given"})
        consumer.oldest_delivered_ms = oldest
        return late


def _goes_round(terms: Terms, verdicts: _Verdicts) -> bool:
    """Whether all of these go out again at once, however often they are returned."""
    endless = terms.rule is None and attempts_allowed(terms.settings, terms.policy) is None
    return endless and all(decision.action is _REDELIVER and decision.due_at_ms is None for _, decision in verdicts)


def _by_queue(consumers: Iterable[Consumer]) -> dict[Queue, list[Consumer]]:
    """Those that something was delivered to."""
    by_queue: dict[Queue, list[Consumer]] = {}
    for consumer in consumers:
        if consumer.first_delivered():
            by_queue.setdefault(consumer.queue, []).append(consumer)
    return by_queue


def _alone(held: list[Consumer]) -> MessageReference | None:
    """The only one of its queue that was delivered to them, if it is that and was not held beside what went back a moment before."""
    delivered = held[0].first_delivered()
    if len(held) > 1 or len(delivered) > 1 or delivered[0].tag <= held[0].accompanied_to:
        return None
    return delivered[0]


def _by_rule(settings: AddressSettings, failed: list[MessageReference], report: FailureReport, outcome: AttemptOutcome) -> Sequence[_Group]:
    rules = fitting(settings.rules, reported_failure(report, outcome))
    if not rules or not rules[0].header:
        return ((rules[0] if rules else None, failed),)
    groups: dict[Rule | None, list[MessageReference]] = {}
    for reference in failed:
        groups.setdefault(first(rules, reference.lookup()), []).append(reference)
    return list(groups.items())


def _reported(report: FailureReport) -> Failure:
    """What decides of the message."""
    return Failure(report.get("count", True), report.get("retryable", True), report.get("delay_ms"), report.get("until_ms"))
