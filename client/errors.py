"""What can go wrong, as exceptions that say what to do.

Every error carries ``code`` (stable, kebab-case), ``message`` (one sentence), ``fix`` (what to do) and ``connection_lost``: true
when the connection broke under the operation, so that its outcome is the broker's to tell after a reconnect. One subclass a
family, so that a program can catch the kind it can handle.
"""

from __future__ import annotations

from typing import Final

SEE_PROTOCOL: Final = "report this with the versions of client and broker; docs/protocol.md says what is allowed"


class HomingError(Exception):
    """Base of all errors of this client. ``code`` never changes its meaning between versions."""

    def __init__(self, code: str, message: str, fix: str, connection_lost: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.fix = fix
        self.connection_lost = connection_lost

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]; {self.fix}"


class UsageError(HomingError):
    """The program asked for something that cannot be: a wrong argument, option or order of calls. Nothing was sent."""


class ConnectError(HomingError):
    """No connection could be made: nobody listens there, the login was refused, or the versions do not fit."""


class ConnectionLost(HomingError):
    """The connection broke, and with it the operation. ``connection_lost`` is always true."""

    def __init__(self, code: str, message: str, fix: str) -> None:
        super().__init__(code, message, fix, connection_lost=True)


class SendError(HomingError):
    """A message was not stored: the broker refused it, or one before it (``not-sent-after-refusal``)."""


class ConsumerError(HomingError):
    """A consumer could not be opened, was ended by the broker, or cannot be used the way it was asked to."""


class SettleError(HomingError):
    """An acknowledgement or failure found its message no longer held (``not-held``)."""


class TransactionError(HomingError):
    """A transaction did not commit (``transaction-rolled-back``, the broker's own code) or may have (``outcome-unknown``)."""


class CallError(HomingError):
    """The broker refused a management call."""


class CloseIncomplete(HomingError):
    """A close that could not settle everything in its time.

    ``unconfirmed_sends``: messages whose fate is unknown. ``failed_sends``: messages refused without anybody having looked at
    their confirmation. ``unwritten_acknowledgements``: acknowledgements that never left. ``answered``: whether the broker
    confirmed the close; if not, acknowledgements that were written but not confirmed may be lost as well.
    """

    def __init__(self, unconfirmed_sends: int, failed_sends: int, unwritten_acknowledgements: int, answered: bool) -> None:
        parts = [
            f"{unconfirmed_sends} sends without a confirm" if unconfirmed_sends else "",
            f"{failed_sends} failed sends that nobody looked at" if failed_sends else "",
            f"{unwritten_acknowledgements} acknowledgements not written" if unwritten_acknowledgements else "",
            "" if answered else "no answer of the broker to the close",
        ]
        super().__init__(
            "close-incomplete",
            "the close left something unknown: " + ", ".join(part for part in parts if part),
            "give close_timeout_ms more time, or flush() producers before closing",
            connection_lost=not answered,
        )
        self.unconfirmed_sends = unconfirmed_sends
        self.failed_sends = failed_sends
        self.unwritten_acknowledgements = unwritten_acknowledgements
        self.answered = answered
