"""Who is listened to: a socket for each protocol, with TLS and without; and whether a login that came over one is let in."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, cast

from .. import __version__
from ..auth.logins import Answer, Logins
from ..broker import Broker
from ..config.config import Config
from ..config.models import Listener, ShareSection, StompSection, is_loopback
from ..core.memory import Kind
from ..errors import Refused
from ..logs.writer import visible
from ..protocols.amqp091.options import HEARTBEAT_S, AmqpOptions, counts_sent_deaths
from ..protocols.amqp091.session import AmqpSession
from ..protocols.amqp091.transport import AmqpTransport
from ..protocols.codec_foreign import answer, describe
from ..protocols.codec_proxy import Peer
from ..protocols.codec_spoken import spoken
from ..protocols.codec_tls import TlsTransport
from ..protocols.gathering import Gathering
from ..protocols.handshakes import Admission, AdmissionLimits
from ..protocols.native.session import Call, NativeOptions, NativeSession
from ..protocols.native.transport import NativeTransport
from ..protocols.output import Outgoing
from ..protocols.passed import MaybePassed, Resident
from ..protocols.stomp.destinations import AMQ_TOPIC
from ..protocols.stomp.options import StompOptions
from ..protocols.stomp.session import StompSession
from ..protocols.stomp.transport import StompTransport
from ..protocols.transport import SocketTransport, TransportContext, TransportLimits
from ..protocols.turns import Turns
from ..shares import Allowance, Shares
from ..tls.certificate import Certificate

log = logging.getLogger("homing")

#: How often the files of the certificate are looked at.
_LOOK_EVERY_S: Final = 2.0
#: A peer that does not read is cut off when so much waits for it, or twice the largest message.
_MOST_UNSENT: Final = 64 << 20
#: What OpenSSL and the buffers of a connection take, once its handshake is done (docs/performance.md).
_TLS_BYTES: Final = 17 * 1024

#: What a node of a cluster agrees to instead of a longer heartbeat.
_BEAT_OF_A_NODE_MS: Final = 1_000
#: And what it offers clients of AMQP.
_AMQP_BEAT_OF_A_NODE_S: Final = 5

MakeProtocol = Callable[[], asyncio.Protocol]


class Listeners:
    """``transports``: every open socket, whatever is spoken on it. ``secret``: see ``listen``."""

    def __init__(
        self,
        config: Config,
        broker: Broker,
        logins: Logins,
        certificate: Certificate | None,
        run_call: Call,
        turns: Turns,
        outgoing: Outgoing,
        secret: bytes,
    ) -> None:
        self._config = config
        self._broker = broker
        self._logins = logins
        self._certificate = certificate
        self._run_call = run_call
        self._secret = secret
        self._loop = asyncio.get_running_loop()
        self._watching: asyncio.Task[None] | None = None
        self.transports: set[SocketTransport] = set()
        self.gathering = Gathering(broker.memory, self._loop.time)
        self._turns = turns
        self._outgoing = outgoing
        limits = config.limits
        #: Clients are to notice soon when this node is gone: others can take its place.
        self._of_several = config.journal.replication is not None
        self._admission = Admission(
            AdmissionLimits(limits.max_connections, limits.max_connections_per_peer, limits.max_handshakes, limits.max_handshakes_per_peer),
            resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            Shares(_allowances(config.user_limits), _allowances(config.peer_limits)),
        )

    async def open(self, broker_id: str) -> dict[str, asyncio.Server]:
        """Raises Refused, which names the port where the system does."""
        config = self._config
        exposed = config.beyond_loopback()
        if exposed and not self._logins.wanted:
            said = f"{' and '.join(exposed)} would listen beyond loopback, where everybody has to log in, and there are no users"
            raise Refused("users-required", said, f"homing user add NAME --role administrator --data {config.data_directory}")
        charge = partial(self._broker.memory.charge, Kind.CONNECTIONS)
        beside = (self._certificate, charge, self._secret)
        found = await listen("native", config.native, self._native(broker_id), *beside)
        if config.amqp is not None:
            make = self._amqp(config.amqp.product, config.amqp.version)
            found |= await listen("amqp", config.amqp, make, *beside, config.names("amqp"))
        if config.stomp is not None:
            found |= await listen("stomp", config.stomp, self._stomp(config.stomp), *beside, config.names("stomp"))
        return found

    def _transport_context(self, beats: int = 1) -> TransportContext:
        """``beats``: so many times more often than configured a client hears of the broker, whose own patience stays."""
        limits = self._config.limits
        transport_limits = TransportLimits(
            limits.max_frame_bytes,
            limits.max_bytes_before_login,
            limits.login_timeout_ms,
            limits.heartbeat_tolerance * beats,
            limits.write_timeout_ms,
            limits.max_unread_bytes,
            max(_MOST_UNSENT, 2 * limits.max_message_bytes),
        )
        return TransportContext(transport_limits, self.transports, self._admission, self.gathering, self._turns, self._outgoing)

    def _native(self, broker_id: str) -> MakeProtocol:
        limits = self._config.limits
        beats = max(1, limits.heartbeat_ms // _BEAT_OF_A_NODE_MS) if self._of_several else 1
        context = self._transport_context(beats)
        options = NativeOptions(
            broker_id,
            f"homing {__version__}",
            limits.heartbeat_ms // beats,
            limits.max_frame_bytes,
            limits.max_properties_bytes,
            limits.max_nesting,
            limits.max_message_bytes,
        )

        def session(transport: SocketTransport) -> NativeSession:
            authenticate = self._authenticator(transport, self._logins.check)
            return NativeSession(self._broker, transport, options, authenticate, self._run_call)

        return lambda: NativeTransport(session, context)

    def _amqp(self, product: str, version: str) -> MakeProtocol:
        limits = self._config.limits
        offered_s = _AMQP_BEAT_OF_A_NODE_S if self._of_several else HEARTBEAT_S
        context = self._transport_context(HEARTBEAT_S // offered_s)
        options = AmqpOptions(
            product,
            version,
            counts_sent_deaths(version),
            heartbeat_s=offered_s,
            broker_version=__version__,
            cluster_name=self._config.broker.name,
            max_message_bytes=limits.max_message_bytes,
            max_gathered_bytes=self.gathering.most(limits.max_message_bytes, limits.max_partial_bytes),
            max_cache_bytes=limits.max_cache_bytes,
        )

        def session(transport: SocketTransport) -> AmqpSession:
            authenticate = self._authenticator(transport, self._check_amqp)
            return AmqpSession(self._broker, transport, options, authenticate, lambda: self._certified(transport) is not None)

        return lambda: AmqpTransport(session, context)

    def _stomp(self, section: StompSection) -> MakeProtocol:
        limits, context = self._config.limits, self._transport_context()
        topics = AMQ_TOPIC if section.topics == AMQ_TOPIC else None
        options = StompOptions(
            f"homing/{__version__}",
            topics,
            limits.heartbeat_ms,
            limits.max_message_bytes,
            limits.max_properties_bytes,
            limits.max_cache_bytes,
        )

        def session(transport: SocketTransport) -> StompSession:
            return StompSession(self._broker, transport, options, self._authenticator(transport, self._logins.check))

        return lambda: StompTransport(session, context)

    # -- logins ------------------------------------------------------------------------------------------------------

    def _check_amqp(self, user: str, password: str, peer: str, answer: Answer) -> Callable[[], object] | None:
        """As everywhere; without any user configured, guest with the password guest is the one that programs expect (loopback only)."""
        if self._logins.wanted:
            return self._logins.check(user, password, peer, answer)
        if (user, password) == ("guest", "guest"):
            answer("guest")
        else:
            self._logins.refused += 1
            said = f"Login was refused using authentication mechanism for user '{user}'"
            log.warning("login-refused: user %s from %s", visible(user, 64), peer)
            answer(Refused("login-refused", said, "use guest and guest"))
        return None

    def _authenticator(self, transport: SocketTransport, check: Callable[..., Callable[[], object] | None]) -> Callable[..., Any]:
        """Checks a login that came over this socket, and then whether there is a connection's slot for it."""

        def authenticate(name: str | None, password: str | None, done: Answer) -> Callable[[], object] | None:
            certified = None if name or password else self._certified(transport)

            def answer(user: str | Refused) -> None:
                transport.checking = False
                refusal = self._admission.admit(transport, user, self._broker.now_ms()) if isinstance(user, str) else None
                if refusal is not None:
                    log.warning("connection-refused: %s was refused: %s", transport.endpoint, refusal)
                self._broker.access.record_login(name or certified, transport.endpoint, refusal or user, transport.protocol)
                done(refusal or user)

            try:
                self._admission.shares.of_peer(transport.peer).log_in(self._broker.now_ms())
            except Refused as refusal:
                answer(refusal)
                return None
            if certified is not None:
                self._logins.vouch(certified, transport.peer, answer)
                return None
            transport.checking = True
            return check(name, password, transport.peer, answer)

        return authenticate

    def _certified(self, transport: SocketTransport) -> str | None:
        """The user whose certificate the peer has shown."""
        return None if self._certificate is None or (tls := transport.tls) is None else self._certificate.user_of(tls)

    # -- the certificate ---------------------------------------------------------------------------------------------

    def watch_certificate(self) -> None:
        if self._certificate is not None:
            self._watching = self._loop.create_task(self._watch(self._certificate))

    async def _watch(self, certificate: Certificate) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            await asyncio.to_thread(certificate.look)

    def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()


