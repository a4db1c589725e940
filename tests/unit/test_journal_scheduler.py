"""Batches that wait for the disk: what goes, in which order, and that a message acknowledged meanwhile is not written."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from homing.journal.commit.batch import WriteBatch
from homing.journal.commit.scheduler import COMPANY_S, MOST_IN_COMPANY, MOST_PATIENCE_S, PATIENCE_S, CommitScheduler
from homing.journal.contract import QueueStat
from tests.unit.journal_support import attempt, counted, keep_attempt, message, reference

STEP_S = 0.001
Operation = tuple[str, int]

NAMES = ("add", "change", "delete", "message", "delete-message", "attempt", "delete-attempt", "count", "duplicate", "mark", "address")


def apply(batch: WriteBatch, operation: Operation) -> None:
    what, number = operation
    match what:
        case "add":
            batch.add(reference(number))
        case "change":
            batch.change([number], counted(failed=number))
        case "delete":
            batch.delete_all((number,))
        case "message":
            batch.add_message(message(number))
        case "delete-message":
            batch.delete_message(number)
        case "attempt":
            keep_attempt(batch, attempt(number, number, 1))
        case "delete-attempt":
            batch.delete_attempt(number, number, 1)
        case "count":
            batch.counts(1, number)[QueueStat.SENT] += 1
        case "duplicate":
            batch.duplicate("a", str(number))
        case "mark":
            batch.producer_high_watermark("p", number, number)
        case "address":
            batch.delete_address(str(number))


def possible(operations: list[Operation]) -> list[Operation]:
    """Without what never happens: adding a reference or an attempt that is there, changing or deleting what is gone."""
    there: dict[tuple[bool, int], bool] = {}
    kept: list[Operation] = []
    for what, number in operations:
        key = (what.endswith("attempt"), number)
        if (what in ("add", "attempt") and there.get(key)) or (what in ("change", "delete", "delete-attempt") and there.get(key) is False):
            continue
        if what in ("add", "change", "delete", "attempt", "delete-attempt"):
            there[key] = not what.startswith("delete")
        kept.append((what, number))
    return kept


def content(batch: WriteBatch) -> dict[str, Any]:
    names = ("added", "changed", "deleted", "deleted_first", "messages", "messages_deleted", "attempts", "attempts_deleted", "queue_stats")
    content = {name: getattr(batch, name) for name in names}
    # What counts a row has that goes with the same batch is all one.
    content["added"] = {sequence: None if sequence in batch.deleted else added for sequence, added in batch.added.items()}
    return content | {"duplicates": list(batch.duplicates), "producers": batch.producers, "addresses": batch.addresses}


@example([("add", 1), ("change", 1), ("delete", 1)], 1, False)
@example([("delete-attempt", 1), ("attempt", 1)], 0, True)
@given(st.lists(st.tuples(st.sampled_from(NAMES), st.integers(1, 4)), max_size=40), st.integers(0, 40), st.booleans())
def test_two_batches_absorbed_are_as_one(operations: list[Operation], cut: int, elide: bool) -> None:
    alone, first, second = (WriteBatch(elide=elide) for _ in range(3))
    operations = possible(operations)
    for operation in operations:
        apply(alone, operation)
    for operation in operations[:cut]:
        apply(first, operation)
    for operation in operations[cut:]:
        apply(second, operation)
    first.absorb(second)
    assert content(first) == content(alone)


def row(batches: deque[WriteBatch], *sequences: int) -> WriteBatch:
    """One more batch that waits, with these messages."""
    batch = WriteBatch(older=batches)
    for sequence in sequences:
        batch.add(reference(sequence))
    batch.closed_s = 1.0
    batches.append(batch)
    return batch


def test_success_is_booked_where_the_message_still_waits() -> None:
    waiting: deque[WriteBatch] = deque()
    first, second = row(waiting, 1, 2), row(waiting, 3)
    now = WriteBatch(older=waiting)
    now.succeed(1, 7, {1, 3, 9}, alone=True)
    assert (set(first.added), set(second.added), now.deleted) == ({2}, set(), {9})
    assert [batch.queue_stats[1, 7][QueueStat.FIRST_TRY] for batch in (first, second, now)] == [1, 1, 1]


def test_a_transaction_takes_nothing_out_of_older_batches() -> None:
    waiting: deque[WriteBatch] = deque()
    first = row(waiting, 1)
    now = WriteBatch(older=waiting)
    now.succeed(1, 7, {1}, alone=False)
    assert (set(first.added), now.deleted) == ({1}, {1})


def test_without_elision_nothing_is_taken_out_of_older_batches() -> None:
    waiting: deque[WriteBatch] = deque()
    first = row(waiting, 1)
    now = WriteBatch(elide=False, older=waiting)
    now.succeed(1, 7, {1}, alone=True)
    assert (set(first.added), now.deleted) == ({1}, {1})


def test_a_batch_that_became_empty_wakes_the_writer() -> None:
    woken: list[int] = []
    waiting: deque[WriteBatch] = deque()
    batch = WriteBatch(wake=lambda: woken.append(1), older=waiting)
    batch.add(reference(1))
    batch.closed_s = 1.0
    waiting.append(batch)
    WriteBatch(older=waiting).succeed(1, 7, {1}, alone=True)
    assert woken == [1, 1]


def test_a_shared_body_goes_unwritten_with_its_last_reference() -> None:
    waiting: deque[WriteBatch] = deque()
    first = row(waiting, 2)
    first.add_message(message(5))
    later = WriteBatch(older=waiting)
    later.delete_message(5)
    first.drop_bodies_gone_in([later])
    assert first.messages == {}


def test_a_shared_body_stays_while_something_points_at_it() -> None:
    waiting: deque[WriteBatch] = deque()
    first = row(waiting)
    first.add_message(message(5))
    first.add(reference(5, of=message(5), shared=True))
    later = WriteBatch(older=waiting)
    later.delete_message(5)
    first.drop_bodies_gone_in([later])
    assert set(first.messages) == {5}


class Flow:
    """A producer and a consumer beside a CommitScheduler, in steps of a millisecond."""

    def __init__(self, per_step: int = 100, elide: bool = True) -> None:
        self.scheduler = CommitScheduler(elide)
        self.now_s = 100.0
        self.sequence = 0
        self.per_step = per_step
        self.elide = elide
        self.batch = self._new()
        self.unacknowledged: deque[int] = deque()

    def _new(self) -> WriteBatch:
        return WriteBatch(elide=self.elide, older=self.scheduler.waiting)

    def step(self, acknowledge: int, busy: bool = False) -> WriteBatch | None:
        """Some messages come, some older ones are acknowledged, and the writer looks, unless it is busy."""
        for _ in range(acknowledge):
            self.batch.succeed(1, 1, {self.unacknowledged.popleft()}, alone=True)
        for _ in range(self.per_step):
            self.sequence += 1
            self.unacknowledged.append(self.sequence)
            self.batch.add(reference(self.sequence))
        self.now_s += STEP_S
        if self.batch.touched:
            self.scheduler.close(self.batch, self.now_s)
            self.batch = self._new()
        return None if busy else self.scheduler.take(self.now_s, self.batch)

    def follow(self, steps: int) -> int:
        """A consumer one step behind; returns how many messages were written in the last ten steps."""
        written = 0
        for number in range(steps):
            taken = self.step(len(self.unacknowledged))
            written += len(taken.added) if taken is not None and number >= steps - 10 else 0
        return written


def test_nothing_is_written_once_acknowledgements_follow_closely() -> None:
    assert Flow().follow(40) == 0


def test_all_is_written_without_elision() -> None:
    assert Flow(elide=False).follow(40) == 1000


def test_with_little_to_do_nothing_waits() -> None:
    flow = Flow(per_step=1)
    assert all(flow.step(len(flow.unacknowledged)) is not None for _ in range(100))


def test_a_consumer_that_falls_silent_is_not_waited_for_long() -> None:
    flow = Flow()
    flow.follow(40)
    taken = [flow.step(0) for _ in range(60)]
    assert None in taken[: int(PATIENCE_S / STEP_S)]
    assert None not in taken[-20:]


def test_no_batch_waits_beyond_the_patience() -> None:
    flow = Flow()
    flow.follow(40)
    for _ in range(30):
        flow.step(0)
        assert all(flow.now_s - batch.closed_s < PATIENCE_S for batch in flow.scheduler.waiting)


def slow_acknowledgements(flow: Flow, steps: int) -> int:
    """A consumer 16 ms behind, commits of 8 ms; returns how many messages were written in the last hundred steps."""
    written = 0
    for number in range(steps):
        taken = flow.step(max(0, len(flow.unacknowledged) - 16 * flow.per_step), busy=number % 8 != 0)
        written += len(taken.added) if taken is not None and number >= steps - 100 else 0
    return written


def test_patience_grows_where_acknowledgements_take_longer() -> None:
    flow = Flow()
    flow.follow(40)
    assert slow_acknowledgements(flow, 400) == 0


def test_grown_patience_has_an_end_and_shrinks_again() -> None:
    flow = Flow()
    flow.follow(40)
    slow_acknowledgements(flow, 400)
    for number in range(300):
        flow.step(0, busy=number % 8 != 0)
        assert all(flow.now_s - batch.closed_s < MOST_PATIENCE_S + 8 * STEP_S for batch in flow.scheduler.waiting)
    flow.follow(400)
    assert flow.step(0) is None
    assert flow.scheduler.look_again_s() - flow.now_s < 2 * PATIENCE_S


def test_at_the_time_it_names_itself_something_goes() -> None:
    """The loop's clock has whole milliseconds; a timer that rings a rounding error too early would ring again and again."""
    for start_ms in range(100, 200, 7):
        flow = Flow()
        flow.now_s = start_ms / 1000
        flow.follow(40)
        assert flow.step(0) is None
        assert flow.scheduler.take(round(flow.scheduler.look_again_s(), 3), flow.batch) is not None


