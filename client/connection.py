"""Connection: one login at a broker, kept alive and sought again when it is lost."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
import uuid
from collections.abc import Callable, Generator, Mapping
from enum import Enum
from typing import Any, Final

from homing.broker.protocols.native.codec import MAGIC, MAX_FRAME_BYTES_BEFORE_LOGIN, PROTOCOL_VERSION, Op, encode

from .consumer import Consumer
from .errors import CallError, CloseIncomplete, ConnectError, ConnectionLost, HomingError, UsageError
from .incoming import Incoming
from .message import Message, State
from .modes import AckMode
from .options import connection_options, given, policy_of
from .policy import PolicyMap, RedeliveryPolicy
from .producer import Producer
from .reconnect import NEVER, STEADY_AFTER_S, ReconnectPolicy
from .reply import Reply
from .session import Session
from .url import DEFAULT_URL, parse_url, place
from .validation import check_text
from .waiting import Waiters
from .wire import NATIVE_PORT, Frame, Wire

#: What a frame needs beyond its messages, with room to spare.
FRAME_HEAD_BYTES: Final = 256
#: Entries asked for at a time; the broker may give fewer.
LISTING_PAGE: Final = 250
MAX_PRODUCERS: Final = 65_535

log = logging.getLogger("homing.client")


class ConnectionState(Enum):
    NEW = "new"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    RECONNECTING = "reconnecting"
    CLOSING = "closing"
    CLOSED = "closed"
    FAILED = "failed"


def connect(
    url: str = DEFAULT_URL,
    *,
    user: str | None = None,
    password: str | None = None,
    prefetch: int | None = None,
    optimize_acknowledge: bool | None = None,
    max_unconfirmed: int | None = None,
    redelivery_policy: RedeliveryPolicy | None = None,
    redelivery_policies: Mapping[str, RedeliveryPolicy] | None = None,
    reconnect: ReconnectPolicy | bool = True,
    heartbeat_ms: int | None = None,
    connect_timeout_ms: int | None = None,
    close_timeout_ms: int | None = None,
    client_id: str | None = None,
    product: str | None = None,
    rng: random.Random | None = None,
) -> Connection:
    """A connection to ``homing://user:password@host:port?option=value``: ``await`` it, or use it with ``async with``.

    What the string says wins over the arguments here. ``redelivery_policies`` maps destination patterns to policies,
    ``redelivery_policy`` is for whatever no pattern matches. ``rng`` draws the jitter of reconnect waits.
    Raises UsageError here; awaiting it raises ConnectError (``no-broker``, ``connect-timeout``, or the broker's code).
    """
    layer = given(
        prefetch=prefetch,
        optimize_acknowledge=optimize_acknowledge,
        max_unconfirmed=max_unconfirmed,
        redelivery_policy=redelivery_policy,
        heartbeat_ms=heartbeat_ms,
        connect_timeout_ms=connect_timeout_ms,
        close_timeout_ms=close_timeout_ms,
        client_id=client_id,
        product=product,
    )
    if isinstance(reconnect, bool):
        reconnect = ReconnectPolicy() if reconnect else NEVER
    return Connection(url, layer, user, password, dict(redelivery_policies or {}), reconnect, rng or random.Random())


class Connection:
    """Made by ``connect()``. ``state`` tells where it stands; ``on_state`` functions are called with every new state.

    ``last_error`` is why the connection was last lost, None if it never was.
    """

    loop: asyncio.AbstractEventLoop

    def __init__(
        self,
        url: str,
        layer: Mapping[str, Any],
        user: str | None,
        password: str | None,
        policies: dict[str, RedeliveryPolicy],
        reconnect: ReconnectPolicy,
        rng: random.Random,
    ) -> None:
        self.url = parse_url(url)
        self._layers = (layer, self.url.options)
        self.options = connection_options(self._layers)
        self._user = self.url.user if self.url.user is not None else user
        self._password = self.url.password if self.url.password is not None else password
        general = policy_of(self._layers)
        self._policies = PolicyMap(policies if general is None else {"#": general, **policies})
        self._has_general = general is not None
        self._reconnect = reconnect
        self._rng = rng
        self.client_id = self.options.client_id or str(uuid.uuid4())
        self.state = ConnectionState.NEW
        self.on_state: list[Callable[[ConnectionState], None]] = []
        self.last_error: HomingError | None = None
        self.broker_id: str | None = None
        self.number: int | None = None
        self.max_message_bytes = 2**24 - FRAME_HEAD_BYTES
        self.joins_bodies = False  # the broker understands SEND_BODIES
        self.wire: Wire | None = None
        self._dialling: Wire | None = None
        self._welcome: asyncio.Future[dict[str, Any]] | None = None
        self._passing = True  # whether what ended the last attempt or connection may pass
        self._attempts = 0
        self._connected_at = self._outage_at = self._lost_at = 0.0
        self._seeking: asyncio.Task[None] | None = None
        self._failure: HomingError | None = None
        self._replies: dict[int, Reply] = {}
        self._requests = 0
        self._sessions: list[Session] = []
        self._session_numbers = self._consumer_numbers = self._producer_numbers = 0
        self._free_producers: list[int] = []
        self._producers: dict[int, Producer] = {}
        self._consumers: dict[int, Consumer] = {}
        self._last: Message | None = None
        self._close_task: asyncio.Task[None] | None = None
        self._incoming = Incoming(self)

    # -- what programs call

    def session(self, mode: AckMode = AckMode.AUTO) -> Session:
        """A session; use it with ``async with``. The connection must be open (it may be reconnecting)."""
        if not isinstance(mode, AckMode):
            raise UsageError("invalid-argument", f"the mode is {mode!r}", "give a client.AckMode")
        self._raise_if_unusable()
        session = Session(self, mode)
        self._sessions.append(session)
        return session

    async def call(self, verb: str, **arguments: Any) -> Any:
        """A management call (docs/protocol.md 2.7) and its value. Waits for a reconnect that is under way.

        Raises CallError when the broker refuses it, ConnectionLost when the connection breaks before the answer.
        """
        check_text("a verb", verb)
        try:
            encode([verb, arguments])
        except (ValueError, TypeError) as error:
            raise UsageError("invalid-argument", f"the arguments of {verb} cannot be sent ({error})", "give plain values") from None
        wire = await self.connected()
        future: asyncio.Future[Any] = self.loop.create_future()
        wire.write(Op.CALL, self.expect(Reply(CallError, future)), verb, arguments)
        return await future

    async def listing(self, verb: str, **arguments: Any) -> list[Any]:
        """All that a call with pages has (``queues``, ``consumers``, ``policies``, ``vhosts``), page by page; raises as ``call`` does.

        What comes or goes meanwhile may be in it or not.
        """
        found: list[Any] = []
        after: str | None = None
        while True:
            page = await self.call(verb, **arguments, limit=LISTING_PAGE, after=after)
            found += page["items"]
            after = page["next"]
            if after is None:
                return found

    async def connected(self) -> Wire:
        """Wait until the connection stands; raises what makes that impossible."""
        while self.wire is None:
            self._raise_if_unusable()
            await self._connected.wait()
        return self.wire

    async def close(self, timeout_ms: int | None = None) -> None:
        """Flush unconfirmed sends and held acknowledgements, then end in order, within ``timeout_ms`` (default close_timeout_ms).

        Messages held go back as delivered but not failed. Raises CloseIncomplete, which tells what stayed unknown.
        """
        if self.state in (ConnectionState.NEW, ConnectionState.CLOSED):
            self._set(ConnectionState.CLOSED)
            return
        from .closing import close_connection

        if self._close_task is None:
            wanted = self.options.close_timeout_ms if timeout_ms is None else timeout_ms
            self._close_task = self.loop.create_task(close_connection(self, wanted))
        await asyncio.shield(self._close_task)

    def __await__(self) -> Generator[Any, None, Connection]:
        return self._open().__await__()

    async def __aenter__(self) -> Connection:
        return await self._open()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and self._last is not None and self._last._state is State.HELD:
            self._last._consumer.session._fail_last(error)
        try:
            await self.close()
        except CloseIncomplete as incomplete:
            if error is None:
                raise
            error.add_note(f"closing the connection: {incomplete}")

    # -- opening

    async def _open(self) -> Connection:
        if self.state is ConnectionState.CONNECTED:
            return self
        if self.state is not ConnectionState.NEW:
            self._raise_if_unusable()
            await self.connected()
            return self
        self.loop = asyncio.get_running_loop()
        self._outage_at = self.loop.time()
        self._connected = Waiters(self.loop)
        self._set(ConnectionState.CONNECTING)
        attempt = 1
        while True:
            try:
                await self._dial()
                return self
            except ConnectError as error:
                if attempt >= self._reconnect.first_attempts or not self._passing:
                    self._fail(error)
                    raise
                await asyncio.sleep(self._reconnect.delay_ms(attempt, self._rng) / 1000)
                attempt += 1
            except BaseException:
                self._fail(ConnectError("connect-cancelled", "connecting was cancelled", "connect again"))
                raise

    async def _dial(self) -> None:
        """One attempt at each host in turn, until one lets us in or says no; raises ConnectError."""
        errors: list[ConnectError] = []
        for host, port in self.url.hosts:
            try:
                return await self._dial_one(host, port)
            except ConnectError as error:
                errors.append(error)
                if not self._passing:
                    break
        if len(errors) == 1:
            raise errors[0]
        raise ConnectError(errors[-1].code, "; ".join(error.message for error in errors), errors[-1].fix)

    async def _dial_one(self, host: str, port: int) -> None:
        """Up to WELCOME; raises ConnectError."""
        self._passing = True
        self._welcome = self.loop.create_future()
        wire = self._dialling = Wire(self.loop, self._incoming, self._on_lost)
        where = place(host, port)
        try:
            async with asyncio.timeout(self.options.connect_timeout_ms / 1000):
                await self.loop.create_connection(lambda: wire, host, port)
                wire.write(*self._hello())
                wire.flush()
                options = await self._welcome
        except TimeoutError:
            wire.abort(ConnectionLost("connect-timeout", "no answer", ""))
            raise ConnectError(
                "connect-timeout", f"no answer from {where} in time", f"{NATIVE_PORT}, or raise connect_timeout_ms"
            ) from None
        except OSError as error:
            said = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            raise ConnectError("no-broker", f"nobody answers at {where} ({said})", "start the broker (homing serve)") from error
        except BaseException:
            wire.abort(ConnectionLost("connection-lost", "connecting was given up", ""))
            raise
        finally:
            self._dialling = self._welcome = None
        if wire.lost is not None:
            raise ConnectError(wire.lost.code, wire.lost.message, wire.lost.fix)
        self._adopt(wire, options)

    def _hello(self) -> Frame:
        options: dict[str, Any] = {
            "client_id": self.client_id,
            "product": self.options.product,
            "heartbeat_ms": self.options.heartbeat_ms,
            "joins_bodies": True,
        }
        if self._user is not None:
            options["user"] = self._user
        if self._password is not None:
            options["password"] = self._password
        if self._policies:
            options["redelivery_policies"] = self._policies.to_wire()
        frame: Frame = [Op.HELLO, MAGIC, PROTOCOL_VERSION, options]
        if len(encode(frame)) > MAX_FRAME_BYTES_BEFORE_LOGIN:
            self._passing = False
            raise ConnectError(
                "login-too-large", "what is sent at login takes more than 8 KiB", "give consumers their own redelivery_policy"
            )
        return frame

    def _adopt(self, wire: Wire, options: dict[str, Any]) -> None:
        """Logged in: open everything on this connection that was open on the last."""
        self.wire = wire
        self.broker_id = options["broker_id"]
        self.number = options["connection"]
        limit = options["max_frame_bytes"]
        self.max_message_bytes = limit - FRAME_HEAD_BYTES
        self.joins_bodies = options.get("joins_bodies", False)
        wire.allow_frames_of(limit)
        wire.start_heartbeat(options["heartbeat_ms"])
        self._connected_at = self.loop.time()
        self._set(ConnectionState.CONNECTED)
        for producer in list(self._producers.values()):
            producer._announce(wire)
        for consumer in list(self._consumers.values()):
            consumer._announce(wire)
        self._connected.wake_all()

    # -- losing and seeking

    def _on_lost(self, wire: Wire, error: HomingError) -> None:
        if wire is self._dialling and self._welcome is not None:
            if not self._welcome.done():
                self._welcome.set_exception(ConnectError(error.code, error.message, error.fix))
        elif wire is self.wire:
            self._lost(error)

    def _lost(self, error: HomingError) -> None:
        self.wire = None
        self.last_error = error
        self._fail_replies(error)
        for session in list(self._sessions):
            session._lost()
        if self.state is ConnectionState.CLOSING:
            return
        if not self._passing or self._reconnect.maximum_attempts == 0:
            self._fail(error)
            return
        self._lost_at = self.loop.time()
        log.warning("connection to %s lost, reconnecting: %s", self.url, error.message)
        self._set(ConnectionState.RECONNECTING)
        self._seeking = self.loop.create_task(self._seek(error))

    def _fail_replies(self, error: HomingError) -> None:
        replies, self._replies = self._replies, {}
        for reply in replies.values():
            reply.fail(error)

    async def _seek(self, error: HomingError) -> None:
        if self.loop.time() - self._connected_at >= STEADY_AFTER_S:
            self._attempts, self._outage_at = 0, self.loop.time()
        last = error
        while True:
            self._attempts += 1
            delay_ms = self._reconnect.delay_ms(self._attempts, self._rng)
            if self._reconnect.gives_up(self._attempts, (self.loop.time() - self._outage_at) * 1000 + delay_ms):
                break
            await asyncio.sleep(delay_ms / 1000)
            try:
                await self._dial()
                gone_s = self.loop.time() - self._lost_at
                log.warning("connected to %s again after %.1f s and %d attempts", self.url, gone_s, self._attempts)
                return
            except ConnectError as refused:
                last = refused
                if not self._passing:
                    break
        why = f"the connection was lost ({error.message}) and not found again in {self._attempts} attempts: {last.message}"
        self._fail(ConnectionLost(last.code if not self._passing else "connection-lost", why, last.fix))

    @property
    def may_return(self) -> bool:
        return self.state in (ConnectionState.CONNECTED, ConnectionState.RECONNECTING)

    def _fail(self, error: HomingError) -> None:
        """It will not come back: everything that waits is told."""
        self._failure = error
        self.last_error = error
        self._set(ConnectionState.FAILED)
        for session in list(self._sessions):
            session._end(error)
        self._connected.wake_all()

    def _set(self, state: ConnectionState) -> None:
        if state is not self.state:
            self.state = state
            for watcher in self.on_state:
                watcher(state)

    def _raise_if_unusable(self) -> None:
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        if self.state is ConnectionState.NEW:
            raise UsageError("not-connected", "the connection was never opened", "write `async with connect(...)` or `await connect(...)`")
        if self.state in (ConnectionState.CLOSING, ConnectionState.CLOSED):
            raise UsageError("connection-closed", "the connection is closed", "make a new one with connect()")

    # -- closing (driven by client.closing)

    def _closing(self) -> None:
        self._set(ConnectionState.CLOSING)
        if self._seeking is not None:
            self._seeking.cancel()

    async def _closed(self, in_order: bool) -> None:
        error = UsageError("connection-closed", "the connection is closed", "make a new one with connect()")
        wire, self.wire = self.wire, None
        for session in list(self._sessions):
            session._end(error)
        self._sessions.clear()
        lost = ConnectionLost("connection-closed", "the connection was closed before the answer came", "wait for answers before closing")
        self._fail_replies(lost)
        if wire is not None:
            if not in_order:
                wire.abort(error)
            await wire.close()
        self._set(ConnectionState.CLOSED)
        self._connected.wake_all()

    # -- for sessions, producers, consumers

    def expect(self, reply: Reply) -> int:
        """A new request number whose answer goes to ``reply``."""
        self._requests += 1
        self._replies[self._requests] = reply
        return self._requests

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def _policy_for(self, destination: str) -> RedeliveryPolicy | None:
        """What single fields of a destination (``orders?redeliveryPolicy.x=…``) override."""
        return self._policies.match(destination)

    def _next_session(self) -> int:
        self._session_numbers += 1
        return self._session_numbers

    def _next_consumer(self) -> int:
        self._consumer_numbers += 1
        return self._consumer_numbers

    def _next_producer(self) -> int:
        if self._producer_numbers < MAX_PRODUCERS:
            self._producer_numbers += 1
            return self._producer_numbers
        if not self._free_producers:
            raise UsageError("too-many-producers", f"{MAX_PRODUCERS} producers are open on this connection", "close some, or share them")
        return self._free_producers.pop(0)

    def _adopt_producer(self, producer: Producer) -> None:
        self._producers[producer.number] = producer
        if self.wire is not None:
            producer._announce(self.wire)

    def _adopt_consumer(self, consumer: Consumer) -> None:
        self._consumers[consumer.number] = consumer
        if self.wire is not None:
            consumer._announce(self.wire)

    def _forget_producer(self, producer: Producer) -> None:
        if self._producers.pop(producer.number, None) is not None:
            self._free_producers.append(producer.number)

    def _forget_consumer(self, consumer: Consumer) -> None:
        self._consumers.pop(consumer.number, None)

    def _forget_session(self, session: Session) -> None:
        if session in self._sessions:
            self._sessions.remove(session)
