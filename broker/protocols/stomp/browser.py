"""A browser: what is in a queue is shown to one connection, in order, and stays there."""

from __future__ import annotations

from typing import Final

from ...broker import Broker
from ...connection import Connection
from ...core.amqp.declared import MOST_PRIORITY
from ...core.message import MessageReference, Where
from ...core.selector import Selector
from ...steps import Steps
from ..output import Output
from .codec import END
from .message_mapping import message_frames

#: Messages that are shown together.
_PAGE: Final = 100
#: Before the first of a queue.
_BEFORE_ALL: Final = (-MOST_PRIORITY - 1, 0)
#: What waits for its time, or cannot go where it is to, is not in the queue for ActiveMQ.
_SHOWN: Final = frozenset({Where.IN_COMMIT, Where.PENDING, Where.DELIVERING})


class Browser:
    """``lines``: what each MESSAGE says of the subscription."""

    def __init__(
        self, broker: Broker, connection: Connection, queue: str, selector: Selector | None, lines: bytes, version: str, output: Output
    ) -> None:
        self._broker = broker
        self._connection = connection
        self._queue = queue
        self._selector = selector
        self._lines = lines
        self._version = version
        self._output = output
        #: Nobody looks any more.
        self.over = False

    def steps(self) -> Steps[None]:
        """Shows it all, then says that it was. Raises Refused."""
        after, queue = _BEFORE_ALL, self._broker.post_office.find_queue(self._queue)
        while queue is not None:
            places = yield from self._broker.chosen.peek(self._connection, queue, after, _PAGE)
            while not self._output.writable and self._going_on:
                yield True
            if not self._going_on:
                return
            shown = [each for _, each in places if self._shows(each)]
            self._output.write(message_frames(self._lines, shown, self._version, None))
            if len(places) < _PAGE:
                break
            after = places[-1][0]
            yield
        self._output.write(b"MESSAGE\n%smessage-id:0\nbrowser:end\n\n%s" % (self._lines, END))

    def _shows(self, reference: MessageReference) -> bool:
        return reference.where in _SHOWN and (self._selector is None or self._selector.matches(reference.lookup()))

    @property
    def _going_on(self) -> bool:
        return self._connection.open and not self.over
