"""Parking: dead letters that find no place stay in their queue, on disk, counted and shown, until there is one.

Their target is missing, matches no queue, is full, or there is none. They go on at once when there is room in the queue that was full, and
when bindings or settings change; all of them are looked at again every ``parked-retry`` besides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from homing.journal.contract import Death, Outcome

from ..core.message import MessageReference, Where
from ..core.queue import Queue
from ..core.routing import PostOffice
from ..entries.awaited_room import AwaitedRoom
from ..entries.events import Events
from ..entries.throttle import FEW_QUEUES, Throttle
from ..recording.recorder import Recorder
from ..steps import STEP, Steps
from ..topology.resources import takes_nothing

Leave = Callable[[MessageReference, Death], None]
#: Of a queue that ends so many go with it at once; it ends a second later where there are more.
MOST_AT_AN_END: Final = 10_000


class Parking:
    """``leave``, wherever it is asked for: a message tries again to leave its queue, for that reason."""

    def __init__(
        self,
        post_office: PostOffice,
        recorder: Recorder,
        awaited: AwaitedRoom,
        throttle: Throttle,
        events: Events,
        wake: Callable[[], None],
    ) -> None:
        self._post_office = post_office
        self._recorder = recorder
        self._awaited = awaited
        self._throttle = throttle
        self._events = events
        self._wake = wake
        #: Bindings have changed since where they are of another version.
        self.bindings_seen = 0
        #: Queues that have something parked, or had.
        self._queues: dict[Queue, None] = {}
        #: The round of all that is under way, and whether another one is to follow.
        self._round: Steps[None] | None = None
        self._again = False
        #: Queues whose end has come, and that stay for what is parked in them; how their messages end.
        self.staying: dict[Queue, Outcome] = {}

    # -- in ----------------------------------------------------------------------------------------------------------

    def park(
        self, queue: Queue, references: Sequence[MessageReference], reason: Death, before: set[MessageReference], targets: list[Queue]
    ) -> int:
        """Keeps them there; returns how many were not parked for that reason ``before``. ``targets``: where they go once there is room."""
        full = next(filter(takes_nothing, targets), None)
        for reference in references:
            reference.due_at_ms = None
            self.keep(reference, reason)
            if full is not None:
                self._awaited.waiting.setdefault(full, {})[reference] = None
        fresh = [reference for reference in references if reference not in before]
        self._recorder.changed(fresh)
        return len(fresh)

    def keep(self, reference: MessageReference, reason: Death) -> None:
        """It stays in its queue, and nobody gets it, until it can go where it is to go."""
        reference.where = Where.PARKED
        reference.park_reason = reason
        reference.queue.parked[reference.sequence] = reference
        self._queues[reference.queue] = None

    # -- out ---------------------------------------------------------------------------------------------------------

    def go_on(self, leave: Leave) -> None:
        """Once a turn, where there is room in queues that were waited for, or bindings have changed: then all look again."""
        version = self._post_office.bindings_version
        if version != self.bindings_seen:
            self.bindings_seen = version
            self.try_all(leave)
        if self._awaited.found:
            queues, self._awaited.found = self._awaited.found, {}
            for queue in queues:
                self._fill(queue, leave)

    def _fill(self, queue: Queue, leave: Leave) -> None:
        """What waits for room in this queue goes there, in order, some in each turn."""
        waiting = self._awaited.waiting.get(queue)
        if waiting is None:
            return
        for reference in list(islice(waiting, STEP)):
            if takes_nothing(queue):
                return
            del waiting[reference]
            if reference.where is Where.PARKED and reference.park_reason:
                leave(reference, reference.park_reason)
        if waiting:
            self._awaited.made(queue)
        else:
            del self._awaited.waiting[queue]

    def try_all(self, leave: Leave) -> None:
        """Every parked message tries again to leave, a step a turn."""
        self._again = True
        if self._round is None:
            self._round = self._steps(leave)
            self._go_on_trying()

    def try_in_line(self, leave: Leave) -> None:
        """What was parked only because there was no room in this turn tries again in the next."""
        self._again = True
        if self._round is None:
            self._round = self._steps(leave)
            self._throttle.wait(self._go_on_trying)

    def _go_on_trying(self) -> None:
        assert self._round is not None, "in line once, for a round that is under way"
        try:
            waits = next(self._round)
        except StopIteration:
            self._round = None
        else:
            self._throttle.wait(self._go_on_trying)
            if not waits:
                self._wake()

    def _steps(self, leave: Leave) -> Steps[None]:
        """Rounds, until nobody asked for another one since the last began."""
        number, room = 0, self._throttle.room
        while self._again:
            self._again = False
            # The round notes anew what each of them waits for.
            self._awaited.waiting.clear()
            for queue in list(self._queues):
                if not queue.parked:
                    del self._queues[queue]
                for reference in list(queue.parked.values()):
                    while not room(FEW_QUEUES + 1):
                        yield True
                    if reference.where is not Where.PARKED or not reference.park_reason:
                        continue
                    leave(reference, reference.park_reason)
                    number += 1
                    if number % STEP == 0:
                        yield

    # -- the end of a queue ------------------------------------------------------------------------------------------

    def stay(self, queue: Queue, outcome: Outcome, more: bool) -> None:
        """Its end has come, and something parked is still there; ``more``: only because it is too much to move at once."""
        if queue not in self.staying and not more:
            self._events.stays(queue)
        self.staying[queue] = outcome

    def gone(self, queue: Queue) -> None:
        """It is deleted."""
        self.staying.pop(queue, None)
        self._queues.pop(queue, None)
        self._awaited.waiting.pop(queue, None)
