"""What an AMQP session needs of the socket it speaks through."""

from __future__ import annotations

from typing import Protocol


class Output(Protocol):
    """The transport's side of a connection."""

    @property
    def writable(self) -> bool: ...

    def write(self, data: bytes) -> None: ...

    def end(self) -> None:
        """Closes the socket once everything written has left."""

    def opened(self, heartbeat_ms: int) -> None:
        """Login is done: the heartbeat applies from here on."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...
