"""How much each producer may send. Credit is granted ahead, so that what a blocked producer can still send is bounded, and sockets are
always read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from ..core.counts import HeldBack, Level
from ..core.memory import Kind, Memory
from ..core.message import REFERENCE_BYTES
from ..core.producer import Bound, Producer, Wait, limit_in
from ..core.routing import PostOffice
from ..core.settings.units import counted
from ..entries.disk_room import DiskRoom
from ..entries.events import Events
from ..entries.references import References
from ..recording.journal_port import JournalPort

log = logging.getLogger("homing")

WINDOW_MESSAGES: Final = 4000
WINDOW_BYTES: Final = 4 * 1024 * 1024
#: Who has sent nothing yet has no more: those who open very many producers before they send are many windows ahead.
FIRST_WINDOW_BYTES: Final = 64 * 1024
#: Even on a full house the first grant after a wait is not smaller than this.
LEAST_WINDOW_BYTES: Final = 4 * 1024
#: Producers wait while so many bytes, or a quarter of memory-limit, are on their way to the disk, until half of that is left: whoever wants
#: a confirm waits for all of it.
MOST_UNWRITTEN_BYTES: Final = 8 * 1024 * 1024
#: Grants resume when this part of a limit is free again.
_HYSTERESIS: Final = 0.95
#: A limit that has held nobody back for so long does so no more.
_OVER_MS: Final = 5_000


class FlowControl:
    """Grants credit while there is room: memory, disk, store and temporary limits, and queues that block when full."""

    def __init__(
        self,
        journal: JournalPort,
        post_office: PostOffice,
        references: References,
        events: Events,
        memory: Memory,
        disk: DiskRoom,
        now_ms: Callable[[], int],
        wake: Callable[[], None],
    ) -> None:
        self._journal = journal
        self._post_office = post_office
        self._references = references
        self._events = events
        self._memory = memory
        self._now_ms = now_ms
        self._wake = wake
        self._most_unwritten = min(MOST_UNWRITTEN_BYTES, max(memory.limit // 4, WINDOW_BYTES))
        self._disk = disk
        self.producers: dict[Producer, None] = {}
        self.waiting: dict[Producer, None] = {}
        #: Limits that hold producers back: since when, and when that was seen last.
        self._in_force: dict[str, tuple[int, int]] = {}
        #: What the producers of these sent in this turn, in bytes.
        self.charged: dict[Bound, int] = {}
        #: A turn will come when what is on its way to the disk is there.
        self._will_wake = False

    def open(self, producer: Producer) -> None:
        self.producers[producer] = None
        self.top_up(producer, FIRST_WINDOW_BYTES)

    def close(self, producer: Producer) -> None:
        self.producers.pop(producer, None)
        self.waiting.pop(producer, None)

    def charge(self, producer: Producer, messages: int, size: int) -> None:
        """Takes what a frame held off the credit."""
        producer.credit_messages -= messages
        producer.credit_bytes -= size
        for share in producer.shares:
            self._charge(share, size)

    def take(self, producer: Producer, messages: int, size: int) -> str | None:
        """``charge``, and why nothing more is taken than there was credit for: nobody is granted any, and many producers might each go on
        for a window. None: all is taken.
        """
        self.charge(producer, messages, size)
        if producer.credit_messages > 0 and producer.credit_bytes > 0:
            return None
        return self._reason(False, producer)

    def top_up(self, producer: Producer, most: int = WINDOW_BYTES) -> None:
        """Grants up to a full window when less than half of the last one is left, or says why not."""
        if producer.credit_messages > WINDOW_MESSAGES // 2 and producer.credit_bytes > producer.window_bytes // 2:
            return
        reason = self._reason(producer.waiting is not None, producer) or _share_full(producer)
        room = WINDOW_MESSAGES
        if reason is None:
            reason, room = self._blocked_queue(producer)
        if reason is not None:
            if not producer.waiting and (producer.credit_messages <= 0 or producer.credit_bytes <= 0):
                producer.sink.grant(producer, 0, 0, reason)
                self._hold_back(producer, reason)
            elif producer.waiting is not None and producer.waiting.limit != limit_in(reason):
                self._hold_back(producer, reason)
            self.waiting[producer] = None
            return
        messages = max(0, min(WINDOW_MESSAGES, room) - producer.credit_messages)
        window_bytes = min([most, self._window_bytes(), *(each.room or 0 for each in producer.shares)])
        size = max(0, window_bytes - producer.credit_bytes)
        if messages or size:
            producer.credit_messages += messages
            producer.credit_bytes += size
            producer.sink.grant(producer, messages, size, None)
        producer.window_bytes = producer.credit_bytes
        producer.waiting = None
        self.waiting.pop(producer, None)

    def _hold_back(self, producer: Producer, reason: str) -> None:
        """A line of the log when a limit begins to hold producers back; some come and go many times a second, and are one time."""
        limit, now_ms = limit_in(reason), self._now_ms()
        producer.waiting = Wait(reason, now_ms)
        began_ms, _ = self._in_force.get(limit, (now_ms, 0))
        if limit not in self._in_force:
            most = f"; {self._most()}" if limit == "memory-limit" else ""
            log.warning("producers-wait: %s%s", reason, most)
        self._in_force[limit] = began_ms, now_ms

    def held_back(self) -> list[HeldBack]:
        """Limits that hold producers back now, or would."""
        waits = [producer.waiting for producer in self.producers if producer.waiting is not None]
        why = {each.limit: each.why for each in waits}
        reasons = (self._reason_for_all(resuming=False), self._of_kind(1.0, lasting=True), self._of_kind(1.0, passing=True))
        why |= {limit_in(reason): reason for reason in reasons if reason is not None}
        since = {limit: began_ms for limit, (began_ms, _) in self._in_force.items()}
        return [HeldBack(name, why[name], sum(each.limit == name for each in waits), since.get(name)) for name in why]

    def levels(self) -> dict[str, Level]:
        """Of each limit of the whole broker, by its name."""
        references, used = self._references, self._memory.charged + self._journal.unwritten_bytes
        return {
            "memory-limit": Level(used, self._memory.limit),
            "store-limit": Level(references.stored_bytes, self._disk.store_limit),
            "temp-limit": Level(references.spilled_bytes, self._disk.temp_limit and self._disk.temp_limit()),
            "log-limit": Level(0, None) if self._disk.log is None else Level(*self._disk.log()),
        }

    def _charge(self, share: Bound, size: int) -> None:
        if not self.charged:
            self._wake()
        share.unconfirmed_bytes += size
        self.charged[share] = self.charged.get(share, 0) + size

    def watch_shares(self) -> None:
        """What came in this turn is given back to the shares when it is on disk."""
        charged, self.charged = self.charged, {}

        def stored() -> None:
            for share, size in charged.items():
                share.unconfirmed_bytes -= size
            self._wake()

        self._journal.when_stored(stored)

    def look(self, now_ms: int) -> None:
        """About once a second: limits that hold nobody back any more, and another line."""
        held = {each.waiting.limit for each in self.waiting if each.waiting is not None}
        for limit, (began_ms, last_ms) in list(self._in_force.items()):
            if limit in held:
                self._in_force[limit] = began_ms, now_ms
            elif now_ms - last_ms >= _OVER_MS:
                del self._in_force[limit]
                log.info("producers-go-on: %s held them back for %.1f s", limit, (last_ms - began_ms) / 1000)

    def _most(self) -> str:
        """Who holds most of the memory."""
        kinds = self._memory.by_kind
        kind = max(Kind, key=kinds.__getitem__)
        queues = self._post_office.queues.values()
        if kind is not Kind.QUEUES or not queues:
            return f"most is held by {kind.name.lower()}, {kinds[kind]} bytes: homing connections --by memory"
        queue = max(queues, key=lambda each: each.memory_bytes)
        return f"most is held by queue {queue.name}, {queue.memory_bytes} bytes"

    def notify_blocked(self, producer: Producer) -> None:
        """What it sent waits for its turn, so it is granted nothing now. Where nobody may send, it is given the reason."""
        if producer.waiting or (producer.credit_messages > 0 and producer.credit_bytes > 0):
            return
        reason = self._reason(False, producer)
        if reason is not None:
            self._hold_back(producer, reason)

    def relieve(self) -> None:
        """Looks again at everybody who waits; called once a turn of the loop after messages have left."""
        if self._reason_for_all(resuming=True) is not None:
            return
        for producer in list(self.waiting):
            self.top_up(producer)

    def _written(self) -> None:
        self._will_wake = False
        self._wake()

    def _window_bytes(self) -> int:
        """Half of what is free of memory, and of what may be on its way to the disk, is for all windows together."""
        unwritten = self._journal.unwritten_bytes
        free = min(self._memory.limit - self._memory.charged - unwritten, self._most_unwritten - unwritten)
        share = free // (2 * max(1, len(self.producers)))
        return max(LEAST_WINDOW_BYTES, min(WINDOW_BYTES, share))

    def _reason(self, resuming: bool, producer: Producer) -> str | None:
        """Why this one may not send now: nobody may, or there is no room for messages as it sent last."""
        part = _HYSTERESIS if resuming else 1.0
        return self._reason_for_all(resuming) or self._of_kind(part, producer.lasting, producer.passing)

    def _of_kind(self, part: float, lasting: bool = False, passing: bool = False) -> str | None:
        """The limit of durable messages holds back nobody who sends others, nor the other way round."""
        references = self._references
        if lasting and self._disk.store_limit is not None and references.stored_bytes >= self._disk.store_limit * part:
            return f"store-limit: {references.stored_bytes} of {self._disk.store_limit} bytes of durable messages are kept"
        if lasting and self._disk.log is not None:
            used, most = self._disk.log()
            if used >= most * part:
                return f"log-limit: the log takes {used} of {most} bytes; producers wait until enough nodes have what is in it"
        if passing and self._disk.temp_limit is not None and references.spilled_bytes >= (most := self._disk.temp_limit()) * part:
            return f"temp-limit: {references.spilled_bytes} of {most} bytes of messages that are not durable are on disk"
        return None

    def _reason_for_all(self, resuming: bool) -> str | None:
        """Why nobody may send now; None when everybody may. Resuming wants a little more room than going on."""
        part = _HYSTERESIS if resuming else 1.0
        if self._disk.low():
            return "disk-low: free disk space is down to the reserve; producers wait until there is more"
        unwritten = self._journal.unwritten_bytes
        if unwritten >= (self._most_unwritten // 2 if resuming else self._most_unwritten):
            if not self._will_wake:
                self._will_wake = True
                self._journal.when_safe(self._written)
            return f"disk-busy: {unwritten} bytes are on their way to the disk; producers wait until they are there"
        used, limit = self._memory.charged + unwritten, self._memory.limit
        if used >= limit * part:
            return f"memory-limit: {used} of {limit} bytes are in use; producers wait for consumers to take some"
        return None

    def _blocked_queue(self, producer: Producer) -> tuple[str | None, int]:
        """(reason, how many messages there is room for) from queues whose overflow is ``block``."""
        address = self._post_office.addresses.get(producer.address)
        room = WINDOW_MESSAGES
        for queue in address.queues if address is not None else ():
            settings = queue.settings
            if settings.overflow != "block":
                continue
            if settings.max_length is not None:
                room = min(room, settings.max_length - queue.ready)
            if settings.max_length_bytes is not None:
                room = min(room, (settings.max_length_bytes - queue.ready_bytes) // REFERENCE_BYTES)
            if room <= 0:
                self._events.queue_full(queue)
                return (
                    f"queue-full: {queue.name} holds {counted(queue.ready, 'message')}; producers wait until consumers have taken some",
                    0,
                )
        return None, room


def _share_full(producer: Producer) -> str | None:
    return next((each.why_full for each in producer.shares if (each.room or 0) <= 0), None)
