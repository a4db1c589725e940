"""A Celery application as people write them for RabbitMQ; the worker of test_amqp_celery.py."""

# Celery says nothing of its types.
# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from celery import Celery
from kombu import Queue

from examples.failure_reports.with_celery import Reported

app = Celery("homing_test", broker=os.environ["TEST_BROKER_URL"], backend="rpc://")
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    task_queues=[Queue("celery", queue_arguments={"x-max-priority": 9})],
    task_default_priority=3,
)
NOTES = Path(os.environ["TEST_NOTES"])


def note(line: str) -> None:
    with NOTES.open("a") as out:
        out.write(line + "\n")


@app.task
def add(x: int, y: int) -> int:
    return x + y


@app.task
def record(line: str) -> None:
    note(line)


@app.task(bind=True, max_retries=5)
def flaky(self: Any, failures: int) -> str:
    note(f"try {self.request.retries}")
    if self.request.retries < failures:
        raise self.retry(countdown=0.2)
    return "done"


@app.task(bind=True, max_retries=1)
def much_later(self: Any) -> None:
    note("much later")
    raise self.retry(countdown=120)


@app.task
def hold_once() -> str:
    """Does not end the first time."""
    note("held")
    if NOTES.read_text().count("held") == 1:
        time.sleep(600)
    return "done after all"


@app.task
def die_once() -> str:
    """Kills the process it runs in, the first time."""
    note("began")
    if NOTES.read_text().count("began") == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


@app.task(base=Reported)
def raising(times: int) -> str:
    """As often as that."""
    note("raising")
    if NOTES.read_text().count("raising") <= times:
        raise ConnectionError("the shop does not answer")
    return "charged"
