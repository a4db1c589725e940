"""What one consumer gets from the broker: the messages that wait here, and how they are handed out.

Before a message reaches the application, GIVEN (in AUTO: its acknowledgement) is with the kernel: a handler that kills its own process at
once has been counted.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from time import time_ns
from typing import Any, Final

from homing.broker.protocols.native.codec import AckType, Op

from .errors import ConsumerError, HomingError, UsageError
from .link import Link, Reply
from .message import UNREAD, Message, State
from .modes import AckMode
from .open_transaction import OpenTransaction
from .options import ConsumerOptions
from .policy import RedeliveryPolicy
from .settlement import SessionSettlement, Settlement
from .validation import MAX_DURATION_MS
from .waiting import Waiters
from .wire import Wire

#: A slice that is reported as given in one frame is never larger.
MAX_SLICE: Final = 64
#: How much longer than asked for a pull waits for the broker's own "nothing came".
PULL_GRACE_S: Final = 1.0


class Subscription:
    """``queue``: the broker's answer, what the name resolved to. ``arrived`` wakes who waits for messages. ``on_end`` is called once, when
    nothing is handed out any more; why is in ``ended``.
    """

    def __init__(
        self,
        link: Link,
        source: str,
        options: ConsumerOptions,
        policy: RedeliveryPolicy | None,
        session: SessionSettlement,
        make_settlement: Callable[[Link, int, ConsumerOptions, SessionSettlement], Settlement],
        transaction: OpenTransaction | None,
        on_end: Callable[[Subscription], None],
    ) -> None:
        self.source = source
        self.number = link.next_consumer()
        self.options = options
        self.prefetch = options.prefetch
        self.mode = session.mode
        self.queue: str | None = None
        self.settlement = make_settlement(link, self.number, options, session)
        self.arrived = Waiters(link.loop)
        self.ended: HomingError | None = None
        self.closed_here = False
        self.listened = False  # a listener takes the messages
        self.loop = link.loop
        self._link = link
        self._policy = policy
        self._transaction = transaction
        self._on_end = on_end
        self._acks_first = self.mode is AckMode.AUTO and not self.settlement.optimized
        limited = self.mode in (AckMode.CLIENT, AckMode.TRANSACTED) and self.prefetch > 0
        self._most_held = self.prefetch + self.prefetch // 2 if limited else 0
        self._inbox: deque[Message] = deque()
        self._answered = Waiters(link.loop)
        self._announced = False
        self._voiding = 0
        self._pulls = 0

    async def ready(self) -> None:
        """Wait for the broker's answer to the subscription; raises ConsumerError when it was refused."""
        while self.queue is None:
            self.raise_if_ended()
            await self._answered.wait()
        self.raise_if_ended()

    async def close(self) -> None:
        """Send held acknowledgements, end the subscription, wait for the broker's answer."""
        if self.ended is not None:
            return
        self.settlement.flush_lazy()
        self.closed_here = True
        self.end(_closed(self.source))
        wire = self._link.wire
        if wire is None or not self._announced:
            return
        future: asyncio.Future[Any] = self.loop.create_future()
        wire.write(Op.UNSUBSCRIBE, self._link.expect(Reply(ConsumerError, future)), self.number)
        try:
            await future
        except HomingError as error:
            if not error.connection_lost:  # a lost connection ended the subscription as well
                raise

    def abandon(self) -> None:
        """End it without waiting for the broker's answer."""
        wire = self._link.wire
        if self.ended is None and wire is not None and self._announced:
            wire.write(Op.UNSUBSCRIBE, 0, self.number)
        self.end(_closed(self.source))

    # -- handing out

    def pop(self) -> Message | None:
        while self._inbox:
            message = self._inbox.popleft()
            expires = message.expires_at_ms
            if expires and self.options.check_expiry and message._state is State.UNREAD and time_ns() // 1_000_000 >= expires:
                self.settlement.expire(message)
                continue
            return message
        return None

    def pop_slice(self, most: int) -> list[Message]:
        messages: list[Message] = []
        inbox = self._inbox
        while inbox and len(messages) < most and not inbox[0].expires_at_ms:
            messages.append(inbox.popleft())
        while inbox and len(messages) < most:
            message = self.pop()
            if message is None:
                break
            messages.append(message)
        return messages

    async def hand_out(self, message: Message) -> bool:
        """Report and hand over one message to ``receive()``. False: it is void meanwhile."""
        if message._state is State.ACKNOWLEDGED:  # a cancelled receive() of AUTO put it back
            return True
        if not await self.report([message], AckType.STANDARD if self._acks_first else None):
            return False
        if self._acks_first:
            del self.settlement.handing[message._tag]
            message._state = State.ACKNOWLEDGED
        else:
            self.settlement.hold(message)
            if self.settlement.is_lazy:
                self.settlement.finish(message)
        if self._most_held and not self._inbox and len(self.arrived) and self.is_full():
            self.arrived.wake_all()  # for them there is an error instead of a message
        return True

    async def report(self, messages: list[Message], ack_type: AckType | None = None) -> bool:
        """Write GIVEN (or the acknowledgement) for a slice and wait until the kernel has it. False: the slice is void."""
        self.settlement.handing |= {message._tag: message for message in messages}
        wire = self._link.wire
        last = messages[-1]._tag
        acknowledged = False
        try:
            if wire is None or (wire.paused and not await wire.flushed(wire.written)):
                return False
            if messages[-1]._state is not UNREAD:
                return False
            if ack_type is None:
                wire.write(Op.GIVEN, self.number, last)
            else:
                wire.write(Op.ACK, self.number, ack_type, [last, last])
                acknowledged = True
            wire.flush()
            if wire.unflushed(wire.written):
                await wire.flushed(wire.written)
        except asyncio.CancelledError:
            self._put_back(messages, acknowledged)
            raise
        return messages[-1]._state is UNREAD

    def _put_back(self, messages: list[Message], acknowledged: bool) -> None:
        """A cancelled receive() did not get it: the next one will."""
        for message in reversed(messages):
            if self.settlement.handing.pop(message._tag, None) is message and message._state is State.UNREAD:
                message._state = State.ACKNOWLEDGED if acknowledged else State.UNREAD
                self._inbox.appendleft(message)
        self.arrived.wake(len(messages))

    # -- waiting

    async def wait(self, deadline: float | None) -> bool:
        """Wait for something to look at. False: the time is over."""
        if self.prefetch == 0:
            return await self._wait_for_pull(deadline)
        return await self.arrived.wait(deadline) or bool(self._inbox)

    async def _wait_for_pull(self, deadline: float | None) -> bool:
        now = self.loop.time()
        mine = False
        wire = self._link.wire
        if wire is not None and self._announced and self._pulls <= len(self.arrived):
            left_ms = -1 if deadline is None else min(MAX_DURATION_MS, max(0, math.ceil((deadline - now) * 1000)))
            wire.write(Op.PULL, self.number, left_ms)
            self._pulls += 1
            mine = True
        elif deadline is not None and now >= deadline:
            return False
        late = None if deadline is None else deadline + (PULL_GRACE_S if mine else 0)
        woken = await self.arrived.wait(late)
        if self._inbox:
            return True
        return woken and (deadline is None or self.loop.time() < deadline)

    def is_full(self) -> bool:
        return bool(self._most_held) and len(self.settlement.held) >= self._most_held

    def raise_if_full(self) -> None:
        if self.is_full():
            raise ConsumerError(
                "too-many-unacknowledged",
                f"{len(self.settlement.held)} messages of {self.source} are held, 1.5 times prefetch {self.prefetch}: no more can come",
                "acknowledge or commit more often, or raise prefetch",
            )

    def raise_if_ended(self) -> None:
        if self.ended is not None:
            raise self.ended.with_traceback(None)

    # -- the wire's side

    def announce(self, wire: Wire) -> None:
        """Subscribe on a connection; the answer comes to ``_subscribed`` or ``_refused``."""
        if self.ended is not None:
            return
        options: dict[str, Any] = {"prefetch": self.prefetch}
        if self.options.selector is not None:
            options["selector"] = self.options.selector
        if self.options.consumer_priority:
            options["priority"] = self.options.consumer_priority
        if self._policy is not None:
            options["redelivery_policy"] = self._policy.to_wire()
        if self._transaction is not None:
            options |= {"session": self._transaction.number, "transacted": True}
        request = self._link.expect(Reply(ConsumerError, answered=self._subscribed, failed=self._refused))
        wire.write(Op.SUBSCRIBE, request, self.number, self.source, options)
        self._announced = True
        if self.prefetch == 0:
            self.arrived.wake_all()  # waiting pulls are asked for again

    def _subscribed(self, value: Any) -> None:
        self.queue = value["queue"]
        self._answered.wake_all()

    def _refused(self, error: HomingError) -> None:
        if not error.connection_lost:  # otherwise subscribed again after the reconnect
            self._announced = False
            self.end(error)

    def deliver(self, first_tag: int, messages: list[list[Any]]) -> None:
        if self._takes(len(messages)):
            inbox = self._inbox
            for tag, fields in enumerate(messages, first_tag):
                inbox.append(Message(self.settlement, tag, *fields))
            self.arrived.wake(len(messages))

    def deliver_bodies(
        self, first_tag: int, first_id: int, count: int, address: str, priority: int, sent_at_ms: int, durable: bool, bodies: list[bytes]
    ) -> None:
        """Messages that differ only in their bodies."""
        if self._takes(len(bodies)):
            inbox, behind = self._inbox, first_id - first_tag
            for tag, body in enumerate(bodies, first_tag):
                inbox.append(Message(self.settlement, tag, behind + tag, count, address, body, None, priority, sent_at_ms, 0, durable))
            self.arrived.wake(len(bodies))

    def _takes(self, messages: int) -> bool:
        """False: the broker takes them back by itself."""
        if self.prefetch == 0:
            self._pulls = max(0, self._pulls - messages)
        return not self._voiding and self.ended is None

    def not_held(self, ranges: list[int]) -> None:
        self.settlement.unanswered += len(ranges) // 2

    def pull_was_empty(self) -> None:
        self._pulls = max(0, self._pulls - 1)
        self.arrived.wake_all()

    def cancelled(self, code: str, message: str, fix: str) -> None:
        self._announced = False
        self.settlement.void(State.RETURNED)
        self.end(ConsumerError(code, message, fix))

    def void_until_rolled_back(self) -> None:
        self._voiding += 1
        if (wire := self._link.wire) is not None:
            self.settlement.write_pending(wire)
        self.settlement.void(State.RETURNED)
        self._clear_inbox(State.RETURNED)

    def rolled_back(self) -> None:
        self._voiding = max(0, self._voiding - 1)
        if self.prefetch == 0:
            self.arrived.wake_all()  # what answered their pulls may have been void: they are asked for again

    def lost(self) -> None:
        self._announced = False
        self._voiding = 0
        self._pulls = 0
        self.settlement.void(State.LOST)
        kept = [message for message in self._inbox if message._state is State.ACKNOWLEDGED]
        self._clear_inbox(State.LOST)
        self._inbox.extend(kept)
        if self.prefetch == 0:
            self.arrived.wake_all()

    def _clear_inbox(self, state: State) -> None:
        for message in self._inbox:
            if message._state is State.UNREAD:
                message._state = state
        self._inbox.clear()

    def end(self, error: HomingError) -> None:
        """Nothing is handed out any more. Idempotent; the first reason stays."""
        if self.ended is not None:
            return
        self.ended = error
        self._clear_inbox(State.RETURNED)
        if self._transaction is None:
            self.end_held()
        self._on_end(self)
        self.arrived.wake_all()
        self._answered.wake_all()

    def end_held(self) -> None:
        """What was given is this client's no more: it goes back with the subscription, or with its transaction."""
        wire = self._link.wire
        if wire is not None:
            self.settlement.write_pending(wire)
        self.settlement.void(State.RETURNED)


def _closed(source: str) -> UsageError:
    return UsageError("consumer-closed", f"the consumer of {source} is closed", "make a new one")