def test_few_messages_are_few_however_close_their_acknowledgements_follow() -> None:
    flow = Flow(per_step=1)
    for _ in range(100):
        assert flow.step(0) is not None
        flow.batch.succeed(1, 1, {flow.unacknowledged.popleft()}, alone=True)
        flow.batch.confirms.append(lambda: None)
        flow.scheduler.close(flow.batch, flow.now_s)
        flow.batch = WriteBatch(older=flow.scheduler.waiting)
        assert flow.scheduler.take(flow.now_s + 0.0001, flow.batch) is not None


def test_whoever_waits_for_the_disk_takes_all_along() -> None:
    flow = Flow()
    flow.follow(40)
    assert flow.step(0) is None
    flow.scheduler.waiting[-1].after.append(lambda: None)
    assert flow.scheduler.take(flow.now_s, flow.batch) is not None
    assert not flow.scheduler.waiting


def test_a_prefix_goes_and_confirms_leave_in_order() -> None:
    flow = Flow()
    flow.follow(40)
    called: list[int] = []
    for number in range(5):
        flow.batch.confirms.append(lambda number=number: called.append(number))  # type: ignore[misc]
        flow.step(0)
    while flow.scheduler.waiting:
        taken = flow.step(len(flow.unacknowledged)) or WriteBatch()
        for callback in taken.confirms:
            callback()
        flow.per_step = 0
    assert called == [0, 1, 2, 3, 4]


