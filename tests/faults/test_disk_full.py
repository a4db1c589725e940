"""A file system that fills up under a running broker: producers wait and know why, consumers go on, and it ends when there is room."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from homing.broker.protocols.native.codec import MESSAGE_OVERHEAD_BYTES, Op, properties_cost
from homing.client import blocking
from tests.amqp_support import AMQP, connection, get, wait_for_count, wait_until_seen
from tests.faults.hostile import Raw
from tests.faults.small_disk import fill_up, small_file_system
from tests.integration.test_http import HTTP, ask
from tests.process import Server


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with small_file_system(tmp_path / "small", 64) as place:
        yield place


@pytest.fixture
def server(small_disk: Path, tmp_path: Path) -> Iterator[Server]:
    journal = {"disk-reserve": "4MiB", "checkpoint-every": "4MiB"}
    config = {"data-directory": str(small_disk / "data"), "journal": journal, "broker": {"memory-limit": "1GiB"}, **HTTP, **AMQP}
    server = Server(tmp_path / "broker", config).start()
    yield server
    server.close()


#: As often as it takes, at once.
NO_END = {"maximum_redeliveries": -1, "initial_redelivery_delay_ms": 0, "redelivery_delay_ms": 0}


def cost(body: bytes, number: int) -> int:
    """Of byte credit."""
    return len(body) + MESSAGE_OVERHEAD_BYTES + properties_cost({"n": number})


class Sender:
    """Sends as credit allows; knows what is confirmed and why it has to wait."""

    def __init__(self, url: str) -> None:
        self.raw = Raw(url, client_id="sender")
        self.raw.send(Op.PRODUCER, 1, 1, "disk")
        self.sent = self.confirmed = 0
        self.messages = self.bytes = 0
        self.reason: str | None = None
        self.bodies: dict[int, bytes] = {}
        self.raw.until(Op.RESULT)

    @property
    def waiting(self) -> bool:
        return self.reason is not None

    def take(self, timeout_s: float) -> bool:
        """One frame of the broker's; False when none came in time."""
        try:
            frame = self.raw.next(timeout_s)
        except TimeoutError:
            return False
        assert frame is not None, "the broker is gone"
        if frame[0] == Op.CREDIT:
            self.messages += frame[2]
            self.bytes += frame[3]
            self.reason = frame[4]
        else:
            assert frame[0] == Op.CONFIRM, frame
            assert frame[3:] in ([], [None]), frame
            self.confirmed = frame[2]
        return True

    def fill(self) -> None:
        """Until it is told to wait, with everything it sent confirmed."""
        self.reason = None
        while not self.waiting or self.confirmed < self.sent:
            if self.messages > 0 and self.bytes > 0:
                self.sent += 1
                body = self.bodies[self.sent] = os.urandom(100_000)
                self.raw.send(Op.SEND, 1, self.sent, [[body, {"n": self.sent}]])
                self.messages -= 1
                self.bytes -= cost(body, self.sent)
            assert self.take(20), (self.sent, self.confirmed, self.reason)

    def resume(self) -> None:
        """Until credit comes again by itself."""
        while self.reason is not None or self.messages <= 0 or self.bytes <= 0:
            assert self.take(20), self.reason


def drain(url: str, bodies: dict[int, bytes], expected: int) -> set[int]:
    """Consumes and acknowledges all that is there; every acknowledgement is confirmed."""
    seen: list[int] = []
    with Raw(url) as raw:
        raw.send(Op.SUBSCRIBE, 2, 1, "disk", {"prefetch": expected})
        raw.until(Op.RESULT)
        while len(seen) < expected:
            for message in raw.until(Op.DELIVER)[3]:
                assert message[3] == bodies[message[4]["n"]]
                seen.append(message[4]["n"])
        raw.send(Op.GIVEN, 1, expected)
        for first in range(1, expected + 1, 10):
            raw.send(Op.ACK, 1, 4, [first, min(first + 9, expected)], None, first)
            assert raw.until(Op.RESULT)[1:] == [first, {"not_held": []}]
    return set(seen)


def test_producers_wait_with_a_reason_consumers_go_on_and_service_resumes_by_itself(server: Server) -> None:
    sender, told = Sender(server.url), list[bool]()
    for _ in range(2):
        sender.fill()
        assert sender.reason is not None
        assert sender.reason.startswith("disk-low")
        ready = json.loads(ask(server, "/readyz")[1])
        assert (ready["state"], ready["degraded"], ready["producers_wait"][0]["limit"]) == ("ready", ["disk"], "disk-low")
        assert len(sender.bodies) > 100
        # Who connects now may consume; what it publishes waits as everybody's does.
        with connection(server) as late:
            late.add_on_connection_blocked_callback(lambda *_: told.append(True))
            late.add_on_connection_unblocked_callback(lambda *_: told.append(False))
            ch = late.channel()
            ch.queue_declare("late")
            assert ch.basic_get("late")[0] is None
            assert not told
            ch.basic_publish("", "late", b"at last")
            wait_until_seen(ch, told, 1)
            assert drain(server.url, sender.bodies, len(sender.bodies)) == set(sender.bodies)
            sender.bodies.clear()
            sender.resume()
            assert get(ch, "late")[2] == b"at last"
            wait_until_seen(ch, told, 2)
            assert told == [True, False]
            told.clear()
        assert json.loads(ask(server, "/readyz")[1]) == {"state": "ready", "degraded": [], "producers_wait": []}
    sender.raw.close()
    assert server.stop() == 0
    assert "Traceback" not in server.log_path.read_text()


