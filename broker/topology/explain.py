"""What holds for an address, and where each value came from: where there is a queue of its name, its declaration and its policy go before
the address settings.
"""

from __future__ import annotations

from typing import NamedTuple

from ..core.queue import Queue
from ..core.settings.address_settings import FIELD_OF_KEY, Origin
from ..delivery.state import BrokerState
from .amqp.policies import dead_letter_exchange, fields_of


class Explained(NamedTuple):
    origins: list[Origin]
    dead_letter_exchange: str | None
    dead_letter_routing_key: str | None


def explain(state: BrokerState, address: str) -> Explained:
    queue = state.post_office.queues.get(address)
    origins = state.settings.explain(address)
    if queue is None or queue.address != address:
        return Explained(origins, None, None)
    return Explained([_in_force(queue, origin) for origin in origins], *dead_letter_exchange(queue))


def _in_force(queue: Queue, origin: Origin) -> Origin:
    field = FIELD_OF_KEY[origin.key]
    value = getattr(queue.settings, field)
    if value == origin.value:
        return origin
    by_policy = queue.policy is not None and fields_of(queue.policy).get(field) == value
    source = f"policy {queue.policy.name}" if queue.policy is not None and by_policy else "the queue's declaration"
    return Origin(origin.key, value, source, None)
