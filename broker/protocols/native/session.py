"""One native connection: frames in, Broker verbs out, and the broker's answers as frames. Sans-IO: bytes leave through ``Output``.

A refused operation is answered and the connection goes on; a frame that cannot be understood raises ProtocolError, and the
transport ends the connection with an ERROR frame.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...broker import Broker
from ...connection import Connection
from ...core.consumer import Consumer
from ...core.fault import FailureReport
from ...core.message import MessageReference, largest_message
from ...core.producer import Producer
from ...core.redelivery import PolicyMap, RedeliveryPolicyError
from ...errors import Refused
from ...shares import Share
from ..exceptions import connection_ended
from ..failures import checked_report
from ..output import PausableOutput
from . import deliveries, fields
from .answers import refusal_frame, result_frame
from .codec import MAGIC, PROTOCOL_VERSION, AckType, Frame, Op, ProtocolError, check_ranges, encode, ranges_of
from .fields import CONSUMER, FIRST_SEQUENCE, MAX_SEQUENCE, PRODUCER, REQUEST, SESSION, TIMEOUT_MS, malformed, shown, take, unsigned
from .sends import Sends, check_session

log = logging.getLogger("homing")

#: What a client may make the broker's heartbeat; the broker's own setting may be less.
_LEAST_HEARTBEAT_MS: Final = 1000
#: Pulls of one consumer that may wait for an answer.
_MAX_PULLS: Final = 10_000
_LAST_ACK_TYPE: Final = int(AckType.EXPIRED)
_HELLO_OPTIONS: Final[dict[str, type]] = {
    "client_id": str,
    "product": str,
    "product_version": str,
    "host": str,
    "version": str,
    "heartbeat_ms": int,
    "user": str,
    "password": str,
    "joins_bodies": bool,
}


@dataclass(frozen=True, slots=True)
class NativeOptions:
    broker_id: str
    product: str
    heartbeat_ms: int = 10_000
    max_frame_bytes: int = 16 * 1024 * 1024
    max_properties_bytes: int = fields.MAX_PROPERTIES_BYTES
    max_nesting: int = fields.MAX_NESTING
    max_message_bytes: int = 16 * 1024 * 1024


#: (user, password, callback with the user's name or a refusal); the callback may come later, off the loop's current turn. Returns how to
#: call the check off, where it takes time.
Authenticate = Callable[[str | None, str | None, Callable[[str | Refused], None]], Callable[[], object] | None]
#: (verb, arguments, answer): runs a CALL; ``answer`` gets the value or a refusal, now or later. Returns whether that may be much.
Call = Callable[[Connection, str, dict[str, Any], Callable[[object], None]], bool]


class NativeSession:
    def __init__(self, broker: Broker, output: PausableOutput, options: NativeOptions, authenticate: Authenticate, call: Call) -> None:
        self._broker = broker
        self._output = output
        self._options = options
        self._authenticate = authenticate
        self._call = call
        self._connection: Connection | None = None
        #: Frames that came while the login is checked, or behind a call that waits for the answer to another.
        self._waiting: list[Frame] | None = None
        #: What is to get an answer that may be much: who asks faster than it reads would have us hold many of those.
        self._asked: Callable[[object], None] | None = None
        #: What it settles takes several steps.
        self._settles = False
        self._cancel_login: Callable[[], object] | None = None
        #: The client understands DELIVER_BODIES.
        self._joins_bodies = False
        #: What a frame of this connection holds, body and properties, and what may be sent of that.
        self._largest = largest_message(options.max_frame_bytes)
        self._largest_sent = min(self._largest, options.max_message_bytes)
        self._shares: Sequence[Share] = ()
        self._sends = Sends(broker, output, self._write, self.broken, options.max_properties_bytes, self._largest_sent)
        #: CLOSE came: nothing after it is looked at.
        self._closing = False
        #: Nothing is written any more.
        self._ended = False
        self._handlers: dict[int, Callable[[Connection, Frame], object]] = {
            Op.SEND: self._on_send,
            Op.SEND_BODIES: self._on_send_bodies,
            Op.ACK: self._on_ack,
            Op.GIVEN: self._on_delivered,
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
            Op.HEARTBEAT: lambda connection, frame: take(frame, "HEARTBEAT"),
            Op.HELLO: self._on_second_hello,
        }

    # -- frames in ---------------------------------------------------------------------------------------------------

    def receive(self, frames: list[Frame]) -> None:
        """Acts on frames, in order. Raises ProtocolError."""
        for number, frame in enumerate(frames):
            if self._ended or self._closing:
                return
            if self._waiting is not None:
                self._waiting += frames[number:]
                return
            connection = self._connection
            if connection is None:
                self._hello(frame)
                continue
            if self._asked is not None and frame[0] == Op.CALL:
                self._waiting = frames[number:]
                self._output.pause_reading()
                return
            handler = self._handlers.get(frame[0])
            if handler is None:
                raise ProtocolError("unknown-op", f"there is no operation {frame[0]}", "see docs/protocol.md, section 2")
            handler(connection, frame)

    def limit_to(self, shares: Sequence[Share]) -> None:
        self._shares = shares
        self._sends.limit_to(shares)

    def lost(self) -> None:
        """The socket is gone, or soon will be."""
        self._ended = True
        self._sends.drop()
        if self._cancel_login is not None:
            self._cancel_login()
        if self._connection is not None:
            self._broker.connections.disconnect(self._connection, lost=True)

    def broken(self, error: Exception) -> None:
        """What the peer sent cannot be acted on: it is given the reason, and what it held goes back at once."""
        if isinstance(error, ProtocolError):
            connection_ended("native", self._connection, self._output.endpoint, error)
            self.end(error.code, error.message, error.fix)
        else:
            log.error("session-failed: a frame broke its session; its connection is closed, the others go on", exc_info=error)
            self.end("internal-error", "the broker failed on this frame", "report it with the broker's log; reconnect to go on")
        self.lost()

    def resumed(self) -> None:
        """The peer reads again."""
        if self._connection is not None:
            self._broker.consumers.socket_resumed(self._connection)

    def heartbeat(self) -> None:
        self._write([int(Op.HEARTBEAT)])

    def _write(self, frame: Frame) -> None:
        if not self._ended:
            self._output.write(encode(frame))

    def _refuse(self, request: int, refusal: Refused) -> None:
        if not self._ended:
            self._output.write(refusal_frame(request, refusal))

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
        fields.nested(options, self._options.max_nesting - 1, self._options.max_nesting)
        for name, kind in _HELLO_OPTIONS.items():
            if options.get(name) is not None and type(options[name]) is not kind:
                raise malformed(f"HELLO's {name} must be {kind.__name__}")
        self._joins_bodies = options.get("joins_bodies") or False
        unsigned(options.get("heartbeat_ms") or 0, "heartbeat_ms", 86_400_000)
        options["client_id"] = fields.checked_client_id(options.get("client_id"))
        self._waiting = []
        self._cancel_login = self._authenticate(options.get("user"), options.get("password"), lambda user: self._checked(user, options))

    def _checked(self, user: str | Refused, options: dict[str, Any]) -> None:
        """Possibly in a turn of its own, where nobody else would see to what goes wrong."""
        self._cancel_login = None
        try:
            self._logged_in(user, options)
        except Exception as error:
            self.broken(error)

    def _logged_in(self, user: str | Refused, options: dict[str, Any]) -> None:
        if self._ended:
            return
        if isinstance(user, Refused):
            self.end(user.code, user.message, user.fix)
            return
        try:
            policies = PolicyMap.from_map(options["redelivery_policies"]) if options.get("redelivery_policies") else None
            self._connection = self._broker.connections.connect(
                options["client_id"], user, self, policies, client=fields.client(options), peer=self._output.endpoint, shares=self._shares
            )
        except (Refused, RedeliveryPolicyError) as refusal:
            connection_ended("native", None, self._output.endpoint, refusal)
            self.end(refusal.code, refusal.message, refusal.fix)
            return
        self._connection.library = fields.library(options)
        ours, theirs = self._options.heartbeat_ms, options.get("heartbeat_ms") or 0
        heartbeat_ms = min(ours, max(theirs, _LEAST_HEARTBEAT_MS)) if ours and theirs else 0
        self._output.opened(heartbeat_ms)
        self._write(
            [
                int(Op.WELCOME),
                PROTOCOL_VERSION,
                {
                    "broker_id": self._options.broker_id,
                    "connection": self._connection.number,
                    "heartbeat_ms": heartbeat_ms,
                    "joins_bodies": True,
                    "max_frame_bytes": self._options.max_frame_bytes,
                    "product": self._options.product,
                },
            ]
        )
        waiting, self._waiting = self._waiting or [], None
        self.receive(waiting)

    def _on_second_hello(self, connection: Connection, frame: Frame) -> None:
        raise ProtocolError("second-hello", "HELLO came again on an open connection", "open another connection to log in again")

    # -- producing ---------------------------------------------------------------------------------------------------

    def _on_producer(self, connection: Connection, frame: Frame) -> None:
        request, number, address = take(frame, "PRODUCER", REQUEST, PRODUCER, str)
        self._sends.then(lambda: self._open_producer(connection, request, number, address))

    def _open_producer(self, connection: Connection, request: int, number: int, address: str) -> None:
        try:
            producer = self._broker.producers.open(connection, number, address)
        except Refused as refusal:
            self._refuse(request, refusal)
            return

        def answer() -> None:
            self._write([int(Op.RESULT), request, {"mark": producer.high_watermark}])
            if connection.producers.get(number) is producer:
                self._broker.flow.open(producer)

        self._broker.journal.when_safe(answer)

    def _on_end_producer(self, connection: Connection, frame: Frame) -> None:
        (number,) = take(frame, "END_PRODUCER", int)
        self._sends.then(lambda: self._broker.producers.close(connection, number))

    def _on_send(self, connection: Connection, frame: Frame) -> None:
        number, first, items, session = take(frame, "SEND", int, int, list, int, defaults=(0,))
        if session:
            check_session(connection, session)
        self._sends.send(connection, number, unsigned(first, "first_sequence", MAX_SEQUENCE, 0 if session else 1), None, items, session)

    def _on_send_bodies(self, connection: Connection, frame: Frame) -> None:
        number, first, said, bodies = take(frame, "SEND_BODIES", int, FIRST_SEQUENCE, list, list)
        self._sends.send(connection, number, first, said, bodies, 0)

    # -- consuming ---------------------------------------------------------------------------------------------------

    def _on_subscribe(self, connection: Connection, frame: Frame) -> None:
        request, number, name, options = take(frame, "SUBSCRIBE", REQUEST, CONSUMER, str, dict)
        try:
            consumer = self._broker.subscriptions.subscribe(connection, number, name, fields.consumer_options(options))
        except (Refused, RedeliveryPolicyError) as refusal:
            self._refuse(request, Refused(refusal.code, refusal.message, refusal.fix))
            return
        queue = consumer.queue
        self._write([int(Op.RESULT), request, {"queue": queue.name, "address": queue.address, "prefetch": consumer.prefetch}])

    def _consumer(self, connection: Connection, number: int) -> Consumer | None:
        return connection.consumers.get(number) or connection.retired.get(number)

    def _on_unsubscribe(self, connection: Connection, frame: Frame) -> None:
        request, number = take(frame, "UNSUBSCRIBE", REQUEST, int)
        consumer = connection.consumers.get(number)
        if consumer is not None:
            self._broker.consumers.unsubscribe(connection, consumer)
        self._when_settled(connection, lambda: self._answer_when_safe(request, None))

    def _on_delivered(self, connection: Connection, frame: Frame) -> None:
        number, tag = take(frame, "GIVEN", int, int)
        consumer = self._consumer(connection, number)
        if consumer is not None:
            consumer.delivered(tag, self._broker.now_ms())

    def _on_pull(self, connection: Connection, frame: Frame) -> None:
        number, timeout_ms = take(frame, "PULL", int, TIMEOUT_MS)
        consumer = connection.consumers.get(number)
        if consumer is None:
            # Its queue may have been deleted while the PULL was under way: that is nobody's fault.
            self._write([int(Op.PULL_EMPTY), number])
            return
        if consumer.prefetch:
            raise malformed(f"PULL names consumer {number}, which is not one with prefetch 0")
        if consumer.pulls >= _MAX_PULLS:
            raise ProtocolError("too-many-pulls", f"{_MAX_PULLS} pulls of consumer {number} wait for an answer", "wait for answers first")
        self._broker.consumers.pull(connection, consumer, timeout_ms)

    def _on_touch(self, connection: Connection, frame: Frame) -> None:
        number, ranges = take(frame, "TOUCH", int, list)
        check_ranges(ranges)
        consumer = self._consumer(connection, number)
        held, missing = consumer.held(ranges) if consumer is not None else ([], ranges)
        self._broker.consumers.touch(held)
        if missing:
            self._write([int(Op.NOT_HELD), number, missing])

    # -- settling ----------------------------------------------------------------------------------------------------

    def _on_ack(self, connection: Connection, frame: Frame) -> None:
        number, kind, ranges, report, request, session = take(frame, "ACK", int, int, list, object, REQUEST, int, defaults=(None, 0, 0))
        check_ranges(ranges)
        if session:
            check_session(connection, session)
        if not 0 <= kind <= _LAST_ACK_TYPE:
            raise malformed(f"there is no acknowledgement type {kind}")
        # Text that cannot be written as UTF-8 never gets here: msgpack refuses it.
        try:
            failure: FailureReport = {} if report is None else checked_report(report, fields.OUTCOMES)
        except ValueError as error:
            raise malformed(f"failure {error}") from None
        consumer = self._consumer(connection, number)
        if consumer is None:
            self._not_held(number, ranges, request)
            return
        if kind == AckType.DELIVERED:
            self._broker.consumers.delivered(consumer, sum(ranges[at + 1] - ranges[at] + 1 for at in range(0, len(ranges), 2)))
            return
        held, missing = consumer.held(ranges)
        self._settle(connection, consumer, kind, held, failure, session)
        if missing and not request:
            self._write([int(Op.NOT_HELD), number, missing])
        self._when_settled(connection, lambda: self._answer_when_safe(request, {"not_held": missing}))

    def _settle(
        self, connection: Connection, consumer: Consumer, kind: int, held: list[MessageReference], report: FailureReport, session: int
    ) -> None:
        broker = self._broker
        if kind in (AckType.STANDARD, AckType.INDIVIDUAL):
            if session:
                broker.transactions.hold_acknowledgement(connection, session, consumer, held)
            else:
                broker.settlement.acknowledge(consumer, held)
        elif kind == AckType.REDELIVERED:
            broker.settlement.fail(consumer, held, None, report.get("outcome", "nack"), report)
        elif kind == AckType.POISON:
            broker.settlement.poison(consumer, held, report)
        elif kind == AckType.UNMATCHED:
            broker.settlement.give_back(consumer, held)
        else:
            broker.settlement.client_saw_expire(consumer, held)

    def _when_settled(self, connection: Connection, act: Callable[[], None]) -> None:
        """``act`` follows what the connection settles; what takes several steps (delivery/settling.py) is over before anything else is
        acted on."""
        if connection.name not in self._broker.settling.lines:
            act()
            return
        if not self._settles:
            self._settles, self._waiting = True, self._waiting or []
            self._output.pause_reading()

        def over() -> None:
            act()
            self._settles = connection.name in self._broker.settling.lines
            if not self._settles:
                self._go_on()

        self._broker.settling.when_over(connection.name, over)

    def _not_held(self, number: int, ranges: list[int], request: int) -> None:
        if request:
            self._answer_when_safe(request, {"not_held": ranges})
        else:
            self._write([int(Op.NOT_HELD), number, ranges])

    # -- transactions ------------------------------------------------------------------------------------------------

    def _on_commit(self, connection: Connection, frame: Frame) -> None:
        request, session, transaction_id, sends = take(frame, "COMMIT", REQUEST, SESSION, str, int)
        if not 0 < len(transaction_id) <= 128 or not transaction_id.isprintable():
            raise malformed("a transaction_id is 1 to 128 printable characters")
        try:
            self._broker.transactions.commit(connection, session, transaction_id, sends)
        except Refused as refusal:
            self._refuse(request, refusal)
            self._when_settled(connection, lambda: None)
            return
        self._answer_when_safe(request, None)

    def _on_rollback(self, connection: Connection, frame: Frame) -> None:
        request, session = take(frame, "ROLLBACK", REQUEST, SESSION)
        self._broker.transactions.roll_back(connection, session)
        self._when_settled(connection, lambda: self._write([int(Op.RESULT), request, None]))

    # -- the rest ----------------------------------------------------------------------------------------------------

    def _on_call(self, connection: Connection, frame: Frame) -> None:
        request, verb, arguments = take(frame, "CALL", REQUEST, str, dict)
        fields.nested(arguments, self._options.max_nesting - 1, self._options.max_nesting)

        answered = False

        def answer(value: object) -> None:
            nonlocal answered
            answered = True
            if isinstance(value, Refused):
                self._refuse(request, value)
            elif not self._ended:
                self._output.write(result_frame(request, verb, value, self._options.max_frame_bytes))
            if self._asked is answer:
                self._asked = None
                self._go_on()

        if self._call(connection, verb, arguments, answer) and not answered:
            self._asked = answer

    def _go_on(self) -> None:
        """With what came behind a call that waited, or behind what was settled in steps."""
        if self._settles or self._waiting is None:
            return
        waiting, self._waiting = self._waiting, None
        try:
            self.receive(waiting)
        except Exception as error:
            self.broken(error)
        self._output.resume_reading()

    def _on_close(self, connection: Connection, frame: Frame) -> None:
        (request,) = take(frame, "CLOSE", REQUEST)
        self._closing = True
        self._sends.then(lambda: self._close(connection, request))

    def _close(self, connection: Connection, request: int) -> None:
        self._broker.connections.disconnect(connection, lost=False)

        def closed() -> None:
            self._write([int(Op.CLOSED), request])
            self._ended = True
            self._output.leave()

        self._broker.settling.when_over(connection.name, lambda: self._broker.journal.when_safe(closed))

    def _answer_when_safe(self, request: int, value: object) -> None:
        if request:
            self._broker.journal.when_safe(lambda: self._write([int(Op.RESULT), request, value]))

    # -- what the broker says ----------------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """So much waits for its turn that nothing more is to be read."""
        return self._sends.full or self._waiting is not None

    @property
    def writable(self) -> bool:
        return self._output.writable

    def deliver(self, consumer: Consumer, references: list[MessageReference]) -> None:
        if self._ended:
            return
        if consumer.held_bytes > self._largest:
            # Clients of other protocols may send larger messages than these frames hold.
            references = self._broker.settlement.without_too_large(consumer, references, self._largest)
            if not references:
                return
        for frame in deliveries.frames(consumer.number, references, self._joins_bodies, min(deliveries.FRAME_BYTES, self._largest)):
            self._output.write(frame)

    def grant(self, producer: Producer, messages: int, size: int, reason: str | None) -> None:
        self._write([int(Op.CREDIT), producer.number, messages, size, reason])

    def pull_empty(self, consumer: Consumer) -> None:
        self._write([int(Op.PULL_EMPTY), consumer.number])

    def cancelled(self, consumer: Consumer, code: str, message: str, fix: str) -> None:
        self._write([int(Op.CANCELLED), consumer.number, code, message, fix])

    def not_held(self, consumer: Consumer, tags: list[int]) -> None:
        self._write([int(Op.NOT_HELD), consumer.number, ranges_of(tags)])

    def end(self, code: str, message: str, fix: str) -> None:
        """Says why and closes."""
        self._write([int(Op.ERROR), code, shown(message), shown(fix)])
        self._ended = True
        self._output.end()
