"""What one sees of the failures of programs of each library: as they are, instrumented, and with reports by hand. A table of
docs/interoperability.md, made by running them; ``scripts/check-system failures-table`` compares it, and writes it with HOMING_APPROVE=1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from homing.client import blocking
from tests.amqp_support import AMQP, amqp_url
from tests.instrumented.libraries import LIBRARIES, SETTINGS, publisher
from tests.instrumented.story import WAYS, Worker, begin
from tests.process import ROOT, Server, wait_until

PAGE: Final = ROOT / "docs" / "interoperability.md"
HEAD: Final = f"| program of | {' | '.join(WAYS)} |"
#: How each shows itself, and what it does.
PROGRAMS_OF: Final = {
    "pika": "pika: a callback that rejects",
    "aio_pika": "aio-pika: `message.process()`",
    "kombu": "kombu: a callback that rejects",
    "celery": "Celery, acknowledged early: a task that raises",
    "dramatiq": "dramatiq: an actor that raises, `max_retries=0`",
    "faststream": "FastStream: a handler that raises",
    "taskiq": "Taskiq: a task that raises",
}


def table(directory: Path, commands: dict[str, list[str]], python: str) -> list[str]:
    """Its lines. ``commands``: behind ``python``, by library."""
    rows = [
        f"| {PROGRAMS_OF[name]} | {' | '.join(_seen(directory / name / way, name, way, commands[name], python) for way in WAYS)} |"
        for name in LIBRARIES
    ]
    return [HEAD, f"|{' --- |' * (len(WAYS) + 1)}", *rows]


def _seen(directory: Path, name: str, way: str, command: list[str], python: str) -> str:
    """The twenty tasks of the story, with its killed worker, on a broker of their own."""
    library, queue = LIBRARIES[name], "story"
    if way == "by hand":
        command = [word.replace(f"with_{name}", f"by_hand_{name}") for word in command]
    directory.mkdir(parents=True)
    server = Server(directory / "broker", {**AMQP, "address-settings": SETTINGS}).start()
    try:
        worker = Worker(directory / "worker", amqp_url(server), queue, [python, "-W", "ignore", *command])
        publisher(python, name, worker)(server, queue)
        try:
            begin(worker, server, queue, way, acknowledges_early=library.acknowledges_early)
            with blocking.connect(server.url) as native:
                wait_until("all is done", lambda: native.call("queue", queue=queue)["messages"] == 0)
                return _in_words(native, queue)
        finally:
            worker.kill()
    finally:
        server.close()


def _in_words(native: blocking.Connection, queue: str) -> str:
    """What was killed could not say why, and is a fault of its own in each."""
    groups = [each for each in native.call("faults", queue=queue)["items"] if each["error_class"] != "connection-lost"]
    if not groups:
        return "nothing"
    told: list[dict[str, Any]] = [native.call("fault", fault=each["fault"]) for each in groups]
    faults = ", ".join(f"{each['failures']} `{each['error_class'].rpartition('.')[2]}`" for each in groups)
    with_them = {
        "traceback": all(each["traceback"] for each in told),
        "task": all("(task " in each["text"] for each in groups),
        "release": all(program["version"] for each in groups for program in each["programs"]),
    }
    there = [name for name, all_have in with_them.items() if all_have]
    return f"{sum(each['dead'] for each in groups)} dead: {faults}{'; with ' + ', '.join(there) if there else ''}"


def in_the_page() -> list[str]:
    lines = PAGE.read_text().split("\n")
    return lines[lines.index(HEAD) : lines.index("", lines.index(HEAD))]


def write(made: list[str]) -> None:
    PAGE.write_text(PAGE.read_text().replace("\n".join(in_the_page()), "\n".join(made)))
