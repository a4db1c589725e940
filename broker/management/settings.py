"""Settings: what holds for an address, and where each value came from."""

from __future__ import annotations

from typing import Any

from ..broker import Broker
from . import arguments as read


def explain(broker: Broker, arguments: dict[str, Any]) -> dict[str, Any]:
    """Where the address has a queue of its name, what holds for that: its declaration and its policy go before the address settings."""
    read.only(arguments, "address")
    address = read.text(arguments, "address")
    origins, exchange, routing_key = broker.explain(address)
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
