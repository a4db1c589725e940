"""The libraries whose programs tell of failures, and how a program of each is started: in the suite, and in environments of its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from tests.instrumented.story import PROGRAMS, TASKS, Worker, publish_json
from tests.process import Server

SETTINGS: Final[dict[str, Any]] = {"#": {"redelivery-delay": 0, "keep-settled-failures": True}}


class Library(NamedTuple):
    """``oldest``: what is installed beside the newest, and the Python that it runs on. ``command``: behind the environment's ``python``."""

    newest: list[str]
    oldest: list[str]
    oldest_python: str
    command: list[str]
    #: The name of the actor or task, where the library sends them itself.
    task: str = ""
    #: By which faults name it.
    shown: str = ""
    #: What a worker holds is lost with it.
    acknowledges_early: bool = False
    #: Where it sends another message for the next try (story.play_tries).
    ends: dict[str, str] | None = None
    #: How the last try ends.
    last: str = "acknowledged"


#: Commands where all are in one environment with ours: FastStream's wants another typer.
IN_SUITE: Final = {"faststream": ["with_faststream.py"]}
LIBRARIES: Final = {
    "pika": Library(["pika"], ["pika==1.0.0"], "3.9", ["with_pika.py"]),
    "aio_pika": Library(["aio-pika"], ["aio-pika==9.0.0"], "3.9", ["with_aio_pika.py"]),
    "kombu": Library(["kombu"], ["kombu==5.0.2"], "3.9", ["with_kombu.py"]),
    "celery": Library(
        ["celery"],
        ["celery==5.0.5"],
        "3.9",
        ["-m", "celery", "-A", "with_celery", "worker", "-c", "1", "--without-gossip", "--without-mingle", "--without-heartbeat"],
        "book_order",
        "shop.book",
        True,
        {"retried": "max_retries", "expected": "throws", "unfit": "autoretry_for", "rejected": "Reject"},
    ),
    "dramatiq": Library(
        ["dramatiq[rabbitmq]"],
        ["dramatiq[rabbitmq]==1.14"],
        "3.9",
        ["-m", "dramatiq", "with_dramatiq", "-p", "1", "-t", "1"],
        "book_order",
        "book_order",
        ends={"retried": "max_retries", "expected": "throws"},
        last="rejected",
    ),
    "faststream": Library(
        ["faststream[rabbit,cli]"],
        ["faststream[rabbit,cli]==0.6", "pydantic<2"],
        "3.10",
        ["-m", "faststream", "run", "with_faststream:app"],
        "",
        "book_order",
    ),
    "taskiq": Library(
        ["taskiq", "taskiq-aio-pika"],
        ["taskiq==0.11.0", "taskiq-aio-pika==0.4.1"],
        "3.10",
        ["-m", "taskiq", "worker", "with_taskiq:broker", "-w", "1", "--max-async-tasks", "1"],
        "book_order",
        "shop.book",
        ends={},
    ),
}


def send(python: str, name: str, worker: Worker, task: str, arguments: Sequence[Sequence[Any]] = ((),)) -> None:
    """Calls of a task or actor, as the library's own programs send them."""
    command = [python, "-W", "ignore", "sending.py", name, task, json.dumps(arguments)]
    subprocess.run(command, cwd=PROGRAMS, env=worker.environment, check=True, timeout=60)


def publisher(python: str, name: str, worker: Worker) -> Callable[[Server, str], None]:
    """Sends the tasks of the story."""
    if task := LIBRARIES[name].task:
        return lambda server, queue: send(python, name, worker, task, TASKS)
    return publish_json
