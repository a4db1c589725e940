"""The plain case of messages for several queues, a list at a time: every queue takes every message, at once.

What publish.py does for each message by itself, with everything looked up once that is the same for all of them. The body is stored once.
"""

from __future__ import annotations

from typing import Final

from homing.journal.contract import MessageRecord, QueueStat, ReferenceRecord, make

from ..core.counts import SENT
from ..core.message import Message
from ..core.queue import Queue
from .references import expires_at
from .state import BrokerState

_MINUTE_MS: Final = 60_000


def fan_out(state: BrokerState, messages: list[Message], queues: list[Queue]) -> bool:
    """Stores fresh messages in each of several durable queues: in memory where there is room for all, else on disk where none is for any.

    False, and nothing done, where a queue would keep some of them in memory and not the others.
    """
    stay = _stay(state, messages, queues)
    if stay is None:
        return False
    now_ms, batch = state.now_ms(), state.recorder.batch
    # In the first queue they have the messages' own numbers.
    sequence = state.recorder.next_ids(len(messages) * len(queues))
    records = state.references.share(messages, sequence, sum(stay))
    stored: dict[int, ReferenceRecord] = {}
    minute, durable = now_ms // _MINUTE_MS, sum([message.durable for message in messages])
    counts, sent, join = batch.counts, int(QueueStat.SENT), state.references.join
    for queue, stays in zip(queues, stay, strict=True):
        queue.counts[SENT] += len(messages)
        if not stays:
            _join_on_disk(state, queue, messages, records, sequence, now_ms, stored)
            counts(queue.queue_id, minute)[sent] += len(messages)
        elif queue.consumers:
            queue.append_all(join(queue, messages, sequence, durable))
        else:
            # Nobody is there that they could be offered to.
            queue.pending.append_all(join(queue, messages, sequence, durable))
        sequence += len(messages)
        if queue.consumers:
            state.mark_ready(queue)
    if stored:
        batch.add_fresh(stored, 0)
    return True


def _stay(state: BrokerState, messages: list[Message], queues: list[Queue]) -> list[bool] | None:
    """For each queue whether it keeps all of them in memory, or none; None where one keeps a part."""
    pager, number, size = state.pager, len(messages), sum([message.size for message in messages])
    stay = pager.rooms(queues, number, size)
    if not all(stay):
        durable = sum([message.durable for message in messages])
        if durable < number:
            # What is not durable stays in memory, room or not.
            return None if durable else [True] * len(queues)
        priorities = {queues[0].priority_of(message.priority) for message in messages}
        if any(pager.keeps(queue, priority) for queue, stays in zip(queues, stay, strict=True) if not stays for priority in priorities):
            return None
    return stay


def _join_on_disk(
    state: BrokerState,
    queue: Queue,
    messages: list[Message],
    records: list[MessageRecord | None],
    sequence: int,
    now_ms: int,
    stored: dict[int, ReferenceRecord],
) -> None:
    """One queue's references, none of which is in memory."""
    settings, arrived, queue_id = queue.settings, state.pager.arrived, queue.queue_id
    for message, record in zip(messages, records, strict=True):
        assert record is not None, "only durable messages go to disk"
        expires_at_ms = expires_at(settings, now_ms, message.expires_at_ms)
        priority = queue.priority_of(message.priority)
        values = (queue_id, priority, sequence, 0, 0, 0, 0, None, expires_at_ms, 0, 0, now_ms, None, record, True)
        stored[sequence] = make(ReferenceRecord, values)
        arrived(queue, priority, sequence, message.size, expires_at_ms)
        sequence += 1
