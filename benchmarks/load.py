"""Load clients as processes: ``ROLE key=value …``; each says it is ready, waits for the go, and answers with one JSON object."""

from __future__ import annotations

import json
import select
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
READY_TIMEOUT_S: Final = 60.0
#: How much longer than its own deadline a client may take to answer.
GRACE_S: Final = 20.0


class LoadError(Exception):
    """A load client said what went wrong, or said nothing in time."""


class Load:
    """One running client. ``result`` may be asked once, after ``go``."""

    def __init__(self, command: Sequence[str], role: str, deadline_s: float, **options: object) -> None:
        self.role = role
        self._deadline_s = deadline_s
        words = [f"{name}={value}" for name, value in {**options, "deadline": int(deadline_s)}.items()]
        self.command = [*command, role, *words]
        self._process = subprocess.Popen(self.command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.pid = self._process.pid

    def ready(self) -> Load:
        answer = self._read(READY_TIMEOUT_S)
        if answer.get("ready") is not True:
            raise LoadError(f"{self._name()} did not become ready: {answer}")
        return self

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def result(self) -> dict[str, Any]:
        """Its answer; raises LoadError for an error it reports. The process has ended afterwards."""
        try:
            return self._read(self._deadline_s + GRACE_S)
        finally:
            self.close()

    def close(self) -> None:
        """Ends the process if it still runs."""
        if self._process.poll() is None:
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def _read(self, timeout_s: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], timeout_s)
        line = self._process.stdout.readline() if readable else ""
        if not line:
            self._process.kill()
            raise LoadError(f"{self._name()} said nothing within {timeout_s:.0f} s" if not readable else f"{self._name()} ended silently")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise LoadError(f"{self._name()}: {answer['error']}")
        return answer

    def _name(self) -> str:
        return f"{Path(self.command[0]).name} {' '.join(self.command[1:])}"
