"""What failed and waits to be tried again: shown, let go now, at another time or not before it is released; in memory and only on disk."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import homing
from homing.client import AckMode, Connection
from homing.journal.read.check import check
from tests.acceptance.semantics_support import holds, name, receive, receive_all, running, send
from tests.process import HomingCommand, Server

COUNT = 40
HOUR_MS = 3_600_000


SETTINGS: dict[str, Any] = {
    "#": {
        "redelivery-delay": "2h",
        "keep-failed": False,
        "max-delivery-attempts": 5,
        "message-key-property": "customer",
        "rules": [{"name": "rows", "error-type": "ValueError", "max-delivery-attempts": 7}],
    }
}
# Most of what waits is on disk only.
OPTIONS: dict[str, Any] = {"limits": {"window-messages": 10, "window-scheduled": 10}}


async def fail(connection: Connection, queue: str, **options: Any) -> None:
    """Bodies 0 to COUNT - 1 wait for their second attempt: of odd ones ValueErrors, of even ones KeyErrors, of ten customers."""
    for number in range(COUNT):
        await send(connection, queue, number, properties={"customer": f"c{number % 10}", "n": number, "odd": number % 2}, **options)
    async with connection.session(AckMode.INDIVIDUAL) as session:
        consumer = session.consumer(queue, prefetch=1)
        for number in range(COUNT):
            await (await receive(consumer)).nack(error=ValueError(f"row {number}") if number % 2 else KeyError("a"))
    await holds(connection, queue, scheduled=COUNT, messages=COUNT)


async def waiting(connection: Connection, queue: str, limit: int = 7, **wanted: Any) -> list[dict[str, Any]]:
    """All of them, page by page."""
    found: list[dict[str, Any]] = []
    after = None
    while True:
        page = await connection.call("peek-retrying", queue=queue, filter=wanted, limit=limit, after=after)
        found, after = found + page["messages"], page["next"]
        if after is None:
            return found


def numbers(found: list[dict[str, Any]]) -> list[int]:
    return sorted(each["properties"]["n"] for each in found)


async def taken(connection: Connection, queue: str, count: int) -> list[int]:
    """The numbers of so many that come for their second attempt."""
    async with connection.session(AckMode.INDIVIDUAL) as session:
        messages = await receive_all(session.consumer(queue), count)
        for message in messages:
            assert message.delivery_count == 2
            await message.acknowledge(confirm=True)
    return sorted(int(message.body) for message in messages)


@pytest.mark.parametrize("durable", [True, False])
async def test_now_later_and_on_hold(connection: Connection, durable: bool) -> None:
    queue = name()
    await fail(connection, queue, durable=durable)
    all_of_them, odd = list(range(COUNT)), list(range(1, COUNT, 2))
    shown = await waiting(connection, queue)
    assert numbers(shown) == all_of_them
    assert [each["due_at_ms"] for each in shown] == sorted(each["due_at_ms"] for each in shown)
    assert {(each["state"], each["failed"], each["attempts_allowed"]) for each in shown} == {("scheduled", 1, 5)}
    assert {each["transient"] for each in shown} == {not durable}
    failed_of = {each["properties"]["odd"]: each["fault"]["error_class"] for each in shown}
    assert failed_of == {0: "KeyError", 1: "ValueError"}
    wanted: dict[str, Any] = {"error_type": "ValueError"}
    assert numbers(await waiting(connection, queue, **wanted)) == odd
    assert numbers(await waiting(connection, queue, key="c3", where="n > 20")) == [23, 33]

    assert await connection.retry(queue, hold=True, **wanted) == len(odd)
    assert await connection.retry(queue, hold=True, **wanted) == 0
    line = await holds(connection, queue, scheduled=len(odd), on_hold=len(odd), pending=0)
    assert line["messages"] == COUNT
    shown = await waiting(connection, queue)
    assert [each["state"] for each in shown] == ["scheduled"] * len(odd) + ["on-hold"] * len(odd)
    assert {each["due_at_ms"] for each in shown if each["state"] == "on-hold"} == {None}

    at_ms = time.time_ns() // 1_000_000 + 6 * HOUR_MS
    assert await connection.retry(queue, at_ms=at_ms) == COUNT - len(odd)
    assert {each["due_at_ms"] for each in await waiting(connection, queue)} == {at_ms, None}
    calendar = await connection.call("due", queue=queue)
    assert (sum(each["messages"] for each in calendar["due"]), calendar["on_hold"]) == (COUNT - len(odd), len(odd))
    (then,) = calendar["due"]
    assert then["from_ms"] <= at_ms < then["until_ms"]

    ids = [each["message_id"] for each in shown if each["properties"]["n"] in (4, 5)]
    assert await connection.retry(queue, now=True, message_ids=ids) == 1
    assert await taken(connection, queue, 1) == [4]
    assert await connection.retry(queue, release=True, where="n < 10") == 5
    assert await taken(connection, queue, 5) == odd[:5]
    assert await connection.retry(queue, now=True) == COUNT - len(odd) - 1
    assert await taken(connection, queue, COUNT - len(odd) - 1) == sorted({*all_of_them} - {*odd, 4})
    await holds(connection, queue, messages=len(odd) - 5, on_hold=len(odd) - 5, scheduled=0, pending=0)
    assert await connection.retry(queue, release=True) == len(odd) - 5
    assert await taken(connection, queue, len(odd) - 5) == odd[5:]


async def test_other_times_survive_a_kill(tmp_path: Path) -> None:
    settings = {"#": {"redelivery-delay": "2h", "max-delivery-attempts": 5}}
    limits = {"window-messages": 10, "window-scheduled": 10}
    with running(tmp_path, settings, limits=limits, journal={"load-limit": 0}) as server:
        async with homing.connect(server.url) as connection:
            await fail(connection, "q")
            at_ms = time.time_ns() // 1_000_000 + 6 * HOUR_MS
            assert await connection.retry("q", hold=True, where="n < 15") == 15
            assert await connection.retry("q", at_ms=at_ms, where="n >= 30") == 10
        server.kill()
        server.start()
        async with homing.connect(server.url) as connection:
            await holds(connection, "q", on_hold=15, scheduled=25, messages=COUNT)
            shown = await waiting(connection, "q")
            assert {each["properties"]["n"]: each["state"] for each in shown if each["state"] == "on-hold"}.keys() == {*range(15)}
            assert numbers([each for each in shown if each["due_at_ms"] == at_ms]) == list(range(30, COUNT))
            (sample,) = [each["message_id"] for each in shown if each["properties"]["n"] == 3]
            assert [each["code"] for each in (await connection.call("why", message_id=sample))["places"][0]["reasons"]] == ["on-hold"]
            assert (await connection.call("history", message_id=sample))["references"][0]["on_hold"]
            # A message on hold still goes by any other hand.
            assert (await connection.call("delete-message", message_id=sample))["messages"] == 1
            await holds(connection, "q", on_hold=14, messages=COUNT - 1)
            assert await connection.retry("q", release=True) == 14
            assert await connection.retry("q", now=True) == 25
            assert await taken(connection, "q", COUNT - 1) == sorted({*range(COUNT)} - {3})
        assert server.stop() == 0
        assert not check(server.data).problems


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ({}, "invalid-argument"),
        ({"now": True, "hold": True}, "invalid-argument"),
        ({"now": True, "at_ms": 0}, "invalid-argument"),
        ({"hold": "no"}, "invalid-argument"),
        ({"at_ms": "noon"}, "invalid-argument"),
        ({"at_ms": 1 << 60}, "invalid-argument"),
        ({"now": True, "after": [1]}, "invalid-argument"),
        ({"now": True, "filter": {"reason": "expired"}}, "invalid-argument"),
    ],
)
async def test_what_is_no_retry_is_refused(connection: Connection, wanted: dict[str, Any], code: str) -> None:
    queue = name()
    await connection.call("create-queue", queue=queue)
    with pytest.raises(homing.HomingError) as refused:
        await connection.call("retry", queue=queue, **wanted)
    assert refused.value.code == code
    with pytest.raises(homing.UsageError):
        await connection.retry(queue, now=True, release=True)


async def test_the_sum_says_what_it_counts(connection: Connection, server: Server, tmp_path: Path) -> None:
    queue, command = name(), HomingCommand(tmp_path)
    command.url = server.url
    await fail(connection, queue)
    await send(connection, queue, b"later", delay_ms=90_000)
    await holds(connection, queue, scheduled=COUNT + 1)
    heading, *lines = command("retrying").stdout.splitlines()
    assert re.search(r"queue +scheduled +on hold +suspects +first goes +last goes +to be tried again", heading)
    (line,) = [each for each in lines if each.startswith(f"{queue} ")]
    assert re.search(rf" {COUNT + 1} .* 20 × .*, 20 × ", line)
    assert len(command.json("retrying", queue, "-n", "100")) == COUNT
    assert await connection.retry(queue, now=True) == COUNT
    await holds(connection, queue, scheduled=1, pending=COUNT)
    assert "nothing that failed waits for its time" in command("retrying", queue).stdout
    # What is ready is still to be tried again.
    (line,) = [each for each in command("retrying").stdout.splitlines() if each.startswith(f"{queue} ")]
    assert re.search(r" 1 .* 20 × .*, 20 × ", line)
    told = " ".join(command("retrying", "--help").stdout.split())
    assert "what is scheduled, sent with a delay too" in told


async def test_a_time_that_is_past_and_what_is_on_hold_are_told(connection: Connection, server: Server, tmp_path: Path) -> None:
    queue, command = name(), HomingCommand(tmp_path)
    command.url = server.url
    await fail(connection, queue)
    assert await connection.retry(queue, hold=True, where="n < 7") == 7
    years_ago = command("retry", queue, "--at", "2020-01-01")
    assert (years_ago.returncode, "2020-01-01 00:00:00.000" in years_ago.stderr, "give --now" in years_ago.stderr) == (2, True, True)
    await holds(connection, queue, scheduled=COUNT - 7, on_hold=7)
    some_time_ago = datetime.fromtimestamp(time.time() - 2 * 60).isoformat()
    late = command("retry", queue, "--at", some_time_ago, "--error-type", "KeyError")
    assert re.fullmatch(rf"16 messages of {queue} are due now, as .* is past\n", late.stdout)
    now = command("retry", queue, "--now", "--where", "n < 7")
    assert now.stdout == f"0 messages of {queue} are due now\n"
    assert now.stderr == "7 messages of the queue are on hold, which --release lets go\n"
    assert command("retry", queue, "--release", "--where", "n < 6").stdout == f"6 messages of {queue} are due now\n"
    last = command("retry", queue, "--at", "2h", "--where", "n = 7")
    assert re.fullmatch(rf"1 message of {queue} is due at .*\n", last.stdout)
    assert last.stderr == "1 message of the queue is on hold, which --release lets go\n"
    assert (await connection.call("retry", queue=queue, release=True))["on_hold"] == 1


async def test_the_command_line(connection: Connection, server: Server, tmp_path: Path) -> None:
    queue, command = name(), HomingCommand(tmp_path)
    await fail(connection, queue)
    (line,) = [each for each in command.json("retrying", url=server.url) if each["queue"] == queue]
    assert (line["scheduled"], line["on_hold"]) == (COUNT, 0)
    assert sorted((each["error_class"], each["waiting"]) for each in line["faults"]) == [("KeyError", 20), ("ValueError", 20)]
    shown = command.json("retrying", queue, "--error-type", "ValueError", "--count", "5", url=server.url)
    assert [each["last_attempt"]["fault"]["error_text"] for each in shown] == [f"row {n}" for n in (1, 3, 5, 7, 9)]
    table = command("retrying", queue, "--count", "3", url=server.url).stdout
    _, first, second, *_ = table.splitlines()
    assert re.search("1 of 5 .*KeyError", first)
    assert re.search("1 of 7 .*ValueError: row 1", second), "as the rule has it that the failure fitted"
    assert command.json("retry", queue, "--key", "c3", "--hold", url=server.url)["messages"] == 4
    noon = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0).timestamp() + 7 * 86_400
    at = datetime.fromtimestamp(noon).isoformat()
    assert command.json("retry", queue, "--error-type", "KeyError", "--at", at, url=server.url)["messages"] == 20
    calendar = command.json("due", queue, url=server.url)
    assert (calendar["on_hold"], calendar["due"][-1]["messages"]) == (4, 20)
    assert "█" in command("due", queue, url=server.url).stdout
    said = command("retry", queue, "--release", url=server.url)
    assert "4 messages" in said.stdout
    assert command("retry", queue, "--now", "--release", url=server.url).returncode == 2
    assert await taken(connection, queue, 4) == [3, 13, 23, 33]
