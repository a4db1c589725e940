"""What one consumer holds, and the acknowledgements on their way out for it; and what all consumers of a session hold together.

A message is *handing* from the moment its GIVEN is written until the application has it, then *held* until it is settled.
Acknowledgements of one loop turn leave as one frame of ranges; ``lazy`` ones (DUPS_OK, optimize_acknowledge) wait for a share of
the prefetch or 300 ms.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any, Final

from homing.broker.protocols.native.codec import AckType, Op, ranges_of

from .errors import SettleError, UsageError
from .failure import ROOMY_BYTES, fitted
from .link import Link, Reply
from .message import ACKNOWLEDGED, DONE, HELD, Message, State
from .modes import AckMode
from .options import ConsumerOptions
from .wire import Wire

LAZY_FLUSH_MS: Final = 300
#: Of the prefetch: when lazy acknowledgements leave (ActiveMQ's figures), and when "delivered" (type 0) is reported.
DUPS_OK_SHARE: Final = 0.5
OPTIMIZED_SHARE: Final = 0.65
DELIVERED_SHARE: Final = 0.5

_REPORTS_DELIVERED: Final = (AckMode.CLIENT, AckMode.TRANSACTED, AckMode.INDIVIDUAL)


def not_held(message: Message) -> SettleError:
    """Why this message cannot be settled."""
    lost = message._state is State.LOST
    reason = {
        State.LOST: "came on a connection that was lost; the broker has it again",
        State.RETURNED: "went back to its queue already",
        State.ACKNOWLEDGED: "was acknowledged already",
    }.get(message._state, "is not held by this consumer")
    return SettleError("not-held", f"message {message.message_id} {reason}", "settle a message once, while it is held", lost)


class SessionSettlement:
    """``last``: the message that the session handed out last. ``settlements``: by consumer."""

    def __init__(self, mode: AckMode) -> None:
        self.mode = mode
        self.last: Message | None = None
        self.settlements: dict[int, Settlement] = {}

    def acknowledge_all(self, scope: object | None, confirm: bool) -> Awaitable[None]:
        """Settle what is held, of one listener's worker or (None) everything."""
        work: list[tuple[Settlement, list[Message]]] = []
        for settlement in self.settlements.values():
            held = settlement.held.values()
            mine = list(held) if scope is None else [message for message in held if message._scope is scope]
            if confirm:
                mine = mine or settlement.lost_of(scope)
            if mine:
                work.append((settlement, mine))
        if confirm:
            return _confirm_all(work)
        for settlement, messages in work:
            settlement.acknowledge(messages)
        return DONE

    def acknowledge(self, settlement: Settlement, message: Message, confirm: bool) -> Awaitable[None]:
        """What ``message.acknowledge()`` means in this mode. Raises SettleError ``not-held``, UsageError ``already-acknowledged``."""
        if message._state in (State.LOST, State.RETURNED):
            raise not_held(message)
        if self.mode is AckMode.CLIENT:
            return self.acknowledge_all(message._scope, confirm)
        if self.mode is AckMode.INDIVIDUAL and message._state is not State.HELD:
            raise not_held(message)
        if self.mode is AckMode.INDIVIDUAL or confirm:
            if message._state is not State.HELD or self.mode is AckMode.TRANSACTED:
                raise _confirm_impossible(self.mode)
            if confirm:
                return settlement.acknowledge_confirmed([message])
            settlement.acknowledge((message,))
        return DONE

    def fail_last(self, failure: dict[str, Any], settlement: Settlement | None = None) -> None:
        """The message last handed out failed (with ``settlement``: if it is one of its), unless it is held no longer."""
        message = self.last
        if message is not None and message._state is State.HELD and settlement in (None, message._settlement):
            message._settlement.fail(message, failure)


