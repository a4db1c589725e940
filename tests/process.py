"""A real Homing server as a process, for tests: started on a free port with its own data, stopped by its own pid."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import IO, Any

from ruamel.yaml import YAML

from tests import fork_server

ROOT = Path(__file__).parent.parent
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0
#: Below what the kernel gives to those who ask for any port, so that nobody takes it while the broker is down.
_PORTS = range(20_000, 32_000)


def free_port() -> int:
    while True:
        port = Random().choice(_PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


class Server:
    """``homing serve`` under ``directory``. ``config`` is laid over the defaults below, top key by top key.

    ``start()`` returns when the ready line came; ``stop()`` sends SIGTERM and returns the exit code; ``kill()`` is SIGKILL.
    Starting again after either uses the same data and the same port.
    """

    def __init__(self, directory: Path, config: Mapping[str, Any] | None = None) -> None:
        self.directory = directory
        self.config: dict[str, Any] = {
            "data-directory": "data",
            "native": {"port": free_port()},
            "address-settings": {"#": {"redelivery-delay": 0}},
            **(config or {}),
        }
        # A suite starts some hundred brokers, and the usual reserve of each would fill a small disk.
        journal = self.config.get("journal", {})
        if journal is not None:  # an empty section stays one
            self.config["journal"] = {"disk-reserve": "1MiB", **journal}
        #: By how much its clock is ahead of this machine's from the next start on, where that forks (tests.fork_server).
        self.ahead_s = 0.0
        #: What is run, and what runs it; anything but the broker by itself is started from nothing.
        self.module, self.runner = "homing", list[str]()
        #: From nothing in any case: what is measured does not look at each of its transitions (tests.transitions).
        self.measured = False
        self.process: subprocess.Popen[str] | fork_server.Forked | None = None
        self.ready: dict[str, Any] = {}
        self._port = 0

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def config_path(self) -> Path:
        return self.directory / "broker.yaml"

    @property
    def log_path(self) -> Path:
        return self.directory / "server.log"

    def logged(self, *parts: str) -> str:
        """The log, once each of these is in it: a thread writes it, behind what it tells of."""
        wait_until(f"the log tells {parts}", lambda: all(part in self.log_path.read_text() for part in parts))
        return self.log_path.read_text()

    @property
    def url(self) -> str:
        return f"homing://{self.ready['native']}"

    @property
    def pid(self) -> int:
        assert self.process is not None, "the server is not running"
        return self.process.pid

    def write_config(self) -> Path:
        self.directory.mkdir(parents=True, exist_ok=True)
        with self.config_path.open("w") as out:
            YAML(typ="safe").dump(self.config, out)
        return self.config_path

    def start(self) -> Server:
        """Starts and waits for the ready line."""
        if self._port:
            self.config["native"] = {**self.config["native"], "port": self._port}
        self.write_config()
        with self.log_path.open("a") as log:
            self.process = self._run(["serve", "--config", str(self.config_path), "--json"], log)
        line = self._first_line()
        if not line:
            code = self.wait()
            raise AssertionError(f"the server did not become ready (exit code {code}):\n{self.log_path.read_text()[-4000:]}")
        self.ready = json.loads(line)
        self._port = int(self.ready["native"].rpartition(":")[2])
        return self

    def _run(self, arguments: list[str], log: IO[str]) -> subprocess.Popen[str] | fork_server.Forked:
        if self.module == "homing" and not self.runner and not self.measured:
            return fork_server.start(arguments, ROOT, stdin=subprocess.DEVNULL, stdout=None, stderr=log, ahead_s=self.ahead_s)
        command = [*self.runner, sys.executable, "-m", self.module, *arguments]
        return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)

    def _first_line(self) -> str:
        assert self.process is not None
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], START_TIMEOUT_S)
        if not readable:
            self.process.kill()
            return ""
        return self.process.stdout.readline()

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        assert self.process is not None, "the server is not running"
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the server did not stop within {timeout_s} s:\n{self.log_path.read_text()[-4000:]}") from None
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process = None
        return code

    def stop(self) -> int:
        """SIGTERM, the orderly way; returns the exit code."""
        os.kill(self.pid, signal.SIGTERM)
        return self.wait()

    def kill(self) -> int:
        """SIGKILL: what a power cut looks like to everybody else."""
        os.kill(self.pid, signal.SIGKILL)
        return self.wait()

    def restart(self) -> Server:
        self.stop()
        return self.start()

    def close(self) -> None:
        """Ends the process if a test left it running; under scripts/coverage in a way that lets it say which lines it ran."""
        if self.process is not None and "COVERAGE_PROCESS_CONFIG" in os.environ:
            with contextlib.suppress(AssertionError):
                self.stop()
        if self.process is not None:
            self.kill()


class HomingCommand:
    """Runs ``homing …`` as a process of its own. ``url`` is where commands look for a broker unless they say otherwise."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.url: str | None = None
        self._scratch = directory.with_name(f"{directory.name}.files")
        self._scratch.mkdir()

    def __call__(
        self, *arguments: str | Path, url: str | None = None, stdin: str | None = None, timeout_s: float = 40.0
    ) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "COLUMNS": "120"}
        environment.pop("HOMING_URL", None)
        if url or self.url:
            environment["HOMING_URL"] = url or self.url or ""
        return fork_server.run([*map(str, arguments)], self.directory, environment, stdin, timeout_s, self._scratch)

    def json(self, *arguments: str | Path, url: str | None = None) -> Any:
        """The one JSON document that a command prints with ``--json``; fails the test when the command fails."""
        done = self(*arguments, "--json", url=url)
        assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr}"
        return json.loads(done.stdout)

    def json_lines(self, *arguments: str | Path, url: str | None = None) -> list[Any]:
        done = self(*arguments, "--json", url=url)
        assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr}"
        return [json.loads(line) for line in done.stdout.splitlines()]


def wait_until(what: str, holds: Any, timeout_s: float = 20.0) -> None:
    """Polls ``holds()`` until it is true; for effects that a test sees from outside and is not notified of."""
    end = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < end, f"waited {timeout_s} s in vain until {what}"
        time.sleep(0.02)


def in_the_tables(server: Server) -> None:
    """Waits until nothing stands packed in the journal of a broker that has nothing to do: who reads its file may be a moment behind."""
    with contextlib.closing(sqlite3.connect(f"{(server.data / 'homing.db').as_uri()}?mode=ro", uri=True)) as journal:
        wait_until("the tables have everything", lambda: not journal.execute("SELECT 1 FROM packed_commit").fetchall())
