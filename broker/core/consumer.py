"""Consumer: one subscription to one queue, and its credit.

``credit = prefetch + extension - unsettled - returning`` (ActiveMQ Classic's window with prefetch extension); prefetch 0 is pull, where
each pull is one credit. Every delivery has its own tag, so that a stale acknowledgement can never settle a later delivery.

What a consumer gives back to go out again at once is *returning* until it stands in its place, which takes a commit. Meanwhile the consumer
gets only as many as came back of what it returned before: whatever else it got would overtake what is on the way.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Collection, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, cast

from homing.journal.contract import Program

from .message import IN_COMMIT, REFERENCE_BYTES, MessageReference, Where
from .redelivery import ConsumerPolicy
from .selector import Selector

if TYPE_CHECKING:
    from .queue import Queue


#: Room in a window without a limit.
_UNLIMITED: Final = 1 << 30


class Sink(Protocol):
    """Where a consumer's deliveries go: the session of the connection it lives on."""

    @property
    def writable(self) -> bool: ...

    def deliver(self, consumer: Consumer, references: list[MessageReference]) -> None: ...


class Pace(NamedTuple):
    """How fast a consumer is, where its queue's settings ask (slow_consumer.py): how many it had settled when a check period began, whether
    there was enough to do for it then, why it was slow in the one before (empty: it was not); and whether it is slow now."""

    at_ms: int
    settled: int
    busy: bool
    by_rate: str
    slow: bool = False


class ConsumerOptions(NamedTuple):
    """What a consumer asks for, from the wire to its queue."""

    #: None: as the settings of its queue say.
    prefetch: int | None = None
    selector: str | None = None
    #: Of redelivery; None: as its connection brought one for the queue's address, or none.
    policy: ConsumerPolicy | None = None
    session: int = 0
    transacted: bool = False
    priority: int = 0
    #: It gets nothing until those before it are gone.
    waits: bool = False
    #: Of a topic: the queue of a durable subscription; None: its queue goes with it.
    durable: str | None = None
    #: In one that goes: how many may wait, beside as many as the prefetch lets through; the oldest give way. None: all.
    most_waiting: int | None = None


#: All as it is where nobody asks.
AS_EVER: Final = ConsumerOptions()


class SharedWindow:
    """What several consumers may hold unsettled together (a channel's prefetch in AMQP). ``limit`` 0: no limit.

    A consumer without acknowledgements holds nothing, and yet waits while there is no room, as with RabbitMQ.
    """

    def __init__(self) -> None:
        self.limit = 0
        #: Whoever was dispatched to last is last.
        self._consumers: dict[int, Consumer] = {}

    def join(self, consumer: Consumer) -> None:
        self._consumers[consumer.number] = consumer
        consumer.shared = self

    def leave(self, consumer: Consumer) -> None:
        self._consumers.pop(consumer.number, None)

    def was_served(self, consumer: Consumer) -> None:
        """It comes last from here on."""
        if consumer.number in self._consumers:
            self._consumers[consumer.number] = self._consumers.pop(consumer.number)

    def by_least_held(self) -> list[Consumer]:
        """The open consumers, in the order in which new room is offered to them: who holds least, and of equals who has waited longest."""
        return sorted([consumer for consumer in self._consumers.values() if consumer.open], key=self._held)

    def _held(self, consumer: Consumer) -> int:
        return 0 if consumer.holds_nothing else len(consumer.unsettled) + consumer.returning

    def room_for(self, consumer: Consumer) -> int:
        """How many more it might hold if nobody else took any."""
        room = self.limit - sum([self._held(each) for each in self._consumers.values()]) if self.limit else _UNLIMITED
        return _UNLIMITED if room > 0 and consumer.holds_nothing else room

    def part_for(self, consumer: Consumer) -> int:
        """How many more it may hold where all that could get some now are to hold alike; one at least while there is room."""
        room = self.room_for(consumer)
        if not self.limit or room <= 1 or consumer.holds_nothing:
            return room
        hungry = [each for each in self._consumers.values() if each is consumer or (each.open and each.queue.pending.count)]
        alike = (room + sum([self._held(each) for each in hungry])) // len(hungry)
        return min(room, max(1, alike - self._held(consumer)))


