"""docs/semantics.md, section 7: what is kept of a failure."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import homing
from homing.client import AckMode, Connection, Message
from tests.acceptance.semantics_support import consuming, fail, history, holds, name, queue, receive, running, send, settled
from tests.process import Server

SETTINGS: dict[str, Any] = {
    "#": {"max-delivery-attempts": -1},
    "three.#": {"max-delivery-attempts": 3},
    "late.#": {"redelivery-delay": 150},
    "four.#": {"max-redelivery-records": 4},
    "none.#": {"max-redelivery-records": 0},
    "all.#": {"max-redelivery-records": -1},
    "ten.#": {"max-redelivery-records": 10},
    "secret.#": {"traceback-redactions": ["password=\\S+", "[0-9a-f-]{20}KEY"], "max-traceback-bytes": 2000},
    "silent.#": {"keep-tracebacks": False},
}


async def attempts_of(connection: Connection, message_id: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await history(connection, message_id))["attempts"]
    return found


def failing(password: str) -> Exception:
    try:
        raise PermissionError(f"refused with password={password} at row 17")
    except PermissionError as error:
        return error


async def test_an_exception_becomes_a_record_beside_the_message(connection: Connection) -> None:
    address = name("late")
    await send(connection, address, b"x", properties={"k": "v"})
    ids, again = list[int](), asyncio.Event()

    async def handler(message: Message) -> None:
        ids.append(message.message_id)
        if message.delivery_count == 1:
            raise failing("xyz")
        again.set()

    async with connection.session(AckMode.AUTO) as session:
        before_ms = connection.now_ms()
        consumer = session.consumer(address)
        await consumer.listen(handler)
        await again.wait()
        await holds(connection, address, messages=0)
    (attempt,) = await attempts_of(connection, ids[0])
    assert {key: attempt[key] for key in ("attempt", "queue", "original_address", "outcome", "delivery_count", "failed", "delay_ms")} == {
        "attempt": 1,
        "queue": address,
        "original_address": address,
        "outcome": "listener",
        "delivery_count": 1,
        "failed": 1,
        "delay_ms": 150,
    }
    assert attempt["consumer"] == f"{attempt['connection']}/{consumer.number}"
    assert before_ms - 1000 <= attempt["assigned_at_ms"] <= attempt["given_at_ms"] <= attempt["at_ms"] <= connection.now_ms() + 1000
    assert attempt["due_at_ms"] == attempt["at_ms"] + 150
    assert attempt["policy"]
    fault = attempt["fault"]
    assert (fault["error_type"], fault["error_text"]) == ("PermissionError", "refused with password=xyz at row 17")
    assert "in failing" in fault["traceback"]
    assert fault["fingerprint"]


async def test_the_actual_time_of_the_next_dispatch_is_told(connection: Connection) -> None:
    address = name("late")
    await send(connection, address, b"x")
    messages = await fail(connection, address, 2)
    await settled(connection, address)
    first, second = await attempts_of(connection, messages[0].message_id)
    assert second["assigned_at_ms"] >= first["due_at_ms"]


async def test_equal_faults_have_one_fingerprint(connection: Connection) -> None:
    address = name()
    await send(connection, address, 1, 2, 3)
    prints = []
    async with consuming(connection, address) as consumer:
        for error in (ValueError("row 17 is bad"), ValueError("row 4711 is bad"), KeyError("row 17 is bad")):
            message = await receive(consumer)
            await message.nack(error=error, delay_ms=60_000)
            prints.append(message.message_id)
    await holds(connection, address, scheduled=3)
    same, also, different = [(await attempts_of(connection, each))[0]["fault"]["fingerprint"] for each in prints]
    assert same == also != different


async def test_every_way_to_fail_leaves_its_name(connection: Connection, server: Server) -> None:
    address = name()
    await send(connection, address, 1)
    async with consuming(connection, address) as consumer:
        message = await receive(consumer)
        await message.nack(reason="no")
    async with connection.session(AckMode.CLIENT) as session:
        await receive(session.consumer(address))
        await session.recover()
    async with connection.session(AckMode.TRANSACTED) as session:
        await receive(session.consumer(address))
        await session.rollback()
    async with homing.connect(server.url, reconnect=False) as other:
        await receive(other.session(AckMode.CLIENT).consumer(address))
        assert other.wire is not None
        other.wire.abort(homing.ConnectionLost("connection-lost", "cut", "none"))
        await settled(connection, address)
    await fail(connection, address, 1, retryable=False)
    await holds(connection, f"DLQ.{address}", messages=1)
    reported = await attempts_of(connection, message.message_id)
    assert [each["outcome"] for each in reported] == ["nack", "recover", "rollback", "connection-lost", "nack"]
    assert [each["decision"] for each in reported] == ["redeliver"] * 4 + ["dead-letter"]


async def test_a_return_without_blame_leaves_no_record(connection: Connection) -> None:
    address = name()
    await send(connection, address, 1)
    (message, _) = await fail(connection, address, 2, count=False)
    await fail(connection, address, 1)
    await settled(connection, address)
    (attempt,) = await attempts_of(connection, message.message_id)
    assert (attempt["attempt"], attempt["delivery_count"]) == (1, 3)


async def test_texts_are_capped_and_redacted(connection: Connection) -> None:
    address = name("secret")
    await send(connection, address, 1)
    (message,) = await fail(connection, address, 1, reason="password=hunter2 was wrong", error=failing("swordfish " + "x" * 3000))
    await settled(connection, address)
    fault = (await attempts_of(connection, message.message_id))[0]["fault"]
    assert fault["reason"] == "*** was wrong"
    assert "swordfish" not in fault["error_text"] + fault["traceback"]
    assert len(fault["traceback"]) < 2200
    assert "characters left out" in fault["traceback"]


@pytest.mark.parametrize("at", [2040, 8164, 11_000])
async def test_no_part_of_a_secret_is_kept_where_client_or_broker_cut(connection: Connection, at: int) -> None:
    """2,048 characters are the broker's half of a text, 8,172 the client's."""
    address = name("secret")
    await send(connection, address, 1)
    text = "." * at + "0123-4567-89ab-cdef-KEY" + "." * 9000
    kind = type("password=hunter2", (Exception,), {"__module__": "app"})
    (message,) = await fail(connection, address, 1, reason=text, error=kind(text))
    await settled(connection, address)
    fault = (await attempts_of(connection, message.message_id))[0]["fault"]
    assert fault["error_type"] == "app.***"
    assert not [part for part in ("0123", "4567", "89ab", "cdef", "KEY", "hunter2") if part in str(fault)]
    assert 4000 < len(fault["reason"]) < 4200


async def test_tracebacks_can_be_off(connection: Connection) -> None:
    address = name("silent")
    await send(connection, address, 1)
    (message,) = await fail(connection, address, 1, error=failing("x"))
    await settled(connection, address)
    fault = (await attempts_of(connection, message.message_id))[0]["fault"]
    assert "traceback" not in fault
    assert fault["error_type"] == "PermissionError"


@pytest.mark.parametrize(
    ("address", "fails", "kept"),
    [
        ("four", 9, [6, 7, 8, 9]),
        ("ten", 25, [1, *range(17, 26)]),
        ("all", 103, [*range(1, 11), *range(14, 104)]),
        ("none", 5, []),
    ],
)
async def test_records_are_bounded_and_counts_are_not(connection: Connection, address: str, fails: int, kept: list[int]) -> None:
    """-1 keeps all but at most 100: the first 10 and the last 90. How many were left out follows from the count."""
    source = name(address)
    await send(connection, source, 1)
    await fail(connection, source, fails)
    (waiting,) = await settled(connection, source)
    assert (waiting["failed"], waiting["delivery_count"]) == (fails, fails)
    reported = await history(connection, waiting["message_id"])
    assert [each["attempt"] for each in reported["attempts"]] == kept
    (reference,) = reported["references"]
    assert reference["failed"] == fails


async def test_counts_and_due_time_are_persisted_without_any_record(tmp_path: Path) -> None:
    settings = {"none.#": {"max-redelivery-records": 0, "redelivery-delay": 60_000}}
    with running(tmp_path, settings) as server:
        async with homing.connect(server.url) as connection:
            await send(connection, "none", 1)
            async with consuming(connection, "none") as consumer:
                for _ in range(3):
                    await (await receive(consumer)).nack(delay_ms=0)
                await (await receive(consumer)).nack()
            (before,) = await settled(connection, "none")
        server.kill()
        async with homing.connect(server.start().url) as connection:
            (after,) = await settled(connection, "none")
            assert (after["failed"], after["due_at_ms"]) == (4, before["due_at_ms"])
            assert (await queue(connection, "none"))["scheduled"] == 1
