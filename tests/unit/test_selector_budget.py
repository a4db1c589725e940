"""What selectors cost is bounded: one evaluation, one dispatch of a queue, one turn of the broker."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from homing.broker.core.consumer import Consumer
from homing.broker.core.message import Message, MessageReference, PropertyValue
from homing.broker.core.queue import SCAN_BUDGET, Queue
from homing.broker.core.selector import GAPPED_STEPS, MAX_CHARACTERS, Selector, compile_selector
from homing.broker.core.settings.address_settings import AddressSettings

#: What a message's properties may take, unless the settings say otherwise.
_PROPERTIES = 65_536


class _Sink:
    writable = True

    def deliver(self, consumer: Consumer, references: Sequence[MessageReference]) -> None:
        """Nobody looks."""


def _queue(messages: int, properties: dict[str, PropertyValue], size: int = 0) -> Queue:
    queue = Queue(1, "q", "q", "anycast", AddressSettings(), created_at_ms=0)
    for number in range(1, messages + 1):
        message = Message(number, "q", b"", properties)
        message.size += size
        reference = queue.references[number] = MessageReference(message, queue, number, 0)
        queue.append(reference)
    return queue


def _consumers(queue: Queue, selectors: list[Selector | None], prefetch: int = 1000) -> list[Consumer]:
    made = [Consumer(n, f"c{n}", _Sink(), prefetch, selector) for n, selector in enumerate(selectors)]
    for each in made:
        queue.attach(each)
    return made


def _turns(queue: Queue, most: int = 10_000) -> list[int]:
    """What each dispatch cost, until there is nothing more to do."""
    costs = []
    for _ in range(most):
        done = queue.dispatch(0, 2000)
        costs.append(done.cost)
        if not done.more:
            return costs
    raise AssertionError(f"not done after {most} turns")


def test_one_evaluation_costs_no_more_than_a_bound_whatever_the_selector_is_like() -> None:
    worst = 0
    for length in (3, 16, 64, 100, 1000, 4000):
        segment = ("a_" * length)[: length - 1] + "b"
        text = " OR ".join([f"p LIKE '%{segment}%'"] * max(1, (MAX_CHARACTERS + 4) // (length + 16)))
        assert len(text) <= MAX_CHARACTERS
        worst = max(worst, compile_selector(text).cost(_PROPERTIES))
    assert worst <= 2 * GAPPED_STEPS // 1024 + MAX_CHARACTERS // 64 + 1


@pytest.mark.parametrize(("pattern", "found"), [("%x_y%", True), ("%x_z%", False), ("%" + "_x" * 31 + "_y%", False), ("%a%x_y%a", True)])
def test_the_longest_text_is_looked_at_with_a_pattern_of_64_characters(pattern: str, found: bool) -> None:
    text = "a" * 30_000 + "x-y" + "a" * (_PROPERTIES - 30_003)
    assert compile_selector(f"p LIKE '{pattern}'").matches({"p": text}.get) is found
    assert compile_selector(f"NOT p LIKE '{pattern}'").matches({"p": text}.get) is not found


def test_a_text_that_is_too_long_for_its_patterns_is_unknown() -> None:
    """No match, and neither is its opposite; the limit is on all the selector's patterns together."""
    segment = "%a_" + "b" * 1022 + "%"
    text = "a-" + "b" * 1022
    longest = GAPPED_STEPS // 1024
    one, two = f"p LIKE '{segment}'", f"p LIKE '{segment}' OR p LIKE '{segment}'"
    for selector, most in ((one, longest), (two, longest // 2)):
        assert compile_selector(selector).matches({"p": text.rjust(most, "c")}.get)
        for each in (selector, f"NOT ({selector})"):
            assert not compile_selector(each).matches({"p": text.rjust(most + 1, "c")}.get)
    # What str.find alone finds has no such limit.
    assert compile_selector("p LIKE '%" + "b" * 1022 + "'").matches({"p": text.rjust(_PROPERTIES, "c")}.get)


def test_a_dispatch_stops_where_its_selectors_have_cost_enough() -> None:
    """100 consumers with LIKE on properties of 64 KiB: each dispatch makes a few looks, and all of them are made in the end."""
    text = "a" * _PROPERTIES
    queue = _queue(3, {"p": text}, size=len(text))
    selectors = [compile_selector(f"p LIKE '%a_b{number}%'") for number in range(100)]
    _consumers(queue, list(selectors))
    costs = _turns(queue)
    each = selectors[-1].cost(len(text))
    assert max(costs) < SCAN_BUDGET + each
    assert sum(costs) >= 3 * 99 * selectors[0].cost(len(text))
    assert len(costs) > 20
    assert queue.pending.count == 3


def test_whoever_had_no_turn_is_asked_first_in_the_next() -> None:
    """Consumers that match nothing, in front of one that matches and one that takes anything."""
    text = "a" * _PROPERTIES
    queue = _queue(40, {"p": text}, size=len(text))
    never = [compile_selector(f"p LIKE '%a_b{number}%'") for number in range(20)]
    *_, matching = _consumers(queue, [*never, compile_selector("p LIKE '%a_a%'")])
    turns = 0
    while not matching.unsettled:
        queue.dispatch(0, 2000)
        turns += 1
        assert turns <= 21 * 2
    plain = Consumer(99, "plain", _Sink(), 1000)
    queue.attach(plain)
    queue.dispatch(0, 2000)
    assert plain.unsettled


def test_suspects_are_looked_at_in_turn_when_their_selectors_cost_much() -> None:
    text = "a" * _PROPERTIES
    queue = _queue(0, {})
    never = [compile_selector(f"p LIKE '%a_b{number}%'") for number in range(90)]
    consumers = _consumers(queue, [*never, compile_selector("wanted")])
    for number in range(1, 31):
        message = Message(number, "q", b"", {"p": text, "wanted": number == 30})
        message.size += len(text)
        reference = MessageReference(message, queue, number, 0)
        reference.suspect = True
        queue.put_back([reference])
    costs = []
    while not consumers[-1].unsettled:
        costs.append(queue.dispatch(0, 2000).cost)
        assert len(costs) < 200
    assert len(costs) > 1
    assert [each.sequence for each in consumers[-1].unsettled.values()] == [30]


def test_a_dispatch_finds_no_more_that_have_expired_than_can_end_in_a_turn() -> None:
    """Each of them is dead-lettered, which takes longer than to hand one out."""
    queue = _queue(3_000, {})
    for reference in list(queue.references.values())[:-1]:
        reference.expires_at_ms = 1
    consumers, ended, more = _consumers(queue, [None, None]), list[int](), True
    while more:
        _, expired, more, _ = queue.dispatch(2, 2000)
        ended.append(len(expired))
    assert max(ended) <= 500
    assert sum(ended) == 2_999
    assert sum([len(each.unsettled) for each in consumers]) == 1
