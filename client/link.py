"""All that sessions, producers and consumers know of their connection: the wire while it stands, requests and their answers, numbers, and
who gets which frame."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

from homing.broker.protocols.native.codec import Op

from .errors import CallError, HomingError, UsageError
from .waiting import Waiters
from .wire import Frame, Wire

#: What a frame needs beyond its messages, with room to spare.
FRAME_HEAD_BYTES: Final = 256
MAX_PRODUCERS: Final = 65_535

log = logging.getLogger("homing.client")


class Reply:
    """The answer to one request: a future, a step to take at once when it arrives, or both.

    ``answered`` and ``failed`` run inside frame handling, before any later frame is looked at: state must not wait for a task to be
    scheduled. The future is for the task that asked.
    """

    __slots__ = ("_answered", "_failed", "error_type", "future")

    def __init__(
        self,
        error_type: type[HomingError],
        future: asyncio.Future[Any] | None = None,
        answered: Callable[[Any], None] | None = None,
        failed: Callable[[HomingError], None] | None = None,
    ) -> None:
        self.error_type = error_type  # what a REFUSED becomes
        self.future = future
        self._answered = answered
        self._failed = failed

    def answer(self, value: Any) -> None:
        if self._answered is not None:
            self._answered(value)
        if self.future is not None and not self.future.done():
            self.future.set_result(value)

    def fail(self, error: HomingError) -> None:
        if self._failed is not None:
            self._failed(error)
        if self.future is not None and not self.future.done():
            self.future.set_exception(error)


class Opener(Protocol):
    """What is opened anew on each connection."""

    number: int

    def announce(self, wire: Wire) -> None: ...


class Sender(Opener, Protocol):
    """What the broker says to a producer."""

    def credit(self, messages: int, size_bytes: int, reason: str | None) -> None: ...

    def confirm(self, up_to: int, refused: list[Any] | None) -> None: ...


class Receiver(Opener, Protocol):
    """What the broker says to a consumer."""

    def deliver(self, first_tag: int, messages: list[list[Any]]) -> None: ...

    def deliver_bodies(
        self, first_tag: int, first_id: int, count: int, address: str, priority: int, sent_at_ms: int, durable: bool, bodies: list[bytes]
    ) -> None: ...

    def not_held(self, ranges: list[int]) -> None: ...

    def pull_was_empty(self) -> None: ...

    def cancelled(self, code: str, message: str, fix: str) -> None: ...


class Hands(Protocol):
    """What a session's messages are handed out by."""

    def fail_last(self, failure: dict[str, Any]) -> None: ...


