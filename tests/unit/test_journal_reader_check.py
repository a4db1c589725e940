"""History and queues through a read-only connection, and the check of a whole journal."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from homing.journal.contract import QueueStat
from homing.journal.errors import JournalError
from homing.journal.journal import Journal
from homing.journal.migrations import VERSION
from homing.journal.read.check import check
from homing.journal.read.queries import JournalReader
from tests.unit.journal_support import NOW_MS, attempt, hop, keep_attempt, message, opened, outcome, queue, reference, send, settle


async def _a_life(journal: Journal) -> None:
    """Message 1 failed twice in q1 and went to the dead-letter queue 2 as entry 10; message 2 waits untouched; message 3 is shared."""
    journal.batch.queue(queue(1, name="orders"))
    journal.batch.queue(queue(2, name="DLQ.orders"))
    send(journal, 1)
    send(journal, 2, of=message(2, b"waiting"))
    journal.batch.add_message(message(3))
    send(journal, 3, 1, of=message(3), shared=True)
    send(journal, 4, 2, of=message(3), shared=True)
    await journal.flush()
    for number in (1, 2):
        keep_attempt(journal.batch, attempt(1, 1, number, NOW_MS + number))
    journal.batch.delete_all((1,))
    journal.batch.counts(1, 1)[QueueStat.DEAD_LETTERED] += 1
    journal.batch.outcome(outcome(1, 1, NOW_MS + 3, outcome="dead-lettered"))
    journal.batch.add(reference(10, 2, message(1), hops=[hop(1, queue="orders")], due_at_ms=NOW_MS + 10))
    journal.batch.counts(2, 1)[QueueStat.MOVED_IN] += 1
    await journal.flush()


async def test_history_tells_a_life(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        await _a_life(journal)
        with JournalReader(tmp_path) as reader:
            history = reader.history(1)
            assert history is not None
            assert [(a["attempt"], a["queue"], a["outcome"], a["fault"]["error_type"]) for a in history["attempts"]] == [
                (1, "orders", "nack", "Timeout"),
                (2, "orders", "nack", "Timeout"),
            ]
            assert [(o["queue"], o["outcome"], o["attempts"]) for o in history["outcomes"]] == [("orders", "dead-lettered", 1)]
            assert [(r["queue"], r["sequence"], r["hops"]) for r in history["references"]] == [
                ("DLQ.orders", 10, [hop(1, queue="orders")[1] | {"message_id": 1, "sequence": 1}])
            ]
            assert (history["message"]["address"], history["message"]["body"]) == ("orders", b"body")
            assert reader.history(99) is None
            untouched = reader.history(2)
            assert untouched is not None
            assert untouched["message"]["body"] == b"waiting"
            shared = reader.history(3)
            assert shared is not None
            assert [r["queue"] for r in shared["references"]] == ["orders", "DLQ.orders"]
            settle(journal, 2)
            await journal.flush()
            assert reader.history(2) is None


async def test_queues_with_counts_and_totals(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, recovered):
        await _a_life(journal)
        with JournalReader(tmp_path) as reader:
            assert reader.broker_id() == recovered.broker_id
            dead, orders = reader.queues()
        assert (dead["queue"], dead["messages"], dead["scheduled"], dead["totals"]["moved_in"]) == ("DLQ.orders", 2, 1, 1)
        assert (orders["queue"], orders["messages"], orders["options"], orders["totals"]["dead_lettered"]) == (
            "orders",
            2,
            {"max_length": 5},
            1,
        )


def test_no_journal_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(JournalError) as caught:
        JournalReader(tmp_path)
    assert caught.value.code == "journal-missing"
    assert list(tmp_path.iterdir()) == []


async def test_history_never_shows_a_body_that_fails_its_checksum(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        await _a_life(journal)
    _edit(tmp_path, "UPDATE reference SET checksum = checksum + 1 WHERE sequence = 2")
    with JournalReader(tmp_path) as reader, pytest.raises(JournalError) as caught:
        reader.history(2)
    assert caught.value.code == "journal-damaged"


async def test_check_finds_nothing_on_a_whole_journal_live_and_stopped(tmp_path: Path) -> None:
    steps: list[str] = []
    async with opened(tmp_path) as (journal, _):
        await _a_life(journal)
        live = check(tmp_path, lambda step, done, total: steps.append(step))
    stopped = check(tmp_path, quick=True)
    for report in (live, stopped):
        assert report.problems == []
        assert report.ok
        assert report.rows == {"reference": 4, "message": 1, "attempt": 2, "outcome": 1, "quarantine": 0}
        assert report.version == VERSION
    assert {"pages", "messages", "shared bodies", "attempts", "outcomes", "sums"} == set(steps)


async def test_what_a_deleted_queue_has_not_given_back_yet_is_no_damage(tmp_path: Path) -> None:
    """As after a kill between the deletion and its last step: hostile sessions found it told as such at the next start."""
    async with opened(tmp_path) as (journal, _):
        await _a_life(journal)
    _edit(tmp_path, f"UPDATE queue SET deleted_at_ms = {NOW_MS} WHERE queue_id = 1")
    report = check(tmp_path)
    assert report.problems == []
    assert report.rows["reference"] == 4
    async with opened(tmp_path) as (journal, recovered):
        assert [each.queue_id for each in recovered.queues] == [2]
        await journal.flush()
    assert check(tmp_path).problems == []


@pytest.mark.parametrize(
    ("harm", "finding"),
    [
        (
            "UPDATE reference SET checksum = checksum + 1 WHERE sequence = 2",
            "Message 2 in queue 1 (row 2 of table reference) fails its checksum.",
        ),
        ("UPDATE reference SET message_id = 77 WHERE sequence = 2", "Message 77 in queue 1 (row 2 of table reference) holds message 2."),
        ("UPDATE reference SET queue_id = 9 WHERE sequence = 2", "stands in a queue that is not there"),
        ("UPDATE reference SET failed = -1 WHERE sequence = 2", "has a count below zero"),
        ("UPDATE reference SET rank = 12 WHERE sequence = 2", "has rank 12"),
        ("UPDATE reference SET overlay_blob = x'c1' WHERE sequence = 10", "holds no msgpack"),
        ("DELETE FROM message", "names a body that is not there"),
        ("UPDATE message SET checksum = 0", "The shared body of message 3 fails its checksum."),
        ("DELETE FROM reference WHERE sequence = 2", "Queue orders: 3 came, 1 left and 1 are there, which does not add up."),
        ("UPDATE minute SET succeeded = -1", "hold a count below zero"),
        ("UPDATE outcome SET stays = '[[1,10]]'", "Message 1 is dead-lettered and still stands in queue 2."),
        ("UPDATE failure SET failure_blob = x'01' WHERE failure_id = 1", "The attempt of message 1 (row 1 of table failure) holds no map."),
        ("UPDATE failure SET stays = '[[1,1' WHERE failure_id = 1", "(row 1 of table failure) names other messages."),
        ("UPDATE failure SET stays = '[[1.1]]' WHERE failure_id = 1", "(row 1 of table failure) names other messages."),
        ("UPDATE failure SET stays = '[[2,1]]' WHERE failure_id = 1", "(row 1 of table failure) names other messages."),
        ("DELETE FROM minute WHERE queue_id = 2", "Queue 2 holds messages that were never counted in."),
    ],
)
async def test_check_finds(tmp_path: Path, harm: str, finding: str) -> None:
    async with opened(tmp_path) as (journal, _):
        await _a_life(journal)
    _edit(tmp_path, harm)
    report = check(tmp_path)
    assert finding in " ".join(report.problems)
    assert not report.ok


def test_check_spells_out_a_few_findings_and_counts_the_rest(tmp_path: Path) -> None:
    import asyncio

    async def fill() -> None:
        async with opened(tmp_path) as (journal, _):
            journal.batch.queue(queue())
            for sequence in range(1, 51):
                send(journal, sequence)

    asyncio.run(fill())
    _edit(tmp_path, "UPDATE reference SET checksum = 0")
    report = check(tmp_path)
    assert len(report.problems) == 21
    assert report.problems[-1] == "… and 30 more of this kind."


def _edit(directory: Path, sql: str) -> None:
    with closing(sqlite3.connect(directory / "homing.db", isolation_level=None)) as connection:
        assert connection.execute(sql).rowcount > 0
