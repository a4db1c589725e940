"""Drawn lives of durable and transient messages over AMQP and by hand: what is counted of them is what there is, after each step."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from homing.broker.core.edit import Edit, Edits
from homing.broker.core.message import DEATH_BITS, REFERENCE_BYTES, MessageReference, Where
from homing.broker.core.queue import Queue
from homing.broker.core.redrive_job import RedriveJob
from homing.broker.core.suspects import UNTIL_FREE
from homing.broker.errors import Refused
from homing.broker.process.keeping import keeps
from homing.journal.contract import OF_TRANSIENT, FaultStat, QueueStat
from tests import inside
from tests.model.world import ANYBODY, World
from tests.unit.test_amqp_methods import published
from tests.unit.test_amqp_session import Peer

#: Delivery modes, and an expiration of 50 s.
PROPERTIES = (b"\x10\x00\x02", b"\x00\x00", b"\x11\x00\x02\x0550000")
QUEUES: dict[str, dict[str, Any]] = {
    "quorum": {"x-queue-type": "quorum", "x-delivery-limit": 3, "x-dead-letter-exchange": "again"},
    "plain": {"x-dead-letter-exchange": "again"},
    "small": {"x-max-length": 3},
    "refuses": {"x-max-length": 3, "x-overflow": "reject-publish", "x-dead-letter-exchange": "dead"},
    "limit": {"x-delivery-limit": 2},
    "expires": {"x-message-ttl": 5_000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "quorum"},
}
EXCHANGES = {"in": ("quorum", "plain", "passing"), "again": ("quorum", "plain"), "dead": ("quorum", "refuses", "limit")}
NAMES = (*QUEUES, "passing")
CAME = (QueueStat.SENT, QueueStat.MOVED_IN)
WENT = (QueueStat.SUCCEEDED, *range(QueueStat.DEAD_LETTERED, QueueStat.FAILED_FIRST))
STEPS = (
    *("publish",) * 3,
    *("get",) * 3,
    *("settle",) * 4,
    *("fan_out", "consume", "close", "lose", "redrive", "edit", "move", "pass_time", "pause", "keep", "purge"),
)


class Program(Peer):
    """One that remembers what it holds."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.held: list[int] = []
        self.log_in()
        self.call(1, "channel.open", "")

    def send(self, data: bytes) -> list[tuple[str, list[Any]]]:
        said = super().send(data)
        self.held += [values[name == "basic.deliver"] for name, values in said if name in ("basic.get-ok", "basic.deliver")]
        assert not any(name in ("channel.close", "connection.close") for name, _ in said), said
        return said


