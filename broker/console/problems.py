"""What went wrong, as the pages and their status say it: the broker's own codes, and what each means over HTTP."""

from __future__ import annotations

from typing import Final, Self

import homing

_STATUS: Final = {
    "access-refused": 403,
    "wrong-form": 403,
    "users-required": 403,
    "login-refused": 401,
    "login-required": 401,
    "login-held-back": 429,
    "redrive-running": 409,
    "redrive-ended": 409,
    "queue-full": 409,
    "message-held": 409,
    "internal-error": 500,
    "journal-unreadable": 500,
    "history-unreadable": 500,
}
#: Of a console that only shows.
READ_ONLY: Final = ("read-only", "this console only shows, and does nothing", "use another, or the command that the page has")
_AWAY: Final = ("no-broker", "connect-timeout", "connection-lost", "wrong-protocol")
_TITLES: Final = {
    400: "That cannot be asked",
    401: "Not logged in",
    403: "No right to that",
    404: "Not there",
    405: "Not that way",
    409: "Not as things are",
    429: "Too many logins failed",
    500: "The broker failed on this",
    502: "The broker cannot be asked",
    503: "The broker is away",
}


class Problem(Exception):
    """``code`` is stable; ``message`` one sentence; ``fix`` what to do."""

    def __init__(self, code: str, message: str, fix: str, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.fix = fix
        self.status = status

    @property
    def title(self) -> str:
        return _TITLES[self.status]

    @property
    def passes(self) -> bool:
        """Whether it may be over by itself in a while."""
        return self.status == 503

    @classmethod
    def of(cls, error: homing.HomingError) -> Self:
        return cls(error.code, error.message, error.fix, _status_of(error))


def _status_of(error: homing.HomingError) -> int:
    if error.code in _AWAY or error.connection_lost:
        return 503
    if error.code in _STATUS:
        return _STATUS[error.code]
    if error.code.startswith(("no-such-", "unknown-")):
        return 404
    return 400 if isinstance(error, homing.CallError | homing.UsageError) else 502
