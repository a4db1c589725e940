"""What holds for queues under other settings or policies: found in steps, for there may be very many, and brought into force in one.

Between two steps queues may come and go. Other changes wait (``alone``), so that each is made from what the one before it has left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from ..core.amqp.policy import Policy
from ..core.queue import Queue
from ..core.routing import PostOffice
from ..core.settings.address_settings import AddressSettings, AddressSettingsRepository
from ..core.settings.in_force import SettingsInForce
from ..recording.recorder import Recorder
from ..steps import Steps
from .amqp.policies import Policies
from .resources import settings_for

T = TypeVar("T")

#: Queues that are asked about in one step: some 2 ms, as a confirm passes several turns on its way.
QUEUES_A_STEP: Final = 20
#: What would hold for a queue.
Held = tuple[Policy | None, AddressSettings]
#: The policy for a queue of that name.
PolicyOf = Callable[[str], Policy | None]


class InForce:
    def __init__(self, post_office: PostOffice, settings: SettingsInForce, policies: Policies, recorder: Recorder) -> None:
        self._post_office = post_office
        self.settings = settings
        self._policies = policies
        self._recorder = recorder
        self._changing = False

    def alone(self, steps: Steps[T]) -> Steps[T]:
        """One change after the other."""
        while self._changing:
            yield
        self._changing = True
        try:
            return (yield from steps)
        finally:
            self._changing = False

    def of(self, name: str) -> AddressSettings:
        """What holds for the queue of that name, or would for an address."""
        queue = self._post_office.find_queue(name)
        return self.settings.resolve(name) if queue is None else queue.settings

    def would_hold(self, settings: AddressSettingsRepository) -> Steps[list[tuple[Queue, AddressSettings]]]:
        """What would hold for each queue: its own settings where that is so already. Raises Refused."""
        found = yield from self.find(settings, self._policies.for_queue)
        return [(queue, held) for queue, (_, held) in found.items()]

    def find(self, settings: AddressSettingsRepository, policy_of: PolicyOf) -> Steps[dict[Queue, Held]]:
        """What would hold for each queue. Raises Refused."""
        found: dict[Queue, Held] = {}
        held = _Found(settings, policy_of)
        for number, queue in enumerate(list(self._post_office.queues.values()), 1):
            found[queue] = held.of(queue)
            if number % QUEUES_A_STEP == 0:
                yield
        return found

    def bring(self, found: dict[Queue, Held], settings: AddressSettingsRepository, policy_of: PolicyOf) -> list[tuple[Queue, int | None]]:
        """It holds from here on, for queues that were made meanwhile too. Returns those for which something is another, and what
        ``expires`` was before. Raises Refused, and then nothing has changed."""
        queues = self._post_office.queues.values()
        held_of = _Found(settings, policy_of).of
        found |= {queue: held_of(queue) for queue in queues if queue not in found}
        changed: list[tuple[Queue, int | None]] = []
        for queue in queues:
            policy, held = found[queue]
            if held is not queue.settings or policy is not queue.policy:
                changed.append((queue, queue.settings.expires_ms))
                last, queue.policy, queue.settings = queue.last_policy, policy, held
                if queue.last_policy != last:
                    self._recorder.queue_changed(queue)
        self.settings.repository = settings
        self._post_office.settings_changed()
        return changed


class _Found:
    """One object for all queues of which nothing else is to be said, as most of very many are: made once, and compared once."""

    def __init__(self, settings: AddressSettingsRepository, policy_of: PolicyOf) -> None:
        self._settings = settings
        self._policy_of = policy_of
        #: By what the address comes to, and the policy.
        self._made: dict[tuple[int, int], Held] = {}
        #: By what would hold and what does: both, so that their numbers stay theirs, and whether they are the same.
        self._same: dict[tuple[int, int], tuple[AddressSettings, AddressSettings, bool]] = {}

    def of(self, queue: Queue) -> Held:
        """Raises Refused."""
        policy, before = self._policy_of(queue.name), queue.settings
        if queue.options:
            held = settings_for(self._settings, queue.address, queue.options, policy)
            return policy, before if held == before else held
        key = id(self._settings.resolve(queue.address)), id(policy)
        if key not in self._made:
            self._made[key] = policy, settings_for(self._settings, queue.address, queue.options, policy)
        _, held = self._made[key]
        pair = id(held), id(before)
        if pair not in self._same:
            self._same[pair] = held, before, held == before
        return policy, before if self._same[pair][2] else held
