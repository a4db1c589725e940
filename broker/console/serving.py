"""The console as a process: where it listens, by which names it is asked, and its ready line."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import shlex
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette

import homing

from .app import make

log = logging.getLogger("homing")

DEFAULT_BROKER: Final = "homing://127.0.0.1:7171"
#: A page is one request after the other, and its style and script beside it.
_MOST_OPEN: Final = 100
_KEEP_ALIVE_S: Final = 5
_GRACE_S: Final = 2
#: How often the certificate's files are looked at.
_LOOK_S: Final = 2.0
_STACK_BYTES: Final = 1 << 20


class ConsoleError(Exception):
    """Why it cannot be: ``code``, ``message`` and ``fix`` as all errors have them."""

    def __init__(self, code: str, message: str, fix: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.fix = fix


@dataclass(frozen=True)
class Secured:
    """Where it listens with TLS, by files in PEM."""

    host: str
    port: int
    certificate: str
    key: str


@dataclass(frozen=True)
class Options:
    """``urls``: the brokers'. ``host``, ``port``: without TLS. ``read_only``: it only shows."""

    urls: Sequence[str]
    host: str
    port: int
    read_only: bool
    secured: Secured | None = None


def run(options: Options, ready: Callable[[list[str]], None]) -> None:
    """Serves until SIGTERM or Ctrl-C; ``ready`` is told the addresses of its first page. Raises ConsoleError, homing.UsageError."""
    _check(options)
    with ExitStack() as stack:
        listener = stack.enter_context(_listening(options.host, options.port))
        port = listener.getsockname()[1]
        here = _endpoint(options.host, port)
        hosts = frozenset(("127.0.0.1", "localhost", "[::1]", here.rpartition(":")[0].lower()))
        urls = {each: "" if each == DEFAULT_BROKER else f"--url {shlex.quote(each)}" for each in options.urls}
        exposed = options.secured is not None and not _is_loopback(options.secured.host)
        app = make(urls, hosts, f"homing_console_{port}", options.read_only, exposed)
        served, endpoints = [(_Server(_config(app)), listener)], [f"http://{here}"]
        context = None
        if (secured := options.secured) is not None:
            # What begins with the app begins once.
            config = _config(app, lifespan="off", ssl_certfile=secured.certificate, ssl_keyfile=secured.key)
            context = _context(config, secured)
            listener = stack.enter_context(_listening(secured.host, secured.port))
            served.append((_Server(config), listener))
            endpoints.append(f"https://{_endpoint(secured.host, listener.getsockname()[1])}")
        ready(endpoints)
        asyncio.run(_serve(served, context, secured))


def _config(app: Starlette, **more: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="h11",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        # Whatever a request says of who sent it, it came from where it came.
        proxy_headers=False,
        limit_concurrency=_MOST_OPEN,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_GRACE_S,
        **more,
    )


def _context(config: uvicorn.Config, secured: Secured) -> ssl.SSLContext:
    """Raises ConsoleError."""
    try:
        config.load()
    except OSError as error:
        message = f"{secured.certificate} and {secured.key} are no certificate and its key: {error}"
        raise ConsoleError("invalid-certificate", message, "name files in PEM that go together") from None
    assert config.ssl is not None
    return config.ssl


async def _serve(served: Sequence[tuple[_Server, socket.socket]], context: ssl.SSLContext | None, secured: Secured | None) -> None:
    def end() -> None:
        for server, _ in served:
            server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    watching = None if context is None or secured is None else loop.create_task(_take_up(context, secured))
    await asyncio.gather(*(server.serve([listener]) for server, listener in served))
    if watching is not None:
        watching.cancel()


async def _take_up(context: ssl.SSLContext, secured: Secured) -> None:
    """New files, for connections from then on; those that cannot be used change nothing."""
    seen = _stamps(secured)
    while True:
        await asyncio.sleep(_LOOK_S)
        if (now := _stamps(secured)) == seen:
            continue
        seen = now
        try:
            context.load_cert_chain(secured.certificate, secured.key)
        except OSError as error:
            log.error("certificate-unusable: %s: the one before stays", error)


def _stamps(secured: Secured) -> list[tuple[int, int]]:
    try:
        return [(found.st_mtime_ns, found.st_ino) for found in map(os.stat, (secured.certificate, secured.key))]
    except OSError:
        return []


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Those of the process are its owner's."""
        yield


def end_with_parent(memory_limit_bytes: int) -> None:
    """For the broker's own child: it has no more than so much, and ends when the other end of its standard input goes."""
    resource.setrlimit(resource.RLIMIT_DATA, (memory_limit_bytes, memory_limit_bytes))
    # What threads may pile up counts, and theirs here is little.
    threading.stack_size(_STACK_BYTES)
    threading.Thread(target=_wait_for_parent, name="parent", daemon=True).start()


def _wait_for_parent() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _check(options: Options) -> None:
    if not _is_loopback(options.host):
        message = f"without TLS the console listens on this machine only, and {options.host} is beyond it"
        raise ConsoleError("console-beyond-loopback", message, "give --tls-host and a certificate, or use ssh -L")
    for url in options.urls:
        if "@" in url:
            raise ConsoleError("invalid-url", "the console needs no user", "leave it out of --url: whoever uses the page logs in there")
        homing.connect(url)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_MOST_OPEN)
    except OSError as error:
        code = "port-in-use" if error.errno == errno.EADDRINUSE else "cannot-listen"
        said = f"the console cannot listen on {_endpoint(host, port)}: {os.strerror(error.errno or 0)}"
        raise ConsoleError(code, said, "give another --port; RabbitMQ's own page has 15672, too") from None


def _endpoint(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
