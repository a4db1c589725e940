"""What a real broker's export says, column by column, against what clients did to that broker.

Each message goes one way; what every column of every table must say follows from that way and from the clients' own clock, never from
the code that writes or reads the journal.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

import homing
from homing.client import AckMode, Connection, Message
from homing.journal.fingerprint import fingerprint
from tests.acceptance.semantics_support import drained, fail, holds, receive, running
from tests.process import HomingCommand

Row = dict[str, Any]
HOUR_MS = 3_600_000
SETTINGS: dict[str, Any] = {
    "#": {"max-delivery-attempts": 2, "redelivery-delay": "20ms"},
    "orders": {"message-key-property": "customer"},
    "late": {"expiry-address": "EXP", "auto-create-expiry-resources": True},
    "stuck": {"dead-letter-address": "nowhere", "auto-create-dead-letter-resources": False},
}


#: The program of this file, as it is told of each attempt and outcome.
SHOP = {"client_id": "shop", "host": socket.gethostname(), "version": "2.1"}
NO_IDS: Mapping[str, Any] = {"amqp_message_id": None, "app_id": None}
NOBODY = dict.fromkeys(SHOP)


class Account:
    """What the clients know: numbers of messages by the way they went, and when."""

    def __init__(self) -> None:
        self.began = datetime.now(UTC)
        self.ids: dict[str, int] = {}
        self.faults: list[dict[str, Any]] = []
        self.ended = self.began

    def during(self, value: Any) -> bool:
        """A time of the test's own life; the broker's clock counts in milliseconds."""
        return isinstance(value, datetime) and self.began.timestamp() - 0.002 <= value.timestamp() <= self.ended.timestamp() + 0.002


async def send(connection: Connection, address: str, body: bytes, **options: Any) -> None:
    async with connection.session() as session:
        await session.producer(address).send(body, **options)


async def fail_with(connection: Connection, queue: str, times: int, error: Exception) -> Message:
    async with connection.session(AckMode.INDIVIDUAL) as session:
        consumer = session.consumer(queue, prefetch=1)
        for _ in range(times):
            message = await receive(consumer)
            await message.nack(error=error, reason="out of stock")
    return message


async def go_all_ways(connection: Connection, account: Account) -> None:
    await send(connection, "orders", b"first", properties={"customer": "ann"})
    (message,) = await drained(connection, "orders", 1)
    account.ids["at once"] = message.message_id
    await send(connection, "orders", b"second", properties={"customer": "bob"}, priority=7)
    account.ids["later"] = (await fail_with(connection, "orders", 1, ValueError("no stock 17"))).message_id
    await drained(connection, "orders", 1)
    for way in ("dead", "redriven"):
        await send(connection, "orders", way.encode(), properties={"customer": "cleo"})
        account.ids[way] = (await fail_with(connection, "orders", 2, KeyError("sku"))).message_id
        await holds(connection, "DLQ.orders", messages=len(account.ids) - 2)
    await connection.call("redrive", queue="DLQ.orders", message_ids=[account.ids["redriven"]])
    await drained(connection, "orders", 1)
    await send(connection, "late", b"expired", ttl_ms=30)
    await holds(connection, "EXP.late", messages=1)
    await send(connection, "someday", b"scheduled", delay_ms=HOUR_MS)
    await send(connection, "stuck", b"parked")
    account.ids["parked"] = (await fail(connection, "stuck", 2))[0].message_id
    await holds(connection, "stuck", parked=1)
    await send(connection, "purged", b"purged")
    account.ids["purged"] = (await fail(connection, "purged", 1, delay_ms=HOUR_MS))[0].message_id
    await holds(connection, "purged", scheduled=1)
    await connection.call("purge", queue="purged")
    await send(connection, "fixed", b'{"total": 5}')
    account.ids["edited"] = (await fail(connection, "fixed", 1, delay_ms=HOUR_MS))[0].message_id
    await holds(connection, "fixed", scheduled=1)
    account.ids["edit"] = await connection.edit(account.ids["edited"], patch={"total": 6})
    await drained(connection, "fixed", 1)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Account]:
    """Not a coroutine, so that one broker and one export serve all tests of this file."""
    directory, account = tmp_path_factory.mktemp("exported"), Account()
    with running(directory, SETTINGS) as server:

        async def live() -> None:
            async with homing.connect(server.url, client_id="shop", program_version="2.1") as connection:
                await go_all_ways(connection, account)
                await connection.redrive("DLQ.orders", message_ids=[7], wait=True)
                account.faults = (await connection.call("faults"))["items"]

        asyncio.run(live())
        assert server.stop() == 0
        account.ended = datetime.now(UTC)
        command = HomingCommand(directory)
        command.json("journal", "export", "--data", server.data, "--out", directory / "dump", "--with-tracebacks")
    return directory / "dump", account


def rows_of(dump: Path, name: str) -> list[Row]:
    rows: list[Row] = ds.dataset(dump / name, format="parquet", partitioning="hive").to_table().to_pylist()
    manifest = json.loads((dump / "_homing_export.json").read_text())
    assert manifest["rows"][name] == len(rows)
    for row in rows:
        assert (row.pop("broker_id"), row.pop("schema_version")) == (manifest["broker_id"], manifest["schema_version"])
        row.pop("day", None)
    return rows


def check(row: Row, **expected: Any) -> None:
    """Every column is spoken of: a value, or a function that says whether the value will do."""
    assert set(row) == set(expected)
    wrong = {
        column: (row[column], wanted)
        for column, wanted in expected.items()
        if not (wanted(row[column]) if callable(wanted) else row[column] == wanted)
    }
    assert not wrong


def number(value: Any) -> bool:
    return type(value) is int and value > 0


def near(at: datetime, seconds: float) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, datetime) and abs((value - at).total_seconds() - seconds) < 30


def one(rows: list[Row], **wanted: Any) -> Row:
    (found,) = [row for row in rows if all(row[column] == value for column, value in wanted.items())]
    return found


def test_messages(exported: tuple[Path, Account]) -> None:
    dump, account = exported
    rows, during = rows_of(dump, "messages"), account.during
    settled: Mapping[str, Any] = {"state": "settled", "suspect": None, "priority": None, "body_bytes": None, "hops": None, **NO_IDS}
    over: Mapping[str, Any] = {"sent_at": during, "entered_at": during, "due_at": None, "expires_at": None, "settled_at": during}
    orders: Mapping[str, Any] = {"sequence": number, "queue_id": number, "queue": "orders", "address": "orders", **settled, **over}
    assert account.ids["at once"] not in {row["message_id"] for row in rows}

    orders = {**orders, "home_queue": "orders", "producer": lambda value: value.startswith("shop/"), **NOBODY}
    check(
        one(rows, message_id=account.ids["later"]),
        **{**orders, **SHOP}, message_id=account.ids["later"], outcome="succeeded", attempts=2, failed_attempts=1,
        delivery_count=2, reason=None, target_queues=[], message_key="bob",
    )  # fmt: skip
    died: Mapping[str, Any] = {
        "outcome": "dead-lettered", "attempts": 2, "failed_attempts": 2, "delivery_count": 2, "reason": "delivery_limit",
        "target_queues": ["DLQ.orders"], "message_key": "cleo",
    }  # fmt: skip
    for way in ("dead", "redriven"):
        check(one(rows, message_id=account.ids[way], outcome="dead-lettered"), **orders, message_id=account.ids[way], **died)
    back = one(rows, message_id=account.ids["redriven"], outcome="redriven")
    check(
        back, **{**orders, "queue": "DLQ.orders"}, message_id=account.ids["redriven"], outcome="redriven", attempts=0,
        failed_attempts=0, delivery_count=0, reason=None, target_queues=["orders"], message_key=None,
    )  # fmt: skip
    check(
        one(rows, message_id=account.ids["redriven"], outcome="succeeded"),
        **{**orders, **SHOP}, message_id=account.ids["redriven"], outcome="succeeded", attempts=1, failed_attempts=0,
        delivery_count=3, reason=None, target_queues=[], message_key="cleo",
    )  # fmt: skip
    check(
        one(rows, queue="late"),
        **{**orders, "queue": "late", "address": "late", "home_queue": "late"}, message_id=number, outcome="expired",
        attempts=0, failed_attempts=0, delivery_count=0, reason="expired", target_queues=["EXP.late"], message_key=None,
    )  # fmt: skip
    check(
        one(rows, queue="purged"),
        **{**orders, "queue": "purged", "address": "purged", "home_queue": "purged"}, message_id=account.ids["purged"],
        outcome="purged", attempts=1, failed_attempts=1, delivery_count=1, reason=None, target_queues=[], message_key=None,
    )  # fmt: skip
    fixed = {**orders, "queue": "fixed", "address": "fixed", "home_queue": "fixed", "reason": None, "message_key": None}
    check(
        one(rows, queue="fixed", outcome="edited"),
        **fixed, message_id=account.ids["edited"], outcome="edited", attempts=1, failed_attempts=1, delivery_count=1,
        target_queues=["fixed"],
    )  # fmt: skip
    check(
        one(rows, queue="fixed", outcome="succeeded"),
        **{**fixed, **SHOP}, message_id=account.ids["edit"], outcome="succeeded", attempts=1, failed_attempts=0, delivery_count=1,
        target_queues=[],
    )  # fmt: skip
    assert len(rows) == 13


def test_edits(exported: tuple[Path, Account]) -> None:
    dump, account = exported
    check(
        one(rows_of(dump, "edits")),
        message_id=account.ids["edit"], original_id=account.ids["edited"], first_id=account.ids["edited"], queue_id=number, queue="fixed",
        at=account.during,
    )  # fmt: skip


def test_messages_that_are_still_here(exported: tuple[Path, Account]) -> None:
    dump, account = exported
    rows, during = rows_of(dump, "messages"), account.during
    here: Mapping[str, Any] = {
        "sequence": number, "queue_id": number, "outcome": None, "reason": None, "suspect": False, "priority": 4, "sent_at": during,
        "entered_at": during, "due_at": None, "expires_at": None, "settled_at": None, "target_queues": None, "message_key": None, **NO_IDS,
        "producer": lambda value: value.startswith("shop/"), **NOBODY,
    }  # fmt: skip
    check(
        one(rows, queue="DLQ.orders", state="ready"),
        **here, message_id=account.ids["dead"], queue="DLQ.orders", address="orders", state="ready", attempts=0, failed_attempts=0,
        delivery_count=0, body_bytes=4, hops=1, home_queue="orders",
    )  # fmt: skip
    check(
        one(rows, queue="EXP.late"),
        **here, message_id=number, queue="EXP.late", address="late", state="ready", attempts=0, failed_attempts=0, delivery_count=0,
        body_bytes=7, hops=1, home_queue="late",
    )  # fmt: skip
    check(
        one(rows, queue="someday"),
        **{**here, "due_at": near(account.began, HOUR_MS / 1000)}, message_id=number, queue="someday", address="someday",
        state="scheduled", attempts=0, failed_attempts=0, delivery_count=0, body_bytes=9, hops=0, home_queue="someday",
    )  # fmt: skip
    check(
        one(rows, queue="stuck"),
        **here, message_id=account.ids["parked"], queue="stuck", address="stuck", state="parked", attempts=2, failed_attempts=2,
        delivery_count=2, body_bytes=6, hops=0, home_queue="stuck",
    )  # fmt: skip


def test_attempts(exported: tuple[Path, Account]) -> None:
    dump, account = exported
    rows, during = rows_of(dump, "attempts"), account.during
    policies = {row["policy"] for row in rows_of(dump, "policies")}
    common: Mapping[str, Any] = {
        "sequence": number, "queue_id": number, "at": during, "assigned_at": during, "given_at": during, "outcome": "nack",
        "consumer": lambda value: value.startswith("c"), "connection": "c1", "policy": lambda value: value in policies,
        "producer": lambda value: value.startswith("shop/"), "rule": None, "exit_status": None,
        "bases": lambda value: value is None or "Exception" in value, **SHOP,
    }  # fmt: skip
    fault: Mapping[str, Any] = {
        "reason": "out of stock", "traceback": lambda value: value is None or "Error" in value,
        "fingerprint": lambda value: value.startswith("3-"),
    }  # fmt: skip
    again: Mapping[str, Any] = {"decision": "redeliver", "due_at": during}
    check(
        one(rows, message_id=account.ids["later"]),
        **common, **fault, **again, message_id=account.ids["later"], queue="orders", address="orders", attempt=1,
        error_class="ValueError", error_type="ValueError", error_text="no stock 17", delivery_count=1, failed_attempts=1, delay_ms=20,
        message_key="bob", home_queue="orders",
    )  # fmt: skip
    for way in ("dead", "redriven"):
        first, last = sorted((row for row in rows if row["message_id"] == account.ids[way]), key=lambda row: row["attempt"])
        said = {"message_id": account.ids[way], "queue": "orders", "address": "orders", "message_key": "cleo", "home_queue": "orders"}
        error = {"error_class": "KeyError", "error_type": "KeyError", "error_text": "'sku'"}
        check(first, **common, **fault, **again, **said, **error, attempt=1, delivery_count=1, failed_attempts=1, delay_ms=20)
        check(
            last, **common, **fault, **said, **error, attempt=2, delivery_count=2, failed_attempts=2, decision="dead-letter",
            delay_ms=None, due_at=None,
        )  # fmt: skip
    check(
        one(rows, message_id=account.ids["purged"]),
        **common, message_id=account.ids["purged"], queue="purged", address="purged", attempt=1, error_class="nack", error_type=None,
        error_text=None, reason=None, traceback=None, fingerprint=fingerprint("nack", "purged"), delivery_count=1,
        failed_attempts=1, decision="redeliver", delay_ms=HOUR_MS, due_at=near(account.ended, HOUR_MS / 1000), message_key=None,
        home_queue="purged",
    )  # fmt: skip
    assert sorted(row["attempt"] for row in rows if row["message_id"] == account.ids["parked"]) == [1, 2]
    assert len(rows) == 9


def test_dead_letters(exported: tuple[Path, Account]) -> None:
    dump, account = exported
    rows, during = rows_of(dump, "dead_letters"), account.during
    hop = {"queue": "orders", "address": "orders", "reason": "delivery_limit", "attempts": 2, "delivery_count": 2, "expires_at": None}

    def one_hop(value: Any) -> bool:
        (found,) = value
        return during(found.pop("at")) and number(found.pop("sequence")) and found == hop

    for way, lies_in, hops in (("dead", ["DLQ.orders"], one_hop), ("redriven", [], [])):
        check(
            one(rows, message_id=account.ids[way]),
            message_id=account.ids[way], sequence=number, queue_id=number, queue="orders", address="orders", died_at=during,
            reason="delivery_limit", attempts=2, error_class="KeyError", error_type="KeyError", error_text="'sku'", sent_at=during,
            target_queues=["DLQ.orders"], lies_in=lies_in, hops=hops, home_queue="orders",
            producer=lambda value: value.startswith("shop/"), **SHOP,
            fingerprint=one(rows_of(dump, "faults"), queue="orders", error_class="KeyError")["fingerprint"],
        )  # fmt: skip
    assert len(rows) == 2


def test_faults_are_grouped_as_the_broker_showed_them_and_as_attempts_are(exported: tuple[Path, Account]) -> None:
    dump, account = exported
    rows = {(row["queue"], row["fingerprint"]): row for row in rows_of(dump, "faults")}
    live = {(each["queue"], each["fault"]): each for each in account.faults}
    counts = "failures waiting succeeded died redriven back_succeeded back_died dead error_class text muted fixed_in".split()
    assert {key: [row[name] for name in counts] for key, row in rows.items()} == {
        key: [each[name] for name in counts] for key, each in live.items()
    }
    assert all(account.during(row["first_at"]) and row["first_at"] <= row["last_at"] for row in rows.values())
    attempts = Counter((row["queue"], row["fingerprint"]) for row in rows_of(dump, "attempts"))
    assert {key: row["failures"] for key, row in rows.items() if row["failures"]} == attempts
    by_class = {(queue, row["error_class"]): row for (queue, _), row in rows.items()}
    sku = by_class["orders", "KeyError"]
    assert [sku[name] for name in ("failures", "waiting", "succeeded", "died", "redriven", "dead")] == [4, 0, 1, 2, 1, 1]
    stock = by_class["orders", "ValueError"]
    assert [stock[name] for name in ("failures", "waiting", "succeeded", "died", "redriven", "dead")] == [1, 0, 1, 0, 0, 0]
    assert [by_class["late", "expired"][name] for name in ("failures", "died", "dead")] == [0, 1, 1]
    assert (by_class["stuck", "nack"]["waiting"], by_class["purged", "nack"]["waiting"]) == (1, 0)


def test_redrives(exported: tuple[Path, Account]) -> None:
    dump, account = exported
    check(
        one(rows_of(dump, "redrives"), filter_json='{"message_ids": [7]}'),
        redrive=2, queue="DLQ.orders", target=None, filter_json='{"message_ids": [7]}', state="done", why=None, started_at=account.during,
        ended_at=account.during, sent=0, left=0, succeeded=0, died=0, gone=0, bounced=0,
    )  # fmt: skip


def test_queues(exported: tuple[Path, Account]) -> None:
    dump, account = exported
    rows = rows_of(dump, "queues")
    made: Mapping[str, Any] = {
        "queue_id": number, "durable": True, "auto_created": True, "paused": False, "options_json": "{}", "created_at": account.during,
        "deleted_at": None,
    }  # fmt: skip
    counts = {"DLQ.orders": (1, 0, 0), "EXP.late": (1, 0, 0), "someday": (0, 1, 0), "stuck": (0, 0, 1)}
    for queue in ("orders", "late", "someday", "stuck", "purged", "fixed"):
        ready, scheduled, parked = counts.get(queue, (0, 0, 0))
        check(
            one(rows, queue=queue),
            **made, queue=queue, address=queue, routing_type="anycast", selector=None, ready=ready, scheduled=scheduled, parked=parked,
        )  # fmt: skip
    for queue, address, source in (("DLQ.orders", "DLA", "orders"), ("EXP.late", "EXP", "late")):
        check(
            one(rows, queue=queue),
            **made, queue=queue, address=address, routing_type="multicast", selector=f"_AMQ_ORIG_ADDRESS = '{source}'", ready=1,
            scheduled=0, parked=0,
        )  # fmt: skip
    assert len(rows) == 8


def test_counts_by_minute_and_by_consumer(exported: tuple[Path, Account]) -> None:
    dump, account = exported
    counted: dict[str, dict[str, int]] = {}
    for row in rows_of(dump, "deliveries_by_minute"):
        assert number(row.pop("queue_id"))
        assert (row["minute"].second, row["minute"].microsecond) == (0, 0)
        assert account.began.timestamp() - 60 <= row.pop("minute").timestamp() <= account.ended.timestamp()
        sums = counted.setdefault(row.pop("queue"), dict.fromkeys(row, 0))
        for column, value in row.items():
            sums[column] += value
    assert all(sums.pop("failed_ms") >= 0 for sums in counted.values())
    nothing = dict.fromkeys(counted["orders"], 0)
    assert counted == {
        # Four were sent; three succeeded, one at once and one when it had been sent back; five deliveries failed and three did not.
        "orders": nothing
        | {"sent": 4, "moved_in": 1, "delivered": 8, "succeeded": 3, "first_try": 2}
        | {"failed": 5, "failed_first": 3, "dead_lettered": 2},
        "DLQ.orders": nothing | {"moved_in": 2, "moved_out": 1},
        "late": nothing | {"sent": 1, "expired": 1},
        "EXP.late": nothing | {"moved_in": 1},
        "someday": nothing | {"sent": 1},
        "stuck": nothing | {"sent": 1, "delivered": 2, "failed": 2, "failed_first": 1},
        "purged": nothing | {"sent": 1, "delivered": 1, "failed": 1, "failed_first": 1, "purged": 1},
        "fixed": nothing
        | {"sent": 1, "moved_in": 1, "delivered": 2, "succeeded": 1, "first_try": 1}
        | {"failed": 1, "failed_first": 1, "moved_out": 1},
    }
    served = rows_of(dump, "deliveries_by_consumer")
    assert sum(row["succeeded"] for row in served) == 4
    assert sum(row["failed"] for row in served) == 9
    for row in served:
        check(
            row, queue_id=number, queue=lambda value: value in counted, hour=lambda value: (value.minute, value.second) == (0, 0),
            consumer=lambda value: value.startswith("c1/"), succeeded=lambda value: value in (0, 1), held_ms=lambda value: value < 60_000,
            failed=lambda value: value in (0, 1, 2), failed_ms=lambda value: value < 60_000,
            first_at=account.during, last_at=account.during,
            **SHOP,
        )  # fmt: skip


def test_settings_and_policies(exported: tuple[Path, Account]) -> None:
    dump, account = exported
    settings = rows_of(dump, "settings")
    assert all(account.during(row.pop("from_at")) for row in settings)
    said = {(row["pattern"], row["setting"]): json.loads(row["value_json"]) for row in settings}
    assert len(said) == len(settings)
    assert said["#", "max_delivery_attempts"] == 2
    assert said["#", "redelivery_delay_ms"] == 20
    assert said["orders", "message_key_property"] == "customer"
    assert said["late", "expiry_address"] == "EXP"
    assert said["stuck", "auto_create_dead_letter_resources"] is False
    policies = rows_of(dump, "policies")
    assert {policy["policy"] for policy in policies} == {row["policy"] for row in rows_of(dump, "attempts")}
    for policy in policies:
        assert account.during(policy["from_at"])
        in_force = json.loads(policy["settings_json"])
        assert (in_force["max_delivery_attempts"], in_force["redelivery_delay_ms"]) == (2, 20)
