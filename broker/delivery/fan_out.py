"""The plain case of messages for several queues, a list at a time: every queue takes every message, at once.

What publish.py does for each message by itself, with everything looked up once that is the same for all of them. The body is stored once.
"""

from __future__ import annotations

from ..core.counts import SENT
from ..core.message import Message, MessageReference
from ..core.queue import Queue
from ..entries.ready_set import ReadySet
from ..entries.references import References, kinds
from ..entries.to_disk import ToDisk
from ..recording.journal_port import JournalPort


class FanOut:
    def __init__(self, journal: JournalPort, references: References, to_disk: ToDisk, ready: ReadySet) -> None:
        self._journal = journal
        self._references = references
        self._to_disk = to_disk
        self._ready = ready

    def store(self, messages: list[Message], queues: list[Queue], now_ms: int) -> bool:
        """Stores fresh messages in each of several durable queues: in memory where there is room for all, else on disk where none is for
        any.

        False, and nothing done, where a queue would keep some of them in memory and not the others.
        """
        size = sum([message.size for message in messages])
        keep = self._keep(messages, queues, size)
        if keep is None:
            return False
        # In the first queue they have the messages' own numbers.
        sequence = self._journal.next_ids(len(messages) * len(queues))
        records, weight = self._references.share(messages, sequence, sum(keep), size)
        durable, join = sum([message.durable for message in messages]), self._references.join
        kept: list[Queue] = []
        born: dict[int, MessageReference] = {}
        for queue, keeps in zip(queues, keep, strict=True):
            queue.counts[SENT] += len(messages)
            queue.sends |= kinds(durable, len(messages))
            if keeps:
                here = join(queue, messages, sequence, weight, now_ms, shared=True)
                # Where nobody is there is nobody that they could be offered to.
                (queue if queue.consumers else queue.pending).append_all(list(here.values()), size)
                kept.append(queue)
                born.update(here)
            else:
                self._to_disk.join(queue, messages, sequence, now_ms, records)
            sequence += len(messages)
            if queue.consumers:
                self._ready.mark(queue)
        self._references.joined(kept, born, durable, now_ms)
        return True

    def _keep(self, messages: list[Message], queues: list[Queue], size: int) -> list[bool] | None:
        """For each queue whether it keeps all of them in memory, or none; None where one keeps a part."""
        room, number = self._to_disk.room, len(messages)
        durable = sum([message.durable for message in messages])
        if durable < number and any(queue.keeps_all for queue in queues):
            # Each queue has its own say.
            return None
        keep = room.which_fit(queues, number, size)
        if not all(keep):
            if durable < number:
                # What is not durable stays in memory while there is plenty.
                return None if durable or not all(map(room.plenty, queues)) else [True] * len(queues)
            priorities = {queues[0].priority_of(message.priority) for message in messages}
            if any(room.keeps(queue, priority) for queue, keeps in zip(queues, keep, strict=True) if not keeps for priority in priorities):
                return None
        return keep
