"""Addresses, the queues bound to them, and where a message goes. Knows nothing of how queues are stored or served."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntFlag
from typing import Final, NamedTuple

from .amqp.vhost import address_and_queue
from .message import DEFAULT_PRIORITY, Lookup, Message, lookup
from .queue import Queue
from .settings.address_settings import AddressSettings
from .standing import Standing

ANYCAST: Final = "anycast"
MULTICAST: Final = "multicast"


class RoutingTypes(IntFlag):
    """What an address may route; an address may do both."""

    ANYCAST = 1
    MULTICAST = 2


ROUTING_TYPE_OF: Final = {ANYCAST: RoutingTypes.ANYCAST, MULTICAST: RoutingTypes.MULTICAST}


class Route(NamedTuple):
    """Where messages of one kind go, worked out once: good as long as it ``stands``."""

    queues: list[Queue]
    #: The queues, one at least, take whatever comes, at once; else each message is to be looked at.
    plain: bool
    #: Some of the queues tell priorities apart.
    by_priority: bool = False
    #: The priority of messages that name none.
    default_priority: int = DEFAULT_PRIORITY
    #: Of all that it was worked out from: the exchanges on the way, the settings.
    standings: Sequence[Standing] = ()

    @property
    def stands(self) -> bool:
        for each in self.standings:  # noqa: SIM110 (asked for every publish: half the time of all())
            if not each.good:
                return False
        return True


def take_at_once(queues: Sequence[Queue]) -> bool:
    """Whether they take whatever comes, at once: no limits, nothing to be written before delivery; of several, all of them durable, and
    the same priorities in all.
    """
    settings: AddressSettings | None = None
    for queue in queues:
        if queue.settings is not settings:
            settings = queue.settings
            if settings.limited or settings.persist_delivery_count_before_delivery:
                return False
    if len(queues) < 2:
        return bool(queues)
    lowest, highest = queues[0].priority_bounds
    return all(queue.durable and queue.lowest_priority == lowest and queue.highest_priority == highest for queue in queues)


class Address:
    """A name that producers send to, and the queues bound to it."""

    __slots__ = ("_chosen_last", "_route", "auto_created", "created_at_ms", "name", "queues", "routing_types", "used_at_ms")

    def __init__(self, name: str, routing_types: RoutingTypes, created_at_ms: int, auto_created: bool = False) -> None:
        self.name = name
        self.routing_types = routing_types
        self.created_at_ms = created_at_ms
        self.auto_created = auto_created
        self.queues: list[Queue] = []
        self.used_at_ms = created_at_ms
        self._chosen_last = 0
        self._route: Route | None = None

    @property
    def is_round_robin(self) -> bool:
        """Several anycast queues: the same message may go elsewhere the next time."""
        return sum(queue.routing_type == ANYCAST for queue in self.queues) > 1

    def add(self, queue: Queue) -> None:
        self.queues.append(queue)
        self._route = None

    def remove(self, queue: Queue) -> None:
        self.queues.remove(queue)
        self._route = None

    def route_of_all(self, settings: Standing) -> Route:
        """The route of what is sent here: plain where each queue takes each message, unseen. ``settings``: the post office's."""
        route = self._route
        if route is None or not route.stands:
            unseen = not self.is_round_robin and all(queue.selector is None for queue in self.queues)
            route = self._route = Route(self.queues, unseen and take_at_once(self.queues), standings=(settings,))
        return route

    def ask(self, message: Message, budget: int) -> int:
        """Asks the selectors of its queues about a message that was sent, as many as ``budget`` allows (Selector.cost), one at least. The
        answers stand on the message, where ``route`` finds them; they never change. Returns what it cost; less than ``budget`` once none is
        left to ask.
        """
        answers = message.answers
        if answers is None:
            answers = message.answers = {}
        cost, size, value = 0, message.properties_size, lookup(message)
        for queue in self.queues:
            if queue.selector is not None and queue.queue_id not in answers:
                if cost >= budget:
                    break
                cost += queue.selector.cost(size)
                answers[queue.queue_id] = queue.selector.matches(value)
        return cost

    def look_cost(self, properties_size: int) -> int:
        """What the selectors of its queues may cost for one message, as Selector.cost counts."""
        return sum([queue.selector.cost(properties_size) for queue in self.queues if queue.selector is not None])

    def route(self, look: Callable[[], Lookup], answers: dict[int, bool] | None = None) -> list[Queue]:
        """The queues a message goes to: every matching multicast queue, and one of the matching anycast queues, by turns.

        ``look`` is called only when a binding has a selector that is not among ``answers`` (see ``ask``).
        """
        queues = self.queues
        if len(queues) == 1 and queues[0].selector is None:
            return queues
        known = answers or {}
        matching = [
            queue
            for queue in queues
            if queue.selector is None or (known[queue.queue_id] if queue.queue_id in known else queue.selector.matches(look()))
        ]
        anycast = [queue for queue in matching if queue.routing_type == ANYCAST]
        if len(anycast) <= 1:
            return matching
        self._chosen_last += 1
        chosen = anycast[self._chosen_last % len(anycast)]
        return [queue for queue in matching if queue is chosen or queue.routing_type != ANYCAST]


