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
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

import homing as client
from homing.__main__ import main as homing_command
from homing.client import AckMode, blocking
from homing.journal.read.queries import JournalReader
from tests.process import ROOT, HomingCommand, Server, in_the_tables, wait_until

SETTINGS = {
    "#": {"dead-letter-address": "DLA", "auto-create-dead-letter-resources": True, "max-delivery-attempts": 2, "redelivery-delay": "20ms"},
    "later.#": {"redelivery-delay": "1h"},
    "fades": {"keep-failed": False},
}

#: What is beyond so many is only on disk.
WINDOW = 20


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    config = {"amqp": {"port": 0}, "address-settings": SETTINGS, "limits": {"window-messages": WINDOW}}
    server = Server(tmp_path_factory.mktemp("operate"), config)
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


def test_whose_policy_holds_where_a_consumer_brought_its_own(broker: Server, shell: HomingCommand) -> None:
    url = f"{broker.url}?redeliveryPolicyMap.own.>.initialRedeliveryDelay=3600000"
    with blocking.connect(url) as connection, connection.session(AckMode.INDIVIDUAL) as session:
        session.producer("own.a").send_many([b"1", b"2"])
        consumer = session.consumer("own.a")
        first, second = (consumer.receive(timeout_ms=20_000) for _ in range(2))
        assert first is not None
        assert second is not None
        first.nack()
        wait_until("the first waits", lambda: shell.json("history", str(first.message_id))["attempts"])
        (mine,) = [each for each in shell.json("consumers") if each["queue"] == "own.a"]
        assert mine["redelivery_policy"]["initial_redelivery_delay_ms"] == 3_600_000
        assert [each["own_policies"] for each in shell.json("connections") if each["connection"] == mine["connection"]] == [1]
        assert "tried again by its own redelivery policy" in shell("why", str(second.message_id)).stdout
        assert "by its consumer's own policy" in shell("history", str(first.message_id)).stdout


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
    assert "This removes 3 messages of queue jobs for good" in refused.stderr
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
        *(["why", "999999"], ["delete", "999999"], ["move", "999999", "DLQ.nobody"]),
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


def test_queues_and_status_count_what_became_of_messages(shell: HomingCommand) -> None:
    before = shell.json("status")["messages"]
    shell("send", "counted", "--body", "x", "--count", "4")
    shell("send", "counted", "--body", "x", "--non-durable")
    shell("receive", "counted", "--count", "2")
    shell("receive", "counted", "--fail", "no")
    wait_until("it is back", lambda: queue(shell, "counted")["pending"] == 3)
    shell("receive", "counted", "--timeout", "20s", "--fail", "no")
    wait_until("it is dead", lambda: queue(shell, "DLQ.counted").get("messages") == 1)
    found = queue(shell, "counted")
    expected = {"sent": 5, "succeeded": 2, "failed": 2, "retried": 1, "dead_lettered": 1, "delivered": 4, "expired": 0, "pending": 2}
    assert {key: found[key] for key in expected} == expected
    assert queue(shell, "DLQ.counted")["moved_in"] == 1
    assert set(expected) - {"pending"} <= set(found["rates"])
    shell("queue", "delete", "counted", "--yes")
    after = shell.json("status")["messages"]
    grown = {key: after[key] - before[key] for key in ("sent", "succeeded", "failed", "retried", "dead_lettered", "purged")}
    assert grown == {"sent": 5, "succeeded": 2, "failed": 2, "retried": 1, "dead_lettered": 1, "purged": 2}, (
        "the queue's stay with the rest"
    )
    shown = shell("queues").stdout
    assert re.search(r"pending +dead +delivering +scheduled +parked +consumers +in/s +out/s .*moved in", shown), shown
    assert re.search(r"retried +\d", shell("status").stdout)