class Settlement:
    def __init__(self, link: Link, number: int, options: ConsumerOptions, session: SessionSettlement) -> None:
        self._link = link
        self._number = number
        self._session = session
        self._mode = mode = session.mode
        self._by_itself = mode is AckMode.INDIVIDUAL
        self._ack_type = AckType.INDIVIDUAL if mode is AckMode.INDIVIDUAL else AckType.STANDARD
        self.optimized = mode is AckMode.AUTO and options.optimize_acknowledge
        self.is_lazy = mode is AckMode.DUPS_OK or self.optimized
        #: Whether ``finish`` has anything to do.
        self.finishes = self.is_lazy or mode is AckMode.AUTO
        share = OPTIMIZED_SHARE if self.optimized else DUPS_OK_SHARE
        self._lazy_most = max(1, int(options.prefetch * share))
        reports = mode in _REPORTS_DELIVERED and options.prefetch >= 2
        self._delivered_most = int(options.prefetch * DELIVERED_SHARE) if reports else 0
        self.handing: dict[int, Message] = {}
        self.held: dict[int, Message] = {}
        self._acks: list[int] = []
        #: What goes back, in order: (ack type, failure, tags); what failed alike shares an entry, and so a frame.
        self._back: list[tuple[AckType, dict[str, Any] | None, list[int]]] = []
        self._lazy: list[int] = []
        self._lazy_timer: asyncio.TimerHandle | None = None
        self._delivered: list[int] = []
        #: CLIENT: one of the messages that a lost connection took along, for each listener's worker (None: no worker), until reported.
        self._lost: dict[object | None, Message] = {}
        self.unanswered = 0  # NOT_HELD answers to acknowledgements nobody waited for
        session.settlements[number] = self

    # -- a message comes

    def hold(self, message: Message) -> None:
        """The application has it now."""
        tag = message._tag
        self.handing.pop(tag, None)
        message._state = HELD
        self._session.last = message
        self._link.last = self._session
        self.held[tag] = message
        if self._delivered_most:
            delivered = self._delivered
            delivered.append(tag)
            if len(delivered) >= self._delivered_most:
                self._report_delivered()

    def _report_delivered(self) -> None:
        """Enlarges the broker's window: type 0 for what is still held; what was settled meanwhile needs no report."""
        self._delivered = [tag for tag in self._delivered if tag in self.held]
        wire = self._link.wire
        if len(self._delivered) >= self._delivered_most and wire is not None:
            wire.write(Op.ACK, self._number, AckType.DELIVERED, ranges_of(self._delivered))
            self._delivered.clear()

    # -- a message is settled

    def acknowledge_message(self, message: Message, confirm: bool) -> Awaitable[None]:
        """See ``Message.acknowledge``."""
        if self._by_itself and message._state is HELD and not confirm:
            self.settle(message)
            return DONE
        return self._session.acknowledge(self, message, confirm)

    def fail(self, message: Message, failure: dict[str, Any]) -> None:
        """Raises SettleError where it is not held."""
        self.give_back([message], AckType.REDELIVERED if failure.get("retryable", True) else AckType.POISON, failure)

    def release(self, message: Message) -> None:
        """Give it back uncounted. Raises SettleError where it is not held."""
        self.give_back([message], AckType.UNMATCHED, None)

    def recover(self) -> None:
        """Give back everything held, as failed."""
        if self.held:
            self.give_back(list(self.held.values()), AckType.REDELIVERED, {"outcome": "recover"})

    def settle(self, message: Message) -> None:
        """Acknowledge one held message; the acknowledgement leaves with this loop turn."""
        tag = message._tag
        del self.held[tag]
        message._state = ACKNOWLEDGED
        if not self._acks and (wire := self._link.wire) is not None:
            wire.mark(self)
        self._acks.append(tag)

    def acknowledge(self, messages: Iterable[Message]) -> None:
        """Settle held messages; the acknowledgement leaves with this loop turn."""
        self._lost.clear()
        for message in messages:
            if self.held.get(message._tag) is message:
                del self.held[message._tag]
                message._state = State.ACKNOWLEDGED
                self._acks.append(message._tag)
        wire = self._link.wire
        if self._acks and wire is not None:
            wire.mark(self)

    def lost_of(self, scope: object | None) -> list[Message]:
        """A message of this worker's (None: of anybody's) that a lost connection took along, not reported yet; at most one each."""
        return [message for owner, message in self._lost.items() if scope in (None, owner)]

    async def acknowledge_confirmed(self, messages: Iterable[Message]) -> None:
        """Acknowledges, and returns when that is on disk. Raises SettleError for what the broker no longer counted as held, and for what a
        lost connection took along: to return would say that it is settled."""
        messages = list(messages)
        lost = self.lost_of(messages[0]._scope if messages else None)
        for message in lost:
            del self._lost[message._scope]
        lost += [message for message in messages if message._state is State.LOST]
        await self._settle_confirmed(messages)
        if lost:
            raise not_held(lost[0])

    async def _settle_confirmed(self, messages: list[Message]) -> None:
        settled = [message for message in messages if self.held.get(message._tag) is message]
        for message in settled:
            del self.held[message._tag]
        wire = self._link.wire
        if not settled or wire is None:
            return
        for message in settled:
            message._state = State.ACKNOWLEDGED
        tags = sorted(message._tag for message in settled)
        future: asyncio.Future[Any] = self._link.loop.create_future()
        request = self._link.expect(Reply(SettleError, future))
        wire.write(Op.ACK, self._number, self._ack_type, ranges_of(tags), None, request)
        gone = (await future)["not_held"]
        if gone:
            raise SettleError(
                "not-held",
                f"the broker no longer held {_count(gone)} of {len(tags)} acknowledged messages; the rest is settled",
                "settle within the consumer timeout, or touch() the message while working on it",
            )

    def acknowledge_lazily(self, message: Message) -> None:
        self._lazy.append(message._tag)
        if len(self._lazy) >= self._lazy_most:
            self.flush_lazy()
        elif self._lazy_timer is None:
            self._lazy_timer = self._link.loop.call_later(LAZY_FLUSH_MS / 1000, self.flush_lazy)

    def flush_lazy(self) -> None:
        """Send lazy acknowledgements now."""
        if self._lazy_timer is not None:
            self._lazy_timer.cancel()
            self._lazy_timer = None
        if self._lazy:
            tags, self._lazy = self._lazy, []
            self.acknowledge([self.held[tag] for tag in tags if tag in self.held])

    def finish(self, message: Message) -> None:
        """The application is done with it (a listener returned, or ``receive()`` handed it out under DUPS_OK)."""
        if message._state is not HELD:
            return
        if self.is_lazy:
            self.acknowledge_lazily(message)
        elif self._mode is AckMode.AUTO:
            self.settle(message)

    def give_back(self, messages: Iterable[Message], ack_type: AckType, failure: dict[str, Any] | None) -> None:
        """Return held messages with this loop turn; raises SettleError for one that is not held."""
        messages = list(messages)
        for message in messages:
            if self.held.get(message._tag) is not message:
                raise not_held(message)
        for message in messages:
            del self.held[message._tag]
            message._state = State.RETURNED
        wire = self._link.wire
        if messages and wire is not None:
            if failure is not None and self._link.max_message_bytes < ROOMY_BYTES:
                failure = fitted(failure, self._link.max_message_bytes)
            back = self._back
            if not back or back[-1][0] is not ack_type or back[-1][1] != failure:
                back.append((ack_type, failure, []))
            back[-1][2].extend([message._tag for message in messages])
            wire.mark(self)

    def expire(self, message: Message) -> None:
        """It expired while it waited here: it takes the expiry path at the broker and is never handed out."""
        message._state = State.RETURNED
        wire = self._link.wire
        if wire is not None:
            wire.write(Op.ACK, self._number, AckType.EXPIRED, [message._tag, message._tag])

    def touch(self, message: Message) -> None:
        wire = self._link.wire
        if self.held.get(message._tag) is not message or wire is None:
            raise not_held(message)
        wire.write(Op.TOUCH, self._number, [message._tag, message._tag])

    # -- transactions

    def take_for_commit(self, wire: Wire, transaction: int) -> list[Message]:
        """Write the acknowledgement of everything held into a transaction; the messages it covers."""
        messages = list(self.held.values())
        if messages:
            self.held.clear()
            self._delivered.clear()
            ranges = ranges_of(sorted(message._tag for message in messages))
            wire.write(Op.ACK, self._number, self._ack_type, ranges, None, 0, transaction)
        return messages

    # -- the wire's side

    def write_pending(self, wire: Wire) -> None:
        if self._acks:
            tags, self._acks = self._acks, []
            wire.append((Op.ACK, self._number, self._ack_type, ranges_of(sorted(tags))))
        if self._back:
            back, self._back = self._back, []
            for ack_type, failure, tags in back:
                wire.append((Op.ACK, self._number, ack_type, ranges_of(sorted(tags)), *(() if failure is None else (failure,))))

    @property
    def unwritten(self) -> int:
        return len(self._acks) + len(self._lazy) + sum(len(tags) for _, _, tags in self._back)

    def void(self, state: State) -> None:
        """Everything given is out of this client's hands: the connection was lost, or the broker took it back."""
        if state is State.LOST and self._mode is AckMode.CLIENT:
            self._lost.update((message._scope, message) for message in self.held.values())
        for message in (*self.handing.values(), *self.held.values()):
            message._state = state
        self.handing.clear()
        self.held.clear()
        self._acks.clear()
        self._back.clear()
        self._lazy.clear()
        self._delivered.clear()
        if self._lazy_timer is not None:
            self._lazy_timer.cancel()
            self._lazy_timer = None


def _count(ranges: list[int]) -> int:
    return sum(ranges[at + 1] - ranges[at] + 1 for at in range(0, len(ranges), 2))


async def _confirm_all(work: list[tuple[Settlement, list[Message]]]) -> None:
    results = await asyncio.gather(*(settlement.acknowledge_confirmed(messages) for settlement, messages in work), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


def _confirm_impossible(mode: AckMode) -> UsageError:
    return UsageError(
        "already-acknowledged",
        f"in {mode.name} this message is acknowledged without your doing, so its acknowledgement cannot be confirmed",
        "use AckMode.CLIENT or AckMode.INDIVIDUAL for acknowledge(confirm=True)",
    )
