"""What an operator does with a running broker: each command on a real one, over both protocols. One broker for all tests here."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

import homing as client
from tests.process import ROOT, HomingCommand, Server, wait_until

SETTINGS = {
    "#": {"dead-letter-address": "DLA", "auto-create-dead-letter-resources": True, "max-delivery-attempts": 2, "redelivery-delay": "20ms"},
    "later.#": {"redelivery-delay": "1h"},
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("operate"), {"amqp": {"port": 0}, "address-settings": SETTINGS})
    server.start()
    yield server
    server.close()


@pytest.fixture
def shell(broker: Server, homing: HomingCommand) -> HomingCommand:
    homing.url = broker.url
    return homing


def queue(shell: HomingCommand, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next((each for each in shell.json("queues") if each["name"] == name), {})
    return found


def on_a_terminal(url: str, words: list[str], typed: str = "", until: str = "") -> tuple[int, str]:
    """The command as a person sees it. ``until``: Ctrl-C once this has been shown twice."""
    controller, terminal = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOMING_URL": url, "TERM": "xterm", "COLUMNS": "200"}
    command = [sys.executable, "-m", "homing", *words]
    with subprocess.Popen(command, cwd=ROOT, stdin=terminal, stdout=terminal, stderr=terminal, env=environment) as process:
        os.close(terminal)
        os.write(controller, typed.encode())
        shown = b""
        while True:
            try:
                data = os.read(controller, 65_536)
            except OSError:  # nobody has the terminal open any more
                break
            shown += data
            if until and shown.count(until.encode()) >= 2:
                process.send_signal(signal.SIGINT)
                until = ""
            if not data:
                break
        os.close(controller)
        return process.wait(20), shown.decode()


def test_a_queue_is_created_filled_paused_purged_and_deleted(shell: HomingCommand) -> None:
    made = shell.json("queue", "create", "jobs", "max-length=3", "overflow=reject-publish", "message-ttl=1h", "--max-consumers", "2")
    assert made["options"] == {"max_length": 3, "overflow": "reject-publish", "message_ttl_ms": 3_600_000, "max_consumers": 2}
    assert made["auto_created"] is False
    assert shell("queue", "create", "jobs", "max-length=4").returncode == 1, "it exists, and was declared otherwise"
    shell("send", "jobs", "--body", "x", "--count", "3")
    assert shell.json("queue", "pause", "jobs")["paused"] is True
    assert shell("receive", "jobs", "--timeout", "50ms").stdout == ""
    assert "jobs goes on" in shell("queue", "resume", "jobs").stdout
    refused = shell("queue", "purge", "jobs")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "3 messages of queue jobs go for good" in refused.stderr
    assert shell.json("queue", "purge", "jobs", "--yes") == {"messages": 3}
    assert (queue(shell, "jobs")["purged"], queue(shell, "jobs")["messages"]) == (3, 0)
    shell("send", "jobs", "--body", "x")
    assert shell("queue", "delete", "jobs", "--yes", "--if-empty").returncode == 1
    assert shell("queue", "delete", "jobs", "--yes").stdout == "jobs is gone, and with it 1 message\n"
    assert not queue(shell, "jobs")


@pytest.mark.parametrize(
    "words",
    [
        *(["queue", "delete", "nowhere"], ["queue", "purge", "nowhere"], ["queue", "pause", "nowhere"], ["queue", "resume", "nowhere"]),
        *(["consumers", "nowhere"], ["connection", "close", "c0"], ["vhost", "delete", "nowhere"]),
    ],
    ids=" ".join,
)
def test_what_is_not_there_is_exit_code_4_and_said(shell: HomingCommand, words: list[str]) -> None:
    done = shell(*words)
    assert (done.returncode, done.stdout) == (4, "")
    assert words[-1] in done.stderr


@pytest.mark.parametrize(
    ("key", "said"),
    [*(("max-lenght=3", "max-length"), ("max-length", "key=value"), ("message-ttl=soon", "250ms"), ("max-length=null", "null"))],
)
def test_a_setting_that_cannot_be_is_a_usage_error(shell: HomingCommand, key: str, said: str) -> None:
    done = shell("queue", "create", "wrong", key)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_a_person_is_asked(shell: HomingCommand, broker: Server) -> None:
    shell("send", "asked", "--body", "x", "--count", "2")
    code, shown = on_a_terminal(broker.url, ["queue", "delete", "asked"], "n\n")
    assert "Queue asked goes for good, with 2 messages and 0 consumers. Go on? [y/N]" in shown
    assert (code, queue(shell, "asked")["messages"]) == (1, 2)
    code, shown = on_a_terminal(broker.url, ["queue", "delete", "asked"], "y\n")
    assert "is gone, and with it 2 messages" in shown
    assert (code, queue(shell, "asked")) == (0, {})


def test_queues_and_statistics_count_what_became_of_messages(shell: HomingCommand) -> None:
    before = shell.json("statistics")["messages"]
    shell("send", "counted", "--body", "x", "--count", "4")
    shell("send", "counted", "--body", "x", "--non-durable")
    shell("receive", "counted", "--count", "2")
    shell("receive", "counted", "--fail", "no")
    shell("receive", "counted", "--timeout", "20s", "--fail", "no")
    wait_until("it is dead", lambda: queue(shell, "DLQ.counted").get("messages") == 1)
    found = queue(shell, "counted")
    expected = {"sent": 5, "succeeded": 2, "failed": 2, "retried": 1, "dead_lettered": 1, "delivered": 4, "expired": 0, "pending": 2}
    assert {key: found[key] for key in expected} == expected
    assert queue(shell, "DLQ.counted")["moved_in"] == 1
    assert found["rates"]["sent"] > 0
    shell("queue", "delete", "counted", "--yes")
    after = shell.json("statistics")["messages"]
    grown = {key: after[key] - before[key] for key in ("sent", "succeeded", "failed", "retried", "dead_lettered", "purged")}
    assert grown == {"sent": 5, "succeeded": 2, "failed": 2, "retried": 1, "dead_lettered": 1, "purged": 2}, (
        "the queue's stay with the rest"
    )
    shown = shell("queues").stdout
    assert re.search(r"pending +delivering +scheduled +parked +consumers +in/s +out/s .*moved in", shown), shown
    assert re.search(r"retried +\d", shell("statistics").stdout)


async def test_connections_tell_who_holds_what_and_one_can_be_closed(shell: HomingCommand, broker: Server) -> None:
    shell("send", "held", "--body", "x" * 5000, "--count", "3")
    async with client.connect(broker.url) as holder, holder.session(client.AckMode.INDIVIDUAL) as session:
        consumer = session.consumer("held", prefetch=10)
        assert await consumer.receive(timeout_ms=20_000)
        first = shell.json("connections", "--by", "memory")[0]
        assert first["memory_bytes"] > 15_000
        assert (first["protocol"], first["consumers"], first["unsettled"]) == ("native", 1, 3)
        assert re.fullmatch(r"127\.0\.0\.1:\d+", first["peer"])
        (listed,) = shell.json("consumers", "held")
        assert (listed["connection"], listed["queue"], listed["unsettled"], listed["given"]) == (first["connection"], "held", 3, 1)
        assert listed in shell.json("consumers")
        assert re.search(rf"{first['connection']} +native +127.0.0.1:\d+", shell("connections").stdout)
        closed = await asyncio.to_thread(shell.json, "connection", "close", first["connection"])
        assert closed == {"connection": first["connection"], "given_back": 3}
        # The client comes back by itself, and gets them again: counted as delivered, not as failed.
        again = await consumer.receive(timeout_ms=20_000)
        assert again is not None
        assert again.delivery_count == 2
        await again.acknowledge()
    assert (queue(shell, "held")["failed"], queue(shell, "held")["succeeded"]) == (0, 1)


def test_an_amqp_connection_is_closed_as_rabbitmq_does(shell: HomingCommand, broker: Server) -> None:
    port = int(broker.ready["amqp"].rpartition(":")[2])
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
        connection.channel().queue_declare("own", exclusive=True)
        (name,) = [each["connection"] for each in shell.json("connections") if each["protocol"] == "amqp"]
        assert queue(shell, "own")
        shell("connection", "close", name)
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="CONNECTION_FORCED - an operator closed this connection"):
            connection.process_data_events(20)
    assert not queue(shell, "own")


def test_what_is_watched_is_shown_again_until_ctrl_c(broker: Server) -> None:
    code, shown = on_a_terminal(broker.url, ["connections", "--watch"], until="unsettled")
    assert (code, shown.count("unsettled") >= 2) == (0, True)


def test_watched_as_json_is_one_document_a_line(broker: Server) -> None:
    command = [sys.executable, "-m", "homing", "statistics", "--watch", "--json", "--url", broker.url]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        times = [json.loads(process.stdout.readline())["messages"]["since_ms"] for _ in range(2)]
        process.send_signal(signal.SIGINT)
        assert (process.wait(20), times[0]) == (0, times[1])


def test_a_reload_is_a_command(shell: HomingCommand, broker: Server) -> None:
    assert shell.json("reload") == []
    assert Path(broker.config_path).is_file()
