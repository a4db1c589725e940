"""One native connection: frames in, Broker verbs out, and the broker's answers as frames. Sans-IO: bytes leave through ``Output``.

A refused operation is answered and the connection goes on; a frame that cannot be understood raises ProtocolError, and the
transport ends the connection with an ERROR frame.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from broker.broker import Broker
from broker.connection import Connection
from broker.core.consumer import Consumer
from broker.core.message import Message, MessageReference
from broker.core.redelivery import ConsumerPolicy, Failure, PolicyError, PolicyMap
from broker.errors import Refused
from broker.producers import Producer
from broker.protocols.native import fields
from broker.protocols.native.codec import MAGIC, PROTOCOL_VERSION, AckType, Frame, Op, ProtocolError, check_ranges, encode
from broker.protocols.native.fields import malformed, take, unsigned

#: Deliveries are cut into frames of about this size.
DELIVER_FRAME_BYTES: Final = 1024 * 1024


class Output(Protocol):
    """The transport's side of a connection."""

    @property
    def writable(self) -> bool: ...

    def write(self, data: bytes) -> None: ...

    def end(self) -> None:
        """Closes the socket once everything written has left."""

    def opened(self, heartbeat_ms: int) -> None:
        """Login is done: the wide limits and the heartbeat apply from here on."""


@dataclass(frozen=True, slots=True)
class NativeOptions:
    broker_id: str
    product: str
    heartbeat_ms: int = 10_000
    max_frame_bytes: int = 16 * 1024 * 1024
    max_properties_bytes: int = fields.MAX_PROPERTIES_BYTES


#: (user, password, callback with the user's name or a refusal); the callback may come later, off the loop's current turn.
Authenticate = Callable[[str | None, str | None, Callable[[str | Refused], None]], None]
#: (verb, arguments, answer): runs a CALL; ``answer`` gets the value or a refusal, now or later.
Call = Callable[[Connection, str, dict[str, Any], Callable[[Any], None]], None]


