"""Producer: messages for one address, in order."""

from __future__ import annotations

from collections.abc import Mapping

from .errors import UsageError
from .options import ProducerOptions
from .outbox import Confirmation, Fields, Outbox
from .validation import ENVELOPE_BYTES, PropertyValue, message_fields

Body = bytes | bytearray | memoryview


class Producer:
    """Made by ``session.producer(address)``; not to be shared between sessions."""

    def __init__(self, outbox: Outbox, options: ProducerOptions) -> None:
        self.address = outbox.address
        self.number = outbox.number
        self.options = options
        self.max_unconfirmed = options.max_unconfirmed
        self._most_out = 2 * options.max_unconfirmed
        self._transacted = outbox.transacted
        self._outbox = outbox

    @property
    def unconfirmed(self) -> int:
        """Messages accepted from the program and not yet confirmed (in a transaction: not yet written)."""
        return self._outbox.unconfirmed

    @property
    def blocked_reason(self) -> str | None:
        """Why the broker grants no credit at the moment, None when it does."""
        return self._outbox.blocked_reason

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
        await self._outbox.room()
        self._outbox.raise_if_unusable()
        await self._outbox.accept(fields, size)

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
            if size > self._outbox.max_message_bytes:
                raise self._too_large(size)
        else:
            fields, size = self._message(body, properties, priority, durable, ttl_ms, delay_ms, duplicate_id)
        outbox = self._outbox
        if outbox.ended is not None or self._transacted:
            outbox.raise_if_unusable()
        if outbox.unconfirmed >= self._most_out:
            raise UsageError(
                "too-many-unconfirmed",
                f"{self.unconfirmed} messages to {self.address} are unconfirmed, twice max_unconfirmed",
                "await producer.drain() after send_nowait()",
            )
        return outbox.accept(fields, size)

    async def drain(self) -> None:
        """Wait until fewer than ``max_unconfirmed`` messages are out; at once when that is so. Raises a failure nobody awaited."""
        outbox = self._outbox
        if outbox.unobserved:
            outbox.raise_unobserved()
        if outbox.unconfirmed >= self.max_unconfirmed:
            await outbox.room()
            outbox.raise_unobserved()

    async def flush(self) -> None:
        """Wait until everything handed over is confirmed (in a transaction: written), or raise the first failure nobody awaited."""
        self._outbox.raise_unobserved()
        while self._outbox.unconfirmed:
            await self._outbox.moved()
            self._outbox.raise_unobserved()

    async def close(self) -> None:
        """Flush, then end the producer at the broker. Raises what flush raises; the producer is closed all the same."""
        if self._outbox.ended is not None and not self._outbox.unobserved:
            return
        try:
            await self.flush()
        finally:
            self._outbox.end(UsageError("producer-closed", f"the producer for {self.address} is closed", "make a new one"))

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
        if size > self._outbox.max_message_bytes:
            raise self._too_large(size)
        return fields[0] if fields[1:] == self._outbox.tail else fields, size

    def _too_large(self, size: int) -> UsageError:
        return UsageError(
            "message-too-large",
            f"the message takes {size} bytes, a frame of this broker holds {self._outbox.max_message_bytes}",
            "send large content elsewhere and its place here, or raise limits.max-frame-bytes in broker.yaml",
        )
