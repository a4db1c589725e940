"""What verbs ask rights for: called like the verb, each says which names that is (auth/access.py)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Final, Protocol

from ..auth.access import Told, pattern_place, queue_place
from ..connection import Connection
from ..core.amqp.exchange import Compared, Destination
from ..core.amqp.policy import Policy
from ..core.amqp.vhost import REPLY_TO, address_and_queue, prefix_of
from ..core.edit import Edits
from ..core.fault import FaultGroup
from ..core.message import MessageReference
from ..core.message_filter import Filter
from ..core.queue import Queue
from ..core.redrive_job import RedriveJob
from ..core.reserved import EVENTS, FAILURE
from ..core.rights import Place, everything_in
from ..core.routing import MULTICAST, PostOffice, RoutingTypes
from ..core.settings.address_settings import AddressSettingsRepository, Layer, Layers
from ..core.settings.wildcard import ANY_WORDS
from .amqp.arguments import GENERATED
from .commanded_settings import CommandedSettings

_DEAD_LETTERS_GO: Final = ("dead_letter_address", "expiry_address")


class ByName(Protocol):
    """Whose verb it is: he knows addresses and queues by their names."""

    @property
    def post_office(self) -> PostOffice: ...


class _Settled(ByName, Protocol):
    @property
    def settings(self) -> AddressSettingsRepository: ...


class _InHost(Protocol):
    """Of one virtual host."""

    @property
    def prefix(self) -> str: ...


class _Commanding(Protocol):
    @property
    def commanded(self) -> CommandedSettings: ...


def _address(name: str) -> Place:
    return Place("address", (name,))


def _exchange(prefix: str, name: str, keys: Sequence[str]) -> Iterator[Place]:
    """The default exchange leads to queues by their names; ``#`` as a key is any."""
    for key in keys:
        if name:
            yield Place("exchange", (prefix + name,), key)
        else:
            yield Place("queue", (prefix + key,))


# -- sending and consuming -----------------------------------------------------------------------------------------------


def at_address(_: object, __: Connection, ___: int, address: str) -> Iterable[Place]:
    return (_address(address),)


def at_new_address(broker: _Settled, _: Connection, __: int, name: str) -> Iterable[Place]:
    """Where a send would make it, or a queue for it."""
    address = broker.post_office.addresses.get(name)
    if address is not None and (
        address.queues
        or address.routing_types == RoutingTypes.MULTICAST
        or broker.settings.resolve(name).default_address_routing_type == MULTICAST
    ):
        return ()
    return (_address(name),)


def published_to(
    _: object, connection: Connection, exchange: str, key: str, headers: Compared, more_keys: Sequence[str] = ()
) -> Iterable[Place]:
    """Settling what one holds asks for nothing, nor does reporting why it failed."""
    if exchange == FAILURE:
        return ()
    return _exchange(prefix_of(connection.virtual_host), exchange, (key, *more_keys))


def same_route(connection: Connection, exchange: str, key: str, headers: Compared, more_keys: Sequence[str] = ()) -> Hashable | None:
    return None if more_keys else (connection.user, connection.virtual_host, exchange, key)


def same_queue(connection: Connection, _: int, queue: Queue) -> Hashable:
    return connection.user, queue.queue_id


def at_queue_of_name(broker: ByName, _: Connection, __: int, name: str, ___: object) -> Iterable[Place]:
    queue = broker.post_office.find_queue(name)
    if queue is not None:
        return (queue_place(queue),)
    address, separator, queue_name = address_and_queue(name)
    if address == EVENTS:
        # Nobody's right to make the queue says that its maker may hear of everybody's.
        return (_address(EVENTS),)
    return (Place("queue", (queue_name, address) if separator else (address,)),)


def at_new_queue(broker: ByName, _: Connection, __: int, name: str, ___: object) -> Iterable[Place]:
    """Where a subscription would make it: the queue and its address."""
    if broker.post_office.find_queue(name) is not None:
        return ()
    address, separator, queue_name = address_and_queue(name)
    if address == EVENTS:
        return (Place("queue", (queue_name or address,)),)
    return (Place("queue", (queue_name,)), _address(address)) if separator else (_address(address),)


def at_topic(_: object, __: Connection, ___: int, address: str, ____: object) -> Iterable[Place]:
    return (_address(address),)


def at_queue_named(broker: ByName, _: Connection, name: str) -> Iterable[Place]:
    queue = broker.post_office.queues.get(name)
    return (Place("queue", (name,)) if queue is None else queue_place(queue),)


def at_new_topic(broker: ByName, _: Connection, __: int, address: str, ___: object) -> Iterable[Place]:
    return () if address in broker.post_office.addresses else (_address(address),)


def consumed(_: object, __: Connection, ___: int, queue: Queue, *____: object, **_____: object) -> Iterable[Place]:
    return (queue_place(queue),)


# -- messages ------------------------------------------------------------------------------------------------------------


def at_all(_: object, __: object, references: Sequence[MessageReference]) -> Iterable[Place]:
    return dict.fromkeys(queue_place(each.queue) for each in references)


