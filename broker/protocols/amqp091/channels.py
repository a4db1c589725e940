"""The channels of one connection, by number, and the goodbyes of those that are closed."""

from __future__ import annotations

from enum import Enum
from typing import Final

from ...shares import give_back, take
from .channel import Channel
from .codec import AmqpError, Event, MethodEvent, method_frame
from .codec_methods import NUMBER, named
from .connection import AmqpConnection
from .in_order import InOrder

_OPEN: Final = NUMBER["channel.open"]
_CLOSE: Final = NUMBER["channel.close"]
_CLOSE_OK: Final = NUMBER["channel.close-ok"]


class _How(Enum):
    #: We closed it; the answer is to come.
    BY_US = 0
    #: The client did; the answer is to be written when what the channel gave back is on disk.
    BY_CLIENT = 1
    #: It is written.
    ANSWERED = 2


class _Closed:
    """``answers``: what is still to be said on it, and the goodbye behind that."""

    def __init__(self, how: _How, answers: InOrder) -> None:
        self.how = how
        self.answers = answers


class Channels:
    def __init__(self, session: AmqpConnection, most: int) -> None:
        self._session = session
        self.most = most
        self.open: dict[int, Channel] = {}
        #: Those that are open, for the frame reader.
        self.numbers: set[int] = set()
        #: What still comes on these was sent before the goodbye was read, or by a thread that knows nothing of it: it is passed over.
        self.closed: dict[int, _Closed] = {}

    def at(self, number: int) -> Channel:
        channel = self.open.get(number)
        if channel is None:
            raise AmqpError(504, f"CHANNEL_ERROR - expected 'channel.open' on channel {number}")
        return channel

    def add(self, number: int) -> None:
        if number in self.open:
            raise _second_open(number)
        if number > self.most:
            raise AmqpError(530, f"NOT_ALLOWED - channel {number} is above the negotiated {self.most}", _OPEN)
        take(self._session.shares, "channels")
        self.open[number] = Channel(self._session, number)
        self.numbers.add(number)
        self._session.write(method_frame(number, "channel.open-ok", b"", dialect=self._session.dialect))

    def close(self, number: int) -> None:
        """The client says goodbye."""
        self._answer(number, self._forget(number, _How.BY_CLIENT))

    def _answer(self, number: int, closed: _Closed) -> None:
        def answer() -> None:
            self._session.write(method_frame(number, "channel.close-ok"))
            closed.how = _How.ANSWERED

        session = self._session
        session.broker.settling.when_over(session.connection.name, lambda: closed.answers.when_safe(answer))

    def close_for(self, number: int, error: AmqpError, method: int) -> None:
        """We do; ``method`` caused it."""
        self._session.exceptions.of_channel(self._session.shown, number, named(method), f"{error.code} {error.text}")
        frame = method_frame(number, "channel.close", error.code, error.text, method >> 16, method & 0xFFFF)
        self._forget(number, _How.BY_US).answers.now(lambda: self._session.write(frame))

    def _forget(self, number: int, how: _How) -> _Closed:
        self.numbers.discard(number)
        channel = self.open.pop(number)
        closed = self.closed[number] = _Closed(how, channel.answers)
        self._session.forget_content(number)
        channel.close()
        give_back(self._session.shares, "channels")
        return closed

    def passes_over(self, event: Event) -> bool:
        """What comes on a closed channel; False where it is open to whatever comes from here on."""
        channel, closed = event.channel, self.closed[event.channel]
        how = closed.how
        number = event.number if isinstance(event, MethodEvent) else 0
        if number == _OPEN and how is not _How.BY_US:
            if how is _How.BY_CLIENT:
                raise _second_open(channel)
            del self.closed[channel]
            return False
        if number == _CLOSE_OK and how is _How.BY_US:
            del self.closed[channel]
        elif number == _CLOSE and how is _How.BY_US:
            # Both say goodbye at once: either is answered, and the answer to ours may come or not.
            del self.closed[channel]
            closed.answers.now(lambda: self._session.write(method_frame(channel, "channel.close-ok")))
        elif number == _CLOSE:
            self._answer(channel, closed)
        return True

    def after_reading(self) -> None:
        """What came together with a goodbye has been passed over; what comes on that channel later is an error."""
        for number in [number for number, closed in self.closed.items() if closed.how is _How.ANSWERED]:
            del self.closed[number]

    def let_go(self) -> None:
        """The connection ends."""
        give_back(self._session.shares, "channels", len(self.open))
        self.open.clear()
        self.numbers.clear()


def _second_open(number: int) -> AmqpError:
    return AmqpError(504, f"CHANNEL_ERROR - second 'channel.open' seen on channel {number}", _OPEN)
