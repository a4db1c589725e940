"""Addresses and queues: made by hand or by themselves, and found. How they go: deletion.py."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple, cast

from homing.journal.declarations import QueueOptions

from ..auth.access import Access, Who, needs
from ..config.models import LimitsSection
from ..core import dead_letter
from ..core.amqp.declared import AMQP
from ..core.amqp.policy import Policy
from ..core.amqp.vhost import SEPARATOR, address_and_queue, split
from ..core.queue import Queue
from ..core.reserved import EVENTS, RESERVED
from ..core.rights import Right
from ..core.routing import ANYCAST, MULTICAST, ROUTING_TYPE_OF, Address, PostOffice, RoutingTypes
from ..core.selector import Selector, SelectorError, compile_selector
from ..core.settings.address_settings import (
    DECLARABLE_SETTINGS,
    AddressSettings,
    AddressSettingsRepository,
    Values,
    read_setting,
)
from ..core.settings.in_force import SettingsInForce
from ..core.settings.values import SettingError
from ..entries.declared import Declared
from ..errors import Refused
from ..recording.recorder import Recorder
from . import places
from .amqp.arguments import default_attempts, keeps_all, priorities
from .amqp.policies import Policies, with_policy
from .idle_queues import IdleQueues

#: Other declarations: how many consumers, and whether only one connection may consume.
QUEUE_FLAGS: Final = frozenset({"exclusive", "max_consumers"})
NO_OPTIONS: Final = QueueOptions()
_MAX_NAME: Final = 512


class Declaration(NamedTuple):
    """What a queue is made from, whoever asked for it."""

    name: str
    address: str
    routing_type: str
    selector: Selector | None = None
    durable: bool = True
    options: QueueOptions = NO_OPTIONS
    auto_created: bool = False


class Resources:
    def __init__(
        self,
        access: Access,
        post_office: PostOffice,
        settings: SettingsInForce,
        recorder: Recorder,
        declared: Declared,
        policies: Policies,
        idle: IdleQueues,
        limits: LimitsSection,
        now_ms: Callable[[], int],
    ) -> None:
        self.access = access
        self._post_office = post_office
        self._settings = settings
        self._recorder = recorder
        self._declared = declared
        self._policies = policies
        self._now_ms = now_ms
        #: Every second looks at every queue, and a call lists them all.
        self._max_queues = limits.max_queues
        self._selector_limits = (limits.max_selector_characters, limits.max_selector_depth)
        #: Names that something open speaks of (producers, transactions), with how often.
        self.named: dict[str, int] = {}
        #: What the names of each virtual host begin with.
        self.prefixes: set[str] = set()
        self.idle = idle
        #: Called with every queue, and every address, that was made, or that routes in another way, too.
        self.queue_made: list[Callable[[Queue], None]] = []
        self.address_made: list[Callable[[Address], None]] = []
        #: Called with every queue that was removed.
        self.queue_gone: list[Callable[[Queue], None]] = []
        #: Called with the name of every address that was removed.
        self.address_gone: list[Callable[[str], object]] = []

    # -- made --------------------------------------------------------------------------------------------------------

    def make_address(self, name: str, routing_types: RoutingTypes, auto_created: bool = True) -> Address:
        """The address of that name, made or widened to these routing types if need be. Raises Refused where there is no room for it."""
        address = self._post_office.addresses.get(name)
        if address is None:
            self._declared.check("addresses")
            address = Address(name, routing_types, self._now_ms(), auto_created)
            self._post_office.add_address(address)
        elif routing_types & ~address.routing_types or (address.auto_created and not auto_created):
            address.routing_types |= routing_types
            address.auto_created = address.auto_created and auto_created
        else:
            return address
        self._recorder.address_made(address)
        for listener in list(self.address_made):
            listener(address)
        return address

    def make_topic(self, name: str) -> None:
        """Where nothing is called so: an address that only multicast queues are meant for. Raises Refused where the settings forbid it."""
        if name in self._post_office.addresses:
            return
        if not self._settings.resolve(name).auto_create_addresses:
            raise no_such_address(name)
        self.make_address(name, RoutingTypes.MULTICAST)

    def declare_subscription(self, name: str, address: str, selector: Selector | None) -> Queue:
        """The queue of a durable subscription to the address, made where it is not there. Raises Refused where it is another's."""
        existing = self._post_office.queues.get(name)
        if existing is not None:
            same = (existing.address, existing.selector and existing.selector.text) == (address, selector and selector.text)
            if same and is_subscription(existing):
                return existing
            raise Refused("queue-exists", f"queue {name} is of another address or selector", "end that subscription first")
        self.make_topic(address)
        return self.make_queue(Declaration(name, address, MULTICAST, selector, options=QueueOptions(exclusive=True)))

    def declare_address(self, name: str, routing_types: RoutingTypes) -> Address:
        """One that broker.yaml names. Raises Refused for a bad name."""
        self.check_name(name, "address")
        return self.make_address(name, routing_types, auto_created=False)

    def make_queue(self, declared: Declaration) -> Queue:
        """Binds a new queue. Raises Refused for a bad option; the name must be free."""
        options, auto_created = declared.options, declared.auto_created
        self._check_place(declared.name, declared.address, colons=True)
        self.check_room()
        self._declared.check("queues")
        policy = self._policies.for_queue(declared.name)
        settings = settings_for(self._settings.repository, declared.address, options, policy)
        of_itself = auto_created or _comes_again(declared.routing_type)
        address = self.make_address(declared.address, ROUTING_TYPE_OF[declared.routing_type], of_itself)
        address.used_at_ms = self._now_ms()
        queue = Queue(
            self._post_office.next_queue_id(),
            declared.name,
            declared.address,
            declared.routing_type,
            settings,
            created_at_ms=self._now_ms(),
            selector=declared.selector,
            durable=declared.durable,
            auto_created=auto_created,
            options=options,
            priorities=priorities(options),
            keeps_all=keeps_all(options),
        )
        queue.policy = policy
        self._post_office.add_queue(queue)
        self.idle.watch(queue)
        self._recorder.queue_changed(queue)
        for listener in list(self.queue_made):
            listener(queue)
        return queue

    def make_queue_for(self, name: str, address: str, routing_type: str) -> Queue | None:
        """Auto-create on send, subscribe or redrive: None where the settings forbid it or the name is taken."""
        if name in self._post_office.queues or not self.may_make_queues(address):
            return None
        return self.make_queue(Declaration(name, address, routing_type, auto_created=True))

    def make_for_send(self, name: str) -> list[Queue]:
        """The queues that an address of none gets as something is sent to it. Raises Refused: no such address."""
        settings, address = self._settings.resolve(name), self._post_office.addresses.get(name)
        if settings.default_address_routing_type == MULTICAST or (address is not None and address.routing_types == RoutingTypes.MULTICAST):
            if address is None and not settings.auto_create_addresses:
                raise no_such_address(name)
            return []
        queue = self.make_queue_for(name, name, ANYCAST)
        if queue is None and address is None:
            raise no_such_address(name)
        return [queue] if queue is not None else []

    def may_make_queues(self, address: str) -> bool:
        """Whether the settings have queues of this address made when they are needed."""
        settings = self._settings.resolve(address)
        return settings.auto_create_queues and (settings.auto_create_addresses or address in self._post_office.addresses)

    def make_dead_letter_queue(self, name: str, target: dead_letter.Target, shared: bool = False) -> Queue:
        """The queue on a dead-letter or expiry address that takes what is dead-lettered from the source of ``target``.

        ``shared``: and what comes from temporary queues, which it always does that has the name of theirs.
        """
        dead_letter_address, source = target.address, target.source
        self.make_address(dead_letter_address, RoutingTypes.MULTICAST)
        shared = shared or split(source)[1] == self._settings.resolve(source).temporary_dead_letter_queue
        selector = compile_selector(dead_letter.origin_selector(source, name, shared))
        return self.make_queue(Declaration(name, dead_letter_address, MULTICAST, selector, auto_created=True))

    def _future_dead_letter_queue(self, name: str, of_known: bool) -> Queue | None:
        """Made ahead of the first death, for a consumer that waits for it: to an ordinary queue of that name no dead letter could go.

        ``of_known``: only of an address that is there, because the name may mean ``address::queue`` too.
        """
        for target in dead_letter.targets_named(name, self._settings.repository, self._post_office.addresses):
            if not of_known or target.source in self._post_office.addresses:
                return self.make_dead_letter_queue(name, target)
        return None

    @needs(
        (Right.CREATE, places.created),
        (Right.CONSUME, places.created_source),
        (Right.SEND, places.created_target),
        audited=True,
        action="create-queue",
    )
    def declare(self, who: Who, arguments: Values) -> Queue:
        """A queue made by hand (CALL create-queue, broker.yaml). The same declaration again is no error; another one is."""
        read = self.read_declaration(arguments)
        if (existing := self._post_office.queues.get(read.name)) is not None:
            self._keep(existing)
            return existing
        return self.make_queue(read)

    def read_declaration(self, arguments: Values, new_prefixes: Collection[str] = ()) -> Declaration:
        """A declaration that could be made now, ``new_prefixes`` being those of virtual hosts that are made before. Raises Refused."""
        given = dict(arguments)
        name = given.pop("queue", None)
        self.check_name(name, "queue", new_prefixes)
        address = given.pop("address", None) or name
        routing_type = given.pop("routing_type", None) or ANYCAST
        if routing_type not in (ANYCAST, MULTICAST):
            raise Refused("invalid-argument", f"routing_type must be anycast or multicast, not {routing_type!r}", "use one of the two")
        text, durable = given.pop("selector", None), given.pop("durable", True)
        if type(durable) is not bool or not (text is None or type(text) is str):
            raise Refused("invalid-argument", "durable must be true or false and selector text", "see docs/protocol.md, 2.7")
        options = {key: value for key, value in given.items() if value is not None}
        if AMQP in options:
            raise Refused("invalid-argument", f"a queue has no option {AMQP!r}", "declare the queue over AMQP to use its arguments")
        existing = self._post_office.queues.get(name)
        if existing is None:
            self._check_place(name, address, new_prefixes)
            read_options(options)
        else:
            same = (existing.address, existing.routing_type, existing.selector.text if existing.selector else None, existing.durable)
            if same != (address, routing_type, text, durable) or existing.options != options:
                raise Refused("queue-exists", f"queue {name} exists and was declared otherwise", "delete it first, or declare it as it is")
        return Declaration(name, address, routing_type, self.read_selector(text), durable, cast(QueueOptions, options))

    def _check_place(self, name: str, address: str, new_prefixes: Collection[str] = (), colons: bool = False) -> None:
        """Raises Refused unless a queue of that name can be bound to that address."""
        self.check_name(name, "queue", new_prefixes, colons)
        self.check_name(address, "address", new_prefixes, colons)
        if split(name)[0] != split(address)[0]:
            raise Refused("invalid-name", f"queue {name} and address {address} are in two virtual hosts", "name both in one")

    def check_room(self, more: int = 1) -> None:
        """Raises Refused unless so many more queues may be made."""
        if len(self._post_office.queues) + more > self._max_queues:
            raise Refused("too-many-queues", f"there are {self._max_queues} queues, as many as there may be", "raise limits: max-queues")

    def _keep(self, queue: Queue) -> None:
        """What made itself and is declared by hand now does not remove itself any more."""
        if queue.auto_created:
            queue.auto_created = False
            self._recorder.queue_changed(queue)
        self.make_address(queue.address, ROUTING_TYPE_OF[queue.routing_type], _comes_again(queue.routing_type))

    def read_selector(self, text: str | None) -> Selector | None:
        """A client's selector, compiled; None for none. Raises Refused."""
        return parse_selector(text, *self._selector_limits)

    def check_name(self, name: Any, what: str, new_prefixes: Collection[str] = (), colons: bool = False) -> None:
        """Raises Refused for what is no name; a virtual host that is there may stand before it."""
        prefix, local = split(name) if type(name) is str else ("", name)
        check_name(local if prefix in self.prefixes or prefix in new_prefixes else name, what, colons)

    def check_producer(self, address: str) -> None:
        """Raises Refused where nobody may send to what is called so."""
        if address == EVENTS:
            raise Refused("reserved-name", f"only the broker sends to {EVENTS}", "send to another address")
        if address not in self._post_office.addresses:
            self.check_name(address, "address")

    # -- found -------------------------------------------------------------------------------------------------------

    def queue_for_consumer(self, name: str) -> Queue:
        """The queue a consumer's name means, made if the settings allow. Raises Refused."""
        queue = self._post_office.find_queue(name)
        if queue is not None:
            return queue
        address_name, separator, queue_name = address_and_queue(name)
        if not separator and address_name in self._post_office.addresses:
            bound = self._post_office.addresses[address_name].queues
            if len(bound) > 1:
                names = ", ".join(sorted(each.name for each in bound)[:8])
                raise Refused("ambiguous-queue", f"{name} is an address with {len(bound)} queues: {names}", "name the queue")
        ahead = self._future_dead_letter_queue(name, of_known=bool(separator))
        if ahead is not None:
            return ahead
        self.check_name(queue_name or address_name, "queue")  # with :: in it only AMQP's clients name one
        routing_type = self._settings.resolve(address_name).default_address_routing_type
        made = self.make_queue_for(queue_name or address_name, address_name, routing_type)
        if made is None:
            raise Refused(
                "no-such-queue", f"there is no queue {name} and auto-create is off for it", "create it, or set auto-create-queues: true"
            )
        return made