class NativeSession:
    def __init__(self, broker: Broker, output: Output, options: NativeOptions, authenticate: Authenticate, call: Call) -> None:
        self._broker = broker
        self._output = output
        self._options = options
        self._authenticate = authenticate
        self._call = call
        self._connection: Connection | None = None
        self._waiting: list[Frame] | None = None
        self._ended = False
        self._handlers: dict[int, Callable[[Connection, Frame], None]] = {
            Op.SEND: self._on_send,
            Op.ACK: self._on_ack,
            Op.GIVEN: self._on_given,
            Op.PULL: self._on_pull,
            Op.TOUCH: self._on_touch,
            Op.PRODUCER: self._on_producer,
            Op.END_PRODUCER: self._on_end_producer,
            Op.SUBSCRIBE: self._on_subscribe,
            Op.UNSUBSCRIBE: self._on_unsubscribe,
            Op.COMMIT: self._on_commit,
            Op.ROLLBACK: self._on_rollback,
            Op.SESSION_ENDED: self._on_rollback,
            Op.CALL: self._on_call,
            Op.CLOSE: self._on_close,
            Op.HEARTBEAT: lambda connection, frame: None,
        }

    # -- frames in ---------------------------------------------------------------------------------------------------

    def receive(self, frames: list[Frame]) -> None:
        """Acts on frames, in order. Raises ProtocolError."""
        for number, frame in enumerate(frames):
            if self._ended:
                return
            if self._waiting is not None:
                self._waiting += frames[number:]
                return
            connection = self._connection
            if connection is None:
                self._hello(frame)
                continue
            handler = self._handlers.get(frame[0])
            if handler is None:
                raise ProtocolError("unknown-op", f"there is no operation {frame[0]}", "see docs/protocol.md, section 2")
            handler(connection, frame)

    def lost(self) -> None:
        """The socket is gone."""
        self._ended = True
        if self._connection is not None:
            self._broker.disconnect(self._connection, lost=True)

    def heartbeat(self) -> None:
        self._write([int(Op.HEARTBEAT)])

    def _write(self, frame: list[Any]) -> None:
        if not self._ended:
            self._output.write(encode(frame))

    def _refuse(self, request: int, refusal: Refused) -> None:
        self._write([int(Op.REFUSED), request, refusal.code, refusal.message, refusal.fix])

    # -- login -------------------------------------------------------------------------------------------------------

    def _hello(self, frame: Frame) -> None:
        if frame[0] != Op.HELLO:
            raise ProtocolError("hello-expected", "the first frame must be HELLO", "see docs/protocol.md, 2.1")
        magic, version, options = take(frame, "HELLO", str, int, dict)
        if magic != MAGIC:
            raise ProtocolError("hello-expected", "this is not the native protocol", "connect with a Homing client")
        if version != PROTOCOL_VERSION:
            raise ProtocolError(
                "unsupported-version",
                f"the client speaks version {version}, this broker {PROTOCOL_VERSION}",
                "upgrade the older of the two",
            )
        fields.nested(options)
        for name, kind in (("client_id", str), ("product", str), ("heartbeat_ms", int), ("user", str), ("password", str)):
            if options.get(name) is not None and type(options[name]) is not kind:
                raise malformed(f"HELLO's {name} must be {kind.__name__}")
        self._waiting = []
        self._authenticate(options.get("user"), options.get("password"), lambda result: self._logged_in(result, options))

    def _logged_in(self, user: str | Refused, options: dict[str, Any]) -> None:
        if self._ended:
            return
        if isinstance(user, Refused):
            self.end(user.code, user.message, user.fix)
            return
        try:
            policies = PolicyMap.from_map(options["redelivery_policies"]) if options.get("redelivery_policies") else None
            self._connection = self._broker.connect(options.get("client_id") or "", user, self, policies)
        except (Refused, PolicyError) as refusal:
            self.end(refusal.code, refusal.message, refusal.fix)
            return
        ours, theirs = self._options.heartbeat_ms, unsigned(options.get("heartbeat_ms") or 0, "heartbeat_ms", 86_400_000)
        heartbeat_ms = min(ours, theirs) if ours and theirs else 0
        self._output.opened(heartbeat_ms)
        self._write(
            [
                int(Op.WELCOME),
                PROTOCOL_VERSION,
                {
                    "broker_id": self._options.broker_id,
                    "connection": self._connection.number,
                    "heartbeat_ms": heartbeat_ms,
                    "max_frame_bytes": self._options.max_frame_bytes,
                    "product": self._options.product,
                },
            ]
        )
        waiting, self._waiting = self._waiting or [], None
        self.receive(waiting)

    # -- producing ---------------------------------------------------------------------------------------------------

    def _on_producer(self, connection: Connection, frame: Frame) -> None:
        request, number, address = take(frame, "PRODUCER", int, int, str)
        unsigned(number, "producer", 65_535, 1)
        try:
            producer = self._broker.open_producer(connection, number, address)
        except Refused as refusal:
            self._refuse(request, refusal)
            return

        def answer() -> None:
            self._write([int(Op.RESULT), request, {"mark": producer.mark}])
            if connection.producers.get(number) is producer:
                self._broker.flow.open(producer)

        self._broker.ledger.when_safe(answer)

    def _on_end_producer(self, connection: Connection, frame: Frame) -> None:
        (number,) = take(frame, "END_PRODUCER", int)
        self._broker.close_producer(connection, number)

    def _on_send(self, connection: Connection, frame: Frame) -> None:
        number, first, items, session = take(frame, "SEND", int, int, list, int, defaults=(0,))
        producer = connection.producers.get(number)
        if producer is None:
            raise malformed(f"SEND names producer {number}, which is not open")
        unsigned(session, "session", 1 << 31)
        unsigned(first, "first_sequence", lowest=0 if session else 1)
        broker = self._broker
        messages, cost, refusal = fields.messages(
            items, producer.address, producer.name, broker.now_ms(), self._options.max_properties_bytes
        )
        if not broker.flow.charge(producer, len(items), cost):
            raise ProtocolError("credit-exceeded", "the producer sent far beyond its credit", "wait for CREDIT, see docs/protocol.md, 2.2")
        if session:
            if refusal is not None:
                broker.transactions.fail(broker.transactions.of(connection, session), refusal.code, refusal.message, refusal.fix)
            broker.transactions.hold_sends(connection, session, messages)
        else:
            self._store(producer, first, messages, refusal)
        broker.flow.top_up(producer)

    def _store(self, producer: Producer, first: int, messages: list[Message], refusal: Refused | None) -> None:
        broker = self._broker
        refused = broker.send(producer, first, messages)
        last = first + len(messages) - 1
        if refused is None and refusal is not None and producer.mark == last:
            refused = last + 1, refusal
        if producer.mark < last and refused is None:
            return
        up_to = min(producer.mark, last) if refused is None else refused[0] - 1
        answer: list[Any] = [int(Op.CONFIRM), producer.number, up_to]
        if refused is not None:
            answer.append([refused[0], refused[1].code, refused[1].message, refused[1].fix])
        broker.ledger.when_safe(lambda: self._write(answer))

    # -- consuming ---------------------------------------------------------------------------------------------------

    def _on_subscribe(self, connection: Connection, frame: Frame) -> None:
        request, number, name, options = take(frame, "SUBSCRIBE", int, int, str, dict)
        unsigned(number, "consumer", 1 << 31, 1)
        try:
            consumer = self._broker.subscribe(connection, number, name, _consumer_options(options))
        except (Refused, PolicyError) as refusal:
            self._refuse(request, Refused(refusal.code, refusal.message, refusal.fix))
            return
        queue = consumer.queue
        self._write([int(Op.RESULT), request, {"queue": queue.name, "address": queue.address, "prefetch": consumer.prefetch}])

    def _consumer(self, connection: Connection, number: int) -> Consumer | None:
        return connection.consumers.get(number) or connection.retired.get(number)

    def _on_unsubscribe(self, connection: Connection, frame: Frame) -> None:
        request, number = take(frame, "UNSUBSCRIBE", int, int)
        consumer = connection.consumers.get(number)
        if consumer is not None:
            self._broker.unsubscribe(connection, consumer)
        self._answer_when_safe(request, None)

    def _on_given(self, connection: Connection, frame: Frame) -> None:
        number, tag = take(frame, "GIVEN", int, int)
        consumer = self._consumer(connection, number)
        if consumer is not None:
            consumer.given(tag, self._broker.now_ms())

    def _on_pull(self, connection: Connection, frame: Frame) -> None:
        number, timeout_ms = take(frame, "PULL", int, int)
        unsigned(timeout_ms, "timeout_ms", fields.MAX_DURATION_MS, -1)
        consumer = connection.consumers.get(number)
        if consumer is None or consumer.prefetch:
            raise malformed(f"PULL names consumer {number}, which is not one with prefetch 0")
        self._broker.pull(connection, consumer, timeout_ms)

    def _on_touch(self, connection: Connection, frame: Frame) -> None:
        number, ranges = take(frame, "TOUCH", int, list)
        consumer = self._consumer(connection, number)
        held, missing = consumer.held(check_ranges(ranges)) if consumer is not None else ([], ranges)
        now_ms = self._broker.now_ms()
        for reference in held:
            if reference.given_at_ms is not None:
                reference.given_at_ms = now_ms
        if missing:
            self._write([int(Op.NOT_HELD), number, missing])

    # -- settling ----------------------------------------------------------------------------------------------------

    def _on_ack(self, connection: Connection, frame: Frame) -> None:
        number, kind, ranges, report, request, session = take(frame, "ACK", int, int, list, object, int, int, defaults=(None, 0, 0))
        check_ranges(ranges)
        report = _report(report)
        consumer = self._consumer(connection, number)
        if consumer is None:
            self._not_held(number, ranges, request)
            return
        if kind == AckType.DELIVERED:
            consumer.delivered(sum(ranges[at + 1] - ranges[at] + 1 for at in range(0, len(ranges), 2)))
            self._broker.state.mark_ready(consumer.queue)
            return
        held, missing = consumer.held(ranges)
        self._settle(connection, consumer, kind, held, report, session)
        if missing and not request:
            self._write([int(Op.NOT_HELD), number, missing])
        if request:
            self._answer_when_safe(request, {"not_held": missing})

    def _settle(
        self, connection: Connection, consumer: Consumer, kind: int, held: list[MessageReference], report: dict[str, Any], session: int
    ) -> None:
        broker = self._broker
        if kind in (AckType.STANDARD, AckType.INDIVIDUAL):
            if session:
                broker.transactions.hold_acknowledgement(connection, session, consumer, held)
            else:
                broker.acknowledge(consumer, held)
        elif kind == AckType.REDELIVERED:
            failure = Failure(report.get("count", True), report.get("retryable", True), report.get("delay_ms"), report.get("until_ms"))
            broker.fail(consumer, held, failure, report.get("outcome", "nack"), report)
        elif kind == AckType.POISON:
            broker.poison(consumer, held, report)
        elif kind == AckType.UNMATCHED:
            broker.give_back(consumer, held)
        elif kind == AckType.EXPIRED:
            broker.client_saw_expire(consumer, held)
        else:
            raise malformed(f"there is no acknowledgement type {kind}")

    def _not_held(self, number: int, ranges: list[int], request: int) -> None:
        if request:
            self._answer_when_safe(request, {"not_held": ranges})
        else:
            self._write([int(Op.NOT_HELD), number, ranges])

    # -- transactions ------------------------------------------------------------------------------------------------

    def _on_commit(self, connection: Connection, frame: Frame) -> None:
        request, session, transaction_id, sends = take(frame, "COMMIT", int, int, str, int)
        if not 0 < len(transaction_id) <= 128 or not transaction_id.isprintable():
            raise malformed("a transaction_id is 1 to 128 printable characters")
        try:
            self._broker.transactions.commit(connection, unsigned(session, "session", 1 << 31, 1), transaction_id, sends)
        except Refused as refusal:
            self._refuse(request, refusal)
            return
        self._answer_when_safe(request, None)

    def _on_rollback(self, connection: Connection, frame: Frame) -> None:
        request, session = take(frame, "ROLLBACK", int, int)
        self._broker.transactions.roll_back(connection, unsigned(session, "session", 1 << 31, 1))
        self._write([int(Op.RESULT), request, None])

    # -- the rest ----------------------------------------------------------------------------------------------------

    def _on_call(self, connection: Connection, frame: Frame) -> None:
        request, verb, arguments = take(frame, "CALL", int, str, dict)
        fields.nested(arguments)

        def answer(value: Any) -> None:
            if isinstance(value, Refused):
                self._refuse(request, value)
            else:
                self._write([int(Op.RESULT), request, value])

        self._call(connection, verb, arguments, answer)

    def _on_close(self, connection: Connection, frame: Frame) -> None:
        (request,) = take(frame, "CLOSE", int)
        self._broker.disconnect(connection, lost=False)

        def closed() -> None:
            self._write([int(Op.CLOSED), request])
            self._ended = True
            self._output.end()

        self._broker.ledger.when_safe(closed)

    def _answer_when_safe(self, request: int, value: Any) -> None:
        if request:
            self._broker.ledger.when_safe(lambda: self._write([int(Op.RESULT), request, value]))

    # -- what the broker says ----------------------------------------------------------------------------------------

    @property
    def writable(self) -> bool:
        return self._output.writable

    def deliver(self, consumer: Consumer, references: list[MessageReference]) -> None:
        first, size = references[0].tag, 0
        batch: list[list[Any]] = []
        for reference in references:
            if size > DELIVER_FRAME_BYTES or reference.tag != first + len(batch):
                self._write([int(Op.DELIVER), consumer.number, first, batch])
                first, size, batch = reference.tag, 0, []
            batch.append(_delivery(reference))
            size += reference.message.size
        self._write([int(Op.DELIVER), consumer.number, first, batch])

    def grant(self, producer: Producer, messages: int, size: int, reason: str | None) -> None:
        self._write([int(Op.CREDIT), producer.number, messages, size, reason])

    def pull_empty(self, consumer: Consumer) -> None:
        self._write([int(Op.PULL_EMPTY), consumer.number])

    def cancelled(self, consumer: Consumer, code: str, message: str, fix: str) -> None:
        self._write([int(Op.CANCELLED), consumer.number, code, message, fix])

    def not_held(self, consumer: Consumer, ranges: list[int]) -> None:
        self._write([int(Op.NOT_HELD), consumer.number, ranges])

    def end(self, code: str, message: str, fix: str) -> None:
        """Says why and closes."""
        self._write([int(Op.ERROR), code, message, fix])
        self._ended = True
        self._output.end()