async def test_connections_tell_who_holds_what_and_one_can_be_closed(shell: HomingCommand, broker: Server) -> None:
    shell("send", "held", "--body", "x" * 5000, "--count", "3")
    async with client.connect(broker.url) as holder, holder.session(client.AckMode.INDIVIDUAL) as session:
        consumer = session.consumer("held", prefetch=10)
        read = await consumer.receive(timeout_ms=20_000)
        assert read is not None
        first = shell.json("connections", "--sort", "memory")[0]
        assert first["memory_bytes"] > 15_000
        assert (first["protocol"], first["consumers"], first["unsettled"]) == ("native", 1, 3)
        assert re.fullmatch(r"127\.0\.0\.1:\d+", first["peer"])
        (listed,) = shell.json("consumers", "held")
        assert (listed["connection"], listed["queue"], listed["unsettled"], listed["given"]) == (first["connection"], "held", 3, 1)
        assert listed["holds_since_ms"] >= first["connected_at_ms"]
        assert listed in shell.json("consumers")
        assert re.search(rf"^{first['connection']} .* native +127.0.0.1:\d+", shell("connections").stdout, re.MULTILINE)
        closed = await asyncio.to_thread(shell.json, "connection", "close", first["connection"])
        assert closed == {"connection": first["connection"], "given_back": 3}
        # The client comes back by itself, and gets them again: what it had read counted as delivered, not as failed. What it had not read
        # may come before that count is on disk.
        await asyncio.to_thread(wait_until, "it is back", lambda: [each["unsettled"] for each in shell.json("consumers", "held")] == [3])
        again = [message for _ in range(3) if (message := await consumer.receive(timeout_ms=20_000)) is not None]
        assert {message.message_id: message.delivery_count for message in again if message.delivery_count > 1} == {read.message_id: 2}
        await again[0].acknowledge()
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


def test_who_waits_for_a_redrive_may_leave_it(shell: HomingCommand, broker: Server) -> None:
    shell("send", "left.alone", "--body", "x", "--count", "2")
    shell("receive", "left.alone", "--count", "4", "--fail", "no", "--timeout", "5s")
    wait_until("both are dead", lambda: queue(shell, "DLQ.left.alone").get("messages") == 2)
    code, shown = on_a_terminal(broker.url, ["redrive", "DLQ.left.alone", "--canary", "1"], until="1 sent")
    (job,) = [each for each in shell.json("redrives") if each["queue"] == "DLQ.left.alone"]
    assert (code, f"redrive {job['job_id']} goes on by itself" in shown, job["state"]) == (130, True, "running")
    number = str(job["job_id"])
    assert "\n  1 sent, " in (said := shell("redrives", "status", number).stdout)
    assert said.endswith("\n  about 1 to go\n")
    shell("redrives", "pause", number)
    # What dies again is not meant, and not counted.
    shell("receive", "left.alone", "--count", "2", "--fail", "no", "--timeout", "5s")
    wait_until("it is dead again", lambda: queue(shell, "DLQ.left.alone").get("messages") == 2)
    assert shell("redrives", "status", number).stdout.endswith("\n  about 1 to go\n")
    shell("queue", "delete", "DLQ.left.alone", "--yes")
    assert "to go" not in shell("redrives", "status", number).stdout
    assert shell.json("redrives", "cancel", number)["state"] == "cancelled"


def test_ctrl_c_while_a_command_is_imported_is_an_end_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "homing.broker.cli.main":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "homing.broker.cli.main", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        homing_command()
    assert (ended.value.code, *capsys.readouterr()) == (130, "", "")


def test_watched_as_json_is_one_document_a_line(broker: Server) -> None:
    command = [sys.executable, "-m", "homing", "status", "--watch", "--json", "--url", broker.url]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        times = [json.loads(process.stdout.readline())["messages"]["since_ms"] for _ in range(2)]
        process.send_signal(signal.SIGINT)
        assert (process.wait(20), times[0]) == (0, times[1])


def test_a_reload_is_a_command(shell: HomingCommand, broker: Server) -> None:
    assert shell.json("reload") == []
    assert Path(broker.config_path).is_file()


