"""Taking messages in: duplicates, expiration, routing, length limits; one at a time from a producer, or all of a transaction."""

from __future__ import annotations

from collections.abc import Callable

from ..core.message import Message, MessageReference, lookup
from ..core.producer import Producer
from ..core.queue import Queue
from ..core.routing import Address, PostOffice, Route
from ..entries.enqueuing import Enqueuing
from ..entries.references import References
from ..entries.throttle import COST_OF_A_REFERENCE, COST_OF_EACH, REFERENCES_A_TURN, Throttle
from ..errors import Refused
from ..recording.journal_port import JournalPort
from ..topology.resources import Resources, over_length
from .dead_lettering import DeadLetterOffice
from .duplicate_ids import DuplicateIds
from .fan_out import FanOut
from .overflow import Overflow


class Storing:
    """One message joins its queues."""

    def __init__(
        self,
        journal: JournalPort,
        references: References,
        enqueuing: Enqueuing,
        throttle: Throttle,
        office: DeadLetterOffice,
        duplicate_ids: DuplicateIds,
        now_ms: Callable[[], int],
    ) -> None:
        self._journal = journal
        self._references = references
        self._enqueuing = enqueuing
        self._throttle = throttle
        self._office = office
        self._duplicate_ids = duplicate_ids
        self._now_ms = now_ms

    def store(self, message: Message, queues: list[Queue], *, after_commit: bool = False) -> None:
        """Joins one message to its queues. ``after_commit``: it may be dispatched only once its batch is on disk."""
        now_ms = self._now_ms()
        message.message_id = self._journal.next_id()
        if len(queues) > 1:
            self._throttle.spend(COST_OF_EACH * len(queues))
        self._duplicate_ids.note(message, queues)
        due_at_ms = now_ms + message.delay_ms if message.delay_ms > 0 else None
        references = self._references.enter(message, queues, now_ms, due_at_ms=due_at_ms, expires_at_ms=message.expires_at_ms)
        if due_at_ms is not None:
            # It may go on to wait on disk only: its time must be there (pager.py). Length limits do not count it.
            self._enqueuing.enqueue_when_safe(references)
            return
        later: list[MessageReference] = []
        for reference in references:
            if after_commit or reference.queue.settings.persist_delivery_count_before_delivery:
                reference.queue.expect(1, message.size)
                later.append(reference)
            else:
                self._enqueuing.enqueue((reference,), fresh=True)
                self._office.trim(reference.queue)
        if later:
            self._enqueuing.arrive_when_safe(later)
            self._office.trim_when_safe([reference.queue for reference in later])


class Intake:
    def __init__(
        self,
        journal: JournalPort,
        post_office: PostOffice,
        resources: Resources,
        throttle: Throttle,
        enqueuing: Enqueuing,
        fan_out: FanOut,
        overflow: Overflow,
        storing: Storing,
        duplicate_ids: DuplicateIds,
    ) -> None:
        self._journal = journal
        self._post_office = post_office
        self._resources = resources
        self._throttle = throttle
        self._enqueuing = enqueuing
        self._fan_out = fan_out
        self.overflow = overflow
        self._storing = storing
        self.duplicate_ids = duplicate_ids

    # -- where to ----------------------------------------------------------------------------------------------------

    def queues_for(self, message: Message) -> list[Queue]:
        """The queues that the message is for, full ones too; made if the settings allow. Raises Refused: no such address."""
        post_office = self._post_office
        address = post_office.addresses.get(message.address)
        if address is None or not address.queues:
            queues = self._resources.make_for_send(message.address)
        else:
            queues = address.route(lambda: lookup(message), message.answers)
            message.answers = None
        return queues

    def _willing_queues(self, message: Message) -> list[Queue]:
        """Those that take it. Raises Refused where one does not."""
        queues = self.queues_for(message)
        for queue in queues:
            if queue.settings.limited:
                self.overflow.check(queue, message)
        return queues

    # -- in ----------------------------------------------------------------------------------------------------------

    def publish(self, route: Route, messages: list[Message], now_ms: int) -> int | None:
        """Stores messages that go one way, in order. Returns how many of the first, as there is room for in this turn (throttle.py); None,
        and nothing done, where each is to be looked at by itself.
        """
        if not route.plain:
            return None
        queues = route.queues
        if len(queues) == 1:
            self._enqueuing.arrive(messages, queues[0], now_ms)
            return len(messages)
        part = messages[: self._throttle.portion(len(queues))]
        return len(part) if not part or self._fan_out.store(part, queues, now_ms) else None

    def offer(self, producer: Producer | None, queues: list[Queue], message: Message, *, after_commit: bool = False) -> bool:
        """Stores it in those queues that take it; whether all did. Where one is full and has producers wait, this one gets no credit until
        there is room. ``after_commit``: see Storing.store.
        """
        willing = [queue for queue in queues if self.overflow.admits(queue, message)]
        for queue in willing:
            if producer is not None and queue.settings.overflow == "block" and over_length(queue, 1):
                producer.address = queue.address
                producer.credit_messages = min(producer.credit_messages, 0)
        if willing:
            self._storing.store(message, willing, after_commit=after_commit)
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
                self._journal.batch.producer_high_watermark(producer.key, producer.high_watermark, now_ms)
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
        address = self._post_office.addresses.get(producer.address)
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
        post_office = self._post_office
        address = post_office.addresses.get(messages[0].address)
        route = None if address is None else address.route_of_all(post_office.settings_stand)
        if route is not None and route.plain and not [message for message in messages if message.delay_ms or message.duplicate_id]:
            stored = self.publish(route, messages, now_ms)
            if stored is not None:
                return stored, None
        return self._each(messages)

    def _each(self, messages: list[Message]) -> tuple[int, Refused | None]:
        """One at a time, as each is to be looked at. Those for one queue are little enough not to wait for those for many."""
        room, address = self._throttle.room, self._post_office.addresses.get(messages[0].address)
        queues = len(address.queues) if address is not None else 0
        asks = address is not None and address.look_cost(0) > 0
        for number, message in enumerate(messages):
            if number >= REFERENCES_A_TURN if queues < 2 and not asks else not room(queues):
                return number, None
            if asks and address is not None and not self._asked(address, message):
                return number, None
            try:
                if not self.duplicate_ids.known(message):
                    self._storing.store(message, self._willing_queues(message))
            except Refused as refusal:
                return number, refusal
        return len(messages), None

    def _asked(self, address: Address, message: Message) -> bool:
        """Whether all selectors have been asked; one message may be more than a turn's work."""
        throttle = self._throttle
        budget = throttle.room(1) * COST_OF_A_REFERENCE
        cost = address.ask(message, budget)
        throttle.spend(cost)
        return cost < budget
