"""Taking messages in: duplicates, expiration, routing, length limits; one at a time from a producer, or all of a transaction."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from ..core.dead_letter import MAX_LENGTH
from ..core.message import Message, MessageReference, Where, lookup
from ..core.producer import Producer
from ..core.queue import Queue
from ..core.routing import MULTICAST, Address, Route, RoutingTypes
from ..core.settings.units import counted
from ..entries.shared_state import SharedState
from ..entries.throttle import COST_OF_A_REFERENCE, COST_OF_EACH, REFERENCES_A_TURN
from ..errors import Refused
from ..topology.resources import Resources, makes_room, no_such_address, over_length
from .dead_lettering import DeadLetterOffice
from .fan_out import fan_out


class Intake:
    """``duplicate_ids``: how many that were given by hand are remembered for each address."""

    def __init__(self, state: SharedState, resources: Resources, office: DeadLetterOffice, duplicate_ids: int) -> None:
        self._state = state
        self._resources = resources
        self._office = office
        self._keep = duplicate_ids
        #: By address; whether the journal has it.
        self._seen: dict[str, OrderedDict[str, bool]] = {}
        #: Those that are remembered, and their characters.
        self.duplicate_ids = self.duplicate_characters = 0
        resources.address_gone.append(self._forget)

    # -- duplicates --------------------------------------------------------------------------------------------------

    def remember(self, address: str, duplicate_ids: list[str]) -> None:
        """What the journal remembered, oldest first."""
        self._seen[address] = seen = OrderedDict.fromkeys(duplicate_ids, True)
        self._count(len(seen), sum(map(len, seen)))

    def _forget(self, address: str) -> None:
        seen = self._seen.pop(address, None)
        if seen is not None:
            self._count(-len(seen), -sum(map(len, seen)))

    def _count(self, ids: int, characters: int) -> None:
        self.duplicate_ids += ids
        self.duplicate_characters += characters

    def record_duplicate_ids(self) -> None:
        """Those of messages that are not durable, which an orderly stop keeps."""
        for address, seen in self._seen.items():
            for duplicate_id in [each for each, recorded in seen.items() if not recorded]:
                self._state.journal.batch.duplicate(address, duplicate_id)

    def duplicate(self, message: Message) -> bool:
        """Whether a message with this duplicate_id came to this address before. Raises Refused where it could not be remembered."""
        if message.duplicate_id is None:
            return False
        seen = self._seen.get(message.address)
        if seen is not None and message.duplicate_id in seen:
            return True
        if seen is None or len(seen) < self._keep:
            self._state.declared.check("duplicate ids")
        return False

    def _note_duplicate_id(self, message: Message, queues: list[Queue]) -> None:
        if message.duplicate_id is None:
            return
        seen = self._seen.setdefault(message.address, OrderedDict())
        if message.duplicate_id not in seen:
            self._count(1, len(message.duplicate_id))
        seen[message.duplicate_id] = lasting = message.durable or any(queue.keeps_all for queue in queues)
        if len(seen) > self._keep:
            oldest, _ = seen.popitem(last=False)
            self._count(-1, -len(oldest))
        if lasting:
            self._state.journal.batch.duplicate(message.address, message.duplicate_id)

    # -- where to ----------------------------------------------------------------------------------------------------

    def queues_for(self, message: Message) -> list[Queue]:
        """The queues that the message is for, full ones too; made if the settings allow. Raises Refused: no such address."""
        post_office = self._state.post_office
        address = post_office.addresses.get(message.address)
        if address is None or not address.queues:
            queues = self._auto_created(message.address, known=address is not None)
        else:
            queues = address.route(lambda: lookup(message), message.answers)
            message.answers = None
        return queues

    def _willing_queues(self, message: Message) -> list[Queue]:
        """Those that take it. Raises Refused where one does not."""
        queues = self.queues_for(message)
        for queue in queues:
            if queue.settings.limited:
                self._check_room(queue, message)
        return queues

    def check_room_for_all(self, sends: Iterable[tuple[Message, Iterable[Queue]]]) -> None:
        """Raises Refused unless every queue takes all of a transaction that is for it, and then nothing has become of any of it.

        Each message counts for the length limits that the ones after it meet.
        """
        expected: list[tuple[Queue, int]] = []
        try:
            for message, queues in sends:
                for queue in queues:
                    if queue.settings.limited:
                        self._check_room(queue)
                        queue.expect(1, message.size)
                        expected.append((queue, message.size))
        finally:
            for queue, size in expected:
                queue.expect(-1, -size)

    def _auto_created(self, name: str, known: bool) -> list[Queue]:
        settings, address = self._state.settings.resolve(name), self._state.post_office.addresses.get(name)
        if settings.default_address_routing_type == MULTICAST or (address is not None and address.routing_types == RoutingTypes.MULTICAST):
            if not known and not settings.auto_create_addresses:
                raise no_such_address(name)
            return []
        queue = self._resources.make_queue_for(name, name, "anycast")
        if queue is None and not known:
            raise no_such_address(name)
        return [queue] if queue is not None else []

    def _check_room(self, queue: Queue, message: Message | None = None) -> None:
        """Raises Refused where there is none; then the message, where it is named, goes to the dead letters if the overflow says so."""
        settings = queue.settings
        if settings.overflow == "block" or not over_length(queue, 1):
            return
        if makes_room(queue):
            return
        self._state.events.queue_full(queue)
        if message is not None and settings.overflow == "reject-publish-dlx":
            self._reject_to_dead_letters(queue, message)
        raise Refused(
            "queue-full",
            f"queue {queue.name} is full ({counted(queue.ready, 'message')}, {counted(queue.ready_bytes, 'byte')})",
            "send again later, raise max-length, or choose another overflow",
        )

    def _admits(self, queue: Queue, message: Message) -> bool:
        """Whether the queue takes this message on top; a refused one goes to the dead letters where the overflow says so."""
        try:
            self._check_room(queue, message)
        except Refused:
            return False
        return True

    def _reject_to_dead_letters(self, queue: Queue, message: Message) -> None:
        """overflow reject-publish-dlx: the refused message itself goes to the dead letters."""
        now_ms = self._state.now_ms()
        copy = Message(
            self._state.journal.next_id(),
            message.address,
            message.body,
            message.properties,
            message.priority,
            message.durable,
            now_ms,
            message.expires_at_ms,
            message.producer,
            properties_size=message.properties_size,
            extra=message.weight - message.size,
        )
        for reference in self._state.references.enter(copy, [queue], now_ms):
            self._office.dead_letter_all(queue, (reference,), MAX_LENGTH, now_ms, in_turn=False)
            if reference.where is Where.PARKED:  # nobody takes it, and it was refused anyway: its sender knows
                self._state.references.leave(reference, "dropped", now_ms, MAX_LENGTH)

    # -- in ----------------------------------------------------------------------------------------------------------

    def publish(self, route: Route, messages: list[Message], now_ms: int) -> int | None:
        """Stores messages that go one way, in order. Returns how many of the first, as there is room for in this turn (throttle.py); None,
        and nothing done, where each is to be looked at by itself.
        """
        if not route.plain:
            return None
        queues = route.queues
        if len(queues) == 1:
            self._state.enqueuing.arrive(messages, queues[0], now_ms)
            return len(messages)
        part = messages[: self._state.throttle.portion(len(queues))]
        return len(part) if not part or fan_out(self._state, part, queues, now_ms) else None

    def offer(self, producer: Producer | None, queues: list[Queue], message: Message, *, after_commit: bool = False) -> bool:
        """Stores it in those queues that take it; whether all did. Where one is full and has producers wait, this one gets no credit until
        there is room. ``after_commit``: see ``store``.
        """
        willing = [queue for queue in queues if self._admits(queue, message)]
        for queue in willing:
            if producer is not None and queue.settings.overflow == "block" and over_length(queue, 1):
                producer.address = queue.address
                producer.credit_messages = min(producer.credit_messages, 0)
        if willing:
            self.store(message, willing, after_commit=after_commit)
        return len(willing) == len(queues)

    def send(self, producer: Producer, first: int, messages: list[Message], now_ms: int) -> tuple[int, Refused] | None:
        """Stores messages numbered from ``first``; repeats are passed over. Returns (number, why) of a refused one, which ends the frame.

        A frame that does not begin where the numbering stands (what followed a refused message) is ignored.
        One of which the high watermark passes a part is to be sent again in a later turn (throttle.py), with nothing of it sent in between.
        """
        if not producer.settled_first:
            producer.settled_first = True
            producer.high_watermark = max(producer.high_watermark, first - 1)
        if first > producer.high_watermark + 1:
            return None
        fresh = messages[producer.high_watermark + 1 - first :] if first <= producer.high_watermark else messages
        if not fresh:
            return None
        stored, refused = self.take_in(producer, fresh, now_ms)
        producer.high_watermark += stored
        if stored:
            producer.used_at_ms = now_ms
            # A high watermark on disk may stand for nothing that a crash takes away.
            if any(message.kept for message in fresh[:stored]):
                self._state.journal.batch.producer_high_watermark(producer.key, producer.high_watermark, now_ms)
        return None if refused is None else (producer.high_watermark + 1, refused)

    def take_in(self, producer: Producer, messages: list[Message], now_ms: int) -> tuple[int, Refused | None]:
        """Stores messages to the producer's address that are not numbered; returns how many, and why the next one was refused.

        Where it is fewer than all and none was refused, the others are for a later turn (throttle.py).
        """
        stored, refused = self._store_first(messages, now_ms)
        if stored:
            self.sent(producer, messages[stored - 1])
        return stored, refused

    def sent(self, producer: Producer, last: Message) -> None:
        """It sent this last: a limit of what is of the same kind holds it back (flow_control.py)."""
        address = self._state.post_office.addresses.get(producer.address)
        self.sent_to(producer, last, address.queues if address is not None else [])

    def sent_to(self, producer: Producer, last: Message, queues: list[Queue]) -> None:
        """``sent``, to these queues."""
        # Of many two stand for all.
        kept = [queue.durable and (last.durable or queue.keeps_all) for queue in queues[:1] + queues[-1:]]
        producer.lasting, producer.passing = True in kept, False in kept

    def _store_first(self, messages: list[Message], now_ms: int) -> tuple[int, Refused | None]:
        """Stores messages to one address, in order; returns how many, and why the next one was refused.

        Where it is fewer than all and none was refused, the others are for a later turn (throttle.py).
        """
        post_office = self._state.post_office
        address = post_office.addresses.get(messages[0].address)
        route = None if address is None else address.route_of_all(post_office.settings_stand)
        if route is not None and route.plain and not [message for message in messages if message.delay_ms or message.duplicate_id]:
            stored = self.publish(route, messages, now_ms)
            if stored is not None:
                return stored, None
        return self._each(messages)

    def _each(self, messages: list[Message]) -> tuple[int, Refused | None]:
        """One at a time, as each is to be looked at. Those for one queue are little enough not to wait for those for many."""
        room, address = self._state.throttle.room, self._state.post_office.addresses.get(messages[0].address)
        queues = len(address.queues) if address is not None else 0
        asks = address is not None and address.look_cost(0) > 0
        for number, message in enumerate(messages):
            if number >= REFERENCES_A_TURN if queues < 2 and not asks else not room(queues):
                return number, None
            if asks and address is not None and not self._asked(address, message):
                return number, None
            try:
                if not self.duplicate(message):
                    self.store(message, self._willing_queues(message))
            except Refused as refusal:
                return number, refusal
        return len(messages), None

    def _asked(self, address: Address, message: Message) -> bool:
        """Whether all selectors have been asked; one message may be more than a turn's work."""
        throttle = self._state.throttle
        budget = throttle.room(1) * COST_OF_A_REFERENCE
        cost = address.ask(message, budget)
        throttle.spend(cost)
        return cost < budget

    def store(self, message: Message, queues: list[Queue], *, after_commit: bool = False) -> None:
        """Joins one message to its queues. ``after_commit``: it may be dispatched only once its batch is on disk."""
        state = self._state
        now_ms = state.now_ms()
        message.message_id = state.journal.next_id()
        if len(queues) > 1:
            state.throttle.spend(COST_OF_EACH * len(queues))
        self._note_duplicate_id(message, queues)
        due_at_ms = now_ms + message.delay_ms if message.delay_ms > 0 else None
        references = state.references.enter(message, queues, now_ms, due_at_ms=due_at_ms, expires_at_ms=message.expires_at_ms)
        if due_at_ms is not None:
            # It may go on to wait on disk only: its time must be there (pager.py). Length limits do not count it.
            state.enqueuing.enqueue_when_safe(references)
            return
        later: list[MessageReference] = []
        for reference in references:
            if after_commit or reference.queue.settings.persist_delivery_count_before_delivery:
                reference.queue.expect(1, message.size)
                later.append(reference)
            else:
                state.enqueuing.enqueue((reference,), fresh=True)
                self._office.trim(reference.queue)
        if later:
            state.enqueuing.arrive_when_safe(later)
            self._office.trim_when_safe([reference.queue for reference in later])