def failures_are_taken(server: Server) -> None:
    """Of the two that are not durable one is dead, and one comes back at once: both stay in memory, and nobody waits."""
    with connection(server) as late, blocking.connect(server.url) as native:
        ch = late.channel()
        ch.basic_reject(get(ch, "failing", auto_ack=False)[0].delivery_tag, requeue=False)
        wait_for_count(ch, "DLQ.failing", 1)
        (dead,) = native.call("dead-letters")
        assert (dead["queue"], dead["messages"], dead["transient"]) == ("DLQ.failing", 1, 1)
        assert native.call("statistics")["failed_not_kept"] == 1
        for _ in range(3):
            method, _, body = get(ch, "failing", auto_ack=False)
            ch.basic_reject(method.delivery_tag, requeue=True)
        assert (method.redelivered, body) == (True, b"not durable")


def test_a_disk_filled_by_somebody_else_stops_producers_only_and_a_kill_loses_nothing(server: Server, small_disk: Path) -> None:
    sender = Sender(server.url)
    while sender.confirmed < 50:
        while sender.messages <= 0 or sender.bytes <= 0:
            assert sender.take(20)
        sender.sent += 1
        body = sender.bodies[sender.sent] = os.urandom(20_000)
        sender.raw.send(Op.SEND, 1, sender.sent, [[body, {"n": sender.sent}]])
        sender.messages -= 1
        sender.bytes -= cost(body, sender.sent)
        while sender.confirmed < sender.sent:
            assert sender.take(20)
    with connection(server) as early:
        ch = early.channel()
        ch.queue_declare("failing", durable=True)
        for _ in range(2):
            ch.basic_publish("", "failing", b"not durable")
    theirs = fill_up(small_disk)
    sender.fill()
    assert sender.reason is not None
    assert sender.reason.startswith("disk-low")
    failures_are_taken(server)
    confirmed = dict(sender.bodies)
    assert len(confirmed) >= 50
    first = sorted(confirmed)[: len(confirmed) // 2]
    with Raw(server.url) as raw:
        raw.send(Op.SUBSCRIBE, 2, 1, "disk", {"prefetch": len(first)})
        raw.until(Op.RESULT)
        got: list[int] = []
        while len(got) < len(first):
            got += [message[4]["n"] for message in raw.until(Op.DELIVER)[3]]
        raw.send(Op.GIVEN, 1, len(got))
        raw.send(Op.ACK, 1, 2, [1, len(got)], None, 5)
        raw.until(Op.RESULT)
        raw.send(Op.CLOSE, 6)
        raw.until(Op.CLOSED)
    assert got == first
    theirs.unlink()
    sender.resume()
    sender.raw.close()
    server.kill()
    server.start()
    left = {number: body for number, body in confirmed.items() if number not in first}
    assert drain(server.url, left, len(left)) == set(left)
    assert server.stop() == 0


@pytest.mark.parametrize("killed", [True, False])
def test_a_start_on_a_full_disk_finds_room(server: Server, small_disk: Path, killed: bool) -> None:
    """In what the write-ahead log takes already, or in the reserve, at the latest where a clean stop gave the log's room back."""
    sender = Sender(server.url)
    sender.fill()
    confirmed = dict(sender.bodies)
    sender.raw.close()
    if killed:
        server.kill()
    else:
        server.stop()
    theirs = fill_up(small_disk)
    server.start()
    if not killed:
        server.logged("the reserve is given up")
    theirs.unlink()
    assert drain(server.url, confirmed, len(confirmed)) == set(confirmed)
    assert server.stop() == 0
    assert "Traceback" not in server.log_path.read_text()


def deliver(raw: Raw, count: int) -> None:
    while count > 0:
        count -= len(raw.until(Op.DELIVER)[3])


def fail_each(raw: Raw, rounds: int, count: int) -> int:
    """Every message fails so often, each time with a traceback of its own; returns the last tag."""
    last = 0
    for turn in range(rounds):
        deliver(raw, count)
        raw.send(Op.GIVEN, 1, last + count)
        for tag in range(last + 1, last + count + 1):
            report = {"error_type": "Failed", "error_text": f"{turn} {tag}", "traceback": os.urandom(6_000).hex()}
            raw.send(Op.ACK, 1, 3, [tag, tag], report)
        last += count
    return last


def test_on_a_full_disk_history_gives_way_and_the_reserve_stays_for_what_must_be_written(server: Server, small_disk: Path) -> None:
    rounds, count = 8, 200
    with Raw(server.url) as raw:
        raw.producer("failing")
        raw.send(Op.SEND, 1, 1, [[b"message"]] * count)
        raw.until(Op.CONFIRM)
        theirs = fill_up(small_disk)
        raw.send(Op.SUBSCRIBE, 2, 1, "failing", {"prefetch": count, "redelivery_policy": NO_END})
        raw.until(Op.RESULT)
        last = fail_each(raw, rounds, count)
        deliver(raw, count)
        raw.send(Op.CALL, 3, "statistics", {})
        assert raw.until(Op.RESULT)[2]["journal"]["history_dropped"] > 0
        theirs.unlink()
        raw.send(Op.ACK, 1, 2, [last + 1, last + count], None, 9)
        assert raw.until(Op.RESULT)[1:] == [9, {"not_held": []}]
    assert server.stop() == 0
    log = server.log_path.read_text()
    assert log.count("no history is written") == 1
    assert "Traceback" not in log
