"""Commands that wait: they say what for, and go on when the broker was away."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.process import ROOT, HomingCommand, Server


@contextmanager
def started(server: Server, *words: str) -> Iterator[tuple[subprocess.Popen[str], IO[str], IO[str]]]:
    """The command, its output, and what it says to people."""
    command = [sys.executable, "-m", "homing", *words, "--url", server.url]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        yield process, process.stdout, process.stderr


def test_a_send_that_is_held_back_says_why(tmp_path: Path) -> None:
    server, shell = Server(tmp_path / "broker"), HomingCommand(tmp_path)
    server.start()
    shell.url = server.url
    try:
        assert shell("queue", "create", "narrow", "max-length=2", "overflow=block").returncode == 0
        assert shell("send", "narrow", "--body", "x", "--count", "2").stderr == ""
        with started(server, "send", "narrow", "--body", "x") as (_, results, remarks):
            assert remarks.readline().startswith("not sent yet: queue-full: narrow holds 2 messages")
            shell("queue", "purge", "narrow", "--yes")
            assert results.read() == "sent 1 message to narrow, confirmed\n"
    finally:
        server.close()


def test_who_looks_on_outlives_the_broker(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.start()
    try:
        with started(server, "queues", "--watch", "--json") as (process, results, remarks):
            assert json.loads(results.readline()) == []
            server.kill()
            assert remarks.readline().startswith("the connection is lost (")
            server.start()
            assert remarks.readline() == "the broker is back\n"
            process.send_signal(signal.SIGINT)
            assert process.wait() == 0
    finally:
        server.close()
