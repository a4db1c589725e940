"""A whole broker without a process: a clock that is told the time, a journal that is a dict, and clients that only remember.

The journal uses the real open batch, elision included, so that a crash keeps exactly what had been committed.
"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, NamedTuple

from homing.broker.broker import Broker
from homing.broker.connection import Connection
from homing.broker.core.amqp.account import AmqpAccount
from homing.broker.core.consumer import Consumer
from homing.broker.core.memory import Kind
from homing.broker.core.message import HOP_BYTES, REFERENCE_BYTES, Message, MessageReference, Where
from homing.broker.core.producer import Producer
from homing.broker.core.queue import Queue
from homing.broker.entries.disk_room import DiskRoom
from homing.broker.errors import Refused
from homing.broker.management.arguments import taken
from homing.broker.process.housekeeping import Housekeeping
from homing.broker.process.making import make_broker
from homing.broker.process.recovery import recover
from homing.broker.process.turn import BrokerTurn
from homing.broker.protocols.amqp091.message_mapping import headers_seen, rewritten
from homing.broker.steps import Steps
from homing.journal.commit.batch import WriteBatch
from homing.journal.commit.batch_writer import BatchWriter
from homing.journal.commit.packed_commits import PackedCommits
from homing.journal.commit.writer_state import WriterState
from homing.journal.contract import DEATH_BITS, ON_HOLD_MS, AddressRecord, MessageRecord, OnDisk, QueueRecord, Recovered, ReferenceRecord
from homing.journal.migrations import bring_up
from homing.journal.read.pages import Page, Wanted, read_page
from tests import inside


class Anybody(NamedTuple):
    """Who asks where nobody is asked."""

    user: str = ""
    peer: str = ""


ANYBODY = Anybody()
NOTHING: Mapping[str, Any] = {}


def call(handler: Callable[..., Any], broker: Broker, given: Mapping[str, Any] = NOTHING, /, **arguments: Any) -> Any:
    """What a handler of management answers to anybody. ``given``: what it has of the process."""
    return handler(broker, ANYBODY, **given, **taken(broker, handler, arguments))


class Disk:
    """The journal's own tables, in memory, written and read by its own code."""

    def __init__(self, references: Iterable[ReferenceRecord], messages: Mapping[int, MessageRecord]) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        bring_up(self.connection)
        self.connection.execute("INSERT INTO meta VALUES ('commits', 0)")
        self._writer = BatchWriter(WriterState(0, 1, 1, 0, {}, 0, 0, returned=False), 0, PackedCommits(elide=True))
        batch = WriteBatch()
        batch.messages.update(messages)
        batch.add_fresh({record.sequence: record for record in references}, 0)
        self.write(batch)

    def write(self, batch: WriteBatch) -> None:
        self._writer.write(self.connection, batch, None)


