"""docs/semantics.md, section 3: when a failed message comes back."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from homing import client
from homing.client import AckMode, Connection
from tests.acceptance.semantics_support import (
    bodies,
    consuming,
    drained,
    fail,
    fail_quickly,
    history,
    holds,
    look,
    name,
    receive,
    receive_all,
    recorded_delay,
    running,
    send,
    settled,
)
from tests.process import HomingCommand, Server

TEN_YEARS_MS = 10 * 365 * 86_400_000
SETTINGS: dict[str, Any] = {
    "#": {"max-delivery-attempts": -1},
    "exponential.#": {"redelivery-delay": 1000, "redelivery-delay-multiplier": 3},
    "constant.#": {"redelivery-delay": 700},
    "linear.#": {"redelivery-delay": 1000, "redelivery-back-off": "linear"},
    "capped.#": {"redelivery-delay": 1000, "redelivery-back-off": "linear", "max-redelivery-delay": 2500},
    "jitter.#": {"redelivery-delay": 1000, "redelivery-delay-multiplier": 2, "redelivery-back-off": "full-jitter"},
    "spread.#": {"redelivery-delay": 1000, "max-redelivery-delay": 1000, "redelivery-collision-avoidance-factor": 1},
    "listed.#": {"redelivery-delays": ["1s", "10s", "5m"]},
    "endless.#": {"redelivery-delay": "1h", "redelivery-delay-multiplier": 1000, "max-redelivery-delay": "87600h"},
    "slow.#": {"redelivery-delay": 60_000},
    "short.#": {"redelivery-delay": 400},
    "at-once.#": {"redelivery-delay": 0},
    "long.#": {"max-delivery-attempts": 3, "redelivery-delay": "1m"},
}


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("exponential", [1000, 3000, 9000, 10_000, 10_000]),  # stopped at 10 × the delay, where no cap is set
        ("constant", [700, 700, 700]),
        ("linear", [1000, 2000, 3000, 4000]),
        ("capped", [1000, 2000, 2500, 2500]),
        ("listed", [1000, 10_000, 300_000, 300_000]),
        ("plain", [0, 0, 0]),
    ],
)
async def test_the_delay_after_n_failures(connection: Connection, address: str, expected: list[int]) -> None:
    found = []
    for times in range(1, len(expected) + 1):
        found.append(await recorded_delay(connection, await fail_quickly(connection, name(address), times)))
    assert found == expected


async def test_full_jitter_is_drawn_from_nothing_to_the_exponential(connection: Connection) -> None:
    address = name("jitter")
    await send(connection, address, *range(60))
    async with consuming(connection, address) as consumer:
        for message in await receive_all(consumer, 60):
            await message.nack()
    delays = [await recorded_delay(connection, each["message_id"]) for each in await settled(connection, address, 60)]
    assert all(0 <= each <= 1000 for each in delays)
    assert min(delays) < 500 < max(delays)


async def test_the_cap_holds_for_jitter_too(connection: Connection) -> None:
    address = name("spread")
    await send(connection, address, *range(60))
    async with consuming(connection, address) as consumer:
        for message in await receive_all(consumer, 60):
            await message.nack()
    delays = [await recorded_delay(connection, each["message_id"]) for each in await settled(connection, address, 60)]
    assert max(delays) == 1000
    assert min(delays) < 1000


async def test_multiplying_stops_without_overflow_and_nothing_is_longer_than_ten_years(connection: Connection) -> None:
    address = name("endless")
    assert await recorded_delay(connection, await fail_quickly(connection, address, 200)) == TEN_YEARS_MS
    (waiting,) = await settled(connection, address)
    assert (waiting["state"], waiting["failed"]) == ("scheduled", 200)


async def test_a_return_that_does_not_count_is_immediate_unless_it_names_a_delay(connection: Connection) -> None:
    address = name("slow")
    await send(connection, address, 1)
    for _ in range(3):
        await fail(connection, address, 1, count=False)
    assert [each["state"] for each in await settled(connection, address)] == ["ready"]
    await fail(connection, address, 1, count=False, delay_ms=30_000)
    assert [each["state"] for each in await settled(connection, address)] == ["scheduled"]


async def test_only_the_failed_message_waits(connection: Connection) -> None:
    address = name("slow")
    await send(connection, address, *range(5))
    async with consuming(connection, address) as consumer:
        for message in await receive_all(consumer, 5):
            await (message.nack() if message.body == b"1" else message.acknowledge(confirm=True))
    (waiting,) = await settled(connection, address)
    assert (waiting["body"], waiting["state"]) == (b"1", "scheduled")


async def test_a_due_time_survives_a_restart_and_what_fell_due_meanwhile_goes_out_at_once(tmp_path: Path) -> None:
    with running(tmp_path, SETTINGS) as server:
        async with client.connect(server.url) as connection:
            for address in ("slow", "short"):
                await send(connection, address, 1)
                await fail(connection, address, 1)
            (slow,), (short,) = await settled(connection, "slow"), await settled(connection, "short")
            assert slow["state"] == "scheduled"
            due_at_ms = (await history(connection, short["message_id"]))["attempts"][0]["due_at_ms"]
        server.kill()
        while time.time() * 1000 <= due_at_ms:
            time.sleep(0.05)  # noqa: ASYNC251 - nothing else runs
        async with client.connect(server.start().url) as connection:
            (again,) = await look(connection, "slow")
            assert {key: again[key] for key in ("due_at_ms", "delivery_count", "failed", "state")} == {
                key: slow[key] for key in ("due_at_ms", "delivery_count", "failed", "state")
            }
            assert [each.delivery_count for each in await drained(connection, "short", 1)] == [2]


@pytest.mark.parametrize("kill", [False, True])
async def test_never_early_also_over_a_restart(tmp_path: Path, kill: bool) -> None:
    settings = SETTINGS | {"wait.#": {"redelivery-delay": 1200}}
    with running(tmp_path, settings) as server:
        async with client.connect(server.url) as connection:
            await send(connection, "wait", *range(3))
            await fail(connection, "wait", 3)
            waiting = [each["message_id"] for each in await settled(connection, "wait", 3)]
            dues = {each: (await history(connection, each))["attempts"][0]["due_at_ms"] for each in waiting}
        server.kill() if kill else server.stop()
        async with client.connect(server.start().url) as connection, consuming(connection, "wait") as consumer:
            for _ in range(3):
                message = await receive(consumer)
                assert connection.now_ms() >= dues[message.message_id] - 2  # two clocks
                await message.acknowledge(confirm=True)
                reported = await history(connection, message.message_id)
                assert reported["outcomes"][0]["at_ms"] >= dues[message.message_id]


@pytest.mark.parametrize("way", ["nack", "release", "recover", "rollback"])
async def test_what_comes_back_at_once_is_not_overtaken(connection: Connection, way: str) -> None:
    queue = name(f"at-once.{way}")
    await send(connection, queue, *range(6))
    mode = {"recover": AckMode.CLIENT, "rollback": AckMode.TRANSACTED}.get(way, AckMode.INDIVIDUAL)
    async with connection.session(mode) as session:
        consumer = session.consumer(queue, prefetch=1)
        for _ in range(3):
            message = await receive(consumer)
            assert int(message.body) == 0
            if way == "recover":
                await session.recover()
            elif way == "rollback":
                await session.rollback()
            else:
                await (message.nack(delay_ms=0) if way == "nack" else message.release())


async def test_a_returned_message_takes_its_original_place_also_after_a_delay(connection: Connection) -> None:
    address = name()
    for number, priority in enumerate((4, 7, 4, 7, 4)):
        await send(connection, address, number, priority=priority)
    async with consuming(connection, address, prefetch=2) as consumer:
        first, second = await receive_all(consumer, 2)
        assert bodies([first, second]) == [1, 3]
        await first.nack(delay_ms=100)
        await second.nack()
    await holds(connection, address, pending=5)
    assert bodies(await drained(connection, address, 5)) == [1, 3, 0, 2, 4]


async def test_explain_prints_the_attempts_and_the_whole_life(server: Server, homing: HomingCommand) -> None:
    reported = await asyncio.to_thread(homing.json, "policy", "explain", "long.orders", url=server.url)
    assert [each["min_delay_ms"] for each in reported["attempts"]] == [0, 60_000, 60_000]
    assert (reported["min_total_ms"], reported["max_total_ms"], reported["warning"]) == (120_000, 120_000, None)
    printed = await asyncio.to_thread(homing, "policy", "explain", "long.orders", url=server.url)
    assert "After 3 attempts, after 2 min" in printed.stdout


async def test_a_life_of_less_than_ten_seconds_earns_a_warning(tmp_path: Path, homing: HomingCommand) -> None:
    config = tmp_path / "broker.yaml"
    config.write_text('address-settings:\n  "#": {redelivery-delay: 100ms, max-delivery-attempts: 5, dead-letter-address: DLA}\n')
    reported = await asyncio.to_thread(homing.json, "policy", "explain", "orders", "--config", config)
    assert "gone within 0.4 s" in reported["warning"]


async def test_a_list_together_with_a_delay_is_a_config_error(tmp_path: Path, homing: HomingCommand) -> None:
    config = tmp_path / "broker.yaml"
    config.write_text('address-settings:\n  "#": {redelivery-delay: 1s, redelivery-delays: [1s, 2s]}\n')
    done = await asyncio.to_thread(homing, "config", "check", config)
    assert done.returncode == 5
    assert "redelivery-delays" in done.stderr
