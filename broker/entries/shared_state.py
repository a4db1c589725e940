"""What the broker's rooms share: the post office, the recorder, what waits for its time, and the ready set."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from ..core.memory import Memory
from ..core.message import MessageReference
from ..core.queue import Queue
from ..core.routing import PostOffice
from ..core.scheduled import Schedule
from ..core.settings.address_settings import AddressSettingsRepository
from ..core.settings.in_force import SettingsInForce
from ..recording.journal_port import JournalPort
from ..recording.mapping import key_in
from ..recording.recorder import Recorder
from .awaited_room import AwaitedRoom
from .declared import Declared
from .disk_room import DiskRoom
from .enqueuing import Enqueuing
from .events import Events
from .fault_groups import FaultGroups
from .going_round import GoingRound
from .memory_quota import MemoryQuota
from .page_reads import PageReads
from .pager import Pager
from .ready_set import ReadySet
from .redrive_tally import RedriveTally
from .references import References
from .room import Room, Windows
from .throttle import Throttle
from .to_disk import ToDisk


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
        windows: Windows,
        memory: Memory,
        disk: DiskRoom,
        name: str,
    ) -> None:
        self.journal = journal
        self.post_office = PostOffice()
        self.settings = SettingsInForce(settings)
        #: What is told of what happens: with the next commit, to queues, and in the log.
        self.events = Events(journal, self.post_office, self.settings, now_ms, wake, name)
        self.recorder = recorder
        self.redrives = RedriveTally(journal, wake)
        self.faults = FaultGroups(journal, now_ms, memory, self.redrives.bounced, self.events.fault)
        self.now_ms = now_ms
        self.rng = rng
        self.max_hops = max_hops
        self.schedule = Schedule()
        self.memory = memory
        self.declared = Declared(memory)
        self.awaited = AwaitedRoom(wake)
        self.references = References(journal, recorder, self.faults, self.redrives, now_ms, memory, self.awaited, self.key_of_death, disk)
        self.going_round = GoingRound(self.references, recorder)
        self.ready = ReadySet(wake)
        #: Messages that consumers gave back within this second, to be delivered again at once.
        self.returns: dict[Queue, int] = {}
        self.wake = wake
        quota = MemoryQuota(memory, self.post_office, now_ms)
        self.room = Room(quota, windows)
        self.reads = PageReads(journal, quota, self.post_office, self.ready, now_ms)
        self.to_disk = ToDisk(journal, recorder, self.references, self.room, self.reads, now_ms)
        self.enqueuing = Enqueuing(journal, self.references, self.to_disk, self.schedule, self.ready, self.going_round, now_ms)
        self.pager = Pager(journal, self.references, self.to_disk, self.reads, self.enqueuing, self.post_office, self.ready, memory, now_ms)
        self.throttle = Throttle(journal, wake, lambda: memory.full)

    def key_of_death(self, reference: MessageReference) -> str | None:
        """What its key is where it was dead-lettered last."""
        if not reference.hops:
            return None
        last = reference.hops[0].detail
        queue = self.post_office.queues.get(last["queue"])
        settings = self.settings.resolve(last["address"]) if queue is None else queue.settings
        return key_in(reference.message.properties, settings.message_key_property)
