"""A real RabbitMQ beside ours, where one is asked for: apart from any packaged service, on ports of its own, loopback only.

``scripts/check-system rabbitmq`` asks for it. The suite holds ours against what RabbitMQ said when it was asked last.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.peers.peer import free_port
from benchmarks.peers.rabbitmq import SERVER, epmd_command, node_environment
from tests.pauses import TRIES

START_TIMEOUT_S = 60.0
#: In the environment: the tests that compare start one.
ASKED = "HOMING_RABBITMQ"


def installed() -> bool:
    return SERVER.exists() and shutil.which("epmd") is not None


def asked_for() -> bool:
    return bool(os.environ.get(ASKED))


def _guest() -> dict[str, Any]:
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    return {
        "users": [{"name": "guest", "password": "guest", "tags": "administrator"}],
        "vhosts": [{"name": "/"}],
        "permissions": [{"user": "guest", "vhost": "/", **everything}],
    }


class RabbitMQ:
    def __init__(self, directory: Path, definitions: dict[str, Any] | None = None, stomp: bool = False) -> None:
        """``definitions``: what it begins with beside the user guest and the virtual host ``/``, in RabbitMQ's own form. ``stomp``: its
        plugin for that is on."""
        self.directory = directory
        self.stomp_port = free_port() if stomp else 0
        self._definitions = definitions
        self.port = free_port()
        self._epmd_port = free_port()
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> RabbitMQ:
        """A node whose machine pauses while it boots may give up; then the next one is started."""
        for _ in range(TRIES - 1):
            try:
                return self._start()
            except AssertionError:
                self.close()
                self._processes.clear()
                self.port, self._epmd_port = free_port(), free_port()
        return self._start()

    def _start(self) -> RabbitMQ:
        base = self.directory
        configuration = f"listeners.tcp.1 = 127.0.0.1:{self.port}\ndisk_free_limit.absolute = 50MB\n"
        if self.stomp_port:
            configuration += f"stomp.listeners.tcp.1 = 127.0.0.1:{self.stomp_port}\n"
        if self._definitions is not None:
            configuration += f"load_definitions = {base / 'definitions.json'}\n"
            (base / "definitions.json").write_text(json.dumps({**_guest(), **self._definitions}))
        (base / "rabbitmq.conf").write_text(configuration)
        (base / "plugins").write_text("[rabbitmq_stomp].\n" if self.stomp_port else "[].\n")
        environment = {**os.environ, **node_environment(base, "compare", self.port, self._epmd_port, free_port())}
        self._run(epmd_command(self._epmd_port), environment)
        self._run([str(SERVER)], environment)
        end = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                for port in (self.port, self.stomp_port or self.port):
                    socket.create_connection(("127.0.0.1", port), 1).close()
            except OSError:
                assert time.monotonic() < end, f"RabbitMQ did not start: {self._log()}"
                assert self._processes[-1].poll() is None, f"RabbitMQ has ended: {self._log()}"
                time.sleep(0.1)
            else:
                return self

    def _run(self, command: list[str], environment: dict[str, str]) -> None:
        with (self.directory / "output").open("ab") as output:
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        self._processes.append(process)

    def _log(self) -> str:
        return (self.directory / "output").read_text()[-2000:]

    def close(self) -> None:
        """The server and all it started, then its epmd."""
        for process in reversed(self._processes):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM if process is not self._processes[0] else signal.SIGKILL)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
