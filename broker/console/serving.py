"""The console as a process: where it listens, by which names it is asked, and its ready line."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import shlex
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

import uvicorn

import homing

from .app import make

DEFAULT_BROKER: Final = "homing://127.0.0.1:7171"
#: A page is one request after the other, and its style and script beside it.
_MOST_OPEN: Final = 100
_KEEP_ALIVE_S: Final = 5
_GRACE_S: Final = 2
_STACK_BYTES: Final = 1 << 20


class ConsoleError(Exception):
    """Why it cannot be: ``code``, ``message`` and ``fix`` as all errors have them."""

    def __init__(self, code: str, message: str, fix: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.fix = fix


@dataclass(frozen=True)
class Options:
    """``url``: the broker's. ``read_only``: it only shows."""

    url: str
    host: str
    port: int
    read_only: bool


def run(options: Options, ready: Callable[[str], None]) -> None:
    """Serves until SIGTERM or Ctrl-C; ``ready`` is told the address of its first page. Raises ConsoleError, homing.UsageError."""
    _check(options)
    with _listening(options.host, options.port) as listener:
        port = listener.getsockname()[1]
        here = _place(options.host, port)
        hosts = frozenset(("127.0.0.1", "localhost", "[::1]", here.rpartition(":")[0].lower()))
        command_options = "" if options.url == DEFAULT_BROKER else f"--url {shlex.quote(options.url)}"
        app = make(options.url, command_options, hosts, f"homing_console_{port}", options.read_only)
        config = uvicorn.Config(
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
        )
        ready(f"http://{here}")
        asyncio.run(_Server(config).serve([listener]))


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """They end it, and nothing more: uvicorn's own would come again when it has ended."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end)
        yield

    def _end(self) -> None:
        self.should_exit = True


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
        message = f"the console listens on this machine only, and {options.host} is beyond it"
        raise ConsoleError("console-beyond-loopback", message, "give --host 127.0.0.1; ssh -L leads there from elsewhere")
    if "@" in options.url:
        raise ConsoleError("invalid-url", "the console needs no user", "leave it out of --url: whoever uses the page logs in there")
    homing.connect(options.url)


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
        said = f"the console cannot listen on {_place(host, port)}: {os.strerror(error.errno or 0)}"
        raise ConsoleError(code, said, "give another --port; RabbitMQ's own page has 15672, too") from None


def _place(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
