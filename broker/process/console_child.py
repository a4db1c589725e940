"""The console beside the broker: a child that is begun, ended and begun again, and never part of whether the broker is ready.

It is given nothing but the address that every client has, and one end of two pipes. When the broker's end goes, however the broker ended,
it ends, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Final

from ..config.models import ConsoleSection, TlsSection
from ..errors import Refused
from ..logs.writer import visible
from .listeners import endpoint

log = logging.getLogger("homing")

#: What the extra ``console`` brings.
_EXTRA: Final = "jinja2"
_FIRST_WAIT_S: Final = 1.0
_LONGEST_WAIT_S: Final = 60.0
#: Who has lived so long is begun again at once.
_STEADY_S: Final = 60.0
#: It ends within two seconds, or is ended.
_GOODBYE_S: Final = 5.0
_LONGEST_LINE: Final = 64 * 1024
_OFF: Final = "off"


class ConsoleChild:
    """``section``: None where there is none, and nothing is done. ``tls``: the broker's certificate, if it has one."""

    def __init__(self, section: ConsoleSection | None, tls: TlsSection | None = None) -> None:
        self._section = section
        self._tls = tls
        self._keeping: asyncio.Task[None] | None = None

    def start(self, listening: Mapping[str, asyncio.Server], stop: asyncio.Event) -> dict[str, str]:
        """Until ``stop``, or ``close``. Returns what the ready line says of it: its addresses, or ``off``, which the log explains."""
        section = self._section
        if section is None:
            return {}
        try:
            where = ["--url", _broker(listening), "--child", str(section.memory_limit_bytes)]
            port = _free_port("port", section.host, section.port)
            where += ["--host", section.host, "--port", str(port)]
            places = {"console": f"http://{_at(section.host, port)}"}
            if self._tls is not None and section.tls_port is not None:
                port = _free_port("tls-port", section.tls_host, section.tls_port)
                where += ["--tls-host", section.tls_host, "--tls-port", str(port)]
                where += ["--certificate", self._tls.certificate, "--key", self._tls.key]
                places["console-tls"] = f"https://{_at(section.tls_host, port)}"
        except Refused as refusal:
            log.warning("console-off: %s: the broker goes on without it (%s)", refusal.message, refusal.fix)
            return {"console": _OFF}
        self._keeping = asyncio.get_running_loop().create_task(_keep(tuple(where), stop))
        return places

    async def close(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeping


async def _keep(where: tuple[str, ...], stop: asyncio.Event) -> None:
    """Has one there, with these options, until ``stop``."""
    loop = asyncio.get_running_loop()
    stopping: asyncio.Future[Any] = asyncio.ensure_future(stop.wait())
    wait_s = _FIRST_WAIT_S
    try:
        while not stop.is_set():
            began_s = loop.time()
            code = await _run(where, stopping)
            if stop.is_set():
                return
            if loop.time() - began_s >= _STEADY_S:
                wait_s = _FIRST_WAIT_S
            log.warning("console-ended: the console ended with exit code %d; it is begun again in %d s", code, wait_s)
            await asyncio.wait({stopping}, timeout=wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
    finally:
        stopping.cancel()


async def _run(where: tuple[str, ...], stopping: asyncio.Future[Any]) -> int:
    """Once, until it ends or is to; its exit code."""
    # Of subprocess and not of the loop, which would have it inherit descriptors.
    child = await asyncio.to_thread(_begin, where)
    ended: asyncio.Future[Any] = asyncio.ensure_future(_hear(child))
    try:
        await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _end(child, ended)
    return child.returncode or 0


def _begin(where: tuple[str, ...]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "homing", "console", *where, "--json"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOMING_")}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, env=environment)


async def _hear(child: subprocess.Popen[bytes]) -> None:
    """What it says, up to its end: that it is ready, or what is wrong."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=_LONGEST_LINE)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), child.stdout)
    try:
        while True:
            try:
                line = await reader.readline()
            except ValueError:  # longer than any of its own
                continue
            if not line:
                break
            said = line.decode(errors="replace").strip()
            if address := _ready(said):
                log.info("console-ready: the console of process %d is at %s", child.pid, address)
            else:
                log.warning("console-says: %s", visible(said))
    finally:
        transport.close()
        if child.stdin is not None:
            child.stdin.close()
    await asyncio.to_thread(child.wait)


def _ready(line: str) -> str:
    """The address that its ready line has; empty for any other line."""
    try:
        said = json.loads(line)
    except ValueError:
        return ""
    return str(said.get("console", "")) if isinstance(said, dict) else ""


async def _end(child: subprocess.Popen[bytes], ended: asyncio.Future[Any]) -> None:
    """In order where it can; whatever has come between."""
    if not ended.done():
        child.terminate()
    _, late = await asyncio.wait({ended}, timeout=_GOODBYE_S)
    if late:
        child.kill()
    await ended


def _broker(listening: Mapping[str, asyncio.Server]) -> str:
    """Where this broker is, for a client on the same machine. Raises Refused."""
    if importlib.util.find_spec(_EXTRA) is None:
        raise Refused(
            "console-off", f"the console needs {_EXTRA}, which is not installed", "pip install 'homing[console]', or console: null"
        )
    if "native" not in listening:
        raise Refused("console-off", "the console comes by the native protocol, and nobody listens for it", "set native.port")
    at = endpoint(listening["native"])
    return f"homing://{at.replace('0.0.0.0:', '127.0.0.1:').replace('[::]:', '[::1]:')}"


def _free_port(name: str, host: str, wanted: int) -> int:
    """The port that it is to have. Raises Refused where somebody has it, as RabbitMQ may with its own page."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, wanted), family=family) as probe:
            port: int = probe.getsockname()[1]
            return port
    except OSError as error:
        said = f"the console cannot listen on {_at(host, wanted)}: {os.strerror(error.errno or 0)}"
        raise Refused("console-off", said, f"set console.{name} to another, or console: null") from None


def _at(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