def test_a_reload_moves_the_log_and_says_what_waits_for_a_restart(shell: HomingCommand, broker: Server) -> None:
    before = dict(broker.config)
    log = broker.directory / "broker.log"
    broker.config["log"] = {"file": "broker.log", "format": "json", "zone": "local"}
    broker.config["limits"] = {"window-messages": WINDOW, "max-queues": 77}
    broker.write_config()
    said = shell("reload").stdout.splitlines()
    assert {line.partition("  ")[0]: "after a restart" in line for line in said} == {
        "limits.max_queues": True,
        "log.file": False,
        "log.format": False,
        "log.zone": False,
    }
    wait_until("the reload is told of", lambda: "reloaded" in log.read_text())
    assert json.loads(log.read_text().splitlines()[0])["event"] == "reloaded"
    # What cannot be written is found out before anything else is taken up.
    broker.config["log"] = {"file": "no/such/directory/broker.log"}
    broker.config["addresses"] = {"news": {}}
    broker.write_config()
    refused = shell("reload")
    assert (refused.returncode, "log-unwritable" in shell("reload", "--json").stderr) == (1, True)
    assert "cannot be written: No such file or directory" in refused.stderr
    wait_until("the refusal is told of", lambda: "not-reloaded" in log.read_text())
    # Moved away, it is begun anew; of errors alone nothing is said.
    log.rename(broker.directory / "moved.log")
    broker.config |= {"log": {"file": "broker.log", "level": "error"}, "addresses": {}}
    broker.write_config()
    shell.json("reload")
    broker.config = {**before, "log": {}, "addresses": {}}
    broker.write_config()
    assert {each["path"] for each in shell.json("reload")} == {"log.file", "log.level"}
    assert log.read_text() == ""


def send(shell: HomingCommand, address: str, *more: str) -> int:
    """Sends one message; its number."""
    shell("send", address, "--body", "x", *more)
    return int(shell.json_lines("peek", address, "--count", "1000")[-1]["message_id"])


def reasons(shell: HomingCommand, message_id: int) -> list[str]:
    (place,) = shell.json("why", str(message_id))["places"]
    return [each["code"] for each in place["reasons"]]


async def test_why_a_message_is_not_delivered_now(shell: HomingCommand, broker: Server) -> None:
    first, second = send(shell, "why", "-p", "region=eu"), send(shell, "why", "-p", "region=us")
    assert reasons(shell, second) == ["no-consumer", "behind"]
    assert f"before it in the queue: 1 message, {first} first" in shell("why", str(second)).stdout
    shell("queue", "pause", "why")
    assert reasons(shell, first) == ["queue-paused", "no-consumer"]
    async with client.connect(broker.url) as connection, connection.session(client.AckMode.INDIVIDUAL) as session:
        consumer = session.consumer("why", prefetch=1)
        session.consumer("why", selector="region = 'eu'")
        await connection.call("resume", queue="why")
        held = await consumer.receive(timeout_ms=20_000)
        assert held is not None
        found = await connection.call("why", message_id=held.message_id)
        (reason,) = found["places"][0]["reasons"]
        (name,) = {each["connection"] for each in await connection.listing("consumers", queue="why")}
        assert (reason["code"], reason["connection"], reason["in_transaction"]) == ("held", name, False)
        assert reason["since_ms"] <= reason["given_at_ms"]
        if held.message_id == first:  # the other consumer's selector, and the window of this one
            assert reasons(shell, second) == ["window-full", "selector"]
        reported = shell("why", str(held.message_id)).stdout
        assert f"on connection {name} works on it since" in reported
        refused = shell("delete", str(held.message_id), "--yes")
        assert (refused.returncode, "message-held" in refused.stderr) == (1, True)
        await held.nack(reason="no stock", delay_ms=3_600_000)
        (reason,) = (await connection.call("why", message_id=held.message_id))["places"][0]["reasons"]
        assert (reason["code"], reason["at_ms"] > 0) == ("waits-until", True)
        assert "it waits until" in shell("why", str(held.message_id)).stdout


