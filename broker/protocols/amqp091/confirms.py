"""Publisher confirms of one channel: its publishes are numbered, and a number is acknowledged once its message is on disk."""

from __future__ import annotations

from collections.abc import Callable

from .batch import Confirming
from .codec import ack_frame, method_frame
from .connection import AmqpConnection


class Confirms(Confirming):
    """``number``: of the channel; ``write``: a frame to it, unless it is closed."""

    def __init__(self, session: AmqpConnection, number: int, write: Callable[[bytes], None]) -> None:
        self._session = session
        self._number = number
        self._write = write
        #: The number of the last publish, and the last one that was answered.
        self.published = self._confirmed = 0
        #: Numbers of this turn's refused publishes.
        self._refused: list[int] = []

    def took(self, number: int) -> None:
        """So many publishes more."""
        self.published += number
        self._session.gathered.confirming[self] = None

    def refused(self) -> None:
        """Of the last one: some queue has refused it."""
        self._refused.append(self.published)

    def confirm(self) -> None:
        last, refused = self.published, self._refused
        self._refused = []
        self._session.broker.journal.when_stored(lambda: self._confirm(last, refused))

    def _confirm(self, last: int, refused: list[int]) -> None:
        for number in refused:
            self._acknowledge_up_to(number - 1)
            self._write(method_frame(self._number, "basic.nack", number, False, False))
            self._confirmed = number
        self._acknowledge_up_to(last)

    def _acknowledge_up_to(self, number: int) -> None:
        if number > self._confirmed:
            self._write(ack_frame(self._number, number, number > self._confirmed + 1))
            self._confirmed = number
