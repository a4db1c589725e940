"""Exchanges, pure: what each kind matches, how routes follow one another; and RabbitMQ's account of deaths."""

from __future__ import annotations

import re
import sys
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.broker.core.amqp import exchange as exchange_module
from homing.broker.core.amqp.binding_index import STEP, TopicIndex
from homing.broker.core.amqp.exchange import Binding, Destination, Exchange, headers_match
from homing.broker.core.amqp.origin import Way, packed, unpacked
from homing.broker.core.amqp.search import Search
from homing.broker.core.amqp.x_death import bounded, deaths, is_cycle, through_exchange
from homing.broker.core.message import Hop
from homing.broker.core.routing import Route
from homing.broker.protocols.amqp091.codec_tables import Timestamp, compared, write_value
from homing.journal.contract import HopDetail


def exchange(name: str, kind: str, *bindings: tuple[str, str], **more: Any) -> Exchange:
    made = Exchange(name, kind, **more)
    for key, destination in bindings:
        made.bind(Binding(name, Destination(destination.removeprefix("x:"), not destination.startswith("x:")), key, {}))
    return made


def matches(exchange: Exchange, keys: list[str], headers: Any = None) -> list[Destination]:
    found: dict[Destination, None] = {}
    for _ in exchange.matches(keys, headers or {}, found):
        pass
    return list(found)


def whole(search: Search) -> Search:
    search.go_on(sys.maxsize)
    assert search.route is not None
    return search


WORDS = st.lists(st.sampled_from(["a", "b", "", "*", "#"]), max_size=5).filter(lambda words: words != [""])
PATTERNS = st.lists(st.sampled_from(["a", "b", "*", "#"]), max_size=5)
PLACES = st.lists(st.tuples(PATTERNS, st.sampled_from("pqr")), max_size=12)


def fits(pattern: list[str], words: list[str]) -> bool:
    """As a regular expression says."""
    parts = ["(?:\\.[^.]*)*" if word == "#" else "\\.[^.]*" if word == "*" else f"\\.{re.escape(word)}" for word in pattern]
    return re.fullmatch("".join(parts), "".join(f".{word}" for word in words)) is not None


@given(PLACES, st.lists(st.integers(0, 11), max_size=8), st.lists(WORDS, min_size=1, max_size=3))
def test_topics_match_as_a_regular_expression_would(bound: list[tuple[list[str], str]], unbound: list[int], keys: list[list[str]]) -> None:
    made = Exchange("x", "topic")
    bindings = [Binding("x", Destination(name, True), ".".join(pattern), {"n": n}) for n, (pattern, name) in enumerate(bound)]
    for binding in bindings:
        assert made.bind(binding)
    gone = {bindings[number].identity() for number in unbound if number < len(bindings)}
    for binding in bindings:
        if binding.identity() in gone:
            assert made.unbind(binding)
    left = [each for binding, each in zip(bindings, bound, strict=True) if binding.identity() not in gone]
    expected = {name for pattern, name in left if any(fits(pattern, words) for words in keys)}
    assert {each.name for each in matches(made, [".".join(words) for words in keys])} == expected


def test_a_trie_without_patterns_is_empty_again() -> None:
    index: TopicIndex[str] = TopicIndex()
    patterns = ["a.b.c", "a.#", "a.*.c", "#.#.b", "", "a.b"]
    for pattern in patterns:
        index.add(pattern, "q")
    for pattern in patterns:
        index.remove(pattern, "q")
    assert index.is_empty


def test_a_long_search_goes_in_steps_of_bounded_work() -> None:
    """1,000 patterns with 60 ``#`` each, and 60 keys that fit none of them: no step is long, however long the search."""
    made = Exchange("x", "topic")
    for number in range(1_000):
        made.bind(Binding("x", Destination("q", True), f"#.w{number}." + "#.a." * 60 + "z", {}))
    keys = [".".join([f"w{number}", *["a"] * 60, "b"]) for number in range(60)]
    search = Search({"x": made}, made, keys, {}, lambda search: Route([], False))
    steps = [search.go_on(1_000)]
    while search.route is None:
        steps.append(search.go_on(1_000))
    assert max(steps) < 1_000 + 2 * STEP
    assert len(steps) > 10
    assert not search.queues


