"""docs/semantics.md, section 8: where messages end that could not be delivered, and how they come home."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from homing import client
from homing.client import Connection, SendError
from tests.acceptance.semantics_support import (
    bodies,
    consuming,
    drained,
    fail,
    history,
    holds,
    look,
    name,
    outcomes,
    queue,
    receive,
    running,
    send,
    settled,
    until,
)
from tests.process import HomingCommand, Server

ONE_TRY = {"max-delivery-attempts": 1}
SETTINGS: dict[str, Any] = {
    "#": {**ONE_TRY},
    "nowhere.#": {"dead-letter-address": None},
    "nowhere.drop.#": {"without-dead-letter-address": "drop"},
    "brief.#": {"dead-letter-address": "brief.DLA"},
    "brief.DLA": {"auto-delete-queues-delay": 200},
    "mortal.#": {"expiry-address": "GONE", "auto-create-expiry-resources": True},
    "lost.#": {"dead-letter-address": "absent", "auto-create-dead-letter-resources": False},
    "narrow.#": {"dead-letter-address": "narrow.target", "auto-create-dead-letter-resources": False},
    "ring.one": {"dead-letter-address": "ring.two", "auto-create-dead-letter-resources": False},
    "ring.two": {"dead-letter-address": "ring.one", "auto-create-dead-letter-resources": False},
    "self": {"dead-letter-address": "self", "max-length": 2, "overflow": "drop-head", "allow-drop-head-on-dead-letter-queue": True},
    "short.#": {"max-length": 2, "overflow": "drop-head", "dead-letter-address": "DLA"},
    "meant.#": {"dead-letter-address": "meant"},
    "named.#": {"dead-letter-queue-prefix": "rest.", "dead-letter-queue-suffix": ".in.peace"},
}


OPTIONS: dict[str, Any] = {"broker": {"max-hops": 4, "parked-retry": "300ms"}}


async def dead_letter(connection: Connection, address: str, **options: Any) -> dict[str, Any]:
    """Sends one message and lets it die; as it lies in its dead-letter queue."""
    await send(connection, address, b"x", **options)
    await fail(connection, address, 1)
    (dead,) = await settled(connection, f"DLQ.{address}")
    return dead


def reason(entry: dict[str, Any]) -> str:
    return str(entry["hops"][0]["reason"])


# -- there -----------------------------------------------------------------------------------------------------------


async def test_limit_poison_expiry_and_length_lead_there(connection: Connection) -> None:
    limit, poison, expired, length = name(), name(), name("mortal"), name("short")
    assert reason(await dead_letter(connection, limit)) == "delivery_limit"
    await send(connection, poison, 1)
    await fail(connection, poison, 1, retryable=False)
    assert reason((await settled(connection, f"DLQ.{poison}"))[0]) == "not-retryable"
    await send(connection, expired, 1, ttl_ms=50)
    assert reason((await settled(connection, f"EXP.{expired}"))[0]) == "expired"
    await send(connection, length, 1, 2, 3)
    (oldest,) = await settled(connection, f"DLQ.{length}")
    assert (reason(oldest), oldest["body"]) == ("maxlen", b"1")


@pytest.mark.parametrize("kind", ["nowhere", "nowhere.drop"])
async def test_without_an_address_it_is_parked_or_dropped_and_logged_once_a_minute(
    connection: Connection, server: Server, kind: str
) -> None:
    address = name(kind)
    await send(connection, address, *range(5))
    messages = await fail(connection, address, 5)
    left = 0 if kind == "nowhere.drop" else 5
    await holds(connection, address, messages=left, parked=left)
    for message in messages:
        assert await outcomes(connection, message.message_id) == ["dropped"] * (not left)
    said = f"{'parked' if left else 'failed-removed'}: queue {address}: "
    assert server.logged(said).count(said) == 1
    assert "it has no dead-letter-address" in server.logged(said).partition(said)[2].partition("\n")[0]


async def test_config_check_warns_of_a_limit_without_an_address(tmp_path: Path, homing: HomingCommand) -> None:
    config = tmp_path / "broker.yaml"
    config.write_text('address-settings:\n  "#": {dead-letter-address: null, max-delivery-attempts: 3, redelivery-delay: 10s}\n')
    done = await asyncio.to_thread(homing, "config", "check", config)
    assert done.returncode == 0
    assert "dead-letter-address" in done.stdout


async def test_prefix_and_suffix_both_empty_are_refused(tmp_path: Path, homing: HomingCommand) -> None:
    config = tmp_path / "broker.yaml"
    config.write_text('address-settings:\n  "#": {dead-letter-queue-prefix: ""}\n')
    done = await asyncio.to_thread(homing, "config", "check", config)
    assert done.returncode == 5
    assert "dead-letter-queue-prefix" in done.stderr


@pytest.mark.parametrize("address", ["orders", "it's.here", "a ''quoted'' one", "100%_sure.é"])
async def test_the_queue_makes_itself_with_a_selector_for_its_own(connection: Connection, address: str) -> None:
    neighbour = name(address)
    for each in (address, neighbour):
        await dead_letter(connection, each)
    for each in (address, neighbour):
        made = await queue(connection, f"DLQ.{each}")
        escaped = each.replace("'", "''")
        assert (made["address"], made["routing_type"], made["selector"]) == ("DLA", "multicast", f"_AMQ_ORIG_ADDRESS = '{escaped}'")
        assert [entry["properties"]["_AMQ_ORIG_ADDRESS"] for entry in await look(connection, f"DLQ.{each}")] == [each]


async def test_prefix_and_suffix(connection: Connection) -> None:
    address = name("named")
    await send(connection, address, 1)
    await fail(connection, address, 1)
    await settled(connection, f"rest.{address}.in.peace")


async def test_beside_a_declared_queue_of_the_address_none_makes_itself(connection: Connection) -> None:
    """It would be a second copy of every dead letter, and sent back both would be handled."""
    address = name("meant")
    await connection.call("create-queue", queue="meant")
    await send(connection, address, b"x")
    await fail(connection, address, 1)
    (dead,) = await settled(connection, "meant")
    assert dead["hops"][0]["queue"] == address
    assert [each["name"] for each in await connection.listing("queues") if each["address"] == "meant"] == ["meant"]
    assert [each["messages"] for each in await connection.call("dead-letters") if each["queue"] == "meant"] == [1]
    await connection.call("redrive", queue="meant")
    await holds(connection, address, pending=1)


async def test_a_dead_letter_queue_goes_like_any_other_but_never_with_messages_in_it(connection: Connection) -> None:
    empty, full = name("brief"), name("brief")
    await dead_letter(connection, full)
    await dead_letter(connection, empty)
    await drained(connection, f"DLQ.{empty}", 1)

    async def gone() -> bool:
        return "queue_id" not in await queue(connection, f"DLQ.{empty}")

    await until("the empty one is swept away", gone)
    assert len(await look(connection, f"DLQ.{full}")) == 1
    assert (await dead_letter(connection, empty))["hops"], "and makes itself again"


async def test_the_move_is_one_step_also_over_a_crash(tmp_path: Path) -> None:
    with running(tmp_path, SETTINGS) as server:
        async with client.connect(server.url) as connection:
            await send(connection, "orders", *range(200))
            consumer = connection.session(client.AckMode.INDIVIDUAL).consumer("orders", prefetch=20)
            for _ in range(120):
                await (await receive(consumer)).nack()
            await until("some have been moved", lambda: look(connection, "DLQ.orders"))
        server.kill()
        async with client.connect(server.start().url) as connection:
            home, dead = await look(connection, "orders"), await look(connection, "DLQ.orders")
            assert sorted(bodies([*home, *dead])) == list(range(200))
            for each in dead:
                reported = await history(connection, each["message_id"])
                assert ([a["failed"] for a in reported["attempts"]], [o["outcome"] for o in reported["outcomes"]]) == (
                    [1],
                    ["dead-lettered"],
                )


# -- parked ----------------------------------------------------------------------------------------------------------


async def test_a_missing_target_parks_the_message_until_there_is_one(connection: Connection) -> None:
    address = name("lost")
    await send(connection, address, 1, 2)
    await fail(connection, address, 1)
    first, second = await settled(connection, address, 2)
    assert (first["state"], first["failed"], second["state"]) == ("parked", 1, "ready")
    assert (await queue(connection, address))["parked"] == 1
    async with consuming(connection, address) as consumer:
        assert (await receive(consumer)).body == b"2", "the parked one is not dispatched"
    await connection.call("create-queue", queue="absent")
    await holds(connection, address, parked=0)
    (dead,) = await settled(connection, "absent")
    assert (dead["body"], reason(dead), len(dead["hops"])) == (b"1", "delivery_limit", 1)


async def test_a_full_target_parks_the_message_and_it_tries_again(connection: Connection) -> None:
    address = name("narrow.source")
    await connection.call("create-queue", queue="narrow.target", max_length=1, overflow="reject-publish")
    await send(connection, address, 1, 2, 3)
    await fail(connection, address, 3)
    await holds(connection, address, parked=2)
    taken = []
    for _ in range(3):
        taken += await drained(connection, "narrow.target", 1)
    assert sorted(bodies(taken)) == [1, 2, 3]
    assert await look(connection, address) == []


async def test_parked_is_persisted(tmp_path: Path) -> None:
    with running(tmp_path, SETTINGS, broker={"parked-retry": "300ms"}) as server:
        async with client.connect(server.url) as connection:
            await send(connection, "lost", 1)
            await fail(connection, "lost", 1)
            await holds(connection, "lost", parked=1)
        server.kill()
        async with client.connect(server.start().url) as connection:
            (still,) = await settled(connection, "lost")
            assert (still["state"], still["failed"]) == ("parked", 1)
            await connection.call("create-queue", queue="absent")
            assert reason((await settled(connection, "absent"))[0]) == "delivery_limit"


async def test_on_its_own_dead_letter_address_it_is_parked_until_it_is_sent_home_or_purged(connection: Connection) -> None:
    address = name()
    await dead_letter(connection, address)
    letters = f"DLQ.{address}"
    await fail(connection, letters, 1)
    (parked,) = await settled(connection, letters)
    assert (parked["state"], parked["failed"]) == ("parked", 1)
    assert await connection.call("redrive", queue=letters) == {"messages": 1}
    assert (await settled(connection, address))[0]["failed"] == 0
    await fail(connection, address, 1)
    await settled(connection, letters)
    await fail(connection, letters, 1)
    await holds(connection, letters, parked=1)
    assert await connection.call("purge", queue=letters) == {"messages": 1}
    assert await look(connection, letters) == []


async def test_on_its_own_dead_letter_address_a_full_queue_refuses_new_sends(connection: Connection) -> None:
    await send(connection, "self", 1, 2)
    with pytest.raises(SendError) as refused:
        await send(connection, "self", 3)
    assert refused.value.code == "queue-full"
    assert bodies(await look(connection, "self")) == [1, 2]


async def test_a_message_that_goes_round_in_a_ring_is_parked(connection: Connection) -> None:
    for each in ("ring.one", "ring.two"):
        await connection.call("create-queue", queue=each)
    await send(connection, "ring.one", 1)
    for hop in range(4):
        await fail(connection, "ring.two" if hop % 2 else "ring.one", 1)
        await settled(connection, "ring.one" if hop % 2 else "ring.two")
    await fail(connection, "ring.one", 1)
    (parked,) = await settled(connection, "ring.one")
    assert (parked["state"], len(parked["hops"])) == ("parked", 4)
    assert [each["queue"] for each in parked["hops"]] == ["ring.two", "ring.one"] * 2, "newest first"


# -- where it came from ----------------------------------------------------------------------------------------------


async def test_the_message_tells_where_it_came_from(connection: Connection) -> None:
    address = name()
    dead = await dead_letter(connection, address, properties={"k": "v"}, ttl_ms=3_600_000, priority=7)
    (message,) = await drained(connection, f"DLQ.{address}", 1)
    reported = message.properties
    assert {
        key: reported[key] for key in ("k", "_AMQ_ORIG_ADDRESS", "_AMQ_ORIG_QUEUE", "_AMQ_ORIG_MESSAGE_ID", "_AMQ_ORIG_ROUTING_TYPE")
    } == {
        "k": "v",
        "_AMQ_ORIG_ADDRESS": address,
        "_AMQ_ORIG_QUEUE": address,
        "_AMQ_ORIG_MESSAGE_ID": message.message_id,
        "_AMQ_ORIG_ROUTING_TYPE": "anycast",
    }
    assert reported["_HOMING_REASON"] == "delivery_limit"
    assert abs(reported["_AMQ_ACTUAL_EXPIRY"] - message.sent_at_ms - 3_600_000) < 60_000
    assert (message.expires_at_ms, dead["expires_at_ms"]) == (0, None), "every death clears the expiration"
    assert (message.priority, message.address) == (7, address)
    (hop,) = json.loads(reported["_HOMING_HOPS"])
    assert hop | {"reason": "delivery_limit", "queue": address, "attempts": 1, "delivery_count": 1} == hop


async def test_hops_are_kept_newest_first_and_never_overwritten(connection: Connection) -> None:
    address = name()
    for _ in range(3):
        if "queue_id" in await queue(connection, f"DLQ.{address}"):
            await connection.call("redrive", queue=f"DLQ.{address}")
            await fail(connection, address, 1)
        else:
            await dead_letter(connection, address)
        (dead,) = await settled(connection, f"DLQ.{address}")
    assert [each["queue"] for each in dead["hops"]] == [address] * 3
    times = [each["at_ms"] for each in dead["hops"]]
    assert times == sorted(times, reverse=True)
    assert [each["delivery_count"] for each in dead["hops"]][-1] == 1


# -- home again ------------------------------------------------------------------------------------------------------


async def test_redrive_goes_to_the_first_hops_queue_and_a_multicast_sibling_gets_no_copy(connection: Connection) -> None:
    address = name()
    for each in ("a", "b"):
        await connection.call("create-queue", queue=f"{address}.{each}", address=address, routing_type="multicast")
    await send(connection, address, 1)
    await drained(connection, f"{address}.b", 1)
    await fail(connection, f"{address}.a", 1)
    (dead,) = await settled(connection, f"DLQ.{address}")
    assert dead["properties"]["_AMQ_ORIG_QUEUE"] == f"{address}.a"
    assert await connection.call("redrive", queue=f"DLQ.{address}") == {"messages": 1}
    assert len(await settled(connection, f"{address}.a")) == 1
    assert await look(connection, f"{address}.b") == []


async def test_redrive_of_some(connection: Connection) -> None:
    address = name()
    await send(connection, address, *range(4))
    messages = await fail(connection, address, 4)
    await settled(connection, f"DLQ.{address}", 4)
    chosen = [messages[1].message_id, messages[3].message_id]
    assert await connection.call("redrive", queue=f"DLQ.{address}", message_ids=chosen) == {"messages": 2}
    assert sorted(each["message_id"] for each in await settled(connection, address, 2)) == sorted(chosen)
    assert len(await look(connection, f"DLQ.{address}")) == 2


async def test_redrive_makes_the_queue_again_if_it_is_gone(connection: Connection) -> None:
    address = name()
    await dead_letter(connection, address)
    await connection.call("delete-queue", queue=address)
    assert await connection.call("redrive", queue=f"DLQ.{address}") == {"messages": 1}
    await drained(connection, address, 1)
