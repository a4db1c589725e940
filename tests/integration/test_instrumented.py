"""Programs as they are, started by ``homing instrument``: each failure is seen with its error, traceback, release and host."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from homing.client import blocking
from tests.amqp_support import AMQP, amqp_url, connection
from tests.instrumented.story import PROGRAMS, RELEASE, TASKS, Worker, play
from tests.process import HomingCommand, Server, wait_until

SETTINGS: dict[str, Any] = {"#": {"redelivery-delay": 0}, "story-celery": {"keep-settled-failures": True}}
PYTHON = [sys.executable, "-W", "ignore"]
CELERY = ["-m", "celery", "-A", "with_celery", "worker", "-c", "1", "--without-gossip", "--without-mingle", "--without-heartbeat"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("instrumented"), {**AMQP, "address-settings": SETTINGS})
    yield server.start()
    server.close()


@pytest.mark.parametrize("library", ["pika", "aio_pika", "kombu"])
def test_the_story_of_twenty_tasks(library: str, broker: Server, tmp_path: Path) -> None:
    queue = f"story-{library}"
    command = [*PYTHON, str(PROGRAMS / f"with_{library}.py")]
    play(Worker(tmp_path, amqp_url(broker), queue, command), broker, queue, by_command=library == "pika")


def send_tasks(server: Server, queue: str) -> None:
    app = Celery(broker=amqp_url(server))
    with app.connection_for_write() as connection:
        for task in TASKS:
            app.send_task("shop.book", task, queue=queue, connection=connection)


@pytest.mark.filterwarnings("ignore")
def test_the_story_with_celery_as_it_comes(broker: Server, tmp_path: Path) -> None:
    worker = Worker(tmp_path, amqp_url(broker), "story-celery", [*PYTHON, *CELERY])
    play(worker, broker, "story-celery", send_tasks, task="shop.book", acknowledges_early=True)


@pytest.mark.filterwarnings("ignore")
def test_the_tries_of_a_celery_task_are_one_story(broker: Server, tmp_path: Path) -> None:
    queue = "story-celery"
    worker = Worker(tmp_path, amqp_url(broker), queue, [*PYTHON, *CELERY])
    app = Celery(broker=worker.environment["TEST_BROKER_URL"])
    try:
        worker.start()
        app.send_task("shop.retried", queue=queue)
        worker.wait_for("tried", 3)
        with blocking.connect(broker.url) as native:
            wait_until("it is dead", lambda: any("shop.retried" in each["text"] and each["dead"] for each in faults(native, queue)))
            (group,) = [each for each in faults(native, queue) if "shop.retried" in each["text"]]
            (message_id,) = group["message_ids"]
            tries = native.call("history", message_id=message_id)["attempts"]
    finally:
        worker.kill()
    assert (group["error_class"], group["failures"], group["dead"]) == ("KeyError", 3, 1)
    assert [(each["attempt"], each["outcome"], each["fault"]["error_text"]) for each in tries] == [
        (number, "acknowledged", "'never'") for number in (1, 2, 3)
    ]
    assert ["try 3" in each["fault"]["reason"] for each in tries] == [False, False, True]


def faults(native: blocking.Connection, queue: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = native.call("faults", queue=queue)["items"]
    return found


def test_doctor_says_of_each_consumer_what_is_not_told(broker: Server, tmp_path: Path) -> None:
    queue, homing = "examined", HomingCommand(tmp_path / "commands")
    homing.url = broker.url
    homing.directory.mkdir()
    worker = Worker(tmp_path / "worker", amqp_url(broker), queue, [*PYTHON, str(PROGRAMS / "with_pika.py")])
    with connection(broker) as plain:
        channel = plain.channel()
        channel.queue_declare(queue, durable=True)
        channel.basic_consume(queue, lambda *_: None, auto_ack=True, consumer_tag="at once")
        limited = plain.channel()
        limited.basic_qos(prefetch_count=7)
        limited.basic_consume(queue, lambda *_: None)
        try:
            worker.start()
            wait_until("three consume", lambda: len(homing.json("consumers", queue)) == 3)
            at_once, by_hand, instrumented = homing.json("doctor", queue)
            text = homing("doctor", queue).stdout
        finally:
            worker.kill()
    assert [at_once["acknowledges"], by_hand["acknowledges"]] == ["when it is given a message", "as its program says"]
    assert [at_once["prefetch"], by_hand["prefetch"]] == [None, 7]
    assert "is gone" in at_once["always_fails"]
    assert "without end" in by_hand["always_fails"]
    assert [each["instrumented"] is not None for each in (at_once, by_hand, instrumented)] == [False, False, True]
    assert instrumented["version"] == RELEASE
    unseen = "Nobody learns why"
    assert [any(unseen in advice for advice in each["advice"]) for each in (at_once, by_hand, instrumented)] == [True, True, False]
    assert all(any("end of attempts" in advice for advice in each["advice"]) for each in (by_hand, instrumented))
    assert text.count(unseen) == 2, text
