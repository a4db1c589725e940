"""What becomes of a message that is sent to a queue that is full."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..core.dead_letter import MAX_LENGTH
from ..core.message import Message, Where
from ..core.queue import Queue
from ..core.settings.units import counted
from ..entries.events import Events
from ..entries.references import References
from ..errors import Refused
from ..recording.journal_port import JournalPort
from ..topology.resources import makes_room, over_length
from .dead_lettering import DeadLetterOffice


class Overflow:
    def __init__(
        self, journal: JournalPort, references: References, events: Events, office: DeadLetterOffice, now_ms: Callable[[], int]
    ) -> None:
        self._journal = journal
        self._references = references
        self._events = events
        self._office = office
        self._now_ms = now_ms

    def admits(self, queue: Queue, message: Message) -> bool:
        """Whether the queue takes this message on top; a refused one goes to the dead letters where the overflow says so."""
        try:
            self.check(queue, message)
        except Refused:
            return False
        return True

    def check(self, queue: Queue, message: Message | None = None) -> None:
        """Raises Refused where there is none; then the message, where it is named, goes to the dead letters if the overflow says so."""
        settings = queue.settings
        if settings.overflow == "block" or not over_length(queue, 1):
            return
        if makes_room(queue):
            return
        self._events.queue_full(queue)
        if message is not None and settings.overflow == "reject-publish-dlx":
            self._reject_to_dead_letters(queue, message)
        raise Refused(
            "queue-full",
            f"queue {queue.name} is full ({counted(queue.ready, 'message')}, {counted(queue.ready_bytes, 'byte')})",
            "send again later, raise max-length, or choose another overflow",
        )

    def check_all(self, sends: Iterable[tuple[Message, Iterable[Queue]]]) -> None:
        """Raises Refused unless every queue takes all of a transaction that is for it, and then nothing has become of any of it.

        Each message counts for the length limits that the ones after it meet.
        """
        expected: list[tuple[Queue, int]] = []
        try:
            for message, queues in sends:
                for queue in queues:
                    if queue.settings.limited:
                        self.check(queue)
                        queue.expect(1, message.size)
                        expected.append((queue, message.size))
        finally:
            for queue, size in expected:
                queue.expect(-1, -size)

    def _reject_to_dead_letters(self, queue: Queue, message: Message) -> None:
        """overflow reject-publish-dlx: the refused message itself goes to the dead letters."""
        now_ms = self._now_ms()
        copy = Message(
            self._journal.next_id(),
            message.address,
            message.body,
            message.properties,
            message.priority,
            message.durable,
            now_ms,
            message.expires_at_ms,
            message.producer,
            properties_size=message.properties_size,
            extra=message.weight - message.size,
        )
        for reference in self._references.enter(copy, [queue], now_ms):
            self._office.dead_letter_all(queue, (reference,), MAX_LENGTH, now_ms, may_wait=False)
            if reference.where is Where.PARKED:  # nobody takes it, and it was refused anyway: its sender knows
                self._references.leave(reference, "dropped", now_ms, MAX_LENGTH)