def test_ends_behind_a_number_sign_are_taken_once() -> None:
    """A key that comes by 120 times, and 200 keys: what it costs is the nodes, and each of 5,000 matches once."""
    made = Exchange("x", "topic")
    for number in range(5_000):
        made.bind(Binding("x", Destination(f"q{number}", True), "#.a.#", {}))
    search = Search({"x": made}, made, [f"{'a.' * 120}k{number}" for number in range(200)], {}, lambda search: Route([], False))
    assert search.go_on(sys.maxsize) < 5_000 + 200 * 121 * 8
    assert len(search.queues) == 5_000


VALUES = st.sampled_from([None, 1, 1.0, True, 2, "x", b"x\0\0\0\x01x", [1], {"a": 1}])
HEADERS = st.dictionaries(st.sampled_from(["a", "b", "x-c"]), VALUES, max_size=3)
ASKED = st.tuples(HEADERS, st.sampled_from(["all", "any", "all-with-x", "any-with-x"]))


@given(st.lists(ASKED, max_size=8), st.sets(st.integers(0, 7)), HEADERS)
def test_headers_are_found_as_one_by_one(asked: list[tuple[dict[str, Any], str]], unbound: set[int], headers: dict[str, Any]) -> None:
    made = Exchange("x", "headers")
    wanted = [{**pairs, "x-match": mode} for pairs, mode in asked]
    bindings = [_headers_binding(f"q{number}", arguments) for number, arguments in enumerate(wanted)]
    said = compared(_written(headers))
    for binding in bindings:
        made.bind(binding)
    for number in unbound & set(range(len(bindings))):
        made.unbind(bindings[number])
    expected = {f"q{number}" for number, each in enumerate(bindings) if number not in unbound and headers_match(each, said)}
    assert {each.name for each in matches(made, ["any", "key"], said)} == expected


def test_what_does_not_match_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """In work done: 5,000 bindings, of which one matches."""
    made, looked_at = Exchange("x", "headers"), list[Any]()
    for number in range(5_000):
        made.bind(_headers_binding(f"q{number}", {"kind": "order", "n": number}))

    def match(wanted: Any, headers: Any) -> bool:
        looked_at.append(wanted)
        return True

    monkeypatch.setattr(exchange_module, "headers_match", match)
    matches(made, [""], compared(_written({"kind": "order", "n": 17})))
    assert len(looked_at) <= 2


