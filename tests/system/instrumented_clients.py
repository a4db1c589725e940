"""Programs of each library in an environment of its own, started by ``homing instrument``: the newest version of it, and the oldest that
``homing.integrations`` names.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.amqp_support import AMQP, amqp_url
from tests.instrumented.story import PROGRAMS, TASKS, Worker, play, publish_json
from tests.process import Server
from tests.system.check import CHECKS, Check, Failed, Place, Unavailable, run

QUEUE: Final = "story"
SETTINGS: Final[dict[str, Any]] = {"#": {"redelivery-delay": 0}, QUEUE: {"keep-settled-failures": True}}


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
    #: Its messages are not sent back to where they died, or are lost with a worker.
    acknowledges_early: bool = False


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
    ),
    "dramatiq": Library(
        ["dramatiq[rabbitmq]"],
        ["dramatiq[rabbitmq]==1.14"],
        "3.9",
        ["-m", "dramatiq", "with_dramatiq", "-p", "1", "-t", "1"],
        "book_order",
        "book_order",
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
    ),
}


def environment(directory: Path, python: str, packages: list[str]) -> str:
    """The ``python`` of a fresh environment. Raises Unavailable."""
    interpreter = _interpreter(python)
    run([interpreter, "-m", "venv", str(directory)], directory.parent, "venv")
    ours = directory / "bin" / "python"
    done = subprocess.run(
        [str(ours), "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Unavailable(f"{' '.join(packages)} cannot be installed: {done.stderr.strip().splitlines()[-1]}; enable: a network")
    return str(ours)


def _interpreter(name: str) -> str:
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for found in (shutil.which(name), *sorted(pyenv.glob(f"{name.removeprefix('python')}.*/bin/python"))):
        if found and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
            return str(found)
    raise Unavailable(f"no {name}; enable: install it, on the PATH or by pyenv")


def _sent_by(python: str, library: str, task: str, worker: Worker) -> Callable[[Server, str], None]:
    def publish(server: Server, queue: str) -> None:
        command = [python, "sending.py", library, task, json.dumps(TASKS)]
        subprocess.run(command, cwd=PROGRAMS, env=worker.environment, check=True, timeout=60)

    return publish


def _story(name: str, library: Library, python: str, packages: list[str]) -> Callable[[Place], str]:
    def story(place: Place) -> str:
        ours = environment(place.directory / "environment", python, packages)
        server = Server(place.directory / "broker", {**AMQP, "address-settings": SETTINGS}).start()
        try:
            worker = Worker(place.directory / "worker", amqp_url(server), QUEUE, [ours, "-W", "ignore", *library.command])
            publish = _sent_by(ours, name, library.task, worker) if library.task else publish_json
            play(worker, server, QUEUE, publish, task=library.shown, by_command=True, acknowledges_early=library.acknowledges_early)
        except AssertionError as error:
            raise Failed(str(error)) from error
        finally:
            server.close()
        return f"{' '.join(packages)} on {python}: two faults with tracebacks, and what failed was sent back"

    return story


for _name, _library in LIBRARIES.items():
    _newest = f"python{sys.version_info.major}.{sys.version_info.minor}"
    CHECKS.append(Check(f"clients-{_name}-newest".replace("_", "-"), _story(_name, _library, _newest, _library.newest)))
    _oldest = f"python{_library.oldest_python}"
    CHECKS.append(Check(f"clients-{_name}-oldest".replace("_", "-"), _story(_name, _library, _oldest, _library.oldest)))
