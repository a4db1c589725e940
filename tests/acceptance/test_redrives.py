"""Redrive jobs: a few first, stopped where messages only come back, and right about what became of each, a kill in between included."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import homing
from homing.client import AckMode, Connection
from homing.journal.read.check import check
from tests.acceptance.semantics_support import holds, name, receive, running, send, until
from tests.process import HomingCommand, Server

COUNT = 50


SETTINGS: dict[str, Any] = {"#": {"max-delivery-attempts": 1}, "twice.#": {"max-delivery-attempts": 2}}
OPTIONS: dict[str, Any] = {"limits": {"window-messages": 10}}


async def die(connection: Connection, queue: str, count: int = COUNT) -> str:
    """So many ValueErrors; the dead-letter queue."""
    await send(connection, queue, *range(count))
    async with connection.session(AckMode.INDIVIDUAL) as session:
        consumer = session.consumer(queue, prefetch=1)
        for number in range(count):
            await (await receive(consumer)).nack(error=ValueError(f"row {number}"), retryable=False)
    await holds(connection, f"DLQ.{queue}", messages=count)
    return f"DLQ.{queue}"


@asynccontextmanager
async def consumed(connection: Connection, queue: str, fails: Callable[[int], Exception | None]) -> AsyncIterator[None]:
    """Consumed all the while: ``fails`` says of what each fails."""

    async with connection.session(AckMode.INDIVIDUAL) as session:
        consumer = session.consumer(queue)

        async def settle() -> None:
            async for message in consumer:
                error = fails(int(message.body))
                await (message.acknowledge() if error is None else message.nack(error=error))

        task = asyncio.create_task(settle())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def comes_to(connection: Connection, job: dict[str, Any], **numbers: Any) -> dict[str, Any]:
    """The job, once its map says so."""

    async def look() -> dict[str, Any]:
        found: dict[str, Any] = await connection.call("redrive-status", redrive=job["job_id"])
        return found if {key: found[key] for key in numbers} == numbers else {}

    found: dict[str, Any] = await until(f"redrive {job['job_id']} shows {numbers}", look)
    return found


@pytest.mark.parametrize(
    "more", [{}, {"where": "AMQSize < 3"}, {"where": "AMQSize < 3", "rate": 200}], ids=["all", "looked at", "at a rate"]
)
async def test_a_canary_that_fares_well_lets_the_others_follow(connection: Connection, more: dict[str, Any]) -> None:
    queue = name()
    dead = await die(connection, queue)
    job = await connection.redrive(dead, canary=10, **more)
    await comes_to(connection, job, sent=10, state="running", waiting=10)
    async with consumed(connection, queue, lambda number: None):
        await comes_to(connection, job, state="done", sent=COUNT, succeeded=COUNT, waiting=0, died=0, bounced=0)
    (group,) = (await connection.call("faults", queue=queue))["items"]
    assert [group[each] for each in ("dead", "waiting", "redriven", "succeeded")] == [0, 0, COUNT, COUNT]


@pytest.mark.parametrize(
    ("error", "bounced", "why"),
    [(ValueError("row 7"), 10, "failed again as before"), (KeyError("other"), 0, "are dead again")],
)
async def test_a_canary_that_fails_stops_the_job(connection: Connection, error: Exception, bounced: int, why: str) -> None:
    queue = name()
    dead = await die(connection, queue)
    async with consumed(connection, queue, lambda number: error):
        job = await connection.redrive(dead, canary=10, wait=True)
    assert (job["state"], job["sent"]) == ("stopped", 10)
    assert why in job["why"]
    await comes_to(connection, job, died=10, bounced=bounced, waiting=0)
    await holds(connection, dead, messages=COUNT)


async def test_a_job_stops_when_its_messages_come_back_and_others_do_not_count(connection: Connection) -> None:
    queue = name()
    dead = await die(connection, queue, 3 * COUNT)
    async with consumed(connection, queue, lambda number: ValueError("row 7") if number < 40 else None):
        # So slow that it is not through with all of them before what became of the first 20 is known.
        job = await connection.redrive(dead, rate=10, wait=True)
    assert job["state"] == "stopped"
    assert 5 <= job["bounced"] <= job["sent"] < 3 * COUNT
    another = name()
    dead = await die(connection, another)
    async with consumed(connection, another, lambda number: KeyError("other")):
        job = await connection.redrive(dead, wait=True)
        await comes_to(connection, job, state="done", sent=COUNT, died=COUNT, bounced=0)
    again = name()
    dead = await die(connection, again)
    async with consumed(connection, again, lambda number: ValueError("row 7")):
        job = await connection.redrive(dead, stop_above=None, wait=True)
        await comes_to(connection, job, state="done", sent=COUNT, died=COUNT, bounced=COUNT)
    await holds(connection, dead, messages=COUNT)


async def test_paused_resumed_cancelled_and_one_at_a_time(connection: Connection) -> None:
    queue = name()
    dead = await die(connection, queue)
    job = await connection.redrive(dead, canary=5)
    await comes_to(connection, job, sent=5)
    with pytest.raises(homing.HomingError) as refused:
        await connection.redrive(dead)
    assert refused.value.code == "redrive-running"
    assert (await connection.call("pause-redrive", redrive=job["job_id"]))["state"] == "paused"
    async with consumed(connection, queue, lambda number: None):
        await comes_to(connection, job, state="paused", succeeded=5)
        await connection.call("resume-redrive", redrive=job["job_id"])
        await comes_to(connection, job, state="done", succeeded=COUNT)
    with pytest.raises(homing.HomingError) as refused:
        await connection.call("cancel-redrive", redrive=job["job_id"])
    assert refused.value.code == "redrive-ended"
    dead = await die(connection, queue)
    job = await connection.redrive(dead, canary=5)
    await comes_to(connection, job, sent=5)
    assert (await connection.call("cancel-redrive", redrive=job["job_id"]))["state"] == "cancelled"
    await holds(connection, dead, messages=COUNT - 5)
    await holds(connection, queue, messages=5)


async def test_a_filter_a_limit_an_order_and_another_target(connection: Connection) -> None:
    queue = name()
    dead = await die(connection, queue)
    await connection.call("create-queue", queue=f"{queue}.other")
    job = await connection.redrive(dead, to=f"{queue}.other", where="AMQSize = 1", newest_first=True, limit=4, wait=True)
    assert (job["state"], job["sent"], job["left"]) == ("done", 4, 0)
    page = await connection.call("peek", queue=f"{queue}.other")
    assert [each["body"] for each in page["messages"]] == [b"9", b"8", b"7", b"6"]
    job = await connection.redrive(dead, where="AMQSize = 1", wait=True)
    assert job["sent"] == 6
    await holds(connection, dead, messages=COUNT - 10)
    await holds(connection, queue, messages=6)


async def test_a_dry_run_and_the_command_line(connection: Connection, server: Server, tmp_path: Path) -> None:
    queue, command = name(), HomingCommand(tmp_path)
    dead = await die(connection, queue)
    plan = command.json("redrive", dead, "--dry-run", url=server.url)
    (to,) = plan["to"]
    assert (plan["messages"], plan["exact"], to["queue"], to["messages"]) == (COUNT, True, queue, COUNT)
    assert [(each["died_in"], each["to"], each["reason"], each["fault"]) for each in plan["samples"]] == [
        (queue, queue, "not-retryable", to["fault"])
    ] * 5
    first = (await connection.call("peek", queue=dead, limit=1))["messages"][0]
    assert plan["samples"][0]["message_id"] == first["message_id"]
    shown = command("redrive", dead, "--dry-run", url=server.url).stdout
    assert f"such as {first['message_id']} to {queue}, not-retryable" in shown
    assert f"{COUNT} would wait: nobody consumes from the queue ({queue})" in shown
    assert f"{COUNT} may come back: nothing that failed so has succeeded since ({queue}, {to['fault']})" in shown
    plan = command.json("redrive", dead, "--dry-run", "--body-contains", "1", "--limit", "7", url=server.url)
    assert (plan["messages"], plan["exact"]) == (7, False)
    await holds(connection, dead, messages=COUNT)
    job = command.json("redrive", dead, "--error-type", "ValueError", "--wait", url=server.url)
    assert (job["state"], job["sent"], job["waiting"]) == ("done", COUNT, COUNT)
    assert command.json("redrives", "status", str(job["job_id"]), url=server.url) == job
    assert command.json("redrives", url=server.url)[0] == job
    assert command("redrives", "status", "999999", url=server.url).returncode == 4


async def test_what_goes_from_disk_to_disk_is_counted_where_it_lies(connection: Connection) -> None:
    queue = name()
    dead = await die(connection, queue)
    await connection.redrive(dead, limit=20, wait=True)
    await holds(connection, queue, pending=20)
    # What is left is not in memory, and would not be where it goes.
    await connection.redrive(dead, wait=True)
    for each, count in ((dead, 0), (queue, COUNT)):
        found = await connection.call("queue", queue=each)
        assert (found["messages"], found["pending"], found["scheduled"]) == (count, count, 0)


async def test_the_figures_of_a_job_are_what_its_consumers_did(connection: Connection) -> None:
    queue = name()
    dead = await die(connection, queue)
    done: Counter[str] = Counter()
    job = await connection.redrive(dead, stop_above=None, wait=True)
    async with connection.session(AckMode.INDIVIDUAL) as session:
        consumer = session.consumer(queue, prefetch=1)
        for handled in range(40):
            message = await receive(consumer)
            kind = ("as before", "otherwise", "well", "well")[int(message.body) % 4]
            done[kind] += 1
            if kind == "well":
                await message.acknowledge(confirm=True)
            else:
                await message.nack(error=ValueError("row 7") if kind == "as before" else KeyError("other"))
            if handled == 19:
                again = done["as before"] + done["otherwise"]
                await comes_to(connection, job, succeeded=done["well"], died=again, bounced=done["as before"])
    failed = done["as before"] + done["otherwise"]
    await comes_to(connection, job, sent=COUNT, succeeded=done["well"], died=failed, bounced=done["as before"], waiting=10, gone=0)
    await holds(connection, queue, pending=10)
    await connection.call("purge", queue=queue)
    found = await comes_to(connection, job, succeeded=done["well"], died=failed, waiting=0, gone=10)
    assert found["sent_per_s"] == round(1000 * COUNT / max(1, found["ended_ms"] - found["started_ms"]), 1)
    (line,) = [each for each in await connection.call("dead-letters") if each["queue"] == dead]
    assert (line["messages"], line["sent_back"]) == (failed, failed)
    await send(connection, queue, 1)
    async with connection.session(AckMode.INDIVIDUAL) as session:
        await (await receive(session.consumer(queue, prefetch=1))).nack(error=KeyError("new"))
    await holds(connection, dead, messages=failed + 1)
    (line,) = [each for each in await connection.call("dead-letters") if each["queue"] == dead]
    assert line["sent_back"] == failed


async def test_a_dry_run_tells_what_would_come_back(connection: Connection) -> None:
    queue, other = name(), name()
    dead = await die(connection, queue, 3)

    async def codes(**more: Any) -> dict[str, int]:
        plan = await connection.call("reckon-redrive", queue=dead, **more)
        return {each["code"]: each["messages"] for each in plan["would_bounce"]}

    plan = await connection.call("reckon-redrive", queue=dead, limit=2)
    assert [each["messages"] for each in (plan, *plan["to"], *plan["would_bounce"])] == [2, 2, 2, 2]
    assert ([each["queue"] for each in plan["to"]], len(plan["samples"])) == ([queue], 2)
    unproven = {"never-succeeded-since": 3}
    async with consumed(connection, queue, lambda number: None):
        assert await codes() == unproven
        await connection.call("pause", queue=queue)
        assert await codes() == unproven | {"queue-paused": 3}
        await connection.call("resume", queue=queue)
    assert await codes() == unproven | {"no-consumer": 3}
    await connection.call("create-queue", queue=other, max_length=1, overflow="reject-publish", message_ttl_ms=60_000)
    await send(connection, other, 0)
    assert await codes(to=other) == unproven | {"no-consumer": 3, "queue-full": 3, "policy": 3}
    await connection.call("delete-queue", queue=queue)
    assert await codes() == unproven | {"queue-gone": 3}
    await connection.call("set-settings", layers={queue: {"auto-create-queues": False}})
    assert await codes() == unproven | {"no-such-address": 3}
    await connection.call("unset-settings", pattern=queue)
    (group,) = (await connection.call("faults", queue=queue))["items"]
    await connection.call("mute-fault", fault=group["fault"])
    assert await codes() == unproven | {"queue-gone": 3, "fault-muted": 3}
    await connection.call("mute-fault", fault=group["fault"], muted=False)
    assert [each["most"] for each in plan["to"]] == [None]
    await connection.redrive(dead, limit=2, wait=True)
    async with consumed(connection, queue, lambda number: ValueError("row 1") if number else None):
        await holds(connection, queue, messages=0)
    await holds(connection, dead, messages=2)
    assert await codes() == {"no-consumer": 2}
    (part,) = (await connection.call("reckon-redrive", queue=dead))["to"]
    assert [part[each] for each in ("messages", "back_succeeded", "back_died", "least", "most")] == [2, 1, 1, 0, 2]


def test_a_job_goes_on_after_a_kill_and_its_counts_are_right(tmp_path: Path) -> None:
    async def begin() -> dict[str, Any]:
        async with homing.connect(broker.url) as connection:
            dead = await die(connection, "orders", 300)
            job = await connection.redrive(dead, rate=200)
            async with consumed(connection, "orders", lambda number: KeyError("x") if number % 10 == 0 else None):

                async def some() -> bool:
                    return bool((await connection.call("redrive-status", redrive=job["job_id"]))["succeeded"] >= 20)

                await until("some have succeeded", some)
            return job

    async def end(job: dict[str, Any]) -> dict[str, Any]:
        fails = lambda number: KeyError("x") if number % 10 == 0 else None  # noqa: E731
        async with homing.connect(broker.url) as connection, consumed(connection, "orders", fails):
            return await comes_to(connection, job, state="done", sent=300, waiting=0)

    with running(tmp_path, {"#": {"max-delivery-attempts": 1}}) as broker:
        job = asyncio.run(begin())
        broker.kill()
        broker.start()
        done = asyncio.run(end(job))
        assert (done["died"] + done["succeeded"], done["gone"], done["left"]) == (300, 0, 0)
        assert done["died"] >= 30
        assert broker.stop() == 0
    assert check(broker.data).problems == []


async def test_what_is_no_dead_letter_is_left_alone(connection: Connection) -> None:
    queue, other = f"twice.{name()}", name()
    await connection.call("create-queue", queue=queue)
    await connection.call("create-queue", queue=other)
    await send(connection, queue, *range(3))
    async with connection.session(AckMode.INDIVIDUAL) as session:
        consumer = session.consumer(queue, prefetch=1)
        for _ in range(2):
            await (await receive(consumer)).nack(error=ValueError("later"), delay_ms=3_600_000)
    await holds(connection, queue, messages=3, scheduled=2)
    plan = await connection.call("reckon-redrive", queue=queue)
    assert (plan["messages"], plan["to"], plan["samples"]) == (0, [], [])
    assert [(each["code"], each["queue"], each["messages"]) for each in plan["would_bounce"]] == [("not-dead", queue, 3)]
    job = await connection.redrive(queue, wait=True)
    assert (job["state"], job["sent"], job["left"]) == ("done", 0, 3)
    assert (await connection.call("redrive", queue=queue))["messages"] == 0
    await holds(connection, queue, messages=3, scheduled=2)
    # To another queue whatever is meant goes.
    plan = await connection.call("reckon-redrive", queue=queue, to=other)
    assert (plan["messages"], "not-dead" in {each["code"] for each in plan["would_bounce"]}) == (3, False)
    assert (await connection.redrive(queue, to=other, wait=True))["sent"] == 3
    await holds(connection, other, messages=3, scheduled=0)


async def test_a_dry_run_tells_what_finds_no_room(connection: Connection) -> None:
    queue, other = name(), name()
    dead = await die(connection, queue, 5)
    await connection.call("create-queue", queue=other, max_length=2, overflow="reject-publish")
    plan = await connection.call("reckon-redrive", queue=dead, to=other)
    assert {each["code"]: each["messages"] for each in plan["would_bounce"]}["queue-full"] == 3
    job = await connection.redrive(dead, to=other, stop_above=None, wait=True)
    assert (job["sent"], job["left"]) == (2, 3)


async def test_a_job_says_that_it_waits_for_its_canary(connection: Connection, server: Server, tmp_path: Path) -> None:
    job = await connection.redrive(await die(connection, name()), canary=3)
    await comes_to(connection, job, sent=3)
    said = HomingCommand(tmp_path)("redrives", "status", str(job["job_id"]), url=server.url).stdout
    assert "3 not settled yet, the others wait for these\n" in said
    await connection.call("cancel-redrive", redrive=job["job_id"])
