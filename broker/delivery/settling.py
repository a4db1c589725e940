"""Very many deliveries that end together do so in steps: one a turn of the loop, of all clients, and none before what the one before it
recorded is on disk.

What one connection asks for ends in the order in which it was asked for, its end included. Whoever speaks for it acts on nothing further
meanwhile. What comes back of a queue stands in its place all at once, as if it had come back in one step: while it is put there, the queue
hands out nothing (docs/decisions/0028-settling-in-steps.md).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Final

from ..core.consumer import Returned, SharedWindow
from ..core.queue import Queue
from ..entries.enqueuing import Enqueuing
from ..entries.from_disk import FromDisk
from ..entries.ready_set import ReadySet
from ..recording.journal_port import JournalPort
from ..steps import SETTLE_STEP, Steps

#: How much of a step something takes, and what does it.
Part = tuple[int, Callable[[], Returned]]
Act = Callable[[], None]

#: References put in their places in one step.
_ENQUEUED: Final = 2000


class Settling:
    """``failed``: called with a connection of which something broke in the middle."""

    def __init__(
        self, journal: JournalPort, enqueuing: Enqueuing, from_disk: FromDisk, ready: ReadySet, failed: Callable[[str, Exception], None]
    ) -> None:
        self._journal = journal
        self._enqueuing = enqueuing
        self._from_disk = from_disk
        self._ready = ready
        self._failed = failed
        #: What is under way, by connection, in the order of asking; whose turn it is stands first.
        self.lines: dict[str, deque[Steps[None] | Act]] = {}
        #: What the last step recorded is on disk.
        self._written = True
        #: What others recorded meanwhile goes to disk without another step.
        self._others_first = False

    def begin(self, connection: str, parts: Iterable[Part]) -> None:
        """The first step's worth is done now, unless something of the connection is under way."""
        steps, line = self._steps(parts), self.lines.get(connection)
        if line is not None:
            line.append(steps)
            return
        try:
            next(steps)
        except StopIteration:
            return
        self.lines[connection] = deque([steps])
        self._wait()

    def when_over(self, connection: str, act: Act) -> None:
        """Calls it behind what is under way of the connection; at once where nothing is."""
        line = self.lines.get(connection)
        if line is None:
            act()
        else:
            line.append(act)

    def go_on(self) -> None:
        """Once a turn, where anything is under way."""
        if self._written:
            name, line = next(iter(self.lines.items()))
            del self.lines[name]
            self.lines[name] = line
            self._step(name, line)
            if self.lines:
                self._wait()

    def finish(self) -> None:
        """All of it at once: the broker stops, and nobody is kept waiting."""
        while self.lines:
            for name, line in list(self.lines.items()):
                self._step(name, line)

    def _wait(self) -> None:
        if self._written:
            self._written = False
            self._journal.when_safe(self._is_written)

    def _is_written(self) -> None:
        journal = self._journal
        self._others_first = not self._others_first and journal.busy()
        if self._others_first:
            journal.when_safe(self._is_written)
            return
        self._written = True
        if self.lines:
            self._ready.wake()

    def _step(self, name: str, line: deque[Steps[None] | Act]) -> None:
        if isinstance(line[0], Generator):
            try:
                next(line[0])
                return
            except StopIteration:
                line.popleft()
            except Exception as error:
                line.popleft()
                self._failed(name, error)
        while line and not isinstance(act := line[0], Generator):
            line.popleft()
            if not line:
                del self.lines[name]
            act()
        if not line and self.lines.get(name) is line:
            del self.lines[name]

    def _steps(self, parts: Iterable[Part]) -> Steps[None]:
        back: Returned = []
        fresh: Returned = []
        work = 0
        for size, settle in parts:
            if work and work + size > SETTLE_STEP:
                back += self._expect(fresh)
                yield
                work, fresh = 0, []
            work += size
            fresh += settle()
        if back:
            back += self._expect(fresh)
            yield
            yield from self._put_back(back)
        else:
            for consumer, references in fresh:
                self._enqueuing.take_back(consumer, references)

    def _expect(self, returned: Returned) -> Returned:
        """What of it goes out again at once, and whose credit is to wait for that; the rest is on its way."""
        soon: Returned = []
        for consumer, references in returned:
            now = [each for each in references if each.due_at_ms is None]
            self._enqueuing.enqueue_when_safe([each for each in references if each.due_at_ms is not None])
            consumer.expect_back(len(now))
            soon.append((consumer, now))
        return soon

    def _put_back(self, returned: Returned) -> Steps[None]:
        queues = list(dict.fromkeys(consumer.queue for consumer, _ in returned))
        while any(queue.shut for queue in queues):
            yield
        for queue in queues:
            queue.shut = True
        number = 0
        try:
            for _, references in returned:
                self._enqueuing.enqueue(references)
                number += len(references)
                if number >= _ENQUEUED:
                    number = 0
                    yield
        finally:
            self._open(returned, queues)

    def _open(self, returned: Returned, queues: Iterable[Queue]) -> None:
        windows = dict[SharedWindow, None]()
        for consumer, references in returned:
            consumer.came_back(len(references))
            if consumer.shared is not None and consumer.shared.limit:
                windows[consumer.shared] = None
        for queue in queues:
            queue.shut = False
            self._ready.mark(queue)
            self._from_disk.notify(queue)
        for window in windows:
            self._ready.offer_room(window)
