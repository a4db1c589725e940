"""Settings: what holds for an address, and where each value came from."""

from __future__ import annotations

from typing import Any

from ..broker import Broker
from ..core.queue import Queue
from ..core.settings.address_settings import FIELD_OF_KEY, Origin
from ..topology.amqp.policies import dead_letter_exchange, fields_of
from . import arguments as read


def explain(broker: Broker, arguments: dict[str, Any]) -> dict[str, Any]:
    """Where the address has a queue of its name, what holds for that: its declaration and its policy go before the address settings."""
    read.only(arguments, "address")
    address = read.text(arguments, "address")
    queue = broker.state.post_office.queues.get(address)
    origins = broker.state.settings.explain(address)
    exchange, routing_key = None, None
    if queue is not None and queue.address == address:
        origins = [_in_force(queue, origin) for origin in origins]
        exchange, routing_key = dead_letter_exchange(queue)
    return {
        "address": address,
        "dead_letter_exchange": exchange,
        "dead_letter_routing_key": routing_key,
        "settings": [
            {
                "key": origin.key,
                "value": list(origin.value) if isinstance(origin.value, tuple) else origin.value,
                "pattern": origin.pattern,
                "line": origin.line,
            }
            for origin in origins
        ],
    }


def _in_force(queue: Queue, origin: Origin) -> Origin:
    field = FIELD_OF_KEY[origin.key]
    value = getattr(queue.settings, field)
    if value == origin.value:
        return origin
    by_policy = queue.policy is not None and fields_of(queue.policy).get(field) == value
    source = f"policy {queue.policy.name}" if queue.policy is not None and by_policy else "the queue's declaration"
    return Origin(origin.key, value, source, None)