def _allowances(sections: Mapping[str, ShareSection]) -> dict[str, Allowance]:
    return {name: section.allowance() for name, section in sections.items()}


async def listen(
    name: str,
    section: Listener,
    make: MakeProtocol,
    certificate: Certificate | None,
    charge: Callable[[int], object] = lambda size: None,
    secret: bytes = b"",
    needed: bool = True,
) -> dict[str, asyncio.Server]:
    """The one protocol in the clear, and with TLS where there is a certificate. Raises Refused, which names the port.

    ``secret``: who begins with it passes a connection on; without one nobody does. ``needed``: somebody has asked for it; else a port that
    is taken is a line of the log, and nobody listens there.
    """
    found: dict[str, asyncio.Server] = {}
    try:
        await _listen_to_both(found, name, section, make, certificate, charge, secret)
    except Refused as refusal:
        if needed or refusal.code != "port-in-use":
            raise
        log.warning("not-listening: %s; the broker starts without it, as no configuration names it", refusal.message)
    return found


async def _listen_to_both(
    found: dict[str, asyncio.Server],
    name: str,
    section: Listener,
    make: MakeProtocol,
    certificate: Certificate | None,
    charge: Callable[[int], object],
    secret: bytes,
) -> None:
    def passed(make: MakeProtocol) -> MakeProtocol:
        return (lambda: MaybePassed(make(), secret)) if secret else make

    if section.port is not None:
        found[name] = await listen_at(name, "port", section.host, section.port, passed(make))
        if name != "http" and not is_loopback(section.host):
            log.warning(
                "insecure: %s listens on %s without TLS: passwords and messages cross the network in the clear", name, endpoint(found[name])
            )
    if certificate is not None and section.tls_port is not None:
        secured = partial(_Secured, make, certificate, charge)
        found[f"{name}-tls"] = await listen_at(name, "tls-port", section.tls_host, section.tls_port, passed(secured))