@pytest.mark.parametrize(
    ("wanted", "headers", "match"),
    [
        ({}, {}, True),
        ({"x-match": "any"}, {"a": 1}, False),
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ({"x-match": "any", "a": 1, "b": 2}, {"a": 1}, True),
        ({"a": None}, {"a": "whatever"}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": "1"}, {"a": 1}, False),
        ({"a": "1"}, {"a": b"x\0\0\0\x011"}, True),
        ({"a": 1}, {"a": b"l" + bytes(7) + b"\x01"}, True),
        ({"a": 5}, {"a": Timestamp(5)}, True),
        ({"a": b"D\x02\0\0\x04\xe2"}, {"a": b"D\x02\0\0\x04\xe2"}, True),
        ({"a": b"D\x02\0\0\x04\xe2"}, {"a": b"D\x01\0\0\0\x7d"}, False),
        ({"a": b"D\0\0\0\0\x01"}, {"a": 1}, False),
        ({"a": [1]}, {"a": [Timestamp(1)]}, False),
        ({"a": {"b": 1, "c": 2}}, {"a": {"c": 2, "b": 1}}, False),
        ({"a": {"b": [1, None]}}, {"a": {"b": [1, None]}}, True),
        ({"a": {"b": [1, None]}}, {"a": {"b": [1, False]}}, False),
        ({"x-k": 1}, {}, True),
        ({"x-match": "all-with-x", "x-k": 1}, {}, False),
        ({"x-match": "any-with-x", "x-k": 1}, {"x-k": 1}, True),
    ],
)
def test_headers(wanted: dict[str, Any], headers: dict[str, Any], match: bool) -> None:
    assert headers_match(_headers_binding("q", wanted), compared(_written(headers))) is match


def _headers_binding(queue: str, arguments: dict[str, Any]) -> Binding:
    return Binding("x", Destination(queue, True), "", arguments, compared(_written(arguments)))


def _written(table: dict[str, Any]) -> dict[str, bytes]:
    return {name: value if isinstance(value, bytes) else write_value(value) for name, value in table.items()}


def test_routes_follow_exchanges_once_and_the_alternate_where_nothing_matched() -> None:
    exchanges = {
        each.name: each
        for each in (
            exchange("top", "topic", ("a.#", "q1"), ("a.*", "q1"), ("#.z", "x:fan")),
            exchange("fan", "fanout", ("", "q2"), ("", "x:top"), ("", "q1")),
            exchange("first", "direct", ("only", "q3"), arguments={"alternate-exchange": "fan"}),
        )
    }

    def reached(first: str, *keys: str) -> list[str]:
        return list(whole(Search(exchanges, exchanges[first], keys, {}, lambda search: Route([], False))).queues)

    assert reached("top", "a.b") == ["q1"]
    assert reached("top", "a.z") == ["q1", "q2"]
    assert reached("top", "none") == []
    assert reached("first", "only") == ["q3"]
    assert reached("first", "other") == ["q2", "q1"]
    assert reached("top", "none", "a.b") == ["q1"]


def test_two_bindings_to_one_queue_are_undone_one_by_one() -> None:
    made = exchange("x", "direct", ("k", "q"))
    with_arguments = Binding("x", Destination("q", True), "k", {"n": 1})
    assert made.bind(with_arguments)
    assert not made.bind(with_arguments)
    assert made.unbind(with_arguments)
    assert matches(made, ["k"]) == [Destination("q", True)]
    assert not made.unbind(with_arguments)


@given(st.text(max_size=30), st.text(max_size=30), st.lists(st.text(max_size=9), max_size=4), st.binary(max_size=30))
def test_the_origin_comes_back_as_it_went(name: str, key: str, cc: list[str], raw: bytes) -> None:
    assert unpacked(packed(name, key, cc, raw)) == (Way(name, (key, *cc)), raw)


# -- deaths ------------------------------------------------------------------------------------------------------------


def die(queue: str, reason: str, at_ms: int, before: list[Hop]) -> list[Hop]:
    counts = {"attempts": 1, "delivery_count": 1, "expires_at_ms": None}
    detail = {"queue": queue, "reason": reason, "at_ms": at_ms, "address": queue, "routing_type": "anycast", **counts}
    hop = Hop(at_ms, cast(HopDetail, detail))
    return [through_exchange(hop, before, Way("x", (queue,)), Way("dlx", ("k",)), False), *before]


def test_pairs_are_counted_and_the_latest_stands_first() -> None:
    hops: list[Hop] = []
    for at_ms, (queue, reason) in enumerate([("work", "poison"), ("wait", "expired"), ("work", "rejected"), ("work", "maxlen")], 1):
        hops = die(queue, reason, at_ms, hops)
    assert [death[:3] for death in deaths(hops)] == [("work", "maxlen", 1), ("work", "rejected", 2), ("wait", "expired", 1)]
    assert deaths(hops)[1].time_ms == 1


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["rejected", "expired"])), min_size=1, max_size=60))
def test_bounded_hops_tell_the_same(steps: list[tuple[str, str]]) -> None:
    full: list[Hop] = []
    kept: list[Hop] = []
    for at_ms, (queue, reason) in enumerate(steps):
        full = die(queue, reason, at_ms, full)
        kept = bounded(die(queue, reason, at_ms, kept), 8)
    assert deaths(kept) == deaths(full)
    assert kept[-1] == full[-1], "the first death is where redrive goes"
    assert len(kept) <= 8


def test_a_cycle_is_one_without_a_rejection() -> None:
    hops = die("b", "expired", 2, die("a", "expired", 1, []))
    assert is_cycle("a", hops)
    assert not is_cycle("c", hops)
    assert not is_cycle("a", die("b", "rejected", 2, die("a", "expired", 1, [])))
    assert not is_cycle("a", die("b", "expired", 2, die("a", "rejected", 1, [])))


def test_what_is_bound_to_a_destination_is_found_by_it() -> None:
    made = Exchange("x", "topic")
    one, other = Destination("q", True), Destination("q", False)
    bindings = [Binding("x", to, key, {}) for to in (one, other) for key in ("a", "b")]
    for binding in bindings:
        assert made.bind(binding)
        assert not made.bind(binding)
    assert made.bindings_to(one) == bindings[:2]
    assert made.unbind(bindings[0])
    assert not made.unbind(bindings[0])
    assert made.bindings_to(one) == bindings[1:2]
    assert made.bindings_to(other) == bindings[2:]
    made.unbind(bindings[1])
    assert made.bindings_to(one) == []
    assert list(made.bindings.values()) == bindings[2:]
