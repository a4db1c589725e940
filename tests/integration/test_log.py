"""The log tells the story of a broker: who did what, what failed, and why; and no more than anybody reads."""

from __future__ import annotations

import re
import socket
from collections import Counter
from pathlib import Path

import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from homing.broker.protocols.amqp091.codec_methods import PROTOCOL_HEADER
from homing.client import blocking
from tests.amqp_support import AMQP, PERSISTENT, channel, connect, get
from tests.process import ROOT, Server, wait_until

# pika leaves its sockets to the collector where a connection fails.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
_LINE = re.compile(r"^\S+ (?:INFO|WARNING|ERROR|CRITICAL) (homing\S*): ([a-z]+(?:-[a-z]+)*): (.*)$", re.MULTILINE)
#: What is in bodies and headers here.
_SECRET = "not to be logged"


def lines(server: Server) -> list[tuple[str, str]]:
    return [(event, said) for _, event, said in _LINE.findall(server.log_path.read_text())]


def said(server: Server, event: str) -> list[str]:
    return [each for name, each in lines(server) if name == event]


def closed(server: Server, code: int, **declaration: object) -> None:
    opened = connect(server)
    with pytest.raises((pika.exceptions.ChannelClosedByBroker, pika.exceptions.ConnectionClosedByBroker)) as found:
        opened.channel().queue_declare(**declaration)
    assert found.value.reply_code == code
    if opened.is_open:
        opened.close()


def test_the_log_tells_the_story(tmp_path: Path) -> None:
    server = Server(tmp_path / "broker", {**AMQP, "address-settings": {"#": {"redelivery-delay": 0}}}).start()
    try:
        _story(server)
        wait_until("the last line is written", lambda: len(said(server, "ready")) == 2)
    finally:
        server.close()
    assert _SECRET not in server.log_path.read_text()
    counts = Counter(event for event, _ in lines(server))
    assert (counts["starting"], counts["recovered"], counts["ready"], counts["stopping"], counts["stopped"]) == (2, 2, 2, 1, 1)
    assert sum(counts.values()) < 60, counts
    listed = set(re.findall(r"`([a-z]+(?:-[a-z]+)*)`", (ROOT / "docs/operations.md").read_text()))
    assert not counts.keys() - listed, "docs/operations.md lists the lines"


def _story(server: Server) -> None:
    # Lines are written by a thread of their own: the first may come after the ready line on standard output.
    server.logged("ready: native=127.0.0.1:")
    (start,) = said(server, "starting")
    assert re.fullmatch(rf"Homing \d\S*, commit \w+, configuration {re.escape(str(server.config_path))}", start)
    (recovered,) = said(server, "recovered")
    assert "format 16: 0 queues, 0 messages, in" in recovered
    assert said(server, "ready")[0].startswith("native=127.0.0.1:")
    with channel(server) as ch:
        ch.confirm_delivery()
        _deaths(server, ch)
        _exceptions(server)
        ch.queue_declare("loop", durable=True)
        for _ in range(110):
            ch.basic_publish("", "loop", _SECRET.encode(), PERSISTENT)
            get(ch, "loop", auto_ack=False)
        ch.basic_nack(0, multiple=True, requeue=True)
    _by_hand(server)
    server.stop()
    assert said(server, "stopping")[0].startswith("SIGTERM")
    assert said(server, "stopped")[0].startswith("in order, after ")
    server.start()
    wait_until("the second start is told", lambda: len(said(server, "recovered")) > 1)
    assert re.search(r"format 16: \d queues, \d+ messages?, in .*; the stop before was in order", said(server, "recovered")[1])


def _deaths(server: Server, ch: BlockingChannel) -> None:
    """Thirty of one queue are one line."""
    ch.queue_declare("orders", durable=True)
    _die(ch, 30)
    server.logged("dead-letters: queue orders", "fault-new: ", "fault-growing: ")
    assert said(server, "dead-letters") == ["queue orders: 1 message dead-lettered to DLQ.orders (rejected)"]
    (new,) = said(server, "fault-new")
    assert re.fullmatch(r"fault \S+ of queue orders: \w+", new)
    assert said(server, "fault-growing") == [f"{new}, 10 failures this hour"]


def _die(ch: BlockingChannel, number: int) -> None:
    for _ in range(number):
        ch.basic_publish("", "orders", _SECRET.encode(), pika.BasicProperties(delivery_mode=2, headers={"token": _SECRET}))
        method, _, _ = get(ch, "orders", auto_ack=False)
        ch.basic_reject(method.delivery_tag, requeue=False)


