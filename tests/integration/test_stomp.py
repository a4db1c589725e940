"""STOMP against a real broker: stomp.py as programs use it, and frames by hand."""

from __future__ import annotations

import queue
import re
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
import stomp

from homing.client import blocking
from tests.amqp_support import AMQP, channel
from tests.process import ROOT, HomingCommand, Server
from tests.stomp_support import STOMP, Link, StompRefused, stomp_place

VERSIONS = {"1.0": stomp.StompConnection10, "1.1": stomp.StompConnection11, "1.2": stomp.StompConnection12}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(
        tmp_path_factory.mktemp("stomp"),
        {**STOMP, **AMQP, "address-settings": {"hasty": {"slow-consumer-age": 200, "slow-consumer-policy": "kill"}}},
    )
    server.start()
    yield server
    server.close()


class Listener(stomp.ConnectionListener):  # type: ignore[misc]  # stomp.py says nothing of its types
    def __init__(self) -> None:
        self.messages: queue.Queue[Any] = queue.Queue()
        self.receipts: queue.Queue[str] = queue.Queue()
        self.errors: list[str] = []

    def on_message(self, frame: Any) -> None:
        self.messages.put(frame)

    def on_receipt(self, frame: Any) -> None:
        self.receipts.put(frame.headers["receipt-id"])

    def on_error(self, frame: Any) -> None:
        self.errors.append(frame.headers["message"])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_program_of_stomp_py_works_unchanged(broker: Server, version: str) -> None:
    listener, program = Listener(), VERSIONS[version]([stomp_place(broker)], **({} if version == "1.0" else {"heartbeats": (4000, 4000)}))
    program.set_listener("", listener)
    program.connect("admin", "admin", wait=True)
    for mode in ("auto", "client", "client-individual"):
        destination = f"/queue/{version}.{mode}"
        program.subscribe(destination, id=mode, ack=mode)
        headers = {"persistent": "true", "colour": "red"} if version == "1.0" else {"persistent": "true", "colour": "a:b\\c\nd"}
        for number in range(3):
            program.send(destination, f"{number} é\0", headers=headers, receipt=str(number))
        found = [listener.messages.get(timeout=20) for _ in range(3)]
        assert [each.body for each in found] == ["0 é\0", "1 é\0", "2 é\0"]
        assert {each.headers["colour"] for each in found} == {headers["colour"]}
        assert [listener.receipts.get(timeout=20) for _ in range(3)] == ["0", "1", "2"]
        for each in {"auto": [], "client": found[-1:], "client-individual": found}[mode]:
            name = each.headers["ack" if version == "1.2" else "message-id"]
            program.ack(name) if version != "1.1" else program.ack(name, mode)
        program.unsubscribe(mode)
    program.begin("t")
    program.send(f"/queue/{version}.t", "x", transaction="t")
    program.commit("t")
    program.disconnect(receipt="bye")
    assert listener.receipts.get(timeout=20) == "bye"
    assert listener.errors == []
    with blocking.connect(broker.url) as inspector:
        left = {each["name"]: each["messages"] for each in inspector.listing("queues") if each["name"].startswith(version)}
        assert {name: count for name, count in left.items() if count} == {f"{version}.t": 1}


