"""Settings: what holds for an address, and where each value came from."""

from __future__ import annotations

from typing import Any

from broker.broker import Broker
from broker.management import arguments as read


def explain(broker: Broker, arguments: dict[str, Any]) -> dict[str, Any]:
    read.only(arguments, "address")
    address = read.text(arguments, "address")
    return {
        "address": address,
        "settings": [
            {
                "key": origin.key,
                "value": list(origin.value) if isinstance(origin.value, tuple) else origin.value,
                "pattern": origin.pattern,
                "line": origin.line,
            }
            for origin in broker.state.settings.explain(address)
        ],
    }
