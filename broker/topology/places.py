"""What rights are asked for, where that is more than an argument of the call (auth/access.py): found by name, or said in a declaration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

from ..auth.access import queue_place
from ..core.amqp.vhost import address_and_queue, prefix_of
from ..core.reserved import EVENTS
from ..core.rights import Place, everything_in
from ..core.routing import PostOffice
from ..core.settings.address_settings import Values

#: Settings that lead dead letters somewhere.
DEAD_LETTERS_GO: Final = ("dead_letter_address", "expiry_address")


class ByName(Protocol):
    """Whose verb it is: he knows addresses and queues by their names."""

    @property
    def post_office(self) -> PostOffice: ...


def address_place(name: str) -> Place:
    return Place("address", (name,))


def exchange_places(prefix: str, name: str, keys: Sequence[str]) -> Iterator[Place]:
    """The default exchange leads to queues by their names; ``#`` as a key is any."""
    for key in keys:
        if name:
            yield Place("exchange", (prefix + name,), key)
        else:
            yield Place("queue", (prefix + key,))


def place_of(owner: ByName, name: str) -> Place:
    """Of the queue that is called so, also where it is gone."""
    queue = owner.post_office.queues.get(name)
    return Place("queue", (name,)) if queue is None else queue_place(queue)


def at_queue_named(owner: ByName, name: str) -> Iterable[Place]:
    return (place_of(owner, name),)


def at_virtual_host(virtual_host: str) -> Iterable[Place]:
    return (everything_in(prefix_of(virtual_host)),)


# -- what is meant by a consumer -----------------------------------------------------------------------------------------


def at_queue_of_name(owner: ByName, name: str) -> Iterable[Place]:
    queue = owner.post_office.find_queue(name)
    if queue is not None:
        return (queue_place(queue),)
    address, separator, queue_name = address_and_queue(name)
    if address == EVENTS:
        # Nobody's right to make the queue says that its maker may hear of everybody's.
        return (address_place(EVENTS),)
    return (Place("queue", (queue_name, address) if separator else (address,)),)


def at_new_queue(owner: ByName, name: str) -> Iterable[Place]:
    """Where a subscription would make it: the queue and its address."""
    if owner.post_office.find_queue(name) is not None:
        return ()
    address, separator, queue_name = address_and_queue(name)
    if address == EVENTS:
        return (Place("queue", (queue_name or address,)),)
    return (Place("queue", (queue_name,)), address_place(address)) if separator else (address_place(address),)


def at_new_topic(owner: ByName, address: str) -> Iterable[Place]:
    return () if address in owner.post_office.addresses else (address_place(address),)


# -- what a declaration says ---------------------------------------------------------------------------------------------


def created(arguments: Values) -> Iterable[Place]:
    """The queue and its address, but for that of events, which is there."""
    names = [name for key in ("queue", "address") if isinstance(name := arguments.get(key), str) and name != EVENTS]
    return [Place("queue", (name,)) for name in dict.fromkeys(names)]


def created_source(arguments: Values) -> Iterable[Place]:
    """What it would take for dead letters to go where the declaration says, and for events to come."""
    if arguments.get("address") == EVENTS:
        yield address_place(EVENTS)
    if any(arguments.get(each) for each in DEAD_LETTERS_GO):
        yield from created(arguments)


def created_target(arguments: Values) -> Iterable[Place]:
    return [address_place(name) for each in DEAD_LETTERS_GO if isinstance(name := arguments.get(each), str)]