def test_a_program_looks_into_a_queue_and_what_it_has_repeated_is_listed_and_cancelled(broker: Server, homing: HomingCommand) -> None:
    listener, program = Listener(), stomp.StompConnection12([stomp_place(broker)])
    program.set_listener("", listener)
    program.connect(wait=True)
    for number in range(3):
        program.send("/queue/shown", str(number), headers={"persistent": "true"})
    program.send("/queue/shown", "again", headers={"AMQ_SCHEDULED_PERIOD": "50", "AMQ_SCHEDULED_REPEAT": "1"})
    hourly = {"AMQ_SCHEDULED_PERIOD": "3600000", "AMQ_SCHEDULED_REPEAT": "2"}
    program.send("/queue/shown", "much later", headers=hourly)
    program.send("/queue/shown", "kept", headers={**hourly, "persistent": "true", "AMQ_SCHEDULED_DELAY": "7200000"}, receipt="sent")
    assert listener.receipts.get(timeout=20) == "sent"
    for _ in range(2):
        program.subscribe("/queue/shown", id="b", headers={"browser": "true"})
        shown = [listener.messages.get(timeout=20)]
        while "browser" not in shown[-1].headers:
            shown.append(listener.messages.get(timeout=20))
        assert [each.body for each in shown[:3]] == ["0", "1", "2"]
        program.unsubscribe("b")
    program.subscribe("/queue/shown", id="s")
    assert sorted(listener.messages.get(timeout=20).body for _ in range(5)) == ["0", "1", "2", "again", "again"]
    with blocking.connect(broker.url) as inspector:
        assert sum(each["messages"] for each in inspector.call("due", queue="shown")["due"]) == 6
    first, second = homing.json("retrying", "shown", "--repeated", url=broker.url)
    assert [(each["messages"], each["period_ms"]) for each in (first, second)] == [(3, 3_600_000)] * 2
    assert 3_500_000 < second["due_at_ms"] - first["due_at_ms"] < 3_700_000
    homing("delete", str(first["message_id"]), "--yes", url=broker.url)
    homing("dead", "delete", "shown", "--living", "--property", f"scheduledJobId={second['job']}", "--yes", url=broker.url)
    (left,) = homing.json("retrying", "shown", "--repeated", url=broker.url)
    assert (left["job"], left["messages"], left["due_at_ms"]) == (first["job"], 2, first["due_at_ms"] + 3_600_000)
    assert first["job"] in homing("retrying", "shown", "--repeated", url=broker.url).stdout
    program.disconnect()


def test_a_program_consumes_by_a_pattern_what_is_there_and_what_is_made_later(broker: Server) -> None:
    listener, program = Listener(), stomp.Connection([stomp_place(broker)])
    program.set_listener("", listener)
    program.connect(wait=True)
    program.send("/queue/wide.a", "0")
    program.subscribe("/queue/wide.>", id="q", ack="client")
    program.subscribe("/topic/wide.*", id="t", headers={"receipt": "subscribed"})
    assert listener.receipts.get(timeout=20) == "subscribed"
    for destination in ("/queue/wide.b.c", "/topic/wide.d"):
        program.send(destination, "1")
    found = {listener.messages.get(timeout=20).headers["destination"] for _ in range(3)}
    assert found == {"/queue/wide.a", "/queue/wide.b.c", "/topic/wide.d"}
    program.disconnect()


def test_programs_of_rabbitmq_s_two_protocols_meet_at_an_exchange(broker: Server, homing: HomingCommand) -> None:
    stomper, listener = stomp.Connection12([stomp_place(broker)]), Listener()
    stomper.set_listener("", listener)
    stomper.connect(wait=True)
    with channel(broker) as amqp:
        amqp.exchange_declare("meeting", "topic")
        amqp.queue_declare("met")
        amqp.queue_bind("met", "meeting", "to.amqp")
        stomper.subscribe("/exchange/meeting/to.*", id="s", headers={"x-queue-name": "stomped", "receipt": "there"})
        assert listener.receipts.get(timeout=20) == "there"
        amqp.basic_publish("meeting", "to.stomp", b"1", pika.BasicProperties(headers={"n": "1"}))
        told = listener.messages.get(timeout=20)
        assert (told.headers["destination"], told.headers["n"], told.body) == ("/exchange/meeting/to.stomp", "1", "1")
        stomper.send("/exchange/meeting/to.amqp", "2", headers={"n": "2", "correlation-id": "c"}, receipt="sent")
        assert listener.receipts.get(timeout=20) == "sent"
        method, properties, body = amqp.basic_get("met", auto_ack=False)
        assert (method.exchange, method.routing_key, properties.headers, properties.correlation_id, body) == (
            *("meeting", "to.amqp", {"n": "2"}, "c", b"2"),
        )
        message_id = properties.message_id
        assert "to exchange meeting, routing key to.amqp" in homing("history", message_id, url=broker.url).stdout
    stomper.disconnect()


def test_a_session_by_hand_with_the_line_ends_of_others(broker: Server) -> None:
    with socket.create_connection(stomp_place(broker), 20) as typed:
        typed.sendall(b"\r\nSTOMP\r\naccept-version:1.2\r\nhost:anywhere\r\n\r\n\0\n")
        typed.sendall(b"SEND\r\ndestination:typed\r\nreceipt:1\r\n\r\nhello\0\r\n\r\nNONSENSE\n\n\0")
        told = b""
        while b"ERROR" not in told:
            told += typed.recv(4096)
        assert told.startswith(b"CONNECTED\nversion:1.2\nserver:homing/")
        assert b"RECEIPT\nreceipt-id:1\n\n\0\nERROR\nmessage:'NONSENSE' is no command" in told


