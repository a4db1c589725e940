"""What the broker's rooms share: the post office, the recorder, what waits for its time, and the ready set."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from ..core.memory import Memory
from ..core.routing import PostOffice
from ..core.scheduled import Schedule
from ..core.settings.address_settings import AddressSettingsRepository
from ..core.settings.in_force import SettingsInForce
from ..recording.journal_port import JournalPort
from ..recording.recorder import Recorder
from .awaited_room import AwaitedRoom
from .declared import Declared
from .disk_room import DiskRoom
from .enqueuing import Enqueuing
from .events import Events
from .fault_groups import FaultGroups
from .from_disk import FromDisk
from .going_round import GoingRound
from .memory_quota import MemoryQuota
from .page_reads import PageReads
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
        self.settings = SettingsInForce(self.post_office, settings)
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
        self.references = References(journal, recorder, self.faults, self.redrives, now_ms, memory, self.awaited, self.settings, disk)
        self.going_round = GoingRound(self.references, recorder)
        self.ready = ReadySet(wake)
        self.wake = wake
        quota = MemoryQuota(memory, self.post_office, now_ms)
        self.room = Room(quota, windows)
        self.reads = PageReads(journal, quota, self.post_office, self.ready, now_ms)
        self.to_disk = ToDisk(journal, recorder, self.references, self.room, self.reads, now_ms)
        self.enqueuing = Enqueuing(journal, self.references, self.to_disk, self.schedule, self.ready, self.going_round, now_ms)
        self.from_disk = FromDisk(journal, self.post_office, self.references, self.to_disk, self.reads, self.ready)
        self.throttle = Throttle(journal, wake, lambda: memory.full)
