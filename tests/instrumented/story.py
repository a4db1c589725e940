"""Twenty tasks, three errors of two kinds, one worker that is killed: what `homing faults` says of it, and how it is mended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import pika

from homing.client import blocking
from tests.amqp_support import connection
from tests.process import ROOT, Server, wait_until

PROGRAMS: Final = Path(__file__).parent / "programs"
#: What ``homing instrument --print-path`` prints.
PATH: Final = str(ROOT / "homing" / "integrations" / "path")
RELEASE: Final = "2.3"
KINDS: Final = {3: "no rate", 7: "no amount", 12: "held", 15: "no rate"}
TASKS: Final = [(number, KINDS.get(number, "plain")) for number in range(20)]
#: What is told of them: class, how many, a line of the traceback.
FAULTS: Final = {"KeyError": (2, 'RATES["GBP"]'), "booking.NoAmount": (1, "raise NoAmount")}
IN_JSON: Final = pika.BasicProperties(content_type="application/json", delivery_mode=2)

Publish = Callable[[Server, str], None]


class Worker:
    """A program in a process group of its own; ``command`` as a shell would start it."""

    def __init__(self, directory: Path, url: str, queue: str, command: list[str]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.notes, self._log, self._command = directory / "notes", directory / "worker.log", command
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            "TEST_BROKER_URL": url,
            "TEST_NOTES": str(self.notes),
            "TEST_QUEUE": queue,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, by_command: bool = False, plain: bool = False) -> None:
        """``by_command``: as the command does it, not with the path that it prints; ``plain``: without either."""
        ours = [sys.executable, "-m", "homing", "instrument", "--program-version", RELEASE] if by_command else []
        extra = {"PYTHONPATH": str(ROOT)} if by_command else {"PYTHONPATH": PATH, "HOMING_PROGRAM_VERSION": RELEASE}
        if plain:
            extra = {}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*ours, *self._command],
                cwd=PROGRAMS,
                env={**self.environment, **extra},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def wait_for(self, line: str, number: int = 1) -> None:
        def there() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, f"the program has ended:\n{self.log()}"
            return self.notes.exists() and sum(each.startswith(line) for each in self.notes.read_text().split("\n")) >= number

        try:
            wait_until(f"{line} {number} times", there, 30)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log()}") from None

    def mend(self) -> None:
        with self.notes.open("a") as out:
            out.write("mended\n")

    def log(self) -> str:
        return self._log.read_text()[-4000:]


def publish_json(server: Server, queue: str) -> None:
    with connection(server) as opened:
        channel = opened.channel()
        channel.queue_declare(queue, durable=True)
        for number, kind in TASKS:
            channel.basic_publish("", queue, json.dumps({"number": number, "kind": kind}), IN_JSON)


def play(
    worker: Worker,
    server: Server,
    queue: str,
    publish: Publish = publish_json,
    *,
    task: str = "",
    by_command: bool = False,
    acknowledges_early: bool = False,
) -> None:
    """``task``: the name that faults say it by, where the library knows tasks. What ``acknowledges_early`` loses what it held when it was
    killed.
    """
    lost = [number for number, kind in TASKS if kind == "held" and acknowledges_early]
    publish(server, queue)
    try:
        worker.start(by_command)
        worker.wait_for("held")
        worker.kill()
        worker.start()
        worker.wait_for("booked", 17 - len(lost))
        with blocking.connect(server.url) as native:
            wait_until("three are dead", lambda: _dead(native, queue) == 3)
            _faults_tell_of_it(native, queue, task)
            worker.mend()
            job = _sent_back(native, queue)
            worker.wait_for("booked", 20 - len(lost))
            wait_until("the job has seen all of them succeed", lambda: native.call("redrive-status", redrive=job)["succeeded"] == 3)
    finally:
        worker.kill()
    booked = sorted({int(line.split()[1]) for line in worker.notes.read_text().split("\n") if line.startswith("booked")})
    assert booked == [number for number, _ in TASKS if number not in lost], "each was booked"


def _dead(native: blocking.Connection, queue: str) -> int:
    return sum(each["dead"] for each in native.call("faults", queue=queue)["items"])


def _faults_tell_of_it(native: blocking.Connection, queue: str, task: str) -> None:
    groups = {each["error_class"]: each for each in native.call("faults", queue=queue)["items"]}
    # The worker that was killed could not say why.
    assert {name: each["failures"] for name, each in groups.items() if name != "connection-lost"} == {
        name: number for name, (number, _) in FAULTS.items()
    }
    for name, (_, line) in FAULTS.items():
        fault = native.call("fault", fault=groups[name]["fault"])
        assert line in fault["traceback"], fault["traceback"]
        assert "integrations" not in fault["traceback"]
        assert task in fault["text"], fault["text"]
        assert [each["version"] for each in groups[name]["programs"]] == [RELEASE]


def _sent_back(native: blocking.Connection, queue: str) -> int:
    """One dry run says which; then they are."""
    (where,) = {name for each in native.call("faults", queue=queue)["items"] for name in each["dead_in"]}
    plan = native.call("reckon-redrive", queue=where, filter={})
    assert sorted((each["queue"], each["messages"]) for each in plan["to"]) == [(queue, 1), (queue, 2)], plan
    job: int = native.call("start-redrive", queue=where, filter={})["job_id"]
    return job
