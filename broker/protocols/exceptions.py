"""What the log says of one connection's exceptions, as RabbitMQ says it: who, where, and the text that the client is given."""

from __future__ import annotations

import logging
import time
from typing import Final, Protocol

from ..connection import Connection
from ..core.seldom import APART
from ..logs.writer import visible

log = logging.getLogger("homing")

#: So many of one connection in so long; the rest is counted.
_MOST: Final = 10
_MINUTE_S: Final = 60.0
_MOST_TEXT: Final = 400


class Exceptions:
    """``who`` is the connection in words, as far as it is known by then."""

    __slots__ = ("_began_s", "_left", "_said")

    def __init__(self) -> None:
        self._began_s = 0.0
        self._said = self._left = 0

    def of_channel(self, who: str, channel: int, method: str, text: str) -> None:
        """It closes the channel."""
        if self._may_say(who):
            log.warning("channel-exception: %s, channel %d%s: %s", who, channel, method, visible(text, _MOST_TEXT), extra=APART)

    def of_connection(self, who: str, channel: int, method: str, text: str) -> None:
        """It closes the connection."""
        if self._may_say(who):
            log.warning("connection-exception: %s, channel %d%s: %s", who, channel, method, visible(text, _MOST_TEXT), extra=APART)

    def _may_say(self, who: str) -> bool:
        now_s = time.monotonic()
        if not self._said or now_s - self._began_s >= _MINUTE_S:
            self.over(who)
            self._began_s, self._said = now_s, 0
        if self._said >= _MOST:
            self._left += 1
            return False
        self._said += 1
        return True

    def over(self, who: str) -> None:
        """What was left out is said when the connection ends, or goes on after its minute."""
        if self._left:
            log.warning("exceptions-left-out: %s: %d more within a minute", who, self._left, extra=APART)
            self._left = 0


class _Error(Protocol):
    code: str
    message: str


def connection_ended(protocol: str, connection: Connection | None, place: str, error: _Error) -> None:
    """What ends a connection whose protocol has no channels; calls that are refused are answers."""
    who = f" {connection.name} ({place}), user {connection.user}" if connection is not None else f" from {place}"
    said = visible(error.message, _MOST_TEXT)
    log.warning("connection-exception: %s connection%s: %s: %s", protocol, who, error.code, said, extra=APART)
