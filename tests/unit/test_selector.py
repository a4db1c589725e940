"""Selectors: JMS 1.1, section 3.8.1, and what a hostile one can cost."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from homing.broker.core import selector_terms as terms
from homing.broker.core.selector import MAX_CHARACTERS, PropertyValue, SelectorError, compile_selector

MESSAGE: dict[str, PropertyValue] = {
    "colour": "red",
    "size": 10,
    "weight": 2.5,
    "urgent": True,
    "quiet": False,
    "blob": b"red",
    "$cost": 7,
    "_x9": 1,
    "event.type": "push",
    "größe": 3,
    "ANDROID": "phone",
    "JMSPriority": 4,
    "JMSXDeliveryCount": 2,
    "JMSMessageID": "4097",
    "quote": "it's",
    "percent": "100%",
}


def matches(text: str) -> bool:
    return compile_selector(text).matches(MESSAGE.get)


def fate(text: str) -> bool | None:
    """True, False, or None where both the condition and its opposite fail: unknown."""
    if matches(text):
        return True
    return False if matches(f"NOT ({text})") else None


@pytest.mark.parametrize(
    "text",
    [
        "colour = 'red'",
        "colour <> 'blue'",
        "size = 10 AND weight = 2.5",
        "size > 9 and size >= 10 And size < 11 aNd size <= 10",
        "size = 10.0",
        "weight > 2 AND weight < 3",
        "urgent",
        "urgent = TRUE AND quiet = false",
        "NOT quiet",
        "NOT NOT urgent",
        "colour = 'blue' OR urgent AND size = 10",
        "(colour = 'blue' OR urgent) AND size = 10",
        "size BETWEEN 10 AND 10 AND urgent",
        "size NOT BETWEEN 11 AND 20",
        "colour IN ('green', 'red')",
        "colour NOT IN ('green', 'blue')",
        "size IN (1, 10.0, -5)",
        "colour LIKE 'r_d'",
        "colour LIKE 'r%'",
        "colour NOT LIKE 'b%'",
        "percent LIKE '100!%' ESCAPE '!'",
        "quote = 'it''s'",
        "nothing IS NULL",
        "colour IS NOT NULL",
        "size * 2 + 1 = 21",
        "size - 3 - 2 = 5",
        "2 + 3 * 4 = 14",
        "-size = -10 AND +size = 10 AND - -size = 10",
        "size / 3 = 3",
        "-7 / 2 = -3",
        "size / 4.0 = 2.5",
        "$cost = 7 AND _x9 = 1",
        "\"event.type\" = 'push'",
        "größe = 3",
        "ANDROID = 'phone'",
        "JMSPriority >= 4 AND JMSXDeliveryCount = 2 AND JMSMessageID = '4097'",
        "size = 0xA AND size = 012 AND size = 10L",
        "weight = 2.5 AND weight = 25e-1 AND weight = .25E1 AND weight = 2.5d",
        "size\n=\t10",
        "(size) = ((10))",
        "(size = 10) = TRUE",
        "-9223372036854775808 < size",
        "TRUE",
    ],
)
def test_true(text: str) -> None:
    assert fate(text) is True


@pytest.mark.parametrize(
    "text",
    [
        "colour = 'Red'",
        "quiet",
        "FALSE",
        "size BETWEEN 1 AND 9",
        "size BETWEEN 20 AND 1",
        # Unlike types compare to false, whichever way.
        "colour = size",
        "size <> colour",
        "urgent = size",
        "_x9 = urgent",
        "blob = colour",
        "size = '10'",
        "colour > size",
        "colour < colour",
        "colour IN ('green')",
        "urgent IN (1)",
        "size LIKE '1%'",
        "blob LIKE 'red'",
        "colour LIKE ''",
        "urgent BETWEEN 0 AND 2",
    ],
)
def test_false(text: str) -> None:
    assert fate(text) is False


@pytest.mark.parametrize(
    "text",
    [
        "nothing = 1",
        "nothing <> 1",
        "nothing = nothing",
        "nothing > 1",
        "nothing LIKE '%'",
        "nothing IN ('a')",
        "nothing BETWEEN 1 AND 2",
        "size BETWEEN 1 AND nothing",
        "nothing",
        "NOT nothing",
        "nothing AND urgent",
        "nothing OR quiet",
        "nothing + 1 = 1",
        "-nothing = 1",
        # Values where they cannot stand.
        "colour",
        "size OR quiet",
        "colour + 1 = 2",
        "urgent * 1 = 1",
        "-colour = 1",
        "size / 0 = 0",
        "size / 0.0 > 0",
        "9223372036854775807 + size > 0",
        "1e308 * size > 0",
    ],
)
def test_unknown(text: str) -> None:
    assert fate(text) is None


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("nothing AND quiet", False),
        ("nothing OR urgent", True),
        ("NOT (nothing AND quiet)", True),
        ("nothing IS NULL OR nothing > 1", True),
        ("size BETWEEN 20 AND nothing", False),
    ],
)
def test_three_valued_logic_decides_as_soon_as_it_can(text: str, result: bool) -> None:
    assert fate(text) is result


@pytest.mark.parametrize(
    ("text", "position", "says"),
    [
        ("", 0, "empty"),
        ("   ", 0, "empty"),
        ("colour =", 8, "too early"),
        ("(colour = 'red'", 15, "too early"),
        ("colour = 'red", 9, "has no end"),
        ('"colour = 1', 0, "has no end"),
        ("colour == 'red'", 8, "does not belong"),
        ("colour = 'red')", 14, "does not belong"),
        ("colour ; DROP", 7, "not part of a selector"),
        ("colour 'red'", 7, "does not belong"),
        ("AND = 1", 0, "'AND' does not belong"),
        ("null = 1", 0, "does not belong"),
        ("a = b = c", 6, "does not belong"),
        ("5", 0, "must be a condition, not a number"),
        ("'text'", 0, "must be a condition, not text"),
        ("size + 1", 0, "must be a condition, not a number"),
        ("urgent AND 5", 11, "what AND joins"),
        ("NOT 'a'", 4, "what follows NOT"),
        ("size > 'a'", 5, "compares numbers"),
        ("size < TRUE", 5, "compares numbers"),
        ("1 = 'a'", 2, "can never be compared"),
        ("'a' + 1 = 2", 0, "arithmetic works on must be a number"),
        ("-TRUE = 1", 1, "must be a number"),
        ("5 LIKE 'a'", 0, "LIKE compares text"),
        ("colour LIKE 5", 12, "does not belong"),
        ("colour LIKE 'a' ESCAPE '!!'", 23, "exactly one character"),
        ("colour LIKE 'a!' ESCAPE '!'", 12, "ends with its escape"),
        ("colour IN ()", 11, "does not belong"),
        ("colour IN (size)", 11, "does not belong"),
        ("size BETWEEN 'a' AND 'b'", 13, "BETWEEN compares"),
        ("size = 9223372036854775809", 7, "64 bits"),
        ("size = 1e999", 7, "double"),
        ("size = 089", 7, "octal"),
        ("size = 5abc", 8, "does not belong"),
        ("colour = \x00", 9, "not part of a selector"),
    ],
)
def test_what_is_no_selector(text: str, position: int, says: str) -> None:
    with pytest.raises(SelectorError, match=says) as caught:
        compile_selector(text)
    assert caught.value.position == position
    assert caught.value.code == "invalid-selector"
    assert caught.value.fix


def test_limits_of_length_and_depth() -> None:
    assert matches("(" * 64 + "urgent" + ")" * 64)
    assert matches("NOT " * 64 + "urgent")
    for text in ("(" * 65 + "urgent" + ")" * 65, "NOT " * 65 + "urgent", "- " * 65 + "size = 10", "(" * 2044 + "urgent" + ")" * 2044):
        with pytest.raises(SelectorError, match="nested"):
            compile_selector(text)
    with pytest.raises(SelectorError, match="characters"):
        compile_selector("urgent" + " " * MAX_CHARACTERS)
    assert compile_selector("NOT (NOT urgent)", max_depth=3).matches(MESSAGE.get)
    with pytest.raises(SelectorError, match="more than 2"):
        compile_selector("NOT (NOT urgent)", max_depth=2)


def test_the_deepest_allowed_selector_needs_little_stack() -> None:
    """In a thread, where nothing else is on the stack; the default limit is 1,000 frames."""
    text = "urgent"
    for _ in range(32):
        text = f"NOT (quiet OR urgent AND {text} = TRUE)"
    selector = compile_selector(text)
    seen: list[bool | str] = []

    def run() -> None:
        try:
            seen.append(selector.matches(MESSAGE.get))
        except RecursionError as error:
            seen.append(repr(error))

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(400)
    try:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    finally:
        sys.setrecursionlimit(limit)
    assert seen == [True]


def test_long_chains_cost_no_stack() -> None:
    assert matches(" OR ".join(["quiet"] * 400) + " OR urgent")
    assert matches("size = " + "+".join(["1"] * 2000) + " - 1990")
    assert matches("size = " + "1*" * 2000 + "10")


def test_the_same_short_text_is_compiled_once() -> None:
    assert compile_selector("size = 10") is compile_selector("size = 10")
    assert compile_selector("size = 10").text == "size = 10"
    long = "size = " + "1 + " * 100 + "1"
    assert compile_selector(long) is not compile_selector(long), "long ones would take too much"


def _like_by_definition(pattern: str, value: str) -> bool:
    """Rows of a table: reachable[j] says whether the pattern so far matches value[:j]."""
    reachable = [True] + [False] * len(value)
    for each in pattern:
        if each == "%":
            for j in range(1, len(value) + 1):
                reachable[j] = reachable[j] or reachable[j - 1]
        else:
            reachable = [False] + [before and each in ("_", character) for before, character in zip(reachable, value, strict=False)]
    return reachable[-1]


@example("%a____%", "aaa")  # more than there is, in the middle
@given(st.text("ab%_", max_size=10), st.text("ab", max_size=12))
def test_like_agrees_with_its_definition(pattern: str, value: str) -> None:
    run = terms.Like(terms.constant(value), pattern, None)
    assert run(MESSAGE.get) is _like_by_definition(pattern, value)


@given(st.text("ab%_!", max_size=12))
def test_an_escaped_pattern_matches_only_itself(value: str) -> None:
    pattern = "".join("!" + each for each in value)
    assert terms.Like(terms.constant(value), pattern, "!")(MESSAGE.get) is True
    assert terms.Like(terms.constant(value + "a"), pattern, "!")(MESSAGE.get) is False


def test_like_does_not_blow_up() -> None:
    value = "a" * 65_536
    started = time.process_time()
    for pattern in ("%a" * 1000 + "%b", "%" + "a" * 2000 + "b%", "%a_a_a_a_b%", "%_" * 1000 + "b"):
        assert terms.Like(terms.constant(value), pattern, None)(MESSAGE.get) is False
    # Backtracking would not end in a lifetime; this takes a fraction of a second, so the bound is no matter of luck.
    assert time.process_time() - started < 20


_VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("ab%é", max_size=4)
    | st.binary(max_size=3)
)


@given(st.dictionaries(st.sampled_from("abc"), _VALUES))
def test_no_message_makes_a_selector_raise(message: dict[str, PropertyValue]) -> None:
    for text in (
        "a = b OR a <> c OR a < b",
        "a + b * c / a - 1 > 0 AND -c < 5",
        "a LIKE 'x%' OR b IN ('x', 1) OR c BETWEEN a AND b",
        "NOT a AND (b OR c IS NULL)",
    ):
        assert compile_selector(text).matches(message.get) in (True, False)


@given(st.text("ab =<>'\"()+-*/%_.,0123456789eExXlLNOTANDinlikebetw ", max_size=60))
def test_any_text_compiles_or_is_refused_with_a_position(text: str) -> None:
    try:
        compile_selector(text).matches(MESSAGE.get)
        position = 0
    except SelectorError as error:
        position = error.position
    assert 0 <= position <= len(text)


def test_lark_is_loaded_only_for_a_selector() -> None:
    check = "assert 'lark' not in sys.modules; s.compile_selector('a=1'); assert 'lark' in sys.modules"
    program = f"import sys, homing.broker.core.selector as s; {check}"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