def _comes_again(routing_type: str) -> bool:
    """Whether an address goes some time after the last queue of this kind, however that was declared: it says nothing then that a send
    would not make anew, and those of temporary queues would gather for ever. A multicast one says that nothing is kept."""
    return routing_type == ANYCAST


def is_subscription(queue: Queue) -> bool:
    """Whether it is a durable subscription's, or is like one."""
    return queue.routing_type == MULTICAST and not queue.auto_created and queue.options.get("exclusive", False)


def no_such_address(name: str) -> Refused:
    return Refused(
        "no-such-address", f"there is no address {name} and auto-create is off for it", "create it, or set auto-create-addresses: true"
    )


def check_name(name: object, what: str, colons: bool = False) -> None:
    """Raises Refused unless it can be the name of an address or queue: 1 to 512 characters, printable, no wildcard words.

    ``colons``: ``::`` may stand in it, as in names that AMQP clients give; whoever means ``address::queue`` may not be misunderstood.
    """
    if (
        type(name) is not str
        or not 0 < len(name) <= _MAX_NAME
        or not name.isprintable()
        or (name.startswith(SEPARATOR) if colons else SEPARATOR in name)
        or any(word in ("*", "#") for word in name.split("."))
    ):
        said = f"{repr(name)[:80]} cannot name {'an' if what == 'address' else 'a'} {what}"
        raise Refused("invalid-name", said, "use 1 to 512 printable characters, no :: and no * or # as a word")
    if name.startswith(RESERVED) and (what, name) != ("address", EVENTS):
        said = f"names that begin with {RESERVED} are the broker's own: {name[:80]}"
        raise Refused("reserved-name", said, f"use another name; queues of any name may be bound to {EVENTS}")


