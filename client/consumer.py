"""Consumer: messages of one queue, handed out one by one.

Before a message reaches the application, GIVEN (in AUTO: its acknowledgement) is with the kernel: a handler that kills its own
process at once has been counted.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final

from homing.broker.protocols.native.codec import AckType, Op

from .errors import ConsumerError, HomingError, UsageError
from .message import DONE, UNREAD, Message, State
from .modes import AckMode
from .options import ConsumerOptions
from .policy import RedeliveryPolicy
from .reply import Reply
from .settlement import Settlement
from .validation import HIGHEST_INT64, MAX_DURATION_MS, check_whole
from .waiting import Waiters

if TYPE_CHECKING:
    from .listener import Handler, Listener
    from .session import Session
    from .wire import Wire

#: A slice that is reported as given in one frame is never larger.
MAX_SLICE: Final = 64
#: How much longer than asked for a pull waits for the broker's own "nothing came".
PULL_GRACE_S: Final = 1.0


class Consumer:
    """Made by ``session.consumer(queue)``. ``async for`` is the same as ``receive()`` without a timeout.

    The subscription leaves with the same loop turn; a refusal is raised by the first ``receive()`` or by ``ready()``.
    """

    def __init__(self, session: Session, number: int, source: str, options: ConsumerOptions, policy: RedeliveryPolicy | None) -> None:
        self.session = session
        self.number = number
        self.source = source
        self.options = options
        self.prefetch = options.prefetch
        self.queue: str | None = None  # the broker's answer: what the name resolved to
        self._policy = policy
        self._connection = session.connection
        self._loop = session.connection.loop
        self._settlement = Settlement(self._connection, number, session.mode, options)
        self._by_itself = session.mode is AckMode.INDIVIDUAL
        self._acks_first = session.mode is AckMode.AUTO and not self._settlement.optimized
        limited = session.mode in (AckMode.CLIENT, AckMode.TRANSACTED) and self.prefetch > 0
        self._most_held = self.prefetch + self.prefetch // 2 if limited else 0
        self._inbox: deque[Message] = deque()
        self._arrived = Waiters(self._loop)
        self._answered = Waiters(self._loop)
        self._announced = False
        self._voiding = 0
        self._pulls = 0
        self._turns = 0
        self._listener: Listener | None = None
        self._ended: HomingError | None = None
        self._closed_here = False

    # -- what programs call

    async def ready(self) -> Consumer:
        """Wait for the broker's answer to the subscription; raises ConsumerError when it was refused."""
        while self.queue is None:
            self._raise_if_ended()
            await self._answered.wait()
        self._raise_if_ended()
        return self

    async def receive(self, timeout_ms: int | None = None) -> Message | None:
        """The next message, or None when nothing came within ``timeout_ms`` (None: wait without end; 0: only what is here).

        Raises ConsumerError ``too-many-unacknowledged`` when 1.5 × prefetch messages are held in CLIENT or TRANSACTED (no more can
        come), ``consumer-has-listener``, and whatever ended the consumer. Cancelling it loses nothing: the message stays.
        """
        if self._listener is not None:
            raise ConsumerError("consumer-has-listener", f"a listener reads {self.source} here", "make a second consumer for receive()")
        if timeout_ms is not None:
            check_whole("timeout_ms", timeout_ms, 0, HIGHEST_INT64)
        deadline = None if timeout_ms is None else self._loop.time() + timeout_ms / 1000
        if self.session._transaction is not None:
            await self.session._transaction.quiet()
        while True:
            self._turns += 1
            if self._turns % MAX_SLICE == 0:
                await asyncio.sleep(0)  # a full inbox must not keep the loop for itself
            message = self._pop()
            if message is not None:
                if await self._hand_out(message):
                    return message
            else:
                self._raise_if_ended()
                self._raise_if_full()
                if not await self._wait(deadline):
                    return None

    def __aiter__(self) -> Consumer:
        return self

    async def __anext__(self) -> Message:
        try:
            message = await self.receive()
        except HomingError:
            if self._closed_here:
                raise StopAsyncIteration from None
            raise
        assert message is not None  # without a timeout it never is
        return message

    def acknowledge(self, confirm: bool = False) -> Awaitable[None]:
        """Settle everything this consumer was given; with ``confirm`` return when it is on disk."""
        self.session._refuse_when_transacted("acknowledge")
        if confirm:
            return self._settlement.acknowledge_confirmed(list(self._settlement.held.values()))
        self._settlement.acknowledge(list(self._settlement.held.values()))
        return DONE

    async def listen(self, handler: Handler, concurrency: int = 1) -> Listener:
        """Hand every message to ``handler``, a function or coroutine function; see ``Session.listen``."""
        from .listener import Listener

        self._raise_if_ended()
        if self._listener is not None:
            raise ConsumerError("consumer-has-listener", f"a listener reads {self.source} here already", "stop() it first")
        self._listener = listener = Listener(self, handler, concurrency)
        try:
            await self.ready()
        except BaseException:
            self._listener = None
            raise
        listener._start()
        return listener

    async def close(self) -> None:
        """Send held acknowledgements, end the subscription. Given, unsettled messages go back counted as delivered, unread ones
        uncounted; in a TRANSACTED session given ones stay with the transaction."""
        if self._listener is not None:
            await self._listener.stop()
        if self._ended is not None:
            return
        self._settlement.flush_lazy()
        self._closed_here = True
        self._end(UsageError("consumer-closed", f"the consumer of {self.source} is closed", "make a new one"))
        wire = self._connection.wire
        if wire is None or not self._announced:
            return
        future: asyncio.Future[Any] = self._loop.create_future()
        wire.write(Op.UNSUBSCRIBE, self._connection.expect(Reply(ConsumerError, future)), self.number)
        try:
            await future
        except HomingError as error:
            if not error.connection_lost:  # a lost connection ended the subscription as well
                raise

    def _abandon(self) -> None:
        """End it without waiting for the broker's answer."""
        wire = self._connection.wire
        if self._ended is None and wire is not None and self._announced:
            wire.write(Op.UNSUBSCRIBE, 0, self.number)
        self._end(UsageError("consumer-closed", f"the consumer of {self.source} is closed", "make a new one"))

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception):
            self.session._fail_last(error, self)
        await self.close()

    # -- handing out

    def _pop(self) -> Message | None:
        while self._inbox:
            message = self._inbox.popleft()
            expires = message.expires_at_ms
            if expires and self.options.check_expiry and message._state is State.UNREAD and self._connection.now_ms() >= expires:
                self._settlement.expire(message)
                continue
            return message
        return None

    def _pop_slice(self, most: int) -> list[Message]:
        messages: list[Message] = []
        inbox = self._inbox
        while inbox and len(messages) < most and not inbox[0].expires_at_ms:
            messages.append(inbox.popleft())
        while inbox and len(messages) < most:
            message = self._pop()
            if message is None:
                break
            messages.append(message)
        return messages

    async def _hand_out(self, message: Message) -> bool:
        """Report and hand over one message to ``receive()``. False: it is void meanwhile."""
        if message._state is State.ACKNOWLEDGED:  # a cancelled receive() of AUTO put it back
            return True
        if not await self._report([message], AckType.STANDARD if self._acks_first else None):
            return False
        if self._acks_first:
            del self._settlement.handing[message._tag]
            message._state = State.ACKNOWLEDGED
        else:
            self._begin(message)
            if self._settlement.is_lazy:
                self._settlement.finish(message)
        if self._most_held and not self._inbox and len(self._arrived) and self._is_full():
            self._arrived.wake_all()  # for them there is an error instead of a message
        return True

    def _begin(self, message: Message) -> None:
        """The application gets it now."""
        self._settlement.hold(message)
        self.session._last = self._connection._last = message

    async def _report(self, messages: list[Message], ack_type: AckType | None = None) -> bool:
        """Write GIVEN (or the acknowledgement) for a slice and wait until the kernel has it. False: the slice is void."""
        self._settlement.handing |= {message._tag: message for message in messages}
        wire = self._connection.wire
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
            if self._settlement.handing.pop(message._tag, None) is message and message._state is State.UNREAD:
                message._state = State.ACKNOWLEDGED if acknowledged else State.UNREAD
                self._inbox.appendleft(message)
        self._arrived.wake(len(messages))

    # -- waiting

    async def _wait(self, deadline: float | None) -> bool:
        """Wait for something to look at. False: the time is over."""
        if self.prefetch == 0:
            return await self._wait_for_pull(deadline)
        return await self._arrived.wait(deadline) or bool(self._inbox)

    async def _wait_for_pull(self, deadline: float | None) -> bool:
        now = self._loop.time()
        mine = False
        wire = self._connection.wire
        if wire is not None and self._announced and self._pulls <= len(self._arrived):
            left_ms = -1 if deadline is None else min(MAX_DURATION_MS, max(0, math.ceil((deadline - now) * 1000)))
            wire.write(Op.PULL, self.number, left_ms)
            self._pulls += 1
            mine = True
        elif deadline is not None and now >= deadline:
            return False
        late = None if deadline is None else deadline + (PULL_GRACE_S if mine else 0)
        woken = await self._arrived.wait(late)
        if self._inbox:
            return True
        return woken and (deadline is None or self._loop.time() < deadline)

    def _is_full(self) -> bool:
        return bool(self._most_held) and len(self._settlement.held) >= self._most_held

    def _raise_if_full(self) -> None:
        if self._is_full():
            raise ConsumerError(
                "too-many-unacknowledged",
                f"{len(self._settlement.held)} messages of {self.source} are held, 1.5 times prefetch {self.prefetch}: no more can come",
                "acknowledge or commit more often, or raise prefetch",
            )

    def _raise_if_ended(self) -> None:
        if self._ended is not None:
            raise self._ended.with_traceback(None)

    # -- settling

    def _fail(self, message: Message, failure: dict[str, Any]) -> None:
        retryable = failure.get("retryable", True)
        self._settlement.give_back([message], AckType.REDELIVERED if retryable else AckType.POISON, failure)

    def _release(self, message: Message) -> None:
        self._settlement.give_back([message], AckType.UNMATCHED, None)

    def _touch(self, message: Message) -> None:
        self._settlement.touch(message)

    def _recover(self) -> None:
        held = list(self._settlement.held.values())
        if held:
            self._settlement.give_back(held, AckType.REDELIVERED, {"outcome": "recover"})

    # -- the wire's side

    def _announce(self, wire: Wire) -> None:
        """Subscribe on a connection; the answer comes to ``_subscribed`` or ``_refused``."""
        if self._ended is not None:
            return
        options: dict[str, Any] = {"prefetch": self.prefetch}
        if self.options.selector is not None:
            options["selector"] = self.options.selector
        if self._policy is not None:
            options["redelivery_policy"] = self._policy.to_wire()
        if self.session._transaction is not None:
            options |= {"session": self.session._transaction.number, "transacted": True}
        request = self._connection.expect(Reply(ConsumerError, answered=self._subscribed, failed=self._refused))
        wire.write(Op.SUBSCRIBE, request, self.number, self.source, options)
        self._announced = True
        if self.prefetch == 0:
            self._arrived.wake_all()  # waiting pulls are asked for again

    def _subscribed(self, value: Any) -> None:
        self.queue = value["queue"]
        self._answered.wake_all()

    def _refused(self, error: HomingError) -> None:
        if not error.connection_lost:  # otherwise subscribed again after the reconnect
            self._announced = False
            self._end(error)

    def _deliver(self, first_tag: int, messages: list[list[Any]]) -> None:
        if self._takes(len(messages)):
            inbox = self._inbox
            for tag, fields in enumerate(messages, first_tag):
                inbox.append(Message(self, tag, *fields))
            self._arrived.wake(len(messages))

    def _deliver_bodies(
        self, first_tag: int, first_id: int, count: int, address: str, priority: int, sent_at_ms: int, durable: bool, bodies: list[bytes]
    ) -> None:
        """Messages that differ only in their bodies."""
        if self._takes(len(bodies)):
            inbox, behind = self._inbox, first_id - first_tag
            for tag, body in enumerate(bodies, first_tag):
                inbox.append(Message(self, tag, behind + tag, count, address, body, None, priority, sent_at_ms, 0, durable))
            self._arrived.wake(len(bodies))

    def _takes(self, messages: int) -> bool:
        """False: the broker takes them back by itself."""
        if self.prefetch == 0:
            self._pulls = max(0, self._pulls - messages)
        return not self._voiding and self._ended is None

    def _pull_was_empty(self) -> None:
        self._pulls = max(0, self._pulls - 1)
        self._arrived.wake_all()

    def _cancelled(self, code: str, message: str, fix: str) -> None:
        self._announced = False
        self._settlement.void(State.RETURNED)
        self._end(ConsumerError(code, message, fix))

    def _void_until_rolled_back(self) -> None:
        self._voiding += 1
        if (wire := self._connection.wire) is not None:
            self._settlement.write_pending(wire)
        self._settlement.void(State.RETURNED)
        self._clear_inbox(State.RETURNED)

    def _rolled_back(self) -> None:
        self._voiding = max(0, self._voiding - 1)
        if self.prefetch == 0:
            self._arrived.wake_all()  # what answered their pulls may have been void: they are asked for again

    def _lost(self) -> None:
        self._announced = False
        self._voiding = 0
        self._pulls = 0
        self._settlement.void(State.LOST)
        kept = [message for message in self._inbox if message._state is State.ACKNOWLEDGED]
        self._clear_inbox(State.LOST)
        self._inbox.extend(kept)
        if self.prefetch == 0:
            self._arrived.wake_all()

    def _clear_inbox(self, state: State) -> None:
        for message in self._inbox:
            if message._state is State.UNREAD:
                message._state = state
        self._inbox.clear()

    def _end(self, error: HomingError) -> None:
        """Nothing is handed out any more. Idempotent; the first reason stays."""
        if self._ended is not None:
            return
        self._ended = error
        self._clear_inbox(State.RETURNED)
        if self.session._transaction is None:
            self._end_held()
        self.session._forget_consumer(self)
        self._arrived.wake_all()
        self._answered.wake_all()

    def _end_held(self) -> None:
        wire = self._connection.wire
        if wire is not None:
            self._settlement.write_pending(wire)
        self._settlement.void(State.RETURNED)
