"""One filter for all verbs on dead letters: by index what they died of, when and their key; by a look at each the rest."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

import homing
from homing.broker.cli.message_filter import Scan
from homing.client import AckMode, Connection
from tests.acceptance.semantics_support import holds, name, receive, send
from tests.process import ROOT, HomingCommand, Server

COUNT = 60


SETTINGS: dict[str, Any] = {"#": {"max-delivery-attempts": 1, "message-key-property": "customer"}}
# Few stay in memory: the filter finds the others on disk.
OPTIONS: dict[str, Any] = {"limits": {"window-messages": 10}}


async def die(connection: Connection, queue: str) -> None:
    """Bodies 0 to COUNT - 1: of odd ones ValueErrors, of even ones KeyErrors, every tenth is poison; of twenty customers in two regions."""
    for number in range(COUNT):
        properties = {"customer": f"c{number % 20}", "region": "eu" if number < 30 else "us", "n": number}
        await send(connection, queue, b"body %d." % number, properties=properties)
    async with connection.session(AckMode.INDIVIDUAL) as session:
        consumer = session.consumer(queue, prefetch=1)
        for number in range(COUNT):
            error = ValueError(f"row {number}") if number % 2 else KeyError("a")
            await (await receive(consumer)).nack(error=error, retryable=number % 10 > 0)
    await holds(connection, f"DLQ.{queue}", messages=COUNT)


async def bodies(connection: Connection, queue: str, limit: int = 1000, newest_first: bool = False, **wanted: Any) -> list[int]:
    """The numbers of what the filter takes, page by page."""
    found: list[int] = []
    after: int | None = 0
    while after is not None:
        page = await connection.call("peek-dead-letters", queue=queue, filter=wanted, limit=limit, after=after, newest_first=newest_first)
        found += [int(each["body"].split()[1].rstrip(b".")) for each in page["messages"]]
        after = page["next"]
    return found


async def test_all_that_a_filter_knows(connection: Connection) -> None:
    queue = name()
    await die(connection, queue)
    dead, all_of_them = f"DLQ.{queue}", list(range(COUNT))
    faults = {each["error_class"]: each["fault"] for each in (await connection.call("faults", queue=queue))["items"]}
    assert await bodies(connection, dead) == all_of_them
    assert await bodies(connection, dead, limit=7) == all_of_them
    assert await bodies(connection, dead, limit=7, newest_first=True) == all_of_them[::-1]
    odd, poison = all_of_them[1::2], all_of_them[::10]
    assert await bodies(connection, dead, limit=4, fault=faults["ValueError"]) == odd
    assert await bodies(connection, dead, limit=4, newest_first=True, fault=faults["ValueError"][2:9]) == odd[::-1]
    assert await bodies(connection, dead, error_type="KeyError") == all_of_them[::2]
    assert await bodies(connection, dead, limit=3, reason="not-retryable") == poison
    assert await bodies(connection, dead, error_type="KeyError", reason="delivery_limit") == sorted({*all_of_them[::2]} - {*poison})
    assert await bodies(connection, dead, from_queue=queue) == all_of_them
    assert await bodies(connection, dead, from_queue="another") == []
    assert await bodies(connection, dead, key="c7") == [7, 27, 47]
    assert await bodies(connection, dead, key="c10", error_type="KeyError", reason="not-retryable") == [10, 30, 50]
    assert await bodies(connection, dead, key="c7", error_type="KeyError") == []
    page = await connection.call("peek-dead-letters", queue=dead, limit=1000)
    times = [each["entered_at_ms"] for each in page["messages"]]
    ids = [each["message_id"] for each in page["messages"]]
    assert await bodies(connection, dead, message_ids=[ids[40], ids[3], 10**12]) == [3, 40]
    assert await bodies(connection, dead, since_ms=times[20]) == [n for n in all_of_them if times[n] >= times[20]]
    assert await bodies(connection, dead, until_ms=times[20]) == [n for n in all_of_them if times[n] < times[20]]
    within = {"since_ms": times[10], "until_ms": times[50], "error_type": "ValueError"}
    assert await bodies(connection, dead, **within) == [n for n in odd if times[10] <= times[n] < times[50]]
    assert await bodies(connection, dead, limit=2, properties={"region": "us"}) == all_of_them[30:]
    assert await bodies(connection, dead, where="n > 40 AND region = 'us'", error_type="ValueError") == odd[20:]
    assert await bodies(connection, dead, body_contains="body 1") == [1, *range(10, 20)]
    assert await bodies(connection, dead, body_contains=b"dy 13.", properties={"region": "us"}) == []
    # By hand its key stays.
    moved = name()
    await connection.call("create-queue", queue=moved)
    await connection.call("move-dead-letters", queue=dead, to=moved, filter={"key": "c7"})
    await connection.call("move-message", message_id=ids[9], queue=moved)
    assert [await bodies(connection, moved, key=key) for key in ("c7", "c9")] == [[7, 27, 47], [9]]
    await connection.edit(ids[8], properties={"region": "us"})
    async with connection.session(AckMode.INDIVIDUAL) as session:
        await (await receive(session.consumer(queue))).nack(error=ValueError("no"))
    await holds(connection, dead, messages=COUNT - 4)
    assert await bodies(connection, dead, key="c8") == [28, 48, 8]


async def test_what_was_moved_before_its_first_death_is_found_by_its_number(connection: Connection) -> None:
    queue, other = name(), name()
    await connection.call("create-queue", queue=other)
    await send(connection, queue, b"body 0.", b"body 1.")
    for message in (await connection.call("peek", queue=queue))["messages"]:
        await connection.call("move-message", message_id=message["message_id"], queue=other)
    moved = (await connection.call("peek", queue=other))["messages"]
    assert [each["hops"] for each in moved] == [[], []]
    assert await bodies(connection, other, message_ids=[moved[1]["message_id"]]) == [1]
    # And so once more, as it went from disk to disk.
    await connection.call("move-dead-letters", queue=other, to=queue, filter={"message_ids": [moved[1]["message_id"]]})
    assert await bodies(connection, queue, message_ids=[each["message_id"] for each in moved]) == [1]


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ({"colour": "red"}, "invalid-argument"),
        ({"reason": "boredom"}, "invalid-argument"),
        ({"fault": "2-nothing"}, "no-such-fault"),
        ({"fault": "2-"}, "invalid-argument"),
        ({"fault": "2"}, "invalid-argument"),
        ({"fault": ""}, "invalid-argument"),
        ({"since_ms": "yesterday"}, "invalid-argument"),
        ({"message_ids": [1, "2"]}, "invalid-argument"),
        ({"where": "region = "}, "invalid-selector"),
        ({"properties": ["region"]}, "invalid-argument"),
        ({"body_contains": 7}, "invalid-argument"),
        ("all", "invalid-argument"),
    ],
)
async def test_what_is_no_filter_is_refused(connection: Connection, wanted: Any, code: str) -> None:
    queue = name()
    await connection.call("create-queue", queue=queue)
    with pytest.raises(homing.HomingError) as refused:
        await connection.call("peek-dead-letters", queue=queue, filter=wanted)
    assert refused.value.code == code


def stopped(url: str, *words: str, output: Path) -> tuple[list[str], str]:
    """What the command writes to that pipe until Ctrl-C, after the first line of it, ends it; and what it says then."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOMING_URL": url, "COLUMNS": "120"}
    os.mkfifo(output)
    with subprocess.Popen(
        [sys.executable, "-m", "homing", *words], cwd=ROOT, stderr=subprocess.PIPE, env=environment, text=True
    ) as process:
        with output.open() as reading:
            lines = [reading.readline()]
            # It has more to write than the pipe takes.
            process.send_signal(signal.SIGINT)
            lines += reading.readlines()
        said = process.communicate(timeout=40)[1]
    assert process.returncode == 130
    return lines, said


