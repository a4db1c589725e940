"""Whose turn it is of what takes long: a turn of the loop does some of it, so that everybody else gets theirs.

Long work of the whole broker has one place in the line that what sockets have brought waits in, too (protocols/turns.py). So a turn is as
long as it may be and one step, whatever is under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sized
from typing import Any, Final, Generic, Protocol, TypeVar

from .steps import Awaited, Steps

T = TypeVar("T")
#: Whether there is any of a kind, and what does a step of it.
Long = tuple[Callable[[], object], Callable[[], None]]
#: References that long work may have added, changed or removed before it waits for the disk: some 20 ms of a commit.
MOST_ON_THEIR_WAY: Final = 600


class LoopTurns:
    """How long a turn of the loop is, and whose it is: without a loop all that there is to do is done in each."""

    def late(self) -> bool:
        """Whether nothing more is to be begun in this turn."""
        return False

    def have_next(self, act: Callable[[], None]) -> None:
        """Calls it in a turn that has time for it, next to what waits already."""
        act()

    def wake_later(self) -> None:
        """For work that waits for what nobody tells it of."""


WITHOUT_A_LOOP: Final = LoopTurns()


class _UnderWay(Generic[T]):
    """``done`` gets what the steps come to, ``failed`` what breaks them off."""

    __slots__ = ("_done", "_failed", "_steps", "waits_for")

    def __init__(self, steps: Steps[T], done: Callable[[T], None], failed: Callable[[Exception], None]) -> None:
        self._steps = steps
        self._done = done
        self._failed = failed
        #: What the last step ended with: True, or what is to come before the next one.
        self.waits_for: Awaited | bool | None = None

    @property
    def may_go_on(self) -> bool:
        awaited = self.waits_for
        return not awaited or awaited is True or awaited.came

    def step(self) -> bool:
        """Whether there is more to do."""
        try:
            try:
                self.waits_for = next(self._steps)
            except StopIteration as result:
                self._done(result.value)
                return False
        except Exception as error:
            self._failed(error)
            return False
        return True


def _raise(error: Exception) -> None:
    raise error


class Work:
    """Long work under way, a step of each in a turn, in turns, as long as the turn has time. ``wake``: there is to be another turn."""

    def __init__(self, wake: Callable[[], None], turns: LoopTurns) -> None:
        self._wake = wake
        self._turns = turns
        self.under_way: list[_UnderWay[Any]] = []

    def begin(self, steps: Steps[T], done: Callable[[T], None] = lambda _: None, failed: Callable[[Exception], None] = _raise) -> None:
        """``done`` gets what it comes to, ``failed`` what breaks it off; where nobody waits for it, that is a fault of the loop. The first
        step is done now."""
        work = _UnderWay(steps, done, failed)
        if self._step(work):
            self.under_way.append(work)

    def go_on(self) -> None:
        """Once a turn, where anything is under way."""
        others = deque(self.under_way)
        # What ``done`` has others begin meanwhile stands in the new list.
        self.under_way, left = [], []
        while others:
            work = others.popleft()
            if not work.may_go_on:
                left.append(work)
                continue
            if self._step(work):
                left.append(work)
            if self._turns.late():
                break
        self.under_way = [*others, *left, *self.under_way]
        if others:
            self._wake()

    def _step(self, work: _UnderWay[Any]) -> bool:
        """Whether there is more to do."""
        if not work.step():
            return False
        if work.waits_for is True:
            self._turns.wake_later()
        elif not work.waits_for:
            self._wake()
        return True


class Changes(Protocol):
    """What the next commit writes, as far as it is counted here."""

    @property
    def added(self) -> Sized: ...

    @property
    def changed(self) -> Sized: ...

    @property
    def deleted(self) -> Sized: ...

    @property
    def queues(self) -> Sized: ...


def changes(batch: Changes) -> int:
    """References that are added, changed or removed by it, and queues."""
    return len(batch.added) + len(batch.changed) + len(batch.deleted) + len(batch.queues)


class Disk(Protocol):
    @property
    def batch(self) -> Changes: ...

    def when_safe(self, callback: Callable[[], None]) -> None: ...


class OnItsWay:
    """What long work has changed and is not on disk yet: once it is as much as may be, the rest waits for the commit with it.

    Whoever else wants a confirm waits for the commit that is under way and for the next one, so these are bounded, not only turns.
    """

    def __init__(self, disk: Disk, wake: Callable[[], None]) -> None:
        self._disk = disk
        self._wake = wake
        self._changes = 0

    def bounded(self, kind: Long) -> Long:
        """The same work, which is not due while there is no room."""
        due, act = kind
        return lambda: self._changes < MOST_ON_THEIR_WAY and due(), lambda: self._act(act)

    def _act(self, act: Callable[[], None]) -> None:
        before = changes(self._disk.batch)
        act()
        more = changes(self._disk.batch) - before
        if more > 0:
            if not self._changes:
                self._disk.when_safe(self._written)
            self._changes += more

    def _written(self) -> None:
        self._changes = 0
        self._wake()


class LongWork:
    """Of all kinds, a step of each in a turn, in turns, as long as the turn has time. ``wake``: there is to be another turn."""

    def __init__(self, turns: LoopTurns, wake: Callable[[], None], kinds: Mapping[str, Long]) -> None:
        self._turns = turns
        self._wake = wake
        #: Whose turn it is stands first.
        self._kinds = deque(kinds.values())
        self._waits = False

    def wait(self) -> None:
        """There is some."""
        if not self._waits:
            self._waits = True
            self._turns.have_next(self._go_on)

    def _go_on(self) -> None:
        self._waits = False
        for kind in list(self._kinds):
            due, act = kind
            if due():
                self._kinds.remove(kind)
                self._kinds.append(kind)
                act()
                if self._turns.late():
                    self._wake()
                    return
