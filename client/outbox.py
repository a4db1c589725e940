"""What one producer has on its way to the broker, in order, until the broker has it on disk.

A message stands in ``waiting`` until credit lets it go, then in ``_sent`` until CONFIRM. Numbers are consecutive: ``_base`` is the number
of the oldest message in either; a reconnect moves ``_sent`` back in front of ``waiting`` under the same numbers (docs/protocol.md 2.2).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final

from homing.broker.protocols.native.codec import MESSAGE_OVERHEAD_BYTES, Op, encode_bodies, properties_cost

from .errors import HomingError, SendError
from .link import Link, Reply
from .open_transaction import OpenTransaction
from .options import ProducerOptions
from .validation import message_fields
from .waiting import Waiters
from .wire import Wire

#: Messages are cut into frames of about this size, so that the broker can act on the first while the last is still being written.
SEND_FRAME_BYTES: Final = 128 * 1024

#: A message as it goes into a frame (docs/protocol.md 2.2): its fields, or its body, where the rest is the producer's own.
Fields = list[Any] | bytes
#: Of a confirmed message: its body need not live as long as its Confirmation.
_NO_FIELDS: Final[list[Any]] = []


class Confirmation:
    """What ``send_nowait`` returns: await it to wait for the broker's confirm, or leave it. Costs a future only when awaited.

    Awaiting raises SendError when the message was refused. A failure nobody awaited is raised by the producer's next
    ``drain()``, ``flush()`` or ``close()``.
    """

    __slots__ = ("_done", "_error", "_fields", "_outbox", "_size", "_waiters")

    def __init__(self, outbox: Outbox, fields: Fields, size: int) -> None:
        self._outbox = outbox
        self._fields = fields
        self._size = size
        self._done = False
        self._error: HomingError | None = None
        self._waiters: list[asyncio.Future[None]] | None = None

    @property
    def done(self) -> bool:
        return self._done

    def __await__(self) -> Generator[Any, None, None]:
        if not self._done:
            future: asyncio.Future[None] = self._outbox.new_future()
            if self._waiters is None:
                self._waiters = []
            self._waiters.append(future)
            try:
                yield from future.__await__()
            except asyncio.CancelledError:
                if self._error is not None:
                    self._outbox.unobserved.append(self)  # it was on its way to a task that no longer looks
                raise
        if self._error is not None:
            self._outbox.observed(self)
            raise self._error.with_traceback(None)

    def _settle(self, error: HomingError | None) -> bool:
        """Returns whether somebody is waiting to see it."""
        self._done = True
        self._error = error
        self._fields = _NO_FIELDS
        seen = False
        if self._waiters is not None:
            for future in self._waiters:
                if not future.done():
                    seen = True
                    future.set_result(None)
            self._waiters = None
        return seen


class Outbox:
    """``tail``: what stands behind the body of a message that leaves everything to the producer. ``blocked_reason`` says why the broker
    grants no credit at the moment. ``unobserved``: sends that failed and that nobody awaited. ``on_end`` is called once, when no message
    leaves any more; why is in ``ended``.
    """

    def __init__(
        self,
        link: Link,
        address: str,
        options: ProducerOptions,
        transaction: OpenTransaction | None,
        on_end: Callable[[Outbox], None],
    ) -> None:
        self.address = address
        self.number = link.next_producer()
        self.max_unconfirmed = options.max_unconfirmed
        self.tail: list[Any] = message_fields(b"", None, options.priority, options.durable, options.ttl_ms, 0, None)[0][1:]
        self.blocked_reason: str | None = None
        self.waiting: deque[Confirmation] = deque()
        self.unobserved: deque[Confirmation] = deque(maxlen=max(64, 2 * self.max_unconfirmed))
        self.ended: HomingError | None = None
        self._link = link
        self._transaction = transaction
        self._on_end = on_end
        self._sent: deque[Confirmation] = deque()
        self._gathered = 0  # bytes accepted since the last frame was written
        self._base = 1
        self._fresh = True
        self._open = False
        self._messages_credit = 0
        self._bytes_credit = 0
        self._room = Waiters(link.loop)
        self._moved = Waiters(link.loop)

    @property
    def unconfirmed(self) -> int:
        return len(self.waiting) + len(self._sent)

    # -- the producer's side

    def raise_if_unusable(self) -> None:
        if self.ended is not None:
            raise self.ended.with_traceback(None)
        if self._transaction is not None and self._transaction.broken is not None:
            raise self._transaction.broken.with_traceback(None)

    def accept(self, fields: Fields, size: int) -> Confirmation:
        confirmation = Confirmation(self, fields, size)
        self.waiting.append(confirmation)
        self._gathered += size
        wire = self._link.wire
        if wire is not None:
            wire.mark(self)
            if self._gathered >= SEND_FRAME_BYTES:
                wire.flush()
        return confirmation

    async def room(self) -> None:
        """Wait until fewer than ``max_unconfirmed`` are out, or something has failed that nobody awaited."""
        while self.unconfirmed >= self.max_unconfirmed:
            self.raise_if_unusable()
            await self._room.wait()

    async def moved(self) -> None:
        """Wait until some have been confirmed, or written in a transaction, or have failed."""
        await self._moved.wait()

    async def written(self) -> None:
        """Wait until everything handed over is on the wire; credit may make it wait. Raises what ended the producer."""
        while self.waiting and (self._transaction is None or self._transaction.broken is None):
            self.raise_if_unusable()
            await self._moved.wait()

    @property
    def transacted(self) -> bool:
        return self._transaction is not None

    @property
    def max_message_bytes(self) -> int:
        return self._link.max_message_bytes

    def new_future(self) -> asyncio.Future[None]:
        return self._link.loop.create_future()

    # -- the wire's side

    def write_pending(self, wire: Wire) -> None:
        """Write what credit allows, as few frames as the frame limit allows."""
        self._gathered = 0
        transaction = self._transaction
        if not self._open or (transaction is not None and transaction.holding):
            return
        limit = min(SEND_FRAME_BYTES, self._link.max_message_bytes)
        while self.waiting and self._messages_credit > 0 and self._bytes_credit > 0:
            first = self._base + len(self._sent)
            batch = self._batch(limit)
            if transaction is None:
                self._sent.extend(batch)
                bodies = [fields for each in batch if isinstance(fields := each._fields, bytes)]
                if len(bodies) == len(batch) and self._link.joins_bodies:
                    wire.append_encoded(encode_bodies((Op.SEND_BODIES, self.number, first, self.tail[1:]), bodies))
                else:
                    wire.append((Op.SEND, self.number, first, self._in_full(batch)))
            else:
                wire.append((Op.SEND, self.number, 0, self._in_full(batch), transaction.number))
                transaction.sends += len(batch)
                for each in batch:
                    each._settle(None)
                self._progress()

    def _in_full(self, batch: list[Confirmation]) -> list[list[Any]]:
        return [[fields, *self.tail] if isinstance(fields := each._fields, bytes) else fields for each in batch]

    def _batch(self, limit: int) -> list[Confirmation]:
        batch: list[Confirmation] = []
        size = cost = 0
        waiting, most, most_bytes = self.waiting, self._messages_credit, self._bytes_credit
        while waiting and len(batch) < most and cost < most_bytes:
            head = waiting[0]
            size += head._size
            if batch and size > limit:
                break
            batch.append(waiting.popleft())
            fields = head._fields
            if isinstance(fields, bytes):
                cost += len(fields) + MESSAGE_OVERHEAD_BYTES
            else:
                cost += len(fields[0]) + MESSAGE_OVERHEAD_BYTES
                if len(fields) > 1 and fields[1]:
                    cost += properties_cost(fields[1])
        self._messages_credit -= len(batch)
        self._bytes_credit -= cost
        return batch

    def announce(self, wire: Wire) -> None:
        """Open it on a new connection; the answer comes to ``_opened`` or ``_refused``."""
        self._messages_credit = self._bytes_credit = 0
        request = self._link.expect(Reply(SendError, answered=self._opened, failed=self._refused))
        wire.write(Op.PRODUCER, request, self.number, self.address)

    def _opened(self, value: Any) -> None:
        watermark = value["mark"]
        stored = watermark - self._base + 1
        if self._fresh:
            self._base = watermark + 1  # the number was used before by a producer that is gone
        elif stored > 0:
            for _ in range(min(stored, len(self.waiting))):
                self.waiting.popleft()._settle(None)
            self._base = watermark + 1
        self._fresh = False
        self._open = True
        self._progress()
        if self._link.wire is not None:
            self._link.wire.mark(self)

    def _refused(self, error: HomingError) -> None:
        if error.connection_lost:
            return  # announced again after the reconnect
        self.end(SendError(error.code, f"no producer for {self.address}: {error.message}", error.fix))

    def credit(self, messages: int, size_bytes: int, reason: str | None) -> None:
        self._messages_credit += messages
        self._bytes_credit += size_bytes
        if messages or size_bytes:
            self.blocked_reason = None
            if self.waiting and self._link.wire is not None:
                self._link.wire.mark(self)
        else:
            self.blocked_reason = reason

    def confirm(self, up_to: int, refused: list[Any] | None) -> None:
        unconfirmed = self._sent
        number = max(0, min(up_to - self._base + 1, len(unconfirmed)))
        for _ in range(number):
            confirmation = unconfirmed.popleft()
            if confirmation._waiters is None:
                confirmation._done = True
                confirmation._fields = _NO_FIELDS
            else:
                confirmation._settle(None)
        self._base += number
        if refused is not None:
            self._refuse(*refused)
        self._progress()

    def _refuse(self, sequence: int, code: str, message: str, fix: str) -> None:
        """One message was refused: fail it and everything behind it; numbering goes on from the refused number."""
        if not self._sent or sequence != self._base:
            raise ValueError(f"refused number {sequence}, expected {self._base}")
        self._failed(self._sent.popleft(), SendError(code, message, fix))
        self._fail_all(
            SendError(
                "not-sent-after-refusal",
                f"a message before it to {self.address} was refused ({code}), so that nothing overtakes it",
                "fix or skip the refused one, then send these again",
            )
        )

    def _progress(self) -> None:
        free = self.max_unconfirmed - self.unconfirmed
        if free > 0 and len(self._room):
            self._room.wake(free)
        if len(self._moved):
            self._moved.wake_all()

    # -- failing

    def _failed(self, confirmation: Confirmation, error: HomingError) -> None:
        if not confirmation._settle(error):
            self.unobserved.append(confirmation)

    def _fail_all(self, error: HomingError) -> None:
        for each in (*self._sent, *self.waiting):
            self._failed(each, error)
        self._sent.clear()
        self.waiting.clear()

    def observed(self, confirmation: Confirmation) -> None:
        if confirmation in self.unobserved:
            self.unobserved.remove(confirmation)

    def raise_unobserved(self) -> None:
        if not self.unobserved:
            return
        error = self.unobserved[0]._error
        self.unobserved.clear()
        assert error is not None
        raise error.with_traceback(None)

    def lost(self) -> None:
        """The connection is gone: what was sent waits again, under the same numbers."""
        self.waiting.extendleft(reversed(self._sent))
        self._sent.clear()
        self._open = False
        self._messages_credit = self._bytes_credit = 0

    def drop_waiting(self, error: HomingError) -> None:
        """A transaction was rolled back: what was not yet written of it goes as well, and whoever waits for it is notified."""
        for each in self.waiting:
            each._settle(error)
        self.waiting.clear()
        self._progress()

    def end(self, error: HomingError) -> None:
        """No message leaves any more. Idempotent; the first reason stays."""
        if self.ended is not None:
            return
        self.ended = error
        self._fail_all(error)
        wire = self._link.wire
        if wire is not None and self._open:
            wire.write(Op.END_PRODUCER, self.number)
        self._open = False
        self._on_end(self)
        self._room.wake_all()
        self._moved.wake_all()