class Link:
    """Called with every frame, in order. A frame of the wrong shape raises; the wire ends the connection.

    ``wire`` is None while no connection stands; ``gone`` says why none will. ``last`` is the session that handed out a message last.
    """

    loop: asyncio.AbstractEventLoop
    _up: Waiters

    def __init__(self, on_welcome: Callable[[int, dict[str, Any]], None], on_error: Callable[[str, str, str], None]) -> None:
        self.wire: Wire | None = None
        self.gone: HomingError | None = UsageError(
            "not-connected", "the connection was never opened", "write `async with connect(...)` or `await connect(...)`"
        )
        self.max_message_bytes = 2**24 - FRAME_HEAD_BYTES
        self.joins_bodies = False  # the broker understands SEND_BODIES
        self.last: Hands | None = None
        self._replies: dict[int, Reply] = {}
        self._requests = 0
        self._session_numbers = self._consumer_numbers = self._producer_numbers = 0
        self._free_producers: list[int] = []
        self._senders: dict[int, Sender] = {}
        self._receivers: dict[int, Receiver] = {}
        self._handlers: dict[int, Callable[..., None]] = {
            Op.WELCOME: on_welcome,
            Op.HEARTBEAT: _on_heartbeat,
            Op.CLOSED: self._on_result,
            Op.ERROR: lambda code, message, fix="": on_error(code, message, fix),
            Op.REFUSED: self._on_refused,
            Op.RESULT: self._on_result,
            Op.CREDIT: self._on_credit,
            Op.CONFIRM: self._on_confirm,
            Op.DELIVER: self._on_deliver,
            Op.DELIVER_BODIES: self._on_deliver_bodies,
            Op.NOT_HELD: self._on_not_held,
            Op.PULL_EMPTY: self._on_pull_empty,
            Op.CANCELLED: self._on_cancelled,
        }

    # -- the connection's side

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._up = Waiters(loop)
        self.gone = None

    def take_up(self, wire: Wire, max_frame_bytes: int, joins_bodies: bool) -> None:
        """A new connection stands: what was open on the last is opened on it."""
        self.wire = wire
        self.max_message_bytes = max_frame_bytes - FRAME_HEAD_BYTES
        self.joins_bodies = joins_bodies
        for each in (*self._senders.values(), *self._receivers.values()):
            each.announce(wire)
        self._up.wake_all()

    def drop(self, error: HomingError) -> None:
        """The wire is lost, and with it every answer that is waited for."""
        self.wire = None
        replies, self._replies = self._replies, {}
        for reply in replies.values():
            reply.fail(error)

    def end(self, error: HomingError) -> None:
        """No connection will stand again; whoever waits for one is notified. The first reason stays."""
        if self.gone is None:
            self.gone = error
            self._up.wake_all()

    # -- requests

    def raise_if_gone(self) -> None:
        if self.gone is not None:
            raise self.gone.with_traceback(None)

    async def connected(self) -> Wire:
        """Wait until the connection stands; raises what makes that impossible."""
        while self.wire is None:
            self.raise_if_gone()
            await self._up.wait()
        return self.wire

    def expect(self, reply: Reply) -> int:
        """A new request number whose answer goes to ``reply``."""
        self._requests += 1
        self._replies[self._requests] = reply
        return self._requests

    async def call(self, verb: str, **arguments: Any) -> Any:
        """See ``Connection.call``."""
        wire = await self.connected()
        future: asyncio.Future[Any] = self.loop.create_future()
        wire.write(Op.CALL, self.expect(Reply(CallError, future)), verb, arguments)
        return await future

    # -- numbers, and who has them

    def next_session(self) -> int:
        self._session_numbers += 1
        return self._session_numbers

    def next_consumer(self) -> int:
        self._consumer_numbers += 1
        return self._consumer_numbers

    def next_producer(self) -> int:
        if self._producer_numbers < MAX_PRODUCERS:
            self._producer_numbers += 1
            return self._producer_numbers
        if not self._free_producers:
            raise UsageError("too-many-producers", f"{MAX_PRODUCERS} producers are open on this connection", "close some, or share them")
        return self._free_producers.pop(0)

    def add_sender(self, sender: Sender) -> None:
        self._senders[sender.number] = sender
        if self.wire is not None:
            sender.announce(self.wire)

    def add_receiver(self, receiver: Receiver) -> None:
        self._receivers[receiver.number] = receiver
        if self.wire is not None:
            receiver.announce(self.wire)

    def forget_sender(self, sender: Sender) -> None:
        if self._senders.pop(sender.number, None) is not None:
            self._free_producers.append(sender.number)

    def forget_receiver(self, receiver: Receiver) -> None:
        self._receivers.pop(receiver.number, None)

    # -- frames

    def __call__(self, frame: Frame) -> None:
        handler = self._handlers.get(frame[0])
        if handler is None:
            raise ValueError(f"no frame with op {frame[0]} goes to a client")
        handler(*frame[1:])

    def _on_refused(self, request: int, code: str, message: str, fix: str = "") -> None:
        reply = self._replies.pop(request, None)
        if reply is not None:
            reply.fail(reply.error_type(code, message, fix))

    def _on_result(self, request: int, value: Any = None) -> None:
        reply = self._replies.pop(request, None)
        if reply is not None:
            reply.answer(value)

    def _on_credit(self, producer: int, messages: int, size_bytes: int, reason: str | None = None) -> None:
        if (found := self._senders.get(producer)) is not None:
            found.credit(messages, size_bytes, reason)

    def _on_confirm(self, producer: int, up_to: int, refused: list[Any] | None = None) -> None:
        if (found := self._senders.get(producer)) is not None:
            found.confirm(up_to, refused)

    def _on_deliver(self, consumer: int, first_tag: int, messages: list[list[Any]]) -> None:
        if (found := self._receivers.get(consumer)) is not None:
            found.deliver(first_tag, messages)

    def _on_deliver_bodies(
        self,
        consumer: int,
        first_tag: int,
        first_id: int,
        count: int,
        address: str,
        priority: int,
        sent_at_ms: int,
        durable: bool,
        bodies: list[bytes],
    ) -> None:
        if (found := self._receivers.get(consumer)) is not None:
            found.deliver_bodies(first_tag, first_id, count, address, priority, sent_at_ms, durable, bodies)

    def _on_not_held(self, consumer: int, ranges: list[int], request: int = 0) -> None:
        if (found := self._receivers.get(consumer)) is not None:
            found.not_held(ranges)
        log.warning("acknowledged-too-late: consumer %d acknowledged messages the broker no longer holds for it: tags %s", consumer, ranges)

    def _on_pull_empty(self, consumer: int) -> None:
        if (found := self._receivers.get(consumer)) is not None:
            found.pull_was_empty()

    def _on_cancelled(self, consumer: int, code: str, message: str, fix: str = "") -> None:
        if (found := self._receivers.get(consumer)) is not None:
            found.cancelled(code, message, fix)


def _on_heartbeat() -> None:
    """That it came is noted where bytes arrive."""
