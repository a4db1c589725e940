"""From a running broker to the page: what the clients saw, what the export says and what the report says are the same."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from homing import client
from homing.client import AckMode, Session
from tests.process import HomingCommand, Server

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

Row = dict[str, Any]
SETTINGS = {
    "#": {"max-delivery-attempts": 3, "redelivery-delay": "20ms"},
    "orders": {"message-key-property": "customer"},
}
MESSAGES, LATER, CUSTOMERS = 60, 5, 7


class Seen:
    """What the clients counted."""

    def __init__(self) -> None:
        self.succeeded: dict[int, int] = {}
        self.failed: list[tuple[int, int, str]] = []
        self.dead: set[int] = set()
        #: message_id -> what its customer property said
        self.keys: dict[int, str] = {}


async def send(session: Session) -> None:
    producer = session.producer("orders")
    for number in range(MESSAGES):
        producer.send_nowait(b"%d" % number, properties={"customer": number % CUSTOMERS, "secret": "s"})
    for _ in range(LATER):
        producer.send_nowait(b"0", delay_ms=3_600_000)
    await producer.flush()


async def consume(session: Session, seen: Seen) -> None:
    """Every tenth message always fails, the one after it fails once; the rest succeeds."""
    consumer = session.consumer("orders")
    while len(seen.succeeded) + len(seen.dead) < MESSAGES:
        message = await consumer.receive(timeout_ms=10_000)
        assert message is not None
        kind = int(message.body) % 10
        seen.keys[message.message_id] = str(int(message.body) % CUSTOMERS)
        if kind == 0 or (kind == 1 and message.delivery_count == 1):
            error = ValueError(f"no {kind}") if kind == 0 else TimeoutError("slow")
            seen.failed.append((message.message_id, message.delivery_count, type(error).__name__))
            await message.nack(error=error)
            if message.delivery_count == 3:
                seen.dead.add(message.message_id)
        else:
            await message.acknowledge(confirm=True)
            seen.succeeded[message.message_id] = message.delivery_count


def table(dump: Path, name: str) -> list[Row]:
    rows: list[Row] = ds.dataset(dump / name, format="parquet", partitioning="hive").to_table().to_pylist()
    return rows


def check(dump: Path, seen: Seen) -> None:
    counts: dict[str, Counter[str]] = {}
    for row in table(dump, "deliveries_by_minute"):
        numbers = {name: value for name, value in row.items() if isinstance(value, int)}
        counts.setdefault(row["queue"], Counter()).update(numbers)
    messages = table(dump, "messages")
    for queue, count in counts.items():
        here = sum(row["queue"] == queue and row["state"] != "settled" for row in messages)
        over = sum(count[name] for name in ("succeeded", "dead_lettered", "expired", "dropped", "purged", "moved_out"))
        assert count["sent"] + count["moved_in"] == over + here, queue
    orders = counts["orders"]
    assert orders["sent"] == MESSAGES + LATER
    assert (orders["succeeded"], orders["dead_lettered"], orders["failed"]) == (len(seen.succeeded), len(seen.dead), len(seen.failed))
    assert orders["first_try"] == sum(count == 1 for count in seen.succeeded.values())
    states = Counter((row["queue"], row["state"]) for row in messages if row["state"] != "settled")
    assert states == {("orders", "scheduled"): LATER, ("DLQ.orders", "ready"): len(seen.dead)}

    later = {row["message_id"]: row["attempts"] for row in messages if row["outcome"] == "succeeded"}
    assert later == {message_id: count for message_id, count in seen.succeeded.items() if count > 1}
    attempts = table(dump, "attempts")
    assert sorted((row["message_id"], row["attempt"], row["error_class"]) for row in attempts) == sorted(
        (message_id, attempt, error) for message_id, attempt, error in seen.failed
    )
    assert all(row["sequence"] and row["policy"] and row["traceback"] is None for row in attempts)
    settled = [row for row in messages if row["state"] == "settled"]
    assert all(row["message_key"] == seen.keys[row["message_id"]] for row in (*attempts, *settled))
    (served,) = table(dump, "deliveries_by_consumer")
    assert (served["queue"], served["succeeded"], served["consumer"]) == ("orders", len(seen.succeeded), attempts[0]["consumer"])
    assert 0 <= served["held_ms"] < 60_000 * MESSAGES
    deaths = table(dump, "dead_letters")
    assert {row["message_id"] for row in deaths} == seen.dead
    for row in deaths:
        assert (row["queue"], row["address"], row["lies_in"], row["target_queues"]) == ("orders", "orders", ["DLQ.orders"], ["DLQ.orders"])
        assert (row["error_class"], row["error_text"], row["attempts"]) == ("ValueError", "no 0", 3)
        assert [(hop["sequence"], hop["queue"], hop["attempts"]) for hop in row["hops"]] == [(row["sequence"], "orders", 3)]


async def test_live_and_stopped_exports_tell_what_the_clients_saw(
    start_server: Callable[..., Server], homing: HomingCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, seen = start_server({"address-settings": SETTINGS}), Seen()
    async with client.connect(server.url) as connection, connection.session(AckMode.INDIVIDUAL) as session:
        await send(session)
        await consume(session, seen)
    # Closing waited until the last nack was on disk.
    live = tmp_path / "live"
    done = homing("journal", "export", "--data", server.data, "--out", live)
    assert done.returncode == 0, done.stderr
    assert len(seen.dead) == MESSAGES // 10
    check(live, seen)

    assert server.stop() == 0
    stopped = tmp_path / "stopped"
    done = homing("journal", "export", "--data", server.data, "--out", stopped)
    assert done.returncode == 0, done.stderr
    check(stopped, seen)
    in_force = {(row["pattern"], row["setting"]): row["value_json"] for row in table(stopped, "settings")}
    assert in_force["#", "max_delivery_attempts"] == "3"
    used = {row["policy"] for row in table(stopped, "attempts")}
    assert used <= {row["policy"] for row in table(stopped, "policies")}

    # The report, by the command, on the Java that comes with the extra, whatever the machine has.
    monkeypatch.setenv("HOMING_JAVA", "packaged")
    # One run needs no archive of classes, which takes longer to write than it saves.
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    monkeypatch.setenv("JAVA_HOME", "")
    done = homing("analyze", stopped, "--out", tmp_path / "report", timeout_s=150)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert f"All of the {MESSAGES + LATER} messages sent are accounted for" in page
    assert f"{len(seen.dead)} deaths, all in orders, there mostly of ValueError (attempts used up)" in page
    assert (tmp_path / "report" / "csv" / "failed_most.csv").is_file()