class Row:
    """Batches that are closed, and what of them goes at once; time is told."""

    def __init__(self) -> None:
        self.scheduler = CommitScheduler(elide=True)
        self.now_s = 100.0

    def closed(self, *what: Callable[[WriteBatch], object]) -> WriteBatch | None:
        batch = WriteBatch(older=self.scheduler.waiting)
        for each in what:
            each(batch)
        self.scheduler.close(batch, self.now_s)
        return self.taken()

    def taken(self) -> WriteBatch | None:
        return self.scheduler.take(self.now_s, WriteBatch())


def acknowledged(*sequences: int) -> Callable[[WriteBatch], object]:
    return lambda batch: batch.succeed(1, 7, set(sequences), alone=True)


COMPANY: dict[str, Callable[[WriteBatch], object]] = {
    "a message": lambda batch: batch.add(reference(9)),
    "a count": lambda batch: batch.change([9], counted(failed=1)),
    "a body": lambda batch: batch.add_message(message(9)),
    "an address": lambda batch: batch.delete_address("a"),
    "a producer": lambda batch: batch.producer_high_watermark("p", 9, 9),
    "a transaction": lambda batch: batch.committed("t", 9),
    "who waits for an acknowledgement": lambda batch: batch.after.extend([print]),
    "a producer's confirm": lambda batch: batch.confirms.extend([print]),
}


@pytest.mark.parametrize("company", COMPANY)
def test_acknowledgements_wait_for_company_and_go_with_it(company: str) -> None:
    row = Row()
    assert row.closed(acknowledged(1, 2)) is None
    row.now_s += COMPANY_S / 2
    assert row.closed(acknowledged(3)) is None
    taken = row.closed(COMPANY[company])
    assert taken is not None
    assert taken.deleted >= {1, 2, 3}
    assert taken.queue_stats[1, 7][QueueStat.SUCCEEDED] == 3
    assert not row.scheduler.waiting


@pytest.mark.parametrize("company", COMPANY)
def test_what_is_company_waits_for_nothing(company: str) -> None:
    assert Row().closed(acknowledged(1), COMPANY[company]) is not None


def test_without_company_they_go_when_the_first_has_waited_long_enough() -> None:
    """At the very time that is named: the loop's clock has whole milliseconds."""
    for start_ms in range(100, 200, 7):
        row = Row()
        row.now_s = start_ms / 1000
        assert row.closed(acknowledged(1)) is None
        due_s = round(row.scheduler.look_again_s(), 3)
        assert due_s == round(row.now_s + COMPANY_S, 3)
        row.now_s = due_s - STEP_S
        assert row.closed(acknowledged(2)) is None
        row.now_s = due_s
        taken = row.taken()
        assert taken is not None
        assert taken.deleted == {1, 2}


def test_somebody_may_begin_to_wait_for_acknowledgements_that_wait() -> None:
    row = Row()
    assert row.closed(acknowledged(1)) is None
    row.scheduler.waiting[-1].after.append(lambda: None)
    assert row.taken() is not None


def test_a_flood_of_acknowledgements_waits_for_nothing() -> None:
    row = Row()
    assert row.closed(acknowledged(*range(MOST_IN_COMPANY))) is None
    assert row.closed(acknowledged(MOST_IN_COMPANY)) is not None


def test_a_batch_without_anything_in_it_reserves_numbers_and_goes() -> None:
    row = Row()
    assert row.closed(acknowledged(1)) is None
    assert row.closed(WriteBatch.touch) is not None
