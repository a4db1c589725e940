"""Regular expressions that users of the broker write, in bounded time, whatever they say and whatever they are asked about.

What google-re2 takes runs there, in time that is linear in the text. What it does not, such as lookahead (``^(?!amq\\.)``, RabbitMQ's usual
pattern), runs by ``regex`` with a limit each time; one that has run into it often enough is asked nothing any more.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Any, Final

import regex

try:
    import re2
except ImportError:  # there is no wheel for this system: all runs by the other
    re2 = None

#: For one text; and on how many it may run out of that.
LIMIT_S: Final = 0.010
_MOST_SLOW: Final = 10
#: The most that counted repetitions come to: both engines write them out.
_MOST_REPEATED: Final = 1000
_COUNTS: Final = re.compile(r"\{(\d*),?(\d*)\}")


class PatternError(ValueError):
    """It is no regular expression, or none that can be taken; says why."""


class TooSlow(TimeoutError):
    """It ran out of time on this text, or does so too often to be asked again."""


class Pattern:
    """``pattern``: as it was written."""

    __slots__ = ("_compiled", "_linear", "_slow", "pattern")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and self.pattern == other.pattern

    def __hash__(self) -> int:
        return hash(self.pattern)

    def __init__(self, written: str) -> None:
        self.pattern = written
        self._slow = 0
        self._compiled = _linear(written)
        self._linear = self._compiled is not None
        if not self._linear:
            self._compiled = _bounded(written)

    @property
    def bounded(self) -> bool:
        """It runs with a limit, and may run out of time."""
        return not self._linear

    @property
    def slow(self) -> bool:
        """There was a text on which it ran out of time."""
        return self._slow > 0

    @property
    def given_up(self) -> bool:
        return self._slow >= _MOST_SLOW

    def search(self, text: str) -> bool:
        """Whether it matches somewhere. Raises TooSlow."""
        return self._run(self._compiled.search, text) is not None

    def replace(self, replacement: str, text: str) -> str:
        """Raises TooSlow."""
        replaced: str = self._run(self._compiled.sub, text, lambda _: replacement)
        return replaced

    def _run(self, act: Any, text: str, *before: object) -> Any:
        if self._linear:
            return act(*before, _encodable(text))
        if self.given_up:
            raise TooSlow
        try:
            return act(*before, text, timeout=LIMIT_S)
        except TimeoutError:
            self._slow += 1
            raise TooSlow from None


@lru_cache(maxsize=256)
def pattern_of(written: str) -> Pattern:
    """The one for what is written. Raises PatternError."""
    return Pattern(written)


def _linear(written: str) -> Any:
    if re2 is None:
        return None
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(written, options)
    except re2.error:
        return None


def _bounded(written: str) -> Any:
    repeated = math.prod(max(1, *(int(count or 1) for count in counts)) for counts in _COUNTS.findall(written))
    if repeated > _MOST_REPEATED:
        raise PatternError(f"its counted repetitions come to more than {_MOST_REPEATED}")
    try:
        return regex.compile(written, regex.VERSION0)
    except (regex.error, RecursionError, OverflowError) as error:
        raise PatternError(str(error)) from None


def _encodable(text: str) -> str:
    """re2 reads UTF-8, which half characters have none in."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text
