"""docs/semantics.md, section 2: settings in layers, where each came from, and reloading them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from homing import client
from homing.client import CallError, Connection
from tests.acceptance.semantics_support import fail, history, holds, look, name, queue, running, send, settled
from tests.process import HomingCommand, Server

SETTINGS: dict[str, Any] = {
    "#": {"redelivery-delay": "1h", "max-delivery-attempts": 2},
    "orders.#": {"max-delivery-attempts": 3},
    "orders.*": {"max-delivery-attempts": 4},
    "*.eu": {"max-delivery-attempts": 5, "max-redelivery-records": 7},
    "orders.eu.paris": {"max-delivery-attempts": 6},
}


async def setting(connection: Connection, address: str, key: str) -> tuple[Any, str]:
    reported = await connection.call("explain", address=address)
    return next((each["value"], each["pattern"]) for each in reported["settings"] if each["key"] == key)


@pytest.mark.parametrize(
    ("address", "attempts", "pattern"),
    [
        ("else", 2, "#"),
        ("orders", 3, "orders.#"),
        ("orders.us.boston", 3, "orders.#"),
        ("orders.us", 4, "orders.*"),
        ("orders.eu", 4, "orders.*"),  # word by word from the left: the literal before the star
        ("bills.eu", 5, "*.eu"),
        ("orders.eu.paris", 6, "orders.eu.paris"),
    ],
)
async def test_each_key_comes_from_the_most_specific_pattern_that_sets_it(
    connection: Connection, address: str, attempts: int, pattern: str
) -> None:
    assert await setting(connection, address, "max-delivery-attempts") == (attempts, pattern)
    assert await setting(connection, address, "redelivery-delay") == (3_600_000, "#")
    from_eu = address in ("orders.eu", "bills.eu")
    assert await setting(connection, address, "max-redelivery-records") == ((7, "*.eu") if from_eu else (10, "default"))


async def test_what_is_explained_is_what_happens(connection: Connection) -> None:
    await send(connection, "orders.us", 1)
    await fail(connection, "orders.us", 4, delay_ms=0)
    await holds(connection, "DLQ.orders.us", messages=1)


async def test_what_a_queue_was_declared_with_beats_settings(connection: Connection) -> None:
    address = name("orders")
    await connection.call("create-queue", queue=address, max_delivery_attempts=1)
    await send(connection, address, 1)
    await fail(connection, address, 1)
    await holds(connection, f"DLQ.{address}", messages=1)


async def test_the_same_pattern_twice_is_an_error(tmp_path: Path, homing: HomingCommand) -> None:
    config = tmp_path / "broker.yaml"
    config.write_text('address-settings:\n  "#": {redelivery-delay: 1s}\n  "#": {redelivery-delay: 2s}\n')
    done = await asyncio.to_thread(homing, "config", "check", config)
    assert done.returncode == 5
    assert "line 3" in done.stderr


async def test_explain_shows_the_line_of_a_running_broker_and_of_a_file(server: Server, homing: HomingCommand) -> None:
    lines = {each["key"]: each for each in (await asyncio.to_thread(homing.json, "explain", "orders", url=server.url))["settings"]}
    attempts = lines["max-delivery-attempts"]
    assert "max-delivery-attempts: 3" in server.config_path.read_text().splitlines()[attempts["line"] - 1]
    same = await asyncio.to_thread(homing.json, "explain", "orders", "--config", server.config_path)
    assert {each["key"]: each for each in same["settings"]}["max-delivery-attempts"] == attempts


def change(server: Server, settings: dict[str, Any]) -> None:
    server.config["address-settings"] = {**server.config["address-settings"], **settings}
    server.write_config()


async def test_a_reload_moves_no_due_time_and_applies_at_the_next_failure(tmp_path: Path) -> None:
    with running(tmp_path, SETTINGS) as server:
        async with client.connect(server.url) as connection:
            await send(connection, "orders", 1, 2)
            await fail(connection, "orders", 1)
            (before, _) = await settled(connection, "orders", 2)
            change(server, {"orders.#": {"max-delivery-attempts": 2, "redelivery-delay": "2h"}, "aged": {"message-ttl": "1m"}})
            await send(connection, "aged", 1)
            await connection.call("reload")
            (after, _) = await settled(connection, "orders", 2)
            assert after["due_at_ms"] == before["due_at_ms"]
            await fail(connection, "orders", 1)
            (_, second) = await settled(connection, "orders", 2)
            (attempt,) = (await history(connection, second["message_id"]))["attempts"]
            assert attempt["delay_ms"] == 7_200_000
            await send(connection, "aged", 2)
            assert [each["expires_at_ms"] is not None for each in await look(connection, "aged")] == [False, True]


async def test_a_reload_is_all_or_nothing(tmp_path: Path) -> None:
    with running(tmp_path, SETTINGS) as server:
        async with client.connect(server.url) as connection:
            change(server, {"orders.#": {"max-delivery-attempts": 77}, "bad": {"redelivery-delay": "soon", "message-ttl": "long"}})
            with pytest.raises(CallError) as refused:
                await connection.call("reload")
            assert refused.value.code == "config-invalid"
            done = await asyncio.to_thread(HomingCommand(tmp_path), "reload", url=server.url)
            assert [line.partition(":")[0].partition(", ")[2] for line in done.stderr.splitlines()] == [
                *("", "address-settings.bad.message-ttl", "address-settings.bad.redelivery-delay", ""),
            ], "each on a line of its own"
            assert await setting(connection, "orders", "max-delivery-attempts") == (3, "orders.#")


async def test_a_reload_trims_and_frees_what_is_parked(tmp_path: Path) -> None:
    lost = {"dead-letter-address": "absent", "auto-create-dead-letter-resources": False, "max-delivery-attempts": 1}
    nowhere = {"dead-letter-address": None, "max-delivery-attempts": 1}
    with running(tmp_path, {**SETTINGS, "lost": lost, "nowhere": nowhere}) as server:
        async with client.connect(server.url) as connection:
            for address in ("lost", "nowhere"):
                await send(connection, address, 1)
                await fail(connection, address, 1)
                await holds(connection, address, parked=1)
            await send(connection, "long", *range(10))
            long = {"max-length": 4, "overflow": "drop-head", "dead-letter-address": "DLA"}
            change(server, {"lost": {"max-delivery-attempts": 1}, "nowhere": {}, "long": long})
            await connection.call("reload")
            await holds(connection, "DLQ.lost", messages=1)
            await holds(connection, "DLQ.nowhere", messages=1)
            await holds(connection, "DLQ.long", messages=6)
            assert (await queue(connection, "long"))["messages"] == 4


async def test_what_only_a_restart_can_change_stays(tmp_path: Path) -> None:
    with running(tmp_path, SETTINGS) as server:
        async with client.connect(server.url) as connection:
            before = await connection.call("settings")
            server.config |= {"native": {"port": 1}, "broker": {"memory-limit": "1GiB"}, "limits": {"max-queues": 7, "window-messages": 77}}
            server.write_config()
            changed = (await connection.call("reload"))["changed"]
            after = await connection.call("settings")
            assert after == {**before, "limits": {**before["limits"], "window_messages": 77}}
            needs_restart = {each["path"]: each["needs_restart"] for each in changed}
            restart = {"native.port", "broker.memory_limit_bytes", "limits.max_queues"}
            assert needs_restart == {**dict.fromkeys(restart, True), "limits.window_messages": False}
