"""Producer: messages on their way to one address, in order, until the broker has them on disk.

A message stands in ``_waiting`` until credit lets it go, then in ``_unconfirmed`` until CONFIRM. Numbers are consecutive:
``_base`` is the number of the oldest message in either; a reconnect moves ``_unconfirmed`` back in front of ``_waiting`` under
the same numbers (docs/protocol.md 2.2).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, Final

from homing.broker.protocols.native.codec import MESSAGE_OVERHEAD_BYTES, Op, encode_bodies

from .errors import HomingError, SendError, UsageError
from .options import ProducerOptions
from .reply import Reply
from .validation import ENVELOPE_BYTES, PropertyValue, message_fields
from .waiting import Waiters

if TYPE_CHECKING:
    from .session import Session
    from .wire import Wire

#: Messages are cut into frames of about this size, so that the broker can act on the first while the last is still being written.
SEND_FRAME_BYTES: Final = 128 * 1024

#: A message as it goes into a frame (docs/protocol.md 2.2): its fields, or its body, where the rest is the producer's own.
Fields = list[Any] | bytes
#: Of a confirmed message: its body need not live as long as its Confirmation.
_NO_FIELDS: Final[list[Any]] = []

Body = bytes | bytearray | memoryview


class Confirmation:
    """What ``send_nowait`` returns: await it to wait for the broker's confirm, or leave it. Costs a future only when awaited.

    Awaiting raises SendError when the message was refused. A failure nobody awaited is raised by the producer's next
    ``drain()``, ``flush()`` or ``close()``.
    """

    __slots__ = ("_done", "_error", "_fields", "_producer", "_size", "_waiters")

    def __init__(self, producer: Producer, fields: Fields, size: int) -> None:
        self._producer = producer
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
            future: asyncio.Future[None] = self._producer._loop.create_future()
            if self._waiters is None:
                self._waiters = []
            self._waiters.append(future)
            try:
                yield from future.__await__()
            except asyncio.CancelledError:
                if self._error is not None:
                    self._producer._unobserved.append(self)  # it was on its way to a task that no longer looks
                raise
        if self._error is not None:
            self._producer._observed(self)
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


class Producer:
    """Made by ``session.producer(address)``; not to be shared between sessions.

    ``blocked_reason`` says why the broker grants no credit at the moment, None when it does.
    """

    def __init__(self, session: Session, address: str, number: int, options: ProducerOptions) -> None:
        self.session = session
        self.address = address
        self.number = number
        self.options = options
        self.max_unconfirmed = options.max_unconfirmed
        self._most_out = 2 * options.max_unconfirmed
        self._transaction = session._transaction
        #: What stands behind the body of a message that leaves everything to the producer.
        self._tail = message_fields(b"", None, options.priority, options.durable, options.ttl_ms, 0, None)[0][1:]
        self.blocked_reason: str | None = None
        self._connection = session.connection
        self._loop = session.connection.loop
        self._waiting: deque[Confirmation] = deque()
        self._unconfirmed: deque[Confirmation] = deque()
        self._gathered = 0  # bytes accepted since the last frame was written
        self._base = 1
        self._fresh = True
        self._open = False
        self._messages_credit = 0
        self._bytes_credit = 0
        self._room = Waiters(self._loop)
        self._moved = Waiters(self._loop)
        self._unobserved: deque[Confirmation] = deque(maxlen=max(64, 2 * self.max_unconfirmed))
        self._ended: HomingError | None = None

    @property
    def unconfirmed(self) -> int:
        """Messages accepted from the program and not yet confirmed (in a transaction: not yet written)."""
        return len(self._waiting) + len(self._unconfirmed)

    # -- what programs call

    async def send(
        self,
        body: Body,
        properties: Mapping[str, PropertyValue] | None = None,
        priority: int | None = None,
        ttl_ms: int | None = None,
        delay_ms: int = 0,
        durable: bool | None = None,
        duplicate_id: str | None = None,
    ) -> None:
        """Send one message; returns when the broker has confirmed it (durable: it is on disk). In a TRANSACTED session it returns
        when the message is written; everything else is checked at ``commit()``.

        Raises SendError when it is refused, UsageError before anything is sent. Cancelling it does not take the message back:
        it stays on its way, and a failure shows at ``flush()``; give a ``duplicate_id`` to send it again safely.
        """
        fields, size = self._message(body, properties, priority, durable, ttl_ms, delay_ms, duplicate_id)
        while self.unconfirmed >= self.max_unconfirmed:
            self._usable()
            await self._room.wait()
        self._usable()
        await self._accept(fields, size)

    def send_nowait(
        self,
        body: Body,
        properties: Mapping[str, PropertyValue] | None = None,
        priority: int | None = None,
        ttl_ms: int | None = None,
        delay_ms: int = 0,
        durable: bool | None = None,
        duplicate_id: str | None = None,
    ) -> Confirmation:
        """Hand one message over without waiting; messages of one loop turn leave as one frame. Await the result, or ``drain()``.

        Raises UsageError ``too-many-unconfirmed`` beyond 2 × ``max_unconfirmed``: call ``drain()`` between sends.
        """
        bare = properties is None and priority is None and ttl_ms is None and durable is None and duplicate_id is None
        fields: Fields
        if bare and delay_ms == 0 and type(body) is bytes:
            fields, size = body, len(body) + ENVELOPE_BYTES
            if size > self._connection.max_message_bytes:
                raise self._too_large(size)
        else:
            fields, size = self._message(body, properties, priority, durable, ttl_ms, delay_ms, duplicate_id)
        if self._ended is not None or self._transaction is not None:
            self._usable()
        if len(self._waiting) + len(self._unconfirmed) >= self._most_out:
            raise UsageError(
                "too-many-unconfirmed",
                f"{self.unconfirmed} messages to {self.address} are unconfirmed, twice max_unconfirmed",
                "await producer.drain() after send_nowait()",
            )
        return self._accept(fields, size)

    async def drain(self) -> None:
        """Wait until fewer than ``max_unconfirmed`` messages are out; at once when that is so. Raises a failure nobody awaited."""
        if self._unobserved:
            self._raise_unobserved()
        while self.unconfirmed >= self.max_unconfirmed:
            self._usable()
            await self._room.wait()
            self._raise_unobserved()

    async def flush(self) -> None:
        """Wait until everything handed over is confirmed (in a transaction: written), or raise the first failure nobody awaited."""
        self._raise_unobserved()
        while self.unconfirmed:
            await self._moved.wait()
            self._raise_unobserved()

    async def close(self) -> None:
        """Flush, then end the producer at the broker. Raises what flush raises; the producer is closed all the same."""
        if self._ended is not None and not self._unobserved:
            return
        try:
            await self.flush()
        finally:
            self._end(UsageError("producer-closed", f"the producer for {self.address} is closed", "make a new one"))

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # -- accepting

    def _message(
        self,
        body: Body,
        properties: Mapping[str, PropertyValue] | None,
        priority: int | None,
        durable: bool | None,
        ttl_ms: int | None,
        delay_ms: int,
        duplicate_id: str | None,
    ) -> tuple[Fields, int]:
        options = self.options
        fields, size = message_fields(
            body,
            properties,
            options.priority if priority is None else priority,
            options.durable if durable is None else durable,
            options.ttl_ms if ttl_ms is None else ttl_ms,
            delay_ms,
            duplicate_id,
        )
        if size > self._connection.max_message_bytes:
            raise self._too_large(size)
        return fields[0] if fields[1:] == self._tail else fields, size

    def _too_large(self, size: int) -> UsageError:
        return UsageError(
            "message-too-large",
            f"the message takes {size} bytes, a frame of this broker holds {self._connection.max_message_bytes}",
            "send large content elsewhere and its place here, or raise limits.max-frame-bytes in broker.yaml",
        )

    def _usable(self) -> None:
        if self._ended is not None:
            raise self._ended.with_traceback(None)
        transaction = self.session._transaction
        if transaction is not None and transaction.broken is not None:
            raise transaction.broken.with_traceback(None)

    def _accept(self, fields: Fields, size: int) -> Confirmation:
        confirmation = Confirmation(self, fields, size)
        self._waiting.append(confirmation)
        self._gathered += size
        wire = self._connection.wire
        if wire is not None:
            wire.mark(self)
            if self._gathered >= SEND_FRAME_BYTES:
                wire.flush()
        return confirmation

    # -- the wire's side

    def write_pending(self, wire: Wire) -> None:
        """Write what credit allows, as few frames as the frame limit allows."""
        self._gathered = 0
        transaction = self.session._transaction
        if not self._open or (transaction is not None and transaction.holding):
            return
        limit = min(SEND_FRAME_BYTES, self._connection.max_message_bytes)
        while self._waiting and self._messages_credit > 0 and self._bytes_credit > 0:
            first = self._base + len(self._unconfirmed)
            batch = self._batch(limit)
            if transaction is None:
                self._unconfirmed.extend(batch)
                bodies = [fields for each in batch if isinstance(fields := each._fields, bytes)]
                if len(bodies) == len(batch) and self._connection.joins_bodies:
                    wire.append_encoded(encode_bodies((Op.SEND_BODIES, self.number, first, self._tail[1:]), bodies))
                else:
                    wire.append((Op.SEND, self.number, first, self._in_full(batch)))
            else:
                wire.append((Op.SEND, self.number, 0, self._in_full(batch), transaction.number))
                transaction.sends += len(batch)
                for each in batch:
                    each._settle(None)
                self._progress()

    def _in_full(self, batch: list[Confirmation]) -> list[list[Any]]:
        return [[fields, *self._tail] if isinstance(fields := each._fields, bytes) else fields for each in batch]

    def _batch(self, limit: int) -> list[Confirmation]:
        batch: list[Confirmation] = []
        size = cost = 0
        waiting, most, most_bytes = self._waiting, self._messages_credit, self._bytes_credit
        while waiting and len(batch) < most and cost < most_bytes:
            head = waiting[0]
            size += head._size
            if batch and size > limit:
                break
            batch.append(waiting.popleft())
            fields = head._fields
            cost += len(fields if isinstance(fields, bytes) else fields[0]) + MESSAGE_OVERHEAD_BYTES
        self._messages_credit -= len(batch)
        self._bytes_credit -= cost
        return batch

    def _announce(self, wire: Wire) -> None:
        """Open it on a new connection; the answer comes to ``_opened`` or ``_refused``."""
        self._messages_credit = self._bytes_credit = 0
        request = self._connection.expect(Reply(SendError, answered=self._opened, failed=self._refused))
        wire.write(Op.PRODUCER, request, self.number, self.address)

    def _opened(self, value: Any) -> None:
        mark = value["mark"]
        stored = mark - self._base + 1
        if self._fresh:
            self._base = mark + 1  # the number was used before by a producer that is gone
        elif stored > 0:
            for _ in range(min(stored, len(self._waiting))):
                self._waiting.popleft()._settle(None)
            self._base = mark + 1
        self._fresh = False
        self._open = True
        self._progress()
        if self._connection.wire is not None:
            self._connection.wire.mark(self)

    def _refused(self, error: HomingError) -> None:
        if error.connection_lost:
            return  # announced again after the reconnect
        self._end(SendError(error.code, f"no producer for {self.address}: {error.message}", error.fix))

    def _credit(self, messages: int, size_bytes: int, reason: str | None) -> None:
        self._messages_credit += messages
        self._bytes_credit += size_bytes
        if messages or size_bytes:
            self.blocked_reason = None
            if self._waiting and self._connection.wire is not None:
                self._connection.wire.mark(self)
        else:
            self.blocked_reason = reason

    def _confirm(self, up_to: int, refused: list[Any] | None) -> None:
        unconfirmed = self._unconfirmed
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
        if not self._unconfirmed or sequence != self._base:
            raise ValueError(f"refused number {sequence}, expected {self._base}")
        self._failed(self._unconfirmed.popleft(), SendError(code, message, fix))
        self._fail_all(
            SendError(
                "not-sent-after-refusal",
                f"a message before it to {self.address} was refused ({code}), so that nothing overtakes it",
                "mend or skip the refused one, then send these again",
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
            self._unobserved.append(confirmation)

    def _fail_all(self, error: HomingError) -> None:
        for each in (*self._unconfirmed, *self._waiting):
            self._failed(each, error)
        self._unconfirmed.clear()
        self._waiting.clear()

    def _observed(self, confirmation: Confirmation) -> None:
        if confirmation in self._unobserved:
            self._unobserved.remove(confirmation)

    def _raise_unobserved(self) -> None:
        if not self._unobserved:
            return
        error = self._unobserved[0]._error
        self._unobserved.clear()
        assert error is not None
        raise error.with_traceback(None)

    def _lost(self) -> None:
        """The connection is gone: what was sent waits again, under the same numbers."""
        self._waiting.extendleft(reversed(self._unconfirmed))
        self._unconfirmed.clear()
        self._open = False
        self._messages_credit = self._bytes_credit = 0

    def _drop_waiting(self, error: HomingError) -> None:
        """A transaction was rolled back: what was not yet written of it goes as well, and whoever waits for it is told."""
        for each in self._waiting:
            each._settle(error)
        self._waiting.clear()
        self._progress()

    def _end(self, error: HomingError) -> None:
        """No message leaves any more. Idempotent; the first reason stays."""
        if self._ended is not None:
            return
        self._ended = error
        self._fail_all(error)
        wire = self._connection.wire
        if wire is not None and self._open:
            wire.write(Op.END_PRODUCER, self.number)
        self._open = False
        self.session._forget_producer(self)
        self._room.wake_all()
        self._moved.wake_all()