class DictJournal:
    """What SQLite would hold, and the batch that is not on disk yet."""

    def __init__(self) -> None:
        self.references: dict[int, ReferenceRecord] = {}
        #: Sequences of what is on disk for want of memory.
        self.spilled: set[int] = set()
        self.messages: dict[int, MessageRecord] = {}
        self.queues: dict[int, QueueRecord] = {}
        self.addresses: dict[str, AddressRecord] = {}
        self.producers: dict[str, tuple[int, int]] = {}
        self.transactions: dict[str, int] = {}
        self.outcomes: dict[tuple[int, int], str] = {}
        self.queue_stats: dict[int, list[int]] = {}
        self._next_id = 1
        self.batch = WriteBatch()
        self.on_commit: Callable[[int], None] = lambda unwritten: None
        self.tidying = False
        #: Numbers from here on are not reserved on disk before the next commit.
        self.reserved_up_to = 1 << 62
        self.reads: list[tuple[Wanted, Callable[[Page], None], Callable[[Exception], None]]] = []
        #: What the disk says to whoever reads; None: it reads.
        self.read_error: Exception | None = None
        self.page_rows = 2
        #: What pages are read from; None: none was since the start.
        self._disk: Disk | None = None
        #: How many messages a start reads; of more it only counts.
        self.load_limit = 1 << 30

    def next_id(self) -> int:
        return self.next_ids(1)

    def next_ids(self, count: int) -> int:
        first = self._next_id + 1
        self._next_id += count
        if self._next_id > self.reserved_up_to:
            self.batch.touch()
        return first

    @property
    def ids_taken(self) -> int:
        return self._next_id

    @property
    def sync_ms(self) -> float:
        return 0.0

    @property
    def ids_reserved(self) -> bool:
        return self._next_id <= self.reserved_up_to

    def when_safe(self, callback: Callable[[], None]) -> None:
        if self.busy():
            self.batch.after.append(callback)
        else:
            callback()

    def when_readable(self, callback: Callable[[], None]) -> None:
        self.when_safe(callback)

    def when_stored(self, callback: Callable[[], None]) -> None:
        if self.busy(sends=True):
            self.batch.confirms.append(callback)
        else:
            callback()

    def busy(self, sends: bool = False) -> bool:
        return self.batch.owes if sends else self.batch.touched

    @property
    def unwritten_bytes(self) -> int:
        return self.batch.size

    @property
    def unwritten_references(self) -> int:
        return len(self.batch.added)

    def rows(self) -> dict[int, ReferenceRecord]:
        """What the disk will hold when the open batch is there."""
        rows = self.references | {record.sequence: record for record in self.batch.records()}
        return {sequence: record for sequence, record in rows.items() if sequence not in self.batch.deleted}

    def read(self, wanted: Wanted, take: Callable[[Page], None], failed: Callable[[Exception], None]) -> None:
        assert all(-(1 << 63) <= value < 1 << 63 for value in wanted if isinstance(value, int)), "no number for SQLite"
        if wanted.kind not in ("ready", "due") and not wanted.on_disk and self.busy():
            self.batch.after.append(lambda: self.reads.append((wanted, take, failed)))
        else:
            self.reads.append((wanted, take, failed))

    def read_pages(self) -> bool:
        """Between two commits; whether there was anything to read."""
        reads, self.reads = self.reads, []
        for wanted, take, failed in reads:
            if self.read_error is not None:
                failed(self.read_error)
                continue
            try:
                take(self._page(wanted))
            except Exception as error:
                failed(error)
        return bool(reads)

    def _page(self, wanted: Wanted) -> Page:
        """As the journal reads it, and leaves out what the open batch deletes."""
        if self._disk is None:
            self._disk = Disk(self.references.values(), self.messages)
        page = read_page(self._disk.connection, wanted._replace(rows=min(self.page_rows, wanted.rows)))
        return page._replace(records=[record for record in page.records if record.sequence not in self.batch.deleted])

    def commit(self) -> None:
        """The open batch is on disk; what waited for that is told, in order."""
        batch, self.batch = self.batch, WriteBatch()
        if self._disk is not None:
            self._disk.write(batch)
        leaving = batch.deleted - batch.added.keys()
        records = list(batch.records())
        for added in records:
            old = added.hops[0][0] if added.hops and not added.shared else None
            assert old not in leaving or self.references[old].message == added.message, "it takes a body along that is not its own"
        self.spilled -= batch.unspilled.keys()
        for sequence in batch.deleted_first:
            self.references.pop(sequence, None)
        self.messages.update(batch.messages)
        assert self.references.keys().isdisjoint({record.sequence for record in records}), "a row is there already"
        self.spilled.update(record.sequence for record in records if record.spilled)
        self.references.update((record.sequence, record._replace(spilled=record.sequence in self.spilled)) for record in records)
        for sequence, changed in batch.changed.items():
            self.references[sequence] = self.references[sequence]._replace(**changed._asdict())
        for sequence in batch.deleted:
            self.references.pop(sequence, None)
        for queue_id, keep in batch.spill_ended.items():
            for sequence in [n for n, each in self.references.items() if each.spilled and each.queue_id == queue_id]:
                self.spilled.discard(sequence)
                if keep:
                    self.references[sequence] = self.references[sequence]._replace(spilled=False)
                else:
                    del self.references[sequence]
        for message_id in batch.messages_deleted - {each.message.message_id for each in self.references.values() if each.shared}:
            self.messages.pop(message_id, None)
        assert all(each.message.message_id in self.messages for each in self.references.values() if each.shared), "a body is missing"
        assert self.messages.keys() <= {each.message.message_id for each in self.references.values()}, "a body that nobody needs"
        self.queues.update(batch.queues)
        for name, record in batch.addresses.items():
            if record is None:
                self.addresses.pop(name, None)
            else:
                self.addresses[name] = record
        self.producers.update({key: mark for key, mark in batch.producers.items() if mark is not None})
        self.transactions.update(batch.transactions)
        self.outcomes.update({entry[:2]: each.outcome for each in batch.outcomes for entry in each.entries})
        for (queue_id, _), counts in batch.queue_stats.items():
            total = self.queue_stats.setdefault(queue_id, [0] * len(counts))
            for column, count in enumerate(counts):
                total[column] += count
        self.reserved_up_to = max(self.reserved_up_to, self._next_id)
        for callback in batch.after:
            callback()
        self.on_commit(self.unwritten_references)

    def crash(self) -> Recovered:
        """What is left when the process dies now."""
        self.batch, self._disk = WriteBatch(), None
        self.reads = []
        self.references = {sequence: each for sequence, each in self.references.items() if not each.spilled}
        live = [queue for queue in self.queues.values() if queue.deleted_at_ms is None]
        deleted = self.queues.keys() - {queue.queue_id for queue in live}
        for sequence in [sequence for sequence, record in self.references.items() if record.queue_id in deleted]:
            del self.references[sequence]
        ordered = sorted(self.references.values(), key=lambda r: (r.queue_id, -r.priority, r.sequence))
        on_disk: list[OnDisk] = []
        if len(ordered) > self.load_limit:
            counted = [record for record in ordered if not record.state]
            ordered = [record for record in ordered if record.state]
            on_disk = [_counted(queue.queue_id, counted) for queue in live]
        return Recovered(
            broker_id="model",
            clean_stop=False,
            clock_ms=0,
            addresses=list(self.addresses.values()),
            queues=live,
            next_queue_id=max(self.queues, default=0) + 1,
            references=ordered,
            producers=dict(self.producers),
            duplicates={},
            committed=dict(self.transactions),
            quarantined=[],
            on_disk=on_disk,
            dead=[(record.queue_id, record.cause, 1) for record in self.references.values() if record.cause & DEATH_BITS],
        )


