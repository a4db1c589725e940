"""What one channel publishes and settles in a transaction, where it has one: nothing takes effect before that is committed."""

from __future__ import annotations

from collections.abc import Callable

from ...core.transaction import Transaction
from .codec import PublishEvent
from .codec_methods import NUMBER
from .connection import AmqpConnection, Pattern
from .errors import precondition_failed
from .publishing import held_bytes
from .unacked import Unacked

#: A publish of a transaction, and what it comes to.
Held = tuple[PublishEvent, Pattern]


class Transacted:
    """``timed_out``: called when one has been open too long."""

    def __init__(self, session: AmqpConnection, number: int, timed_out: Callable[[], None]) -> None:
        self._session = session
        self._number = number
        self._timed_out = timed_out
        #: None: what is published and settled takes effect at once.
        self.open: Transaction[Held] | None = None
        #: Deliveries settled in it, and what is to become of each.
        self.settled: list[tuple[Unacked, str]] = []

    def begin(self) -> None:
        """The next one."""
        self.open = self._session.broker.transactions.begin(self._session.connection, self._number, self._timed_out)
        self.settled = []

    def end(self) -> None:
        """Nothing of it takes effect."""
        self._session.broker.transactions.end(self._session.connection, self._number)

    def asked_for(self, method: str) -> Transaction[Held]:
        """The one that the method is about. Raises AmqpError where there is none."""
        if self.open is None:
            raise precondition_failed("channel is not transactional", NUMBER[method])
        return self.open

    def publish(self, transaction: Transaction[Held], event: PublishEvent, pattern: Pattern) -> None:
        """Raises AmqpError where that is too much for it."""
        self._session.broker.transactions.hold(transaction, [(event, pattern)], held_bytes(event))
        _check(transaction)

    def settle(self, transaction: Transaction[Held], taken: list[Unacked], how: str) -> None:
        """Raises AmqpError where that is too much for it."""
        self.settled += [(entry, how) for entry in taken]
        self._session.broker.transactions.hold(transaction, [], 0, len(taken))
        _check(transaction)


def _check(transaction: Transaction[Held]) -> None:
    """A transaction may not grow without end."""
    if transaction.broken is not None:
        _, message, fix = transaction.broken
        raise precondition_failed(f"{message}: {fix}")
