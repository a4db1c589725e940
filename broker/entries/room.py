"""How much of a queue is in memory: which arrivals stay there, and how large its pages are."""

from __future__ import annotations

from dataclasses import dataclass, replace

from homing.journal.read.pages import PAGE_BYTES, PAGE_ROWS

from ..core.message import Message, is_durable
from ..core.queue import Queue
from ..core.settings.address_settings import AddressSettings
from .memory_quota import MemoryQuota


@dataclass(frozen=True)
class Windows:
    """What is kept in memory; less when more than half of ``memory-limit`` is used (memory_quota.py)."""

    #: Ready messages of one queue and priority, and bytes of ready messages of one queue.
    messages: int
    size: int
    #: Messages of one queue that wait for their time before further ones wait on disk.
    scheduled: int


class Room:
    def __init__(self, quota: MemoryQuota, windows: Windows) -> None:
        self.quota = quota
        self.windows = windows

    def resize(self, messages: int, size: int, scheduled: int) -> None:
        """From now on; what is in memory stays there until it goes."""
        self.windows = replace(self.windows, messages=messages, size=size, scheduled=scheduled)

    def fits(self, queue: Queue, messages: int, size: int) -> bool:
        """Whether a whole frame finds room in the window, of whatever priority it is."""
        pending, (window, window_bytes) = queue.pending, self.in_force(queue.settings)
        return not pending.disk_count and pending.count + messages <= window and pending.bytes + size <= window_bytes

    def which_fit(self, queues: list[Queue], messages: int, size: int) -> list[bool]:
        """For each of several queues, whether a whole frame finds room in its window."""
        found: list[bool] = []
        known: AddressSettings | None = None
        window = window_bytes = 0
        for queue in queues:
            if queue.settings is not known:
                known = queue.settings
                window, window_bytes = self.in_force(known)
            pending = queue.pending
            found.append(not pending.disk_count and pending.count + messages <= window and pending.bytes + size <= window_bytes)
        return found

    def keeps(self, queue: Queue, priority: int, messages: int = 0, size: int = 0) -> bool:
        """Whether one more message of this priority stays in memory, behind so many others that are about to."""
        pending, (window, window_bytes) = queue.pending, self.in_force(queue.settings)
        return not pending.on_disk[priority] and pending.held(priority) + messages < window and pending.bytes + size < window_bytes

    def takes(self, queue: Queue, message: Message) -> bool:
        """Whether it stays in memory when it comes: what is not durable does as long as there is plenty, and nothing comes before it."""
        priority = queue.priority_of(message.priority)
        return self.keeps(queue, priority) or (not is_durable(message, queue) and self.plenty(queue, priority))

    def plenty(self, queue: Queue, priority: int | None = None) -> bool:
        """Whether messages that are not durable stay in memory, however many: less than half of it is used, and none is on disk (of that
        priority)."""
        pending = queue.pending
        return self.quota.part() == 1.0 and not (pending.disk_count if priority is None else pending.on_disk[priority])

    def has_room_for_due(self, queue: Queue) -> bool:
        """Whether more that waits for its time may come into memory."""
        part, waiting = self.quota.part(), queue.scheduled - queue.on_hold + queue.pending.returned
        return part > 0.0 and waiting <= 4 * self.windows.scheduled * part

    def earliest_ms(self, queue: Queue, now_ms: int) -> int:
        """When one more that waits may go out: now, or, where there is no room for it, when what is only on disk is read next."""
        return now_ms if self.has_room_for_due(queue) else max(now_ms, queue.due_horizon[0]) + 1

    def in_force(self, settings: AddressSettings) -> tuple[int, int]:
        """Messages and bytes that a queue keeps in memory."""
        windows, part = self.windows, self.quota.part()
        messages, size = windows.messages, windows.size
        if settings.overflow == "page":
            if settings.max_length:
                messages = min(messages, settings.max_length)
            if settings.max_length_bytes:
                size = min(size, settings.max_length_bytes)
        return (messages, size) if part == 1.0 else (int(messages * part), int(size * part))

    def page_of(self, queue: Queue, pages: int = 1) -> tuple[int, int]:
        """Rows and bytes of its next page, or of so many read as one: no more than its windows, and little when memory is short."""
        windows, (rows, size) = self.windows, self.in_force(queue.settings)
        if rows < windows.messages:
            least_rows, least_size = self.quota.least_page()
            rows, size = max(rows, least_rows), max(size, least_size)
        return min(pages * PAGE_ROWS, windows.messages, rows), min(pages * PAGE_BYTES, windows.size, size)