def test_why_a_message_is_parked(shell: HomingCommand) -> None:
    for address in ("parks", "parks.own"):
        shell("settings", "set", address, "max-delivery-attempts=1", f"dead-letter-address={address if address == 'parks.own' else 'null'}")
        send(shell, address)
        shell("receive", address, "--timeout", "20s", "--fail", "no")
        wait_until("it is parked", lambda address=address: queue(shell, address)["parked"] == 1)
    said = {name: shell("why", str(shell.json_lines("peek", name)[0]["message_id"])).stdout for name in ("parks", "parks.own")}
    for name in said:
        shell("settings", "unset", name)
    assert "its attempts are used up, and it has no dead-letter-address (homing settings set" in said["parks"]
    assert "its attempts are used up, and the queue is where its dead letters would go" in said["parks.own"]


def test_of_dead_letters_reason_error_attempts_and_times_are_shown(shell: HomingCommand) -> None:
    number = send(shell, "dies")
    assert "dead_letter" not in shell.json_lines("peek", "dies")[0]
    for text in ("no stock", "still no stock"):
        shell("receive", "dies", "--timeout", "20s", "--fail", text)
    wait_until("it is dead", lambda: queue(shell, "DLQ.dies").get("messages") == 1)
    (peeked,) = shell.json_lines("peek", "DLQ.dies")
    died = peeked["dead_letter"]
    expected = {"reason": "delivery_limit", "queue": "dies", "attempts": 2, "said": "still no stock", "outcome": "nack", "error": None}
    assert {key: died[key] for key in expected} == expected
    fault = peeked["fault"]
    assert (fault["error_class"], fault["text"], died["fault"], died["error_type"]) == ("nack", "still no stock", fault["fault"], None)
    assert f"fault {fault['fault']}" in shell("peek", "DLQ.dies").stdout
    assert peeked["sent_at_ms"] < died["failed_at_ms"] <= died["died_at_ms"]
    assert "dead-lettered from dies at" in shell("peek", "DLQ.dies").stdout
    assert "after 2 failed attempts: its attempts are used up; still no stock" in shell("peek", "DLQ.dies").stdout
    (place,) = shell.json("why", str(number))["places"]
    assert (place["queue"], place["died"]["reason"], place["reasons"]) == ("DLQ.dies", "delivery_limit", [{"code": "no-consumer"}])
    (received,) = shell.json_lines("receive", "DLQ.dies")
    assert received["dead_letter"] == died
    assert "is in no queue any more: succeeded from DLQ.dies" in shell("why", str(number)).stdout
    assert shell("delete", str(number), "--yes").returncode == 4


def test_of_dead_letters_that_are_not_durable_it_is_said_what_others_of_their_fault_failed_of(shell: HomingCommand) -> None:
    send(shell, "fades", "--non-durable")
    assert shell.json_lines("peek", "fades")[0]["fault"] is None
    for _ in range(2):
        shell("receive", "fades", "--timeout", "20s", "--fail", "no stock")
    wait_until("it is dead", lambda: queue(shell, "DLQ.fades").get("messages") == 1)
    (peeked,) = shell.json_lines("peek", "DLQ.fades")
    assert [peeked["dead_letter"][key] for key in ("attempts", "said", "fault_text")] == [2, None, "no stock"]
    assert "its attempts are used up; like others of its fault, no stock" in shell("peek", "DLQ.fades").stdout


