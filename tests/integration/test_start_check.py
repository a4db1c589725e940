"""What a start says of the configuration, of an upgrade, and, after an unclean stop, of the journal that is looked at meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sqlite3
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import cast

import msgpack
import pytest

import homing
from homing.broker.clock import BrokerClock
from homing.broker.config.config import parse
from homing.broker.logs.writer import LogWriter
from homing.broker.process.server import Server as Broker
from homing.broker.process.start_check import StartCheck
from homing.journal import apart
from homing.journal.journal import Journal
from homing.journal.read.check import check
from tests.process import Server, wait_until
from tests.unit.journal_support import message, opened, queue, reference, send

FINDING = "the journal is not whole"


async def _send(url: str, *bodies: bytes) -> None:
    async with homing.connect(url) as connection, connection.session() as session:
        producer = session.producer("orders")
        for body in bodies:
            await producer.send(body)


def _forget_defaults(data: Path) -> None:
    """As a version left it that did not record its defaults."""
    with closing(sqlite3.connect(data / "homing.db")) as connection, connection:
        for from_ms, blob in connection.execute("SELECT from_ms, settings_blob FROM setting").fetchall():
            settings = msgpack.unpackb(blob)
            del settings[""]["default_address_settings"]
            connection.execute("UPDATE setting SET settings_blob = ? WHERE from_ms = ?", (msgpack.packb(settings), from_ms))


def test_a_start_says_what_may_not_be_meant_and_once_what_an_upgrade_changed(start_server: Callable[..., Server]) -> None:
    server = start_server({"address-settings": {"hasty": {"redelivery-delay": 0}}, "queues": {"hasty": {}, "orders": {}}})
    assert server.stop() == 0
    _forget_defaults(server.data)
    for _ in range(2):
        server.start()
        assert server.stop() == 0
    log = server.log_path.read_text()
    assert log.count("address-settings.hasty.redelivery-delay: a failing message uses up all 10 attempts at once") == 3
    assert log.count("delay at once → 1s × 4 up to 1h ± 20%; dead letters removed → DLA, for orders") == 1
    assert log.count("dead letters removed → DLA, for hasty") == 1


def _falsify(data: Path) -> None:
    """A count that does not add up: nothing that a start needs, so only a check finds it."""
    with closing(sqlite3.connect(data / "homing.db")) as connection, connection:
        connection.execute("UPDATE minute SET sent = sent + 1")


async def test_a_broker_that_was_killed_says_that_its_journal_is_not_whole(start_server: Callable[..., Server]) -> None:
    server = start_server()
    await _send(server.url, b"one")
    server.kill()
    _falsify(server.data)
    server.start()
    await _send(server.url, b"two")
    wait_until("the finding is logged", lambda: FINDING in server.log_path.read_text())
    (line,) = [line for line in server.log_path.read_text().splitlines() if FINDING in line]
    assert "Queue orders: 3 came, 0 left and 2 are there" in line or "Queue orders: 2 came, 0 left and 1 are there" in line
    assert "Run `homing journal check` for all." in line
    assert server.stop() == 0
    server.start()
    assert server.stop() == 0
    assert server.log_path.read_text().count(FINDING) == 1


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homing.broker.process.start_check._AFTER_S", 0.0)


async def _end(looking: StartCheck) -> None:
    assert looking._task is not None
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.wait_for(looking._task, 30)


@pytest.mark.usefixtures("at_once")
async def test_a_whole_journal_is_not_spoken_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        send(journal, 1)
        await journal.flush()
        looking = StartCheck(tmp_path)
        looking.start()
        await _end(looking)
    assert [record for record in caplog.records if record.name == "homing" and record.levelno >= logging.WARNING] == []


@pytest.mark.usefixtures("at_once")
async def test_a_journal_that_cannot_be_read_is_a_line_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    looking = StartCheck(tmp_path)
    looking.start()
    await _end(looking)
    (record,) = caplog.records
    assert "could not be checked: " in record.message


async def _fill(journal: Journal) -> None:
    """With more than a check reads at once."""
    journal.batch.queue(queue())
    for sequence in range(1, 3_001):
        send(journal, sequence)
    await journal.flush()


@pytest.fixture
async def endless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: None) -> AsyncIterator[tuple[StartCheck, Process]]:
    """A check under way that at its pace would take days, and its process."""
    monkeypatch.setattr("homing.broker.process.start_check._REST", 1e6)
    begun: asyncio.Future[Process] = asyncio.get_running_loop().create_future()
    start = apart.start

    async def noted(module: str, *arguments: str) -> Process:
        begun.set_result(await start(module, *arguments))
        return begun.result()

    monkeypatch.setattr("homing.journal.apart.start", noted)
    async with opened(tmp_path) as (journal, _):
        await _fill(journal)
        looking = StartCheck(tmp_path)
        looking.start()
        yield looking, await asyncio.wait_for(begun, 30)
        looking.close()
        await _end(looking)


async def test_a_stop_ends_its_process(endless: tuple[StartCheck, Process], caplog: pytest.LogCaptureFixture) -> None:
    looking, child = endless
    looking.close()
    await _end(looking)
    assert child.returncode == -signal.SIGKILL
    assert caplog.records == []


async def test_its_process_ends_with_the_broker(endless: tuple[StartCheck, Process], caplog: pytest.LogCaptureFixture) -> None:
    looking, child = endless
    assert child.stdin is not None
    child.stdin.close()
    await _end(looking)
    assert child.returncode == -signal.SIGTERM
    (record,) = caplog.records
    assert "the process that checks it ended early" in record.message


async def test_a_disk_that_is_nearly_full_has_no_room_for_it(endless: tuple[StartCheck, Process], caplog: pytest.LogCaptureFixture) -> None:
    looking, child = endless
    looking.leave_off("the disk is nearly full")
    await _end(looking)
    assert child.returncode == -signal.SIGKILL
    looking.leave_off("the disk is nearly full")
    assert ["the disk is nearly full" in record.message for record in caplog.records] == [True]


async def test_a_log_that_grows_to_its_limit_ends_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(tmp_path, wal_limit_bytes=2 << 20) as (journal, _):
        await _fill(journal)
        broker = Broker(parse(f"data-directory: {tmp_path}", tmp_path / "broker.yaml"), journal, BrokerClock(0), cast(LogWriter, None))
        assert not journal.wal_over
        broker.look_for_damage()
        for sequence in range(10_000, 10_200):
            send(journal, sequence, of=message(sequence, b"x" * 12_000))
        await journal.flush()
        broker.close()
    assert "has reached journal.wal-limit: the journal is not checked after the unclean stop" in caplog.text


async def test_pages_of_a_check_hold_few_bodies_and_miss_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homing.journal.read.check._PAGE_BODY_BYTES", 10_000)
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        for sequence in range(1, 41):
            send(journal, sequence, of=message(sequence, b"x" * (50_000 if sequence % 7 == 0 else 900)))
        for sequence in range(41, 44):
            journal.batch.add_message(message(sequence, b"y" * 30_000))
            journal.batch.add(reference(sequence, of=message(sequence), shared=True))
            journal.batch.counts(1, 1)[0] += 1
        await journal.flush()
        report = check(tmp_path)
    assert report.problems == []
    assert (report.rows["reference"], report.rows["message"]) == (43, 3)
