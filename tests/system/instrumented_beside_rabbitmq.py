"""Programs of each library beside RabbitMQ: with ``homing instrument`` they send it, frame by frame, what they send without."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pika

from tests.conformance import rabbitmq
from tests.conformance.rabbitmq import RabbitMQ
from tests.instrumented.libraries import LIBRARIES, Library
from tests.instrumented.story import AS_IT_IS, IN_JSON, INSTRUMENTED, PROGRAMS, Worker
from tests.process import wait_until
from tests.system.check import CHECKS, Check, Failed, Place, Unavailable
from tests.system.instrumented_clients import QUEUE, environment
from tests.system.recorded import Recorder

TASKS: Final = [(0, "plain"), (1, "no rate"), (2, "plain"), (3, "no amount"), (4, "plain")]
BOOKED: Final = 3
URL: Final = "amqp://guest:guest@127.0.0.1:{}/"


def _send(python: str, name: str, library: Library, url: str) -> None:
    if library.task:
        nothing = {"TEST_BROKER_URL": url, "TEST_QUEUE": QUEUE, "TEST_NOTES": "/dev/null"}
        command = [python, "sending.py", name, library.task, json.dumps(TASKS)]
        subprocess.run(command, cwd=PROGRAMS, env=nothing, check=True, timeout=60)
        return
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.queue_declare(QUEUE, durable=True)
        for number, kind in TASKS:
            channel.basic_publish("", QUEUE, json.dumps({"number": number, "kind": kind}), IN_JSON)


def _sent(directory: Path, python: str, name: str, library: Library, plain: bool) -> list[list[bytes]]:
    """By connection, on a node of its own."""
    with tempfile.TemporaryDirectory(prefix="homing-rabbitmq-") as base:
        server = RabbitMQ(Path(base)).start()
        try:
            with Recorder(server.port) as recorder:
                worker = Worker(
                    directory, f"amqp://guest:guest@127.0.0.1:{recorder.port}/", QUEUE, [python, "-W", "ignore", *library.command]
                )
                _send(python, name, library, f"amqp://guest:guest@127.0.0.1:{server.port}/")
                try:
                    worker.start(AS_IT_IS if plain else INSTRUMENTED, by_command=not plain)
                    worker.wait_for("booked", BOOKED)
                    wait_until("it has said all", lambda: recorder.quiet_for(2.0), 30)
                    return recorder.frames()
                finally:
                    worker.kill()
        finally:
            server.close()


def _compared(name: str, library: Library) -> Callable[[Place], str]:
    def compared(place: Place) -> str:
        if not rabbitmq.installed():
            raise Unavailable("no RabbitMQ; enable: sudo apt-get install rabbitmq-server")
        python = environment(place.directory / "environment", f"python{sys.version_info.major}.{sys.version_info.minor}", library.newest)
        without, instrumented = (_sent(place.directory / str(plain), python, name, library, plain) for plain in (True, False))
        for connection, (one, other) in enumerate(zip(sorted(without), sorted(instrumented), strict=True)):
            for number, (plain, ours) in enumerate(zip(one, other, strict=False)):
                if plain != ours:
                    raise Failed(f"connection {connection}, frame {number}: {plain!r} without, {ours!r} with it")
            if len(one) != len(other):
                raise Failed(
                    f"connection {connection}: {len(one)} frames without, {len(other)} with it, such as {max(one, other, key=len)[-1]!r}"
                )
        return f"{sum(map(len, without))} frames of {len(without)} connections, the same with and without"

    return compared


for _name, _library in LIBRARIES.items():
    CHECKS.append(Check(f"rabbitmq-instrumented-{_name}".replace("_", "-"), _compared(_name, _library)))