class Books:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = World({"#": {"redelivery-delay": 0}}, seed)
        #: What the journal was told of messages that failed and wait.
        self.waiting = 0
        self._commit = self.world.journal.commit
        self.world.journal.commit = self._counted  # type: ignore[method-assign]
        self.programs = [first := Program(self.world)]
        for exchange in EXCHANGES:
            first.call(1, "exchange.declare", 0, exchange, "fanout", False, True, False, False, False, {})
        for name in NAMES:
            arguments = QUEUES.get(name, {"x-dead-letter-exchange": "dead"})
            first.call(1, "queue.declare", 0, name, False, name in QUEUES, False, False, False, arguments)
        for exchange, names in EXCHANGES.items():
            for name in names:
                first.call(1, "queue.bind", 0, name, exchange, "", False, {})

    def _counted(self) -> None:
        self.waiting += sum(row[FaultStat.WAITING] for row in self.world.journal.batch.faults().stats.values())
        self._commit()

    @property
    def queue(self) -> Queue:
        return inside.queues(self.world.broker)[self.random.choice(NAMES)]

    def one(self, queue: Queue) -> MessageReference | None:
        here = [each for each in queue.references.values() if each.where not in (Where.DELIVERING, Where.IN_COMMIT)]
        return self.random.choice(here) if here else None

    # -- steps -------------------------------------------------------------------------------------------------------

    def step(self) -> str:
        name = self.random.choice(STEPS)
        getattr(self, name)(self.random.choice(self.programs))
        self.world.turn()
        inside.faults(self.world.broker).put_on_record()
        self.world.commit()
        for program in self.programs:
            program.send(b"")
        return name

    def publish(self, program: Program) -> None:
        program.send(published(self.random.choice(NAMES), properties=self.random.choice(PROPERTIES)))

    def fan_out(self, program: Program) -> None:
        program.send(published("", properties=self.random.choice(PROPERTIES), exchange="in") * self.random.choice((1, 4)))

    def get(self, program: Program) -> None:
        program.call(1, "basic.get", 0, self.queue.name, False)

    def consume(self, program: Program) -> None:
        if len(self.programs) < 4:
            self.programs.append(program := Program(self.world))
        program.call(1, "basic.qos", 0, 3, False)
        program.call(1, "basic.consume", 0, self.queue.name, "", False, False, False, False, {})

    def settle(self, program: Program) -> None:
        if program.held:
            tag = program.held.pop(self.random.randrange(len(program.held)))
            how = self.random.choice((("basic.ack", False), ("basic.reject", True), ("basic.reject", False)))
            program.call(1, how[0], tag, how[1])

    def close(self, program: Program) -> None:
        program.held.clear()
        program.call(1, "channel.close", 0, "", 0, 0)
        program.call(1, "channel.open", "")

    def lose(self, program: Program) -> None:
        if len(self.programs) > 1:
            self.programs.remove(program)
            program.session.lost()

    def redrive(self, program: Program) -> None:
        target = self.random.choice((None, self.queue))
        job = RedriveJob(0, self.queue.name, "", target=None if target is None else target.name, stop_above=None)
        if not any(each.queue == job.queue for each in inside.redrives(self.world.broker).active.values()):
            inside.redriving(self.world.broker).start(ANYBODY, inside.queues(self.world.broker)[job.queue], target, job)

    def edit(self, program: Program) -> None:
        queue, target = self.queue, self.random.choice((None, self.queue))
        if (one := self.one(queue)) is not None:
            edit = Edit(b"edited", {}, frozenset())
            edits = Edits({one.message.message_id: edit}, target, keep=self.random.random() < 0.3, signed=False)
            self.world.run(self.world.broker.editing.edit(ANYBODY, queue, edits))

    def move(self, program: Program) -> None:
        if (one := self.one(self.queue)) is not None:
            with suppress(Refused):
                self.world.run(self.world.broker.hand.move(ANYBODY, one, self.queue))

    def pass_time(self, program: Program) -> None:
        self.world.time_ms += self.random.choice((10, 1_000, 6_000, 31_000))
        self.world.loop.tick()

    def pause(self, program: Program) -> None:
        queue = self.queue
        inside.contents(self.world.broker).pause(ANYBODY, queue, not queue.paused)

    def keep(self, program: Program) -> None:
        """As an orderly stop does."""
        queue = self.queue
        passing = [each for each in queue.references.values() if not each.durable]
        if keeps(queue):
            inside.references(self.world.broker).keep(passing)

    def purge(self, program: Program) -> None:
        if self.random.random() < 0.2:
            self.world.run(self.world.broker.contents.purge(ANYBODY, self.queue))

    # -- what is to hold ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        self.world.check_balance()
        broker, rows = self.world.broker, self.world.journal.rows()
        here = [each for queue in inside.queues(broker).values() for each in queue.references.values()]
        passing = [each for each in here if not each.durable]
        assert {each.sequence for each in here if each.durable} <= rows.keys()
        assert rows.keys().isdisjoint([each.sequence for each in passing])
        failed = [[each for each in those if each.cause and not each.cause & DEATH_BITS] for those in (rows.values(), passing)]
        assert [len(each) for each in failed] == [self.waiting, inside.faults(broker).in_memory.total()]
        self._check_jobs([each.redrive for each in rows.values()], [each.redrive for each in passing])
        self._check_bytes(here)
        self._check_minutes()
        for queue in inside.queues(broker).values():
            for connection, until_ms in queue.apart.items():
                (there,) = [each for each in inside.connections(broker).all.values() if each.name == connection]
                holds = any(each.queue is queue and each.unsettled for each in there.all_consumers())
                assert holds or until_ms == UNTIL_FREE, f"{queue.name}: {connection} is set apart for nothing"

    def _check_jobs(self, lasting: list[int], passing: list[int]) -> None:
        transient = Counter(map(abs, passing))
        waiting = transient + Counter(map(abs, lasting))
        for number, job in inside.redrives(self.world.broker).jobs.items():
            assert (job.waiting, job.transient) == (waiting[number], transient[number])

    def _check_bytes(self, here: list[MessageReference]) -> None:
        numbers = Counter(id(each.message) for each in here)
        durable = Counter(id(each.message) for each in here if each.durable)
        size = {True: 0, False: 0}
        for number, message in {id(each.message): each.message for each in here}.items():
            assert (message.references, message.stored) == (numbers[number], durable[number])
            size[message.kept] += message.size + REFERENCE_BYTES * message.references
        references = inside.references(self.world.broker)
        assert (references.durable_bytes, references.transient_bytes) == (size[True], size[False])

    def _check_minutes(self) -> None:
        """Sent + moved in = what became of them + here: of all messages of each durable queue, and of the transient ones."""
        inside.recorder(self.world.broker).transient.write()
        journal = self.world.journal
        total = {queue_id: Counter(dict(enumerate(row))) for queue_id, row in journal.queue_stats.items()}
        for (queue_id, _), row in journal.batch.queue_stats.items():
            total.setdefault(queue_id, Counter()).update(dict(enumerate(row)))
        for queue in inside.queues(self.world.broker).values():
            counts, passing = total.pop(queue.queue_id, Counter()), [each for each in queue.references.values() if not each.durable]
            if not queue.durable:
                assert not counts
                continue
            here = sum(counts[way] for way in CAME) - sum(counts[way] for way in WENT)
            transient = sum(counts[way + OF_TRANSIENT] for way in CAME) - sum(counts[way + OF_TRANSIENT] for way in WENT)
            assert (here, transient - counts[QueueStat.KEPT]) == (len(queue.references), len(passing)), f"{queue.name}: {counts}"
            assert all(count >= 0 for count in counts.values())
            assert all(counts[way] >= counts[way + OF_TRANSIENT] for way in range(QueueStat.FAILED_FIRST))


@pytest.mark.parametrize("seed", range(8))
def test_what_is_counted_is_what_there_is(seed: int) -> None:
    books, trail = Books(seed), list[str]()
    for _ in range(120):
        trail.append(books.step())
        try:
            books.check()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, after {trail}") from error
