"""The open batch as a map from key to final state."""

from __future__ import annotations

from types import SimpleNamespace

from homing.journal.commit.batch import WriteBatch
from homing.journal.contract import QueueStat
from tests.unit.journal_support import counted, hop, message, reference


def test_add_and_delete_in_one_batch_leave_nothing() -> None:
    batch = WriteBatch()
    batch.add(reference(7))
    batch.delete_all((7,))
    assert (batch.added, batch.deleted, batch.elided) == ({}, set(), 1)
    assert not batch.writes()


def test_the_size_is_that_of_the_bodies_that_will_be_written() -> None:
    earlier, later, size = WriteBatch(), WriteBatch(), message(1).weight
    assert size
    earlier.add(reference(1))
    earlier.add_fresh({2: reference(2), 3: reference(3)}, 2 * size)
    earlier.add_message(message(9))
    earlier.add(reference(10, shared=True))
    assert earlier.size == 4 * size
    earlier.delete_all((2,))
    assert earlier.size == 3 * size
    later.add(reference(4))
    later.add_message(message(8))
    later.delete_all((3,))
    assert later.size == 2 * size
    earlier.absorb(later)
    assert earlier.size == 4 * size
    assert set(earlier.added) == {1, 4, 10}
    assert set(earlier.messages) == {8, 9}


def arrivals(batch: WriteBatch, *sequences: int) -> None:
    """References as their owner has them; the record is made when it is asked for."""
    come = {
        sequence: SimpleNamespace(sequence=sequence, shared=False, message=SimpleNamespace(weight=message(sequence).weight))
        for sequence in sequences
    }
    size = sum(each.message.weight for each in come.values())
    batch.add_arrivals((1,), 10, len(come), come, size, lambda arrival, _: reference(arrival.sequence))


def test_an_arrival_becomes_a_record_when_it_is_written_changed_or_joins_another_batch() -> None:
    batch, later, size = WriteBatch(), WriteBatch(), message(1).weight
    arrivals(batch, 1, 2, 3)
    batch.delete_all({1})
    assert (batch.size, batch.elided, batch.deleted) == (2 * size, 1, set())
    batch.change([2], counted(failed=5))
    arrivals(later, 4)
    later.delete_all({3})
    batch.absorb(later)
    changed, as_it_came = batch.records()
    assert (changed.sequence, changed[3:11], changed.message) == (2, counted(failed=5), message(2))
    assert as_it_came == reference(4)
    assert (batch.size, batch.elided, batch.shared_bodies()) == (2 * size, 2, set())


def test_a_batch_without_arrivals_absorbs_some() -> None:
    batch, later = WriteBatch(), WriteBatch()
    batch.delete_all((9,))
    arrivals(later, 4)
    batch.absorb(later)
    assert list(batch.records()) == [reference(4)]


def test_without_elision_both_are_kept() -> None:
    batch = WriteBatch(elide=False)
    batch.add(reference(7))
    batch.delete_all((7,))
    assert (set(batch.added), batch.deleted, batch.elided) == ({7}, {7}, 0)


def test_elision_can_be_switched_off_for_an_open_batch() -> None:
    batch = WriteBatch()
    batch.add(reference(7))
    batch.elide = False
    batch.delete_all((7,))
    assert batch.deleted == {7}


def test_change_of_what_was_added_here_lands_in_the_record_itself() -> None:
    batch = WriteBatch()
    batch.add(reference(7, hops=[hop(1)], shared=True))
    batch.change([7], counted(delivery_count=3, failed=2, assigned=4, state=1, due_at_ms=99, expires_at_ms=100))
    assert batch.changed == {}
    assert batch.added[7] == reference(
        7, hops=[hop(1)], shared=True, delivery_count=3, failed=2, assigned=4, state=1, due_at_ms=99, expires_at_ms=100
    )


def test_one_change_of_several_meets_what_is_added_deleted_and_on_disk() -> None:
    batch = WriteBatch()
    batch.add(reference(7))
    batch.delete_all((8,))
    batch.change([7, 8, 9], counted(failed=2))
    assert batch.changed == {9: counted(failed=2)}
    assert [(record.failed, record.message) for record in batch.records()] == [(2, message(7))]


def test_last_change_wins_and_delete_ends_it() -> None:
    batch = WriteBatch()
    batch.change([7], counted(failed=1))
    batch.change([7], counted(failed=2))
    assert batch.changed[7].failed == 2
    batch.delete_all((7,))
    assert (batch.changed, batch.deleted) == ({}, {7})
    batch.change([7], counted(failed=3))
    assert batch.changed == {}


def test_delete_then_add_replaces_the_row_on_disk() -> None:
    batch = WriteBatch()
    batch.delete_all((7,))
    batch.add(reference(7))
    assert (set(batch.added), batch.deleted, batch.deleted_first) == ({7}, set(), {7})
    batch.delete_all((7,))
    assert (batch.added, batch.deleted, batch.deleted_first) == ({}, {7}, set())


def test_a_shared_body_that_is_added_again_stays() -> None:
    batch = WriteBatch()
    batch.delete_message(4)
    batch.add_message(message(4))
    assert (set(batch.messages), batch.messages_deleted) == ({4}, set())


def test_counts_are_one_row_for_each_queue_and_minute() -> None:
    batch = WriteBatch()
    batch.counts(1, 10)[QueueStat.SENT] += 2
    batch.counts(1, 10)[QueueStat.MOVED_OUT] += 1
    batch.counts(1, 11)[QueueStat.SENT] += 1
    rows = {key: {QueueStat(column): count for column, count in enumerate(row) if count} for key, row in batch.queue_stats.items()}
    assert rows == {(1, 10): {QueueStat.SENT: 2, QueueStat.MOVED_OUT: 1}, (1, 11): {QueueStat.SENT: 1}}


def test_first_touch_wakes_the_writer_once() -> None:
    woken: list[int] = []
    batch = WriteBatch(wake=lambda: woken.append(1))
    assert not batch.touched
    batch.after.append(lambda: None)
    batch.add(reference(1))
    batch.clock(5)
    assert woken == [1]


def test_a_batch_of_callbacks_only_has_nothing_to_write() -> None:
    batch = WriteBatch()
    batch.after.append(lambda: None)
    assert batch.touched
    assert not batch.writes()


def test_clock_never_goes_back() -> None:
    batch = WriteBatch()
    batch.clock(5)
    batch.clock(3)
    assert batch.clock_ms == 5


def test_what_is_removed_later_takes_the_duplicate_ids_before_it_along() -> None:
    earlier, later = WriteBatch(), WriteBatch()
    for address in ("a", "b"):
        earlier.duplicate(address, "old")
    later.delete_address("a")
    later.duplicate("a", "new")
    earlier.absorb(later)
    assert list(earlier.duplicates) == [("b", "old"), ("a", "new")]
