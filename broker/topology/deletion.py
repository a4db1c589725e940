"""Queues and addresses go: deleted, or by themselves when nobody has used them for a while."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from homing.journal.contract import Outcome

from ..core.queue import Queue
from ..core.routing import Address, PostOffice
from ..core.settings.in_force import SettingsInForce
from ..entries.ready_set import ReadySet
from ..recording.recorder import Recorder
from ..steps import Steps
from .contents import Contents
from .resources import Resources

#: Queues, or addresses, that one step of a sweep looks at.
_SWEPT: Final = 1_000


class Deletion:
    """``begin``: work in steps that nobody waits for."""

    def __init__(
        self,
        post_office: PostOffice,
        settings: SettingsInForce,
        recorder: Recorder,
        resources: Resources,
        contents: Contents,
        ready: ReadySet,
        begin: Callable[[Steps[None]], object],
        now_ms: Callable[[], int],
    ) -> None:
        self._post_office = post_office
        self._settings = settings
        self._recorder = recorder
        self._resources = resources
        self._contents = contents
        self._ready = ready
        self._begin = begin
        self._now_ms = now_ms

    def delete_queue(self, queue: Queue, outcome: Outcome = "purged") -> int:
        """Removes a queue and what is in it; returns how many messages that were."""
        count, left = self._contents.end(queue, outcome)
        self._post_office.remove_queue(queue)
        self._ready.queues.pop(queue, None)
        self._resources.idle.forget(queue)
        self._recorder.queue_changed(queue, deleted_at_ms=self._now_ms())
        for listener in self._resources.queue_gone:
            listener(queue)
        if left:
            self._begin(self._contents.let_go(queue, left, outcome))
        return count

    def remove_address(self, address: Address) -> None:
        """Nothing is bound to it; the duplicate ids that came to it go with it."""
        self._post_office.remove_address(address.name)
        self._recorder.address_gone(address)
        self._settings.repository.forget(address.name)
        for forget in self._resources.address_gone:
            forget(address.name)

    def held_otherwise(self, queue: Queue, expires_ms: int | None) -> None:
        """Something else holds for the queue than before, when its ``expires`` was that."""
        if queue.settings.expires_ms != expires_ms:
            self._resources.idle.begin(queue, self._now_ms())
        self._ready.mark(queue)

    def expired(self) -> list[Queue]:
        """Queues that nobody has used for as long as ``expires`` says: they are to end."""
        return self._resources.idle.take_due(self._now_ms(), self._is_named)

    def _is_named(self, queue: Queue) -> bool:
        return queue.name in self._resources.named or queue.address in self._resources.named

    def sweep(self) -> Steps[None]:
        """Removes auto-created queues and addresses that were idle for their delay; all are looked at, some in each step."""
        queues, addresses = self._post_office.queues, self._post_office.addresses
        for number, queue in enumerate(list(queues.values()), 1):
            if queues.get(queue.name) is queue:
                self._sweep_queue(queue, self._now_ms())
            if number % _SWEPT == 0:
                yield
        for number, address in enumerate(list(addresses.values()), 1):
            if addresses.get(address.name) is address:
                self._sweep_address(address, self._now_ms())
            if number % _SWEPT == 0:
                yield

    def _sweep_queue(self, queue: Queue, now_ms: int) -> None:
        settings = queue.settings
        if not queue.references:
            # The room of what was in it once is given back.
            queue.references.clear()
        if queue.suspects or queue.apart:
            self._ready.mark(queue)
        if queue.consumers or queue.count or self._is_named(queue):
            queue.idle_since_ms = None
        elif queue.idle_since_ms is None:
            queue.idle_since_ms = max(now_ms, queue.used_at_ms)
        elif queue.auto_created and settings.auto_delete_queues and now_ms - queue.idle_since_ms >= settings.auto_delete_queues_delay_ms:
            self.delete_queue(queue)

    def _sweep_address(self, address: Address, now_ms: int) -> None:
        idle_ms = now_ms - address.used_at_ms
        if address.queues or address.name in self._resources.named:
            address.used_at_ms = now_ms
            return
        settings = self._settings.resolve(address.name)
        if address.auto_created and settings.auto_delete_addresses and idle_ms >= settings.auto_delete_queues_delay_ms:
            self.remove_address(address)
