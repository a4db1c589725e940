"""One STOMP connection: from CONNECT to DISCONNECT, its frames as verbs of the broker, and what the broker says to it. Sans-IO.

A frame that breaks the protocol, or an operation that is refused, is answered with ERROR, and the connection ends, as the specification
says. Frames are acted on in order; one that has to wait (for room, for credit, for a turn) holds back those behind it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ...broker import Broker
from ...connection import Connection
from ...core.amqp.vhost import DEFAULT, prefix_of
from ...core.consumer import Client, Consumer
from ...core.memory import Cache
from ...core.message import MessageReference
from ...core.producer import Producer
from ...errors import Refused
from ...shares import Share, least
from ..exceptions import connection_ended
from ..output import PatientOutput
from .codec import (
    ACK,
    HEARTBEAT,
    UNKNOWN,
    VERSIONS,
    Came,
    Frame,
    FrameReader,
    Headers,
    Run,
    StompError,
    escaped,
    frame,
    read_head,
    receipt_frames,
)
from .destinations import EXCHANGE, TEMPORARY, TOPIC, Destination, read_destinations
from .login import heartbeats, spoken
from .message_mapping import LONGEST_NAME, Sent, flag, name_of, read_nack, read_send
from .options import StompOptions
from .outlets import Outlet
from .sends import Sends
from .subscription import AUTO
from .subscriptions import Subscriptions
from .transactions import Transactions

log = logging.getLogger("homing")

#: After so many frames it is looked whether the turn has been long enough for what is left of a read.
_LOOKS: Final = 64
_LEAST_HEARTBEAT_MS: Final = 1000
#: What a SEND's headers take in memory once they are read.
_SENT_BYTES: Final = 1000
_OPENING: Final = ("CONNECT", "STOMP")

#: (user, password, callback with the user's name or a refusal); the callback may come later. Returns how to call the check off, where it
#: takes time.
Authenticate = Callable[[str | None, str | None, Callable[[str | Refused], None]], Callable[[], object] | None]


class _Way(NamedTuple):
    """What SENDs with the same headers have in common."""

    sent: Sent
    destinations: tuple[Destination, ...]


class _Rest(NamedTuple):
    """SENDs that are not stored yet, or not for all that they are for. ``receipts``: as they are written; none, or one for each."""

    way: _Way
    bodies: list[bytes]
    receipts: list[bytes]


#: What comes, or waits.
_Waits = Came | _Rest


class StompSession:
    """What it sends and what it consumes is there once it has logged in."""

    _sends: Sends
    _subscriptions: Subscriptions
    _transactions: Transactions

    def __init__(self, broker: Broker, output: PatientOutput, options: StompOptions, authenticate: Authenticate) -> None:
        self._broker = broker
        self._output = output
        self._options = options
        self._authenticate = authenticate
        self._cancel_login: Callable[[], object] | None = None
        self.reader = FrameReader(options.max_head_bytes, options.max_message_bytes)
        self._shares: Sequence[Share] = ()
        self._version = UNKNOWN
        self._prefix = ""
        self._connection: Connection | None = None
        self._ways: Cache[bytes, _Way] = Cache(broker.memory, options.max_cache_bytes)
        #: What came behind a frame that waits; None: nothing does.
        self._deferred: list[_Waits] | None = None
        self._waits_for_turn = False
        #: It waits for room.
        self._in_line = False
        #: Whose credit a SEND waits for.
        self._held_back: Producer | None = None
        #: DISCONNECT came, or what ends it: nothing behind that is looked at. And nothing is written any more.
        self._closing = self._ended = False
        self._handlers: dict[str, Callable[[Headers], None]] = {
            "SUBSCRIBE": self._on_subscribe,
            "UNSUBSCRIBE": lambda headers: self._subscriptions.unsubscribe(headers),
            "ACK": self._on_ack,
            "NACK": self._on_nack,
            "BEGIN": lambda headers: self._transactions.begin(headers),
            "COMMIT": lambda headers: self._transactions.commit(headers),
            "ABORT": lambda headers: self._transactions.abort(headers),
        }

    @property
    def _over(self) -> bool:
        """Nothing more is acted on."""
        return self._ended or self._closing

    # -- in ----------------------------------------------------------------------------------------------------------

    def limit_to(self, shares: Sequence[Share]) -> None:
        self._shares = shares
        self.reader.max_body = least(self.reader.max_body, shares)

    def receive(self, data: bytes) -> None:
        """Acts on what the socket brought."""
        if self._over:
            return
        frames: list[_Waits] = [*self.reader.feed(data)]
        if self._deferred is not None:
            self._deferred += frames
        else:
            self._act_on(frames)

    def heard_all(self) -> bool:
        """The client says no more, and may listen still. False: there is nothing to answer. Else it is hung up on behind the answers.

        Nothing is deferred: while something is, nothing is read, nor is the end."""
        if self._ended or self._connection is None:
            return False
        if not self._closing:
            self._leave(b"", lost=True)
        return True

    def drop_input(self) -> None:
        """What was half sent is let go."""
        self.reader, self._deferred = FrameReader(0, 0), None

    def have_turn(self) -> None:
        """The turn that it waited for, if it did."""
        if self._waits_for_turn:
            self._waits_for_turn = False
            self._go_on()

    def _act_on(self, frames: list[_Waits]) -> None:
        self._through(frames)
        if not self._over:
            self._finish()

    def _through(self, frames: list[_Waits]) -> None:
        """As far as it goes in this turn."""
        for place, each in enumerate(frames):
            if self._over:
                return
            if place and (place % _LOOKS == 0 or isinstance(each, Run)) and self._output.late():
                self._defer(frames[place:])
                self._waits_for_turn = True
                self._output.wait_turn()
                return
            self._frame(each)
            if self._deferred is not None:
                self._deferred += frames[place + 1 :]
                return

    def _defer(self, frames: list[_Waits]) -> None:
        if self._deferred is None:
            self._deferred = []
            self._output.pause_reading()
        self._deferred += frames

    def _take_deferred(self) -> list[_Waits] | None:
        """Apart from who asks then whether something was deferred again: compiled, he would be sure that nothing was."""
        frames, self._deferred = self._deferred, None
        return frames

    def _go_on(self) -> None:
        """With what was deferred, possibly in a turn of its own, where nobody else would see to what goes wrong."""
        frames = None if self._over else self._take_deferred()
        if frames is None:
            return
        try:
            if self._finish():
                self._act_on(frames)
            elif not self._over:
                self._defer(frames)
        except Exception as error:
            self.broken(error)
        if self._deferred is None:
            self._output.resume_reading()

    def _finish(self) -> bool:
        """What was gathered goes to the broker; whether all of it did. What is left, and all that follows, waits for another turn."""
        if self._connection is None:
            return True
        self._subscriptions.finish()
        refused = self._sends.store()
        if refused is not None:
            self._fail(refused[0], refused[1])
            return False
        settling = self._broker.settling
        if not self._sends.left and self._connection.name not in settling.lines:
            return True
        self._defer([])
        if self._sends.left and not self._in_line:
            self._in_line = True
            self._broker.throttle.wait(self._have_room)
        elif not self._in_line:
            settling.when_over(self._connection.name, self._go_on)
        return False

    def _have_room(self) -> None:
        self._in_line = False
        self._go_on()

    def _frame(self, each: _Waits) -> None:
        receipt = b""
        try:
            if isinstance(each, StompError):
                raise each
            if isinstance(each, _Rest):
                receipt = b"".join(each.receipts[:1])
                self._send(*each)
            elif isinstance(each, Run):
                receipt = each.receipt
                if self._connection is None or not self._together(each):
                    self._through([*each.each()])
            elif self._connection is None:
                self._connect(*read_head(each.head, UNKNOWN))
            else:
                command, headers = read_head(each.head, self._version)
                receipt = escaped(name_of(headers, "receipt"), self._version)
                self._command(command, headers, receipt, each)
        except (StompError, Refused) as error:
            self._finish()
            self._fail(error, receipt)

    def _together(self, run: Run) -> bool:
        """Acts on all of it at once. False, and nothing is done: each is to be looked at by itself. Raises StompError, Refused."""
        if run.command == ACK:
            return self._acknowledge(run)
        way = self._ways.found.get(run.same) or self._new_way(run)
        if way is not None:
            self._send(way, run.bodies, run.values)
        return way is not None

    def _new_way(self, run: Run) -> _Way | None:
        """None: it may be another for each. Raises StompError, Refused."""
        way = self._read_way(read_head(run.head, self._version)[1])
        if not way.sent.alike:
            return None
        size = _SENT_BYTES + 2 * len(run.head) + way.sent.properties_extra
        self._ways.keep(run.same, way._replace(sent=way.sent._replace(properties_extra=0)), size)
        return way

    def _read_way(self, headers: Headers) -> _Way:
        """Raises Refused."""
        sent = read_send(headers, self._options.max_properties_bytes)
        return _Way(sent, read_destinations(headers.get("destination", ""), headers.get("destination-type"), topics=self._options.topics))

    def _acknowledge(self, run: Run) -> bool:
        _, headers = read_head(run.head, self._version)
        if "transaction" in headers or "receipt" in headers:
            return False
        try:
            named = self._subscriptions.named(headers, run.values)
        except Refused:
            # The wrong one is found, and those before it count.
            return False
        self._subscriptions.acknowledge(named)
        return True

    def _command(self, command: str, headers: Headers, receipt: bytes, each: Frame) -> None:
        if command == "SEND":
            self._send(self._read_way(headers), [each.body], [receipt] if receipt else [])
            return
        if command != "ACK" and not self._finish():
            if not self._over:
                self._defer([each])
            return
        if command == "DISCONNECT":
            self._leave(receipt)
            return
        handler = self._handlers.get(command)
        if handler is None:
            raise StompError(f"{command[:32]!r} is no command for a client to send here")
        handler(headers)
        if receipt:
            self._receipt_when_safe(receipt)

    def _receipt_when_safe(self, receipt: bytes) -> None:
        connection = self._open()
        self._subscriptions.finish()
        journal = self._broker.journal
        self._broker.settling.when_over(connection.name, lambda: journal.when_safe(lambda: self._say(receipt_frames([receipt]))))

    def _open(self) -> Connection:
        assert self._connection is not None, "a command came"
        return self._connection

    def _say(self, frames: bytes) -> None:
        if not self._ended:
            self._output.write(frames)

    # -- the connection's life ---------------------------------------------------------------------------------------

    def _connect(self, command: str, headers: Headers) -> None:
        if command not in _OPENING:
            raise StompError(f"{command[:32]!r} came before CONNECT", "send CONNECT first, and wait for CONNECTED")
        self._version = spoken(headers.get("accept-version"))
        if self._version == "1.0":
            headers = {name.strip(): value.strip() for name, value in headers.items()}
        beats = heartbeats(headers.get("heart-beat", "0,0"))
        self._defer([])
        self._cancel_login = self._authenticate(
            headers.get("login"), headers.get("passcode"), lambda user: self._checked(user, headers, beats)
        )

    def _checked(self, user: str | Refused, headers: Headers, beats: tuple[int, int]) -> None:
        self._cancel_login = None
        if self._over:
            return
        try:
            if isinstance(user, Refused):
                raise user
            self._logged_in(user, headers, beats)
        except Refused as refusal:
            self._fail(refusal)
        except Exception as error:
            self.broken(error)
        self._go_on()

    def _logged_in(self, user: str, headers: Headers, beats: tuple[int, int]) -> None:
        broker, host = self._broker, headers.get("host", DEFAULT)
        # ActiveMQ's programs give the name of its machine.
        virtual_host = host if host in broker.virtual_hosts.names() else DEFAULT
        client, shares = Client(client_id=headers.get("client-id", "")[:LONGEST_NAME]), self._shares
        connection = broker.connections.connect(
            "", user, self, virtual_host=virtual_host, client=client, peer=self._output.endpoint, shares=shares
        )
        self._connection, self._prefix = connection, prefix_of(virtual_host)
        self._sends = Sends(broker, connection, self._say)
        self._subscriptions = Subscriptions(broker, connection, self._version, self._prefix, self._options.topics)
        self._transactions = Transactions(broker, connection, self._subscriptions)
        ours_ms = self._options.heartbeat_ms
        # What the client can send and what it wants, as far as we agree to it; 0: nothing.
        comes_ms, goes_ms = (max(wish, _LEAST_HEARTBEAT_MS) if wish and ours_ms else 0 for wish in beats)
        self._output.opened(goes_ms, comes_ms)
        said = [("version", self._version), ("server", self._options.server), ("session", connection.name)]
        said.append(("heart-beat", f"{min(goes_ms, ours_ms)},{min(comes_ms, ours_ms)}"))
        self._say(frame("CONNECTED", said, version=self._version))

    def _leave(self, receipt: bytes, lost: bool = False) -> None:
        """The client says goodbye; the receipt is its sign that everything before was taken in. ``lost``: it hung up, or half of it."""
        connection = self._open()
        self._let_go(lost, counts=True)
        self._closing = True

        def closed() -> None:
            if receipt:
                self._say(receipt_frames([receipt]))
            self._ended = True
            self._output.leave()

        self._broker.settling.when_over(connection.name, lambda: self._broker.journal.when_safe(closed))

    def _let_go(self, lost: bool, counts: bool) -> None:
        """The broker forgets the connection: what it held goes back (``counts``: see Broker.disconnect), its own queues end."""
        connection = self._connection
        if connection is None or not connection.open:
            return
        queues = self._subscriptions.queues()
        self._subscriptions.close()
        self._broker.connections.disconnect(connection, lost, counts)
        self._ways.clear()
        self._transactions.clear()

        def settled() -> None:
            self._broker.removal.delete_exclusive(connection)
            self._broker.removal.consumers_gone(queues)

        self._broker.settling.when_over(connection.name, settled)

    def _fail(self, error: StompError | Refused, receipt: bytes = b"") -> None:
        """ERROR, and the end."""
        if self._over:
            return
        connection_ended("STOMP", self._connection, self._output.endpoint, error)
        self._let_go(lost=False, counts=True)
        self._closing = True
        # Behind the receipts of what came before.
        self._broker.journal.when_safe(lambda: self._say_and_end(error.message, error.fix, receipt))

    def _say_and_end(self, message: str, fix: str, receipt: bytes = b"") -> None:
        if self._ended:
            return
        headers: list[tuple[str, str | bytes]] = [("message", message[:LONGEST_NAME]), ("content-type", "text/plain")]
        if self._version == UNKNOWN:
            headers.append(("version", ",".join(reversed(VERSIONS))))
        if receipt:
            headers.append(("receipt-id", receipt))
        self._say(frame("ERROR", headers, f"{message}\n{fix}\n".encode("utf-8", "replace"), self._version or "1.0"))
        self._ended = True
        self._deferred = None
        self._output.end()

    # -- frames ------------------------------------------------------------------------------------------------------

    def _send(self, way: _Way, bodies: list[bytes], receipts: list[bytes]) -> None:
        """``receipts``: as of _Rest. Raises Refused."""
        sent, (destination, *others) = way
        if sent.reply_to:
            sent = self._with_reply_to(sent)
        if sent.transaction:
            for one in way.destinations:
                self._transactions.send(sent, bodies, self._outlet(one))
            for receipt in receipts:
                self._receipt_when_safe(receipt)
            return
        outlet = self._outlet(destination)
        if outlet.producer.waiting is not None:
            self._held_back = outlet.producer
            self._defer([_Rest(way, bodies, receipts)])
            return
        if self._sends.is_for_another(outlet) and not self._finish():
            if not self._over:
                self._defer([_Rest(way, bodies, receipts)])
            return
        messages = outlet.told(sent).messages(outlet.address, outlet.producer.name, bodies, self._broker.now_ms())
        self._sends.add(outlet, messages, [] if others else receipts)
        if others:
            # One after the other; the receipt is that of the last.
            self._send(way._replace(destinations=tuple(others)), bodies, receipts)

    def _outlet(self, destination: Destination) -> Outlet:
        name = destination.name
        if destination.kind == EXCHANGE:
            return self._sends.to_exchange(name, destination.key)
        if destination.kind == TEMPORARY:
            return self._sends.to_address(self._subscriptions.temporary(name), False)
        return self._sends.to_address(self._prefix + name, destination.kind == TOPIC)

    def _with_reply_to(self, sent: Sent) -> Sent:
        """Whoever answers is given a name that means the queue to him, too."""
        if self._options.topics is not None:
            self._subscriptions.hear_answers(sent.reply_to)
        queue = self._subscriptions.temporary(sent.reply_to).removeprefix(self._prefix)
        return sent._replace(properties={**(sent.properties or {}), "JMSReplyTo": f"/queue/{queue}"}, reply_to="")

    def _on_subscribe(self, headers: Headers) -> None:
        if "homing-instrumented" in headers:
            self._introduced(*(headers.get(f"homing-{name}", "")[:LONGEST_NAME] for name in ("host", "program-version", "instrumented")))
        if not flag(headers, "browser", False):
            self._subscriptions.subscribe(headers)
            return
        browser = self._subscriptions.browse(headers, self._output)
        self._broker.work.begin(browser.steps(), lambda _: None, self._browser_failed)

    def _introduced(self, host: str, version: str, library: str) -> None:
        """What an instrumented program says of itself (``homing.integrations``), as STOMP has no word for it."""
        connection = self._open()
        connection.client = connection.client._replace(host=host, version=version)
        connection.library = connection.library._replace(instrumented=library)

    def _browser_failed(self, error: Exception) -> None:
        if isinstance(error, Refused):
            self._fail(error)
        else:
            self.broken(error)

    def _on_ack(self, headers: Headers) -> None:
        named = self._subscriptions.named(headers)
        if "transaction" in headers:
            self._transactions.acknowledge(headers["transaction"], named)
        else:
            self._subscriptions.acknowledge(named)

    def _on_nack(self, headers: Headers) -> None:
        if self._version == "1.0":
            raise StompError("NACK came with STOMP 1.0, which has none", "connect with accept-version:1.1,1.2")
        report, named = read_nack(headers), self._subscriptions.named(headers)
        if "transaction" in headers:
            self._transactions.fail(headers["transaction"], named, report)
            return
        for each in named:
            self._subscriptions.fail(each, report)

    # -- what the broker says ----------------------------------------------------------------------------------------

    @property
    def writable(self) -> bool:
        return self._output.writable

    def deliver(self, consumer: Consumer, references: list[MessageReference]) -> None:
        subscription = self._subscriptions.of(consumer)
        if subscription is None or self._ended:
            return
        self._output.write(subscription.frames(references))
        if subscription.whole.mode == AUTO:
            self._broker.settlement.acknowledge(consumer, references)
        else:
            consumer.delivered(references[-1].tag, self._broker.now_ms())

    def grant(self, producer: Producer, messages: int, size: int, reason: str | None) -> None:
        """Credit, which STOMP has not: a SEND waits for it, and what comes behind it."""
        if reason is None and producer is self._held_back:
            self._held_back = None
            self._broker.throttle.wait(self._have_room)

    def pull_empty(self, consumer: Consumer) -> None:
        """Nobody pulls here."""

    def cancelled(self, consumer: Consumer, code: str, message: str, fix: str) -> None:
        if not self._subscriptions.cancelled(consumer):
            self._fail(Refused(code, message, fix))

    def not_held(self, consumer: Consumer, tags: list[int]) -> None:
        """What timed out is with others again; a late acknowledgement of it is passed over."""

    # -- what the socket says ----------------------------------------------------------------------------------------

    def resumed(self) -> None:
        """The peer reads again."""
        if self._connection is not None:
            self._broker.consumers.socket_resumed(self._connection)

    def heartbeat(self) -> None:
        if not self._ended:
            self._output.write(HEARTBEAT)

    def lost(self) -> None:
        """The socket is gone."""
        ended, self._ended = self._ended, True
        if self._cancel_login is not None:
            self._cancel_login()
        if not ended:
            self._let_go(lost=True, counts=True)
        self.drop_input()

    def end(self, code: str, message: str, fix: str) -> None:
        """Says why and closes."""
        self._let_go(lost=False, counts=False)
        self._say_and_end(message, fix)

    def broken(self, error: Exception) -> None:
        log.error("session-failed: a frame broke its STOMP session; its connection is closed, the others go on", exc_info=error)
        self.end("internal-error", "the broker failed on this frame", "report it with the broker's log; reconnect to go on")
