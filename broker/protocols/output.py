"""What a session needs of the socket it speaks through: the transport's side of a connection."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger("homing")


class Flushed(Protocol):
    """A socket."""

    def flush(self) -> None:
        """What was written to it leaves."""

    def abort(self) -> None: ...


class Outgoing:
    """What was written to sockets leaves together: when the broker's turn or a commit's answers are over, else in the loop's next turn.

    ``call_soon``: calls what it is given in that.
    """

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._waiting: list[Flushed] = []

    def add(self, socket: Flushed) -> None:
        """Something is to leave."""
        if not self._waiting:
            self._call_soon(self.leave)
        self._waiting.append(socket)

    def leave(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for socket in waiting:
                try:
                    socket.flush()
                except Exception:
                    log.exception("session-failed: what a session said could not be sent; its connection is closed, the others go on")
                    socket.abort()


class Output(Protocol):
    @property
    def writable(self) -> bool: ...

    @property
    def endpoint(self) -> str:
        """Where the peer is: address and port."""

    def write(self, data: bytes) -> None: ...

    def end(self) -> None:
        """Hangs up once everything written has left."""

    def leave(self) -> None:
        """What was written last is the goodbye: it is the peer that hangs up, within a time."""

    def opened(self, heartbeat_ms: int, of_peer_ms: int | None = None) -> None:
        """Login is done: the wide limits and the heartbeat apply from here on. ``of_peer_ms``: the peer's, where it is another."""


class PausableOutput(Output, Protocol):
    """Where the protocol has no credit, who sends too much is not read."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class PatientOutput(PausableOutput, Protocol):
    """Who has much to do has it done in several turns of the loop."""

    def late(self) -> bool:
        """Whether this turn has taken long enough: what is left waits for another."""

    def wait_turn(self) -> None:
        """The session's ``have_turn`` is called in it."""
