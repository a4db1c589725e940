"""How a lost connection is sought again: back-off with jitter, and when to give up. Pure; the connection does the waiting."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from .errors import UsageError

#: Codes of an ERROR frame after which coming back is sensible: they speak of the moment, not of this client.
PASSING_ERRORS: Final = frozenset(
    {
        *("broker-stopping", "connection-closed", "handshake-gave-way", "heartbeat-missed", "internal-error", "login-failed"),
        *("login-held-back", "login-timeout", "no-leader", "too-many-connections"),
    }
)
#: A connection that lived shorter than this does not end the outage: the back-off goes on where it stood.
STEADY_AFTER_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class ReconnectPolicy:
    """``maximum_attempts`` (-1: no limit, 0: never reconnect) and ``maximum_time_ms`` (-1: no limit) bound one outage.

    Waits grow from ``initial_delay_ms`` by ``multiplier`` to ``maximum_delay_ms``; each is drawn from [half of it, all of it],
    so that a thousand clients do not come back at the same instant. ``first_attempts`` is for the very first connect. However long an
    outage lasts, what is kept for it is bounded: sends wait at ``max_unconfirmed``.
    """

    maximum_attempts: int = -1
    maximum_time_ms: int = -1
    initial_delay_ms: int = 50
    maximum_delay_ms: int = 5_000
    multiplier: float = 2.0
    first_attempts: int = 1

    def __post_init__(self) -> None:
        if min(self.maximum_attempts, self.maximum_time_ms) < -1 or self.initial_delay_ms < 0 or self.multiplier < 1:
            raise UsageError("invalid-option", f"{self} has a value below its least", "see docs/client.md, reconnecting")
        if self.maximum_delay_ms < self.initial_delay_ms or self.first_attempts < 1:
            raise UsageError("invalid-option", f"{self} contradicts itself", "see docs/client.md, reconnecting")

    def delay_ms(self, attempt: int, rng: random.Random) -> float:
        """Wait before attempt 1, 2, …. The exponent is bounded: no overflow in an outage of days."""
        grown = min(float(self.maximum_delay_ms), self.initial_delay_ms * self.multiplier ** min(attempt - 1, 64))
        return grown * (0.5 + rng.random() / 2)

    def gives_up(self, attempt: int, elapsed_ms: float) -> bool:
        """Whether attempt number ``attempt`` (from 1) is no longer made, ``elapsed_ms`` after the loss."""
        too_many = self.maximum_attempts != -1 and attempt > self.maximum_attempts
        return too_many or (self.maximum_time_ms != -1 and elapsed_ms > self.maximum_time_ms)


NEVER: Final = ReconnectPolicy(maximum_attempts=0)