class PostOffice:
    """All addresses and queues by name and id. Queue names are unique; ids are never reused."""

    def __init__(self) -> None:
        self.addresses: dict[str, Address] = {}
        self.queues: dict[str, Queue] = {}
        self.queues_by_id: dict[int, Queue] = {}
        self._next_queue_id = 1
        #: Counts every change of bindings; what was parked for want of a target looks again when it changes.
        self.bindings_version = 0
        #: Of settings, policies and rights: falls when any of them changes, and every route with it.
        self.settings_stand = Standing()
        #: Of the names that no queue has: falls with each new queue.
        self.absence_stands = Standing()

    def queues_of(self, address: str) -> list[str] | None:
        """The names of an address's queues, sorted; None where there is no such address."""
        found = self.addresses.get(address)
        return None if found is None else sorted(queue.name for queue in found.queues)

    def settings_changed(self) -> None:
        """Settings or policies: what queues take may be another."""
        self.settings_stand = self.settings_stand.fall()

    def bindings_changed(self) -> None:
        self.bindings_version += 1

    def next_queue_id(self) -> int:
        number = self._next_queue_id
        self._next_queue_id += 1
        return number

    def reserve_queue_ids(self, next_queue_id: int) -> None:
        """Ids below this one have been used."""
        self._next_queue_id = max(self._next_queue_id, next_queue_id)

    def add_address(self, address: Address) -> None:
        self.addresses[address.name] = address

    def remove_address(self, name: str) -> None:
        del self.addresses[name]

    def add_queue(self, queue: Queue) -> None:
        """Binds a queue to its address, which must exist."""
        self.queues[queue.name] = queue
        self.queues_by_id[queue.queue_id] = queue
        self.addresses[queue.address].add(queue)
        self.absence_stands = self.absence_stands.fall()
        self.bindings_changed()

    def remove_queue(self, queue: Queue) -> None:
        del self.queues[queue.name]
        del self.queues_by_id[queue.queue_id]
        self.addresses[queue.address].remove(queue)
        queue.standing.fall()
        self.bindings_changed()

    def find_queue(self, name: str) -> Queue | None:
        """A consumer's name: a queue, else ``address::queue``, else an address (its anycast queue of that name, or its only queue)."""
        queue = self.queues.get(name)
        if queue is not None:
            return queue
        address_name, separator, queue_name = address_and_queue(name)
        if separator:
            queue = self.queues.get(queue_name)
            return queue if queue is not None and queue.address == address_name else None
        address = self.addresses.get(name)
        if address is None:
            return None
        anycast = [queue for queue in address.queues if queue.routing_type == ANYCAST]
        return anycast[0] if anycast else (address.queues[0] if len(address.queues) == 1 else None)
