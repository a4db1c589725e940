"""The command line against a real broker: every command, as a person and as a program would use it."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
import pytest

from tests import fork_server
from tests.process import ROOT, HomingCommand, Server, wait_until

SETTINGS = {"#": {"max-delivery-attempts": 3, "redelivery-delay": "200ms"}}


@pytest.fixture
def shell(start_server: Callable[..., Server], homing: HomingCommand) -> HomingCommand:
    """The command line, talking to a broker whose policy is three attempts, 200 ms apart."""
    homing.url = start_server({"address-settings": SETTINGS}).url
    return homing


def queue(shell: HomingCommand, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next((each for each in shell.json("queues") if each["name"] == name), {})
    return found


def receive(shell: HomingCommand, address: str, *more: str) -> list[dict[str, Any]]:
    """Waited for as long as it takes: by itself the command gives up after a second."""
    found: list[dict[str, Any]] = shell.json_lines("receive", address, "--timeout", "20s", *more)
    return found


def receive_all(shell: HomingCommand, address: str, count: int, *more: str) -> list[dict[str, Any]]:
    """``count`` messages by ``--count 0``, which ends when nothing comes for a while; so it is asked until it has brought them all."""
    found: list[dict[str, Any]] = []

    def enough() -> bool:
        found.extend(shell.json_lines("receive", address, "--count", "0", "--timeout", "200ms", *more))
        return len(found) >= count

    wait_until("all have come", enough)
    return found


def dead_letter(shell: HomingCommand, address: str, body: str = "x") -> int:
    """Sends one message and fails it until it is dead; returns its number."""
    shell("send", address, "--body", body, "--property", "region=eu")
    for attempt in range(3):
        failed = receive(shell, address, "--fail", f"no stock ({attempt})")
        assert [each["delivery_count"] for each in failed] == [attempt + 1]
    wait_until("it is dead", lambda: queue(shell, f"DLQ.{address}").get("messages") == 1)
    return int(shell.json_lines("peek", f"DLQ.{address}")[0]["message_id"])


def test_what_is_sent_is_received(shell: HomingCommand) -> None:
    sent = shell("send", "orders", "--body", '{"id": 7}', "-p", "region=eu", "-p", "size:=5", "-p", "big:=true", "--priority", "7")
    assert (sent.returncode, sent.stdout) == (0, "sent 1 message to orders, confirmed\n")
    (message,) = receive(shell, "orders")
    assert message["body"] == '{"id": 7}'
    assert message["properties"] == {"region": "eu", "size": 5, "big": True}
    assert (message["priority"], message["delivery_count"], message["redelivered"], message["address"]) == (7, 1, False, "orders")
    assert abs(message["sent_at_ms"] - time.time() * 1000) < 60_000
    assert queue(shell, "orders").get("messages", 0) == 0


def test_each_line_of_a_file_is_a_message(shell: HomingCommand) -> None:
    (shell.directory / "events.jsonl").write_text('{"n": 1}\n\n{"n": 2}\r\n{"n": "é"}')
    *confirmed, last = shell.json_lines("send", "events", "--file", "events.jsonl", "--count", "2")
    assert last == {"address": "events", "sent": 6}
    assert confirmed == [{"line": line, "address": "events", "confirmed": True} for line in (1, 3, 4)] * 2
    bodies = [each["body"] for each in receive_all(shell, "events", 6)]
    assert bodies == ['{"n": 1}', '{"n": 2}\r', '{"n": "é"}'] * 2, "lines end at a line feed, of which alone nothing is kept"


def test_what_comes_through_a_pipe_is_sent_and_confirmed_as_it_comes(shell: HomingCommand) -> None:
    assert shell.url is not None
    command = [sys.executable, "-m", "homing", "send", "piped", "--file", "-", "--json", "--url", shell.url]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as sending:
        assert sending.stdin is not None
        assert sending.stdout is not None
        for number, line in enumerate((b"one\n", b"two\rof it\x0b\xe2\x80\xa8\x85\n"), 1):
            sending.stdin.write(line)
            sending.stdin.flush()
            assert json.loads(sending.stdout.readline()) == {"line": number, "address": "piped", "confirmed": True}
        assert queue(shell, "piped")["pending"] == 2, "while the pipe is open"
        sending.stdin.write(b"three, without an end")
        sending.stdin.close()
        assert json.loads(sending.stdout.readlines()[-1]) == {"address": "piped", "sent": 3}
        assert sending.stderr is not None
        assert sending.stderr.read() == b"there was no address piped: it was made.\n"
    bodies = [each["body"] for each in receive_all(shell, "piped", 3)]
    assert bodies == ["one", {"base64": "dHdvDW9mIGl0C+KAqIU="}, "three, without an end"]


def test_what_is_made_or_not_there_is_told_and_what_may_be_meant(shell: HomingCommand) -> None:
    shell("send", "invoices", "--body", "x")
    assert shell("send", "invoices", "--body", "x").stderr == ""
    made = shell("send", "invioces", "--body", "x")
    assert (made.returncode, made.stderr) == (0, "there was no address invioces: it was made. Did you mean invoices?\n")
    took = shell("receive", "invoicse", "--timeout", "50ms")
    assert "there was no queue invoicse: it was made. Did you mean invoices or invioces?" in took.stderr
    for words in (("peek", "invoice"), ("queue", "purge", "invoice", "--yes"), ("dead", "export", "invoice", "--out", "-")):
        missing = shell(*words)
        assert (missing.returncode, "Did you mean" in missing.stderr, "invoices" in missing.stderr) == (4, True, True), words
    assert "Did you mean" not in shell("peek", "zebra").stderr
    assert "--count" in shell("peek", "invoices", "--cuont", "1").stderr
    assert "peek" in shell("peak", "invoices").stderr


@pytest.mark.parametrize("arguments", [["peek", "orders"], ["peek", "orders", "--json"], ["queues"]])
def test_who_leaves_a_pipe_is_told_nothing(shell: HomingCommand, arguments: list[str]) -> None:
    shell("send", "orders", "--body", "x")
    assert shell.url is not None
    with (shell.directory / "errors").open("w+") as errors:
        broken = fork_server.start([*arguments, "--url", shell.url], shell.directory, stdin=subprocess.DEVNULL, stdout=None, stderr=errors)
        assert broken.stdout is not None
        broken.stdout.close()
        assert broken.wait(20) == 1
        errors.seek(0)
        assert errors.read() == ""


def test_what_a_pipe_did_not_take_stays_in_the_queue(shell: HomingCommand) -> None:
    shell("send", "orders", "--body", "x" * 100, "--count", "2000")
    assert shell.url is not None
    with (shell.directory / "errors").open("w+") as errors:
        arguments = ["receive", "orders", "--count", "0", "--json", "--url", shell.url]
        broken = fork_server.start(arguments, shell.directory, stdin=subprocess.DEVNULL, stdout=None, stderr=errors)
        assert broken.stdout is not None
        assert '"message_id"' in broken.stdout.readline()
        broken.stdout.close()
        assert broken.wait(20) == 1
        errors.seek(0)
        assert re.fullmatch(r"the reader of the pipe has gone: [\d,]+ of [\d,]+ messages given back; --count N takes N\n", errors.read())
        wait_until("all are there again", lambda: queue(shell, "orders")["pending"] == 2000)
        whole = fork_server.start(arguments, shell.directory, stdin=subprocess.DEVNULL, stdout=None, stderr=errors)
        assert whole.stdout is not None
        with whole.stdout:
            assert sum('"message_id"' in line for line in whole.stdout) == 2000
        assert whole.wait(20) == 0
    assert queue(shell, "orders")["messages"] == 0


@pytest.mark.parametrize("mode", ["auto", "client", "dups-ok", "transacted", "individual"])
def test_every_ack_mode_settles_what_it_received(shell: HomingCommand, mode: str) -> None:
    shell("send", "orders", "--body", "x", "--count", "5")
    assert len(receive(shell, "orders", "--count", "3", "--ack-mode", mode)) == 3
    wait_until("the rest is back", lambda: queue(shell, "orders").get("pending") == 2)
    again = receive_all(shell, "orders", 2, "--ack-mode", mode)
    assert [each["delivery_count"] for each in again] == [1, 1], "unread messages are given back uncounted"


def test_a_selector_receives_only_its_own(shell: HomingCommand) -> None:
    shell("send", "orders", "--body", "a", "-p", "region=us")
    shell("send", "orders", "--body", "b", "-p", "region=eu")
    assert [each["body"] for each in receive(shell, "orders", "--where", "region = 'eu'")] == ["b"]
    assert shell("receive", "orders", "--selector", "region = 'eu'", "--timeout", "50ms").returncode == 0, "what it was called before"
    wrong = shell("receive", "orders", "--where", "region = ")
    assert wrong.returncode == 1
    assert "selector" in wrong.stderr
    assert "Traceback" not in wrong.stderr


def test_a_delay_and_a_ttl_are_kept(shell: HomingCommand) -> None:
    shell("send", "later", "--body", "x", "--delay", "1m")
    assert shell("receive", "later", "--timeout", "100ms").stdout == ""
    (waiting,) = shell.json_lines("peek", "later")
    assert waiting["state"] == "scheduled"
    # Due counts from when it is stored, which is a little after its frame came, or a pause of the machine after.
    assert 60_000 <= waiting["due_at_ms"] - waiting["sent_at_ms"] < 90_000
    shell("send", "mortal", "--body", "x", "--ttl", "1h")
    (mortal,) = shell.json_lines("peek", "mortal")
    assert 3_600_000 <= mortal["expires_at_ms"] - mortal["sent_at_ms"] < 3_630_000


def test_binary_bodies_come_out_as_base64(shell: HomingCommand, tmp_path: Path) -> None:
    raw = bytes([0, 159, 146, 150])
    (tmp_path / "raw.bin").write_bytes(raw + b"\n")
    shell("send", "raw", "--file", tmp_path / "raw.bin")
    assert base64.b64decode(shell.json_lines("peek", "raw")[0]["body"]["base64"]) == raw
    assert base64.b64decode(receive(shell, "raw")[0]["body"]["base64"]) == raw


def test_peek_takes_nothing_and_keeps_the_order(shell: HomingCommand) -> None:
    (shell.directory / "n.jsonl").write_text("".join(f"{number}\n" for number in range(130)))
    shell("send", "orders", "--file", "n.jsonl")
    assert [each["body"] for each in shell.json_lines("peek", "orders", "--count", "120")] == [str(number) for number in range(120)]
    assert queue(shell, "orders")["messages"] == 130
    missing = shell("peek", "nowhere")
    assert (missing.returncode, missing.stdout) == (4, "")


def test_history_tells_a_whole_life(shell: HomingCommand) -> None:
    number = dead_letter(shell, "orders")
    reported = shell("history", str(number)).stdout
    expected = ["sent to orders", "region=eu", "entered queue orders", "attempt 1 failed", "reason: no stock (0)", "wait 200 ms, again at"]
    expected += ["attempt 2 failed", "attempt 3 failed", "no more attempts", "dead-lettered to DLQ.orders", "is in DLQ.orders"]
    at = 0
    for words in expected:
        assert words in reported[at:], f"{words!r} is not told after {reported[:at][-80:]!r} in\n{reported}"
        at = reported.index(words, at)
    assert f"homing redrive DLQ.orders --id {number}" in reported
    assert "has 3 attempts there, over 400 ms at most" in " ".join(reported.split())


def test_history_is_the_same_from_the_journal_and_as_json(shell: HomingCommand, start_server: Callable[..., Server]) -> None:
    number = dead_letter(shell, "orders")
    data = shell.directory.parent / "broker" / "data"
    from_broker, from_journal = shell.json("history", str(number)), shell.json("history", str(number), "--data", data)
    assert [each["fault"]["reason"] for each in from_broker["attempts"]] == ["no stock (0)", "no stock (1)", "no stock (2)"]
    assert from_broker["if_sent_back"][0]["attempts"] == 3
    for reported in (from_broker, from_journal):
        del reported["if_sent_back"]
    assert from_broker == from_journal
    unknown = shell("history", "999999999")
    assert (unknown.returncode, unknown.stdout) == (4, "")


def test_history_tells_by_which_rule_it_would_fare_if_it_fails_again(shell: HomingCommand, tmp_path: Path) -> None:
    number, rules = dead_letter(shell, "orders"), tmp_path / "rules.yaml"
    rules.write_text(
        '- {name: sold out, reason: "no stock*", action: dead-letter}\n- {name: late, error-type: TimeoutError, redelivery-delay: 1h}\n'
    )
    assert shell("settings", "set", "orders", "--file", rules).returncode == 0
    (source,) = shell.json("history", str(number))["if_sent_back"]
    assert (source["attempts"], source["rule"]) == (1, {"name": "sold out", "action": "dead-letter"})
    words = " ".join(shell("history", str(number)).stdout.split())
    assert "Should it fail as it did last, rule sold out holds: it is dead-lettered at its first failure." in words


def test_history_tells_how_what_amqp_clients_return_would_fare(start_server: Callable[..., Server], homing: HomingCommand) -> None:
    server = start_server({"address-settings": SETTINGS, "amqp": {"port": 0}})
    homing.url = server.url
    port = int(server.ready["amqp"].rpartition(":")[2])
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
        channel = connection.channel()
        channel.queue_declare("returned", durable=True, arguments={"x-queue-type": "quorum", "x-delivery-limit": 1})
        channel.basic_publish("", "returned", b"x", pika.BasicProperties(delivery_mode=2))
        for _ in range(2):
            wait_until("it is ready", lambda: queue(homing, "returned").get("pending") == 1)
            method, _, _ = channel.basic_get("returned")
            channel.basic_reject(method.delivery_tag, requeue=True)
    wait_until("it is dead", lambda: queue(homing, "DLQ.returned").get("messages") == 1)
    (dead,) = homing.json_lines("peek", "DLQ.returned")
    (source,) = homing.json("history", str(dead["message_id"]))["if_sent_back"]
    explained = homing.json("explain", "returned")
    assert explained["amqp_returns_at_once"]
    assert (source["attempts"], source["life_ms"]) == (2, [explained["min_total_ms"], explained["max_total_ms"]]) == (2, [0, 0])


def test_redrive_sends_back_with_failures_at_0(shell: HomingCommand) -> None:
    number, other = dead_letter(shell, "orders"), None
    shell("send", "orders", "--body", "second")
    for _ in range(3):
        (failed,) = receive(shell, "orders", "--fail", "again")
        other = failed["message_id"]
    wait_until("both are dead", lambda: queue(shell, "DLQ.orders").get("messages") == 2)
    job = shell.json("redrive", "DLQ.orders", "--id", str(number))
    assert (job["state"], job["sent"]) == ("done", 1)
    (back,) = shell.json_lines("peek", "orders")
    assert (back["message_id"], back["failed"]) == (number, 0)
    assert [each["message_id"] for each in shell.json_lines("peek", "DLQ.orders")] == [other]
    said = shell("redrive", "DLQ.orders").stdout
    assert re.match(r"redrive \d+ of DLQ.orders is done, from .*\n  1 sent, ", said), said
    reported = shell("history", str(number)).stdout
    assert "sent back to orders" in reported
    assert "will most likely fail" not in reported
    assert receive(shell, "orders")[0]["delivery_count"] == 4
    assert "succeeded at attempt 1 (delivery 4)" in shell("history", str(number)).stdout


def test_explain_of_a_running_broker_is_that_of_its_file(shell: HomingCommand) -> None:
    file = shell.directory.parent / "broker" / "broker.yaml"
    explained = shell.json("explain", "orders")
    assert explained == shell.json("explain", "orders", "--config", file) == shell.json("policy", "explain", "orders")
    assert explained["max_total_ms"] == 400


def test_the_journal_can_be_checked_and_exported_while_the_broker_runs(shell: HomingCommand, tmp_path: Path) -> None:
    dead_letter(shell, "orders")
    data = tmp_path / "broker" / "data"
    report = shell.json("journal", "check", "--data", data)
    assert report["ok"] is True
    assert report["problems"] == []
    assert report["rows"]["attempt"] == 3
    summary = shell.json("journal", "export", "--data", data, "--out", tmp_path / "dump")
    assert (summary["rows"]["attempts"], summary["rows"]["dead_letters"]) == (3, 1)
    assert (tmp_path / "dump" / "_homing_export.json").is_file()
    again = shell("journal", "export", "--data", data, "--out", tmp_path / "dump")
    assert again.returncode == 1
    assert "out-exists" in again.stderr
    fetched = shell.json("journal", "export", "--url", shell.url or "", "--out", tmp_path / "fetched")
    assert (fetched["rows"], fetched["broker_id"]) == (summary["rows"], summary["broker_id"])
    assert {each.name for each in (tmp_path / "fetched").iterdir()} == {each.name for each in (tmp_path / "dump").iterdir()}
    assert [each.name for each in tmp_path.glob(".fetched*")] == []
    twice = shell("journal", "export", "--url", shell.url or "", "--out", tmp_path / "other", "--since", tmp_path / "dump")
    assert (twice.returncode, (tmp_path / "other").exists()) == (2, False)


def test_the_ready_line_for_people(homing: HomingCommand, tmp_path: Path) -> None:
    import subprocess
    import sys

    from tests.process import ROOT

    (tmp_path / "free.yaml").write_text("native: {port: 0}\n")
    command = [sys.executable, "-m", "homing", "serve", "--config", str(tmp_path / "free.yaml"), "--data", str(tmp_path / "elsewhere")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        ready = re.fullmatch(r"homing ready native=(127\.0\.0\.1:\d+) .*pid=(\d+)\n", line)
        assert ready, line
        assert int(ready[2]) == process.pid
        assert homing("send", "orders", "--body", "x", url=f"homing://{ready[1]}").returncode == 0
        process.terminate()
        assert process.wait(20) == 0
        assert process.stdout.read() == ""
        said = re.findall(r" INFO homing: ([a-z-]+): ", process.stderr.read())
        assert said == ["starting", "recovered", "ready", "stopping", "stopped"]
    assert homing.json("journal", "check", "--data", tmp_path / "elsewhere")["rows"]["reference"] == 1


def test_a_second_broker_on_the_same_data_is_refused(server: Server, homing: HomingCommand) -> None:
    done = homing("serve", "--config", server.config_path, "--data", server.data)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Another broker" in done.stderr
    assert "Traceback" not in done.stderr
    assert homing("queues", url=server.url).returncode == 0


def test_json_of_queues_is_one_document(server: Server, homing: HomingCommand) -> None:
    assert json.loads(homing("queues", "--json", url=server.url).stdout) == []
