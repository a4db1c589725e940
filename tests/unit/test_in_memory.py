"""Messages in memory alone join pages of those on disk, in order, whatever the page and wherever it begins."""

from __future__ import annotations

from random import Random
from typing import Any, cast

import pytest

from homing.broker.core.message import Message, MessageReference
from homing.broker.core.queue import Queue
from homing.broker.core.settings.address_settings import DEFAULTS
from homing.broker.entries.in_memory import InMemory, records
from homing.journal.read.pages import Page


def queue_of(sequences: list[int]) -> Queue:
    queue = Queue(1, "q", "q", "anycast", DEFAULTS, created_at_ms=0)
    for sequence in sequences:
        queue.references[sequence] = MessageReference(Message(sequence, "q", b"", durable=False), queue, sequence, 0)
    return queue


def looked_at(queue: Queue) -> InMemory:
    others = InMemory(queue, lambda reference: True)
    while not others.looked():
        pass
    return others


def page_of(stored: list[int], after: int, rows: int, newest_first: bool) -> Page:
    """As journal.read.pages makes them."""
    order = sorted(stored, reverse=newest_first)
    behind = [each for each in order if not after or (each < after if newest_first else each > after)]
    found = behind[:rows]
    # Of a record only its sequence is asked for.
    return Page(records(queue_of(found), found), len(found) == rows, last=found[-1] if found else 0)


@pytest.mark.parametrize("newest_first", [False, True])
def test_pages_have_everything_once_and_in_order(newest_first: bool) -> None:
    for seed in range(300):
        random = Random(seed)
        numbers = random.sample(range(1, 200), random.randrange(40))
        cut = random.randrange(len(numbers) + 1)
        stored, here, rows = numbers[:cut], numbers[cut:], random.randrange(1, 8)
        queue = queue_of(here)
        others, seen, after, more = looked_at(queue), list[int](), 0, True
        while more:
            page = others.join(page_of(stored, after, rows, newest_first), after, rows, newest_first)
            got = [each.sequence for each in page.records]
            assert len(got) <= 2 * rows, seed
            seen, more, after = seen + got, page.more, page.last
            assert not got or got[-1] == after, seed
        assert seen == sorted(numbers, reverse=newest_first), seed


def test_what_has_left_or_was_stored_meanwhile_is_passed_over() -> None:
    queue = queue_of([3, 1, 5, 7])
    others = looked_at(queue)
    del queue.references[3]
    cast(Any, queue.references[5]).durable = True
    page = others.join(page_of([], 0, 2, newest_first=False), 0, 2, newest_first=False)
    assert ([each.sequence for each in page.records], page.more, page.last) == ([1], True, 3)
    page = others.join(page_of([], 3, 2, newest_first=False), 3, 2, newest_first=False)
    assert ([each.sequence for each in page.records], page.more, page.last) == ([7], False, 7)