def _counted(queue_id: int, records: list[ReferenceRecord]) -> OnDisk:
    here = [record for record in records if record.queue_id == queue_id]
    dues = [record.due_at_ms for record in here if record.due_at_ms is not None]
    expiries = [record.expires_at_ms for record in here if record.expires_at_ms is not None]
    ready = Counter(record.priority for record in here if record.due_at_ms is None)
    return OnDisk(queue_id, dict(ready), len(dues), min(dues, default=None), min(expiries, default=None), 10, dues.count(ON_HOLD_MS))


@dataclass
class Delivery:
    """What one client was handed, as it stood then."""

    key: str
    queue: str
    tag: int
    delivery_count: int
    to: Consumer


@dataclass(eq=False)
class Client:
    """A front end that only remembers. ``held`` is what it has not settled."""

    now_ms: Callable[[], int]
    #: Looks at every delivery as it happens.
    observe: Callable[[Delivery], None]
    writable: bool = True
    held: dict[int, dict[int, Delivery]] = field(default_factory=dict)
    ended: bool = False
    connection: Connection | None = None
    consumers: dict[int, Consumer] = field(default_factory=dict)
    producers: dict[str, Producer] = field(default_factory=dict)

    def deliver(self, consumer: Consumer, references: list[MessageReference]) -> None:
        for reference in references:
            count = reference.delivery_count + (not reference.counted)
            key = reference.message.body.decode()
            delivery = Delivery(key, reference.queue.name, reference.tag, count, consumer)
            self.held.setdefault(consumer.number, {})[reference.tag] = delivery
            self.observe(delivery)

    def grant(self, producer: Producer, messages: int, size: int, reason: str | None) -> None: ...

    def pull_empty(self, consumer: Consumer) -> None: ...

    def cancelled(self, consumer: Consumer, code: str, message: str, fix: str) -> None:
        self.held.pop(consumer.number, None)

    def not_held(self, consumer: Consumer, tags: list[int]) -> None:
        for tag in tags:
            self.held.get(consumer.number, {}).pop(tag, None)

    def end(self, code: str, message: str, fix: str) -> None:
        self.ended = True


