"""docs/semantics.md, section 12: what outlives a message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import homing
from homing.client import CallError, Connection
from tests.acceptance.semantics_support import (
    drained,
    fail,
    history,
    holds,
    name,
    outcomes,
    running,
    send,
    settled,
    totals,
    until,
)
from tests.pauses import tried_again
from tests.process import Server

SETTINGS: dict[str, Any] = {
    "#": {"max-delivery-attempts": 2},
    "nowhere.#": {"dead-letter-address": None, "without-dead-letter-address": "drop"},
}


@tried_again
async def test_the_outcome_of_what_has_failed_once_is_kept(connection: Connection) -> None:
    ends: dict[str, str] = {}
    for end in ("succeeded", "dead-lettered", "dropped", "expired", "purged"):
        address = name("nowhere" if end in ("dropped", "expired") else "orders")
        await send(connection, address, 1, ttl_ms=600 if end == "expired" else 0)
        (message,) = await fail(connection, address, 1, delay_ms=3_600_000 if end == "expired" else 0)
        if end == "succeeded":
            await drained(connection, address, 1)
        elif end == "purged":
            await settled(connection, address)
            await connection.call("purge", queue=address)
        elif end != "expired":
            await fail(connection, address, 1)
        await holds(connection, address, messages=0)
        reported = await history(connection, message.message_id)
        assert reported["attempts"][0]["outcome"] == "nack"
        ends[end] = reported["outcomes"][0]["outcome"]
        assert (reported["outcomes"][0]["address"], reported["outcomes"][0]["queue"]) == (address, address)
    assert ends == {end: end for end in ends}


async def test_what_succeeds_at_once_is_counted_and_leaves_no_history(connection: Connection, server: Server) -> None:
    address = name("orders")
    await send(connection, address, 1, 2, 3)
    await fail(connection, address, 1, delay_ms=0)
    messages = await drained(connection, address, 3)
    counted = totals(server, address)
    expected = {"sent": 3, "delivered": 4, "succeeded": 3, "first_try": 2, "failed": 1, "dead_lettered": 0}
    assert {key: counted[key] for key in expected} == expected
    for message in messages:
        if message.delivery_count == 1:
            with pytest.raises(CallError) as nothing:
                await history(connection, message.message_id)
            assert nothing.value.code == "no-such-message"
        else:
            assert await outcomes(connection, message.message_id) == ["succeeded"]


async def test_the_account_balances(connection: Connection, server: Server) -> None:
    """sent = succeeded + dead-lettered + expired + dropped + purged + still here, for one queue."""
    address = name("orders")
    await send(connection, address, *range(20))
    await send(connection, address, 99, 99, ttl_ms=50)
    await holds(connection, address, messages=20)
    await drained(connection, address, 5)
    for _ in range(3):
        await fail(connection, address, 1, retryable=False)
    await holds(connection, f"DLQ.{address}", messages=3)
    counted = totals(server, address)
    still_here = len(await settled(connection, address, 12))
    ended = sum(counted[key] for key in ("succeeded", "dead_lettered", "expired", "dropped", "purged"))
    assert counted["sent"] + counted["moved_in"] == ended + counted["moved_out"] + still_here == 22


async def test_history_survives_a_crash(tmp_path: Path) -> None:
    with running(tmp_path, SETTINGS) as server:
        async with homing.connect(server.url) as connection:
            await send(connection, "orders", 1)
            (message, _) = await fail(connection, "orders", 2, delay_ms=0, reason="no")
            await settled(connection, "DLQ.orders")
            before = await history(connection, message.message_id)
        server.kill()
        async with homing.connect(server.start().url) as connection:
            assert await history(connection, message.message_id) == before


@pytest.mark.parametrize("limit", [{"history-retention": "1s"}, {"history-max-bytes": 1}])
async def test_history_is_kept_for_a_time_and_up_to_a_size(tmp_path: Path, limit: dict[str, Any]) -> None:
    """The attempts of what is still in a queue stay as long as it does, where size allows. The sweep runs at each start."""
    with running(tmp_path, SETTINGS, journal=limit) as server:
        async with homing.connect(server.url) as connection:
            await send(connection, "orders", 1)
            (gone,) = await fail(connection, "orders", 1, delay_ms=0)
            await drained(connection, "orders", 1)
            await send(connection, "orders", 2)
            (here,) = await fail(connection, "orders", 1, delay_ms=3_600_000)
            await settled(connection, "orders")
            gone_at_ms = connection.now_ms()

            async def is_past() -> bool:
                return connection.now_ms() > gone_at_ms + 1100

            await until("the time is over", is_past)
        server.stop()
        async with homing.connect(server.start().url) as connection:

            async def forgotten() -> bool:
                try:
                    await history(connection, gone.message_id)
                except CallError:
                    return True
                await send(connection, "other", 1)
                return False

            await until("what is gone is forgotten", forgotten)

            async def as_size_allows() -> bool:
                reported = await history(connection, here.message_id)
                assert len(reported["references"]) == 1
                return len(reported["attempts"]) == ("history-retention" in limit)

            await until("attempts are left as far as size allows", as_size_allows)
