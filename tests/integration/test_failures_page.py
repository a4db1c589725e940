"""docs/failures.md, typed along in one shell: its files are written, its commands run, and what they print has the words shown there."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.process import ROOT

PAGE: Final = (ROOT / "docs" / "failures.md").read_text()
BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: What only looks may be looked at again until there is to be seen what the page shows.
LOOKS: Final = re.compile(r"homing (peek|dead list|faults$|faults show|history)", re.MULTILINE)
PATIENCE_S: Final = 60.0
_END: Final = "--- that was all ---"


class Shell:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, commands: str) -> str:
        """What they print; those that fail end the test."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"set -e\n{commands}\nset +e\necho '{_END}'\n")
        self._process.stdin.flush()
        printed: list[str] = []
        for line in self._process.stdout:
            if line.strip() == _END:
                return "".join(printed)
            printed.append(line)
        raise AssertionError(f"{commands}\nended the shell:\n{''.join(printed)}")


@contextmanager
def shell(directory: Path, url: str) -> Iterator[Shell]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HOMING_URL": url, "COLUMNS": "160"}
    process = subprocess.Popen(
        ["bash"],
        cwd=directory,
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        yield Shell(process)
    finally:
        assert process.stdin is not None
        if process.poll() is None:
            process.stdin.write("kill $(jobs -p); wait\n")
        process.communicate(timeout=60)


def words(text: str) -> set[str]:
    """Those that do not depend on the hour, nor on how wide a terminal is."""
    return {word for word in re.findall(r"[A-Za-z][\w.-]{2,}", text) if not re.search(r"\d", word)}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_story_goes_as_it_is_told(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"homing://127.0.0.1:{port}"
    parts = list(BLOCK.finditer(PAGE))
    shown = 0
    with shell(tmp_path, url) as at:
        for number, part in enumerate(parts):
            kind, text = part.groups()
            if kind in ("yaml", "python"):
                name = re.findall(r"`([\w.]+)`", PAGE[: part.start()])[-1]
                text = text.replace("homing://127.0.0.1:7171", url)
                (tmp_path / name).write_text(text + (f"native: {{port: {port}}}\n" if name == "broker.yaml" else ""))
            elif kind == "bash":
                after = parts[number + 1] if number + 1 < len(parts) else None
                wanted = words(after[2]) if after is not None and after[1] == "text" else set()
                shown += bool(wanted)
                printed, end = at.run(text), time.monotonic() + PATIENCE_S
                while (missing := wanted - words(printed)) and LOOKS.search(text) and time.monotonic() < end:
                    time.sleep(0.2)
                    printed = at.run(text)
                assert not missing, f"{text}\nshows no {missing}:\n{printed}"
    assert shown >= 8, "the page shows what commands print"
