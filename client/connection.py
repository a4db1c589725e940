"""Connection: one login at a broker, kept alive and sought again when it is lost."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import ssl
import time
import uuid
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from enum import Enum
from typing import Any, Final

from homing.broker.protocols.codec_tls import TlsTransport
from homing.broker.protocols.native.codec import MAGIC, MAX_FRAME_BYTES_BEFORE_LOGIN, PROTOCOL_VERSION, Op, encode

from .errors import CloseIncomplete, ConnectError, ConnectionLost, HomingError, UsageError
from .failure import failure_map
from .link import Link, Reply
from .modes import AckMode
from .operations import Operations
from .options import ConnectionOptions, connection_options, given, installed_version, policies_of, policy_of
from .parts import Parts, Tracing
from .policy import PolicyMap, RedeliveryPolicy
from .reconnect import NEVER, PASSING_ERRORS, STEADY_AFTER_S, ReconnectPolicy
from .session import FLUSH_SHARE, Session, account_of, flush_all
from .url import DEFAULT_URL, parse_url, place
from .validation import check_text
from .wire import NATIVE_PORT, Frame, Wire

#: Entries asked for at a time; the broker may give fewer.
LISTING_PAGE: Final = 250
_REDRIVE_LOOK_S: Final = 0.1
#: Where one of several hosts may be there again at any moment, it is not waited longer between two rounds.
_AMONG_HOSTS_MS: Final = 500.0

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
    program_version: str | None = None,
    tell_host: bool | None = None,
    cafile: str | None = None,
    certfile: str | None = None,
    keyfile: str | None = None,
    tls: ssl.SSLContext | None = None,
    rng: random.Random | None = None,
    tracing: Tracing | None = None,
) -> Connection:
    """A connection to ``homing://user:password@host:port?option=value``: ``await`` it, or use it with ``async with``.

    What the string says wins over the arguments here. ``redelivery_policies`` maps destination patterns to policies,
    ``redelivery_policy`` is for whatever no pattern matches. The broker keeps the host's name and ``program_version`` with what this
    connection fails, so that a bad host or release can be found; ``tell_host=False`` keeps both here. With ``homings://``, TLS, the
    broker's certificate has to be the host's, and of ``cafile`` or whom the system trusts; ``certfile`` and ``keyfile`` are one's own;
    ``tls`` is a context that replaces all three. ``rng`` draws the jitter of reconnect waits. ``tracing``: see ``homing.client.otel``.
    Raises UsageError here; awaiting it raises ConnectError (``no-broker``, ``connect-timeout``, ``certificate-refused``, ``tls-failed``,
    or the broker's code).
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
        program_version=program_version,
        tell_host=tell_host,
        cafile=cafile,
        certfile=certfile,
        keyfile=keyfile,
    )
    if isinstance(reconnect, bool):
        reconnect = ReconnectPolicy() if reconnect else NEVER
    return Connection(url, layer, user, password, dict(redelivery_policies or {}), reconnect, tls, rng or random.Random(), tracing)


