"""The export, from a journal written row by row with plain SQLite."""

from __future__ import annotations

import fcntl
import gc
import itertools
import json
import os
import signal
import sqlite3
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from homing.broker.cli.output import write_privately
from homing.broker.core.amqp.declared import AMQP
from homing.broker.core.message_filter import Filter
from homing.broker.core.policy_in_force import policy_in_force
from homing.broker.core.redelivery import ConsumerPolicy
from homing.broker.core.redrive_job import RedriveJob
from homing.broker.core.settings.address_settings import DECLARABLE_SETTINGS, DEFAULTS
from homing.broker.entries.redrive_tally import content_of
from homing.broker.topology.resources import QUEUE_FLAGS
from homing.journal.contract import AttemptDetail, ConsumerPolicyInForce, EndedEntry, Fault, MessageRecord
from homing.journal.declarations import FilterContent, QueueOptions
from homing.journal.errors import JournalError
from homing.journal.export import export as export_module
from homing.journal.export.export import MANIFEST_NAME, ExportError, export
from homing.journal.export.parquet import TABLES
from homing.journal.migrations import bring_up
from homing.journal.store.directory import DATABASE_NAME
from homing.journal.store.history_rows import as_json, ended_as_json
from homing.journal.store.packing import pack, pack_message

T0 = 1_790_000_000_000
DAY_MS = 86_400_000
ORDERS, DLQ, GRAVEYARD = 1, 2, 3
#: (message_id, sequence)
QueueEntries = Sequence[tuple[int, int]]


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A live journal: in WAL mode, with a writer that stays connected."""
    (tmp_path / "data").mkdir()
    connection = sqlite3.connect(tmp_path / "data" / DATABASE_NAME, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    bring_up(connection)
    connection.execute("INSERT INTO meta VALUES ('broker_id', 'b-1'), ('clock_ms', ?)", (T0,))
    for queue_id, name in ((ORDERS, "orders"), (DLQ, "DLQ.orders"), (GRAVEYARD, "graveyard")):
        connection.execute(
            "INSERT INTO queue VALUES (?, ?, ?, 'anycast', NULL, 1, 1, 0, ?, ?, NULL, NULL)",
            (queue_id, name, name, pack({"max_consumers": -1}), T0),
        )
    yield connection
    connection.close()


def add_reference(journal: sqlite3.Connection, queue_id: int, message_id: int, sequence: int, **given: Any) -> None:
    message, checksum = pack_message(MessageRecord(message_id, "orders", b"body", {"k": "v"}, 4, T0, None, "c/1"))
    row = {
        "queue_id": queue_id,
        "rank": 5,
        "sequence": sequence,
        "message_id": message_id,
        "delivery_count": 0,
        "failed": 0,
        "assigned": 0,
        "state": 0,
        "due_at_ms": None,
        "expires_at_ms": None,
        "entered_at_ms": T0,
        "overlay_blob": None,
        "message_blob": message,
        "checksum": checksum,
    } | given
    journal.execute(f"INSERT INTO reference ({','.join(row)}) VALUES ({','.join('?' * len(row))})", tuple(row.values()))


def add_attempt(
    journal: sqlite3.Connection, message_id: int, sequence: int, attempt: int, at_ms: int, together: QueueEntries = (), **fault: Any
) -> None:
    """``together``: further stays that failed alike."""
    detail = AttemptDetail(
        original_address="orders",
        outcome="listener",
        consumer="c1",
        connection="7",
        assigned_at_ms=at_ms - 20,
        given_at_ms=at_ms - 10,
        delivery_count=attempt,
        failed=attempt,
        delay_ms=1000,
        due_at_ms=at_ms + 1000,
        decision="redeliver",
        policy="p1",
        fault=cast(Fault, fault) if fault else None,
    )
    entries = [(message_id, sequence), *together]
    values = (ORDERS, attempt, at_ms, message_id, max(entries)[0], as_json(entries), pack(detail._asdict()))
    journal.execute("INSERT INTO failure VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)", values)


def a_hop(queue: str, sequence: int, reason: str, at_ms: int, attempts: int) -> dict[str, Any]:
    counts = {"attempts": attempts, "delivery_count": attempts, "expires_at_ms": None}
    return {"queue": queue, "address": queue, "routing_type": "anycast", "sequence": sequence, "reason": reason, "at_ms": at_ms} | counts


def add_outcome(
    journal: sqlite3.Connection, message_id: int, sequence: int, outcome: str, at_ms: int, together: QueueEntries = (), **detail: Any
) -> None:
    """One of ``together`` was sent, and came, a millisecond later than the one before. ``sent_at_ms``: of all, as before version 14."""
    blob = pack({"address": "orders", "attempts": 1, "delivery_count": 1} | detail)
    pairs = [(message_id, sequence), *together]
    timed: list[EndedEntry] = [(*pair, T0 + ms, T0 + ms) for ms, pair in enumerate(pairs)]
    entries = as_json(pairs) if "sent_at_ms" in detail else ended_as_json(timed)
    values = (ORDERS, at_ms, outcome, message_id, max(pairs)[0], entries, blob)
    journal.execute("INSERT INTO outcome VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)", values)


def table(out: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ds.dataset(out / name, partitioning="hive").to_table().to_pylist()
    return rows


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def test_messages_here_and_settled(journal: sqlite3.Connection, tmp_path: Path) -> None:
    add_reference(journal, ORDERS, 10, 100)
    add_reference(journal, ORDERS, 11, 101, due_at_ms=T0 + 10_000 * DAY_MS, failed=2, delivery_count=3)
    add_reference(journal, ORDERS, 12, 102, state=3)
    journal.execute("INSERT INTO message VALUES (13, ?, ?)", pack_message(MessageRecord(13, "news", b"longer", None, 4, T0, None, "")))
    add_reference(journal, ORDERS, 13, 103, message_blob=None, checksum=0)
    add_outcome(journal, 14, 104, "succeeded", T0 + 7000, attempts=2, delivery_count=3)
    add_outcome(journal, 15, 105, "expired", T0 + 9000, attempts=2, delivery_count=2)
    summary = export(tmp_path / "data", tmp_path / "out")

    rows = {row["message_id"]: row for row in table(tmp_path / "out", "messages")}
    assert [rows[i]["state"] for i in range(10, 16)] == ["ready", "scheduled", "parked", "ready", "settled", "settled"]
    assert (rows[11]["failed_attempts"], rows[11]["delivery_count"]) == (2, 3)
    assert (rows[12]["suspect"], rows[10]["suspect"]) == (True, False)
    assert (rows[13]["address"], rows[13]["body_bytes"]) == ("news", 6)
    assert (rows[14]["outcome"], rows[14]["attempts"], rows[14]["failed_attempts"]) == ("succeeded", 3, 2)
    assert (rows[15]["outcome"], rows[15]["attempts"]) == ("expired", 2)
    assert rows[14]["settled_at"] - rows[14]["sent_at"] == at(T0 + 7000) - at(T0)
    assert all(row["broker_id"] == "b-1" and row["schema_version"] == 2 for row in rows.values())
    assert summary.rows["messages"] == 6
    queue = next(row for row in table(tmp_path / "out", "queues") if row["queue"] == "orders")
    assert (queue["ready"], queue["scheduled"], queue["parked"]) == (2, 1, 1)
    assert json.loads(queue["options_json"]) == {"max_consumers": -1}


def test_attempts_by_day_and_tracebacks_only_when_asked(journal: sqlite3.Connection, tmp_path: Path) -> None:
    add_attempt(journal, 10, 100, 1, T0, error_type="Timeout", error_text="slow", traceback="Traceback…", fingerprint="3-f1")
    add_attempt(journal, 10, 100, 2, T0 + DAY_MS)
    export(tmp_path / "data", tmp_path / "out")
    export(tmp_path / "data", tmp_path / "full", with_tracebacks=True)

    days = sorted(path.name for path in (tmp_path / "out" / "attempts").iterdir())
    assert days == [f"day={at(T0):%Y-%m-%d}", f"day={at(T0 + DAY_MS):%Y-%m-%d}"]
    first, second = sorted(table(tmp_path / "out", "attempts"), key=lambda row: row["attempt"])
    assert (first["error_class"], first["error_text"], first["fingerprint"], first["traceback"]) == ("Timeout", "slow", "3-f1", None)
    assert (second["error_class"], second["error_type"]) == ("listener", None)
    assert (first["at"], first["due_at"], first["delay_ms"]) == (at(T0), at(T0 + 1000), 1000)
    assert {row["traceback"] for row in table(tmp_path / "full", "attempts")} == {"Traceback…", None}


def test_dead_letters_with_their_hops(journal: sqlite3.Connection, tmp_path: Path) -> None:
    add_attempt(journal, 10, 100, 3, T0 + 5000, error_type="ValueError", error_text="bad")
    add_outcome(journal, 10, 100, "dead-lettered", T0 + 5000, attempts=3, reason="delivery_limit", target_queues=["DLQ.orders"])
    add_reference(journal, DLQ, 10, 200, overlay_blob=pack([a_hop("orders", 100, "delivery_limit", T0 + 5000, 3)]))
    # Its outcome is older than the retention.
    add_reference(journal, DLQ, 11, 201, overlay_blob=pack([a_hop("orders", 101, "delivery_limit", T0 + 4000, 2)]))
    add_outcome(journal, 12, 102, "dead-lettered", T0 + 6000, attempts=1, target_queues=["DLQ.orders"])  # consumed there since
    add_outcome(journal, 13, 103, "succeeded", T0 + 6000)
    add_reference(journal, DLQ, 14, 204, overlay_blob=pack([a_hop("orders", 104, "expired", T0, 0)]))  # no death
    export(tmp_path / "data", tmp_path / "out")

    known, forgotten, consumed = table(tmp_path / "out", "dead_letters")
    assert (known["message_id"], known["sequence"], known["queue"], known["attempts"]) == (10, 100, "orders", 3)
    assert (known["error_class"], known["error_text"], known["reason"]) == ("ValueError", "bad", "delivery_limit")
    assert known["lies_in"] == known["target_queues"] == ["DLQ.orders"]
    (hop,) = known["hops"]
    assert (hop["queue"], hop["sequence"], hop["reason"], hop["at"], hop["attempts"]) == ("orders", 100, "delivery_limit", at(T0 + 5000), 3)
    assert (forgotten["message_id"], forgotten["queue_id"], forgotten["queue"], forgotten["lies_in"]) == (
        11,
        None,
        "orders",
        ["DLQ.orders"],
    )
    assert (forgotten["attempts"], forgotten["died_at"], forgotten["reason"]) == (2, at(T0 + 4000), "delivery_limit")
    assert (consumed["message_id"], consumed["target_queues"], consumed["lies_in"], consumed["hops"]) == (12, ["DLQ.orders"], [], [])
    assert consumed["error_class"] is None


def test_two_deaths_of_one_message_are_two_rows(journal: sqlite3.Connection, tmp_path: Path) -> None:
    first, second = a_hop("orders", 100, "delivery_limit", T0, 3), a_hop("DLQ.orders", 200, "rejected", T0 + 9, 1)
    add_reference(journal, GRAVEYARD, 10, 300, overlay_blob=pack([second, first]))
    export(tmp_path / "data", tmp_path / "out")
    older, newer = table(tmp_path / "out", "dead_letters")
    assert (older["queue"], older["lies_in"], len(older["hops"])) == ("orders", [], 1)
    assert (newer["queue"], newer["lies_in"], len(newer["hops"])) == ("DLQ.orders", ["graveyard"], 2)


def test_what_was_sent_back_lies_nowhere(journal: sqlite3.Connection, tmp_path: Path) -> None:
    add_outcome(journal, 10, 100, "dead-lettered", T0, target_queues=["DLQ.orders"])
    add_outcome(journal, 10, 200, "redriven", T0 + 5, target_queues=["orders"])
    add_reference(journal, ORDERS, 10, 300, overlay_blob=pack([a_hop("orders", 100, "delivery_limit", T0, 1)]))
    export(tmp_path / "data", tmp_path / "out")
    (death,) = table(tmp_path / "out", "dead_letters")
    assert (death["lies_in"], len(death["hops"])) == ([], 1)
    redriven = next(row for row in table(tmp_path / "out", "messages") if row["outcome"] == "redriven")
    assert redriven["target_queues"] == ["orders"]


def test_what_ended_together_is_told_of_each(journal: sqlite3.Connection, tmp_path: Path) -> None:
    add_attempt(journal, 10, 100, 1, T0, together=[(11, 101), (12, 102)], error_type="Timeout")
    add_attempt(journal, 10, 100, 2, T0 + 5, together=[(12, 102)], error_type="ValueError")
    add_outcome(journal, 10, 100, "dead-lettered", T0 + 6, together=[(11, 101), (12, 102)], target_queues=["DLQ.orders"])
    old = {"sent_at_ms": T0 + 3, "entered_at_ms": T0 + 3}
    add_outcome(journal, 13, 103, "dead-lettered", T0 + 6, together=[(14, 104)], target_queues=["DLQ.orders"], **old)
    export(tmp_path / "data", tmp_path / "out")
    reported = [(row["message_id"], row["sequence"], row["attempt"], row["error_type"]) for row in table(tmp_path / "out", "attempts")]
    first = [(10, 100, 1, "Timeout"), (11, 101, 1, "Timeout"), (12, 102, 1, "Timeout")]
    assert sorted(reported, key=lambda each: (each[2], each[0])) == [*first, (10, 100, 2, "ValueError"), (12, 102, 2, "ValueError")]
    dead = table(tmp_path / "out", "dead_letters")
    assert [row["target_queues"] for row in dead] == [["DLQ.orders"]] * 5
    deaths = {row["message_id"]: (row["sequence"], row["error_class"], row["sent_at"]) for row in dead}
    known = {10: (100, "ValueError", at(T0)), 11: (101, "Timeout", at(T0 + 1)), 12: (102, "ValueError", at(T0 + 2))}
    assert deaths == {**known, 13: (103, None, at(T0 + 3)), 14: (104, None, at(T0 + 3))}
    messages = table(tmp_path / "out", "messages")
    assert {row["message_id"]: (row["outcome"], row["sent_at"], row["entered_at"]) for row in messages} == {
        number: ("dead-lettered", sent_at, sent_at) for number, (_, _, sent_at) in deaths.items()
    }


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE failure SET failure_blob = x'c1'",
        "UPDATE failure SET failure_blob = x'80'",
        "UPDATE reference SET message_blob = x'90'",
        "UPDATE reference SET message_blob = NULL",
        "UPDATE reference SET overlay_blob = x'9180'",
    ],
)
def test_a_record_that_cannot_be_read(journal: sqlite3.Connection, tmp_path: Path, damage: str) -> None:
    add_attempt(journal, 10, 100, 1, T0)
    add_reference(journal, ORDERS, 10, 100)
    add_reference(journal, ORDERS, 11, 101)
    journal.execute(damage)
    with pytest.raises(JournalError) as raised:
        export(tmp_path / "data", tmp_path / "out")
    assert raised.value.code == "journal-damaged"
    del raised
    gc.collect()  # nothing that is let go now complains
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def test_settings_policies_and_minutes(journal: sqlite3.Connection, tmp_path: Path) -> None:
    journal.execute("INSERT INTO setting VALUES (?, ?)", (T0, pack({"": {"a": 1}, "orders.#": {"redelivery-delay": 5000}})))
    journal.execute("INSERT INTO policy VALUES (?, 'p1', ?)", (T0, pack({"max-delivery-attempts": 10})))
    minute = T0 // 60_000
    journal.execute("INSERT INTO minute (queue_id, minute, sent, succeeded) VALUES (1, ?, 5, 4)", (minute,))
    export(tmp_path / "data", tmp_path / "out")
    settings = [(row["pattern"], row["setting"], row["value_json"]) for row in table(tmp_path / "out", "settings")]
    assert settings == [("", "a", "1"), ("orders.#", "redelivery-delay", "5000")]
    assert table(tmp_path / "out", "policies")[0]["settings_json"] == '{"max-delivery-attempts": 10}'
    (counts,) = table(tmp_path / "out", "deliveries_by_minute")
    assert (counts["queue"], counts["sent"], counts["succeeded"], counts["failed"]) == ("orders", 5, 4, 0)
    assert counts["minute"] == at(minute * 60_000)


def test_an_empty_journal_exports_every_table_with_its_columns(journal: sqlite3.Connection, tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []
    summary = export(tmp_path / "data", tmp_path / "out", progress=lambda name, rows: seen.append((name, rows)))
    assert [name for name, _ in seen] == [t.name for t in TABLES]
    assert summary.rows["messages"] == 0
    for t in TABLES:
        names = pq.read_schema(tmp_path / "out" / t.name / "part-00000.parquet").names
        assert names == ["broker_id", "schema_version", *(name for name, _ in t.fields())]
    manifest = json.loads((tmp_path / "out" / MANIFEST_NAME).read_text())
    assert (manifest["format"], manifest["schema_version"], manifest["broker_id"]) == ("homing-export", 2, "b-1")
    assert manifest["rows"] == summary.rows


def test_a_stopped_journal(journal: sqlite3.Connection, tmp_path: Path) -> None:
    add_reference(journal, ORDERS, 10, 100)
    journal.close()
    assert not (tmp_path / "data" / (DATABASE_NAME + "-wal")).exists()
    assert export(tmp_path / "data", tmp_path / "out").rows["messages"] == 1


def test_one_snapshot_while_the_broker_writes(journal: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_module, "BATCH_ROWS", 10)
    for i in range(50):
        add_reference(journal, ORDERS, i, i)

    fresh = itertools.count(1000)

    def write_meanwhile(name: str, rows: int) -> None:
        number = next(fresh)
        add_reference(journal, ORDERS, number, number)
        journal.execute("INSERT INTO minute (queue_id, minute, sent) VALUES (1, ?, 1)", (number,))

    summary = export(tmp_path / "data", tmp_path / "out", progress=write_meanwhile)
    assert summary.rows["messages"] == 50
    assert summary.rows["deliveries_by_minute"] == 0
    assert len(table(tmp_path / "out", "messages")) == 50


def test_it_gives_up_when_the_write_ahead_log_grows(journal: sqlite3.Connection, tmp_path: Path) -> None:
    add_reference(journal, ORDERS, 1, 1)

    def write_meanwhile(name: str, rows: int) -> None:
        if name == "messages":
            journal.execute("INSERT INTO message VALUES (99, ?, 0)", (bytes(200_000),))

    add_attempt(journal, 1, 1, 1, T0)
    with pytest.raises(ExportError) as raised:
        export(tmp_path / "data", tmp_path / "out", progress=write_meanwhile, wal_budget_bytes=100_000)
    assert raised.value.code == "wal-budget"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def test_since_an_export_only_what_it_lacks(journal: sqlite3.Connection, tmp_path: Path) -> None:
    for message_id in (10, 11):
        add_attempt(journal, message_id, message_id, 1, T0)
        add_outcome(journal, message_id, message_id, "dead-lettered", T0, reason="delivery_limit", target_queues=["DLQ.orders"])
    add_reference(journal, DLQ, 11, 200, overlay_blob=pack([a_hop("orders", 11, "delivery_limit", T0, 1)]))
    export(tmp_path / "data", tmp_path / "whole")
    add_attempt(journal, 12, 12, 1, T0 - 5)  # ended before, and came later
    add_outcome(journal, 12, 12, "succeeded", T0 - 5)
    export(tmp_path / "data", tmp_path / "more", since=tmp_path / "whole")
    manifest = json.loads((tmp_path / "more" / MANIFEST_NAME).read_text())
    assert (
        manifest["since_us"]
        == manifest["history_from_us"]
        == json.loads((tmp_path / "whole" / MANIFEST_NAME).read_text())["exported_at_us"]
    )
    found = {name: [row["sequence"] for row in table(tmp_path / "more", name)] for name in ("messages", "attempts", "dead_letters")}
    assert found == {"messages": [200, 12], "attempts": [12], "dead_letters": [11]}

    # All is forgotten, and numbers begin anew.
    journal.execute("DELETE FROM failure")
    add_attempt(journal, 13, 13, 1, manifest["exported_at_us"] // 1000 + 1)
    export(tmp_path / "data", tmp_path / "last", since=tmp_path / "more")
    assert [row["sequence"] for row in table(tmp_path / "last", "attempts")] == [13]

    (tmp_path / "more" / MANIFEST_NAME).write_text(json.dumps(manifest | {"broker_id": "b-2"}))
    for since, code in (("data", "not-an-export"), ("more", "other-broker")):
        with pytest.raises(ExportError) as raised:
            export(tmp_path / "data", tmp_path / "none", since=tmp_path / since)
        assert raised.value.code == code


def test_nothing_is_overwritten(journal: sqlite3.Connection, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    export(tmp_path / "data", tmp_path / "out")  # an empty directory may be used
    before = sorted((tmp_path / "out").iterdir())
    with pytest.raises(ExportError) as raised:
        export(tmp_path / "data", tmp_path / "out")
    assert raised.value.code == "out-exists"
    assert sorted((tmp_path / "out").iterdir()) == before


def test_an_export_that_fails_leaves_nothing(journal: sqlite3.Connection, tmp_path: Path) -> None:
    def stop(name: str, rows: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(tmp_path / "data", tmp_path / "out", progress=stop)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def test_many_rows_in_bounded_batches(journal: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homing.journal.export.parquet.FILE_ROWS", 2_000)
    monkeypatch.setattr(export_module, "BATCH_ROWS", 500)
    journal.execute("BEGIN")
    for i in range(5_000):
        add_reference(journal, ORDERS, i, i)
    journal.execute("COMMIT")
    export(tmp_path / "data", tmp_path / "out")
    files = sorted((tmp_path / "out" / "messages").iterdir())
    assert [pq.read_metadata(file).num_rows for file in files] == [2_000, 2_000, 1_000]


def test_no_journal(tmp_path: Path) -> None:
    with pytest.raises(JournalError) as raised:
        export(tmp_path, tmp_path / "out")
    assert raised.value.code == "journal-missing"


def test_a_file_that_is_no_journal(tmp_path: Path) -> None:
    (tmp_path / DATABASE_NAME).write_bytes(b"not a database" * 1000)
    with pytest.raises(JournalError) as raised:
        export(tmp_path, tmp_path / "out")
    assert raised.value.code == "journal-damaged"
    assert not (tmp_path / "out").exists()


def test_a_journal_from_the_future(journal: sqlite3.Connection, tmp_path: Path) -> None:
    journal.execute("PRAGMA user_version = 99")
    with pytest.raises(JournalError) as raised:
        export(tmp_path / "data", tmp_path / "out")
    assert raised.value.code == "journal-newer"


def test_without_pyarrow_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ExportError, match=r"homing\[export\]") as raised:
        export(tmp_path, tmp_path / "out")
    assert raised.value.code == "no-analytics"


def test_an_export_is_closed_to_others_and_removes_what_a_killed_one_left(
    journal: sqlite3.Connection, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add_reference(journal, ORDERS, 1, 1)
    add_attempt(journal, 1, 1, 1, T0)
    out = tmp_path / "exports" / "out"
    left, others = (out.parent / f".{name}.0123abcd.partial" for name in ("out", "outer"))
    running, theirs = out.parent / ".out.89abcdef.partial", out.parent / ".out.theirs.partial"
    for each in (left, running, others, theirs):
        (each / "messages").mkdir(parents=True)
    descriptor = os.open(running, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    before = os.umask(0o022)
    try:
        export(tmp_path / "data", out)
    finally:
        os.umask(before)
        os.close(descriptor)
    assert f"removed {left}" in caplog.text
    assert sorted(path.name for path in out.parent.iterdir()) == sorted([theirs.name, running.name, "out"])
    modes = {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in (out, *out.rglob("*"))}
    assert modes == {(True, 0o700), (False, 0o600)}


def test_an_export_that_is_ended_leaves_nothing(journal: sqlite3.Connection, tmp_path: Path) -> None:
    def ended(table: str, rows: int) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    before, mask = signal.getsignal(signal.SIGTERM), os.umask(0o022)
    try:
        write_privately()
        with pytest.raises(SystemExit) as ending:
            export(tmp_path / "data", tmp_path / "exports" / "out", progress=ended)
    finally:
        signal.signal(signal.SIGTERM, before)
        os.umask(mask)
    assert ending.value.code == 128 + signal.SIGTERM
    assert list((tmp_path / "exports").iterdir()) == []


def test_what_is_kept_by_name_has_every_name() -> None:
    job = RedriveJob(1, "DLQ", "user")
    # What it waits for is shown, and not kept.
    assert {**content_of(job), "waits_for": ""} == job.describe()
    assert ConsumerPolicyInForce.__annotations__.keys() == asdict(ConsumerPolicy()).keys()
    assert policy_in_force(DEFAULTS, ConsumerPolicy())[1]["consumer_policy"] == asdict(ConsumerPolicy())
    assert QueueOptions.__annotations__.keys() == DECLARABLE_SETTINGS | QUEUE_FLAGS | {AMQP}
    assert FilterContent.__annotations__.keys() == {each.name for each in fields(Filter)}
