"""Settings: what holds for an address, and where each value came from."""

from __future__ import annotations

from typing import Any, Final

from ..broker import Broker
from . import arguments as read

#: So many of an address's queues are named.
SHOWN_QUEUES: Final = 100


def explain(broker: Broker, arguments: dict[str, Any]) -> dict[str, Any]:
    """Where the address has a queue of its name, what holds for that: its declaration and its policy go before the address settings."""
    read.only(arguments, "address")
    address = read.text(arguments, "address")
    told = broker.explain(address)
    queues = broker.queues_of(address)
    return {
        "address": address,
        "queues": None if queues is None else queues[:SHOWN_QUEUES],
        "amqp_returns_at_once": told.amqp_returns_at_once,
        "dead_letter_exchange": told.dead_letter_exchange,
        "dead_letter_routing_key": told.dead_letter_routing_key,
        "settings": [
            {
                "key": origin.key,
                "value": list(origin.value) if isinstance(origin.value, tuple) else origin.value,
                "pattern": origin.pattern,
                "line": origin.line,
            }
            for origin in told.origins
        ],
    }
