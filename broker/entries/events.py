"""Events: reported by those whom something happens to, kept with the next commit, the last of each kind, and sent a turn later to whatever
queues are bound to ``homing.events``.

Of each kind a few are made of one queue in ten minutes (core/event.py), none of a queue that takes events itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from homing.journal.contract import Death

from ..core.amqp.exchange import TOPIC, Destination, Exchange
from ..core.consumer import Consumer
from ..core.dead_letter import EXPIRED, MAX_LENGTH, targets_named
from ..core.event import (
    CONSUMER_SLOW,
    DEAD_REMOVED,
    DISK_LOW,
    FAULT_GROWING,
    FAULT_NEW,
    FAULT_REGRESSED,
    FIRST_DEAD,
    KINDS,
    MANY_DEAD,
    PARKED,
    QUEUE_FULL,
    QUEUE_STAYS,
    REDRIVE_DONE,
    REDRIVE_STOPPED,
    Rates,
    describe,
)
from ..core.fault import FaultGroup
from ..core.queue import Queue
from ..core.redrive_job import DONE, STOPPED, RedriveJob
from ..core.reserved import EVENTS
from ..core.routing import Address, PostOffice, RoutingTypes
from ..core.seldom import APART
from ..core.settings.in_force import SettingsInForce
from ..recording.journal_port import JournalPort
from .notes import Notes

log = logging.getLogger("homing")

#: Queues that a line of the log names.
_MOST_NAMES: Final = 5


class Events:
    def __init__(
        self,
        journal: JournalPort,
        post_office: PostOffice,
        settings: SettingsInForce,
        now_ms: Callable[[], int],
        wake: Callable[[], None],
        broker: str,
    ) -> None:
        """``broker``: its name."""
        self._journal = journal
        self._post_office = post_office
        self._settings = settings
        self._now_ms = now_ms
        self._wake = wake
        self._broker = broker
        #: Who takes them: queues bound to the address, or to the exchange of that name in the virtual host ``/``.
        self.address = Address(EVENTS, RoutingTypes.MULTICAST, now_ms(), auto_created=False)
        self.exchange = Exchange(EVENTS, TOPIC, internal=True)
        post_office.add_address(self.address)
        #: What the log says of queues.
        self.notes = Notes()
        self._rates = Rates()
        self._disk_low = False
        #: Name and content of those to be sent in this turn, or the next.
        self.waiting: list[tuple[str, dict[str, Any]]] = []
        #: Since the start: of each kind, how many were made, and left out for there were too many.
        self.made = dict.fromkeys(KINDS, 0)
        self.left_out = dict.fromkeys(KINDS, 0)

    def describe(self) -> dict[str, dict[str, int]]:
        """How many of each kind."""
        return {name: {"made": self.made[name], "left_out": self.left_out[name]} for name in KINDS}

    # -- reported ---------------------------------------------------------------------------------------------------

    def fault(self, name: str, group: FaultGroup, failures: int = 0) -> None:
        if not group.muted:
            error = f"{group.error_class}: {group.text}".removesuffix(": ")
            fields: dict[str, Any] = {"fault": group.fingerprint, "error": error}
            if name == FAULT_GROWING:
                fields["failures"] = failures
            elif name == FAULT_REGRESSED:
                fields["fixed_in"] = group.fixed_in or "all versions"
            if self._report(name, group.fingerprint, group.queue, fields):
                _log_fault(name, group, failures)

    def dead_lettering(self, source: Queue, targets: list[Queue], number: int, reason: Death, now_ms: int) -> None:
        """So many of a queue's messages are about to join these."""
        what = f"{', '.join(each.name for each in targets[:_MOST_NAMES])} ({reason})"
        self.notes.dead_letters(source, number, what, reason not in (EXPIRED, MAX_LENGTH), now_ms)
        for target in targets:
            before, threshold = target.count, source.settings.dead_letters_threshold
            if not before:
                self._report(FIRST_DEAD, source.name, source.name, {"dead_in": target.name, "reason": reason})
            if threshold is not None and before < threshold <= before + number:
                self._report(MANY_DEAD, source.name, source.name, {"dead_in": target.name, "number": before + number})

    def parked(self, queue: Queue, number: int, why: str) -> None:
        self.notes.parked(queue, number, why, self._now_ms())
        self._report(PARKED, queue.name, queue.name, {"number": number, "why": why})

    def stays(self, queue: Queue) -> None:
        self.notes.stays(queue, self._now_ms())
        self._report(QUEUE_STAYS, queue.name, queue.name, {"number": len(queue.parked)})

    def removed(self, source: str, dead_in: str, number: int, why: str) -> None:
        self._report(DEAD_REMOVED, source, source, {"dead_in": dead_in, "number": number, "why": why})

    def redrive_ended(self, job: RedriveJob) -> None:
        """Of one that somebody cancelled there is no event."""
        if name := {DONE: REDRIVE_DONE, STOPPED: REDRIVE_STOPPED}.get(job.state):
            # A dead-letter queue that made itself has no settings of its own; whose it is, those of the address that it is named after say.
            source = next((each.source for each in targets_named(job.queue, self._settings.repository)), job.queue)
            self._report(name, str(job.job_id), job.queue, {"redrive": job.job_id, "sent": job.sent, "why": job.why}, whose=source)
        why = f": {job.why}" if job.why else ""
        log.info("redrive-ended: redrive %d of queue %s is %s, %d sent%s", job.job_id, job.queue, job.state, job.sent, why, extra=APART)

    def queue_full(self, queue: Queue) -> None:
        if self._report(QUEUE_FULL, queue.name, queue.name, {"number": queue.ready}):
            log.warning("queue-full: queue %s is full with %d ready: what is sent is refused, or producers wait", queue.name, queue.ready)

    def slow(self, consumer: Consumer, why: str) -> None:
        queue = consumer.queue
        fields = {"consumer": consumer.name, "client": consumer.client, "unsettled": len(consumer.unsettled), "why": why}
        if self._report(CONSUMER_SLOW, consumer.name, queue.name, fields):
            log.warning("consumer-slow: consumer %s of queue %s is slow: %s", consumer.name, queue.name, why, extra=APART)

    def disk(self, low: bool) -> None:
        """Called about every second."""
        if low and not self._disk_low:
            self._report(DISK_LOW, self._broker, "", {})
        self._disk_low = low

    def of_cluster(self, name: str, node: str, **fields: object) -> None:
        self._report(name, node, "", {"node": node, **fields})

    def _report(self, name: str, subject: str, queue: str, fields: dict[str, Any], whose: str | None = None) -> bool:
        """Whether there are not too many. ``whose``: the queue whose owner is named with it, if that is another one."""
        if self._takes_events(queue):
            return False
        if not self._rates.allow(name, queue, self._now_ms()):
            self.left_out[name] += 1
            return False
        self.made[name] += 1
        if queue:
            fields["queue"] = queue
            settings = self._settings.of_queue(whose or queue, whose or queue)
            fields |= {key: value for key, value in (("owner", settings.owner), ("runbook", settings.runbook)) if value}
        now_ms = self._now_ms()
        time = datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds")
        content = {"event": name, "time": time, "broker": self._broker, "subject": subject, **describe(name, fields), **fields}
        found = self._post_office.queues.get(queue)
        self._journal.batch.event(name, now_ms, queue, queue if found is None else found.address, content)
        if self._bound:
            self.waiting.append((name, content))
            self._wake()
        return True

    @property
    def _bound(self) -> bool:
        return bool(self.address.queues or self.exchange.bindings)

    def _takes_events(self, name: str) -> bool:
        queue = self._post_office.queues.get(name)
        return queue is not None and (queue.address == EVENTS or bool(self.exchange.bindings_to(Destination(name, is_queue=True))))


def _log_fault(name: str, group: FaultGroup, failures: int) -> None:
    """Without its text, which its program wrote."""
    said: tuple[str, str, str] = group.fingerprint, group.queue, group.error_class or "no error named"
    if name == FAULT_NEW:
        log.warning("fault-new: fault %s of queue %s: %s", *said, extra=APART)
    elif name == FAULT_GROWING:
        log.warning("fault-growing: fault %s of queue %s: %s, %d failures this hour", *said, failures, extra=APART)
    elif name == FAULT_REGRESSED:
        fixed = f" in {group.fixed_in}" if group.fixed_in else ""
        log.warning("fault-back: fault %s of queue %s: %s, which was said to be fixed%s", *said, fixed, extra=APART)
