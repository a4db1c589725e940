"""Programs as they are, started by ``homing instrument``: each failure is seen with its error, traceback, release and host."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.instrumented.story import PROGRAMS, Worker, play
from tests.process import Server


@pytest.mark.parametrize("library", ["pika", "aio_pika", "kombu"])
def test_the_story_of_twenty_tasks(library: str, broker: Server, tmp_path: Path) -> None:
    queue = f"story-{library}"
    command = [sys.executable, "-W", "ignore", str(PROGRAMS / f"with_{library}.py")]
    play(Worker(tmp_path, broker, queue, command), broker, queue, by_command=library == "pika")
