"""What a standby does with connections: it passes them on to whoever leads, byte by byte. TLS, too, ends there."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final, cast

from ...config.config import Config
from ...errors import Refused
from ...protocols.amqp091.options import AmqpOptions
from ...protocols.codec_proxy import Peer, header
from ...protocols.codec_tls import TlsTransport
from ...protocols.passed import MaybePassed
from ...protocols.refusing import Refusing
from ...tls.certificate import Certificate
from ..listeners import endpoint, listen_at

log = logging.getLogger("homing")

_CONNECT_S: Final = 3.0
_NO_LEADER: Final = Refused("no-leader", "this node stands by, and no other leads at the moment", "connect again in a moment")
_WILDCARDS: Final = ("0.0.0.0", "::")


def endpoints(config: Config) -> dict[str, str]:
    """Where a node is reached by others, as far as its configuration says it: by protocol."""
    found = {}
    for name, host, port in _ports(config):
        host = socket.gethostname() if host in _WILDCARDS else host
        found[name] = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return found


def _ports(config: Config) -> list[tuple[str, str, int]]:
    listeners = {name: each for name, each in config.listeners().items() if name != "http"}
    clear = [(name, each.host, each.port) for name, each in listeners.items()]
    secured = [(f"{name}-tls", each.tls_host, each.tls_port) for name, each in listeners.items() if config.tls is not None]
    return [(name, host, port) for name, host, port in [*clear, *secured] if port is not None]


class Passing:
    def __init__(self, config: Config, certificate: Certificate | None) -> None:
        """``certificate``: by which those are refused that speak TLS; what is passed on is the leader's."""
        self._config = config
        self._certificate = certificate
        self._amqp = AmqpOptions(*(("", "") if config.amqp is None else (config.amqp.product, config.amqp.version)))
        self._secret = b""
        self._addresses: dict[str, str] = {}
        self._wanted = asyncio.Event()
        self._open = set[asyncio.Transport]()
        self._listening: dict[str, asyncio.Server] = {}

    async def open(self, secret: bytes, listens: Callable[[dict[str, str]], None]) -> None:
        """Listens as soon as there is somebody to pass them on to. ``secret``: the leader knows by it whom to believe.

        Raises Refused: see listeners.listen_at.
        """
        await self._wanted.wait()
        self._secret = secret
        for name, host, port in _ports(self._config):
            protocol, _, tls = name.partition("-")
            make = partial(self._client, name)
            self._listening[name] = await listen_at(protocol, "tls-port" if tls else "port", host, port, make)
        listens({name: endpoint(each) for name, each in self._listening.items()})

    def _client(self, name: str) -> asyncio.Protocol:
        return MaybePassed(_Client(partial(self._pass, name), self._open), self._secret)

    def lead_by(self, addresses: dict[str, str] | None) -> None:
        """``addresses``: of whoever leads; None: nobody else does. Where the same node leads again its process has ended, and what was
        passed on to that with it; what is passed on by now goes to the new one."""
        if addresses is not None:
            self._wanted.set()
        if self._addresses != (addresses := addresses or {}):
            self._addresses = addresses
            self._cut()

    async def _pass(self, name: str, client: _Client) -> None:
        there, most = self._addresses.get(name), self._config.limits.max_connections
        if len(self._open) > most:
            said = f"the node has {most} connections, as many as it may"
            self._refuse(name, client, Refused("too-many-connections", said, "close some, or raise limits.max-connections"))
        elif there is None:
            self._refuse(name, client, _NO_LEADER)
        else:
            host, _, port = there.rpartition(":")
            told = header(client.peer, client.here, self._secret)
            try:
                async with asyncio.timeout(_CONNECT_S):
                    await asyncio.get_running_loop().create_connection(lambda: _Leader(client, told), host.strip("[]"), int(port))
            except (OSError, TimeoutError) as error:
                log.warning("not-passed: a connection for %s was not passed on to %s: %s", name, there, str(error) or "no answer")
                self._refuse(name, client, _NO_LEADER)

    def _refuse(self, name: str, client: _Client, refusal: Refused) -> None:
        protocol, _, tls = name.partition("-")
        refusing: asyncio.Protocol = Refusing(protocol, refusal, self._amqp)
        if tls and self._certificate is not None:
            refusing = TlsTransport(refusing, self._certificate.context)
        client.become(refusing)

    def _cut(self) -> None:
        for transport in list(self._open):
            transport.abort()

    def close(self) -> None:
        for each in self._listening.values():
            each.close()
        self._cut()


class _End(asyncio.Protocol):
    """What comes from the one end is written to the other, and so is that nothing more comes."""

    transport: asyncio.Transport
    other: _End | None = None
    _ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name

    def data_received(self, data: bytes) -> None:
        assert self.other is not None
        self.other.transport.write(data)

    def eof_received(self) -> bool:
        """Whether it stays open for what the other one says yet."""
        self._ended = True
        other = self.other
        if other is None or other._ended or other.transport.is_closing():
            return False
        other.transport.write_eof()
        return True

    def pause_writing(self) -> None:
        assert self.other is not None
        self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        assert self.other is not None
        self.other.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        if self.other is not None:
            self.other.transport.close()


class _Client(_End):
    """Not more than its first bytes is read before there is somebody to read it."""

    def __init__(self, pass_on: Callable[[_Client], Coroutine[None, None, None]], those_open: set[asyncio.Transport]) -> None:
        self._pass_on = pass_on
        self._those_open = those_open
        self.first = b""
        self._refusing: asyncio.Protocol | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._those_open.add(self.transport)
        self.peer, self.here = (Peer(*transport.get_extra_info(name)[:2]) for name in ("peername", "sockname"))
        self._passing = asyncio.get_running_loop().create_task(self._pass_on(self))

    def came_from(self, peer: Peer) -> None:
        """A node passes it on that takes this one for the leader yet: whoever connects is to come again."""
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._refusing is not None:
            self._refusing.data_received(data)
        elif self.other is None:
            self.first += data
            self.transport.pause_reading()
        else:
            super().data_received(data)

    def become(self, refusing: asyncio.Protocol) -> None:
        """Nobody else will read it."""
        self._refusing = refusing
        refusing.connection_made(self.transport)
        if self.first:
            refusing.data_received(self.first)
        self.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._those_open.discard(self.transport)
        self._passing.cancel()
        if self._refusing is not None:
            self._refusing.connection_lost(error)
        super().connection_lost(error)


class _Leader(_End):
    """The other end of a client's. ``told``: of the client."""

    def __init__(self, client: _Client, told: bytes) -> None:
        self._client = self.other = client
        self._told = told

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        client = self._client
        if client.transport.is_closing():
            self.transport.abort()
            return
        client.other = self
        self.transport.write(self._told + client.first)
        client.transport.resume_reading()