class HeldBytes:
    """What the closed consumers of one connection hold still, those of single gets among them."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


class Client(NamedTuple):
    """What the program behind a connection says of itself; empty: nothing."""

    client_id: str = ""
    host: str = ""
    version: str = ""

    def describe(self) -> Program | None:
        """What is not empty, by name."""
        found = {name: value for name, value in zip(self._fields, self, strict=True) if value}
        return cast(Program, found) if found else None


NOBODY: Final = Client()


class Library(NamedTuple):
    """What the client's library says of itself."""

    product: str = ""
    version: str = ""
    #: The library that ``homing.integrations`` has made to report failures, and its version; empty: none.
    instrumented: str = ""


class Consumer:
    __slots__ = (
        "accompanied_to",
        "back",
        "candidates",
        "client",
        "connection",
        "delivered_to",
        "extension",
        "follows",
        "held_bytes",
        "holds_nothing",
        "ignored",
        "kept",
        "name",
        "next_tag",
        "number",
        "oldest_delivered_ms",
        "open",
        "pace",
        "policy",
        "prefetch",
        "priority",
        "pulls",
        "queue",
        "reports",
        "retired",
        "returning",
        "returns_at_once",
        "scanned",
        "selector",
        "session",
        "shared",
        "sink",
        "stats_name",
        "tag",
        "timeout_ms",
        "too_large",
        "transacted",
        "unsettled",
    )

    queue: Queue

    def __init__(
        self,
        number: int,
        connection: str,
        sink: Sink,
        prefetch: int,
        selector: Selector | None = None,
        options: ConsumerOptions = AS_EVER,
        kept: HeldBytes | None = None,
        returns_at_once: bool = False,
        client: Client = NOBODY,
    ) -> None:
        self.number = number
        self.connection = connection
        self.name = f"{connection}/{number}"
        #: AMQP's, by which its client knows it.
        self.tag = ""
        self.client = client.describe()
        #: Whom successes and failures are counted for: the name of a consumer comes again after a restart.
        self.stats_name = json.dumps([self.name, *client], ensure_ascii=False) if self.client else self.name
        self.sink = sink
        self.prefetch = prefetch
        self.selector = selector
        self.policy = options.policy
        self.session = options.session
        self.transacted = options.transacted
        #: What it returns is there again at once, as with RabbitMQ, unless a delay is meant.
        self.returns_at_once = returns_at_once
        #: A limit that several consumers have together; None: only its own.
        self.shared: SharedWindow | None = None
        #: What it is given is settled at once.
        self.holds_nothing = False
        self.open = True
        #: Of the consumers that want messages the higher ones are served first.
        self.priority = options.priority
        #: After so long what it was delivered comes back; None: as its queue says.
        self.timeout_ms: int | None = None
        #: Names of arguments that it was asked for with and that have no effect.
        self.ignored: tuple[str, ...] = ()
        #: How many of its failures came with a report.
        self.reports = 0
        self.extension = self.pulls = 0
        #: Messages that were not handed to it, because its client takes none of their size.
        self.too_large = 0
        self.pace: Pace | None = None
        self.next_tag = 1
        #: Every tag up to this one has been delivered to the application.
        self.delivered_to = 0
        #: Every tag up to this one was held beside something of its queue that came back when another channel closed.
        self.accompanied_to = 0
        #: A lower bound of when the oldest unsettled message was delivered; None when none is.
        self.oldest_delivered_ms: int | None = None
        self.unsettled: dict[int, MessageReference] = {}
        #: So many that it gave back, to go out again at once, are on the way to their places (Enqueuing.take_back).
        self.returning = 0
        #: Meanwhile: so many that it gave back before stand in their places, and it may have as many.
        self.back = 0
        #: Those that were a queue's single active one before it: what they held is to be settled, or in its place, before it gets anything.
        self.follows: tuple[Consumer, ...] = ()
        #: What it holds takes in memory.
        self.held_bytes = 0
        #: What the closed consumers of its connection hold; once it is ``retired``, what it holds is a part of that.
        self.kept = HeldBytes() if kept is None else kept
        self.retired = False
        #: Selector consumers: (rank, sequence) heap of pending references not looked at yet. It keeps nothing of those that went elsewhere.
        self.candidates: list[tuple[int, int]] = []
        #: And by priority, up to which sequence they have looked at what is only on disk.
        self.scanned: list[int] = []

    @property
    def credit(self) -> int:
        if self.prefetch:
            own = self.prefetch + self.extension - len(self.unsettled) - self.returning
            if self.shared is not None and self.shared.limit:
                own = min(own, self.shared.room_for(self))
        else:
            own = self.pulls
        return min(own, self.back) if self.returning else own

    @property
    def window(self) -> int:
        """How many it may hold unsettled at most, alone or with those that share it; 0: it pulls."""
        shared = self.shared.limit if self.shared is not None and not self.holds_nothing else 0
        return min(self.prefetch, shared or self.prefetch)

    @property
    def able(self) -> bool:
        """Its socket takes something, and nothing would be overtaken that those it follows hold, or gave back."""
        return self.open and self.sink.writable and not (self.follows and any(map(self._is_behind, self.follows)))

    def _is_behind(self, other: Consumer) -> bool:
        """What its own channel still holds is with its client already, which may wait for more before it settles that."""
        same_channel = self.shared is not None and other.shared is self.shared
        return other.returning > 0 or (bool(other.unsettled) and not same_channel)

    @property
    def wants(self) -> bool:
        """It may be handed messages, unless its connection is set apart for a suspect (Queue.is_apart)."""
        return self.able and self.credit > 0

    def takes(self, reference: MessageReference) -> bool:
        return self.selector is None or self.selector.matches(reference.lookup())

    def look_cost(self, reference: MessageReference) -> int:
        """What it costs to say whether it takes that: see Selector.cost."""
        return 0 if self.selector is None else self.selector.cost(reference.message.properties_size)

    @property
    def too_slow(self) -> bool:
        """By the settings of its queue."""
        return self.pace is not None and self.pace.slow

    @property
    def slow(self) -> bool:
        """It is too slow for its queue, or its window is full and everything in it was delivered: others wait for the application."""
        return self.too_slow or (self.prefetch > 0 and not self.returning and self.credit <= 0 and self.delivered_to >= self.next_tag - 1)

    @property
    def holds_since_ms(self) -> int | None:
        """When the oldest of what it holds was dispatched; None: it holds nothing."""
        oldest = next(iter(self.unsettled.values()), None)
        return None if oldest is None else oldest.dispatched_at_ms

    # -- out ---------------------------------------------------------------------------------------------------------

    def dispatch(self, references: Collection[MessageReference], now_ms: int) -> None:
        """Puts references (already DELIVERING) into the window."""
        unsettled, count, size = self.unsettled, len(references), 0
        for tag, reference in enumerate(references, self.next_tag):
            reference.consumer = self
            reference.tag = tag
            reference.dispatched += 1
            reference.dispatched_at_ms = now_ms
            reference.delivered_at_ms = None
            unsettled[tag] = reference
            size += reference.message.size
        self.next_tag += count
        if self.shared is not None and self.shared.limit:
            self.shared.was_served(self)
        self.follows = ()
        if self.returning:
            self.back -= count
        self._holds(REFERENCE_BYTES * count + size)
        if not self.prefetch:
            self.pulls -= count

    def _holds(self, more: int) -> None:
        self.held_bytes += more
        if self.retired:
            self.kept.bytes += more

    def retire(self) -> None:
        """It is closed; what it holds counts with what other closed ones of its connection hold."""
        self.retired = True
        self.kept.bytes += self.held_bytes

    def offer(self, reference: MessageReference) -> None:
        """A selector consumer hears of a pending reference; it is looked at when there is credit."""
        heapq.heappush(self.candidates, (-reference.priority, reference.sequence))
        if len(self.candidates) > 128 and len(self.candidates) > 2 * self.queue.pending.count:
            references = self.queue.references
            found = [(entry, references.get(entry[1])) for entry in set(self.candidates)]
            self.candidates = [entry for entry, each in found if each is not None and each.where is Where.PENDING]
            heapq.heapify(self.candidates)

    # -- back --------------------------------------------------------------------------------------------------------

    def delivered(self, tag: int, now_ms: int) -> None:
        """Everything up to ``tag`` has reached the application."""
        last = min(tag, self.next_tag - 1)
        for number in range(self.delivered_to + 1, last + 1):
            reference = self.unsettled.get(number)
            if reference is not None:
                reference.delivered_at_ms = now_ms
        if last > self.delivered_to:
            self.delivered_to = last
            if self.oldest_delivered_ms is None:
                self.oldest_delivered_ms = now_ms

    def held(self, ranges: Iterable[int]) -> tuple[list[MessageReference], list[int]]:
        """(references held in these tag ranges, ranges of tags that are not held). Ranges are flat first, last pairs."""
        held: list[MessageReference] = []
        missing: list[int] = []
        unsettled = self.unsettled
        oldest = next(iter(unsettled), self.next_tag)
        pairs = iter(ranges)
        for first, last in zip(pairs, pairs, strict=True):
            start, stop = max(first, oldest), min(last, self.next_tag - 1)
            tags: Iterable[int] = range(start, stop + 1)
            if stop - start > 2 * len(unsettled):
                tags = [tag for tag in unsettled if start <= tag <= stop]
            found = [reference for tag in tags if (reference := unsettled.get(tag)) is not None]
            held += found
            if len(found) == last - first + 1:
                continue
            expected = first
            for reference in found:
                if reference.tag != expected:
                    missing += (expected, reference.tag - 1)
                expected = reference.tag + 1
            if expected <= last:
                missing += (expected, last)
        return held, missing

    def release(self, references: Collection[MessageReference]) -> None:
        """Takes settled references out of the window; they stand in IN_COMMIT until something else is said."""
        unsettled, count, size = self.unsettled, len(references), 0
        for reference in references:
            del unsettled[reference.tag]
            reference.consumer = None
            reference.where = IN_COMMIT
            size += reference.message.size
        self._holds(-REFERENCE_BYTES * count - size)
        self.extension = max(0, self.extension - count)
        if not self.unsettled:
            self.oldest_delivered_ms = None

    def release_all(self) -> None:
        """Its queue is removed: it holds nothing any more."""
        self._holds(-self.held_bytes)
        self.extension = max(0, self.extension - len(self.unsettled))
        self.unsettled.clear()
        self.oldest_delivered_ms = None

    def expect_back(self, count: int) -> None:
        """So many that it gave back are on the way to their places."""
        self.returning += count

    def came_back(self, count: int) -> None:
        """So many are there, or gone for good."""
        self.returning -= count
        self.back = self.back + count if self.returning else 0

    def extend(self, count: int) -> None:
        """Ack type 0: the window grows by what was delivered to the application."""
        self.extension = min(self.extension + count, self.prefetch // 2)

    def unread(self) -> list[MessageReference]:
        """What of the unsettled has not reached the application, in the order of tags."""
        return [each for tag, each in self.unsettled.items() if tag > self.delivered_to] if self.delivered_to < self.next_tag - 1 else []

    def first_delivered(self) -> list[MessageReference]:
        """The first two of the unsettled that have: enough to know whether it is one alone."""
        return [each for tag, each in islice(self.unsettled.items(), 2) if tag <= self.delivered_to]

    def still_held(self, tags: Iterable[int]) -> list[MessageReference]:
        """Those of these tags that nobody else has settled."""
        return [each for tag in tags if (each := self.unsettled.get(tag)) is not None]


#: What comes back of what was handed out: whose it was, and the references.
Returned = list[tuple[Consumer, list[MessageReference]]]


def by_priority(consumers: list[Consumer]) -> list[list[Consumer]]:
    """The consumers in batches of one priority, the highest first: a batch is served when those before it want nothing more."""
    if not any(consumer.priority for consumer in consumers):
        return [consumers]
    levels = sorted({consumer.priority for consumer in consumers}, reverse=True)
    return [[consumer for consumer in consumers if consumer.priority == level] for level in levels]
