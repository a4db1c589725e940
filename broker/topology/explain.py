"""What holds for an address, and where each value came from: where there is a queue of its name, its declaration and its policy go before
the address settings.
"""

from __future__ import annotations

from typing import NamedTuple

from ..core.amqp.declared import AMQP, arguments_of
from ..core.queue import Queue
from ..core.redelivery import delays_returns
from ..core.settings.address_settings import FIELD_OF_KEY, Origin
from ..delivery.state import BrokerState
from .amqp.arguments import delayed_retries
from .amqp.policies import dead_letter_exchange, fields_of


class Explained(NamedTuple):
    origins: list[Origin]
    dead_letter_exchange: str | None
    dead_letter_routing_key: str | None
    #: It was declared over AMQP, and no delay is meant for what AMQP clients return.
    amqp_returns_at_once: bool


def explain(state: BrokerState, address: str) -> Explained:
    queue = state.post_office.queues.get(address)
    origins = state.settings.explain(address)
    if queue is None or queue.address != address:
        return Explained(origins, None, None, False)
    at_once = AMQP in queue.options and not delays_returns(queue.settings)
    return Explained([_in_force(queue, origin) for origin in origins], *dead_letter_exchange(queue), at_once)


def _in_force(queue: Queue, origin: Origin) -> Origin:
    field = FIELD_OF_KEY[origin.key]
    value = getattr(queue.settings, field)
    if queue.policy is not None and fields_of(queue.policy).get(field, origin) == value:
        return Origin(origin.key, value, f"policy {queue.policy.name}", None)
    if field in queue.options or field in delayed_retries(arguments_of(queue), {}):
        return Origin(origin.key, value, "the queue's declaration", None)
    if value == origin.value:
        return origin
    # RabbitMQ's limit, where AMQP declared the queue.
    return Origin(origin.key, value, f"default of {arguments_of(queue).get('x-queue-type', 'classic')} queues", None)