def test_the_sessions_that_the_docs_have_typed(broker: Server) -> None:
    for commands, last in zip(_typed(), (b"RECEIPT\nreceipt-id:1\n\n\0\n", b"\n\nthree breads\0\n"), strict=True):
        with socket.create_connection(stomp_place(broker), 20) as typed:
            typed.sendall(subprocess.run(["bash", "-c", commands], capture_output=True, check=True).stdout)
            told = b""
            while not told.endswith(last):
                told += typed.recv(4096)
        assert told.startswith(b"CONNECTED\n")


def _typed() -> list[str]:
    """What goes into nc."""
    return re.findall(r"^\((printf .*); sleep 1\) \| nc ", (ROOT / "docs" / "interoperability.md").read_text(), re.MULTILINE)


def test_doctor_says_what_a_stomp_program_would_do(broker: Server, tmp_path: Path) -> None:
    homing, link = HomingCommand(tmp_path), Link(broker)
    homing.url = broker.url
    for mode in ("auto", "client"):
        link.sure("SUBSCRIBE", id=mode, destination="/queue/looked.at", ack=mode)
    link.sure("SEND", destination="/queue/looked.at")
    auto, client = homing.json("doctor", "looked.at")
    assert [auto["acknowledges"], client["acknowledges"]] == ["when it is given a message", "as its program says"]
    assert "(ack:client-individual)" in auto["advice"][0]
    assert ["each NACK" in client["advice"][0], "persistent:true" in client["advice"][1]] == [True, True]
    other = Link(broker)
    other.sure(
        "SUBSCRIBE", id="i", destination="/queue/instrumented", ack="client", homing_host="web-3", homing_instrumented="stomp.py 8.2"
    )
    (instrumented,) = homing.json("doctor", "instrumented")
    assert (instrumented["instrumented"], instrumented["host"], instrumented["reports"]["before"]) == ("stomp.py 8.2", "web-3", 0)
    assert not any("Nobody learns why" in advice for advice in instrumented["advice"])
    other.close()
    link.close()


def test_whoever_is_too_slow_is_told_of_and_ended(broker: Server, homing: HomingCommand) -> None:
    link = Link(broker)
    link.sure("SUBSCRIBE", id="s", destination="/queue/hasty", ack="client-individual")
    link.sure("SEND", b"x", destination="/queue/hasty")
    with pytest.raises(StompRefused, match="its consumer of queue hasty is slow: it has message"):
        [*iter(link.next, None)]
    link.close()
    with blocking.connect(broker.url) as inspector:
        (event,) = [each for each in inspector.listing("events") if each["event"] == "consumer.slow"]
        (message,) = inspector.call("peek", queue="hasty")["messages"]
    assert (event["queue"], event["unsettled"], event["command"]) == ("hasty", 1, "homing consumers hasty")
    assert (message["state"], message["failed"]) == ("ready", 0)


def test_whoever_is_killed_is_blamed_and_whoever_is_silent_is_given_up(broker: Server) -> None:
    silent, killed, other = Link(broker, heart_beat="1000,0"), Link(broker), Link(broker, client_id="a program")
    with blocking.connect(broker.url) as inspector:
        found = {each["client"]: each["protocol"] for each in inspector.listing("connections")}
    assert found["a program"] == "stomp"
    killed.sure("SUBSCRIBE", id="s", destination="/queue/work", ack="client")
    other.sure("SEND", b"x", destination="/queue/work")
    assert killed.next().headers.get("redelivered") is None
    killed.close()
    other.sure("SUBSCRIBE", id="s", destination="/queue/work", ack="client-individual")
    told = other.next()
    assert (told.headers["redelivered"], told.headers["JMSXDeliveryCount"], told.body) == ("true", "2", b"x")
    other.sure("NACK", id=told.headers["ack"], reason="no paper", error_type="PrinterError", retryable="false")
    with blocking.connect(broker.url) as inspector:
        history = inspector.call("history", message_id=int(told.headers["message-id"]))
    assert [each["outcome"] for each in history["attempts"]] == ["connection-lost", "nack"]
    fault = history["attempts"][1]["fault"]
    assert (fault["error_type"], fault["reason"]) == ("PrinterError", "no paper")
    with pytest.raises((EOFError, ConnectionResetError)):
        silent.next()
    for link in (silent, other):
        link.close()