class Connection(Operations):
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
        tls: ssl.SSLContext | None,
        rng: random.Random,
        tracing: Tracing | None = None,
    ) -> None:
        self.url = parse_url(url)
        self._parts = Parts() if tracing is None else tracing.parts(*self.url.hosts[0])
        #: Which of the hosts is tried next: behind the one that was tried last, which may be gone.
        self._next_host = 0
        self._layers = (layer, self.url.options)
        self.options = connection_options(self._layers)
        self._user = self.url.user if self.url.user is not None else user
        self._password = self.url.password if self.url.password is not None else password
        general, policies = policy_of(self._layers), policies_of(self._layers, policies)
        self._policies = PolicyMap(policies if general is None else {"#": general, **policies})
        self._has_general = general is not None
        self._reconnect = reconnect
        self._tls = tls
        self._rng = rng
        self.client_id = self.options.client_id or str(uuid.uuid4())
        self.state = ConnectionState.NEW
        self.on_state: list[Callable[[ConnectionState], None]] = []
        self.last_error: HomingError | None = None
        self.broker_id: str | None = None
        self.number: int | None = None
        self._dialling: Wire | None = None
        self._welcome: asyncio.Future[dict[str, Any]] | None = None
        self._passing = True  # whether what ended the last attempt or connection may pass
        self._attempts = 0
        self._connected_at = self._outage_at = self._lost_at = 0.0
        self._seeking: asyncio.Task[None] | None = None
        self._sessions: list[Session] = []
        self._close_task: asyncio.Task[None] | None = None
        self._link = Link(self._on_welcome, self._on_error)

    # -- what programs call

    def session(self, mode: AckMode = AckMode.AUTO) -> Session:
        """A session; use it with ``async with``. The connection must be open (it may be reconnecting)."""
        if not isinstance(mode, AckMode):
            raise UsageError("invalid-argument", f"the mode is {mode!r}", "give a client.AckMode")
        self._link.raise_if_gone()
        session = Session(self._link, mode, self._layers, self._policies, self.options.close_timeout_ms, self._forget, self._parts)
        self._sessions.append(session)
        return session

    async def call(self, verb: str, **arguments: Any) -> Any:
        """A management call (docs/protocol.md 2.7) and its value. Waits for a reconnect that is under way.

        Raises CallError when the broker refuses it, ConnectionLost when the connection breaks before the answer.
        """
        check_text("a verb", verb)
        try:
            encode([verb, arguments])
        except (ValueError, TypeError, OverflowError) as error:
            raise UsageError("invalid-argument", f"the arguments of {verb} cannot be sent ({error})", "give plain values") from None
        return await self._link.call(verb, **arguments)

    async def redrive(self, queue: str, *, wait: bool = False, to: str | None = None, **options: Any) -> dict[str, Any]:
        """Starts a job that sends dead letters of a queue back to where they came from, or ``to`` another; its map (docs/protocol.md 2.7).

        Options: ``rate`` (a second), ``limit``, ``newest_first``, ``canary``, ``stop_above`` (per cent, None: never); any other is of the
        filter: ``fault="3-9f86d081"``, ``where="region = 'eu'"``. ``wait``: until it has ended.
        Raises CallError when the broker refuses it.
        """
        own = {name: options.pop(name) for name in ("rate", "limit", "newest_first", "canary", "stop_above") if name in options}
        job: dict[str, Any] = await self.call("start-redrive", queue=queue, to=to, filter=options, **own)
        while wait and job["ended_ms"] is None:
            await asyncio.sleep(_REDRIVE_LOOK_S)
            job = await self.call("redrive-status", redrive=job["job_id"])
        return job

    async def listing(self, verb: str, **arguments: Any) -> list[Any]:
        """All that a call with pages has (``queues``, ``consumers``, ``connections``, …), page by page; raises as ``call`` does.

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
        return await self._link.connected()

    @property
    def wire(self) -> Wire | None:
        """The TCP connection, None while there is none."""
        return self._link.wire

    async def close(self, timeout_ms: int | None = None) -> None:
        """Flush unconfirmed sends and held acknowledgements, then end in order, within ``timeout_ms`` (default close_timeout_ms).

        Messages held go back as delivered but not failed. Raises CloseIncomplete, which tells what stayed unknown.
        """
        if self.state in (ConnectionState.NEW, ConnectionState.CLOSED):
            self._link.gone = _closed()
            self._set(ConnectionState.CLOSED)
            return
        if self._close_task is None:
            wanted_ms = self.options.close_timeout_ms if timeout_ms is None else timeout_ms
            self._close_task = self.loop.create_task(self._close(wanted_ms / 1000))
        await asyncio.shield(self._close_task)

    def __await__(self) -> Generator[Any, None, Connection]:
        return self._open().__await__()

    async def __aenter__(self) -> Connection:
        return await self._open()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and self._link.last is not None:
            self._link.last.fail_last(failure_map("error", error=error))
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
            await self._link.connected()
            return self
        self.loop = asyncio.get_running_loop()
        self._outage_at = self.loop.time()
        self._link.begin(self.loop)
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
        """One attempt: at each host in turn, until one lets us in or says no; raises ConnectError.

        One of several that does not answer at once may be gone, and another be there; where none lets us in, it is given more time.
        """
        longest_ms = float(self.options.connect_timeout_ms)
        patience_ms = longest_ms if len(self.url.hosts) == 1 else min(_AMONG_HOSTS_MS, longest_ms)
        refused: set[int] = set()
        while errors := await self._dial_each(patience_ms, refused):
            codes = {error.code for error in errors}
            if patience_ms == longest_ms or not self._passing or "connect-timeout" not in codes or "no-leader" in codes:
                raise (
                    errors[0]
                    if len(errors) == 1
                    else ConnectError(errors[-1].code, "; ".join(error.message for error in errors), errors[-1].fix)
                )
            # Whoever refused is looked at meanwhile: nobody is kept from being found by one that is given all of its time.
            patience_ms = longest_ms if len(refused) == len(errors) - 1 else min(2 * patience_ms, longest_ms)

    async def _dial_each(self, patience_ms: float, refused: set[int]) -> list[ConnectError]:
        """What each host said, none where one let us in. ``refused``: where nobody listened, from round to round."""
        errors: dict[int, ConnectError] = {}
        left = len(self.url.hosts)
        while left:
            at = self._next_host
            self._next_host, left = (at + 1) % len(self.url.hosts), left - 1
            refused.discard(at)
            before = len(refused)
            try:
                await self._dial_one(*self.url.hosts[at], patience_ms, refused)
            except ConnectError as error:
                errors[at] = error
                if not self._passing:
                    break
                if len(refused) < before:  # somebody listens again
                    left = max(left, 1)
                if error.code == "no-broker":
                    refused.add(at)
            else:
                return []
        return list(errors.values())

    async def _look_at(self, refused: set[int], waiting: asyncio.Timeout) -> None:
        """While a host is given time, the others are looked at; where somebody listens again, he is next and nobody is waited for."""
        while True:
            await asyncio.sleep(_AMONG_HOSTS_MS / 1000)
            for at in refused:
                with suppress(OSError):  # a timeout is one
                    async with asyncio.timeout(_AMONG_HOSTS_MS / 1000):
                        transport, _ = await self.loop.create_connection(asyncio.Protocol, *self.url.hosts[at])
                    transport.abort()
                    if not waiting.expired():
                        self._next_host = at
                        refused.remove(at)
                        waiting.reschedule(self.loop.time())
                    return

    async def _dial_one(self, host: str, port: int, patience_ms: float, refused: set[int]) -> None:
        """Up to WELCOME; raises ConnectError. ``refused``: see _look_at."""
        self._passing = True
        wire = Wire(self.loop, self._link, self._on_lost)
        on_socket = TlsTransport(wire, self._tls or _tls_context(self.options), host) if self.url.tls else wire
        self._welcome = self.loop.create_future()
        self._dialling = wire
        where, looking = place(host, port), None
        try:
            async with asyncio.timeout(patience_ms / 1000) as waiting:
                looking = self.loop.create_task(self._look_at(refused, waiting)) if refused else None
                await self.loop.create_connection(lambda: on_socket, host, port)
                wire.write(*self._hello())
                wire.flush()
                options = await self._welcome
        except TimeoutError:
            self._give_up(wire, ConnectionLost("connect-timeout", "no answer", ""))
            raise ConnectError(
                "connect-timeout", f"no answer from {where} in time", f"{NATIVE_PORT}, or raise connect_timeout_ms"
            ) from None
        except OSError as error:
            said = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            raise ConnectError("no-broker", f"nobody answers at {where} ({said})", "start the broker (homing serve)") from error
        except BaseException:
            self._give_up(wire, ConnectionLost("connection-lost", "connecting was given up", ""))
            raise
        finally:
            self._dialling = self._welcome = None
            if looking is not None:
                looking.cancel()
        if wire.lost is not None:
            raise ConnectError(wire.lost.code, wire.lost.message, wire.lost.fix)
        self._adopt(wire, options)

    def _give_up(self, wire: Wire, why: HomingError) -> None:
        """End a dial. Nobody waits for its answer any more, so asyncio is not to complain that nobody has seen it."""
        if self._welcome is not None and not self._welcome.cancel() and not self._welcome.cancelled():
            self._welcome.exception()
        wire.abort(why)

    def _hello(self) -> Frame:
        options: dict[str, Any] = {
            "client_id": self.client_id,
            "product": self.options.product,
            "product_version": installed_version(),
            "heartbeat_ms": self.options.heartbeat_ms,
            "joins_bodies": True,
        }
        if self.options.tell_host:
            options["host"] = socket.gethostname()
            if self.options.program_version:
                options["version"] = self.options.program_version
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
        self.broker_id = options["broker_id"]
        self.number = options["connection"]
        limit = options["max_frame_bytes"]
        wire.allow_frames_of(limit)
        wire.start_heartbeat(options["heartbeat_ms"])
        self._connected_at = self.loop.time()
        self._set(ConnectionState.CONNECTED)
        self._link.take_up(wire, limit, options.get("joins_bodies", False))

    # -- losing and seeking

    def _on_lost(self, wire: Wire, error: HomingError) -> None:
        if wire is self._dialling and self._welcome is not None:
            if not self._welcome.done():
                self._welcome.set_exception(ConnectError(error.code, error.message, error.fix))
        elif wire is self._link.wire:
            self._lost(error)

    def _on_welcome(self, version: int, options: dict[str, Any]) -> None:
        if self._welcome is None or version != PROTOCOL_VERSION:
            raise ValueError(f"an unexpected WELCOME of version {version}")
        if not self._welcome.done():
            self._welcome.set_result(options)

    def _on_error(self, code: str, message: str, fix: str) -> None:
        # An id that nobody else has was taken over by an older attempt of this connection, which came late.
        self._passing = code in PASSING_ERRORS or (code == "taken-over" and self.options.client_id is None)
        wire = self._dialling or self._link.wire
        if wire is not None:
            wire.abort(ConnectionLost(code, message, fix))

    def _lost(self, error: HomingError) -> None:
        self.last_error = error
        self._link.drop(error)
        for session in list(self._sessions):
            session._lost()
        if self.state is ConnectionState.CLOSING:
            return
        if not self._passing or self._reconnect.maximum_attempts == 0:
            self._fail(error)
            return
        self._lost_at = self.loop.time()
        log.warning("connection-lost: connection to %s lost, reconnecting: %s", self.url, error.message)
        self._set(ConnectionState.RECONNECTING)
        self._seeking = self.loop.create_task(self._seek(error))

    async def _seek(self, error: HomingError) -> None:
        if self.loop.time() - self._connected_at >= STEADY_AFTER_S:
            self._attempts, self._outage_at = 0, self.loop.time()
        last = error
        while True:
            self._attempts += 1
            delay_ms = self._reconnect.delay_ms(self._attempts, self._rng)
            if len(self.url.hosts) > 1:
                delay_ms = min(delay_ms, _AMONG_HOSTS_MS)
            if self._reconnect.gives_up(self._attempts, (self.loop.time() - self._outage_at) * 1000 + delay_ms):
                break
            await asyncio.sleep(delay_ms / 1000)
            try:
                await self._dial()
                gone_s = self.loop.time() - self._lost_at
                log.warning("reconnected: connected to %s again after %.1f s, at attempt %d", self.url, gone_s, self._attempts)
                return
            except ConnectError as refused:
                last = refused
                if not self._passing:
                    break
        why = f"the connection was lost ({error.message}) and not found again, last at attempt {self._attempts}: {last.message}"
        self._fail(ConnectionLost(last.code if not self._passing else "connection-lost", why, last.fix))

    def _fail(self, error: HomingError) -> None:
        """It will not come back: everything that waits is notified."""
        self.last_error = error
        self._link.end(error)
        self._set(ConnectionState.FAILED)
        for session in list(self._sessions):
            session._end(error)

    def _set(self, state: ConnectionState) -> None:
        if state is not self.state:
            self.state = state
            for watcher in self.on_state:
                watcher(state)

    # -- closing

    async def _close(self, timeout_s: float) -> None:
        started, sessions = self.loop.time(), list(self._sessions)
        await flush_all(sessions, started + timeout_s * FLUSH_SHARE)
        unknown = account_of(sessions)
        closed = _closed()
        self._link.end(closed)
        self._set(ConnectionState.CLOSING)
        if self._seeking is not None:
            self._seeking.cancel()
        wire = self._link.wire
        answered = wire is None or await self._say_goodbye(wire, started + timeout_s)
        self._link.drop(
            ConnectionLost("connection-closed", "the connection was closed before the answer came", "wait for answers before closing")
        )
        for session in sessions:
            session._end(closed)
        self._sessions.clear()
        if wire is not None:
            if not answered:
                wire.abort(closed)
            await wire.close()
        self._set(ConnectionState.CLOSED)
        if any(unknown) or not answered:
            raise CloseIncomplete(*unknown, answered)

    async def _say_goodbye(self, wire: Wire, deadline_s: float) -> bool:
        """CLOSE, and whether CLOSED came in time. Where the broker ended the connection instead, only what sessions held is in doubt."""
        future: asyncio.Future[Any] = self.loop.create_future()
        wire.write(Op.CLOSE, self._link.expect(Reply(UsageError, future)))
        wire.flush()
        try:
            async with asyncio.timeout_at(deadline_s):
                await future
        except TimeoutError:
            return False
        except HomingError:
            return not self._sessions
        return True

    def _forget(self, session: Session) -> None:
        if session in self._sessions:
            self._sessions.remove(session)

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC, by this machine's clock."""
        return time.time_ns() // 1_000_000


def _closed() -> UsageError:
    return UsageError("connection-closed", "the connection is closed", "make a new one with connect()")


def _tls_context(options: ConnectionOptions) -> ssl.SSLContext:
    """Made anew for each attempt: the files may have changed. Raises ConnectError."""
    try:
        context = ssl.create_default_context(cafile=options.cafile)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if options.certfile is not None:
            context.load_cert_chain(options.certfile, options.keyfile)
    except OSError as error:
        why = error.strerror or str(error)
        raise ConnectError("tls-unusable", f"cafile, certfile or keyfile cannot be used: {why}", "name files in PEM") from error
    return context
