"""What the log says of queues: of each thing that happens to one at once, and then at most once a minute, with how often it did."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from ..core.queue import Queue
from ..core.seldom import APART, Seldom
from ..core.settings.address_settings import whose
from ..core.settings.units import counted

log = logging.getLogger("homing")

_EVERY_MS: Final = 60_000
#: So many messages that come back within a second to be delivered again at once are a loop.
LOOP: Final = 100

#: Writes a line: the queue with whose it is, how often it happened, and what else there is to say.
_Write = Callable[[str, int, str], None]
#: What happens, to which queue; and whose that is: its owner, and its runbook.
_Thing = tuple[_Write, str, str | None, str | None]


class Notes:
    def __init__(self) -> None:
        self._seldom = Seldom[_Thing](_EVERY_MS)

    def dead_letters(self, queue: Queue, number: int, what: str, failed: bool, now_ms: int) -> None:
        """``what``: where they went, and why; ``failed``: more than that their time was over, or there was no room."""
        self._note(_dead_letters if failed else _moved_on, queue, number, what, now_ms)

    def removed(self, queue: Queue, number: int, why: str, now_ms: int) -> None:
        """Failed messages that were to be dead-lettered are gone."""
        self._note(_removed, queue, number, why, now_ms)

    def no_way(self, queue: Queue, why: str, now_ms: int) -> None:
        """Where its dead letters were to go cannot be used."""
        self._note(_no_way, queue, 1, why, now_ms)

    def parked(self, queue: Queue, number: int, why: str, now_ms: int) -> None:
        self._note(_parked, queue, number, why, now_ms)

    def stays(self, queue: Queue, now_ms: int) -> None:
        self._note(_stays, queue, 1, "", now_ms)

    def came_back(self, returns: dict[Queue, int], now_ms: int) -> None:
        """Within a second, to be delivered again at once."""
        for queue, number in returns.items():
            if number > LOOP:
                self._note(_loop, queue, number, "", now_ms)

    def _note(self, write: _Write, queue: Queue, number: int, what: str, now_ms: int) -> None:
        settings = queue.settings
        thing = (write, queue.name, settings.owner, settings.runbook)
        if self._seldom.add(thing, number, what, now_ms):
            _say(thing, number, what)

    def look(self, now_ms: int) -> None:
        """Once a second: what has waited for its minute."""
        for thing, number, what in self._seldom.due(now_ms):
            _say(thing, number, what)


def _say(thing: _Thing, number: int, what: str) -> None:
    write, queue, owner, runbook = thing
    write(f"{queue}{whose(owner, runbook)}", number, what)


def _dead_letters(queue: str, number: int, what: str) -> None:
    log.warning("dead-letters: queue %s: %s dead-lettered to %s", queue, counted(number, "message"), what, extra=APART)


def _moved_on(queue: str, number: int, what: str) -> None:
    log.info("dead-letters: queue %s: %s dead-lettered to %s", queue, counted(number, "message"), what, extra=APART)


def _removed(queue: str, number: int, why: str) -> None:
    log.warning("failed-removed: queue %s: %s removed: %s", queue, counted(number, "failed message"), why, extra=APART)


def _no_way(queue: str, _: int, why: str) -> None:
    log.warning("dead-letter-way: queue %s: %s", queue, why, extra=APART)


def _parked(queue: str, number: int, why: str) -> None:
    log.warning("parked: queue %s: %s parked in it: %s", queue, counted(number, "dead letter"), why, extra=APART)


def _stays(queue: str, _: int, __: str) -> None:
    log.warning("queue-stays: queue %s was to end and stays: what is parked in it has nowhere to go", queue, extra=APART)


def _loop(queue: str, number: int, _: str) -> None:
    log.warning(
        "requeue-loop: queue %s: %d messages came back, more than 100 within a second, to be delivered again at once",
        queue,
        number,
        extra=APART,
    )
