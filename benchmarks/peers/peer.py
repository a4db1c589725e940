"""A broker under measurement: a process with a port and a folder of its own, and the load clients that suit it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from benchmarks.load import Load, LoadError
from benchmarks.measure import Usage, processes, usage

START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 30.0
SYNC_CALLS: Final = "fsync,fdatasync,sync_file_range,msync"


class Peer(ABC):
    """Start, stop and kill end only what ``start`` began. ``name`` is a variant (``rabbitmq-quorum``) of a ``family`` (``rabbitmq``)."""

    family: ClassVar[str]
    name: ClassVar[str]
    #: The scenarios it can take part in.
    scenarios: ClassVar[frozenset[str]]
    #: Whether ``set_up`` writes configuration, or talks to the running broker.
    set_up_before_start: ClassVar[bool] = False

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.data.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.started_ns = 0
        self._process: subprocess.Popen[bytes] | None = None

    # -- what each broker says of itself

    @classmethod
    @abstractmethod
    def missing(cls) -> str | None:
        """Why it cannot take part on this machine, None when it can."""

    @abstractmethod
    def command(self) -> list[str]:
        """The broker as a foreground process; may write configuration first."""

    @abstractmethod
    def client(self) -> list[str]:
        """The load client without its role."""

    def environment(self) -> dict[str, str]:
        return {}

    @abstractmethod
    def set_up(self, queue: str, **options: object) -> None:
        """Declare what a scenario needs: ``queues`` (queue.0 …), ``exchange`` (a fan-out to them), ``delivery_limit``, ``durable``."""

    def translate(self, role: str, options: dict[str, object]) -> dict[str, object]:
        """The options of a role as this broker's client knows them."""
        return options

    # -- the process

    def start(self, counting_syncs: Path | None = None) -> float:
        """Start it and wait until it accepts connections; returns the seconds that took."""
        command = self.command()
        if counting_syncs is not None:
            command = ["strace", "-f", "--seccomp-bpf", "-c", "-o", str(counting_syncs), "-e", f"trace={SYNC_CALLS}", *command]
        self._spawn(command)
        self._wait_until_listening()
        return (time.monotonic_ns() - self.started_ns) / 1e9

    def launch(self) -> None:
        """Start it without waiting: the client of the restart test does that."""
        self._spawn(self.command())

    def _spawn(self, command: list[str]) -> None:
        self.started_ns = time.monotonic_ns()
        with (self.directory / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.directory,
                env={**os.environ, **self.environment()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _wait_until_listening(self) -> None:
        assert self._process is not None
        end = time.monotonic() + START_TIMEOUT_S
        while not self.accepts():
            if self._process.poll() is not None or time.monotonic() > end:
                tail = (self.directory / "broker.log").read_text(errors="replace")[-3000:]
                self.kill()
                raise LoadError(f"{self.name} did not start:\n{tail}")
            time.sleep(0.02)

    def accepts(self, port: int = 0) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", port or self.port), timeout=1):
                return True
        except OSError:
            return False

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} is not running"
        return self._process.pid

    def usage(self) -> Usage:
        return usage(self.pid)

    def stop(self) -> None:
        """The orderly way; a broker that does not heed it is killed."""
        if self._process is None:
            return
        for pid in list(processes(self.pid))[:2]:  # the second is the broker itself where strace runs it
            _signal(pid, signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """SIGKILL to the process and its descendants."""
        if self._process is None:
            return
        for pid in reversed(list(processes(self.pid))):
            _signal(pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def close(self) -> None:
        """Ends whatever of it still runs and forgets its data."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    # -- its clients

    def load(self, role: str, deadline_s: float, **options: object) -> Load:
        return Load(self.client(), role, deadline_s, port=self.port, **self.translate(role, options))

    def ask(self, role: str, **options: object) -> dict[str, Any]:
        """A client that only answers: no ready, no go."""
        return self.load(role, 30, **options).result()

    def depth(self, queue: str) -> int:
        """Messages in a queue."""
        return int(self.ask("depth", queue=queue)["count"])

    def rows_written(self) -> int | None:
        """Rows the broker has written to its store so far, where it tells."""
        return None


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def missing_programs(programs: Sequence[str]) -> str | None:
    absent = [program for program in programs if shutil.which(program) is None]
    return f"{', '.join(absent)} not installed; benchmarks/install_peers does that" if absent else None