async def test_what_was_stopped_goes_on_where_it_was(connection: Connection, server: Server, tmp_path: Path) -> None:
    queue, many, command = name(), 300, HomingCommand(tmp_path)
    command.url = server.url
    for number in range(many):
        await send(connection, queue, b"-" * 1000, properties={"n": number})
    out, partial = tmp_path / "out.jsonl", tmp_path / "out.jsonl.partial"
    words = ("dead", "export", queue, "--where", "n >= 0", "--out", str(out))
    lines, said = await asyncio.to_thread(stopped, server.url, *words, output=partial)
    assert (len(lines), out.exists()) == (250, False)
    told = re.fullmatch(r"stopped: 250 found, 250 looked at; (--after=\d+) goes on from there\n", said)
    assert told is not None, said
    partial.write_text("".join(lines))
    assert command(*words, told[1]).returncode == 0
    assert [json.loads(line)["properties"]["n"] for line in out.read_text().splitlines()] == list(range(many))
    assert command("dead", "export", queue, "--out", tmp_path / "no" / "such").returncode == 1
    page = command("peek", queue, "--where", "n >= 0", "-n", "250")
    assert page.stderr == f"there may be more: {told[1]}\n"
    assert command.json("dead", "delete", queue, "--where", "n >= 0", "--yes") == {"messages": 0, "looked_at": many}, "nothing died"
    asked = command("dead", "delete", queue, "--where", "n >= 0", "--living")
    assert (asked.returncode, f"at most {many} messages of queue {queue} for good" in asked.stderr) == (2, True)
    assert command.json("dead", "delete", queue, "--where", "n >= 0", told[1], "--living", "--yes") == {"messages": 50, "looked_at": 50}
    assert len(command.json_lines("peek", queue, "--where", "n < 250", "-n", "300")) == 250
    assert command("peek", queue, "--after", "here").returncode == 2


