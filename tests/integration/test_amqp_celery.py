"""A Celery worker, unchanged: retries, late acknowledgements, a worker that is killed, tasks for later, priorities."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from homing.client import blocking
from tests.amqp_support import AMQP, amqp_port
from tests.process import ROOT, Server, wait_until

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(120)]


class Worker:
    """``celery worker`` as a process of its own."""

    def __init__(self, directory: Path, server: Server) -> None:
        self.notes = directory / "notes"
        self.notes.touch()
        self._log = directory / "worker.log"
        self.url = f"amqp://guest:guest@127.0.0.1:{amqp_port(server)}//"
        self._environment = {**os.environ, "TEST_BROKER_URL": self.url, "TEST_NOTES": str(self.notes), "PYTHONPATH": str(ROOT)}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, concurrency: int = 2) -> Worker:
        options = [f"--concurrency={concurrency}", "--loglevel=INFO"]
        command = [sys.executable, "-m", "celery", "-A", "tests.integration.celery_app", "worker", *options]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        wait_until("the worker is ready", lambda: " ready." in self._log.read_text(), 60)
        return self

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
            self._process = None

    def kill(self) -> None:
        """With all its processes, in the middle of what it does."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None
        self._log.write_text("")

    def lines(self) -> list[str]:
        return self.notes.read_text().split("\n")[:-1]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("celery-broker"), AMQP)
    yield server.start()
    server.close()


@pytest.fixture(scope="module")
def worker(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    worker = Worker(tmp_path_factory.mktemp("celery"), server)
    yield worker.start()
    worker.stop()


@pytest.fixture(scope="module")
def tasks(worker: Worker) -> Any:
    os.environ["TEST_BROKER_URL"], os.environ["TEST_NOTES"] = worker.url, str(worker.notes)
    from tests.integration import celery_app

    return celery_app


def test_results_come_back(tasks: Any) -> None:
    results = [tasks.add.delay(number, number) for number in range(20)]
    assert [result.get(timeout=30) for result in results] == [2 * number for number in range(20)]


def test_retries_come_until_it_works(tasks: Any, worker: Worker) -> None:
    assert tasks.flaky.delay(3).get(timeout=30) == "done"
    assert [line for line in worker.lines() if line.startswith("try")] == ["try 0", "try 1", "try 2", "try 3"]


def test_a_task_that_raises_is_tried_again_by_the_broker_which_knows_why(tasks: Any, server: Server) -> None:
    assert tasks.raising.delay(2).get(timeout=30) == "charged"
    with blocking.connect(server.url) as native:
        (group,) = [each for each in native.call("faults", queue="celery")["items"] if each["error_class"] == "ConnectionError"]
        attempts = native.call("history", message_id=group["message_ids"][0])["attempts"]
    assert [(each["outcome"], each["fault"]["error_text"]) for each in attempts] == [("nack", "the shop does not answer")] * 2
    assert attempts[0]["fault"]["bases"] == ["OSError", "Exception", "BaseException"]
    assert "raise ConnectionError" in attempts[0]["fault"]["traceback"]


def test_a_task_whose_worker_is_killed_runs_again(tasks: Any, worker: Worker) -> None:
    assert tasks.die_once.delay().get(timeout=60) == "survived"
    assert worker.lines().count("began") == 2


def test_a_task_for_later_waits(tasks: Any, worker: Worker) -> None:
    began = time.monotonic()
    tasks.record.apply_async(("later",), eta=datetime.now(UTC) + timedelta(seconds=1.5))
    wait_until("the task has run", lambda: "later" in worker.lines(), 30)
    assert time.monotonic() - began >= 1.3


def test_urgent_tasks_overtake_others_and_what_a_killed_worker_held_runs_again(tasks: Any, worker: Worker) -> None:
    held = tasks.hold_once.delay()
    wait_until("the worker is at it", lambda: "held" in worker.lines(), 30)
    worker.kill()
    for priority in (1, 5, 9):
        for number in range(2):
            tasks.record.apply_async((f"p{priority} {number}",), priority=priority)
    # One at a time: of two processes one may stand still while the other runs all the rest.
    worker.start(concurrency=1)
    wait_until("all have run", lambda: sum(line.startswith("p") for line in worker.lines()) == 6, 30)
    ran = [line for line in worker.lines() if line.startswith("p")]
    assert ran == ["p9 0", "p9 1", "p5 0", "p5 1", "p1 0", "p1 1"]
    assert held.get(timeout=30) == "done after all"
    assert worker.lines().count("held") == 2


def test_the_worker_answers_when_it_is_asked(tasks: Any) -> None:
    answers = tasks.app.control.ping(timeout=30, limit=1)
    assert [list(answer.values()) for answer in answers] == [[{"ok": "pong"}]]


def test_tasks_for_later_do_not_block_others(tasks: Any, worker: Worker) -> None:
    """The worker raises its prefetch for each that it keeps until its time, which takes the ``global`` bit that RabbitMQ understands."""
    for number in range(2):
        tasks.record.apply_async((f"never {number}",), countdown=120)
        tasks.record.apply_async((f"never {number}",), eta=datetime.now(UTC) + timedelta(seconds=120))
    for _ in range(2):
        tasks.much_later.delay()
    for number in range(3):
        tasks.record.delay(f"plain {number}")
    wait_until("plain tasks have run", lambda: sum(line.startswith("plain") for line in worker.lines()) == 3, 30)
    assert worker.lines().count("much later") == 2
    assert not any(line.startswith("never") for line in worker.lines())
    worker.kill()  # what it keeps for later would be given back one by one