class _Secured(TlsTransport):
    """``charge``: to the account of memory, for as long as the socket is open."""

    def __init__(self, make: MakeProtocol, certificate: Certificate, charge: Callable[[int], object]) -> None:
        super().__init__(make(), certificate.context)
        self._charge = charge
        self._peer: Peer | None = None

    def came_from(self, peer: Peer) -> None:
        self._peer = peer
        cast(Resident, self._above).came_from(peer)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._charge(_TLS_BYTES)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._charge(-_TLS_BYTES)
        super().connection_lost(exc)

    def answer_in_the_clear(self, data: bytes) -> bytes | None:
        theirs = spoken(data)
        if theirs in (None, "tls"):
            return None
        host, port = self._peer or self.get_extra_info("peername")[:2]
        log.warning("wrong-protocol: %s", describe(f"{host}:{port}", theirs, "tls"))
        return answer(theirs, "tls")


async def listen_at(name: str, setting: str, host: str, port: int, make: MakeProtocol) -> asyncio.Server:
    """``setting``: of section ``name``, that says the port. Raises Refused."""
    try:
        return await asyncio.get_running_loop().create_server(make, host, port, backlog=1024)
    except OSError as error:
        code = "port-in-use" if error.errno == errno.EADDRINUSE else "cannot-listen"
        said = f"{name} cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}"
        fix = f"stop what listens there (ss -ltnp), or change {name}.{setting} in broker.yaml; 0 picks a free one"
        raise Refused(code, said, fix) from error


def endpoint(listener: asyncio.Server) -> str:
    host, port = listener.sockets[0].getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
