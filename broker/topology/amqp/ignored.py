"""Arguments of queues, consumers and exchanges that have no effect here: the log says so once."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

log = logging.getLogger("homing")

#: So many names are remembered as logged; clients may think of any number.
_MOST: Final = 1000


class IgnoredArguments:
    def __init__(self) -> None:
        self._reported: set[str] = set()

    def is_new(self, name: str) -> bool:
        """Whether it was not reported yet, and is to be now."""
        if name in self._reported or len(self._reported) >= _MOST:
            return False
        self._reported.add(name)
        return True

    def report(self, what: str, arguments: Iterable[str], kind: str = "") -> None:
        """Each argument's name once, for each ``kind`` of what is asked for with it, while there are not too many."""
        for argument in arguments:
            if self.is_new(f"{kind}{argument}"):
                log.info("argument-ignored: %s%s: the argument %s has no effect here (docs/interoperability.md)", kind, what, argument)
