"""What users of ActiveMQ ask about most, by programs of stomp.py against a broker that runs."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import stomp

from homing.client import blocking
from tests.process import HomingCommand, Server, wait_until
from tests.stomp_support import STOMP, stomp_place

SETTINGS = {"#": {"redelivery-delay": 0, "max-delivery-attempts": 3}}
PERSISTENT = {"persistent": "true"}


class Program(stomp.ConnectionListener):  # type: ignore[misc]  # stomp.py says nothing of its types
    def __init__(self, server: Server) -> None:
        self.messages: queue.Queue[Any] = queue.Queue()
        self.receipts: queue.Queue[str] = queue.Queue()
        self.connection = stomp.StompConnection12([stomp_place(server)])
        self.connection.set_listener("", self)
        self.connection.connect(wait=True)
        self.send, self.subscribe = self.connection.send, self.connection.subscribe

    def on_message(self, frame: Any) -> None:
        self.messages.put(frame)

    def on_receipt(self, frame: Any) -> None:
        self.receipts.put(frame.headers["receipt-id"])

    def next(self) -> Any:
        return self.messages.get(timeout=20)

    def said(self) -> str:
        return self.receipts.get(timeout=20)

    def leave(self) -> None:
        """Waits for the receipt."""
        self.connection.disconnect(receipt="left")
        while self.said() != "left":
            pass


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("questions"), {**STOMP, "address-settings": SETTINGS}).start()
    yield server
    server.close()


@pytest.fixture
def program(server: Server) -> Iterator[Program]:
    opened = Program(server)
    yield opened
    if opened.connection.is_connected():
        opened.leave()


def counts(server: Server) -> dict[str, int]:
    with blocking.connect(server.url) as inspector:
        return {each["name"]: each["messages"] for each in inspector.listing("queues")}


@pytest.mark.parametrize(("end", "left"), [("kill", ["persistent"]), ("stop", ["persistent", "not"])])
def test_what_is_there_when_the_broker_is_back(start_server: Callable[..., Server], end: str, left: list[str]) -> None:
    server = start_server({**STOMP, "address-settings": SETTINGS})
    before = Program(server)
    before.send("/queue/a", "persistent", headers=PERSISTENT)
    before.send("/queue/a", "not", receipt="sent")
    assert before.said() == "sent"
    getattr(server, end)()
    after = Program(server.start())
    after.send("/queue/a", "later")
    after.subscribe("/queue/a", id="s")
    assert [after.next().body for _ in range(len(left) + 1)] == [*left, "later"]
    after.leave()


def test_producers_wait_where_the_store_is_full_consumers_drain_it_and_it_goes_on_by_itself(start_server: Callable[..., Server]) -> None:
    server = start_server({**STOMP, "broker": {"store-limit": "1MiB"}})
    sender, consumer = Program(server), Program(server)

    def send() -> None:
        for number in range(100):
            sender.send("/queue/a", "x" * 100_000, headers=PERSISTENT, receipt=str(number))

    def waiting() -> Any:
        with blocking.connect(server.url) as inspector:
            return next(each["blocked"] for each in inspector.listing("connections") if each["connection"] == "c1")

    with ThreadPoolExecutor(1) as thread:
        sent = thread.submit(send)
        wait_until("it waits", waiting)
        told, confirmed = waiting(), sender.receipts.qsize()
        assert (told["limit"], confirmed < 100) == ("store-limit", True)
        consumer.subscribe("/queue/a", id="s")
        assert {len(consumer.next().body) for _ in range(100)} == {100_000}
        assert [sender.said() for _ in range(100)] == [str(number) for number in range(100)]
        sent.result(20)
    assert waiting() is None
    sender.leave()
    consumer.leave()


def test_what_is_sent_just_before_the_end_is_there(server: Server, program: Program) -> None:
    for number in range(500):
        program.send("/queue/at.the.end", str(number), headers=PERSISTENT)
    program.connection.disconnect()
    wait_until("all are there", lambda: counts(server).get("at.the.end") == 500)


def test_a_poisoned_message_leaves_after_its_attempts_and_its_neighbours_stay(server: Server, program: Program) -> None:
    program.subscribe("/queue/poisoned", id="s", ack="client-individual")
    for body in ("good", "poison", "fine"):
        program.send("/queue/poisoned", body, headers=PERSISTENT)
    seen = []
    for _ in range(5):
        frame = program.next()
        seen.append(frame.body)
        (program.connection.nack if frame.body == "poison" else program.connection.ack)(frame.headers["ack"])
    assert sorted(seen) == ["fine", "good", "poison", "poison", "poison"]
    wait_until("it has left", lambda: counts(server).get("DLQ.poisoned") == 1 and counts(server)["poisoned"] == 0)


def test_who_is_killed_with_1000_prefetched_loses_none_and_kills_none(server: Server, program: Program) -> None:
    for number in range(1000):
        program.send("/queue/prefetched", str(number), headers=PERSISTENT)
    for _ in range(2):
        killed = Program(server)
        killed.subscribe("/queue/prefetched", id="s", ack="client-individual")
        for _ in range(1000):
            killed.next()
        killed.connection.transport.disconnect_socket()
    program.subscribe("/queue/prefetched", id="s", ack="client-individual", headers={"activemq.prefetchSize": "1"})
    seen = set()
    for _ in range(1000):
        frame = program.next()
        assert frame.headers["redelivered"] == "true"
        seen.add(int(frame.body))
        program.connection.ack(frame.headers["ack"])
    assert seen == set(range(1000))
    assert "DLQ.prefetched" not in counts(server)


def test_who_forgets_to_acknowledge_is_seen_and_said(server: Server, program: Program, homing: HomingCommand) -> None:
    program.subscribe("/queue/forgotten", id="s", ack="client-individual", headers={"activemq.prefetchSize": "3"})
    for _ in range(5):
        program.send("/queue/forgotten", "x")
    held = [program.next() for _ in range(3)]
    (consumer,) = homing.json("consumers", "forgotten", url=server.url)
    assert (consumer["slow"], consumer["blocked"], consumer["unsettled"]) == (True, "it holds as many as it may", 3)
    (waits,) = [each for each in homing.json_lines("peek", "forgotten", url=server.url) if each["state"] == "ready"][:1]
    said = homing("why", str(waits["message_id"]), url=server.url).stdout
    assert "holds 3 of 3 it may hold, and is slow" in said, said
    program.connection.ack(held[0].headers["ack"])
    assert program.next().body == "x"


def test_work_is_shared_evenly_with_a_prefetch_of_1_and_not_with_1000(server: Server, program: Program) -> None:
    other = Program(server)
    for number in range(20):
        program.send("/queue/shared", str(number), receipt=str(number))
    assert [program.said() for _ in range(20)]
    for each in (program, other):
        each.subscribe("/queue/shared", id="s", ack="client-individual", headers={"activemq.prefetchSize": "1"})
    first, second = program.next(), other.next()
    for _ in range(9):
        program.connection.ack(first.headers["ack"])
        other.connection.ack(second.headers["ack"])
        first, second = program.next(), other.next()
    other.leave()
