"""Random lives of messages against one simple model: sent and confirmed means there, acknowledged and on disk means gone.

Commits, crashes, lost connections and the clock are steps like any other. A failing run is replayed from what hypothesis prints.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from homing.broker.core.consumer import Consumer, ConsumerOptions
from homing.broker.core.edit import Edit, Edits
from homing.broker.core.fault import FailureReport
from homing.broker.core.message import ON_HOLD_MS, REFERENCE_BYTES, Message, MessageReference, Where
from homing.broker.core.message_filter import Filter
from homing.broker.core.redelivery import Failure
from homing.broker.delivery.retrying import NOW
from homing.broker.entries.waiting import FIRST
from homing.broker.errors import Refused
from tests import inside
from tests.model.world import ANYBODY, Client, Delivery, World

LAYERS: dict[str, dict[str, Any]] = {
    "#": {"max-delivery-attempts": 3, "redelivery-delay": 0},
    "b": {"redelivery-delay": 1000, "redelivery-delay-multiplier": 2.0, "redelivery-collision-avoidance-factor": 0.2},
    "c": {"persist-delivery-count-before-delivery": True, "redelivery-delay": 500},
    "d": {"redelivery-delay": 0},
    "f": {"max-delivery-attempts": 2, "suspect-timeout": 1000},
    "e": {
        "rules": [
            {"error-type": "Slow", "redelivery-back-off": "linear", "redelivery-delay": 1000, "max-delivery-attempts": 5},
            {"error-type": "Bad", "action": "dead-letter", "dead-letter-address": "bad"},
            {"name": "gone", "error-type": "Gone", "action": "drop"},
            {"error-type": "Urgent", "header": {"JMSPriority": 5}, "action": "dead-letter"},
        ]
    },
}
#: What is meant for one address alone is looked at more often.
ADDRESSES = [*sorted(LAYERS.keys() - {"#"} | {"a"}), "f"]


class BrokerModel(RuleBasedStateMachine):
    limits: ClassVar[dict[str, Any]] = {}
    load_limit = 1 << 30

    def __init__(self) -> None:
        super().__init__()
        self.world = World(LAYERS, **self.limits)
        self.world.journal.load_limit = self.load_limit
        self.clients: list[Client] = []
        self.number = 0
        #: key -> address, once its confirm is out.
        self.confirmed: dict[str, str] = {}
        #: Keys whose acknowledgement was answered: never again to be seen.
        self.done: set[str] = set()
        #: Keys that may be gone: an acknowledgement or a commit is on its way, or a crash left it open.
        self.perhaps_gone: set[str] = set()
        self.counts: dict[tuple[str, str], int] = {}
        self.not_before: dict[str, int] = {}
        #: When the commit under way has told them.
        self.due_when_safe: dict[str, int] = {}
        #: (original that ended, what took its place)
        self.edited: list[tuple[str, str]] = []
        #: Keys whose last change is not on disk yet: nobody may be handed them.
        self.unsafe: set[str] = set()
        #: Keys on the way back to their places, by the consumer that gave them back to go out again at once; and those there again.
        self.returning: dict[Consumer, set[str]] = {}
        #: The next tag of each when the first of that was given back.
        self.returned_at: dict[Consumer, int] = {}
        self.returned: dict[Consumer, set[str]] = {}
        self.transaction = 0
        self.generation = 0

    @initialize()
    def start(self) -> None:
        self._connect()

    def _connect(self) -> None:
        self.generation += 1
        self.clients = [self.world.client(f"client-{self.generation}-{number}", self._observe) for number in range(2)]

    def _observe(self, delivery: Delivery) -> None:
        """Every delivery, at the moment it happens."""
        key, place = delivery.key, (delivery.key, delivery.queue)
        assert key not in self.done, "delivered after its acknowledgement was answered"
        self._nothing_is_overtaken(delivery)
        assert key not in self.unsafe, "delivered before its last change was on disk"
        assert self.world.time_ms >= self.not_before.get(key, 0), "delivered before its time"
        assert delivery.delivery_count >= self.counts.get(place, 1), "a client saw a delivery count fall"
        self.counts[place] = delivery.delivery_count

    def _until_safe(self, key: str) -> None:
        self.unsafe.add(key)
        inside.journal(self.world.broker).when_safe(lambda: self.unsafe.discard(key))

    def _comes_back(self, consumer: Consumer, held: list[MessageReference]) -> None:
        """These were given back just now: those that are to go out again at once hold their credit until they are in place."""
        keys = {each.message.body.decode() for each in held if each.where is Where.IN_COMMIT and each.due_at_ms is None}
        on_the_way = self.returning.setdefault(consumer, set())
        if not on_the_way:
            self.returned_at[consumer] = consumer.next_tag
        on_the_way |= keys
        assert consumer.returning == len(on_the_way), "as many as are on the way"

        def there() -> None:
            on_the_way.difference_update(keys)
            self.returned.setdefault(consumer, set()).update(keys)

        inside.journal(self.world.broker).when_safe(there)

    def _nothing_is_overtaken(self, delivery: Delivery) -> None:
        """A consumer that has the queue to itself gets nothing but what it gave back as long as something of that is on the way.

        What had its tag before that is only waiting for its count to be on disk.
        """
        consumer = delivery.to
        alone = consumer.queue.consumers == [consumer] and delivery.tag >= self.returned_at.get(consumer, 0)
        if self.returning.get(consumer) and alone:
            assert delivery.key in self.returned.get(consumer, ()), "something that its consumer gave back was overtaken"

    # -- sending -----------------------------------------------------------------------------------------------------

    def _key(self) -> str:
        self.number += 1
        return f"m{self.number}"

    @rule(
        who=st.integers(0, 1),
        address=st.sampled_from(ADDRESSES),
        priority=st.integers(3, 5),
        delay_ms=st.sampled_from([0, 0, 0, 700, 5000]),
        count=st.sampled_from([1, 1, 6]),
    )
    def send(self, who: int, address: str, priority: int, delay_ms: int, count: int) -> None:
        client, keys = self.clients[who], [self._key() for _ in range(count)]
        assert client.connection is not None
        producer = client.producers.get(address)
        if producer is None:
            producer = inside.producers(self.world.broker).open(client.connection, len(client.producers) + 1, address)
            client.producers[address] = producer
        messages = [Message(0, address, key.encode(), priority=priority, delay_ms=delay_ms) for key in keys]
        assert self.world.send(producer, messages) is None
        if delay_ms:
            self.not_before.update(dict.fromkeys(keys, self.world.time_ms + delay_ms))
        inside.journal(self.world.broker).when_safe(lambda: self.confirmed.update(dict.fromkeys(keys, address)))

    @rule(who=st.integers(0, 1), again=st.booleans())
    def send_twice(self, who: int, again: bool) -> None:
        """The same number again is the same message, not another."""
        client, key = self.clients[who], self._key()
        assert client.connection is not None
        producer = client.producers.get("a")
        if producer is None:
            producer = client.producers["a"] = inside.producers(self.world.broker).open(client.connection, len(client.producers) + 1, "a")
        first = producer.high_watermark + 1
        for _ in range(2 if again else 1):
            inside.intake(self.world.broker).send(producer, first, [Message(0, "a", key.encode())], self.world.time_ms)
        inside.journal(self.world.broker).when_safe(lambda: self.confirmed.__setitem__(key, "a"))

    # -- consuming ---------------------------------------------------------------------------------------------------

    @rule(
        who=st.integers(0, 1),
        queue=st.sampled_from([*ADDRESSES, "DLQ.a"]),
        prefetch=st.sampled_from([1, 3, 100]),
        session=st.sampled_from([0, 1]),
        selector=st.sampled_from([None, None, None, "JMSPriority > 3"]),
    )
    def subscribe(self, who: int, queue: str, prefetch: int, session: int, selector: str | None) -> None:
        client = self.clients[who]
        assert client.connection is not None
        if len(client.consumers) < 6 and (queue != "DLQ.a" or queue in inside.queues(self.world.broker)):
            number = max(client.consumers, default=0) + 1
            options = ConsumerOptions(prefetch, selector, session=session, transacted=bool(session))
            client.consumers[number] = inside.subscriptions(self.world.broker).subscribe(client.connection, number, queue, options)

    def _held(self, transacted: bool) -> list[tuple[Client, int, Delivery]]:
        return [
            (client, number, delivery)
            for client in self.clients
            for number, deliveries in client.held.items()
            for delivery in deliveries.values()
            if number in client.consumers and client.consumers[number].transacted is transacted
        ]

    def _pick(self, data: Any, transacted: bool = False) -> tuple[Client, int, Delivery] | None:
        held = self._held(transacted)
        return data.draw(st.sampled_from(held)) if held else None

    @rule(data=st.data(), given=st.booleans())
    def acknowledge(self, data: Any, given: bool) -> None:
        picked = self._pick(data)
        if picked is None:
            return
        client, number, delivery = picked
        consumer = client.consumers[number]
        if given:
            consumer.delivered(delivery.tag, self.world.time_ms)
        held, missing = consumer.held([delivery.tag, delivery.tag])
        del client.held[number][delivery.tag]
        inside.settlement(self.world.broker).acknowledge(consumer, held)
        if held:
            assert not missing
            self.perhaps_gone.add(delivery.key)
            inside.journal(self.world.broker).when_safe(lambda: self.done.add(delivery.key))

    @rule(
        data=st.data(),
        delay_ms=st.sampled_from([None, 300]),
        counts=st.booleans(),
        poison=st.sampled_from([False, False, False, True]),
        error=st.sampled_from([None, "Slow", "Bad", "Gone", "Urgent"]),
    )
    def fail(self, data: Any, delay_ms: int | None, counts: bool, poison: bool, error: str | None) -> None:
        picked = self._pick(data)
        if picked is None:
            return
        client, number, delivery = picked
        consumer = client.consumers[number]
        consumer.delivered(delivery.tag, self.world.time_ms)
        held, _ = consumer.held([delivery.tag, delivery.tag])
        del client.held[number][delivery.tag]
        failed = held[0].failed + counts if held else 0
        report: FailureReport = {"error_text": "no"}
        if error:
            report |= {"error_type": f"our.{error}er", "bases": [f"our.{error}", "Exception"]}
        if poison:
            inside.settlement(self.world.broker).poison(consumer, held, {"reason": "poison"})
        else:
            inside.settlement(self.world.broker).fail(consumer, held, Failure(counts=counts, delay_ms=delay_ms), "nack", report)
        ends = None
        if held:
            self._until_safe(delivery.key)
            ends = self._follows(held[0], failed, error, delay_ms, counts, poison)
            if ends == "dropped":
                self.perhaps_gone.add(delivery.key)
            self._comes_back(consumer, held)
        if held and not ends and (due := held[0].due_at_ms):
            # Until the batch is on disk a crash brings it back without the delay; and another time may be given meanwhile.
            self.due_when_safe[delivery.key] = due
            inside.journal(self.world.broker).when_safe(lambda: self._has_its_time(delivery.key, due))

    def _has_its_time(self, key: str, due_at_ms: int) -> None:
        if self.due_when_safe.get(key) == due_at_ms:
            self.not_before[key] = self.due_when_safe.pop(key)

    @rule(queue=st.sampled_from(ADDRESSES), way=st.sampled_from(["now", "at", "hold", "release"]), commits=st.booleans())
    def retry(self, queue: str, way: str, commits: bool) -> None:
        """What waits gets another time, with commits between two steps or without; when it was answered, that is on disk."""
        broker = self.world.broker
        found = inside.queues(broker).get(queue)
        if found is None:
            return
        at_ms = {"now": NOW, "release": NOW, "at": self.world.time_ms + 700, "hold": ON_HOLD_MS}[way]
        there = [record for record in self.world.journal.rows().values() if record.queue_id == found.queue_id]
        for record in there:
            self.not_before.pop(record.message.body.decode(), None)
            self.due_when_safe.pop(record.message.body.decode(), None)
        after: tuple[int, int] | None = FIRST
        while after is not None:
            steps = broker.retrying.retry(ANYBODY, found, Filter(), at_ms, way == "release", after)
            _, _, after = self.world.run(steps, commits)
        self.world.commit()
        rows = [record for record in self.world.journal.references.values() if record.queue_id == found.queue_id]
        self.not_before |= {record.message.body.decode(): record.due_at_ms for record in rows if record.due_at_ms is not None}
        waiting = [record.due_at_ms for record in rows if record.failed and (record.due_at_ms or 0) > self.world.time_ms]
        if way == "release":
            assert ON_HOLD_MS not in waiting
        elif way != "now":
            assert {*waiting} <= {at_ms, ON_HOLD_MS}

    def _follows(
        self, reference: MessageReference, failed: int, error: str | None, delay_ms: int | None, counts: bool, poison: bool
    ) -> str | None:
        """What must have come of a failure: the queue that it died into, ``dropped``, or None: it is tried again, at the time it is."""
        queue, rules = reference.queue.name, counts and not poison and reference.queue.name == "e"
        limit, waits_ms = (5, 1000 * failed) if rules and error == "Slow" else (2 if queue == "f" else 3, None)
        ends = f"DLQ.{queue}" if poison or (counts and failed >= limit) else None
        if rules and error in ("Bad", "Gone"):
            ends = {"Bad": "bad", "Gone": "dropped"}[error]
        elif rules and error == "Urgent" and reference.priority == 5:
            ends = f"DLQ.{queue}"
        if queue.startswith("DLQ."):
            return "parked" if ends else None
        key, queues = reference.message.body, inside.queues(self.world.broker)
        found = [name for name, each in queues.items() if any(other.message.body == key for other in each.references.values())]
        assert found == ([] if ends == "dropped" else [ends or queue]), f"{error} at failure {failed}"
        if queue == "e" and not ends:
            due_ms = waits_ms if delay_ms is None else delay_ms
            assert reference.due_at_ms == (self.world.time_ms + due_ms if due_ms else None)
        return ends

    @rule(queue=st.sampled_from(ADDRESSES), data=st.data(), keep=st.booleans(), commits=st.booleans())
    def edit(self, queue: str, data: Any, keep: bool, commits: bool) -> None:
        """One message that nobody holds is replaced by another, which is sent when the original is gone, in one commit."""
        found = inside.queues(self.world.broker).get(f"DLQ.{queue}") or inside.queues(self.world.broker).get(queue)
        rows = [record for record in self.world.journal.rows().values() if found is not None and record.queue_id == found.queue_id]
        if found is None or not rows:
            return
        record = data.draw(st.sampled_from(sorted(rows, key=lambda each: each.sequence)))
        number, old, new = record.message.message_id, record.message.body.decode(), self._key()
        edits = Edits({number: Edit(new.encode(), {"edited": True}, frozenset())}, None, keep, False)
        done = self.world.run(self.world.broker.editing.edit(ANYBODY, found, edits), commits)
        copy = done.get(number)
        if not isinstance(copy, int):
            assert copy is None or copy.code in ("message-held", "queue-full")
            return
        if not keep:
            self.edited.append((old, new))

        def stored() -> None:
            self.confirmed[new] = queue
            if not keep:
                self.done.add(old)

        if not keep:
            self.perhaps_gone.add(old)
        inside.journal(self.world.broker).when_safe(stored)

    # -- transactions ------------------------------------------------------------------------------------------------

    @rule(data=st.data(), commit=st.booleans(), to=st.sampled_from(ADDRESSES))
    def transact(self, data: Any, commit: bool, to: str) -> None:
        """Takes one message and sends another, together or not at all."""
        picked = self._pick(data, transacted=True)
        if picked is None:
            return
        client, number, delivery = picked
        assert client.connection is not None
        broker, consumer = self.world.broker, client.consumers[number]
        consumer.delivered(delivery.tag, self.world.time_ms)
        held, _ = consumer.held([delivery.tag, delivery.tag])
        key = self._key()
        inside.transactions(broker).hold_acknowledgement(client.connection, 1, consumer, held)
        inside.transactions(broker).hold_sends(client.connection, 1, [Message(0, to, key.encode())], None)
        if not commit:
            undone = [(each, list(each.unsettled.values())) for each in client.connection.consumers_of(1)]
            inside.transactions(broker).roll_back(client.connection, 1)
            for each, references in undone:
                self._comes_back(each, references)
            for consumer_number, each in client.consumers.items():
                if each.transacted:
                    client.held.pop(consumer_number, None)
            return
        self.transaction += 1
        try:
            inside.transactions(broker).commit(client.connection, 1, f"t{self.generation}.{self.transaction}", 1)
        except Refused as refusal:
            raise AssertionError(f"a whole transaction was refused: {refusal.code}") from refusal
        del client.held[number][delivery.tag]
        if held:
            self.perhaps_gone.add(delivery.key)

        self._until_safe(key)

        def answered() -> None:
            self.confirmed[key] = to
            if held:
                self.done.add(delivery.key)

        inside.journal(broker).when_safe(answered)

    @rule(who=st.integers(0, 1), writable=st.booleans())
    def socket_is_full_or_not(self, who: int, writable: bool) -> None:
        self.clients[who].writable = writable
        for queue in inside.queues(self.world.broker).values():
            inside.mark_ready(self.world.broker, queue)

    @rule(data=st.data())
    def give_back_unread(self, data: Any) -> None:
        picked = self._pick(data, transacted=data.draw(st.booleans()))
        if picked is None:
            return
        client, number, delivery = picked
        held, _ = client.consumers[number].held([delivery.tag, delivery.tag])
        del client.held[number][delivery.tag]
        inside.settlement(self.world.broker).give_back(client.consumers[number], held)
        if held:
            self._until_safe(delivery.key)
            self._comes_back(client.consumers[number], held)

    # -- what happens to everybody -----------------------------------------------------------------------------------

    @rule()
    def commit(self) -> None:
        self.world.commit()

    @rule(ms=st.sampled_from([1, 250, 1000, 5000]))
    def time_passes(self, ms: int) -> None:
        self.world.time_ms += ms
        self.world.turn()

    @rule(who=st.integers(0, 1), how=st.sampled_from(["lost", "closed", "amqp"]), data=st.data())
    def connection_ends(self, who: int, how: str, data: Any) -> None:
        client = self.clients[who]
        assert client.connection is not None
        if data.draw(st.booleans()):
            for number, deliveries in client.held.items():
                if deliveries and number in client.consumers:
                    client.consumers[number].delivered(max(deliveries), self.world.time_ms)
        inside.connections(self.world.broker).disconnect(client.connection, how == "lost", how == "amqp")
        self.generation += 1
        self.clients[who] = self.world.client(f"client-{self.generation}-{who}", self._observe)

    @rule(who=st.integers(0, 1), odd=st.booleans())
    def channel_closes(self, who: int, odd: bool) -> None:
        """Of AMQP: every other consumer is one channel's."""
        client, broker = self.clients[who], self.world.broker
        assert client.connection is not None
        ends = [each for number, each in client.consumers.items() if number % 2 == odd and not each.transacted]
        for consumer in ends:
            consumer.delivered(consumer.next_tag - 1, self.world.time_ms)
            client.held.pop(consumer.number, None)
            del client.consumers[consumer.number]
        for consumer in ends:
            inside.consumers(broker).unsubscribe(client.connection, consumer, keep_delivered=True)
        inside.consumers(broker).release(client.connection, ends)

    @precondition(lambda self: self.number > 3)
    @rule()
    def crash(self) -> None:
        self.world.crash()
        self.perhaps_gone.clear()
        self.unsafe.clear()
        self.returning.clear()
        self._connect()

    # -- what must always hold ---------------------------------------------------------------------------------------

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        self.world.turn()
        self.world.check_balance()
        there: dict[str, int] = {}
        for queue in inside.queues(self.world.broker).values():
            for reference in queue.references.values():
                key = reference.message.body.decode()
                there[key] = there.get(key, 0) + 1
            for record in self.world.journal.rows().values():
                if record.queue_id == queue.queue_id and record.sequence not in queue.references:
                    key = record.message.body.decode()
                    there[key] = there.get(key, 0) + 1
        assert all(count == 1 for count in there.values()), "a message stands in two places"
        assert not any(old in there and new in there for old, new in self.edited), "an edited message and its original"
        lost = self.confirmed.keys() - there.keys() - self.done - self.perhaps_gone
        assert not lost, f"confirmed and nowhere: {lost}"
        assert not self.done & there.keys(), "acknowledged for good and there again"
        on_disk = [record.message.body for record in self.world.journal.references.values()]
        assert len(on_disk) == len(set(on_disk)), "a message is in two queues on disk"


class PagedModel(BrokerModel):
    """The same lives where hardly anything fits into memory, and a start reads nothing."""

    limits: ClassVar = {"window_messages": 1, "window_scheduled": 1}
    load_limit = 0


class ShortModel(PagedModel):
    """The same where five messages take all the memory there is."""

    limits: ClassVar = {"window_messages": 4, "window_scheduled": 2, "memory_limit_bytes": 5 * (REFERENCE_BYTES + 10)}


_SETTINGS = settings(
    max_examples=int(os.environ.get("HOMING_LIVES", 100)),
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestBrokerModel = BrokerModel.TestCase
TestBrokerModel.settings = _SETTINGS
TestPagedModel = PagedModel.TestCase
TestPagedModel.settings = _SETTINGS
TestShortModel = ShortModel.TestCase
TestShortModel.settings = _SETTINGS