@pytest.mark.parametrize("where", ["in memory", "on disk"])
def test_one_message_is_moved_and_one_deleted(shell: HomingCommand, where: str) -> None:
    source, target = f"from {where}", f"to {where}"
    shell("queue", "create", target, "max-length=1", "overflow=reject-publish")
    shell("send", source, "--body", "x", "--count", str(2 * WINDOW))
    numbers = [each["message_id"] for each in shell.json_lines("peek", source, "--count", "1000")]
    moved, gone, third = map(str, numbers[:3] if where == "in memory" else numbers[-3:])
    assert (reasons(shell, int(gone))[-1] == "on-disk") is (where == "on disk")
    assert shell("move", moved, "nowhere").returncode == 4
    assert shell.json("move", moved, target) == {"message_id": int(moved), "source": source, "queue": target}
    assert shell("delete", gone).returncode == 2
    assert shell.json("delete", gone, "--yes") == {"message_id": int(gone), "messages": 1, "queues": [source]}
    ended = shell.json("why", gone)["ended"]
    assert (ended["outcome"], ended["reason"], ended["queue"]) == ("purged", "deleted", source)
    full = shell("move", third, target)
    assert (full.returncode, "queue-full" in full.stderr) == (1, True)
    left = [each["message_id"] for each in shell.json_lines("peek", source, "--count", "1000")]
    assert left == [each for each in numbers if each not in (int(moved), int(gone))], "what stayed has kept its place"
    assert [each["message_id"] for each in shell.json_lines("peek", target)] == [int(moved)]
    assert f"moved by hand to {target}" in shell("history", moved).stdout
    assert (queue(shell, source)["moved_out"], queue(shell, source)["purged"], queue(shell, target)["moved_in"]) == (1, 1, 1)
    assert [each["message_id"] for each in shell.json_lines("receive", target)] == [int(moved)]


def test_a_message_that_is_in_several_queues(shell: HomingCommand) -> None:
    for name in ("left", "right"):
        shell("queue", "create", name, "--address", "both", "--routing-type", "multicast")
    shell("send", "both", "--body", "x", "--non-durable")
    number = str(shell.json_lines("peek", "left")[0]["message_id"])
    assert {each["queue"] for each in shell.json("why", number)["places"]} == {"left", "right"}
    several = shell("move", number, "jobs-of-nobody")
    assert several.returncode == 4
    assert shell("move", number, "left").returncode == 2
    assert shell.json("delete", number, "--queue", "left", "--yes")["queues"] == ["left"]
    assert shell.json("move", number, "left", "--from", "right")["source"] == "right"
    assert queue(shell, "right")["messages"] == 0


def origin(shell: HomingCommand, address: str, key: str) -> dict[str, Any]:
    """What holds for an address, and where it came from."""
    found: dict[str, Any] = next(each for each in shell.json("explain", address)["settings"] if each["key"] == key)
    return found


def test_dead_letters_are_not_received_by_mistake(shell: HomingCommand) -> None:
    shell("send", "doomed", "--body", "x", "--count", "3")
    assert shell.url is not None
    for _ in range(2):
        shell("receive", "doomed", "--count", "3", "--fail", "no")
        time.sleep(0.05)
    wait_until("all are dead", lambda: queue(shell, "DLQ.doomed").get("dead") == 3)
    code, shown = on_a_terminal(shell.url, ["receive", "DLQ.doomed"], typed="n\n")
    assert (code, "DLQ.doomed has 3 dead letters, and what is received is gone" in shown) == (1, True)
    assert queue(shell, "DLQ.doomed")["dead"] == 3
    assert on_a_terminal(shell.url, ["receive", "DLQ.doomed", "--yes"])[0] == 0
    took = shell("receive", "DLQ.doomed")
    assert (took.returncode, "taken away for good: 1 message of DLQ.doomed" in took.stderr) == (0, True)
    assert queue(shell, "DLQ.doomed")["dead"] == 1
    # The queue may have been idle for so long that it was deleted.
    assert shell("receive", "doomed", "--timeout", "50ms").stderr.endswith("nothing came from doomed within the timeout\n")


def test_what_came_into_each_queue_is_what_left_it_and_what_is_there(broker: Server) -> None:
    """Of all that was moved, deleted and purged here, as the journal counts it."""
    in_the_tables(broker)
    with JournalReader(broker.data) as journal:
        for each in journal.queues():
            counts = each["totals"]
            left = ("succeeded", "dead_lettered", "expired", "dropped", "purged", "moved_out", "lost")
            here = each["messages"] + each["transient"]
            assert counts["sent"] + counts["moved_in"] == sum(counts[name] for name in left) + here, each
