"""Names that begin with ``homing.`` are the broker's own: nobody makes one, in any virtual host."""

from __future__ import annotations

from typing import Final

RESERVED: Final = "homing."
#: The exchange that takes what AMQP's clients report of deliveries that failed (docs/interoperability.md).
FAILURE: Final = "homing.failure"
#: The address, and the exchange in the virtual host ``/``, of the broker's events (docs/operations.md).
EVENTS: Final = "homing.events"
