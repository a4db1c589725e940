"""What the broker's rooms share: the post office, the recorder, what waits for its time, and the ready set.

Whatever can make a queue dispatchable puts it into one *ready set*; the loop drains that set in one place.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from ..core.consumer import SharedWindow
from ..core.memory import Memory
from ..core.message import MessageReference
from ..core.queue import Queue
from ..core.routing import PostOffice
from ..core.scheduled import Schedule
from ..core.settings.address_settings import AddressSettingsRepository
from ..recording.journal_port import JournalPort
from ..recording.mapping import key_in
from ..recording.recorder import Recorder
from .awaited_room import AwaitedRoom
from .declared import Declared
from .disk_room import DiskRoom
from .events import Events
from .fault_groups import FaultGroups
from .going_round import GoingRound
from .redrive_tally import RedriveTally
from .references import References
from .throttle import Throttle


class SharedState:
    def __init__(
        self,
        journal: JournalPort,
        recorder: Recorder,
        settings: AddressSettingsRepository,
        now_ms: Callable[[], int],
        rng: Random,
        wake: Callable[[], None],
        max_hops: int,
        memory: Memory,
        disk: DiskRoom,
        name: str,
    ) -> None:
        self.journal = journal
        self.post_office = PostOffice()
        #: What is told of what happens: with the next commit, to queues, and in the log.
        self.events = Events(journal, self.post_office, lambda: self.settings, now_ms, wake, name)
        self.recorder = recorder
        self.redrives = RedriveTally(journal, wake)
        self.faults = FaultGroups(journal, now_ms, memory, self.redrives.bounced, self.events.fault)
        self.settings = settings
        self.now_ms = now_ms
        self.rng = rng
        self.max_hops = max_hops
        self.schedule = Schedule()
        self.memory = memory
        self.declared = Declared(memory)
        self.awaited = AwaitedRoom(wake)
        self.references = References(journal, recorder, self.faults, self.redrives, now_ms, memory, self.awaited, self.key_of_death, disk)
        self.going_round = GoingRound(self.references, recorder)
        #: Queues that may have something to dispatch, in the order they became so.
        self.ready: dict[Queue, None] = {}
        #: Messages that consumers gave back within this second, to be delivered again at once.
        self.returns: dict[Queue, int] = {}
        self.wake = wake
        self.throttle = Throttle(journal, wake, lambda: memory.full)

    def key_of_death(self, reference: MessageReference) -> str | None:
        """What its key is where it was dead-lettered last."""
        if not reference.hops:
            return None
        last = reference.hops[0].detail
        queue = self.post_office.queues.get(last["queue"])
        settings = self.settings.resolve(last["address"]) if queue is None else queue.settings
        return key_in(reference.message.properties, settings.message_key_property)

    def mark_ready(self, queue: Queue) -> None:
        """The queue may have become dispatchable; the loop will look."""
        if not self.ready:
            self.wake()
        self.ready[queue] = None

    def offer_room(self, window: SharedWindow) -> None:
        """The queues of those who share the window are looked at anew, whoever holds least first."""
        for consumer in window.in_turn():
            self.ready.pop(consumer.queue, None)
            self.mark_ready(consumer.queue)
