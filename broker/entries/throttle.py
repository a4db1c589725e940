"""How much may join queues in one turn of the loop, and who goes on in the next.

One message for 3,000 queues is 3,000 references, and one frame may hold thousands of such messages. So what arrives is counted in
references: when a turn has made as many as it may, what is left waits in line, and everybody else is served in between. A step ends
between two messages: all references of one message belong to one batch of the journal, else a kill and its producer's resend would
double it.

Each reference takes a number of the journal's own, so the numbers taken since the turn began are the work done in it, whoever did it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from ..core.amqp.search import Search
from ..core.memory import Memory
from ..core.routing import Route
from ..recording.journal_port import JournalPort

#: References made in one turn before others wait for the next: some 5 to 10 ms.
REFERENCES_A_TURN: Final = 2000
#: References made in one turn of messages for many queues, each of which looks at a queue more.
WIDE_REFERENCES_A_TURN: Final = 600
#: What selectors may cost (Selector.cost) that counts like making one reference.
COST_OF_A_REFERENCE: Final = 4
#: What a reference costs besides where each queue is looked at by itself, as those with a limit are: an estimate.
#: Such a message for 1,000 queues runs 218 lines a reference.
COST_OF_EACH: Final = 2 * COST_OF_A_REFERENCE
#: What one search for a route may cost before it is somebody else's turn: some 1 ms.
COST_OF_A_SLICE: Final = 2048
#: What it may cost where there is no room left: most searches end with less, and who waits for many of them waits long.
COST_OF_A_LOOK: Final = 32
#: References that may be on their way to the disk before messages for many queues wait: whoever else wants a confirm waits for the
#: commit that they are in, and perhaps for the one before it.
MOST_UNWRITTEN_REFERENCES: Final = 600
_UNBOUNDED: Final = 1 << 62
#: Messages for no more queues than this are little beside what credit allows of messages for one: only turns bound them.
FEW_QUEUES: Final = 16


class Throttle:
    """``memory``: while it is full, what joins many queues waits until consumers have made room."""

    def __init__(self, journal: JournalPort, memory: Memory, wake: Callable[[], None]) -> None:
        self._journal = journal
        self._wake = wake
        self._memory = memory
        #: Numbers that were taken when this turn began.
        self._began = 0
        #: What selectors have cost in it.
        self._cost = 0
        #: Who goes on when there is room, in order of asking.
        self._line: deque[Callable[[], None]] = deque()
        #: Those in line are being served.
        self._serving = False
        #: Somebody waits for the next commit.
        self._wants_commit = False
        #: Others' messages waited while messages for many queues were written: now a commit is theirs alone.
        self._others_first = False

    def room(self, queues: int) -> int:
        """References that may still be made in this turn, of messages for so many queues each. 0: whoever has more to do gets in line;
        those who are there go first."""
        if (self._line and not self._serving) or (queues > FEW_QUEUES and self._full()):
            return 0
        most = REFERENCES_A_TURN if queues <= FEW_QUEUES else WIDE_REFERENCES_A_TURN
        return max(0, self._began + most - self._cost // COST_OF_A_REFERENCE - self._journal.ids_taken)

    def has_room(self) -> bool:
        """Whether this turn takes in anything more."""
        return self.room(1) > 0

    def room_for(self, route: Route) -> int:
        """Messages that may be taken in this turn where they go to several queues; what goes to one is not bounded here."""
        return self.portion(len(route.queues)) if len(route.queues) > 1 else _UNBOUNDED

    def spend(self, cost: int) -> None:
        """Selectors or bindings were asked where a message goes, whether or not it then joins a queue."""
        self._cost += cost

    def seek(self, search: Search) -> Route | None:
        """None: it is not over; go on in a later turn."""
        room = self.room(1) * COST_OF_A_REFERENCE
        self.spend(search.go_on(max(COST_OF_A_LOOK, min(room, COST_OF_A_SLICE))))
        return search.route

    def portion(self, queues: int) -> int:
        """Messages for so many queues each that may be taken in now; one is, where there is any room at all."""
        room = self.room(queues)
        return max(1, room // queues) if room else 0

    def wait(self, go_on: Callable[[], None]) -> None:
        """``go_on`` is called in a later turn, when there is room. It may not raise, and may get in line again."""
        self._line.append(go_on)
        if not self._serving:
            self._wake()

    def turn(self) -> bool:
        """A turn of the loop begins. Whether anybody is in line."""
        self._began, self._cost = self._journal.ids_taken, 0
        return bool(self._line)

    def go_on(self) -> None:
        """Those in line go on, one after the other, as long as there is room."""
        self._serving = True
        line, unserved = self._line, list[Callable[[], None]]()
        try:
            for _ in range(len(line)):
                if not self.room(1):
                    break
                done, go_on = (self._journal.ids_taken, self._cost), line.popleft()
                go_on()
                if line and line[-1] == go_on and (self._journal.ids_taken, self._cost) == done:
                    # There was no room for it: it keeps its place.
                    unserved.append(line.pop())
        finally:
            self._serving = False
        line.extendleft(reversed(unserved))
        if self._line and (self._cost or self._journal.ids_taken > self._began):
            # Else all wait for something to be written or consumed, which wakes the loop.
            self._wake()

    def wait_for_numbers(self) -> None:
        """Numbers are given that are not reserved on disk. Until then nobody may see a message: the number could come again after a kill.
        There is to be a turn after the next commit."""
        self._wants_commit = True

    def written(self, unwritten_references: int) -> None:
        """A commit has ended, or upkeep. ``unwritten_references``: what is still on its way to the disk."""
        self._others_first = not self._others_first and unwritten_references > 0
        if self._wants_commit or self._line:
            self._wants_commit = False
            self._wake()

    def _full(self) -> bool:
        """Whether a later turn would find no room either, unless something is written or consumed first."""
        journal = self._journal
        unwritten = journal.unwritten_references
        if unwritten >= MOST_UNWRITTEN_REFERENCES or self._others_first or journal.tidying:
            return True
        return not journal.ids_reserved or self._memory.full
