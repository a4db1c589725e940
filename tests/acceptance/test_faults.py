"""Fault groups: what fails alike is one, what becomes of its messages is counted, and both outlive a kill."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import homing
from homing.client import AckMode, Connection
from homing.journal.read.check import check
from homing.journal.store.directory import DATABASE_NAME
from tests.acceptance.semantics_support import holds, name, receive, running, send, until
from tests.process import HomingCommand, Server
from tests.unit.journal_support import TRANSIENT

SETTINGS: dict[str, Any] = {"#": {"max-delivery-attempts": 2}, "later.#": {"redelivery-delay": "1h"}}


async def groups(connection: Connection, queue: str) -> dict[str, dict[str, Any]]:
    """Of one queue, by error class."""
    return {each["error_class"]: each for each in (await connection.call("faults", queue=queue))["items"]}


async def fail(connection: Connection, queue: str, *errors: Exception) -> None:
    async with connection.session(AckMode.INDIVIDUAL) as session:
        consumer = session.consumer(queue, prefetch=1)
        for error in errors:
            await (await receive(consumer)).nack(error=error)


async def test_what_becomes_of_messages_is_counted(connection: Connection) -> None:
    queue = name()
    await send(connection, queue, 1, 2, 3)
    await fail(connection, queue, ValueError("row 17"), KeyError("a"))
    await holds(connection, f"DLQ.{queue}", messages=1)
    found = await groups(connection, queue)
    assert [found["ValueError"][each] for each in ("failures", "waiting", "died", "dead", "text")] == [1, 0, 0, 0, "row 17"]
    assert [found["KeyError"][each] for each in ("failures", "waiting", "died", "dead", "dead_in")] == [1, 0, 1, 1, [f"DLQ.{queue}"]]
    await fail(connection, queue, ValueError("row 4711"))
    async with connection.session(AckMode.INDIVIDUAL) as session:
        for _ in range(2):
            await (await receive(session.consumer(queue, prefetch=1))).acknowledge()
    await holds(connection, queue, messages=0)
    found = await groups(connection, queue)
    assert [found["ValueError"][each] for each in ("failures", "waiting", "succeeded", "last_hour")] == [2, 0, 1, 2]
    await connection.call("redrive", queue=f"DLQ.{queue}")
    await holds(connection, queue, pending=1)
    assert [(await groups(connection, queue))["KeyError"][each] for each in ("waiting", "redriven", "dead")] == [1, 1, 0]
    await connection.call("purge", queue=queue)
    assert [(await groups(connection, queue))["KeyError"][each] for each in ("waiting", "succeeded")] == [0, 0]
    since = {"queue": queue, "since_ms": found["KeyError"]["first_ms"] + 60_000}
    assert [(await connection.call("faults", **since | {"new": new}))["items"] for new in (False, True)] == [[], []]


async def test_a_fault_is_shown_muted_fixed_and_back(connection: Connection, server: Server, tmp_path: Path) -> None:
    queue = name("later")
    await send(connection, queue, 1, 2)
    await fail(connection, queue, ValueError("no partner 17"))
    number = (await groups(connection, queue))["ValueError"]["fault"]
    command = HomingCommand(tmp_path)
    shown = command.json("faults", "show", number[2:10], url=server.url)
    assert (shown["fault"], shown["text"], sum(shown["hours"])) == (number, "no partner 17", 1)
    assert shown["traceback"] == "ValueError: no partner 17\n"
    (group,) = shown["groups"]
    assert (group["queue"], group["waiting"], group["muted"], group["regressed_ms"]) == (queue, 1, False, None)
    for when in ([], ["--since", "24h"], ["--new"]):
        assert [each["fault"] for each in command.json("faults", "list", queue, *when, url=server.url)] == [number]
    assert command.json("faults", "retry", number, url=server.url) == {"fault": number, "messages": 1, "queues": {queue: 1}}
    await holds(connection, queue, scheduled=0, pending=2)
    assert command.json("faults", "retry", number, url=server.url)["messages"] == 0
    command.json("faults", "mute", number, url=server.url)
    command.json("faults", "fixed", number, "1.5", url=server.url)
    (group,) = (await connection.call("fault", fault=number))["groups"]
    assert (group["muted"], group["fixed_in"], group["regressed_ms"]) == (True, "1.5", None)
    for version, back in (("1.4.9", False), ("1.10", True)):
        await send(connection, queue, 3)
        async with homing.connect(server.url, client_id="billing", program_version=version) as other:
            await fail(other, queue, ValueError("no partner 18"))
        (group,) = (await connection.call("fault", fault=number))["groups"]
        assert (group["regressed_ms"] is not None) is back
    assert {each["version"] for each in group["programs"]} >= {"1.4.9", "1.10"}
    heading, listed = command("faults", queue, url=server.url).stdout.splitlines()
    assert (heading.split()[-1], listed.split()[-2]) == ("consumers", "billing,"), "the latest first"
    text = command("faults", "show", number, url=server.url).stdout
    assert "  muted, said to be fixed in 1.5 at 2" in text
    assert ", back since 2" in text
    assert f"fault-back: fault {number}" not in server.log_path.read_text(), "it is muted"
    with pytest.raises(homing.HomingError, match="no fault"):
        await connection.call("fault", fault="2-nothing")


async def test_one_command_acts_on_all_that_is_dead_of_a_fault(connection: Connection, server: Server, tmp_path: Path) -> None:
    queues, command = (name(), name()), HomingCommand(tmp_path)
    text = ValueError(f"partner {queues[0]} is down{' again' * 20}")
    for queue in queues:
        await send(connection, queue, 1, 2)
        await fail(connection, queue, text, text, LookupError("no shelf 1"), LookupError("no shelf 2"))
        await holds(connection, f"DLQ.{queue}", messages=2)
    # The first failed twice, and died of the error that both queues met; the second died of the other.
    number, other = [(await groups(connection, queues[0]))[kind]["fault"] for kind in ("ValueError", "LookupError")]
    assert len((await groups(connection, queues[0]))["ValueError"]["message_ids"]) == 1, "of one message two failures"
    assert all("…  " in command(*words, url=server.url).stdout for words in (["dead", "list"], ["faults", queues[0]])), "seen to be cut"
    plans = command.json("faults", "redrive", number, "--dry-run", url=server.url)
    assert {each["queue"]: each["messages"] for each in plans} == {f"DLQ.{queue}": 1 for queue in queues}
    jobs = command.json("faults", "redrive", number, "--wait", url=server.url)
    assert sorted((each["queue"], each["state"], each["sent"]) for each in jobs) == sorted((f"DLQ.{queue}", "done", 1) for queue in queues)
    for queue in queues:
        await holds(connection, queue, messages=1)
    assert command("faults", "delete", other, url=server.url).returncode == 2
    gone = command.json("faults", "delete", other, "--yes", url=server.url)
    assert (gone["fault"], gone["messages"]) == (other, 2)
    for queue in queues:
        await holds(connection, f"DLQ.{queue}", messages=0)
    assert command.json("faults", "redrive", other, url=server.url) == []


def test_what_died_under_an_older_version_is_found_by_its_fault(tmp_path: Path) -> None:
    async def before() -> dict[str, Any]:
        async with homing.connect(broker.url) as connection:
            await send(connection, "orders", *range(30))
            await fail(connection, "orders", *[ValueError(f"row {number}") for number in range(60)])
            await holds(connection, "DLQ.orders", messages=30)
            page = await connection.call("peek", queue="DLQ.orders", limit=1)
            await connection.call("redrive", queue="DLQ.orders", message_ids=[page["messages"][0]["message_id"]])
            return (await groups(connection, "orders"))["ValueError"]

    async def after() -> None:
        async with homing.connect(broker.url) as connection:

            async def known() -> bool:
                dead = await connection.call("dead-letters")
                return bool(dead and dead[0]["messages"] == 29)

            await until("all are known", known)
            (dead,) = await connection.call("dead-letters")
            assert (dead["top_fault"]["fault"], dead["sources"], dead["reasons"]) == (was["fault"], ["orders"], {"delivery_limit": 29})
            found = await connection.call("peek-dead-letters", queue="DLQ.orders", filter={"fault": was["fault"]}, limit=100)
            assert len(found["messages"]) == 29
            now = (await groups(connection, "orders"))["ValueError"]
            assert [now[each] for each in ("text", "died", "dead", "waiting")] == ["row 3", 29, 29, 0]
            await connection.call("redrive", queue="DLQ.orders")
            await holds(connection, "orders", messages=30)
            assert [(await groups(connection, "orders"))["ValueError"][each] for each in ("dead", "waiting")] == [0, 29]

    with running(tmp_path, {"#": {"max-delivery-attempts": 2}}, limits={"window-messages": 5}) as broker:
        was = asyncio.run(before())
        assert broker.stop() == 0
        with closing(sqlite3.connect(broker.data / DATABASE_NAME)) as journal:
            # As version 10 left it.
            journal.execute("UPDATE reference SET cause = NULL")
            for table in ("fault", "fault_text", "fault_count"):
                journal.execute(f"DELETE FROM {table}")
            journal.execute("ALTER TABLE queue DROP COLUMN policy")
            for table in ("edit", "event", "story", "spilled", "packed_commit"):
                journal.execute(f"DROP TABLE {table}")
            for table, column in (
                *(("minute", each) for each in TRANSIENT),
                ("fault_count", "back_succeeded"),
                ("fault_count", "back_died"),
            ):
                journal.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
            journal.execute("PRAGMA user_version = 11")
            journal.commit()
        broker.start()
        asyncio.run(after())
        broker.kill()
    assert check(broker.data).problems == []


def test_groups_outlive_a_kill(tmp_path: Path) -> None:
    counts = ("fault", "text", "failures", "waiting", "dead", "succeeded", "died")

    async def before() -> dict[str, Any]:
        async with homing.connect(broker.url) as connection:
            await send(connection, "orders", 1, 2)
            await fail(connection, "orders", ValueError("row 1"), KeyError("x"), ValueError("row 2"))
            await holds(connection, "DLQ.orders", messages=1)
            await holds(connection, "orders", pending=1)
            return await groups(connection, "orders")

    async def after() -> tuple[dict[str, Any], dict[str, Any]]:
        async with homing.connect(broker.url) as connection:
            found = await groups(connection, "orders")
            async with connection.session(AckMode.INDIVIDUAL) as session:
                await (await receive(session.consumer("orders"))).acknowledge()
            await holds(connection, "orders", messages=0)
            return found, await groups(connection, "orders")

    with running(tmp_path, {"#": {"max-delivery-attempts": 2}}) as broker:
        was = asyncio.run(before())
        broker.kill()
        broker.start()
        found, then = asyncio.run(after())
    assert {kind: [each[name] for name in counts] for kind, each in was.items()} == {
        kind: [each[name] for name in counts] for kind, each in found.items()
    }
    assert [found["ValueError"][each] for each in counts[2:]] == [2, 1, 0, 0, 0]
    assert [then["ValueError"][each] for each in counts[2:]] == [2, 0, 0, 1, 0]
    assert [then["KeyError"][each] for each in counts[2:]] == [1, 0, 1, 0, 1]
