"""How long dead letters stay, how many of one source, and that nothing of them is lost on the way into an archive."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import homing
from homing.analytics.input.inputs import parse_manifest
from homing.client import AckMode, Connection
from homing.journal.read.queries import JournalReader
from tests.acceptance.semantics_support import history, holds, name, receive, send, until
from tests.process import HomingCommand, Server

SETTINGS: dict[str, Any] = {
    "#": {"max-delivery-attempts": 1, "keep-failed": False},
    "few.#": {"dead-letter-quota": 3, "owner": "team-few", "runbook": "https://wiki.example/few"},
    "short.#": {"dead-letter-retention": 1, "dead-letter-archive": False},
    "kept.#": {"dead-letter-retention": 1},
    "many.#": {"dead-letter-quota": 10},
}


#: Messages that were not durable.
TRANSIENT: set[int] = set()


async def die(connection: Connection, queue: str, number: int, durable: bool = True) -> list[int]:
    """So many messages, the bodies 0, 1, …, are dead letters of it. Their numbers."""
    await send(connection, queue, *range(number), properties={"k": 1}, durable=durable)
    async with connection.session(AckMode.INDIVIDUAL) as session:
        consumer = session.consumer(queue)
        died = []
        for _ in range(number):
            message = await receive(consumer)
            died.append(message.message_id)
            await message.nack(error=ValueError("no"))
    return died


def archived(server: Server) -> list[dict[str, Any]]:
    """The bodies of all archives."""
    import pyarrow.parquet as pq

    found: list[dict[str, Any]] = []
    for manifest in sorted(server.data.glob("archive/*/_homing_export.json")):
        read = parse_manifest(str(manifest.parent), manifest.read_text())
        tables = {table: pq.read_table(manifest.parent / table).to_pylist() for table in read.rows}
        assert {table: len(rows) for table, rows in tables.items()} == read.rows
        assert [row["sequence"] for row in tables["dead_letters"]] == [row["hops"][0]["sequence"] for row in tables["dead_letters"]]
        # Of what is not durable there are none.
        durable = {row["message_id"] for row in tables["messages"]} - TRANSIENT
        assert {row["message_id"] for row in tables["attempts"]} == durable
        found += tables["bodies"]
    return found


async def test_beyond_its_quota_the_oldest_of_a_source_are_archived_and_go(connection: Connection, server: Server, tmp_path: Path) -> None:
    few, other = name("few"), name()
    # One that does not go by itself when it is empty.
    await connection.call("create-queue", queue=few)
    await die(connection, other, 5)
    died = await die(connection, few, 8)
    await holds(connection, f"DLQ.{few}", messages=3)
    kept = await connection.call("peek", queue=f"DLQ.{few}", limit=10)
    assert [each["message_id"] for each in kept["messages"]] == died[5:], "the newest stay"
    await holds(connection, f"DLQ.{other}", messages=5)
    bodies = [(each["message_id"], each["body"], each["properties_json"]) for each in archived(server) if each["queue"] == f"DLQ.{few}"]
    assert bodies == [(number, str(at).encode(), '{"k": 1}') for at, number in enumerate(died[:5])]
    reported = (await history(connection, died[0]))["outcomes"][-1]
    assert (reported["queue"], reported["outcome"], reported["reason"]) == (f"DLQ.{few}", "dropped", "dead-letter-quota")
    whose = f" of {few} (owner team-few, runbook https://wiki.example/few)"
    await asyncio.to_thread(server.logged, f"{whose}, the oldest, by dead-letter-quota; archived in")
    assert (await connection.call("queue", queue=f"DLQ.{few}"))["dropped"] == 5
    command = HomingCommand(tmp_path)
    lying = {each["queue"]: each for each in command.json("dead", "list", url=server.url)}
    assert (lying[f"DLQ.{few}"]["owners"], lying[f"DLQ.{few}"]["runbooks"]) == (["team-few"], ["https://wiki.example/few"])
    assert "team-few, https://wiki.example/few" in command("queues", url=server.url).stdout
    assert "one of too many dead letters" in command("history", str(died[0]), url=server.url).stdout


async def test_what_is_not_durable_counts_and_is_archived_too(connection: Connection, server: Server) -> None:
    few = name("few")
    dead = f"DLQ.{few}"
    await connection.call("set-settings", layers={few: {"dead-letter-quota": None}})
    died = [(await die(connection, few, 1, durable=number % 2 == 0))[0] for number in range(8)]
    TRANSIENT.update(died[1::2])
    await holds(connection, dead, messages=8)
    assert [each["messages"] for each in await connection.call("dead-letters") if each["queue"] == dead] == [8]
    await connection.call("unset-settings", pattern=few)
    await holds(connection, dead, messages=3)
    assert [each["message_id"] for each in (await connection.call("peek", queue=dead))["messages"]] == died[5:]
    bodies = [(each["message_id"], each["body"]) for each in archived(server) if each["queue"] == dead]
    assert bodies == [(number, b"0") for number in died[:5]]


async def test_what_is_too_old_goes_and_what_cannot_be_archived_stays(connection: Connection, server: Server) -> None:
    short, kept = name("short"), name("kept")
    place = server.data / "archive"
    place.mkdir(exist_ok=True)
    before = len(archived(server))
    place.rename(server.data / "elsewhere")
    place.write_text("in the way")
    for durable in (True, False):
        await die(connection, short, 1, durable)
    died = await die(connection, kept, 2)
    await holds(connection, f"DLQ.{short}", messages=0)

    async def reported() -> bool:
        return "dead-letter-archive-failed" in server.log_path.read_text()

    await until("it is said that nothing can be archived", reported)
    await holds(connection, f"DLQ.{kept}", messages=2)
    place.unlink()
    (server.data / "elsewhere").rename(place)
    await holds(connection, f"DLQ.{kept}", messages=0)
    assert {each["message_id"] for each in archived(server)[before:]} == set(died)


async def test_a_kill_in_the_middle_loses_nothing(server: Server) -> None:
    """What is neither in the archives nor in the queue would be lost; what is archived and still there is archived again."""
    many, place = name("many"), server.data / "archive"
    async with homing.connect(server.url) as connection:
        await connection.call("set-settings", layers={many: {"dead-letter-quota": None}})
        died = await die(connection, many, 400)
        await holds(connection, f"DLQ.{many}", messages=400)
        before = set(place.glob("*"))
        await connection.call("unset-settings", pattern=many)

        async def at_work() -> bool:
            return set(place.glob("*")) != before

        await until("an archive is being made", at_work)
    server.kill()
    with JournalReader(server.data) as reader:
        here = {each["queue"]: each["messages"] for each in reader.queues()}[f"DLQ.{many}"]
    server.start()
    async with homing.connect(server.url) as connection:
        await holds(connection, f"DLQ.{many}", messages=10)
        left = await connection.call("peek", queue=f"DLQ.{many}", limit=100)
    gone = {each["message_id"] for each in archived(server) if each["queue"] == f"DLQ.{many}"}
    assert gone | {each["message_id"] for each in left["messages"]} == set(died)
    assert 10 <= here <= 400
    assert not [each for each in place.iterdir() if each.name.startswith(".")], json.dumps(sorted(each.name for each in place.iterdir()))
