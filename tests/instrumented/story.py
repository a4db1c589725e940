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
from typing import Any, Final

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

AS_IT_IS: Final = "as it is"
INSTRUMENTED: Final = "instrumented"
#: What the environment of a program has for it; one that reports by hand imports ours.
WAYS: Final[dict[str, dict[str, str]]] = {
    AS_IT_IS: {},
    INSTRUMENTED: {"PYTHONPATH": PATH, "HOMING_PROGRAM_VERSION": RELEASE},
    "by hand": {"PYTHONPATH": str(ROOT), "HOMING_PROGRAM_VERSION": RELEASE},
}

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

    def start(self, way: str = INSTRUMENTED, by_command: bool = False) -> None:
        """``by_command``: instrumented as the command does it, not with the path that it prints."""
        ours = [sys.executable, "-m", "homing", "instrument", "--program-version", RELEASE] if by_command else []
        extra = {"PYTHONPATH": str(ROOT)} if by_command else WAYS[way]
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

    def wait(self, timeout_s: float) -> None:
        """For its end."""
        assert self._process is not None
        self._process.wait(timeout_s)

    def wait_for(self, line: str, number: int = 1, timeout_s: float = 30.0) -> None:
        def there() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, f"the program has ended:\n{self.log()}"
            return self.notes.exists() and sum(each.startswith(line) for each in self.notes.read_text().split("\n")) >= number

        try:
            wait_until(f"{line} {number} times", there, timeout_s)
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


def lost_at_a_kill(acknowledges_early: bool) -> list[int]:
    return [number for number, kind in TASKS if kind == "held" and acknowledges_early]


def begin(
    worker: Worker, server: Server, queue: str, way: str = INSTRUMENTED, *, acknowledges_early: bool = False, by_command: bool = False
) -> None:
    """The worker is killed when it holds a task; another one does the rest, but for the three that fail."""
    lost = lost_at_a_kill(acknowledges_early)
    worker.start(way, by_command)
    worker.wait_for("held")
    if lost:
        with blocking.connect(server.url) as native:
            wait_until("it is acknowledged", lambda: native.call("queue", queue=queue)["succeeded"] == lost[0] + 1)
    worker.kill()
    worker.start(way)
    worker.wait_for("booked", 17 - len(lost))


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
    publish(server, queue)
    lost = lost_at_a_kill(acknowledges_early)
    try:
        begin(worker, server, queue, acknowledges_early=acknowledges_early, by_command=by_command)
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
    assert booked == [number for number, _ in TASKS if number not in lost], booked


def _dead(native: blocking.Connection, queue: str) -> int:
    return sum(each["dead"] for each in _faults(native, queue))


def _faults_tell_of_it(native: blocking.Connection, queue: str, task: str) -> None:
    groups = {each["error_class"]: each for each in _faults(native, queue)}
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
    (where,) = {name for each in _faults(native, queue) for name in each["dead_in"]}
    plan = native.call("reckon-redrive", queue=where, filter={})
    assert sorted((each["queue"], each["messages"]) for each in plan["to"]) == [(queue, 1), (queue, 2)], plan
    job: int = native.call("start-redrive", queue=where, filter={})["job_id"]
    return job


def play_tries(
    worker: Worker, server: Server, queue: str, send: Callable[[str], object], ends: dict[str, str], last: str = "acknowledged"
) -> None:
    """``recovered`` raises once, and succeeds then; ``retried`` always raises a KeyError: its three tries are attempts of one message, a
    dead letter then. ``ends``: the tasks that raise something else, once, and what says that there is no further try; so it is of
    ``retried``, where it stands there. ``last``: how the last try ends.
    """
    try:
        worker.start()
        for task in ("recovered", *{"retried": "", **ends}):
            send(task)
        with blocking.connect(server.url) as native:
            wait_until("all are dead", lambda: _dead(native, queue) == len({"retried", *ends}), 30)
            groups = {each["text"].rsplit(" ", 1)[-1].strip(")").removeprefix("shop."): each for each in _faults(native, queue)}
            once = groups.pop("recovered")["message_ids"][0]
            wait_until("it is over", lambda: native.call("history", message_id=once)["outcomes"])
            life = native.call("history", message_id=once)
            told = {task: native.call("history", message_id=each["message_ids"][0])["attempts"] for task, each in groups.items()}
    finally:
        worker.kill()
    assert [each["fault"]["error_text"] for each in life["attempts"]] == ["'once'"], life
    assert [each["outcome"] for each in life["outcomes"]] == ["succeeded"], life
    assert {task: each["failures"] for task, each in groups.items()} == {**dict.fromkeys(ends, 1), "retried": 3}, groups
    tries = told["retried"]
    seen = [(each["attempt"], each["outcome"], each["fault"]["error_text"]) for each in tries]
    assert seen == [(number, outcome, "'never'") for number, outcome in enumerate(("acknowledged", "acknowledged", last), 1)], tries
    assert [f"try {number}" in each["fault"]["reason"] for number, each in enumerate(tries, 1)] == [True] * 3, tries
    not_again = {task: attempts[-1]["fault"]["reason"].partition("not again by ")[2] for task, attempts in told.items()}
    assert not_again == {"retried": "", **ends}, not_again


def _faults(native: blocking.Connection, queue: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = native.call("faults", queue=queue)["items"]
    return found