def _delivery(reference: MessageReference) -> list[Any]:
    """A message as DELIVER carries it, trailing defaults left out."""
    message = reference.message
    delivery = [
        message.message_id,
        reference.delivery_count + (not reference.counted),
        message.address,
        message.body,
        reference.visible_properties(),
        reference.priority,
        message.sent_at_ms,
        reference.expires_at_ms or 0,
    ]
    if not message.durable:
        delivery.append(False)
    return delivery


_REPORT_TYPES: Final[dict[str, type]] = {
    "reason": str,
    "error_type": str,
    "error_text": str,
    "traceback": str,
    "delay_ms": int,
    "until_ms": int,
    "retryable": bool,
    "count": bool,
    "outcome": str,
}
_OUTCOMES: Final = ("nack", "listener", "recover", "error")


def _report(report: object) -> dict[str, Any]:
    """A failure report, checked. Text that cannot be written as UTF-8 never gets here: msgpack refuses it."""
    if report is None:
        return {}
    if type(report) is not dict:
        raise malformed("failure must be a map")
    kept: dict[str, Any] = {}
    for name, value in report.items():
        kind = _REPORT_TYPES.get(name)
        if kind is None:
            raise malformed(f"failure has no key {name!r}")
        if value is None:
            continue
        if type(value) is not kind:
            raise malformed(f"failure's {name} must be {kind.__name__}")
        kept[name] = value
    if kept.get("outcome", "nack") not in _OUTCOMES:
        raise malformed(f"failure's outcome must be one of {', '.join(_OUTCOMES)}")
    for name in ("delay_ms", "until_ms"):
        if name in kept:
            unsigned(kept[name], name)
    return kept


def _consumer_options(options: dict[str, Any]) -> dict[str, Any]:
    """SUBSCRIBE's options, checked; the policy as ConsumerPolicy. Raises Refused and PolicyError."""
    types = {"prefetch": int, "selector": str, "redelivery_policy": dict, "session": int, "transacted": bool}
    read = {name: value for name, value in options.items() if value is not None}
    for name, value in read.items():
        kind = types.get(name)
        if kind is None:
            raise Refused("invalid-argument", f"a consumer has no option {name!r}", "options: " + ", ".join(types))
        if type(value) is not kind:
            raise Refused("invalid-argument", f"{name} must be {kind.__name__}, not {type(value).__name__}", "see docs/protocol.md, 2.3")
    if not 0 <= read.get("prefetch", 0) <= 100_000 or read.get("session", 0) < 0:
        raise Refused("invalid-argument", "prefetch must be 0 to 100000 and session 0 or more", "see docs/protocol.md, 2.3")
    if "redelivery_policy" in read:
        read["redelivery_policy"] = ConsumerPolicy.from_map(read["redelivery_policy"])
    return read
