"""What a selector is made of: terms, each a closure from a lookup of names to a value. JMS 1.1, section 3.8.1.

Three-valued: ``None`` is both a property that is not there and the truth value *unknown*. Comparing unlike types is false, using a
value in a place that cannot take it (text in arithmetic, a number as a condition) is unknown; neither ever raises.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

PropertyValue = str | int | float | bool | bytes | None
Lookup = Callable[[str], PropertyValue]
Run = Callable[[Lookup], PropertyValue]

_INT64_MAX: Final = 2**63 - 1
#: Characters of a segment with gaps up to which a compiled pattern finds it sooner than shift-and does, whatever the text is like.
_SHORT: Final = 64


class Kind(Enum):
    """What a term gives, as far as can be said before any message is seen."""

    CONDITION = "a condition"
    NUMBER = "a number"
    TEXT = "text"
    #: A property: known only with the message.
    ANY = "a property"


class Term(NamedTuple):
    """A piece of a selector, compiled. ``depth`` counts nested parentheses, NOTs and signs; ``position`` is where it begins."""

    kind: Kind
    depth: int
    position: int
    run: Run


def constant(value: PropertyValue) -> Run:
    return lambda lookup: value


def identifier(name: str) -> Run:
    return lambda lookup: lookup(name)


def all_of(runs: Sequence[Run]) -> Run:
    """AND: false as soon as one is false; else unknown if one is not known (or is no truth value)."""

    def run(lookup: Lookup) -> PropertyValue:
        result: bool | None = True
        for each in runs:
            value = each(lookup)
            if value is False:
                return False
            if value is not True:
                result = None
        return result

    return run


def any_of(runs: Sequence[Run]) -> Run:
    """OR: true as soon as one is true; else unknown if one is not known (or is no truth value)."""

    def run(lookup: Lookup) -> PropertyValue:
        result: bool | None = False
        for each in runs:
            value = each(lookup)
            if value is True:
                return True
            if value is not False:
                result = None
        return result

    return run


def negation(inner: Run) -> Run:
    def run(lookup: Lookup) -> PropertyValue:
        value = inner(lookup)
        return (not value) if value is True or value is False else None

    return run


_ORDERINGS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def is_ordering(sign: str) -> bool:
    return sign in _ORDERINGS


def comparison(sign: str, left: Run, right: Run) -> Run:
    """``= <> < <= > >=``. Numbers compare with numbers whatever their type; text and truth values only by = and <>."""
    return _ordering(_ORDERINGS[sign], left, right) if sign in _ORDERINGS else _equality(sign == "=", left, right)


def _equality(wanted: bool, left: Run, right: Run) -> Run:
    def run(lookup: Lookup) -> PropertyValue:
        one, other = left(lookup), right(lookup)
        if one is None or other is None:
            return None
        if type(one) is not type(other) and not (_is_number(one) and _is_number(other)):
            return False
        return (one == other) is wanted

    return run


def _ordering(holds: Callable[[Any, Any], bool], left: Run, right: Run) -> Run:
    def run(lookup: Lookup) -> PropertyValue:
        one, other = left(lookup), right(lookup)
        if one is None or other is None:
            return None
        return _is_number(one) and _is_number(other) and holds(one, other)

    return run


def _is_number(value: PropertyValue) -> bool:
    return type(value) is int or type(value) is float


def one_of(inner: Run, values: Sequence[PropertyValue]) -> Run:
    """IN: 1 and 1.0 are the same number, and no number is TRUE."""
    texts = frozenset(value for value in values if isinstance(value, str))
    numbers = frozenset(value for value in values if _is_number(value))

    def run(lookup: Lookup) -> PropertyValue:
        value = inner(lookup)
        if value is None:
            return None
        return value in texts if isinstance(value, str) else _is_number(value) and value in numbers

    return run


def is_null(inner: Run) -> Run:
    return lambda lookup: inner(lookup) is None


def signed(minus: bool, inner: Run) -> Run:
    def run(lookup: Lookup) -> PropertyValue:
        value = inner(lookup)
        if not isinstance(value, int | float) or isinstance(value, bool):
            return None
        return -value if minus else value

    return run


def arithmetic(first: Run, rest: Sequence[tuple[str, Run]]) -> Run:
    """A chain of ``+ -`` or of ``* /``, from the left. Whole numbers divide as in Java, towards zero.

    Unknown where a value is not a number, a divisor is 0, or the result leaves 64 bits or the finite floats.
    """

    def run(lookup: Lookup) -> PropertyValue:
        result: Any = first(lookup)
        for sign, each in rest:
            result = _apply(sign, result, each(lookup))
            if result is None:
                return None
        return result  # type: ignore[no-any-return]

    return run


def _apply(sign: str, one: Any, other: Any) -> int | float | None:
    if not _is_number(one) or not _is_number(other):
        return None
    result: int | float
    if sign == "+":
        result = one + other
    elif sign == "-":
        result = one - other
    elif sign == "*":
        result = one * other
    elif not other:
        return None
    elif type(one) is int and type(other) is int:
        result = abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1)
    else:
        result = one / other
    fits = abs(result) <= _INT64_MAX if type(result) is int else math.isfinite(result)
    return result if fits else None


class _Segment:
    """What stands between two ``%``: text with gaps. ``runs`` are (offset, text); ``length`` includes every ``_``."""

    __slots__ = ("_pattern", "length", "runs")

    def __init__(self, runs: tuple[tuple[int, str], ...], length: int) -> None:
        self.runs = runs
        self.length = length
        self._pattern = self._compiled() if self.has_gaps and length <= _SHORT else None

    @property
    def has_gaps(self) -> bool:
        """Whether it is texts with a ``_`` between them: str.find alone does not find those."""
        return len(self.runs) > 1

    def _compiled(self) -> re.Pattern[str]:
        """Each character itself or any one: with nothing that repeats, there is nothing to go back to."""
        characters = ["."] * self.length
        for offset, text in self.runs:
            characters[offset : offset + len(text)] = map(re.escape, text)
        return re.compile("".join(characters), re.DOTALL)

    def stands_at(self, value: str, at: int) -> bool:
        return at >= 0 and at + self.length <= len(value) and all(value.startswith(text, at + offset) for offset, text in self.runs)

    def find(self, value: str, start: int, end: int) -> int:
        """The first place in ``value[start:end]`` where it stands, or -1."""
        if start + self.length > end:
            return -1
        if not self.runs:
            return start
        if self.has_gaps:
            return self._find_with_gaps(value, start, end)
        offset, text = self.runs[0]
        at = value.find(text, start + offset, end - (self.length - offset - len(text)))
        return at - offset if at >= 0 else -1

    def _find_with_gaps(self, value: str, start: int, end: int) -> int:
        if any(value.find(text, start, end) < 0 for _, text in self.runs):
            return -1
        if self._pattern is not None:
            found = self._pattern.search(value, start, end)
            return found.start() if found else -1
        return self._shift_and(value, start, end)

    def _shift_and(self, value: str, start: int, end: int) -> int:
        """Baeza-Yates and Gonnet 1992: one step a character, whatever the text and the pattern are like."""
        gaps = (1 << self.length) - 1
        for offset, text in self.runs:
            gaps &= ~(((1 << len(text)) - 1) << offset)
        masks: dict[str, int] = {}
        for offset, text in self.runs:
            for place, each in enumerate(text, offset):
                masks[each] = masks.get(each, gaps) | 1 << place
        begun, whole = 0, 1 << (self.length - 1)
        for at in range(start, end):
            begun = (begun << 1 | 1) & masks.get(value[at], gaps)
            if begun & whole:
                return at - self.length + 1
        return -1


class Like:
    """``%`` is any text, ``_`` one character, ``escape`` makes the next one plain. No regular expression with anything that repeats, so
    nothing to blow up: a look at n characters costs n steps, and n times the pattern's length where there are ``_`` between texts.

    Raises ValueError for an escape that has nothing to escape.
    """

    __slots__ = ("_inner", "_segments", "gapped", "longest", "searched")

    def __init__(self, inner: Run, pattern: str, escape: str | None) -> None:
        self._inner = inner
        self._segments = _segments(pattern, escape)
        between = self._segments[1:-1]
        #: The characters of the segments that are looked for, and of those that have gaps.
        self.searched = sum(segment.length for segment in between)
        self.gapped = sum(segment.length for segment in between if segment.has_gaps)
        #: A text of more characters is not looked at, and the condition unknown; None: however long it is.
        self.longest: int | None = None

    def __call__(self, lookup: Lookup) -> PropertyValue:
        value = self._inner(lookup)
        if value is None:
            return None
        if not isinstance(value, str):
            return False
        if self.longest is not None and len(value) > self.longest:
            return None
        return _like(self._segments, value)


def _segments(pattern: str, escape: str | None) -> list[_Segment]:
    """The pattern cut at each ``%``: always one segment more than there are ``%``."""
    segments: list[_Segment] = []
    runs: list[tuple[int, str]] = []
    text, length = "", 0
    characters = iter(pattern)
    for each in characters:
        plain = each
        if each == escape:
            plain = next(characters, "")
            if not plain:
                raise ValueError("the pattern ends with its escape character")
        elif each in "%_":
            if text:
                runs.append((length - len(text), text))
            text, plain = "", ""
            if each == "%":
                segments.append(_Segment(tuple(runs), length))
                runs, length = [], -1
            length += 1
        text += plain
        length += len(plain)
    if text:
        runs.append((length - len(text), text))
    return [*segments, _Segment(tuple(runs), length)]


def _like(segments: list[_Segment], value: str) -> bool:
    """Leftmost places from left to right: with only ``%`` between segments, an earlier place never loses a match."""
    first, last = segments[0], segments[-1]
    if not first.stands_at(value, 0):
        return False
    if len(segments) == 1:
        return first.length == len(value)
    at, end = first.length, len(value) - last.length
    if end < at or not last.stands_at(value, end):
        return False
    for segment in segments[1:-1]:
        found = segment.find(value, at, end)
        if found < 0:
            return False
        at = found + segment.length
    return True
