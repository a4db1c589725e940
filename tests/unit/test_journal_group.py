"""The open group as a map from key to final state."""

from __future__ import annotations

from types import SimpleNamespace

from homing.journal.commit.batch import Group
from homing.journal.contract import MinuteColumn
from tests.unit.journal_support import counted, hop, message, reference


def test_add_and_delete_in_one_group_leave_nothing() -> None:
    group = Group()
    group.add(reference(7))
    group.delete(1, 4, 7)
    assert (group.added, group.deleted, group.elided) == ({}, set(), 1)
    assert not group.writes()


def test_the_size_is_that_of_the_bodies_that_will_be_written() -> None:
    earlier, later, size = Group(), Group(), len(message(1).body)
    assert size
    earlier.add(reference(1))
    earlier.add_fresh({2: reference(2), 3: reference(3)}, 2 * size)
    earlier.add_message(message(9))
    earlier.add(reference(10, shared=True))
    assert earlier.size == 4 * size
    earlier.delete(1, 4, 2)
    assert earlier.size == 3 * size
    later.add(reference(4))
    later.add_message(message(8))
    later.delete(1, 4, 3)
    assert later.size == 2 * size
    earlier.absorb(later)
    assert earlier.size == 4 * size
    assert set(earlier.added) == {1, 4, 10}
    assert set(earlier.messages) == {8, 9}


def arrivals(group: Group, *sequences: int) -> None:
    """References as their owner has them; the record is made when it is asked for."""
    come = {sequence: SimpleNamespace(sequence=sequence, message=message(sequence)) for sequence in sequences}
    size = sum(len(each.message.body) for each in come.values())
    group.add_arrivals(come, size, lambda arrival: reference(arrival.sequence))


def test_an_arrival_becomes_a_record_when_it_is_written_changed_or_joins_another_group() -> None:
    group, later, size = Group(), Group(), len(message(1).body)
    arrivals(group, 1, 2, 3)
    group.delete_all({1})
    assert (group.size, group.elided, group.deleted) == (2 * size, 1, set())
    group.change([2], counted(failed=5))
    arrivals(later, 4)
    later.delete_all({3})
    group.absorb(later)
    changed, as_it_came = group.records()
    assert (changed.sequence, changed[3:9], changed.message) == (2, counted(failed=5), message(2))
    assert as_it_came == reference(4)
    assert (group.size, group.elided, group.shared_bodies()) == (2 * size, 2, set())


def test_a_group_without_arrivals_absorbs_some() -> None:
    group, later = Group(), Group()
    group.delete(1, 4, 9)
    arrivals(later, 4)
    group.absorb(later)
    assert list(group.records()) == [reference(4)]


def test_without_elision_both_are_kept() -> None:
    group = Group(elide=False)
    group.add(reference(7))
    group.delete(1, 4, 7)
    assert (set(group.added), group.deleted, group.elided) == ({7}, {7}, 0)


def test_elision_can_be_switched_off_for_an_open_group() -> None:
    group = Group()
    group.add(reference(7))
    group.elide = False
    group.delete(1, 4, 7)
    assert group.deleted == {7}


def test_change_of_what_was_added_here_lands_in_the_record_itself() -> None:
    group = Group()
    group.add(reference(7, hops=[hop(1)], shared=True))
    group.change([7], counted(delivery_count=3, failed=2, assigned=4, state=1, due_at_ms=99, expires_at_ms=100))
    assert group.changed == {}
    assert group.added[7] == reference(
        7, hops=[hop(1)], shared=True, delivery_count=3, failed=2, assigned=4, state=1, due_at_ms=99, expires_at_ms=100
    )


def test_one_change_of_several_meets_what_is_added_deleted_and_on_disk() -> None:
    group = Group()
    group.add(reference(7))
    group.delete(1, 4, 8)
    group.change([7, 8, 9], counted(failed=2))
    assert group.changed == {9: counted(failed=2)}
    assert [(record.failed, record.message) for record in group.records()] == [(2, message(7))]


def test_last_change_wins_and_delete_ends_it() -> None:
    group = Group()
    group.change([7], counted(failed=1))
    group.change([7], counted(failed=2))
    assert group.changed[7].failed == 2
    group.delete(1, 4, 7)
    assert (group.changed, group.deleted) == ({}, {7})
    group.change([7], counted(failed=3))
    assert group.changed == {}


def test_delete_then_add_replaces_the_row_on_disk() -> None:
    group = Group()
    group.delete(1, 4, 7)
    group.add(reference(7))
    assert (set(group.added), group.deleted, group.deleted_first) == ({7}, set(), {7})
    group.delete(1, 4, 7)
    assert (group.added, group.deleted, group.deleted_first) == ({}, {7}, set())


def test_a_shared_body_that_is_added_again_stays() -> None:
    group = Group()
    group.delete_message(4)
    group.add_message(message(4))
    assert (set(group.messages), group.messages_deleted) == ({4}, set())


def test_counts_are_one_row_for_each_queue_and_minute() -> None:
    group = Group()
    group.counts(1, 10)[MinuteColumn.SENT] += 2
    group.counts(1, 10)[MinuteColumn.MOVED_OUT] += 1
    group.counts(1, 11)[MinuteColumn.SENT] += 1
    assert group.minutes == {(1, 10): [2, *[0] * 9, 1, 0, 0], (1, 11): [1] + [0] * 12}


def test_first_touch_wakes_the_writer_once() -> None:
    woken: list[int] = []
    group = Group(wake=lambda: woken.append(1))
    assert not group.touched
    group.after.append(lambda: None)
    group.add(reference(1))
    group.clock(5)
    assert woken == [1]


def test_a_group_of_callbacks_only_has_nothing_to_write() -> None:
    group = Group()
    group.after.append(lambda: None)
    assert group.touched
    assert not group.writes()


def test_clock_never_goes_back() -> None:
    group = Group()
    group.clock(5)
    group.clock(3)
    assert group.clock_ms == 5


def test_what_is_removed_later_takes_the_duplicate_ids_before_it_along() -> None:
    earlier, later = Group(), Group()
    for address in ("a", "b"):
        earlier.duplicate(address, "old")
    later.delete_address("a")
    later.duplicate("a", "new")
    earlier.absorb(later)
    assert list(earlier.duplicates) == [("b", "old"), ("a", "new")]