def policy_named(_: object, __: object, policy: Policy) -> Told:
    return {"policy": policy.name}


def policy_cleared_named(_: object, __: object, ___: str, name: str) -> Told:
    return {"policy": name}


def whether_paused(_: object, __: object, ___: Queue, paused: bool) -> Told:
    return {"paused": paused}


def chosen(_: object, __: object, ___: Queue, wanted: Filter, *____: object) -> Told:
    """What else the audit says of it."""
    return {"filter": wanted.said()}


def chosen_to_go(_: object, __: object, ___: Queue, wanted: Filter, ____: int, living: bool) -> Told:
    return {"filter": wanted.said(), **({"living": True} if living else {})}


def chosen_moved(_: object, __: object, ___: Queue, target: Queue, wanted: Filter, *____: object) -> Told:
    return {"filter": wanted.said(), "to": target.name}


def chosen_to(_: object, __: object, ___: Queue, target: Queue, *____: object) -> Iterable[Place]:
    return (queue_place(target),)


def edited_to(_: object, __: object, ___: Queue, edits: Edits) -> Iterable[Place]:
    return () if edits.target is None else (queue_place(edits.target),)


def at_job(broker: ByName, _: object, job: RedriveJob) -> Iterable[Place]:
    queue = broker.post_office.queues.get(job.queue)
    return (Place("queue", (job.queue,)) if queue is None else queue_place(queue),)


def job_target(_: object, __: object, ___: Queue, target: Queue | None, *____: object) -> Iterable[Place]:
    return () if target is None else (queue_place(target),)


def of_fault(broker: ByName, group: FaultGroup) -> Place:
    queue = broker.post_office.queues.get(group.queue)
    return Place("queue", (group.queue,)) if queue is None else queue_place(queue)


def job_told(_: object, __: object, ___: Queue, target: Queue | None, job: RedriveJob) -> Told:
    said = {"to": target and target.name, "rate": job.rate, "limit": job.limit, "canary": job.canary}
    return {"filter": job.wanted, **{name: value for name, value in said.items() if value}}


def job_named(_: object, __: object, job: RedriveJob) -> Told:
    return {"job": job.job_id}


def fault_muted(_: object, __: object, groups: Sequence[FaultGroup], muted: bool) -> Told:
    return {"fault": groups[0].fingerprint, "muted": muted}


def fault_said_fixed(_: object, __: object, groups: Sequence[FaultGroup], version: str | None) -> Told:
    return {"fault": groups[0].fingerprint, "fixed": "no" if version is None else version or "yes"}


def at_faults(broker: ByName, _: object, groups: Sequence[FaultGroup], *__: object) -> Iterable[Place]:
    return dict.fromkeys(of_fault(broker, each) for each in groups)


def moved_from(_: object, __: object, reference: MessageReference, ___: Queue) -> Iterable[Place]:
    return (queue_place(reference.queue),)


def moved_to(_: object, __: object, ___: MessageReference, target: Queue) -> Iterable[Place]:
    return (queue_place(target),)


# -- what is declared ----------------------------------------------------------------------------------------------------


def created(_: object, __: object, arguments: Compared) -> Iterable[Place]:
    """The queue and its address, but for that of events, which is there."""
    names = [name for key in ("queue", "address") if isinstance(name := arguments.get(key), str) and name != EVENTS]
    return [Place("queue", (name,)) for name in dict.fromkeys(names)]


def created_source(broker: ByName, who: object, arguments: Compared) -> Iterable[Place]:
    """What it would take for dead letters to go where the declaration says, and for events to come."""
    if arguments.get("address") == EVENTS:
        yield _address(EVENTS)
    if any(arguments.get(each) for each in _DEAD_LETTERS_GO):
        yield from created(broker, who, arguments)


def created_target(_: object, __: object, arguments: Compared) -> Iterable[Place]:
    return [_address(name) for each in _DEAD_LETTERS_GO if isinstance(name := arguments.get(each), str)]


def declared(_: object, connection: Connection, name: str, **__: object) -> Iterable[Place]:
    return (Place("queue", (prefix_of(connection.virtual_host) + (name or GENERATED),)),)


def looked_up(broker: ByName, connection: Connection, name: str) -> Iterable[Place]:
    full = prefix_of(connection.virtual_host) + name
    queue = broker.post_office.queues.get(full)
    return (Place("queue", (full,)) if queue is None else queue_place(queue),)


def exchange_looked_up(owner: _InHost, _: object, name: str) -> Iterable[Place]:
    """Reporting why a delivery failed asks for nothing, nor does the question whether that is possible."""
    return () if name == FAILURE else at_exchange(owner, None, name)


def declared_source(broker: ByName, connection: Connection, name: str, *, arguments: Compared, **__: object) -> Iterable[Place]:
    """As RabbitMQ asks of who declares a dead-letter exchange: to read from the queue, and to write to the exchange."""
    return declared(broker, connection, name) if isinstance(arguments.get("x-dead-letter-exchange"), str) else ()


