"""Queue: pending, delivering, scheduled and parked references, and who gets the next one.

Only state changes here; ``dispatch`` returns what is to be handed over and the broker does the I/O afterwards.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Final, NamedTuple

from homing.journal.declarations import QueueOptions

from .amqp.policy import Policy
from .consumer import Consumer, by_priority
from .counts import none_yet
from .message import DELIVERING, GONE, IN_COMMIT, PENDING, MessageReference, Where
from .pending import PRIORITIES, Pending
from .selector import Selector
from .settings.address_settings import AddressSettings
from .standing import Standing
from .suspects import UNTIL_FREE, Awaited, Look

#: Bodies handed to one consumer in one dispatch; keeps a turn of the loop and a socket's buffer small.
DISPATCH_BYTES: Final = 256 * 1024
#: What one dispatch may look at: so many messages, or so many that ordinary selectors are asked about (Selector.cost).
SCAN_BUDGET: Final = 2000
#: Taken at a time: where some of these have expired, the next are looked at later. One of those takes as long as so many handed out.
_RUN: Final = 500
_EXPIRED_COST: Final = 4
#: Up to so many for each of several consumers are dealt out one by one, in turn; of more each gets its share at once, which costs less.
FEW: Final = 16


class Dispatch(NamedTuple):
    """What one dispatch decided: deliveries in the order they are made, expired references met on the way, whether there is more to do;
    and what its selectors cost, as Selector.cost counts."""

    deliveries: list[tuple[Consumer, list[MessageReference]]]
    expired: list[MessageReference]
    more: bool
    cost: int


#: Of most queues of a turn: nobody consumes from them, or nothing is here. Nobody adds to it.
_NOTHING: Final = Dispatch([], [], False, 0)


class _Look:
    """One dispatch, as far as it has come. ``unasked``: the first consumer that there was no time for; ``last``: who was dealt to last."""

    __slots__ = ("_pending", "_queue", "budget", "by_consumer", "cost", "expired", "last", "more", "now_ms", "unasked")

    def __init__(self, queue: Queue, now_ms: int, budget: int, expired: list[MessageReference], cost: int) -> None:
        self._queue = queue
        self._pending = queue.pending
        self.now_ms = now_ms
        self.budget = budget
        self.expired = expired
        #: As Selector.cost counts.
        self.cost = cost
        self.by_consumer: dict[Consumer, list[MessageReference]] = {}
        self.more = False
        self.unasked: Consumer | None = None
        self.last: Consumer | None = None

    def serve(self, consumer: Consumer, share: int) -> bool:
        """Up to ``share`` messages for one consumer; whether it is to be asked again in this look."""
        if consumer.selector is not None and self.cost >= SCAN_BUDGET:
            self.unasked = self.unasked or consumer
            return False
        limit, gone, shared = min(consumer.credit, share, self.budget), len(self.expired), consumer.shared
        if shared is not None and shared.limit:
            limit = min(limit, shared.part_for(consumer))
        taken = self._take(consumer, limit)
        self.budget -= len(taken) + _EXPIRED_COST * (len(self.expired) - gone)
        if not taken:
            # Nothing but expired ones, as many as one look takes: what is behind them follows in the next turn.
            self.more = self.more or (consumer.selector is None and self._pending.count > 0 and len(self.expired) > gone)
            return False
        sent = self.by_consumer.setdefault(consumer, [])
        sent += taken
        if sum([reference.message.size for reference in sent]) >= DISPATCH_BYTES:
            self.more = True
            return False
        if shared is not None and shared.limit:
            # Those of other queues that share its window have their turn first.
            self.more = self.more or (self._pending.count > 0 and consumer.wants)
            return False
        # A consumer with a selector has looked at as much as it may for now; what is left follows in the next turn.
        return consumer.selector is None and self._pending.count > 0 and consumer.wants

    def are_few(self, ready: list[Consumer]) -> bool:
        """Whether there are several consumers that take whatever comes, and for each of them not more than a few of what is here."""
        count = self._pending.count
        if len(ready) < 2 or not 0 < count <= min(self.budget, FEW * len(ready)) or self._pending.bytes >= DISPATCH_BYTES:
            return False
        return all(
            c.selector is None and not c.priority and not (c.shared and c.shared.limit) and c.credit * len(ready) >= count for c in ready
        )

    def deal(self, ready: list[Consumer]) -> list[tuple[Consumer, list[MessageReference]]]:
        """All that is here, one by one to each in turn."""
        dealt: list[MessageReference] = []
        for reference in self._pending.take(DELIVERING, FEW * len(ready) + 1, DISPATCH_BYTES):
            if not _is_over(reference, self.now_ms, self.expired):
                ready[len(dealt) % len(ready)].dispatch((reference,), self.now_ms)
                dealt.append(reference)
        if not dealt:
            return []
        self._queue.delivering += len(dealt)
        self.last = ready[(len(dealt) - 1) % len(ready)]
        if len({consumer.connection for consumer in ready}) < len(ready):
            # They may share a channel, and there what is written has the order of the messages.
            return [(ready[number % len(ready)], [reference]) for number, reference in enumerate(dealt)]
        return [(consumer, mine) for number, consumer in enumerate(ready) if (mine := dealt[number :: len(ready)])]

    def _take(self, consumer: Consumer, limit: int) -> list[MessageReference]:
        """Up to ``limit`` references, dispatched to the consumer; the ones that have expired go to ``expired`` instead."""
        selector = consumer.selector
        taken = self._take_next(limit) if selector is None else self._take_matching(consumer, selector, limit)
        consumer.dispatch(taken, self.now_ms)
        self._queue.delivering += len(taken)
        return taken

    def _take_next(self, limit: int) -> list[MessageReference]:
        taken: list[MessageReference] = []
        pending, expired, scanned = self._pending, self.expired, 0
        before = pending.bytes
        gone = len(expired)
        while len(taken) < limit and before - pending.bytes < DISPATCH_BYTES and scanned < SCAN_BUDGET and len(expired) == gone:
            came = pending.take(DELIVERING, min(limit - len(taken), SCAN_BUDGET - scanned, _RUN), DISPATCH_BYTES - before + pending.bytes)
            if not came:
                break
            scanned += len(came)
            taken += [each for each in came if each.expires_at_ms is None or not _is_over(each, self.now_ms, expired)]
        return taken

    def _take_matching(self, consumer: Consumer, selector: Selector, limit: int) -> list[MessageReference]:
        taken: list[MessageReference] = []
        size, passed = 0, 0
        while consumer.candidates and len(taken) < limit and size < DISPATCH_BYTES and self.cost < SCAN_BUDGET and passed < SCAN_BUDGET:
            passed += 1
            reference = self._next_candidate(consumer, selector)
            if reference is not None and not _is_over(reference, self.now_ms, self.expired):
                size += reference.message.size
                taken.append(reference)
        return taken

    def _next_candidate(self, consumer: Consumer, selector: Selector) -> MessageReference | None:
        """Takes the next pending reference if the consumer's selector matches it; None when the one looked at was none."""
        reference = self._queue.references.get(heapq.heappop(consumer.candidates)[1])
        if reference is None or reference.where is not PENDING or reference.suspect:
            return None
        self.cost += selector.cost(reference.message.properties_size)
        if not selector.matches(reference.lookup()):
            return None
        self._pending.remove(reference, Where.DELIVERING)
        return reference