def test_memory_stays_bounded_where_frames_never_end(start_server: Callable[..., Server]) -> None:
    broker = start_server({**STOMP, "limits": {"max-message-bytes": "1MiB"}})
    good = Link(broker)
    for endless in (b"SEND\n" + b"a" * 200_000, b"SEND\n" + b"a:b\n" * 50_000, b"SEND\n\n" + b"x" * 1_300_000):
        hostile = Link(broker)
        hostile.socket.sendall(endless)
        with pytest.raises(StompRefused, match="more than"):
            hostile.next()
        hostile.close()
    assert good.sure("SEND", b"x", destination="/queue/a") == []
    good.close()


def test_a_pattern_is_of_a_thousand_queues_and_of_no_more(broker: Server) -> None:
    link = Link(broker)
    for number in range(1000):
        link.send("SEND", b"%d" % number, destination=f"/queue/many.{number}")
    early = link.sure("SUBSCRIBE", id="s", destination="/queue/many.*")
    found = {each.body for each in early} | {link.next("MESSAGE").body for _ in range(1000 - len(early))}
    link.sure("SEND", b"one too many", destination="/queue/many.1000")
    link.send("SEND", b"again", destination="/queue/many.7")
    assert (len(found), link.next("MESSAGE").body) == (1000, b"again")
    broker.logged("pattern-left-out", "/queue/many.1000")
    link.close()


def test_of_a_topic_whose_subscription_is_slow_the_oldest_give_way(broker: Server) -> None:
    listener, program = Listener(), stomp.Connection([stomp_place(broker)])
    program.set_listener("", listener)
    program.connect(wait=True)
    limit = {"activemq.prefetchSize": "2", "activemq.maximumPendingMessageLimit": "3", "receipt": "there"}
    program.subscribe("/topic/crowded", id="s", ack="client-individual", headers=limit)
    assert listener.receipts.get(timeout=20) == "there"
    for number in range(10):
        program.send("/topic/crowded", str(number), receipt=str(number))
        assert listener.receipts.get(timeout=20) == str(number)
    seen = []
    for _ in range(7):
        frame = listener.messages.get(timeout=20)
        seen.append(frame.body)
        program.ack(frame.headers["message-id"], "s")
    assert seen == ["0", "1", "5", "6", "7", "8", "9"]
    program.disconnect()


def test_an_answer_comes_to_a_queue_of_ones_own_by_the_name_that_rabbitmq_has_for_it(broker: Server) -> None:
    asker, server = Link(broker), Link(broker)
    server.sure("SUBSCRIBE", id="s", destination="/queue/questions")
    asker.sure("SUBSCRIBE", id="answers", destination="/temp-queue/answers")
    asker.send("SEND", b"?", destination="/queue/questions", reply_to="/temp-queue/answers")
    place = server.next("MESSAGE").headers["reply-to"]
    server.send("SEND", b"!", destination="/reply-queue/" + place.removeprefix("/queue/"))
    told = asker.next("MESSAGE")
    assert (told.body, told.headers["destination"]) == (b"!", "/temp-queue/answers")
    asker.close()
    server.close()


def test_two_virtual_hosts_have_each_its_own_queue_of_one_name(broker: Server) -> None:
    with blocking.connect(broker.url) as inspector:
        inspector.call("add-vhost", name="shop")
    listeners = {}
    for host in ("/", "shop", "the name of a machine"):
        program = stomp.StompConnection12([stomp_place(broker)], vhost=host)
        listeners[host] = listener = Listener()
        program.set_listener("", listener)
        program.connect(wait=True)
        program.send("/queue/alike", host, receipt="sent")
        assert listener.receipts.get(timeout=20) == "sent"
        program.disconnect()
    with blocking.connect(broker.url) as inspector:
        found = {each["name"]: each["messages"] for each in inspector.listing("queues") if each["name"].endswith("alike")}
    assert sorted(found.values()) == [1, 2], found