def declared_target(_: object, connection: Connection, __: str, *, arguments: Compared, **___: object) -> Iterable[Place]:
    exchange, key = arguments.get("x-dead-letter-exchange"), arguments.get("x-dead-letter-routing-key")
    if not isinstance(exchange, str):
        return ()
    return _exchange(prefix_of(connection.virtual_host), exchange, (key if isinstance(key, str) else ANY_WORDS,))


def replied(_: object, connection: Connection) -> Iterable[Place]:
    return (Place("queue", (prefix_of(connection.virtual_host) + REPLY_TO,)),)


def at_exchange(owner: _InHost, _: object, name: str, *__: object, **___: object) -> Iterable[Place]:
    return (Place("exchange", (owner.prefix + name,)),)


def with_alternate(owner: _InHost, _: object, name: str, __: str, *, arguments: Compared, **___: object) -> Iterable[Place]:
    return at_exchange(owner, None, name) if isinstance(arguments.get("alternate-exchange"), str) else ()


def alternate(owner: _InHost, _: object, __: str, ___: str, *, arguments: Compared, **____: object) -> Iterable[Place]:
    name = arguments.get("alternate-exchange")
    return _exchange(owner.prefix, name, (ANY_WORDS,)) if isinstance(name, str) else ()


def bound_to(owner: _InHost, _: object, __: str, destination: Destination, *___: object) -> Iterable[Place]:
    return (Place("queue" if destination.is_queue else "exchange", (owner.prefix + destination.name,)),)


def bound_from(owner: _InHost, _: object, source: str, __: Destination, key: str, *___: object) -> Iterable[Place]:
    return (Place("exchange", (owner.prefix + source,), key),)


# -- policies, settings, virtual hosts -----------------------------------------------------------------------------------


def policy_set(_: object, __: object, policy: Policy) -> Iterable[Place]:
    return (everything_in(prefix_of(policy.virtual_host)),)


def policy_source(_: object, __: object, policy: Policy) -> Iterable[Place]:
    """A policy that sends messages on: what it would take to do that by hand."""
    leads_on = policy.definition.keys() & {"dead-letter-exchange", "alternate-exchange"}
    return (everything_in(prefix_of(policy.virtual_host)),) if leads_on else ()


def policy_target(_: object, __: object, policy: Policy) -> Iterable[Place]:
    prefix, said = prefix_of(policy.virtual_host), policy.definition
    if "dead-letter-exchange" in said:
        yield from _exchange(prefix, str(said["dead-letter-exchange"]), (str(said.get("dead-letter-routing-key", ANY_WORDS)),))
    if "alternate-exchange" in said:
        yield from _exchange(prefix, str(said["alternate-exchange"]), (ANY_WORDS,))


def policy_cleared(_: object, __: object, virtual_host: str, ___: str) -> Iterable[Place]:
    return (everything_in(prefix_of(virtual_host)),)


def _changed(broker: _Commanding, layers: Layers) -> Iterable[str]:
    before = broker.commanded.layers
    return [pattern for pattern in before.keys() | layers.keys() if before.get(pattern) != layers.get(pattern)]


def _leading_on(broker: _Commanding, layers: Layers) -> Iterator[tuple[str, str]]:
    """Patterns with the addresses that dead letters go to now and did not before."""
    for pattern in _changed(broker, layers):
        before = _led_to(broker.commanded.layers.get(pattern, {}))
        yield from ((pattern, target) for _, target in sorted(_led_to(layers.get(pattern, {})) - before))


def _led_to(layer: Layer) -> set[tuple[str, str]]:
    """(setting, address) of each."""
    named = {(name, layer[name]) for name in _DEAD_LETTERS_GO if layer.get(name) is not None}
    return named | {("rules", address) for rule in layer.get("rules", ()) if (address := rule.dead_letter_address)}


def settings_set(broker: _Commanding, _: object, layers: Layers) -> Iterable[Place]:
    return map(pattern_place, _changed(broker, layers))


def settings_told(broker: _Commanding, _: object, layers: Layers) -> Told:
    """What is another than before, by pattern; None: no command sets it any more."""
    before = broker.commanded.layers
    told = list[str]()
    for pattern in _changed(broker, layers):
        old, new = before.get(pattern, {}), layers.get(pattern, {})
        names = [name for name in (*new, *(old.keys() - new)) if old.get(name) != new.get(name)]
        told.append(f"{pattern}: " + " ".join(f"{name}={new.get(name)}" for name in names))
    return {"settings": "; ".join(told)}


def settings_source(broker: _Commanding, _: object, layers: Layers) -> Iterable[Place]:
    return (pattern_place(pattern) for pattern, _ in _leading_on(broker, layers))


def settings_target(broker: _Commanding, _: object, layers: Layers) -> Iterable[Place]:
    return (_address(target) for _, target in _leading_on(broker, layers))


def at_virtual_host(_: object, __: object, name: str) -> Iterable[Place]:
    return (everything_in(prefix_of(name)),)
