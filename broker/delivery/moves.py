"""Messages that died in one queue join others, many at a time."""

from __future__ import annotations

from homing.journal.contract import MinuteColumn

from ..core.message import REFERENCE_BYTES, Hop, MessageReference
from ..core.queue import Queue
from .state import BrokerState, expires_when_moved

#: A reference that ends, and the way of its message from here on.
Moved = tuple[MessageReference, list[Hop]]


def move_all(state: BrokerState, queues: list[Queue], moved: list[Moved]) -> list[MessageReference]:
    """Their new references, on the books too and in SETTLING until they are placed. What they were is still to leave."""
    if len(queues) > 1:
        return [new for old, hops in moved for new in state.enter(old.message, queues, MinuteColumn.MOVED_IN, hops=hops)]
    queue, now_ms = queues[0], state.now_ms()
    contents, expires_at_ms = queue.references, expires_when_moved(queue, now_ms)
    references: list[MessageReference] = []
    durable = 0
    for sequence, (old, hops) in enumerate(moved, state.ledger.next_ids(len(moved))):
        message = old.message
        reference = MessageReference(message, queue, sequence, now_ms)
        reference.hops = hops
        reference.expires_at_ms = expires_at_ms
        contents[reference.sequence] = reference
        message.references += 1
        durable += message.durable
        references.append(reference)
        if expires_at_ms is not None:
            state.expiries.add(reference)
    state.durable_bytes += REFERENCE_BYTES * durable
    state.transient_bytes += REFERENCE_BYTES * (len(moved) - durable)
    state.memory_bytes += REFERENCE_BYTES * len(moved)
    state.ledger.moved_in(queue, references)
    return references
