"""How many fault groups there are is bounded: the least recent is folded into one, and so are those of queues that are gone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from homing.broker.core.dead_letter_life import excess
from homing.broker.core.event import FAULT_GROWING, FAULT_NEW
from homing.broker.core.fault import FaultGroup
from homing.broker.core.memory import Memory
from homing.broker.core.message import Message, MessageReference
from homing.broker.core.message_filter import Filter
from homing.broker.core.queue import Queue
from homing.broker.core.settings.address_settings import AddressSettings
from homing.broker.entries import fault_groups
from homing.broker.entries.choosing import Choosing
from homing.broker.entries.counting import Counting
from homing.broker.entries.fault_groups import OTHER, FaultGroups
from homing.broker.protocols.amqp091.codec import method_frame
from homing.journal.commit.batch import WriteBatch
from homing.journal.contract import FaultStat
from homing.journal.read.choosing import Choice
from homing.journal.read.queries import JournalReader
from tests import inside
from tests.model.world import World
from tests.unit.journal_support import NOW_MS, hop, opened, queue, send
from tests.unit.test_amqp_methods import published
from tests.unit.test_amqp_session import Peer


def failed(groups: FaultGroups, kind: str, name: str = "q", now_ms: int = 1_000, durable: bool = True) -> MessageReference:
    queue = Queue(1, name, name, "anycast", AddressSettings(), created_at_ms=0)
    reference = MessageReference(Message(1, name, b"", durable=durable), queue, 1, 0)
    groups.failed(name, [reference], (f"2-{kind}", kind, "text", ""), None, now_ms)
    return reference


@pytest.mark.plain
def test_the_least_recent_is_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_groups, "MOST", 3)
    batch = WriteBatch()
    groups = FaultGroups(cast(Any, SimpleNamespace(batch=batch)), lambda: 1_000, Memory(1 << 30))
    first = failed(groups, "a")
    failed(groups, "b")
    failed(groups, "c")
    failed(groups, "a")
    failed(groups, "d")
    assert [each.error_class for each in groups.by_id.values()] == ["a", "c", "other", "d"]
    ((gone, into),) = batch.faults().folded.items()
    assert into == OTHER
    # What failed so is counted where its group went.
    folded = failed(groups, "a")
    folded.cause = gone << 4
    groups.ended(folded, succeeded=True, now_ms=1_000)
    assert batch.faults().counts(OTHER, 1_000)[FaultStat.SUCCEEDED] == 1
    assert first.cause == next(iter(groups.by_id)) << 4


@pytest.mark.plain
def test_what_waits_in_memory_alone_is_counted_there_and_the_rest_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_groups, "MOST", 2)
    batch = WriteBatch()
    groups = FaultGroups(cast(Any, SimpleNamespace(batch=batch)), lambda: 1_000, Memory(1 << 30))
    first, second, kept = (failed(groups, "a", durable=False) for _ in range(3))
    (a,) = groups.by_id
    assert (groups.in_memory[a], batch.faults().stats) == (3, {})
    groups.ended(first, succeeded=True, now_ms=1_000)
    groups.kept(kept, 1_000)
    groups.record_seen(1_000)
    counts = batch.faults().counts(a, 1_000)
    assert [counts[each] for each in (FaultStat.FAILURES, FaultStat.WAITING, FaultStat.SUCCEEDED)] == [3, 1, 1]
    assert groups.in_memory[a] == 1
    # Where its group went, the last one is counted, too.
    failed(groups, "b")
    failed(groups, "c")
    assert (a in groups.by_id, groups.in_memory[OTHER]) == (False, 1)
    groups.ended(second, succeeded=False, now_ms=1_000)
    assert groups.in_memory[OTHER] == 0


def test_one_that_goes_to_a_queue_that_keeps_it_and_to_one_that_does_not_is_counted_as_it_is_in_each() -> None:
    world = World({"#": {"keep-failed": False}})
    peer = Peer(world)
    peer.log_in()
    peer.call(1, "channel.open", "")
    peer.call(1, "exchange.declare", 0, "again", "fanout", False, True, False, False, False, {})
    for name, arguments in (("keeps", {"x-queue-type": "quorum"}), ("plain", {"x-dead-letter-exchange": "again"})):
        peer.call(1, "queue.declare", 0, name, False, True, False, False, False, arguments)
        peer.call(1, "queue.bind", 0, name, "again", "", False, {})
    peer.send(published("plain"))
    ((_, (tag, *_)),) = peer.call(1, "basic.get", 0, "plain", False)
    # Where it died it is to be tried again, in memory as before; in the other one it is dead.
    peer.session.receive(method_frame(1, "basic.reject", tag, False))
    faults, stats = inside.faults(world.broker), world.journal.batch.faults().stats
    assert [next(iter(inside.queues(world.broker)[name].references.values())).durable for name in ("keeps", "plain")] == [True, False]
    assert (sum(row[FaultStat.WAITING] for row in stats.values()), faults.in_memory.total()) == (0, 1)


def test_what_was_seen_of_a_fault_is_on_record_within_a_minute() -> None:
    batch = WriteBatch()
    groups = FaultGroups(cast(Any, SimpleNamespace(batch=batch)), lambda: 1_000, Memory(1 << 30))
    failed(groups, "a", now_ms=101_000)
    failed(groups, "a", now_ms=102_000)
    failed(groups, "b", now_ms=103_000)
    (a, b) = groups.by_id

    def on_record() -> dict[int, tuple[int, int]]:
        return {each.fault_id: (each.last_ms, len(each.message_ids)) for each in batch.faults().records.values()}

    groups.record_seen(161_999)
    assert on_record() == {a: (101_000, 1), b: (103_000, 1)}
    groups.record_seen(162_000)
    assert on_record() == {a: (102_000, 2), b: (103_000, 1)}
    failed(groups, "b", now_ms=162_500)
    groups.record_seen(162_500, waited_ms=0)
    assert on_record() == {a: (102_000, 2), b: (162_500, 2)}


def test_groups_of_queues_that_are_gone_go_after_a_while() -> None:
    batch = WriteBatch()
    groups = FaultGroups(cast(Any, SimpleNamespace(batch=batch)), lambda: 1_000, Memory(1 << 30))
    died = failed(groups, "dead", "gone.died")
    groups.dead_lettered("gone.died", [died], "delivery_limit", NOW_MS)
    failed(groups, "muted", "gone.muted")
    groups.by_id[max(groups.by_id)].muted = True
    failed(groups, "here", "here")
    for number in range(600):
        failed(groups, "once", f"gone.{number}", 2_000)
    failed(groups, "late", "gone.late", 3_000)
    for before_ms, left in ((2_000, 604), (2_001, 105), (2_001, 5), (3_000, 5)):
        groups.forget(before_ms, {"here"})
        assert len(groups.by_id) == left
    assert {each.queue for each in groups.by_id.values()} == {"gone.died", "gone.muted", "here", "gone.late", ""}
    assert set(batch.faults().folded.values()) == {OTHER}
    # The number of the latest is not to come again.
    groups.forget(9_000, {"here"})
    assert len(groups.by_id) == 5


@pytest.mark.plain
def test_what_was_said_of_a_group_outlasts_many_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_groups, "MOST", 5)
    groups = FaultGroups(cast(Any, SimpleNamespace(batch=WriteBatch())), lambda: 1_000, Memory(1 << 30))
    for kind in ("muted", "fixed"):
        failed(groups, kind)
    muted, fixed = groups.by_id.values()
    muted.muted, fixed.fixed_in = True, "1.1"
    for number in range(50):
        failed(groups, f"kind {'abcdefghij'[number // 10]}{'klmnopqrst'[number % 10]}")
    assert len(groups.by_id) == 6
    assert {muted.fault_id, fixed.fault_id} < set(groups.by_id)
    # Where such are all, the least recent goes all the same.
    for group in groups.by_id.values():
        group.muted = True
    failed(groups, "one more")
    assert len(groups.by_id) == 6


@pytest.mark.plain
async def test_a_fault_may_come_again_in_the_batch_that_its_group_went_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(fault_groups, "MOST", 2)
    async with opened(tmp_path) as (journal, _):
        groups = FaultGroups(journal, lambda: NOW_MS, Memory(1 << 30))
        for kind in "ab":
            failed(groups, kind, now_ms=NOW_MS)
        await journal.flush()
        died = [failed(groups, kind, now_ms=NOW_MS) for kind in "cabcab"][-1]
        groups.dead_lettered("q", [died], "delivery_limit", NOW_MS)
        await journal.flush()
    async with opened(tmp_path) as (journal, recovered):
        assert {record.error_class: more for record, *more in recovered.faults} == {
            # What failed lately did so, whichever group it was in.
            "other": ["", False, 6, 6],
            "a": ["text", False, 1, 1],
            "b": ["text", True, 1, 0],
        }
        restored = FaultGroups(journal, lambda: NOW_MS, Memory(1 << 30))
        restored.restore(recovered.faults)
        assert {each.error_class: each.dead_lettered for each in restored.by_id.values()} == {"other": False, "a": False, "b": True}


@pytest.mark.plain
async def test_growth_that_was_reported_is_not_again_after_a_restart(tmp_path: Path) -> None:
    reported: list[tuple[str, int]] = []

    def groups_of(journal: Any, now_ms: int) -> FaultGroups:
        return FaultGroups(journal, lambda: now_ms, Memory(1 << 30), report=lambda event, _, failures: reported.append((event, failures)))

    async with opened(tmp_path) as (journal, _):
        groups = groups_of(journal, NOW_MS)
        for _ in range(12):
            failed(groups, "a", now_ms=NOW_MS)
        await journal.flush()
    assert reported == [(FAULT_NEW, 1), (FAULT_GROWING, 10)]
    async with opened(tmp_path) as (journal, recovered):
        groups = groups_of(journal, NOW_MS)
        groups.restore(recovered.faults)
        for _ in range(88):
            failed(groups, "a", now_ms=NOW_MS)
        assert reported[2:] == [(FAULT_GROWING, 100)]
        # In the next hour it is counted anew.
        for _ in range(10):
            failed(groups, "a", now_ms=NOW_MS + 3_600_000)
        assert reported[3:] == [(FAULT_GROWING, 10)]


@pytest.mark.plain
async def test_dead_letters_of_groups_that_were_folded_are_still_of_their_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(fault_groups, "MOST", 2)
    async with opened(tmp_path) as (journal, _):
        groups = FaultGroups(journal, lambda: NOW_MS, Memory(1 << 30))
        journal.batch.queue(queue(name="DLQ"))
        graves = Queue(1, "DLQ", "DLQ", "anycast", AddressSettings(), created_at_ms=0)
        for sequence, source in enumerate(("orders", "stock", "orders", "orders"), 10):
            died = failed(groups, f"kind{sequence}", source, NOW_MS)
            groups.dead_lettered(source, [died], "delivery_limit", NOW_MS)
            groups.dead_letters.came(graves, [died.cause])
            send(journal, sequence, hops=[hop(sequence - 9, queue=source)], cause=died.cause)
        await journal.flush()
    async with opened(tmp_path) as (_, recovered):
        restored = FaultGroups(journal, lambda: NOW_MS, Memory(1 << 30))
        restored.restore(recovered.faults)
        for _, cause, number in recovered.dead:
            restored.dead_letters.count(graves, cause, number)
    with JournalReader(tmp_path) as reader:
        dead = reader.dead()
        reported = [(each.fault_id == OTHER, each.source) for each in dead]
        assert reported == [(True, "orders"), (True, "stock"), (False, "orders"), (False, "orders")]
        settings = AddressSettings(dead_letter_quota=1)
        assert [(each.source, each.number) for each in excess(dead, lambda name: settings, NOW_MS)] == [("orders", 2)]
        nothing = cast(Any, None)
        journal = cast(Any, SimpleNamespace(next_id=lambda: 100))
        choosing = Choosing(journal, groups, nothing, nothing, nothing)
        wanted = [Filter(from_queue="orders"), Filter(fault="other"), Filter(fault="other", from_queue="stock")]
        assert [reader.chosen(1, choosing.choice(each, 100), 0, 10) for each in wanted] == [[10, 12, 13], [10, 11], [11]]
        numbers = reader.count_chosen(1, choosing.choice(Filter(), 100))
        assert sorted((fault_id == OTHER, source, number) for (fault_id, source), number in numbers.items()) == [
            *((False, "orders", 1), (False, "orders", 1)),
            *((True, "orders", 1), (True, "stock", 1)),
        ]
        assert reader.dead_since([1, 2]) == {1: (dead[0].oldest_ms, dead[-1].newest_ms)}
        # What is counted as it comes and goes says the same of those that are told apart, and how many the others are.
        assert sorted((each.fault_id == OTHER, each.source, each.messages) for each in groups.dead_letters.within({graves})) == [
            *((False, "orders", 1), (False, "orders", 1), (True, None, 2)),
        ]
        assert Counter(groups.dead_letters.within({graves})) == Counter(restored.dead_letters.within({graves}))
        found, left = Counting(journal, nothing, groups, nothing, choosing).known(graves, Filter(from_queue="orders"))
        assert found + Counter(reader.count_chosen(1, cast(Choice, left))) == {each: 1 for each in numbers if each[1] == "orders"}


@pytest.mark.parametrize(
    ("fixed_in", "version", "back"),
    [("1.5", "1.4.9", False), ("1.5", "1.5", True), ("1.5", "1.10", True), ("1.5", "", True), ("", "0.1", True), (None, "9", False)],
)
def test_a_failure_of_a_fixed_release_is_a_return(fixed_in: str | None, version: str, back: bool) -> None:
    group = FaultGroup(2, "2-a", "q", "E", "", 0, 0, fixed_in=fixed_in, fixed_ms=0)
    assert group.is_back(version) is back
    group.regressed_ms = 5
    assert not group.is_back(version)
