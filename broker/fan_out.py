"""The plain case of messages for several queues, a frame at a time: every queue takes every message, at once and in memory.

What sending.py and state.py do for each reference by itself, with everything looked up once that is the same for all of them. The body
is stored once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.core.message import REFERENCE_BYTES, Message, MessageReference
from broker.core.post_office import ANYCAST, Address
from broker.core.queue import Queue
from broker.ledger import message_record
from broker.state import BrokerState, expires_at
from journal.records import MessageRecord, MinuteColumn, ReferenceRecord, make

_MINUTE_MS: Final = 60_000


def takes_all(address: Address) -> bool:
    """Whether each queue of the address takes each message, unseen."""
    queues = address.queues
    return (
        not any(queue.selector is not None for queue in queues)
        and sum(queue.routing_type == ANYCAST for queue in queues) < 2
        and take_at_once(queues)
    )


def take_at_once(queues: Sequence[Queue]) -> bool:
    """Whether they take whatever comes, at once: no limits, nothing to be written before delivery; of several, all of them durable."""
    for queue in queues:
        settings = queue.settings
        if settings.limited or settings.persist_delivery_count_before_delivery:
            return False
    return len(queues) == 1 or all(queue.durable for queue in queues)


def fan_out(state: BrokerState, messages: list[Message], queues: list[Queue]) -> bool:
    """Stores fresh messages in each of several durable queues; False, and nothing done, where one has no room in memory for all."""
    size = sum([message.size for message in messages])
    if not all(state.pager.room(queue, len(messages), size) for queue in queues):
        return False
    group, joins = state.ledger.group, len(queues)
    records: list[MessageRecord | None] = []
    for number, message in enumerate(messages, state.ledger.next_ids(len(messages))):
        message.message_id = number
        message.references = joins
        cost = message.size + REFERENCE_BYTES * joins
        if message.durable:
            message.stored = joins
            message.shared = True
            record = message_record(message)
            group.add_message(record)
            records.append(record)
            state.durable_bytes += cost
        else:
            records.append(None)
            state.transient_bytes += cost
        state.memory_bytes += cost
    for number, queue in enumerate(queues):
        _join(state, queue, messages, records, first=number == 0)
    return True


def _join(state: BrokerState, queue: Queue, messages: list[Message], records: list[MessageRecord | None], first: bool) -> None:
    """One queue's references."""
    now_ms, contents, settings = state.now_ms(), queue.references, queue.settings
    bounded = settings.no_expiry or not (settings.message_ttl_ms is settings.min_ttl_ms is settings.max_ttl_ms is None)
    references: list[MessageReference] = []
    stored: dict[int, ReferenceRecord] = {}
    queue_id = queue.queue_id
    # In the first queue they have the messages' own numbers.
    begin = messages[0].message_id if first else state.ledger.next_ids(len(messages))
    for sequence, (message, record) in enumerate(zip(messages, records, strict=True), begin):
        reference = MessageReference(message, queue, sequence, now_ms)
        if bounded:
            reference.expires_at_ms = expires_at(settings, now_ms, message.expires_at_ms)
        expires_at_ms = reference.expires_at_ms
        if expires_at_ms is not None:
            state.expiries.add(reference)
        contents[sequence] = reference
        references.append(reference)
        if record is not None:
            values = (queue_id, message.priority, sequence, 0, 0, 0, 0, None, expires_at_ms, now_ms, None, record, True)
            stored[sequence] = make(ReferenceRecord, values)
    if stored:
        group = state.ledger.group
        group.add_fresh(stored, 0)
        group.counts(queue_id, now_ms // _MINUTE_MS)[MinuteColumn.SENT] += len(stored)
    queue.append_all(references)
    state.mark_ready(queue)
