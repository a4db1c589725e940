"""The processes of a kill loop: the broker that is killed again and again on the same data and port, and the clients that outlive it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML

from tests import fork_server
from tests.faults.kill_loop.clients import Crew
from tests.process import ROOT

_START_S: Final = 30.0
_STOP_S: Final = 30.0


class Broker:
    """``MODULE serve`` on one directory and port, forked. ``module`` is the broker itself, or one with a planted fault."""

    def __init__(self, directory: Path, config: dict[str, Any], port: int, module: str = "homing") -> None:
        self.directory = directory
        self.data = directory / "data"
        self.port = port
        self.url = f"homing://127.0.0.1:{port}"
        self._module = module
        self._process: fork_server.Forked | None = None
        self.config = directory / "broker.yaml"
        self._log = directory / "broker.log"
        directory.mkdir(parents=True, exist_ok=True)
        with self.config.open("w") as out:
            YAML(typ="safe").dump({"data-directory": "data", "native": {"port": port}, **config}, out)

    def spawn(self) -> None:
        words = ["serve", "--config", str(self.config), "--json"]
        with self._log.open("a") as log:
            self._process = fork_server.start(words, ROOT, stdin=subprocess.DEVNULL, stdout=None, stderr=log, module=self._module)

    def wait_until_ready(self) -> None:
        process = self._running()
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], _START_S)
        line = process.stdout.readline() if readable else ""
        if not line:
            raise AssertionError(f"the broker did not start (exit code {process.poll()}):\n{self.log_tail()}")
        json.loads(line)

    @property
    def pid(self) -> int:
        return self._running().pid

    def check_alive(self) -> None:
        """Raises AssertionError when it had ended by itself: nothing asked it to."""
        process = self._running()
        if process.poll() is not None:
            raise AssertionError(f"the broker ended by itself (exit code {process.returncode}):\n{self.log_tail()}")

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone. Raises AssertionError when it had ended by itself."""
        self.check_alive()
        os.kill(self.pid, signal.SIGKILL)
        self._reap()

    def stop(self) -> int:
        os.kill(self._running().pid, signal.SIGTERM)
        return self._reap()

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._reap()

    def log_tail(self) -> str:
        return self._log.read_text()[-4000:]

    def lines(self) -> list[str]:
        """Of its log."""
        return self._log.read_text().splitlines()

    def complaints(self) -> list[str]:
        """What a broker that nothing happened to must not write: errors, and tracebacks."""
        return [line for line in self.lines() if " ERROR " in line or " CRITICAL " in line or "Traceback" in line]

    def _running(self) -> fork_server.Forked:
        assert self._process is not None, "the broker is not running"
        return self._process

    def _reap(self) -> int:
        process = self._running()
        code = process.wait(_STOP_S)
        assert process.stdout is not None
        process.stdout.close()
        self._process = None
        return code


class Clients:
    """One process of clients; see clients.py."""

    def __init__(self, crew: Crew) -> None:
        self._errors = Path(f"{crew.log}.stderr")
        command = [sys.executable, "-W", "error", "-m", "tests.faults.kill_loop.clients", crew.to_json()]
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, bufsize=1
            )

    def tell(self, word: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{word}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise AssertionError(f"clients have ended by themselves:\n{self.errors()}") from None

    def wait_for(self, answer: str, timeout_s: float) -> bool:
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], timeout_s)
        return bool(readable) and self._process.stdout.readline() == f"{answer}\n"

    def join(self) -> int:
        code = self._process.wait(_STOP_S)
        self._close_pipes()
        return code

    def errors(self) -> str:
        return self._errors.read_text()[-4000:]

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._close_pipes()

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
