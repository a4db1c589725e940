"""What a standby does with connections: it passes them on to whoever leads, byte by byte. TLS, too, ends there."""

from __future__ import annotations

import asyncio
import logging
import socket
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from ..config.config import Config
from .listeners import listen_at, place

log = logging.getLogger("homing")

_CONNECT_S: Final = 3.0
_CHUNK_BYTES: Final = 64 << 10
_WILDCARDS: Final = ("0.0.0.0", "::")


def places(config: Config) -> dict[str, str]:
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
    def __init__(self, config: Config) -> None:
        self._config = config
        self._leader = ""
        self._addresses: dict[str, str] = {}
        self._open = set[StreamWriter]()
        self._listening: dict[str, asyncio.Server] = {}

    async def open(self, wanted: asyncio.Event, listens: Callable[[dict[str, str]], None]) -> None:
        """Listens as soon as there is somebody to pass them on to. Raises Refused: see listeners.listen_at."""
        await wanted.wait()
        loop = asyncio.get_running_loop()
        for name, host, port in _ports(self._config):
            protocol, _, tls = name.partition("-")
            pass_on = partial(self._pass, name)
            make = lambda pass_on=pass_on: asyncio.StreamReaderProtocol(StreamReader(loop=loop), pass_on, loop)  # noqa: E731
            self._listening[name] = await listen_at(protocol, "tls-port" if tls else "port", host, port, make)
        listens({name: place(each) for name, each in self._listening.items()})

    def lead_by(self, leader: str, addresses: dict[str, str]) -> None:
        """``leader``: differs from each before it, also of the same name. "": nobody leads."""
        if leader != self._leader:
            self._leader = leader
            self._cut()
        self._addresses = addresses

    async def _pass(self, name: str, reader: StreamReader, writer: StreamWriter) -> None:
        there = self._addresses.get(name)
        self._open.add(writer)
        try:
            if there is None or len(self._open) > self._config.limits.max_connections:
                return
            host, _, port = there.rpartition(":")
            async with asyncio.timeout(_CONNECT_S):
                from_leader, to_leader = await asyncio.open_connection(host.strip("[]"), int(port))
            try:
                both = [asyncio.ensure_future(_pump(*ends)) for ends in ((reader, to_leader), (from_leader, writer))]
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                for each in both:
                    each.cancel()
            finally:
                to_leader.close()
        except (OSError, TimeoutError) as error:
            log.warning("not-passed: a connection for %s was not passed on to %s: %s", name, there, str(error) or "no answer")
        finally:
            self._open.discard(writer)
            writer.close()

    def _cut(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    def close(self) -> None:
        for each in self._listening.values():
            each.close()
        self._cut()


async def _pump(reader: StreamReader, writer: StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
