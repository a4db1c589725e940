"""Programs as they are, started by ``homing instrument``: each failure is seen with its error, traceback, release and host."""

from __future__ import annotations

import importlib.util
import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from homing.broker.protocols.native.codec import Op
from homing.client import blocking
from tests.amqp_support import AMQP, amqp_url, connection, get
from tests.faults.hostile import Raw
from tests.instrumented.libraries import IN_SUITE, LIBRARIES, SETTINGS, publisher, send
from tests.instrumented.story import IN_JSON, PATH, PROGRAMS, RELEASE, Worker, play, play_tries
from tests.process import HomingCommand, Server, wait_until
from tests.stomp_support import STOMP, Link

PYTHON = [sys.executable, "-W", "ignore"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("instrumented"), {**AMQP, **STOMP, "address-settings": SETTINGS})
    yield server.start()
    server.close()


def worker_of(library: str, broker: Server, directory: Path, queue: str, program: str = "") -> Worker:
    # kombu, once imported, puts a module without a spec in its place.
    if library not in sys.modules and importlib.util.find_spec(library) is None:
        pytest.skip(f"no {library} here; enable: scripts/setup")
    command = [program] if program else IN_SUITE.get(library) or LIBRARIES[library].command
    return Worker(directory, amqp_url(broker), queue, [*PYTHON, *command])


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_story_of_twenty_tasks(library: str, broker: Server, tmp_path: Path) -> None:
    queue, said = f"story-{library}", LIBRARIES[library]
    worker = worker_of(library, broker, tmp_path, queue)
    publish, by_command = publisher(sys.executable, library, worker), library == "pika"
    play(worker, broker, queue, publish, task=said.shown, by_command=by_command, acknowledges_early=said.acknowledges_early)


@pytest.mark.parametrize("library", [name for name, each in LIBRARIES.items() if each.ends is not None])
def test_the_tries_of_a_task_are_one_story_that_says_what_ended_it(library: str, broker: Server, tmp_path: Path) -> None:
    queue, said = f"tries-{library}", LIBRARIES[library]
    worker = worker_of(library, broker, tmp_path, queue)
    play_tries(worker, broker, queue, lambda task: send(sys.executable, library, worker, task), said.ends or {}, said.last)


@pytest.mark.parametrize("library", ["pika", "pikas_loop", "kombu", "aio_pika"])
def test_what_raises_when_it_is_acknowledged_is_told_and_can_be_sent_back(library: str, broker: Server, tmp_path: Path) -> None:
    queue = f"early-{library}"
    worker = Worker(tmp_path, amqp_url(broker), queue, [*PYTHON, "early.py", library])
    said = {"headers": {"customer": "c1"}, "message_id": "m1", "type": "order", "content_type": "text/plain", "timestamp": 1_790_000_000}
    with connection(broker) as opened, blocking.connect(broker.url) as native:
        channel = opened.channel()
        channel.queue_declare(queue, durable=True)
        channel.basic_publish("", queue, b"12 GBP", pika.BasicProperties(**said))
        try:
            worker.start()
            wait_until("it is dead", lambda: [each["dead"] for each in native.call("faults", queue=queue)["items"]] == [1])
        finally:
            worker.kill()
        (fault,) = native.call("faults", queue=queue)["items"]
        assert (fault["error_class"], fault["failures"], 'RATES["GBP"]' in native.call("fault", fault=fault["fault"])["traceback"]) == (
            "KeyError",
            1,
            True,
        )
        native.call("start-redrive", queue=f"DLQ.{queue}", filter={})
        _, properties, body = get(channel, queue)
    assert body == b"12 GBP"
    assert {**{name: getattr(properties, name) for name in said}, "headers": {"customer": properties.headers["customer"]}} == said


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_a_listener_of_stomp_py_tells_what_it_raised(broker: Server, tmp_path: Path, version: str) -> None:
    queue, sender = f"stomped-{version}", Link(broker)
    worker = Worker(tmp_path, broker.ready["stomp"], queue, [*PYTHON, "with_stomp.py", version])
    for body in (b"GBP", b"outside"):
        sender.sure("SEND", body, destination=f"/queue/{queue}", persistent="true")
    sender.close()
    with blocking.connect(broker.url) as native:
        try:
            worker.start()
            worker.wait(30)
        finally:
            worker.kill()
        wait_until("both have failed", lambda: len(native.call("faults", queue=queue)["items"]) == 2)
        found = [native.call("fault", fault=each["fault"]) for each in native.call("faults", queue=queue)["items"]]
    told = {each["error_class"]: each["traceback"] for each in found}
    assert "RATES[frame.body]" in told["KeyError"]
    assert told["ValueError"].splitlines()[-2:] == ["ValueError: a", "b: c"]
    programs = [program for each in found for group in each["groups"] for program in group["programs"]]
    assert {(each["host"], each["version"]) for each in programs} == {(socket.gethostname(), RELEASE)}