def _exceptions(server: Server) -> None:
    closed(server, 406, queue="orders", durable=False)
    opened = connect(server)
    for _ in range(25):
        with pytest.raises(pika.exceptions.ChannelClosedByBroker):
            opened.channel().queue_declare("nowhere", passive=True)
    opened.close()
    server.logged("exceptions-left-out")
    found = said(server, "channel-exception")
    missing = [each for each in found if "nowhere" in each]
    assert len(missing) == 10
    who = r"connection \S+ \(127\.0\.0\.1:\d+\), user guest, vhost /, channel \d+"
    assert re.fullmatch(who + r", queue\.declare: 404 NOT_FOUND - no queue 'nowhere' in vhost '/'", missing[0])
    assert any("queue.declare: 406 PRECONDITION_FAILED - " in each for each in found)
    assert said(server, "exceptions-left-out")[0].endswith(": 15 more within a minute")
    opened = connect(server)
    opened.channel()
    opened._impl._send_method(1, pika.spec.Basic.Publish(immediate=True), (pika.BasicProperties(), b""))
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
        opened.process_data_events(5)
    host, _, port = server.ready["amqp"].rpartition(":")
    for sent in (b"AMQP\x00\x00\x0a\x00", PROTOCOL_HEADER + b"\x01\x00\x00\x00\x00\x00\x01x\x00"):
        with socket.create_connection((host, int(port)), 5) as raw:
            raw.sendall(sent)
            while raw.recv(4096):
                pass
    refused = r"the protocol header b'AMQP\x00\x00\n\x00' is none that is understood"
    server.logged("connection-exception", "basic.publish: 540 NOT_IMPLEMENTED", refused, "501 FRAME_ERROR")


def _by_hand(server: Server) -> None:
    with blocking.connect(server.url) as native:
        native.call("pause", queue="orders")
        native.call("resume", queue="orders")
        native.call("set-policy", name="p", pattern="^nobody$", definition={"expires": 60_000})
        native.call("set-settings", layers={"nobody": {"expires_ms": 60_000}})
        dead = native.call("peek-dead-letters", queue="DLQ.orders", limit=2)["messages"]
        edits = [{"message_id": dead[0]["message_id"], "body": _SECRET.encode(), "set": {"token": _SECRET}}]
        native.call("edit", queue="DLQ.orders", edits=edits, to="DLQ.orders")
        native.call("delete-message", message_id=dead[1]["message_id"])
        job = native.call("start-redrive", queue="DLQ.orders")["job_id"]
        wait_until("it has ended", lambda: native.call("redrive-status", redrive=job)["state"] == "done")
        fault = native.call("faults", queue="orders")["items"][0]["fault"]
        native.call("mute-fault", fault=fault)
        native.call("fault-fixed", fault=fault, version="3.3")
        native.call("purge", queue="orders")
        native.call("delete-queue", queue="loop")
        native.call("mute-fault", fault=fault, muted=False)
        native.call("fault-fixed", fault=fault)
        with channel(server) as ch:
            _die(ch, 2)
        # One waits for what becomes of its first, the other finds no room.
        cancelled = native.call("start-redrive", queue="DLQ.orders", canary=1)["job_id"]
        native.call("cancel-redrive", redrive=cancelled)
        native.call("create-queue", queue="none", max_length_bytes=1, overflow="drop-head")
        stopped = native.call("start-redrive", queue="DLQ.orders", to="none")["job_id"]
    server.logged("action: delete-queue", "requeue-loop: queue loop: ", f"redrive-ended: redrive {stopped} ")
    actions = said(server, "action")
    by = r"by (\S+ \()?127\.0\.0\.1:\d+\)?"
    for wanted in (
        rf"pause of orders {by}, paused True",
        rf"pause of orders {by}, paused False",
        rf"set-policy of # {by}, policy p",
        rf"set-settings of nobody {by}, settings nobody: expires_ms=60000",
        rf"edit of DLQ\.orders {by}, messages 1",
        rf"delete-message of DLQ\.orders {by}",
        rf"start-redrive of DLQ\.orders {by}",
        rf"mute-fault of orders {by}, fault \S+, muted True",
        rf"fault-fixed of orders {by}, fault \S+, fixed 3\.3",
        rf"purge of orders {by}, messages \d+",
        rf"delete-queue of loop {by}, messages 110",
    ):
        assert [each for each in actions if re.fullmatch(wanted, each)], (wanted, actions)
    assert said(server, "fault-back") == [f"fault {fault} of queue orders: rejected, which was said to be fixed"]
    for wanted, line in zip(
        (
            rf"redrive {job} of queue DLQ\.orders is done, \d+ sent",
            rf"redrive {cancelled} of queue DLQ\.orders is cancelled, [01] sent",
            rf"redrive {stopped} of queue DLQ\.orders is stopped, 0 sent: queue none has no room for what was left",
        ),
        said(server, "redrive-ended"),
        strict=True,
    ):
        assert re.fullmatch(wanted, line)
