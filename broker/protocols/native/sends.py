"""What one native connection sends: read and charged to the producer's credit as it comes, stored in order, a turn's worth at a time.

While a frame is not stored whole (its messages go to very many queues), those behind it wait here, as many as credit allows; whatever else
the client does meanwhile (acknowledge, commit, ask) goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ...broker import Broker
from ...connection import Connection
from ...core.memory import Kind, Owner
from ...core.message import REFERENCE_BYTES, Message
from ...core.producer import BEYOND_BYTES, BEYOND_MESSAGES, Producer
from ...errors import Refused
from ...shares import Share, least
from ..output import PausableOutput
from . import fields
from .codec import MESSAGE_OVERHEAD_BYTES, PROPERTY_OVERHEAD_BYTES, Op, ProtocolError
from .fields import MAX_SESSION, malformed, shown, unsigned

#: What waits beyond this waits in the socket: not all of it is bounded by credit.
_MOST_WAITING: Final = 10_000
#: Sessions of one connection that may have a transaction open at once.
_MAX_TRANSACTIONS: Final = 1000


class Sends:
    def __init__(
        self,
        broker: Broker,
        output: PausableOutput,
        write: Callable[[list[object]], None],
        broken: Callable[[Exception], None],
        max_properties_bytes: int,
        largest_message: int,
    ) -> None:
        self._broker = broker
        self._flow, self._intake = broker.flow, broker.intake
        self._output = output
        self._write = write
        self._broken = broken
        self._max_properties_bytes = max_properties_bytes
        self._largest_message = largest_message
        #: What waits for its turn, in order; each returns whether it is done. And what it takes in memory, which is charged meanwhile.
        self._line: deque[tuple[Callable[[], bool], int]] = deque()
        self._owner = Owner(broker.memory, Kind.CONNECTIONS)

    def limit_to(self, shares: Sequence[Share]) -> None:
        """No message may be larger than any of them lets it be."""
        self._largest_message = least(self._largest_message, shares)

    def send(self, connection: Connection, number: int, first: int, said: list[object] | None, items: list[object], session: int) -> None:
        """``said``: of all of them, behind their bodies; None: each item says it itself. Raises ProtocolError."""
        producer = connection.producers.get(number)
        if producer is None:
            raise malformed(f"producer {number} is not open")
        broker, now_ms = self._broker, self._broker.now_ms()
        credit = producer.credit_messages, producer.credit_bytes
        # Before the messages are looked at: a frame may hold very many small ones.
        if len(items) > credit[0] + BEYOND_MESSAGES:
            raise _credit_exceeded()
        whose = (producer.address, producer.name, now_ms)
        if said is None:
            messages, cost, refusal = fields.messages(items, *whose, self._max_properties_bytes)
        else:
            messages, cost, refusal = fields.messages_alike(said, items, *whose)
        if cost > credit[1] + BEYOND_BYTES:
            raise _credit_exceeded()
        nothing_more = self._flow.take(producer, len(items), cost)
        if cost + self._max_properties_bytes > self._largest_message:
            messages, oversize = fields.up_to_oversize(messages, self._largest_message)
            refusal = oversize or refusal
        if nothing_more is not None:
            repeats = 0 if session else max(0, producer.high_watermark + 1 - first)
            taken = max(repeats, _within(messages, *credit))
            if taken < len(messages):
                messages, refusal = messages[:taken], _without_credit(nothing_more)
        if session:
            if messages:
                self._intake.sent(producer, messages[-1])
            broker.transactions.hold_sends(connection, session, messages, refusal)
            self._flow.top_up(producer)
        elif self._line or not self._store(connection, producer, first, messages, refusal, now_ms):
            weight = sum([REFERENCE_BYTES + message.weight for message in messages])
            self._wait(lambda: self._store(connection, producer, first, messages, refusal, broker.now_ms()), weight)

    def then(self, act: Callable[[], None]) -> None:
        """Once everything before it is stored; at once, when it is."""
        if not self._line:
            act()
            return

        def done() -> bool:
            act()
            return True

        self._wait(done, 0)

    def drop(self) -> None:
        """The connection is gone: what was not stored yet is not stored any more. Nobody was notified that it was."""
        self._line.clear()
        self._owner.close()

    @property
    def full(self) -> bool:
        return len(self._line) >= _MOST_WAITING

    def _wait(self, work: Callable[[], bool], weight: int) -> None:
        self._line.append((work, weight))
        self._owner.charge(weight)
        if len(self._line) == 1:
            self._broker.throttle.wait(self._go_on)
        elif self.full:
            self._output.pause_reading()

    def _go_on(self) -> None:
        """Another turn; one frame at least is worked on, and what follows it as long as there is room."""
        line, broker = self._line, self._broker
        try:
            while line and broker.throttle.has_room() and line[0][0]():
                if line:
                    self._owner.charge(-line.popleft()[1])
        except Exception as error:
            self._broken(error)
        if line:
            broker.throttle.wait(self._go_on)
        self._output.resume_reading()

    def _store(
        self, connection: Connection, producer: Producer, first: int, messages: list[Message], refusal: Refused | None, now_ms: int
    ) -> bool:
        """Whether the whole frame is done: stored, refused from some message on, or ignored."""
        if not connection.open:
            return True
        broker, before = self._broker, producer.high_watermark
        refused = self._intake.send(producer, first, messages, now_ms)
        last = first + len(messages) - 1
        if refused is None and refusal is not None and producer.high_watermark == last:
            refused = last + 1, refusal
        done = refused is not None or producer.high_watermark >= last or first > producer.high_watermark + 1
        if refused is not None or producer.high_watermark >= last or producer.high_watermark > before:
            up_to = min(producer.high_watermark, last) if refused is None else refused[0] - 1
            answer: list[object] = [int(Op.CONFIRM), producer.number, up_to]
            if refused is not None:
                answer.append([refused[0], refused[1].code, shown(refused[1].message), shown(refused[1].fix)])
            broker.journal.when_stored(partial(self._write, answer))
        if not done:
            self._flow.notify_blocked(producer)
            if producer.high_watermark > before:
                # It had room, and took none of it where messages had come before: nothing else brings about the next turn then.
                broker.ready.wake()
        elif connection.producers.get(producer.number) is producer:
            self._flow.top_up(producer)
        return done


def _within(messages: list[Message], most: int, room: int) -> int:
    """How many of the first so much credit is for, with the one that takes the rest of it."""
    for number, message in enumerate(messages):
        if number >= most or room <= 0:
            return number
        room -= message.size + MESSAGE_OVERHEAD_BYTES + PROPERTY_OVERHEAD_BYTES * len(message.properties or ())
    return len(messages)


def _without_credit(why: str) -> Refused:
    return Refused(
        "credit-exceeded", f"the producer has no credit left, and none is granted now: {why}", "wait for CREDIT, then send again"
    )


def check_session(connection: Connection, session: int) -> None:
    """Raises ProtocolError unless the session has a transaction, or may have one."""
    unsigned(session, "session", MAX_SESSION)
    if session not in connection.transactions and len(connection.transactions) >= _MAX_TRANSACTIONS:
        raise ProtocolError(
            "too-many-transactions",
            f"{_MAX_TRANSACTIONS} sessions of this connection have a transaction open",
            "commit them, or open another connection",
        )


def _credit_exceeded() -> ProtocolError:
    return ProtocolError("credit-exceeded", "the producer sent far beyond its credit", "wait for CREDIT, see docs/protocol.md, 2.2")