class Queue:
    __slots__ = (
        "_asked_first",
        "_suspects_asked",
        "address",
        "apart",
        "arriving",
        "arriving_bytes",
        "auto_created",
        "committing",
        "consumers",
        "counts",
        "created_at_ms",
        "dead",
        "dead_lettering",
        "delivering",
        "due_horizon",
        "due_on_disk",
        "durable",
        "expiry_on_disk_ms",
        "first_due_ms",
        "highest_priority",
        "idle_since_ms",
        "keeps_all",
        "lowest_priority",
        "memory_bytes",
        "name",
        "on_hold",
        "on_hold_on_disk",
        "options",
        "parked",
        "paused",
        "pending",
        "policy",
        "queue_id",
        "references",
        "routing_type",
        "scheduled",
        "selector",
        "sends",
        "settings",
        "shut",
        "standing",
        "suspects",
        "used_at_ms",
    )

    def __init__(
        self,
        queue_id: int,
        name: str,
        address: str,
        routing_type: str,
        settings: AddressSettings,
        *,
        created_at_ms: int,
        selector: Selector | None = None,
        durable: bool = True,
        auto_created: bool = False,
        options: QueueOptions | None = None,
        priorities: tuple[int, int] = (0, PRIORITIES - 1),
        keeps_all: bool = False,
    ) -> None:
        """``priorities``: the lowest and the highest that are distinguished; what is beyond counts as the nearer of the two."""
        self.queue_id = queue_id
        self.name = name
        self.address = address
        self.routing_type = routing_type
        #: In force: the address's settings with what the queue was declared with on top.
        self.settings = settings
        #: AMQP's policy that holds for it; what it sets is in ``settings`` already.
        self.policy: Policy | None = None
        self.selector, self.durable = selector, durable
        #: Whatever is in it is durable, whatever its sender wanted.
        self.keeps_all = keeps_all and durable
        self.auto_created, self.options = auto_created, options or {}
        self.standing = Standing()  # falls when it is removed
        self.created_at_ms = created_at_ms
        #: By command; and while very much that comes back is put in its place (delivery/settling.py).
        self.paused = self.shut = False
        #: See counts.COUNTED; and whether what was sent to it so far was meant to be durable by its senders, in bits of counts.py.
        self.counts, self.sends = none_yet(), 0
        self.consumers: list[Consumer] = []
        self.lowest_priority, self.highest_priority = priorities
        # What the journal kept of a queue may have any of the ten that every queue once had.
        self.pending = Pending(max(PRIORITIES, self.highest_priority + 1))
        #: By sequence; and the connections that are given nothing more until then, for one of them: see suspects.py.
        self.suspects: dict[int, MessageReference] = {}
        self.apart: dict[str, int] = {}
        self.parked: dict[int, MessageReference] = {}
        #: Every reference in memory, in whatever state, by sequence. ``count`` has those on disk too.
        self.references: dict[int, MessageReference] = {}
        #: What these take, each with its whole message, though other queues may have that too.
        self.memory_bytes = 0
        #: Messages with a due time that are only on disk: all of them due beyond the horizon, a (ms, sequence).
        self.due_on_disk = 0
        self.due_horizon = (0, 0)
        #: None of them is due before this; None: not known, a page is on its way.
        self.first_due_ms: int | None = None
        #: No message that is only on disk expires before this; None: none does.
        self.expiry_on_disk_ms: int | None = None
        self.scheduled = self.delivering = 0
        #: Of those with a due time, what waits until it is released: in memory, and only on disk.
        self.on_hold = self.on_hold_on_disk = 0
        #: Acknowledged by a commit that is on its way to the disk: shown as delivering until it is there.
        self.committing = 0
        #: Of ``count``: dead letters (MessageReference.is_dead), which nobody has sent back yet.
        self.dead = 0
        #: Deaths whose messages are on their way elsewhere, and not there before that is on disk.
        self.dead_lettering = 0
        #: New messages that become pending when the batch with their arrival is on disk; length limits count them already.
        self.arriving = self.arriving_bytes = 0
        #: Since when the queue has been unused; None while it is in use or not looked at yet.
        self.idle_since_ms: int | None = None
        self.used_at_ms = created_at_ms
        #: Who is next; where the look at the suspects goes on that cost too much.
        self._asked_first = self._suspects_asked = 0

    @property
    def last_policy(self) -> str | None:
        """What is told to the journal of its policy: its name, where it is not sure to be found out again in time."""
        return self.policy.name if self.policy is not None and self.policy.pattern.bounded else None

    @property
    def priority_bounds(self) -> tuple[int, int]:
        """The lowest and the highest priority."""
        return self.lowest_priority, self.highest_priority

    def priority_of(self, priority: int) -> int:
        """What a message's priority counts as here."""
        return min(max(priority, self.lowest_priority), self.highest_priority)

    @property
    def count(self) -> int:
        """Messages in whatever state, in memory or on disk."""
        return len(self.references) + self.pending.disk_count + self.due_on_disk

    @property
    def ready(self) -> int:
        """Messages that could be handed out now."""
        return self.pending.count + self.pending.disk_count + len(self.suspects)

    @property
    def ready_bytes(self) -> int:
        """Their bodies and properties; suspects apart."""
        return self.pending.bytes + self.pending.disk_bytes

    @property
    def waiting(self) -> int:
        """Messages whose time is still to come, or that are on hold."""
        return self.scheduled + self.due_on_disk

    @property
    def held_back(self) -> int:
        """Messages on hold, in memory or on disk."""
        return self.on_hold + self.on_hold_on_disk

    # -- in ----------------------------------------------------------------------------------------------------------

    def expect(self, messages: int, size: int) -> None:
        """So many more new messages, and bytes, are on their way in; negative when they have come, or will not."""
        self.arriving += messages
        self.arriving_bytes += size

    def append(self, reference: MessageReference) -> None:
        """A new arrival becomes pending."""
        self.pending.append(reference)
        self._offer_all((reference,))

    def append_all(self, references: list[MessageReference], size: int) -> None:
        """New arrivals, a frame's worth, of messages of ``size`` bytes."""
        self.pending.append_all(references, size)
        self._offer_all(references)

    def append_page(self, references: list[MessageReference]) -> None:
        """What was only on disk becomes pending: a page of one priority, in order."""
        self.pending.append_page(references)
        self._offer_all(references)

    def put_back(self, references: list[MessageReference]) -> None:
        """Returned messages become pending at their original places; a suspect waits for a consumer of its own."""
        others: list[MessageReference] = []
        for reference in references:
            if reference.suspect:
                reference.where = Where.PENDING
                self.suspects[reference.sequence] = reference
            else:
                others.append(reference)
        self.pending.put_back(others)
        self._offer_all(others)

    def _offer_all(self, references: Sequence[MessageReference]) -> None:
        for consumer in self.consumers:
            if consumer.selector is not None:
                for reference in references:
                    consumer.offer(reference)

    # -- out of a state ----------------------------------------------------------------------------------------------

    def withdraw(self, reference: MessageReference, to: Where) -> None:
        """Takes a reference out of the state it stands in, whatever that is; its counts follow."""
        match reference.where:
            case Where.PENDING:
                if self.suspects.pop(reference.sequence, None) is None:
                    self.pending.remove(reference, to)
            case Where.SCHEDULED:
                self.scheduled -= 1
                self.on_hold -= reference.on_hold
            case Where.PARKED:
                del self.parked[reference.sequence]
                reference.park_reason = ""
            case Where.DELIVERING:
                self.delivering -= 1
                consumer = reference.consumer
                if consumer is not None:
                    self._released(consumer)
                    consumer.release((reference,))
            case _:
                pass
        reference.where = to

    def release(self, consumer: Consumer, references: list[MessageReference]) -> None:
        """Settled references leave a consumer's window."""
        self._released(consumer)
        consumer.release(references)
        self.delivering -= len(references)

    def _released(self, consumer: Consumer) -> None:
        """Something of its connection is settled: the suspect, if it holds one."""
        if self.apart and self.apart.get(consumer.connection, UNTIL_FREE) != UNTIL_FREE:
            del self.apart[consumer.connection]

    def end(self) -> list[MessageReference]:
        """It is removed: nothing in memory stands in any state any more, and nobody holds any of it. Returns what that was."""
        gone, last = list(self.references.values()), None
        for reference in gone:
            reference.where = GONE
            if reference.consumer is not last:
                last = reference.consumer
                if last is not None and last.unsettled:
                    self._released(last)
                    last.release_all()
        self.pending = Pending(len(self.pending.on_disk))
        self.suspects, self.parked = {}, {}
        self.scheduled = self.on_hold = self.delivering = 0
        return gone

    # -- consumers ---------------------------------------------------------------------------------------------------

    def attach(self, consumer: Consumer) -> None:
        consumer.queue = self
        consumer.scanned = [0] * len(self.pending.on_disk)
        self.consumers.append(consumer)
        self.idle_since_ms = None
        if consumer.selector is not None:
            for reference in self.pending:
                consumer.offer(reference)

    def detach(self, consumer: Consumer, now_ms: int) -> None:
        if self.apart.get(consumer.connection) == UNTIL_FREE:
            del self.apart[consumer.connection]
        consumer.open = False
        consumer.candidates.clear()
        if consumer in self.consumers:
            self.consumers.remove(consumer)
        self.used_at_ms = now_ms

    # -- dispatch ----------------------------------------------------------------------------------------------------

    def dispatch(self, now_ms: int, budget: int) -> Dispatch:
        """Hands pending messages to consumers with credit and a writable socket, fairly, at most ``budget`` of them."""
        if self.paused or self.shut or not self.consumers or not (self.pending.count or self.suspects or self.apart):
            return _NOTHING
        deliveries: list[tuple[Consumer, list[MessageReference]]] = []
        expired: list[MessageReference] = []
        cost = self._assign_suspects(now_ms, deliveries, expired) if self.suspects or self.apart else 0
        begin = self._asked_first % len(self.consumers)
        order = self.consumers[begin:] + self.consumers[:begin]
        if self.apart:
            order = [consumer for consumer in order if not self.is_apart(consumer.connection, now_ms)]
        ready = [consumer for consumer in order if consumer.wants]
        look = _Look(self, now_ms, budget, expired, cost)
        if look.are_few(ready):
            deliveries += look.deal(ready)
            if look.last is not None:
                self._asked_first = self.consumers.index(look.last) + 1
            return Dispatch(deliveries, expired, False, look.cost)
        for level in by_priority(ready):
            while level and self.pending.count and look.budget > 0:
                share = max(1, min(look.budget, self.pending.count) // len(level))
                level = [consumer for consumer in level if look.budget > 0 and look.serve(consumer, share)]
            if look.more:
                break
        if look.unasked is not None:
            self._asked_first = self.consumers.index(look.unasked)
        elif look.by_consumer:
            self._asked_first = begin + 1
        more = look.more or (self.pending.count > 0 and look.budget <= 0) or any(c.candidates and c.wants for c in order)
        return Dispatch([*deliveries, *look.by_consumer.items()], expired, more, look.cost)

    def take_next(self, connection: str, now_ms: int, holds_some: bool) -> MessageReference | None:
        """The next in line for a connection that asks for just one; it stands in DELIVERING. A suspect is for one that holds nothing."""
        if self.apart and self.is_apart(connection, now_ms):
            return None
        reference = min(self.suspects.values()) if self.suspects and not holds_some else self.pending.pop(DELIVERING)
        if reference is None:
            return None
        if reference.suspect:
            self.withdraw(reference, Where.DELIVERING)
            if not reference.expired(now_ms):
                self.apart[connection] = now_ms + self.settings.suspect_timeout_ms
        self.delivering += 1
        return reference

    # -- suspects ----------------------------------------------------------------------------------------------------

    def is_apart(self, connection: str, now_ms: int) -> bool:
        """Whether the connection is given nothing now, for a suspect that it holds, or is to get."""
        return self.apart.get(connection, 0) > now_ms

    def awaited(self, now_ms: int) -> Awaited | None:
        """What its suspects wait for: the one that makes room, or else who is watched for the shortest time. None: nobody is."""
        ends = [(until_ms != UNTIL_FREE, until_ms, connection) for connection, until_ms in self.apart.items() if until_ms > now_ms]
        if not ends:
            return None
        has_suspect, _, connection = min(ends)
        held = sum([len(consumer.unsettled) for consumer in self.consumers if consumer.connection == connection])
        return Awaited(connection, held or int(has_suspect), has_suspect)

    def _assign_suspects(
        self, now_ms: int, deliveries: list[tuple[Consumer, list[MessageReference]]], expired: list[MessageReference]
    ) -> int:
        """Returns what that cost."""
        look = Look(self.consumers, self.apart)
        assigned = look.assign(self.suspects.values(), now_ms, now_ms + self.settings.suspect_timeout_ms, self._suspects_asked)
        self._suspects_asked = assigned.asked
        for reference in assigned.expired:
            self.withdraw(reference, Where.IN_COMMIT)
            expired.append(reference)
        for taker, reference in assigned.deliveries:
            self.withdraw(reference, Where.DELIVERING)
            self.delivering += 1
            taker.dispatch((reference,), now_ms)
            deliveries.append((taker, [reference]))
        return assigned.cost


def _is_over(reference: MessageReference, now_ms: int, expired: list[MessageReference]) -> bool:
    """Whether its time to live ran out before anybody got it; it is among ``expired`` then, and stands in IN_COMMIT."""
    if reference.expires_at_ms is None or reference.expires_at_ms > now_ms or reference.now_or_never():
        return False
    reference.where = IN_COMMIT
    expired.append(reference)
    return True