class World:
    """Broker, journal, clock and clients; ``turn`` is one turn of the loop."""

    def __init__(
        self,
        layers: dict[str, dict[str, Any]],
        seed: int = 0,
        temp_limit: Callable[[], int] | None = None,
        log_room: Callable[[], tuple[int, int]] | None = None,
        **limits: Any,
    ) -> None:
        self.config = inside.configured(layers, **limits)
        self.time_ms = 1_000_000_000_000
        self.rng = Random(seed)
        self.journal = DictJournal()
        self.disk_low = False
        self._disk = DiskRoom(lambda: self.disk_low, self.config.broker.store_limit_bytes, temp_limit, log_room)
        #: The broker wants another turn.
        self.woken = False
        self._make_broker()

    def _make_broker(self) -> None:
        amqp = AmqpAccount(rewritten, partial(headers_seen, True))
        self.broker = make_broker(self.journal, self.config, self.now_ms, self.rng, self._wake, self._disk, amqp=amqp)
        self.housekeeping = Housekeeping(self.broker, self.config, self._disk.low)
        self.loop = BrokerTurn(self.broker, self.housekeeping)

    def _wake(self) -> None:
        self.woken = True

    def send(self, producer: Producer, messages: list[Message]) -> tuple[int, Refused] | None:
        """All of them, in as many turns as that takes (and a commit, where nothing goes on without one)."""
        first, last, refused = producer.high_watermark + 1, producer.high_watermark + len(messages), None
        while producer.high_watermark < last and refused is None:
            before = producer.high_watermark
            refused = inside.intake(self.broker).send(producer, first, messages, self.broker.now_ms())
            if producer.high_watermark == before and refused is None:
                self.journal.commit()
            if producer.high_watermark < last:
                self.loop.drain()
        return refused

    def now_ms(self) -> int:
        return self.time_ms

    def client(self, client_id: str, observe: Callable[[Delivery], None]) -> Client:
        client = Client(self.now_ms, observe)
        client.connection = inside.connections(self.broker).connect(client_id, "", client)
        return client

    def turn(self) -> None:
        for _ in range(100):
            self.woken = False
            self.loop.drain()
            if self.loop.next_ms() <= self.time_ms:
                self.loop.tick()
            if not self.journal.read_pages() and not self.woken:
                return

    def commit(self) -> None:
        """Until everything is on disk and everything that could go out has gone."""
        for _ in range(50):
            self.journal.commit()
            self.turn()
            if not self.journal.busy() and not self.woken and not self.journal.reads:
                self._check_nobody_starves()
                assert not any(consumer.returning for consumer in self._consumers()), "credit was lost on the way back"
                return

    def run(self, steps: Steps[Any], commits: bool = True) -> Any:
        """Long work to its end, with the disk in between: after each step, or only where it waits for that."""
        while True:
            try:
                waits = next(steps)
            except StopIteration as done:
                return done.value
            if commits or (waits and not self.journal.reads):
                self.commit()
            else:
                self.turn()

    def _check_nobody_starves(self) -> None:
        """Nobody who holds nothing, also not by closed consumers, waits for what is ready, however short memory is."""
        for queue in inside.queues(self.broker).values():
            if queue.pending.total and not queue.paused:
                for consumer in queue.consumers:
                    waits = consumer.wants and not consumer.unsettled and not consumer.kept.bytes
                    waits = waits and not queue.is_apart(consumer.connection, self.time_ms)
                    assert consumer.selector is not None or not waits, f"{queue.name} starves"
            if queue.suspects and not queue.paused:
                self._check_no_suspect_starves(queue)

    def _check_no_suspect_starves(self, queue: Queue) -> None:
        """One of those that it is for makes room, or works on another suspect; who does that for long is not waited for."""
        able = [consumer for consumer in queue.consumers if consumer.able]
        watched = {each.connection for each in able if any(reference.suspect for reference in each.unsettled.values())}
        busy = {consumer.connection for consumer in able if consumer.unsettled} - watched
        for reference in queue.suspects.values():
            takers = {consumer.connection for consumer in able if consumer.takes(reference)}
            apart = {connection for connection in takers if queue.is_apart(connection, self.time_ms)}
            assert apart or not takers & busy, f"{queue.name}: a suspect starves"

    def _consumers(self) -> list[Consumer]:
        return [c for each in inside.connections(self.broker).all.values() for c in (*each.consumers.values(), *each.retired.values())]

    def crash(self) -> None:
        """The process dies; a new one goes on with what is on disk."""
        recovered = self.journal.crash()
        self._make_broker()
        recover(self.broker, recovered)

    def check_balance(self) -> None:
        """What each queue counts is what stands in it, and memory is the sum of what is there."""
        memory = 0
        messages = set()
        on_disk = defaultdict[int, dict[int, int]](dict)
        for sequence, record in self.journal.rows().items():
            if record.cause & DEATH_BITS:
                on_disk[record.queue_id][sequence] = record.cause
        graves = defaultdict[Queue, Counter[int]](Counter)
        for grave in inside.faults(self.broker).dead_letters.within(set(inside.queues(self.broker).values())):
            graves[grave.queue][grave.cause & 15] += grave.messages
        for queue in inside.queues(self.broker).values():
            by_place: dict[Where, int] = {}
            of_queue = 0
            for reference in queue.references.values():
                assert reference.queue is queue
                by_place[reference.where] = by_place.get(reference.where, 0) + 1
                own = REFERENCE_BYTES + HOP_BYTES * len(reference.hops or ())
                of_queue += own + reference.message.weight
                memory += own if id(reference.message) in messages else own + reference.message.weight
                messages.add(id(reference.message))
            self._check_disk(queue)
            assert queue.memory_bytes == of_queue, f"{queue.name}: memory"
            assert queue.ready == by_place.get(Where.PENDING, 0) + queue.pending.disk_count, f"{queue.name}: pending"
            waiting = [reference.sequence for reference in queue.pending]
            assert len(waiting) == queue.pending.count, f"{queue.name}: what can be handed out"
            assert not queue.suspects.keys() & set(waiting), f"{queue.name}: a suspect among the others"
            assert queue.pending.bytes == sum(queue.references[sequence].message.size for sequence in waiting)
            assert queue.delivering == by_place.get(Where.DELIVERING, 0), f"{queue.name}: delivering"
            assert queue.scheduled == by_place.get(Where.SCHEDULED, 0), f"{queue.name}: scheduled"
            on_hold = [each for each in queue.references.values() if each.where is Where.SCHEDULED and each.on_hold]
            assert queue.on_hold == len(on_hold), f"{queue.name}: on hold"
            assert len(queue.parked) == by_place.get(Where.PARKED, 0), f"{queue.name}: parked"
            assert not by_place.get(Where.GONE)
            dead = {n: each.cause for n, each in queue.references.items() if each.hops and each.cause & DEATH_BITS}
            causes = Counter(cause & 15 for cause in (on_disk[queue.queue_id] | dead).values())
            assert (queue.dead, graves[queue]) == (causes.total(), causes), f"{queue.name}: dead letters"
        quota = inside.room(self.broker).quota
        assert quota.coming_bytes == sum(inside.reads(self.broker).reading.values())
        # An estimate after a start that only counted; of nothing it is nothing.
        if not any(queue.pending.disk_count + queue.due_on_disk for queue in inside.queues(self.broker).values()):
            assert inside.references(self.broker).disk_bytes == 0 or self.journal.load_limit == 0
        for consumer in self._consumers():
            in_use = len(consumer.unsettled) + consumer.returning
            own = consumer.prefetch + consumer.extension - in_use if consumer.prefetch else consumer.pulls
            shared = consumer.shared
            if consumer.prefetch and shared is not None and shared.limit:
                together = [len(each.unsettled) + each.returning for each in self._consumers() if each.shared is shared]
                own = min(own, shared.limit - sum(together))
            assert consumer.credit == (min(own, consumer.back) if consumer.returning else own)
            assert consumer.returning >= 0
            assert consumer.back >= 0
            assert consumer.holds_since_ms == min((each.dispatched_at_ms for each in consumer.unsettled.values()), default=None)
            assert consumer.held_bytes == sum(REFERENCE_BYTES + reference.message.size for reference in consumer.unsettled.values())
        for each in inside.connections(self.broker).all.values():
            assert each.kept.bytes == sum(consumer.held_bytes for consumer in each.retired.values())
        assert quota.kept == {each.kept for each in inside.connections(self.broker).all.values()}
        held = sum(t.bytes for c in inside.connections(self.broker).all.values() for t in c.transactions.values())
        kinds = inside.memory(self.broker).by_kind
        assert (kinds[Kind.QUEUES], kinds[Kind.SESSIONS]) == (memory, held)
        assert kinds[Kind.FAULTS] == sum(group.weight for group in inside.faults(self.broker).by_id.values())

    def _check_disk(self, queue: Queue) -> None:
        """What a queue counts as being only on disk is what is there and not in memory."""
        rows = [r for r in self.journal.rows().values() if r.queue_id == queue.queue_id and r.sequence not in queue.references]
        ready = Counter(record.priority for record in rows if record.due_at_ms is None)
        assert queue.pending.on_disk == [ready[priority] for priority in range(len(queue.pending.on_disk))], f"{queue.name}: ready on disk"
        assert queue.pending.disk_count == sum(queue.pending.on_disk)
        assert queue.due_on_disk == sum(record.due_at_ms is not None for record in rows), f"{queue.name}: due on disk"
        assert queue.on_hold_on_disk == sum(record.due_at_ms == ON_HOLD_MS for record in rows), f"{queue.name}: on hold on disk"
        assert all(r.sequence > queue.pending.cursor[r.priority] for r in rows if r.due_at_ms is None), f"{queue.name}: behind the cursor"
        if (queue.queue_id, "due") not in inside.reads(self.broker).reading:
            times = [(record.due_at_ms, record.sequence) for record in rows if record.due_at_ms is not None]
            assert all(at > queue.due_horizon for at in times), f"{queue.name}: due too early"
