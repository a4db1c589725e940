"""Addresses and queues: made by hand or by themselves, and removed by themselves when nobody has used them for a while."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple, cast

from homing.journal.contract import Outcome, ReferenceRecord
from homing.journal.declarations import QueueOptions

from ..auth.access import BROKER, Access, Who, at_queue, needs
from ..config.models import LimitsSection
from ..core import dead_letter
from ..core.amqp.declared import AMQP
from ..core.amqp.policy import Policy
from ..core.amqp.vhost import SEPARATOR, address_and_queue, split
from ..core.counts import COUNT_OF_OUTCOME
from ..core.message import MessageReference, Where
from ..core.queue import Queue
from ..core.reserved import EVENTS, RESERVED
from ..core.rights import Right
from ..core.routing import ANYCAST, MULTICAST, ROUTING_TYPE_OF, Address, RoutingTypes
from ..core.selector import Selector, SelectorError, compile_selector
from ..core.settings.address_settings import (
    DECLARABLE_SETTINGS,
    AddressSettings,
    AddressSettingsRepository,
    Values,
    read_setting,
)
from ..core.settings.values import SettingError
from ..entries.shared_state import SharedState
from ..errors import Refused
from ..steps import MOST_AT_ONCE, STEP, Steps, at_once
from . import places
from .amqp.arguments import default_attempts, keeps_all, priorities
from .amqp.policies import Policies, with_policy
from .idle_queues import IdleQueues

#: Other declarations: how many consumers, and whether only one connection may consume.
QUEUE_FLAGS: Final = frozenset({"exclusive", "max_consumers"})
NO_OPTIONS: Final = QueueOptions()
_MAX_NAME: Final = 512
#: Queues, or addresses, that one step of a sweep looks at.
_SWEPT: Final = 1_000
#: Rows on disk that are purged in one step: between two of them is a commit.
_PURGED_ROWS: Final = 500


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
    def __init__(self, access: Access, state: SharedState, policies: Policies, limits: LimitsSection) -> None:
        self.access = access
        self._state = state
        self._policies = policies
        #: Every second looks at every queue, and a call lists them all.
        self._max_queues = limits.max_queues
        self._selector_limits = (limits.max_selector_characters, limits.max_selector_depth)
        #: Names that something open speaks of (producers, transactions), with how often.
        self.named: dict[str, int] = {}
        #: What the names of each virtual host begin with.
        self.prefixes: set[str] = set()
        self.idle = IdleQueues(state.wake)
        #: Called with every queue, and every address, that was made, or that routes in another way, too.
        self.queue_made: list[Callable[[Queue], None]] = []
        self.address_made: list[Callable[[Address], None]] = []
        #: Called with every queue that was removed.
        self.queue_gone: list[Callable[[Queue], None]] = [state.faults.dead_letters.forget]
        #: Work in steps that nobody waits for.
        self.begin: Callable[[Steps[None]], object] = at_once
        #: Called with the name of every address that was removed.
        self.address_gone: list[Callable[[str], object]] = []

    # -- made --------------------------------------------------------------------------------------------------------

    def make_address(self, name: str, routing_types: RoutingTypes, auto_created: bool = True) -> Address:
        """The address of that name, made or widened to these routing types if need be. Raises Refused where there is no room for it."""
        state = self._state
        address = state.post_office.addresses.get(name)
        if address is None:
            state.declared.check("addresses")
            address = Address(name, routing_types, state.now_ms(), auto_created)
            state.post_office.add_address(address)
        elif routing_types & ~address.routing_types or (address.auto_created and not auto_created):
            address.routing_types |= routing_types
            address.auto_created = address.auto_created and auto_created
        else:
            return address
        state.recorder.address_made(address)
        for listener in list(self.address_made):
            listener(address)
        return address

    def make_topic(self, name: str) -> None:
        """Where nothing is called so: an address that only multicast queues are meant for. Raises Refused where the settings forbid it."""
        if name in self._state.post_office.addresses:
            return
        if not self._state.settings.resolve(name).auto_create_addresses:
            raise no_such_address(name)
        self.make_address(name, RoutingTypes.MULTICAST)

    def declare_subscription(self, name: str, address: str, selector: Selector | None) -> Queue:
        """The queue of a durable subscription to the address, made where it is not there. Raises Refused where it is another's."""
        existing = self._state.post_office.queues.get(name)
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
        state, options, auto_created = self._state, declared.options, declared.auto_created
        self._check_place(declared.name, declared.address, colons=True)
        self.check_room()
        state.declared.check("queues")
        policy = self._policies.for_queue(declared.name)
        settings = settings_for(state.settings.repository, declared.address, options, policy)
        of_itself = auto_created or _comes_again(declared.routing_type)
        address = self.make_address(declared.address, ROUTING_TYPE_OF[declared.routing_type], of_itself)
        address.used_at_ms = state.now_ms()
        queue = Queue(
            state.post_office.next_queue_id(),
            declared.name,
            declared.address,
            declared.routing_type,
            settings,
            created_at_ms=state.now_ms(),
            selector=declared.selector,
            durable=declared.durable,
            auto_created=auto_created,
            options=options,
            priorities=priorities(options),
            keeps_all=keeps_all(options),
        )
        queue.policy = policy
        state.post_office.add_queue(queue)
        self.idle.watch(queue)
        state.recorder.queue_changed(queue)
        for listener in list(self.queue_made):
            listener(queue)
        return queue

    def make_queue_for(self, name: str, address: str, routing_type: str) -> Queue | None:
        """Auto-create on send, subscribe or redrive: None where the settings forbid it or the name is taken."""
        if name in self._state.post_office.queues or not self.may_make_queues(address):
            return None
        return self.make_queue(Declaration(name, address, routing_type, auto_created=True))

    def make_for_send(self, name: str) -> list[Queue]:
        """The queues that an address of none gets as something is sent to it. Raises Refused: no such address."""
        settings, address = self._state.settings.resolve(name), self._state.post_office.addresses.get(name)
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
        settings = self._state.settings.resolve(address)
        return settings.auto_create_queues and (settings.auto_create_addresses or address in self._state.post_office.addresses)

    def make_dead_letter_queue(self, name: str, target: dead_letter.Target, shared: bool = False) -> Queue:
        """The queue on a dead-letter or expiry address that takes what is dead-lettered from the source of ``target``.

        ``shared``: and what comes from temporary queues, which it always does that has the name of theirs.
        """
        dead_letter_address, source = target.address, target.source
        self.make_address(dead_letter_address, RoutingTypes.MULTICAST)
        shared = shared or split(source)[1] == self._state.settings.resolve(source).temporary_dead_letter_queue
        selector = compile_selector(dead_letter.origin_selector(source, name, shared))
        return self.make_queue(Declaration(name, dead_letter_address, MULTICAST, selector, auto_created=True))

    def _future_dead_letter_queue(self, name: str, of_known: bool) -> Queue | None:
        """Made ahead of the first death, for a consumer that waits for it: to an ordinary queue of that name no dead letter could go.

        ``of_known``: only of an address that is there, because the name may mean ``address::queue`` too.
        """
        for target in dead_letter.targets_named(name, self._state.settings.repository, self._state.post_office.addresses):
            if not of_known or target.source in self._state.post_office.addresses:
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
        if (existing := self._state.post_office.queues.get(read.name)) is not None:
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
        existing = self._state.post_office.queues.get(name)
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
        if len(self._state.post_office.queues) + more > self._max_queues:
            raise Refused("too-many-queues", f"there are {self._max_queues} queues, as many as there may be", "raise limits: max-queues")

    def _keep(self, queue: Queue) -> None:
        """What made itself and is declared by hand now does not remove itself any more."""
        if queue.auto_created:
            queue.auto_created = False
            self._state.recorder.queue_changed(queue)
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
        if address not in self._state.post_office.addresses:
            self.check_name(address, "address")

    # -- found -------------------------------------------------------------------------------------------------------

    def queue_for_consumer(self, name: str) -> Queue:
        """The queue a consumer's name means, made if the settings allow. Raises Refused."""
        state = self._state
        queue = state.post_office.find_queue(name)
        if queue is not None:
            return queue
        address_name, separator, queue_name = address_and_queue(name)
        if not separator and address_name in state.post_office.addresses:
            bound = state.post_office.addresses[address_name].queues
            if len(bound) > 1:
                names = ", ".join(sorted(each.name for each in bound)[:8])
                raise Refused("ambiguous-queue", f"{name} is an address with {len(bound)} queues: {names}", "name the queue")
        ahead = self._future_dead_letter_queue(name, of_known=bool(separator))
        if ahead is not None:
            return ahead
        self.check_name(queue_name or address_name, "queue")  # with :: in it only AMQP's clients name one
        routing_type = state.settings.resolve(address_name).default_address_routing_type
        made = self.make_queue_for(queue_name or address_name, address_name, routing_type)
        if made is None:
            raise Refused(
                "no-such-queue", f"there is no queue {name} and auto-create is off for it", "create it, or set auto-create-queues: true"
            )
        return made

    # -- removed -----------------------------------------------------------------------------------------------------

    def delete_queue(self, queue: Queue, outcome: Outcome = "purged") -> int:
        """Removes a queue and what is in it; returns how many messages that were. Memory is given back in steps where there is much."""
        count = 0
        if len(queue.references) <= MOST_AT_ONCE:
            count = at_once(self._purge_memory(queue, outcome, everything=True))
        count += queue.count
        self._state.from_disk.forget(queue)
        left = queue.end()
        queue.counts[COUNT_OF_OUTCOME[outcome]] += len(left)
        self._state.post_office.remove_queue(queue)
        self._state.ready.queues.pop(queue, None)
        self.idle.forget(queue)
        self._state.recorder.queue_changed(queue, deleted_at_ms=self._state.now_ms())
        for listener in self.queue_gone:
            listener(queue)
        if left:
            self.begin(self._let_go(queue, left, outcome))
        return count

    def _let_go(self, queue: Queue, references: list[MessageReference], outcome: Outcome) -> Steps[None]:
        for part in _used_up(references):
            self._state.references.let_go(queue, part, outcome, self._state.now_ms())
            yield

    @needs((Right.MANAGE, at_queue), audited=True, tells=places.whether_paused)
    def pause(self, who: Who, queue: Queue, paused: bool) -> None:
        """Whether it hands anything out."""
        if queue.paused is not paused:
            queue.paused = paused
            self._state.recorder.queue_changed(queue)
            self._state.ready.mark(queue)

    def empty(self, queue: Queue) -> Steps[int]:
        """As it is about to go: nobody is handed anything more. Where that fails, what is left is a queue as before."""
        paused, queue.paused = queue.paused, True
        try:
            return (yield from self.purge(BROKER, queue))
        except Exception:
            queue.paused = paused
            self._state.ready.mark(queue)
            raise

    @needs((Right.MANAGE, at_queue), audited=True, counts=int)
    def purge(self, who: Who, queue: Queue, outcome: Outcome = "purged") -> Steps[int]:
        """Removes all messages that nobody holds, in steps: of what is there now, what is still there when its turn comes."""
        up_to = self._state.journal.next_id()
        count = yield from self._purge_memory(queue, outcome)

        def leave(records: list[ReferenceRecord]) -> bool:
            nonlocal count
            count += self._leave_all(queue, [self._state.from_disk.adopt(queue, record) for record in records], outcome)
            return True

        yield from self._state.from_disk.on_disk(queue, leave, up_to, rows=_PURGED_ROWS)
        return count

    def _purge_memory(self, queue: Queue, outcome: Outcome, everything: bool = False) -> Steps[int]:
        count = 0
        stay = (Where.GONE,) if everything else (Where.GONE, Where.DELIVERING, Where.IN_COMMIT)
        for number, part in enumerate(_used_up(list(queue.references.values()))):
            if number:
                yield
            count += self._leave_all(queue, [each for each in part if each.where not in stay], outcome)
        return count

    def _leave_all(self, queue: Queue, references: list[MessageReference], outcome: Outcome) -> int:
        for reference in references:
            queue.withdraw(reference, Where.GONE)
        if references:
            self._state.references.leave_all(queue, references, outcome, self._state.now_ms())
        return len(references)

    def held_otherwise(self, queue: Queue, expires_ms: int | None) -> None:
        """Something else holds for the queue than before, when its ``expires`` was that."""
        if queue.settings.expires_ms != expires_ms:
            self.idle.begin(queue, self._state.now_ms())
        self._state.ready.mark(queue)

    def _is_named(self, queue: Queue) -> bool:
        return queue.name in self.named or queue.address in self.named

    def expired(self) -> list[Queue]:
        """Queues that nobody has used for as long as ``expires`` says: they are to end."""
        return self.idle.take_due(self._state.now_ms(), self._is_named)

    def sweep(self) -> Steps[None]:
        """Removes auto-created queues and addresses that were idle for their delay; all are looked at, some in each step."""
        queues, addresses = self._state.post_office.queues, self._state.post_office.addresses
        for number, queue in enumerate(list(queues.values()), 1):
            if queues.get(queue.name) is queue:
                self._sweep_queue(queue, self._state.now_ms())
            if number % _SWEPT == 0:
                yield
        for number, address in enumerate(list(addresses.values()), 1):
            if addresses.get(address.name) is address:
                self._sweep_address(address, self._state.now_ms())
            if number % _SWEPT == 0:
                yield

    def _sweep_queue(self, queue: Queue, now_ms: int) -> None:
        settings = queue.settings
        if not queue.references:
            # The room of what was in it once is given back.
            queue.references.clear()
        if queue.suspects or queue.apart:
            self._state.ready.mark(queue)
        if queue.consumers or queue.count or self._is_named(queue):
            queue.idle_since_ms = None
        elif queue.idle_since_ms is None:
            queue.idle_since_ms = max(now_ms, queue.used_at_ms)
        elif queue.auto_created and settings.auto_delete_queues and now_ms - queue.idle_since_ms >= settings.auto_delete_queues_delay_ms:
            self.delete_queue(queue)

    def _sweep_address(self, address: Address, now_ms: int) -> None:
        idle_ms = now_ms - address.used_at_ms
        if address.queues or address.name in self.named:
            address.used_at_ms = now_ms
            return
        settings = self._state.settings.resolve(address.name)
        if address.auto_created and settings.auto_delete_addresses and idle_ms >= settings.auto_delete_queues_delay_ms:
            self.remove_address(address)

    def remove_address(self, address: Address) -> None:
        """Nothing is bound to it; the duplicate ids that came to it go with it."""
        self._state.post_office.remove_address(address.name)
        self._state.recorder.address_gone(address)
        self._state.settings.repository.forget(address.name)
        for forget in self.address_gone:
            forget(address.name)


def _used_up(references: list[MessageReference]) -> Iterator[list[MessageReference]]:
    """A step's worth at a time, in order. Nothing keeps what was handed out: very much would be freed at once in the end."""
    references.reverse()
    while references:
        part = references[-STEP:]
        del references[-STEP:]
        part.reverse()
        yield part
        del part


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
