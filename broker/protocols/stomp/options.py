"""What the configuration says of STOMP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: Of a frame's headers beside the properties of its message: the destination, the receipt and so on.
_OWN_HEADERS_BYTES: Final = 8 * 1024


@dataclass(frozen=True, slots=True)
class StompOptions:
    #: What ``CONNECTED`` says the broker is.
    server: str
    #: The exchange of which topics are keys; None: they are addresses.
    topics: str | None = None
    heartbeat_ms: int = 10_000
    max_message_bytes: int = 16 * 1024 * 1024
    max_properties_bytes: int = 64 * 1024
    max_cache_bytes: int = 1 << 20

    @property
    def max_head_bytes(self) -> int:
        return self.max_properties_bytes + _OWN_HEADERS_BYTES