@pytest.mark.parametrize(("acts", "word"), [(False, "found"), (True, "done")])
async def test_how_far_it_is_says_what_was_found_and_what_was_looked_at(acts: bool, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    class Ends:
        async def call(self, *_: object, after: int | None, **__: object) -> dict[str, Any]:
            if after is not None:
                raise homing.HomingError("connection-lost", "it is gone", "")
            return {"messages": 0 if acts else [], "looked_at": 80_000, "next": 7}

    with pytest.raises(homing.HomingError), Scan(cast(Connection, Ends()), "peek-dead-letters", acts=acts) as scan:
        async for _ in scan:
            pass
    assert capsys.readouterr().err == f"stopped: 0 {word}, 80,000 looked at; --after=7 goes on from there\n"


async def test_a_wrong_filter_is_told_what_to_give(connection: Connection, server: Server, tmp_path: Path) -> None:
    queue, command = name(), HomingCommand(tmp_path)
    await die(connection, queue)
    await connection.call("create-queue", queue=f"{queue}.held")
    dead, held = f"DLQ.{queue}", f"{queue}.held"

    def refused(*words: str) -> str:
        said = command(*words, url=server.url)
        assert said.returncode == 2, said.stderr
        return " ".join(said.stderr.split())

    for words in (("peek", dead), ("dead", "delete", dead, "--yes"), ("retry", queue, "--now")):
        assert "give at least 4 digits behind 2-; homing faults lists them" in refused(*words, "--fault", "2-")
        assert "the selector cannot be read" in refused(*words, "--where", "n = ")
    assert "more than one fault may begin with 2" in refused("peek", dead, "--fault", "2")
    assert "fault is empty → give the number of a fault, which homing faults lists" in refused("peek", dead, "--fault", "")
    assert "give a selector, such as region = 'eu'" in refused("peek", dead, "--where", "")
    assert "homing queue purge removes all of a queue" in refused("dead", "delete", dead, "--yes")
    assert "homing redrive QUEUE --to TARGET moves all of a queue" in refused("dead", "move", dead, held)
    assert command("redrive", dead, "--to", held, "--wait", url=server.url).returncode == 0
    await holds(connection, held, messages=COUNT)


async def test_what_had_not_begun_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    class Silent:
        async def call(self, *_: object, **__: object) -> None:
            await asyncio.get_running_loop().create_future()

    async def look() -> None:
        with Scan(cast(Connection, Silent()), "peek-dead-letters") as scan:
            async for _ in scan:
                pass

    looking = asyncio.create_task(look())
    await asyncio.sleep(0)
    looking.cancel()
    await asyncio.wait([looking])
    assert capsys.readouterr().err == "stopped before anything was done: the same command begins again\n"


def assert_fault_is_named(command: HomingCommand, url: str, letters: list[dict[str, Any]]) -> None:
    """Dead letters of the one fault of ValueError, which leads on to ``homing faults show``."""
    (fault,) = {each["fault"]["fault"] for each in letters}
    assert {each["fault"]["error_class"] for each in letters} == {each["dead_letter"]["error_type"] for each in letters} == {"ValueError"}
    assert {each["dead_letter"]["fault"] for each in letters} == {fault}
    assert command.json("faults", "show", fault, url=url)["error_class"] == "ValueError"


async def test_the_command_line(connection: Connection, server: Server, tmp_path: Path) -> None:
    queue = name()
    await die(connection, queue)
    dead, command = f"DLQ.{queue}", HomingCommand(tmp_path)
    (line,) = [each for each in command.json("dead", url=server.url) if each["queue"] == dead]
    assert (line["messages"], line["faults"], line["sources"], line["sent_back"]) == (COUNT, 2, [queue], 0)
    assert line["reasons"] == {"delivery_limit": 54, "not-retryable": 6}
    assert (line["top_fault"]["error_class"], line["top_messages"]) in (("KeyError", 30), ("ValueError", 30))
    seen = command.json_lines("peek", dead, "--error-type", "ValueError", "--where", "n < 6", url=server.url)
    assert [(each["properties"]["n"], each["dead_letter"]["error"]) for each in seen] == [(n, f"ValueError: row {n}") for n in (1, 3, 5)]
    assert_fault_is_named(command, server.url, seen)
    assert f"fault {seen[0]['fault']['fault']}" in command("peek", dead, "--error-type", "ValueError", url=server.url).stdout
    assert command("dead", "export", dead, "--key", "c3", "--out", tmp_path / "out.jsonl", url=server.url).returncode == 0
    lines = [json.loads(each) for each in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [each["body"] for each in lines] == ["body 3.", "body 23.", "body 43."]
    assert_fault_is_named(command, server.url, lines)
    lives = command.json_lines("history", "--queue", dead, "--key", "c3", "--body", url=server.url)
    assert [(each["message"]["body"], each["attempts"][0]["fault"]["error_text"]) for each in lives] == [
        (f"body {n}.", f"row {n}") for n in (3, 23, 43)
    ]
    assert len(command.json_lines("history", "--queue", dead, "--where", "n > 5", "-n", "25", url=server.url)) == 25
    assert command("history", "--key", "c3", url=server.url).returncode == command("history", url=server.url).returncode == 2
    await connection.call("create-queue", queue=f"{queue}.held")
    moved = command.json("dead", "move", dead, f"{queue}.held", "--reason", "not-retryable", url=server.url)
    assert moved == {"messages": 6, "looked_at": 6}
    gone = command.json("dead", "delete", dead, "--property", "region=us", "--yes", url=server.url)
    assert gone == {"messages": 27, "looked_at": 54}
    assert command("dead", "delete", dead, "--yes", url=server.url).returncode == 2
    await connection.call("redrive", queue=dead)
    await holds(connection, queue, pending=27)
    # What was sent back is no dead letter any more, though it failed of that.
    ids = [str(each["message_id"]) for each in command.json_lines("peek", queue, "-n", "2", url=server.url)]
    refused = command("dead", "delete", queue, "--id", ids[0], "--yes", url=server.url)
    assert (refused.returncode, "what is no dead letter goes with --living alone" in refused.stderr) == (4, True)
    told = command.json("dead", "delete", queue, "--id", ids[0], "--dry-run", url=server.url)
    assert [(each["messages"], each["samples"]) for each in told] == [(0, [])]
    assert command.json("dead", "delete", queue, "--error-type", "KeyError", "--yes", url=server.url)["messages"] == 0
    async with connection.session(AckMode.INDIVIDUAL) as session:
        await (await receive(session.consumer(queue, prefetch=1))).nack(error=KeyError("a"))
    await holds(connection, dead, messages=1)
    (line,) = [each for each in command.json("dead", url=server.url) if each["queue"] == dead]
    assert (line["messages"], line["sent_back"]) == (1, 1)
    await holds(connection, f"{queue}.held", messages=6)