#: By what is acknowledged how: the error that is told, how often, and how many dead letters there are then.
ACKNOWLEDGED: dict[str, tuple[str, int, int]] = {
    "ACK_FIRST": ("KeyError", 1, 1),
    "ACK": ("KeyError", 1, 1),
    "REJECT_ON_ERROR": ("KeyError", 1, 1),
    "NACK_ON_ERROR": ("KeyError", 1, 0),
    "MANUAL": ("KeyError", 1, 1),
    "NackMessage": ("KeyError", 1, 0),
    "RejectMessage": ("KeyError", 1, 1),
    "bare": ("faststream.exceptions.RejectMessage", 1, 1),
}


def test_faststreams_ways_to_acknowledge_each_tell_what_was_raised(broker: Server, tmp_path: Path) -> None:
    worker = worker_of("faststream", broker, tmp_path, "ways", "acknowledging_faststream.py")
    with connection(broker) as opened:
        channel = opened.channel()
        for name in (*ACKNOWLEDGED, "AckMessage"):
            channel.queue_declare(f"ways.{name}", durable=True)
            channel.basic_publish("", f"ways.{name}", json.dumps(name), IN_JSON)

    def told(name: str) -> list[tuple[str, int, int]]:
        return [(each["error_class"], each["failures"], each["dead"]) for each in native.call("faults", queue=f"ways.{name}")["items"]]

    try:
        worker.start()
        with blocking.connect(broker.url) as native:
            # What came back to its queue succeeds there.
            for name in ("NACK_ON_ERROR", "NackMessage"):
                worker.wait_for(f"done {name}")
            wait_until(
                "each has ended",
                lambda: all(native.call("queue", queue=f"ways.{name}")["succeeded"] for name in ("ACK_FIRST", "ACK", "AckMessage")),
            )
            wait_until("each is told", lambda: {name: told(name) for name in ACKNOWLEDGED} == {n: [t] for n, t in ACKNOWLEDGED.items()})
            assert told("AckMessage") == []
    finally:
        worker.kill()


def test_doctor_says_of_each_consumer_what_is_not_told(broker: Server, tmp_path: Path) -> None:
    queue, homing = "examined", HomingCommand(tmp_path / "commands")
    homing.url = broker.url
    homing.directory.mkdir()
    assert homing("instrument", "--print-path").stdout == f"{PATH}\n"
    worker = Worker(tmp_path / "worker", amqp_url(broker), queue, [*PYTHON, str(PROGRAMS / "with_pika.py")])

    def examined() -> list[dict[str, Any]]:
        """Consumers of the tests before may still be there."""
        return [*homing.json("doctor", queue), *homing.json("doctor", "quorum")]

    with connection(broker) as plain:
        channel = plain.channel()
        channel.queue_declare(queue, durable=True)
        channel.queue_declare("quorum", durable=True, arguments={"x-queue-type": "quorum"})
        channel.basic_consume("quorum", lambda *_: None)
        channel.basic_consume(queue, lambda *_: None, auto_ack=True, consumer_tag="at once")
        limited = plain.channel()
        limited.basic_qos(prefetch_count=7, global_qos=True)
        limited.basic_consume(queue, lambda *_: None)
        try:
            worker.start()
            wait_until("three consume", lambda: len(homing.json("consumers", queue)) == 3)
            sends = {each["sends"] for each in examined()}
            for name in (queue, "quorum"):
                plain.channel().basic_publish("", name, b"not persistent")
            wait_until("they are there", lambda: [each["sends"] for each in examined()] == ["transient"] * 4)
            at_once, by_hand, instrumented, kept = examined()
            text = homing("doctor", queue).stdout
            for name in (queue, "quorum"):
                with Raw(broker.url) as raw:
                    raw.producer(name)
                    raw.send(Op.SEND, 1, 1, [[b"persistent"], [b"not persistent", None, 4, False]])
                    raw.until(Op.CONFIRM)
            both = {each["sends"] for each in examined()}
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
    not_kept = ["delivery_mode 2" in " ".join(each["advice"]) for each in (at_once, by_hand, instrumented, kept)]
    assert (sends, both, not_kept) == ({None}, {"both"}, [True, True, True, False])


def test_doctor_says_what_becomes_of_what_was_acknowledged_before(broker: Server, homing: HomingCommand, tmp_path: Path) -> None:
    queue, homing.url = "doctored-early", broker.url
    worker = Worker(tmp_path / "worker", amqp_url(broker), queue, [*PYTHON, "early.py", "aio_pika"])

    def examined() -> tuple[str, str, int]:
        (found,) = homing.json("doctor", queue)
        return found["acknowledges"], found["always_fails"], sum("keep-settled-failures" in each for each in found["advice"])

    with connection(broker) as opened:
        opened.channel().queue_declare(queue, durable=True)
        opened.channel().basic_publish("", queue, b"x")
    try:
        worker.start()
        with blocking.connect(broker.url) as native:
            wait_until("it is dead", lambda: [each["dead"] for each in native.call("faults", queue=queue)["items"]] == [1])
            kept = examined()
            native.call("set-settings", layers={queue: {"keep-settled-failures": False}})
            assert [kept, examined()] == [
                ("before the work", "It is reported after its acknowledgement, and a dead letter of its queue.", 0),
                ("before the work", "Its failure is kept, and the message is gone: it was acknowledged before.", 1),
            ]
    finally:
        worker.kill()
