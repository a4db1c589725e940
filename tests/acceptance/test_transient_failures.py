"""Messages that are not durable, pika's default: every tool over failures sees those that the broker holds, and marks them."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pyarrow.parquet as pq
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.acceptance.semantics_support import name, running
from tests.amqp_support import AMQP, PERSISTENT, channel, get, wait_for_count
from tests.process import HomingCommand, Server, wait_until

# As they were before what fails was kept, and as they are in queues that are not durable.
SETTINGS: dict[str, Any] = {"#": {"message-key-property": "customer", "keep-failed": False}}
OPTIONS: dict[str, Any] = {**AMQP, "http": {"port": 0}}
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture
def ch(server: Server) -> Iterator[BlockingChannel]:
    with channel(server) as opened:
        yield opened


@pytest.fixture(scope="module")
def shell(server: Server, tmp_path_factory: pytest.TempPathFactory) -> HomingCommand:
    command = HomingCommand(tmp_path_factory.mktemp("shell"))
    command.url = server.url
    return command


def declare(ch: BlockingChannel, durable: bool = True) -> tuple[str, str]:
    """A queue and the one that its dead letters go to through an exchange."""
    queue = name("orders")
    dead = f"{queue}.dead"
    ch.queue_declare(dead, durable=durable)
    ch.queue_declare(queue, durable=durable, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    return queue, dead


def publish(ch: BlockingChannel, queue: str, *bodies: int, properties: pika.BasicProperties | None = None) -> None:
    for body in bodies:
        ch.basic_publish("", queue, b'{"n": %d}' % body, properties)


def reject(ch: BlockingChannel, queue: str, number: int) -> None:
    """Of the first so many of the queue."""
    for _ in range(number):
        ch.basic_reject(get(ch, queue, auto_ack=False)[0].delivery_tag, requeue=False)


def bodies(found: list[dict[str, Any]]) -> list[int]:
    return [json.loads(each["body"])["n"] for each in found]


def exported(shell: HomingCommand, queue: str, *which: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in shell("dead", "export", queue, *which, "--out", "-").stdout.splitlines()]


def fault_of(shell: HomingCommand, queue: str) -> dict[str, Any]:
    (found,) = shell.json("faults", queue)
    shown: dict[str, Any] = found
    return shown


@pytest.mark.parametrize("durable", [True, False], ids=["durable queues", "queues that are not"])
def test_three_of_nine_rejected_are_seen_and_sent_back(server: Server, ch: BlockingChannel, shell: HomingCommand, durable: bool) -> None:
    queue, dead = declare(ch, durable)
    publish(ch, queue, *range(9))
    reject(ch, queue, 3)
    wait_for_count(ch, dead, 3)

    lines = {each["queue"]: each for each in shell.json("dead", "list")}
    assert (lines[dead]["messages"], lines[dead]["transient"], lines[dead]["sources"]) == (3, 3, [queue])
    assert shell.json("dead", dead) == shell.json("dead", queue) == [lines[dead]]
    assert f"homing peek {dead} shows them" in shell("dead", queue).stdout
    assert "there is no queue none.such" in shell("dead", "none.such").stderr
    fault = fault_of(shell, queue)
    assert lines[dead]["top_fault"]["fault"] == fault["fault"]
    counts = {key: fault[key] for key in ("error_class", "failures", "waiting", "dead", "transient", "dead_in")}
    assert counts == {"error_class": "rejected", "failures": 3, "waiting": 0, "dead": 3, "transient": 3, "dead_in": [dead]}
    shown = shell.json_lines("peek", dead)
    assert bodies(shown) == [0, 1, 2]
    assert {(each["transient"], each["fault"]["fault"]) for each in shown} == {(True, fault["fault"])}
    assert bodies(exported(shell, dead, "--fault", fault["fault"])) == [0, 1, 2]
    plan = shell.json("redrives", "start", dead, "--dry-run")
    assert (plan["messages"], plan["transient"], plan["exact"]) == (3, 3, True)
    assert [(each["queue"], each["messages"]) for each in plan["to"]] == [(queue, 3)]

    metrics = urllib.request.urlopen(f"http://{server.ready['http']}/metrics", timeout=20).read().decode()
    assert any(dead in line and 'state="dead"' in line and line.endswith(" 3.0") for line in metrics.splitlines())
    assert fault["fault"] in {each["subject"] for each in shell.json("events", "--since", "1h", "--kind", "fault.new")}

    # In text as in JSON; nothing claims that there was no failure.
    dry_runs = ["redrives", "start", dead, "--dry-run"], ["dead", "delete", dead, "--reason", "rejected", "--dry-run"]
    for command in (["dead", "list"], ["peek", dead], *dry_runs, ["why", str(shown[0]["message_id"])]):
        assert "transient" in shell(*command).stdout, command
    life = shell.json("history", str(shown[0]["message_id"]))
    (place,) = life["references"]
    assert (place["queue"], place["transient"], place["fault"]["fault"]) == (dead, True, fault["fault"])
    assert [(each["queue"], each["reason"]) for each in place["hops"]] == [(queue, "rejected")]
    drawn = shell("history", str(shown[0]["message_id"])).stdout
    assert all(
        part in drawn for part in (f"dead-lettered from {queue}", "it was rejected", f"is in {dead}", "transient: a crash of the broker")
    )
    lives = shell.json_lines("history", "--queue", dead, "--reason", "rejected")
    assert [each["message_id"] for each in lives] == [each["message_id"] for each in shown]
    assert "3 of these 3 are transient: not on disk" in shell("history", "--queue", dead).stderr
    assert "of transient messages nothing is kept once they are gone" in shell("history", "1000000").stderr

    # A number that is not there is said to be none, whoever is asked.
    for command in (["dead", "delete", dead], ["dead", "delete", dead, "--yes"], ["dead", "move", dead, queue], ["redrive", dead]):
        gone = shell(*command, "--id", "1000000")
        assert (gone.returncode, f"no message of {dead} fits --id 1000000" in gone.stderr) == (4, True), gone
    assert shell("dead", "delete", dead, "--reason", "expired").stdout == f"0 messages removed from {dead}\n"

    # One is edited, one deleted, one moved; what is left is sent back by a job.
    first, second, _ = (each["message_id"] for each in shown)
    assert len(shell.json("edit", str(first), "--queue", dead, "--set", "seen=1", "--yes")["edited"]) == 1
    assert shell.json("dead", "delete", dead, "--id", str(second), "--yes")["messages"] == 1
    done = shell.json("redrives", "start", dead, "--canary", "1", "--no-stop", "--limit", "1", "--wait")
    assert (done["state"], done["sent"], done["waiting"], done["left"]) == ("done", 1, 1, 0)
    wait_for_count(ch, queue, 8)
    assert fault_of(shell, queue)["waiting"] == fault_of(shell, queue)["transient"] == 2
    for _ in range(8):
        get(ch, queue)
    wait_until("it has succeeded", lambda: shell.json("redrives", "status", str(done["job_id"]))["succeeded"] == 1)
    fault = fault_of(shell, queue)
    assert (fault["waiting"], fault["dead"], fault["succeeded"], fault["redriven"]) == (0, 0, 2, 2)


def test_of_both_kinds_each_has_its_place(server: Server, ch: BlockingChannel, shell: HomingCommand, tmp_path: Path) -> None:
    queue, dead = declare(ch)
    for number in range(12):
        headers = {"customer": f"c{number % 2}"}
        ids = {"message_id": f"m{number}", "app_id": "shop"}
        publish(ch, queue, number, properties=pika.BasicProperties(headers=headers, delivery_mode=2 if number % 3 else None, **ids))
    reject(ch, queue, 12)
    wait_for_count(ch, dead, 12)
    lines = {each["queue"]: each for each in shell.json("dead", "list")}
    assert (lines[dead]["messages"], lines[dead]["transient"], lines[dead]["faults"]) == (12, 4, 1)
    assert bodies(exported(shell, dead)) == [*range(12)]
    # One thing has one sentence, durable or not.
    peeked = shell("peek", dead).stdout.splitlines()
    assert {line.partition(" UTC ")[2] for line in peeked if "dead-lettered" in line} == {"after 1 failed attempt: it was rejected"}
    assert bodies(exported(shell, dead, "--key", "c1", "--reason", "rejected")) == [1, 3, 5, 7, 9, 11]
    assert bodies(exported(shell, dead, "--where", "AMQDurable = 'NON_DURABLE'")) == [0, 3, 6, 9]
    assert bodies(exported(shell, dead, "--amqp-message-id", "m4", "--app-id", "shop")) == [4]
    assert shell("journal", "export", "--out", tmp_path / "dump", "--data", server.ready["data"]).returncode == 0
    rows = pq.read_table(tmp_path / "dump" / "messages", columns=["queue", "amqp_message_id", "app_id"]).to_pylist()
    known = {(each["amqp_message_id"], each["app_id"]) for each in rows if each["queue"] == dead}
    assert known == {(f"m{number}", "shop") for number in range(12) if number % 3}
    plan = shell.json("redrives", "start", dead, "--limit", "5", "--dry-run")
    assert (plan["messages"], plan["transient"]) == (5, 4)
    done = shell.json("redrives", "start", dead, "--newest-first", "--limit", "5", "--no-stop", "--wait")
    assert (done["sent"], done["waiting"]) == (5, 5)
    wait_for_count(ch, queue, 5)
    back = {json.loads(each["body"])["n"]: each["message_id"] for each in shell.json_lines("peek", queue)}
    assert sorted(back) == [7, 8, 9, 10, 11]
    for number in (8, 9):
        told = [shell("history", str(back[number])).stdout.find(f"{step} {queue}") for step in ("sent back to", "entered queue", "is in")]
        assert -1 not in told, number
        assert told[0] < told[-1], number
    ch.queue_declare(f"{dead}.more", durable=True)
    assert shell.json("dead", "move", dead, f"{dead}.more", "--reason", "rejected")["messages"] == 7
    assert bodies(shell.json_lines("peek", f"{dead}.more")) == [*range(7)]
    assert shell.json("faults", "delete", fault_of(shell, queue)["fault"], "--yes")["queues"][f"{dead}.more"] == 7


def test_a_kill_ends_what_was_in_memory_and_an_orderly_stop_keeps_it(tmp_path: Path) -> None:
    with running(tmp_path, SETTINGS, **AMQP) as server:
        command = HomingCommand(tmp_path)
        with channel(server) as ch:
            queue, dead = declare(ch)
            publish(ch, queue, *range(4))
            publish(ch, queue, 4, properties=PERSISTENT)
            reject(ch, queue, 5)
            wait_for_count(ch, dead, 5)
            command.url = server.url
            job = command.json("redrives", "start", dead, "--canary", "3", "--no-stop")
            wait_for_count(ch, queue, 3)
            wait_until("they are sent", lambda: command.json("redrives", "status", str(job["job_id"]))["transient"] == 3)
        assert fault_of(command, queue)["redriven"] == 3
        server.kill()
        server.start()
        command.url = server.url
        wait_until("the rest is sent", lambda: command.json("redrives", "status", str(job["job_id"]))["state"] == "done")
        job = command.json("redrives", "status", str(job["job_id"]))
        assert [job[key] for key in ("sent", "gone", "waiting", "transient")] == [4, 3, 1, 0]
        fault = fault_of(command, queue)
        assert [fault[key] for key in ("failures", "died", "redriven", "waiting", "dead", "transient")] == [5, 5, 4, 1, 0, 0]
        # In order nothing of it ends, what is counted of it goes on, and it is found by its key as before.
        with channel(server) as ch:
            publish(ch, queue, 6, properties=pika.BasicProperties(headers={"customer": "c6"}))
            get(ch, queue, auto_ack=False)
            reject(ch, queue, 1)
            wait_for_count(ch, dead, 1)
        server.restart()
        command.url = server.url
        assert bodies(exported(command, dead, "--key", "c6")) == [6]
        with channel(server) as ch:
            ch.queue_purge(dead)
            publish(ch, queue, 5)
            reject(ch, queue, 2)
            wait_for_count(ch, dead, 2)
            job = command.json("redrives", "start", dead, "--no-stop", "--wait")
            assert [job[key] for key in ("sent", "waiting", "transient")] == [2, 2, 1]
        server.restart()
        job = command.json("redrives", "status", str(job["job_id"]))
        assert [job[key] for key in ("sent", "gone", "waiting", "transient")] == [2, 0, 2, 0]
        fault = fault_of(command, queue)
        assert [fault[key] for key in ("failures", "waiting", "dead", "transient")] == [8, 2, 0, 0]
        with channel(server) as ch:
            assert [get(ch, queue)[2] for _ in range(2)] == [b'{"n": 4}', b'{"n": 5}']
        wait_until("both have succeeded", lambda: command.json("redrives", "status", str(job["job_id"]))["succeeded"] == 2)
        assert [fault_of(command, queue)[key] for key in ("waiting", "succeeded")] == [0, 2]
