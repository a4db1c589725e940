"""What a node of a cluster reckons: how far it is behind, and by how much its clock is off."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import asyncpg
import pytest

from homing.broker.process.cluster import leading
from homing.broker.process.cluster.view import View, clock_off_ms
from homing.journal.replication import postgresql
from homing.journal.replication.cell import Cell
from homing.journal.replication.log import LogAway, Standing
from homing.journal.replication.postgresql import Access, Member, PostgresLog


@pytest.mark.parametrize(("asked_ms", "there_ms", "answered_ms", "off_ms"), [(5, 5, 9, 0), (5, 9, 9, 0), (5, 3, 9, 2), (5, 12, 9, -3)])
def test_a_clock_is_off_by_what_cannot_be_the_way_to_it(asked_ms: int, there_ms: int, answered_ms: int, off_ms: int) -> None:
    assert clock_off_ms(asked_ms, there_ms, answered_ms) == off_ms


def test_a_node_that_keeps_up_is_behind_by_what_came_since_it_looked_and_one_that_does_not_by_all_the_time_since() -> None:
    now_s = 0
    view = View("main", "b", 1000, lambda: now_s)

    def lacks_for_ms(at_s: int, last: int, applied: int) -> int:
        nonlocal now_s
        now_s = at_s
        view.take(Cell(Standing(1, last, b"", "a 1")), applied)
        return view.behind_ms

    for second in range(1, 5):  # ten entries a second, of which it has all that it saw a second before
        assert lacks_for_ms(second, 10 * second, 10 * (second - 1)) == 1000
    lacks_for_ms(5, 50, 30)
    assert lacks_for_ms(9, 60, 30) == 6000
    assert lacks_for_ms(10, 60, 60) == 0


async def test_a_database_that_is_read_and_takes_nothing_is_away_all_the_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its disk is full: that is told once, in one line, and that it is back once it took something, or nothing was written for long."""
    now_s, told, full = 0.0, list[str](), True
    monkeypatch.setattr(postgresql, "time", SimpleNamespace(monotonic=lambda: now_s))

    async def fetch(sql: str, *values: object) -> list[Any]:
        if full and sql.startswith("UPDATE"):
            raise asyncpg.DiskFullError("could not extend file\nHINT:  Check free disk space.")
        return [Standing(1, 1, b"", "a 1")]

    log = PostgresLog(Access("postgresql://homing@127.0.0.1/x", "main"), Member("a", "1", "{}"), told.append)

    async def connect(*_: object, **__: object) -> SimpleNamespace:
        return SimpleNamespace(fetch=fetch, terminate=lambda: None, add_log_listener=lambda listen: None)

    monkeypatch.setattr(asyncpg, "connect", connect)
    for _ in range(5):
        with pytest.raises(LogAway):
            await log.release(1)
        await log.look()
        now_s += 1
    assert told == ["could not extend file; HINT:  Check free disk space."]
    full = False
    await log.release(1)
    assert told.pop() == ""
    full = True
    with pytest.raises(LogAway):
        await log.release(1)
    now_s += 10
    await log.look()
    assert told[2:] == [""]


async def test_a_leader_says_that_it_serves_as_soon_as_the_log_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever switched over waits for that."""
    monkeypatch.setattr(leading, "REPORT_S", 0)
    asked, events = list[int](), list[str]()

    async def report(far: object) -> Cell:
        return Cell(Standing(3, 1, b"", "a 1"), led_s=1.0 if len(asked) > 1 else None)

    async def serves(epoch: int) -> None:
        asked.append(epoch)
        if len(asked) == 1:
            raise LogAway("not yet")

    async def describe() -> Cell:
        return Cell(Standing(3, 1, b"", "a 1"), why="died", before="b")

    async def trim(*_: object) -> None:
        if len(asked) > 1:
            raise asyncio.CancelledError

    view = View("main", "a", 1000, lambda: 0.0)
    log = SimpleNamespace(serves=serves, describe=describe, trim=trim)
    node = SimpleNamespace(view=view, log=log, report=report, name="a", event=lambda name, *_, **__: events.append(name))
    leader = SimpleNamespace(epoch=3, at=SimpleNamespace(number=1), read_by=lambda versions: None)
    leads = leading.Leading(cast(Any, node), cast(Any, leader), 2)
    await leads.serves()
    with pytest.raises(asyncio.CancelledError):
        await leads._attend(cast(Any, SimpleNamespace(durable=b"", space_low=False)))
    assert (asked, events) == ([3, 3], ["cluster.failed-over"])
