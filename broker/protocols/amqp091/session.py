"""One AMQP 0-9-1 connection: from the protocol header to the close, its channels, and what the broker says to them. Sans-IO.

An exception of a channel closes that channel and the connection goes on; one of the connection, or bytes that are no AMQP, end it. A
reply code and a sentence go with both, as RabbitMQ gives them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ...broker import Broker
from ...core.consumer import NOBODY, Consumer, Library
from ...core.producer import Producer
from ...errors import Refused
from ...shares import Share, least
from ..output import PatientOutput
from .channels import Channels
from .codec import (
    HEARTBEAT_FRAME,
    MIN_FRAME_BYTES,
    AckEvent,
    AmqpError,
    ErrorEvent,
    Event,
    FrameReader,
    MethodEvent,
    NackEvent,
    PublishEvent,
    PublishRun,
    method_frame,
    method_of,
)
from .codec_methods import DIALECTS, METHODS, NUMBER, PROTOCOL_HEADER, named
from .codec_tables import Fields
from .connection import AmqpConnection
from .errors import ACCESS_REFUSED, error_of
from .in_order import InOrder
from .login import client, credentials, library, server_properties
from .methods import METHODS as HANDLERS
from .options import AmqpOptions

log = logging.getLogger("homing")

_START_OK: Final = NUMBER["connection.start-ok"]
_TUNE_OK: Final = NUMBER["connection.tune-ok"]
_OPEN: Final = NUMBER["connection.open"]
_CLOSE: Final = NUMBER["connection.close"]
#: The class of methods that messages come and go by, which is not measured.
_BASIC: Final = NUMBER["basic.publish"] >> 16
_CLOSE_OK: Final = NUMBER["connection.close-ok"]
_UPDATE_SECRET: Final = NUMBER["connection.update-secret"]
_CHANNEL_OPEN: Final = NUMBER["channel.open"]
_CHANNEL_CLOSE: Final = NUMBER["channel.close"]
_CHANNEL_CLOSE_OK: Final = NUMBER["channel.close-ok"]
#: After so many frames it is looked whether the turn has been long enough for what is left of a read.
_LOOKS: Final = 64
#: What shows a queue's contents: it waits for what the same connection gave back, which is put there only once that is on disk.
_SHOWING: Final = frozenset(NUMBER[name] for name in ("basic.get", "basic.consume", "queue.declare", "queue.purge", "queue.delete"))
#: What deliveries or confirms follow: it waits for the answers before its own, for those do not.
_BEGINNING: Final = frozenset(NUMBER[name] for name in ("basic.consume", "confirm.select"))

#: (user, password, callback with the user's name or a refusal); the callback may come later. Returns how to call the check off, where it
#: takes time.
Authenticate = Callable[[str, str, Callable[[str | Refused], None]], Callable[[], object] | None]


class AmqpSession(AmqpConnection):
    def __init__(
        self,
        broker: Broker,
        output: PatientOutput,
        options: AmqpOptions,
        authenticate: Authenticate,
        has_certificate: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(broker, options)
        self._output = output
        self._authenticate = authenticate
        self._has_certificate = has_certificate
        self._cancel_login: Callable[[], object] | None = None
        self._channels = Channels(self, options.channel_max)
        self._reader = FrameReader(self._channels.numbers, options.max_message_bytes, options.max_gathered_bytes)
        #: The method that must come next; 0: any (open), None: the protocol header.
        self._expected: int | None = None
        self._heartbeat_s = 0
        self._header = b""
        self._waiting: bytes | None = None
        #: What came behind a method whose answer waits for the disk; None: nothing does.
        self._deferred: list[Event] | None = None
        #: Deliveries that were given back and are not on disk yet, and a method that waits for that.
        self._returns = InOrder(broker.journal.when_safe)
        #: What is left waits for another turn of the loop.
        self._waits_for_turn = False
        self._notifies_blocked = False
        #: It came while nobody may publish, and has not tried to: it may consume; and when it did: the first of that waits for credit.
        self._may_read_on = self._held_back = False
        #: It is told why its login was refused, as it asked for.
        self._told_of_refusal = False
        #: We have sent connection.close: the answer to it is all that counts now.
        self._closed_by_us = False
        #: What it said of itself.
        self._client, self._library = NOBODY, Library()
        #: The client has: nothing behind it is acted on, and the answer follows when all before it is on disk.
        self._closed_by_client = False
        self._ended = False

    # -- in ----------------------------------------------------------------------------------------------------------

    def limit_to(self, shares: Sequence[Share]) -> None:
        self.shares = shares
        self._reader.max_message_bytes = least(self._reader.max_message_bytes, shares)

    def receive(self, data: bytes) -> None:
        """Acts on what the socket brought."""
        if self._ended or self._closed_by_client:
            return
        if self._waiting is not None:
            self._waiting += data
            return
        if self._expected is None:
            data = self._protocol_header(data)
            if not data:
                return
        self._act_on(self._reader.feed(data))

    @property
    def buffered(self) -> int:
        """Bytes of what has come and is not acted on yet."""
        return self._reader.buffered + len(self._waiting or b"")

    @property
    def wanted(self) -> int:
        """What those of messages that are not whole will come to."""
        return self._reader.wanted

    def settles_only(self, data: bytes) -> bool:
        """Whether ``data`` is acknowledgements and nothing else, and nothing before it waits."""
        return not self._waiting and self._reader.acknowledges_only(data)

    def drop_input(self) -> None:
        """What was half sent is let go; nothing more is read."""
        self._reader, self._waiting, self._header = FrameReader(set(), 0), None, b""

    def _protocol_header(self, data: bytes) -> bytes:
        self._header += data
        head = self._header[:8]
        if not any(header.startswith(head) for header in DIALECTS):
            # As the specification says: the header we would understand, and the end.
            self.exceptions.of_connection(self.shown, 0, "", f"the protocol header {head!r} is none that is understood")
            self._output.write(PROTOCOL_HEADER)
            self._end()
            return b""
        if len(head) < 8:
            return b""
        self.dialect = self._reader.dialect = DIALECTS[head]
        self._expected = _START_OK
        mechanisms = b"PLAIN AMQPLAIN EXTERNAL" if self._has_certificate() else b"PLAIN AMQPLAIN"
        self.write(method_frame(0, "connection.start", *self.dialect.version, server_properties(self.options), mechanisms, b"en_US"))
        return self._header[8:]

    def defer(self) -> None:
        self._deferred, self._waiting = [], b""
        self._output.pause_reading()

    def go_on(self) -> None:
        if self._ended or self._deferred is None or self._waiting is None:
            return
        events, data = self._deferred, self._waiting
        self._deferred = self._waiting = None
        self._act_on(events)
        if data:
            self.receive(data)
        if not self.postponed and (self._may_read_on or not self.producer.waiting):
            self._output.resume_reading()

    def have_turn(self) -> None:
        """The turn that it waited for, if it did."""
        if self._waits_for_turn:
            self._waits_for_turn = False
            self.go_on()

    @property
    def postponed(self) -> bool:
        return self._deferred is not None

    def postpone(self, event: PublishEvent | PublishRun) -> None:
        if self._deferred is None:
            self.defer()
            self.broker.throttle.wait(self._go_on)
        assert self._deferred is not None, "defer() made it"
        self._deferred.append(event)

    def wait_turn(self, events: Sequence[Event]) -> None:
        self.defer()
        self._deferred, self._waits_for_turn = list(events), True
        self._output.wait_turn()

    def late(self) -> bool:
        return self._output.late()

    def _waits_for_credit(self, event: PublishEvent | PublishRun) -> None:
        """It came while nobody may publish, and does: now it is held back like the others, this event first."""
        self._may_read_on = False
        self.defer()
        self._deferred, self._held_back = [event], True
        if self._notifies_blocked and self.producer.waiting is not None:
            self.write(method_frame(0, "connection.blocked", self.producer.waiting.why))

    def settle_first(self) -> None:
        name = self.connection.name
        if self._deferred is None and name in self.broker.settling.lines:
            self.defer()
            self.broker.settling.when_over(name, self._go_on)

    def _go_on(self) -> None:
        try:
            self.go_on()
        except Exception as error:
            self.broken(error)

    def _act_on(self, events: list[Event]) -> None:
        for place, event in enumerate(events):
            if self._ended or self._closed_by_client:
                return
            if self._closed_by_us:
                self._after_our_close(event)
                continue
            if self._deferred is not None:
                self._deferred += events[place:]
                break
            if place % _LOOKS == _LOOKS - 1 and self._output.late():
                self.wait_turn(events[place:])
                break
            try:
                self._event(event)
            except AmqpError as error:
                self._failed(event, error)
            except Refused as refusal:
                self._failed(event, error_of(refusal, method_of(event)))
        if self._channels.closed:
            self._channels.after_reading()
        if not self._ended:
            self.gathered.finish()

    def _event(self, event: Event) -> None:
        channels = self._channels
        if channels.closed and event.channel in channels.closed and channels.passes_over(event):
            return
        if type(event) is PublishEvent or type(event) is PublishRun:
            if self._may_read_on:
                self._waits_for_credit(event)
            elif type(event) is PublishEvent:
                channels.at(event.channel).publisher.publish(event)
            else:
                channels.at(event.channel).publisher.publish_run(event)
        elif type(event) is AckEvent:
            channels.at(event.channel).acknowledge(event)
        elif type(event) is NackEvent:
            channels.at(event.channel).refuse_each(event.tags, event.requeue, event.number)
        elif type(event) is MethodEvent:
            self.gathered.finish()
            self._method(event)
        elif type(event) is ErrorEvent:
            self._failed(event, event.error)

    def _method(self, event: MethodEvent) -> None:
        number = event.number
        if event.channel == 0:
            self._connection_method(event)
            return
        if self._expected:
            raise AmqpError(505, f"UNEXPECTED_FRAME - {METHODS[number].name} before the connection is open")
        if number == _CHANNEL_OPEN:
            self._channels.add(event.channel)
        elif number == _CHANNEL_CLOSE_OK and event.channel not in self._channels.open:
            return
        elif number == _CHANNEL_CLOSE:
            self._channels.at(event.channel)
            self._channels.close(event.channel)
            self.settle_first()
        else:
            channel = self._channels.at(event.channel)
            for before, methods in ((self._returns, _SHOWING), (channel.answers, _BEGINNING)):
                if number in methods and before.waiting:
                    self.defer()
                    self._deferred = [event]
                    before.now(self.go_on)
                    return
            handler = HANDLERS.get(number)
            if handler is None:
                raise AmqpError(503, f"COMMAND_INVALID - {METHODS[number].name} is not for a client to send here", number)
            if number >> 16 == _BASIC:
                handler(channel, event.values)
            else:
                self.broker.step_times.call(METHODS[number].name, partial(handler, channel, event.values))
        if self._deferred is None and self._output.late():
            self.wait_turn([])

    # -- the connection's life ---------------------------------------------------------------------------------------

    def _connection_method(self, event: MethodEvent) -> None:
        number, values = event.number, event.values
        if number == _CLOSE:
            self._leave()
        elif number == _UPDATE_SECRET and not self._expected:
            # For tokens that run out, which no login here is; RabbitMQ passes over it too where users log in with passwords.
            self.write(method_frame(0, "connection.update-secret-ok"))
        elif not self._expected:
            raise AmqpError(504, f"CHANNEL_ERROR - {METHODS[number].name} on channel 0 of an open connection", number)
        elif number != self._expected:
            wanted = METHODS[self._expected].name
            raise AmqpError(503, f"COMMAND_INVALID - {METHODS[number].name} where {wanted} was expected", number, hard=True)
        elif number == _START_OK:
            self._start_ok(*values)
        elif number == _TUNE_OK:
            self._tune_ok(*values)
        else:
            self._open(values[0])

    def _start_ok(self, properties: Fields, mechanism: str, response: bytes, locale: str) -> None:
        capabilities = properties.get("capabilities")
        if isinstance(capabilities, dict):
            self.notifies_cancels = capabilities.get("consumer_cancel_notify") is True
            self._notifies_blocked = capabilities.get("connection.blocked") is True
            self._told_of_refusal = capabilities.get("authentication_failure_close") is True
        self._client, self._library = client(properties), library(properties)
        user, password = credentials(mechanism, response, self._has_certificate())
        self._waiting = b""
        self._cancel_login = self._authenticate(user, password, self._checked)

    def _checked(self, user: str | Refused) -> None:
        """Possibly in a turn of its own, where nobody else would see to what goes wrong."""
        self._cancel_login = None
        try:
            self._logged_in(user)
        except Exception as error:
            self.broken(error)

    def _logged_in(self, user: str | Refused) -> None:
        if self._ended or self._closed_by_us:
            return
        waiting, self._waiting = self._waiting or b"", None
        if isinstance(user, Refused):
            error = error_of(user)
            if error.code == ACCESS_REFUSED and not self._told_of_refusal:
                self._end()
            else:
                self._close_connection(error, 0)
            return
        self.login = user
        self._expected = _TUNE_OK
        self.write(method_frame(0, "connection.tune", self.options.channel_max, self.options.frame_max, self.options.heartbeat_s))
        if waiting:
            self.receive(waiting)

    def _tune_ok(self, channel_max: int, frame_max: int, heartbeat_s: int) -> None:
        if channel_max > self.options.channel_max:
            raise AmqpError(530, f"NOT_ALLOWED - negotiated channel_max = {channel_max} is higher than the maximum", _TUNE_OK)
        if frame_max and not MIN_FRAME_BYTES <= frame_max <= self.options.frame_max:
            bound = "lower than the minimum" if frame_max < MIN_FRAME_BYTES else "higher than the maximum"
            raise AmqpError(530, f"NOT_ALLOWED - negotiated frame_max = {frame_max} is {bound}", _TUNE_OK)
        self._channels.most = channel_max or self.options.channel_max
        self.frame_max = self._reader.frame_max = frame_max or self.options.frame_max
        self.view = self.view_within(self.frame_max)
        self._heartbeat_s = heartbeat_s
        self._expected = _OPEN

    def _open(self, vhost: str) -> None:
        self.connection = self.broker.connections.connect(
            "", self.login, self, virtual_host=vhost, client=self._client, peer=self._output.endpoint, shares=self.shares
        )
        self.connection.returns_at_once = True
        self.connection.library = self._library
        self._expected = 0
        self._output.opened(self._heartbeat_s * 1000)
        self._may_read_on = True
        self.producer = self.gathered.producer = self.broker.producers.open_sender(self.connection)
        self._may_read_on = self.producer.waiting is not None
        self.write(method_frame(0, "connection.open-ok", ""))

    def _leave(self) -> None:
        """The client says goodbye."""
        self._let_go(lost=False, counts=True)
        self._closed_by_client = True

        def closed() -> None:
            self.write(method_frame(0, "connection.close-ok", dialect=self.dialect))
            self._ended = True
            self._output.leave()

        def settled() -> None:
            self.broker.journal.when_safe(closed)

        if self._expected == 0:
            self.broker.settling.when_over(self.connection.name, settled)
        else:  # it never was open
            settled()

    def _let_go(self, lost: bool, counts: bool) -> None:
        """The broker forgets the connection: what it held goes back (``counts``: see Broker.disconnect), its own queues end."""
        if self._expected != 0 or not self.connection.open:
            return
        queues = [subscriber.consumer.queue for subscriber in self.subscribers.values()]
        for channel in self._channels.open.values():
            channel.end("lost" if lost else "closed")
        self.exceptions.over(self.shown)
        self.broker.connections.disconnect(self.connection, lost, counts)
        self.subscribers.clear()
        self.patterns.clear()
        self.reports.close()
        self._channels.let_go()

        def settled() -> None:
            self.broker.removal.delete_exclusive(self.connection)
            self.broker.removal.consumers_gone(queues)

        self.broker.settling.when_over(self.connection.name, settled)

    def _failed(self, event: Event, error: AmqpError) -> None:
        """An exception: of the channel it happened on, or of the whole connection."""
        self.gathered.finish()
        channel = self._channels.open.get(event.channel)
        number = error.method or (0 if self._expected else method_of(event))
        if error.hard or channel is None:
            self.exceptions.of_connection(self.shown, event.channel, named(number), f"{error.code} {error.text}")
            self._close_connection(error, number)
            if type(event) is ErrorEvent:
                # Nothing that comes behind it can be read, the answer neither.
                self._end()
            return
        self._channels.close_for(channel.number, error, number)
        self.settle_first()

    def _close_connection(self, error: AmqpError, number: int = 0, counts: bool = True) -> None:
        """``number``: the method that caused it. ``counts``: the client did, not the broker of its own accord."""
        self._let_go(lost=False, counts=counts)
        values = error.code, error.text, number >> 16, number & 0xFFFF
        self.write(method_frame(0, "connection.close", *values, dialect=self.dialect))
        self._closed_by_us = True
        self._deferred = self._waiting = None
        self._output.leave()

    def _after_our_close(self, event: Event) -> None:
        if type(event) is MethodEvent and event.number == _CLOSE:
            # Both say goodbye at once: either is answered.
            self._output.write(method_frame(0, "connection.close-ok", dialect=self.dialect))
        elif type(event) is ErrorEvent or (type(event) is MethodEvent and event.number == _CLOSE_OK):
            self._end()

    def _end(self) -> None:
        self._ended = True
        self._output.end()

    # -- for the channels --------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if not self._ended and not self._closed_by_us:
            self._output.write(data)

    def gave_back(self) -> None:
        self._returns.when_safe(lambda: None)

    def forget_content(self, channel: int) -> None:
        self._reader.forget(channel)

    def close_channel(self, channel: int, error: AmqpError) -> None:
        self._channels.close_for(channel, error, 0)

    def settled(self, consumer: Consumer) -> None:
        subscriber = self.subscribers.get(consumer.number)
        if subscriber is not None:
            subscriber.settled()
            return
        for channel in self._channels.open.values():
            if consumer.number in channel.holders:
                channel.settled(consumer)
                return

    # -- what the broker says ----------------------------------------------------------------------------------------

    def grant(self, producer: Producer, messages: int, size: int, reason: str | None) -> None:
        """Credit, which AMQP has not: a connection that may not publish is not read from then on, and notified where it understands."""
        if self._may_read_on:
            self._may_read_on = reason is not None
            return
        if reason is None:
            if producer.waiting:
                if self._held_back:
                    self._held_back = False
                    self.broker.throttle.wait(self._go_on)
                elif self._deferred is None:
                    self._output.resume_reading()
                if self._notifies_blocked:
                    self.write(method_frame(0, "connection.unblocked"))
            return
        self._output.pause_reading()
        if self._notifies_blocked:
            self.write(method_frame(0, "connection.blocked", reason))

    def resumed(self) -> None:
        """The peer reads again."""
        if self._expected == 0:
            self.broker.consumers.socket_resumed(self.connection)

    def heartbeat(self) -> None:
        self.write(HEARTBEAT_FRAME)

    def lost(self) -> None:
        """The socket is gone."""
        ended, self._ended = self._ended, True
        if self._cancel_login is not None:
            self._cancel_login()
        if not ended:
            self._let_go(lost=True, counts=True)
        # It does not wait for the collector; nor does what came and was not acted on.
        self.drop_input()
        self._deferred = None

    def end(self, code: str, message: str, fix: str) -> None:
        """Says why and closes."""
        if self._expected is None or self._closed_by_us:
            self._end()
        else:
            self._close_connection(AmqpError(320, f"CONNECTION_FORCED - {message}"), counts=False)

    def broken(self, error: Exception) -> None:
        log.error("session-failed: a frame broke its AMQP session; its connection is closed, the others go on", exc_info=error)
        if not self._ended:
            self._close_connection(AmqpError(541, "INTERNAL_ERROR - the broker failed on this frame"))
