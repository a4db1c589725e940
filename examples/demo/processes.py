"""The processes of the demo: a broker that can be killed and started again, and workers. All are ended by their own pids."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent.parent
#: Columns where there is no terminal to ask.
PLAIN_WIDTH: Final = 110
READY_TIMEOUT_S: Final = 30
STOP_TIMEOUT_S: Final = 15

#: Delays 1, 2, 4, 4, 4, 4 s, a little jitter: a message that always fails is dead after 7 attempts, in about 19 s.
SETTINGS: Final[dict[str, Any]] = {
    "redelivery-delay": "1s",
    "redelivery-delay-multiplier": 2,
    "max-redelivery-delay": "4s",
    "redelivery-collision-avoidance-factor": 0.1,
    "max-delivery-attempts": 7,
}


class DemoError(Exception):
    """The demo cannot go on; the text says why."""


class Process:
    """A Python process of the demo whose standard error goes to ``log``."""

    def __init__(self, log: Path, *arguments: str) -> None:
        with log.open("a") as errors:
            self._process = subprocess.Popen(
                [sys.executable, *arguments], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def first_line(self) -> str:
        stdout = self._process.stdout
        assert stdout is not None
        readable, _, _ = select.select([stdout], [], [], READY_TIMEOUT_S)
        line = stdout.readline() if readable else ""
        if not line:
            self.end(signal.SIGKILL)
            raise DemoError(f"a process did not become ready; its log {self._log} ends: {self._log.read_text()[-600:]}")
        return line

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Ends it if it still runs; returns its exit code."""
        if self.running:
            os.kill(self.pid, how)
        try:
            code = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        return code


class DemoBroker:
    """``homing serve`` with a configuration of its own under ``directory``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.data = directory / "data"
        self._config = directory / "broker.yaml"
        self._port = 0
        self._process: Process | None = None

    @property
    def url(self) -> str:
        return f"homing://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Starts it, on a free port the first time and on the same one later, so that clients find it again."""
        config = {"native": {"port": self._port}, "data-directory": "data", "address-settings": {"#": SETTINGS}}
        self._config.write_text(json.dumps(config, indent=2))  # JSON is YAML
        self._process = Process(self.directory / "broker.log", "-m", "homing", "serve", "--config", str(self._config), "--json")
        ready = json.loads(self._process.first_line())
        self._port = int(ready["native"].rpartition(":")[2])

    def kill(self) -> None:
        assert self._process is not None
        self._process.end(signal.SIGKILL)

    def stop(self) -> int:
        assert self._process is not None
        return self._process.end()

    def close(self) -> None:
        """Ends it if a failed run left it."""
        if self._process is not None and self._process.running:
            self._process.end(signal.SIGKILL)


def homing(*arguments: str, url: str = "", quiet: bool = False) -> str:
    """Runs ``homing …`` as a person would; prints as it goes, or with ``quiet`` returns what it printed."""
    environment = {**os.environ, **({"HOMING_URL": url} if url else {})}
    if not sys.stdout.isatty():
        environment["COLUMNS"] = str(PLAIN_WIDTH)
    done = subprocess.run(
        [sys.executable, "-m", "homing", *arguments],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=quiet,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise DemoError(f"homing {' '.join(arguments)} ended with exit code {done.returncode}\n{done.stderr or ''}")
    return done.stdout or ""