def parse_selector(text: str | None, max_characters: int = 4096, max_depth: int = 64) -> Selector | None:
    """Compiled, None for none. Raises Refused."""
    if not text:
        return None
    try:
        return compile_selector(text, max_characters, max_depth)
    except SelectorError as error:
        raise Refused(
            "invalid-selector", f"the selector cannot be read: {error}", "write SQL-92 as in JMS, for example: colour = 'red'"
        ) from None


def settings_for(
    repository: AddressSettingsRepository, address: str, options: QueueOptions, policy: Policy | None = None
) -> AddressSettings:
    """What is in force for a queue of ``address`` declared with ``options``, under an AMQP ``policy``. Raises Refused.

    A queue that AMQP declared has RabbitMQ's attempt limit unless its declaration or a pattern other than ``#`` sets one.
    """
    settings = repository.resolve(address, read_options(options))
    if AMQP in options and not settings.limit_meant:
        settings = replace(settings, max_delivery_attempts=default_attempts(options), limit_meant=True)
    return with_policy(settings, options, policy)


def read_options(options: Mapping[str, object]) -> Values:
    """The settings (field name -> value) that a queue was declared with. Raises Refused for an unknown or bad option."""
    declared: Values = {}
    for key, value in options.items():
        if key == AMQP:
            continue
        if key in QUEUE_FLAGS:
            if type(value) is not (bool if key == "exclusive" else int):
                raise Refused("invalid-argument", f"{key} cannot be {value!r}", "exclusive is true or false, max_consumers a whole number")
            continue
        if key not in DECLARABLE_SETTINGS:
            raise Refused(
                "invalid-argument", f"a queue has no option {key!r}", "options: " + ", ".join(sorted(DECLARABLE_SETTINGS | QUEUE_FLAGS))
            )
        try:
            field, read = read_setting(key, value)
        except SettingError as error:
            raise Refused("invalid-argument", str(error), "see docs/settings.md") from None
        if key in ("dead_letter_address", "expiry_address") and read is not None:
            check_name(read, "address")
        declared[field] = read
    return declared


def makes_room(queue: Queue) -> bool:
    """Overflow drop-head, and the queue is not one of dead letters: those are not dropped unseen."""
    if queue.settings.overflow != "drop-head":
        return False
    target = dead_letter.target(queue.settings, queue.address, dead_letter.DELIVERY_LIMIT)
    return target is None or target.address != queue.address


def takes_nothing(queue: Queue) -> bool:
    """Full, and nothing makes room for what is new: overflow drop-head does, except where what it drops would come back to it."""
    return over_length(queue, 1) and not makes_room(queue)


def over_length(queue: Queue, extra: int = 0) -> bool:
    """Whether pending messages, those about to be and ``extra`` more are above the queue's limits. What is delivering does not count."""
    if not queue.settings.limited:
        return False
    limit, limit_bytes = queue.settings.max_length, queue.settings.max_length_bytes
    if limit is not None and queue.ready + queue.arriving + extra > limit:
        return True
    return limit_bytes is not None and queue.ready_bytes + queue.arriving_bytes + (1 if extra else 0) > limit_bytes
